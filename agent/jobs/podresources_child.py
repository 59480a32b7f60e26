"""A process of its own that asks the kubelet which devices it gave to which pod.

grpcio takes some 20 MB of memory: it stays in here and out of the agent. The protocol with the agent is a line for a
line: for every line on stdin one JSON object on stdout; the end of stdin ends the process. The two messages of
``v1.PodResourcesLister/List`` are small enough to be read by hand, so nothing is generated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

METHOD = "/v1.PodResourcesLister/List"
TIMEOUT_SECONDS = 5.0
SIZE_LIMIT = 16 * 1024 * 1024
_PODS_LIMIT, _DEVICES_LIMIT = 1024, 256

Field = tuple[int, int | bytes]


class WireError(ValueError):
    """The bytes are no protobuf message."""


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a protobuf message: number and value (bytes for strings and messages)."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError("a field without a number")
        if kind == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == 2:
            length, position = _varint(data, position)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise WireError(f"wire type {kind}")
        if position + length > len(data):
            raise WireError("cut off")
        yield number, data[position : position + length]
        position += length


def decode_pods(data: bytes) -> list[dict[str, object]]:
    """The pods of a ListPodResourcesResponse: ``namespace``, ``name`` and the GPU ``devices`` of all containers."""
    pods: list[dict[str, object]] = []
    for pod in _messages(data, 1):
        devices = dict.fromkeys(name for container in _messages(pod, 3) for name in _devices(container))
        if devices and len(pods) < _PODS_LIMIT:
            pods.append({"namespace": _text(pod, 2), "name": _text(pod, 1), "devices": list(devices)[:_DEVICES_LIMIT]})
    return pods


def main(socket_path: str) -> int:
    """Answer every line on stdin until it ends."""
    try:
        import grpc  # noqa: PLC0415 - without it the answer says so
    except ImportError:
        return _answer_all({"error": "no-grpcio", "detail": "grpcio is not installed"})
    options = [("grpc.max_receive_message_length", SIZE_LIMIT), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(f"unix:{socket_path}", options=options) as channel:
        call = channel.unary_unary(METHOD, request_serializer=None, response_deserializer=None)
        for _ in sys.stdin:
            try:
                _say({"pods": decode_pods(call(b"", timeout=TIMEOUT_SECONDS))})
            except grpc.RpcError as error:
                code = error.code().name if isinstance(error, grpc.Call) else "UNKNOWN"
                detail = str(error.details() if isinstance(error, grpc.Call) else error)
                _say({"error": "kubelet", "detail": f"{code}: {detail[:200]}"})
            except WireError as error:
                _say({"error": "kubelet", "detail": f"not the answer of pod-resources v1 ({error})"})
    return 0


def _answer_all(answer: dict[str, object]) -> int:
    for _ in sys.stdin:
        _say(answer)
    return 0


def _say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _devices(container: bytes) -> Iterator[str]:
    for devices in _messages(container, 2):
        resource = _text(devices, 1)
        for number, raw in fields(devices):
            if number == 2 and isinstance(raw, bytes):
                name = raw.decode("utf-8", "replace")
                # Resources may be renamed, but device ids of these forms are GPUs in any case.
                if resource.startswith("nvidia.com/") or name.startswith(("GPU-", "MIG-")):
                    yield name
    for dynamic in _messages(container, 5):
        for claimed in _messages(dynamic, 4):
            if _text(claimed, 2) == "gpu.nvidia.com":
                yield f"dra:{_text(claimed, 3)}/{_text(claimed, 4)}"


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    return (value for number, value in fields(data) if number == wanted and isinstance(value, bytes))


def _text(data: bytes, wanted: int) -> str:
    return next((value.decode("utf-8", "replace") for value in _messages(data, wanted)), "")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
    raise WireError("a number without an end")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
