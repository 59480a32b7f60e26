"""The kubelet's pod-resources, asked through a child process that never holds up the agent.

At each scan the answer to the last question is taken, if it has come, and the next question asked. grpcio takes some
20 MB of memory: it stays in the child (`main`). The few messages of ``v1.PodResourcesLister/List`` are read by hand.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.safe_text import clean_text
from ..base.self_command import Answer, Child, ChildError, child_command, say
from ..model import Absence
from .scheduler_claims import DeviceClaim, Devices, SchedulerState, not_known

METHOD = "/v1.PodResourcesLister/List"
_TIMEOUT_SECONDS, _ANSWER_BYTES = 5.0, 16 * 1024 * 1024
_FRESH_SECONDS = 90.0  # an older answer is not believed any more
_REMEDY = (
    "Run the agent's pod as root with /var/lib/kubelet/pod-resources mounted (it only reads), and with grpcio; "
    "check that the kubelet serves pod-resources v1 (Kubernetes 1.20 and newer)."
)
_BY_UUID = "Let the device plugin name devices by UUID (its default); what it gave by other names stays unknown."
_SLICES = (
    "Name a file in [kubernetes] resource_slices_file that kubectl get resourceslices -o json writes at each change."
)


@dataclass(frozen=True, slots=True)
class PodDevices:
    """A pod and its devices, each with its resource; ``dra:POOL/NAME`` with its driver where a claim gave it."""

    namespace: str
    name: str
    devices: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KubeletAnswer(Answer):
    """What the child says of pods that were given devices."""

    pods: tuple[PodDevices, ...] = ()


class PodResources:
    """Asks the kubelet behind `socket` by way of a child. `close` ends the child; it ends by itself with the agent."""

    def __init__(self, socket: Path, command: Sequence[str] | None = None) -> None:
        self._socket = socket
        self._child = Child(command or child_command("skuwise.agent.jobs.podresources", str(socket)))
        self._pods: tuple[PodDevices, ...] | None = None
        self._told_at = time.monotonic()
        self._fault = ""

    def read(self, devices: Devices) -> SchedulerState:
        """What holds now; never waits. The kubelet is present where there is a socket of its pod-resources."""
        try:
            is_there = stat.S_ISSOCK(self._socket.stat().st_mode)
        except OSError as error:
            is_there = isinstance(error, PermissionError)
        if not is_there or not os.access(self._socket, os.R_OK | os.W_OK):
            self.close()
            return _unknown(f"{self._socket} may not be opened by this user") if is_there else SchedulerState(False)
        now = time.monotonic()
        try:
            answer = self._child.answer(KubeletAnswer)
            if answer is not None:
                self._pods, self._fault, self._told_at = answer.pods, "", now
            self._child.ask()
        except ChildError as error:
            self._fault = str(error)
        is_fresh = now - self._told_at <= _FRESH_SECONDS
        if self._pods is not None and is_fresh:
            claims = tuple(filter(None, (claim_of(pod, devices) for pod in self._pods)))
            unresolved = [f"{claim.namespace}/{claim.pod}: {name}" for claim in claims for name in claim.unresolved]
            absences: frozenset[Absence] = frozenset()
            for subject, what, remedy in (("kubernetes", "The kubelet", _BY_UUID), ("kubernetes-dra", "DRA", _SLICES)):
                names = [text for text in unresolved if (": dra:" in text) == (remedy == _SLICES)]
                detail = f"{what} gave devices that match no GPU of the driver ({{}})."
                absences |= not_known(subject, "unresolved", detail, remedy, names)
            return SchedulerState(True, claims, absences)
        if is_fresh and not self._fault:
            return SchedulerState(True)  # the first question is on its way
        return _unknown(self._fault or "it does not answer")

    def close(self) -> None:
        self._child.close()


def claim_of(pod: PodDevices, devices: Devices) -> DeviceClaim | None:
    """The pod's GPUs; None: it has none."""
    names = devices.gpus_among(pod.devices)
    return DeviceClaim("kubernetes", *devices.resolve(names), namespace=pod.namespace, pod=pod.name) if names else None


def _unknown(why: str) -> SchedulerState:
    detail = "GPU allocations of pods are unknown: {}."
    return SchedulerState(True, (), not_known("kubernetes", "unknown", detail, _REMEDY, [why]))


class WireError(ValueError):
    """The bytes are no protobuf message."""


def decode_pods(data: bytes) -> tuple[PodDevices, ...]:
    """The pods of a ListPodResourcesResponse that were given devices. Raises WireError."""
    pods: list[PodDevices] = []
    for pod in _messages(data, 1):
        devices: list[tuple[str, str]] = []
        for container in _messages(pod, 3):
            for given in _messages(container, 2):
                devices += [(_text(given, 1), clean_text(name, 128)) for name in _messages(given, 2)]
            for dynamic in _messages(container, 5):
                devices += [(_text(o, 2), f"dra:{_text(o, 3)}/{_text(o, 4)}") for o in _messages(dynamic, 4)]
        pods += [PodDevices(_text(pod, 2), _text(pod, 1), tuple(devices))] if devices else []
    return tuple(pods)


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind, length = key & 7, {1: 8, 5: 4}.get(key & 7, 0)
        if kind in (0, 2):
            length, position = _varint(data, position)
        if kind not in (0, 1, 2, 5) or (kind != 0 and position + length > len(data)):
            raise WireError(f"type {kind}, {length} bytes")
        if kind == 2 and key >> 3 == wanted:
            yield data[position : position + length]
        position += length if kind != 0 else 0


def _text(data: bytes, wanted: int) -> str:
    return next((clean_text(value) for value in _messages(data, wanted)), "")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for n, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            return value, position + n + 1
    raise WireError("a number without an end")


def main(socket_path: str) -> None:
    """Answer every line on stdin with one on stdout, until stdin ends."""
    try:
        import grpc  # noqa: PLC0415 - without it the answer says so
    except ImportError:
        for _ in sys.stdin:
            say(KubeletAnswer("grpcio is not installed"))
        return
    options = [("grpc.max_receive_message_length", _ANSWER_BYTES), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(f"unix:{socket_path}", options=options) as channel:
        call = channel.unary_unary(METHOD, request_serializer=None, response_deserializer=None)
        for _ in sys.stdin:
            try:
                answer = KubeletAnswer(pods=decode_pods(call(b"", timeout=_TIMEOUT_SECONDS)))
            except grpc.RpcError as error:
                answer = KubeletAnswer(clean_text(f"{error.code().name}: {error.details()}"))
            except WireError as error:
                answer = KubeletAnswer(f"not the answer of pod-resources v1 ({error})")
            say(answer)


if __name__ == "__main__":
    main(sys.argv[1])
