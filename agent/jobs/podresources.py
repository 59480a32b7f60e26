"""The kubelet's pod-resources, asked through a child process that never holds up the agent.

At each scan the answer to the last question is taken, if it has come, and the next question asked. The answer names
pods by namespace and name, not by UID: `scheduler_claims.join_claims` ties them to cgroups where only one fits.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.safe_text import clean_text
from ..base.self_command import child_command
from ..model import Absence
from .scheduler_claims import DeviceClaim, Devices, SchedulerState

# A child that has not answered for a minute is ended; the next is started two minutes later.
_PATIENCE_SECONDS, _RESTART_SECONDS = 60.0, 120.0
# An answer older than this is not believed any more.
_FRESH_SECONDS = 90.0
_LINE_LIMIT = 4 * 1024 * 1024
_CHUNK = 65536
_DEVICES_LIMIT = 256


@dataclass(frozen=True, slots=True)
class PodDevices:
    """A pod and the device ids it was given, as the kubelet writes them."""

    namespace: str
    pod: str
    devices: tuple[str, ...]


class PodResources:
    """Asks the kubelet behind `socket` by way of a child. `close` ends the child; it ends by itself with the agent."""

    def __init__(
        self, socket: Path, command: Sequence[str] | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._socket = socket
        self._command = command or child_command("skuwise.agent.jobs.podresources_child", str(socket))
        self._child: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._monotonic = monotonic
        self._asked_at: float | None = None  # None: no question is open
        self._rest_until = 0.0
        self._pods: tuple[PodDevices, ...] | None = None
        self._told_at = monotonic()
        self._fault: str | None = None

    def read(self, devices: Devices) -> SchedulerState:
        """What holds now; never waits. The kubelet is present where there is a socket of its pod-resources."""
        there = _socket_state(self._socket)
        if there is None:
            self.close()
            return SchedulerState(present=False)
        if there:
            self.close()
            return SchedulerState(True, absences=frozenset({_unknown(there, _PERMISSION_REMEDY)}))
        now = self._monotonic()
        self._take_answer(now)
        self._ask(now)
        is_fresh = now - self._told_at <= _FRESH_SECONDS
        if self._pods is None or not is_fresh:
            if self._fault is None and is_fresh:
                return SchedulerState(True)  # the first question is on its way
            remedy = _GRPC_REMEDY if self._fault == _NO_GRPC else _ANSWER_REMEDY
            return SchedulerState(True, absences=frozenset({_unknown(self._fault or "it does not answer", remedy)}))
        claims = tuple(_claim(pod, devices) for pod in self._pods)
        return SchedulerState(True, claims, _unresolved(claims, devices))

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        self._pending, self._asked_at = b"", None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        child.kill()
        child.wait()

    def _ask(self, now: float) -> None:
        if self._child is None:
            if now < self._rest_until:
                return
            self._start(now)
        if self._child is None or self._child.stdin is None:
            return
        if self._asked_at is not None:
            if now - self._asked_at > _PATIENCE_SECONDS:
                self._give_up("it does not answer", now)
            return
        try:
            os.write(self._child.stdin.fileno(), b"\n")
            self._asked_at = now
        except OSError:
            self._give_up("the child process that asks it ended", now)

    def _start(self, now: float) -> None:
        try:
            self._child = subprocess.Popen(  # noqa: S603 - our own command
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._give_up(f"the child process that asks it cannot be started ({error.strerror})", now)
            return
        if self._child.stdout is not None:
            os.set_blocking(self._child.stdout.fileno(), False)

    def _take_answer(self, now: float) -> None:
        if self._child is None or self._child.stdout is None or self._asked_at is None:
            return
        try:
            while len(self._pending) <= _LINE_LIMIT:
                data = os.read(self._child.stdout.fileno(), _CHUNK)
                if not data:
                    self._give_up("the child process that asks it ended", now)
                    return
                self._pending += data
        except BlockingIOError:
            pass
        if len(self._pending) > _LINE_LIMIT:
            self._give_up("its answer is too long", now)
            return
        line, newline, _ = self._pending.partition(b"\n")
        if newline:
            self._pending, self._asked_at = b"", None
            self._keep(line, now)

    def _keep(self, line: bytes, now: float) -> None:
        answer = _parse(line)
        if isinstance(answer, str):
            self._fault = answer
        else:
            self._pods, self._fault, self._told_at = answer, None, now

    def _give_up(self, why: str, now: float) -> None:
        self.close()
        self._fault, self._rest_until = why, now + _RESTART_SECONDS


def _parse(line: bytes) -> tuple[PodDevices, ...] | str:
    """The child's answer, or why there is none."""
    try:
        answer = json.loads(line)
        if "error" in answer:
            return _NO_GRPC if answer["error"] == "no-grpcio" else clean_text(str(answer.get("detail", "")))
        return tuple(
            PodDevices(
                clean_text(pod["namespace"]),
                clean_text(pod["name"]),
                tuple(clean_text(name, 128) for name in pod["devices"][:_DEVICES_LIMIT]),
            )
            for pod in answer["pods"]
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "the child process gave an answer that is none"


def _socket_state(path: Path) -> str | None:
    """Empty: it can be asked; a sentence: why not; None: there is no kubelet here."""
    try:
        about = path.stat()
    except PermissionError:
        return f"{path} may not be reached by this user"
    except OSError:
        return None
    if not stat.S_ISSOCK(about.st_mode):
        return f"{path} is not a socket"
    return "" if os.access(path, os.R_OK | os.W_OK) else f"{path} may not be opened by this user"


def _claim(pod: PodDevices, devices: Devices) -> DeviceClaim:
    found, unknown = devices.resolve(pod.devices)
    return DeviceClaim("kubernetes", found, unknown, namespace=pod.namespace, pod=pod.pod)


def _unresolved(claims: Sequence[DeviceClaim], devices: Devices) -> frozenset[Absence]:
    """What fits no device here: names that the driver does not know, and names of DRA that fit none or several."""
    found: dict[bool, list[str]] = {}
    for claim in claims:
        for name in claim.unresolved:
            doubt = devices.doubt(name)
            told = f"{claim.namespace}/{claim.pod}: {name}"
            found.setdefault(bool(doubt), []).append(f"{told} ({doubt})" if doubt else told)
    return frozenset(
        Absence(
            "source", "allocation", "kubernetes-dra" if is_dra else "kubernetes", "allocation-unresolved",
            f"{_DRA_UNKNOWN if is_dra else _DEVICE_UNKNOWN} ({', '.join(names[:3])}{_more(names)}).",
            _DRA_REMEDY if is_dra else _DEVICE_REMEDY,
        )
        for is_dra, names in found.items()
    )  # fmt: skip


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 3} more" if len(names) > 3 else ""


def _unknown(why: str, remedy: str) -> Absence:
    detail = f"GPU allocations of pods are unknown: {why}."
    return Absence("source", "allocation", "kubernetes", "allocation-unknown", detail, remedy)


_NO_GRPC = "grpcio is not installed"
_GRPC_REMEDY = "Install it in the agent's environment: pip install grpcio."
_ANSWER_REMEDY = "Check the kubelet, and that its pod-resources v1 is enabled (Kubernetes 1.20 and newer)."
_PERMISSION_REMEDY = "Run the agent's pod as root with /var/lib/kubelet/pod-resources mounted; it only reads."
_DEVICE_REMEDY = "Let the device plugin name devices by UUID (its default); what it gave by other names stays unknown."
_DEVICE_UNKNOWN = "The kubelet gave devices that the driver does not name"
_DRA_UNKNOWN = "Dynamic resource allocation gave devices that match no GPU"
_DRA_REMEDY = (
    "Write kubectl get resourceslices -o json to a file whenever they change, and name it in [kubernetes] "
    "resource_slices_file."
)
