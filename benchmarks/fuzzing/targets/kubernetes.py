"""What kubectl wrote of pods and ResourceSlices, and the kubelet's answer of which devices it gave."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..documents import by_json
from ..spoil import spoiled
from ..target import BrokenPromiseError, Prepared, Seed, Target
from ..verdict import finite

NODE = "gpu-1"
_SPEC = {"nodeName": NODE, "containers": [{"name": "main", "image": "repo/vllm:1",
                                            "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}  # fmt: skip


def _pod(name: str, owner: dict[str, Any] | None, **labels: str) -> dict[str, Any]:
    return {
        "kind": "Pod", "apiVersion": "v1", "spec": _SPEC,
        "metadata": {
            "name": name, "namespace": "search", "uid": f"1b8a-{name}", "labels": {"team": "search", **labels},
            "creationTimestamp": "2026-10-01T00:00:00Z",
            "ownerReferences": [{**owner, "controller": True}] if owner else [],
        },
        "status": {
            "phase": "Running", "startTime": "2026-10-01T00:00:05Z",
            "containerStatuses": [{"name": "main", "imageID": "sha256:0", "state": {
                "running": {"startedAt": "2026-10-01T00:00:09Z"}}}],
        },
    }  # fmt: skip


def _documents() -> list[Seed]:
    replica_set = {"kind": "ReplicaSet", "name": "web-5d4f8", "apiVersion": "apps/v1"}
    items = [
        _pod("web-5d4f8-abcde", replica_set),
        _pod("train-0", {"kind": "Job", "name": "train", "apiVersion": "batch/v1"}),
        _pod("lws-0", {"kind": "StatefulSet", "name": "lws", "apiVersion": "apps/v1"},
             **{"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/group-index": "0"}),
        {"kind": "ReplicaSet", "metadata": {"name": "web-5d4f8", "namespace": "search", "ownerReferences": [
            {"kind": "Deployment", "name": "web", "controller": True}]}},
        {"kind": "Job", "metadata": {"name": "train", "namespace": "search"}, "spec": {"parallelism": 4}},
        {"kind": "Namespace", "metadata": {"name": "search", "labels": {"team": "search"}}},
    ]  # fmt: skip
    device = {"name": "gpu-0", "attributes": {
        "gpu.nvidia.com/uuid": {"string": "GPU-0"}, "resource.kubernetes.io/pcieRoot": {"string": "pci0000:01"},
        "type": {"string": "gpu"}, "profile": {"string": "1g.10gb"}, "parentUUID": {"string": "GPU-1"}}}  # fmt: skip
    slices = [
        {"kind": "ResourceSlice", "spec": {"driver": "gpu.nvidia.com", "nodeName": NODE,
         "pool": {"name": NODE, "generation": 1}, "devices": [device, {"name": "gpu-1", "basic": device}]}},
    ]  # fmt: skip
    return [
        Seed("pods", json.dumps({"kind": "List", "items": items}).encode()),
        Seed("slices", json.dumps({"kind": "List", "items": slices}).encode()),
    ]


def _prepare(folder: Path) -> Prepared:
    from skuwise.agent.inventory.kubernetes import child as kubernetes_child
    from skuwise.agent.inventory.kubernetes import files as kubernetes_files
    from skuwise.agent.inventory.kubernetes.files import KubernetesFacts, KubernetesFiles

    path = folder / "kubectl.json"
    files = KubernetesFiles("c", NODE, None, None, ("team",))

    def read(name: str, data: bytes) -> object:
        path.write_bytes(data)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = kubernetes_child.main(name, str(path), NODE, "team")
        line = said.getvalue().encode("utf-8")
        if status or line.count(b"\n") != 1:
            raise BrokenPromiseError("the child does not print one line")
        answer = json.loads(line)
        if "error" in answer:
            finite(answer, "the child's error")
            raise _RefusedError(answer["error"])
        facts: object = (
            files._with_pods(KubernetesFacts(), answer) if name == "pods" else kubernetes_files._devices(answer)
        )
        if name == "pods":
            assert isinstance(facts, KubernetesFacts)
            finite([(f.work, f.team, f.pod.name, f.pod.image, f.pod.labels) for f in facts.by_name.values()], "a pod")
        else:
            finite(facts, "a device")
        return facts

    words = (b'"kind":"Pod"', b'"items":', b'"metadata":null', b"2026-10-01T00:00:00Z", b'"nvidia.com/gpu"', b"\\ud800")
    return Prepared(_documents(), read, by_json(*words))


class _RefusedError(Exception):
    """The child's own refusal, which the agent tells as an absence."""


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _kubelet_answer() -> bytes:
    devices = _field(1, b"nvidia.com/gpu") + _field(2, b"GPU-0") + _field(2, b"GPU-1")
    claimed = _field(2, b"gpu.nvidia.com") + _field(3, NODE.encode()) + _field(4, b"gpu-0")
    container = _field(1, b"main") + _field(2, devices) + _field(3, 5) + _field(5, _field(4, claimed))
    pod = _field(1, b"web-0") + _field(2, b"search") + _field(3, container)
    return _field(1, pod) + _field(1, _field(1, b"idle") + _field(2, b"n"))


def _prepare_kubelet(folder: Path) -> Prepared:  # noqa: ARG001
    from skuwise.agent.inventory.kubernetes import podresources, podresources_child

    def read(name: str, data: bytes) -> object:
        line = data if name == "line" else json.dumps({"pods": podresources_child.decode_pods(data)}).encode()
        answer = podresources._parse(line)
        if name != "line" and isinstance(answer, str):
            raise BrokenPromiseError("what the child tells is not understood")
        finite(answer, "an answer")
        return answer

    plain = by_json(b'"pods":', b'"devices":', b'"error":')

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:  # noqa: ARG001
        if seed.name == "line":
            return plain(draw, seed, [seed])
        return spoiled(draw, seed.data, [seed], (_varint(2**63), b"\x0a\xff\xff\xff\xff\x0f", _kubelet_answer()))

    line = json.dumps({"pods": [{"namespace": "n", "name": "p", "devices": ["GPU-0"]}]}).encode()
    return Prepared([Seed("wire", _kubelet_answer()), Seed("line", line)], read, mutate)


def _wire_error() -> tuple[type[Exception], ...]:
    from skuwise.agent.inventory.kubernetes.podresources_child import WireError

    return (WireError,)


KUBERNETES = Target(
    "kubernetes", "kubectl's JSON of pods and ResourceSlices (agent/inventory)", _prepare, refusals=(_RefusedError,)
)
KUBELET = Target(
    "kubelet", "the kubelet's answer of pods' devices (agent/inventory)", _prepare_kubelet, refusals=_wire_error()
)
