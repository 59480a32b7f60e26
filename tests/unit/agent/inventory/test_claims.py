"""Device names of every form, and which pod's name belongs to which cgroup."""

from __future__ import annotations

import pytest
from skuwise.agent.inventory.kubernetes.pod_names import controller_of
from skuwise.agent.inventory.kubernetes.podresources_child import decode_pods
from skuwise.agent.inventory.processes.cgroups import Origin
from skuwise.agent.inventory.scheduler_claims import DeviceClaim, Devices, join_claims
from skuwise.agent.model import Gpu

DEVICES = Devices(
    [
        Gpu("GPU-a", 0, "H100", minor=1),
        Gpu("GPU-b", 1, "H100", minor=0),
        Gpu("GPU-c", 2, "H100", minor=2),
        Gpu("MIG-1", 0, "H100 MIG", kind="mig", parent_uuid="GPU-a"),
        Gpu("MIG-2", 1, "H100 MIG", kind="mig", parent_uuid="GPU-b"),
        Gpu("MIG-3", 2, "H100 MIG", kind="mig", parent_uuid="GPU-b"),
    ]
)
UID_1, UID_2 = Origin("kubernetes", "uid-1"), Origin("kubernetes", "uid-2")


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        ("GPU-a", "GPU-a"), ("GPU-a::3", "GPU-a"), ("MIG-1", "MIG-1"), ("0", "GPU-b"), ("nvidia0", "GPU-b"),
        ("nvidia1/gi3", "MIG-1"), ("nvidia0/gi1", None), ("nvidia2/gi0", None), ("nvidia0/vgpu2", "GPU-b"),
        ("9", None), ("GPU-z", None), ("", None), ("nvidia0/gi1/x", None), ("dra:pool/gpu-0", None), ("GPU-a::", None),
    ],
)  # fmt: skip
def test_names_of_devices(name: str, uuid: str | None) -> None:
    assert DEVICES.resolve([name, name]) == ((uuid,) if uuid else (), () if uuid else (name,))


def pod(name: str, *gpus: str, unresolved: tuple[str, ...] = ()) -> DeviceClaim:
    return DeviceClaim("kubernetes", gpus, unresolved, namespace="ns", pod=name)


def test_a_pod_is_joined_to_the_only_uid_on_its_gpus() -> None:
    one, two = pod("one", "GPU-a", "GPU-b"), pod("two", "GPU-c")
    seen = {UID_1: frozenset({"GPU-a"}), UID_2: frozenset({"GPU-c"})}
    assert join_claims([one, two], seen) == {one: UID_1, two: UID_2}


@pytest.mark.parametrize(
    ("claims", "seen"),
    [
        ([pod("one", "GPU-a"), pod("two", "GPU-a")], {UID_1: frozenset({"GPU-a"})}),
        ([pod("one", "GPU-a")], {UID_1: frozenset({"GPU-a"}), UID_2: frozenset({"GPU-a"})}),
        ([pod("one", "GPU-a")], {UID_1: frozenset({"GPU-a", "GPU-b"})}),
        ([pod("one", "GPU-a")], {Origin("docker", "x"): frozenset({"GPU-a"})}),
        ([pod("one", "GPU-a", unresolved=("nvidia9",))], {UID_1: frozenset({"GPU-a"})}),
        ([pod("one")], {UID_1: frozenset({"GPU-a"})}),
        ([pod("one", "GPU-a")], {}),
    ],
)
def test_where_anything_else_fits_nothing_is_joined(
    claims: list[DeviceClaim], seen: dict[Origin, frozenset[str]]
) -> None:
    assert join_claims(claims, seen) == {}


@pytest.mark.parametrize(
    ("name", "controller"),
    [
        ("llama-7d4b9c6f5-x2x9q", "llama"), ("vllm-70b-5f6c8d9b4-zzxcv", "vllm-70b"), ("trainer-0", "trainer"),
        ("exporter-x2x9q", "exporter"), ("job-3-x2x9q", "job"), ("plain", "plain"), ("a-b-c", "a-b-c"), ("", ""),
    ],
)  # fmt: skip
def test_the_controller_in_a_pods_name(name: str, controller: str) -> None:
    assert controller_of(name) == controller


def message(*fields: tuple[int, bytes | str]) -> bytes:
    out = b""
    for number, value in fields:
        raw = value.encode() if isinstance(value, str) else value
        assert len(raw) < 1 << 14
        length = bytes([len(raw)]) if len(raw) < 128 else bytes([len(raw) & 0x7F | 0x80, len(raw) >> 7])
        out += bytes([number << 3 | 2]) + length + raw
    return out


def test_the_kubelets_answer_is_read_and_other_devices_are_passed_over() -> None:
    gpu = message((1, "nvidia.com/gpu"), (2, "GPU-a"), (2, "GPU-b::1"))
    renamed, other = message((1, "acme/gpu"), (2, "GPU-c")), message((1, "rdma/hca"), (2, "0"))
    dra = message((4, message((2, "gpu.nvidia.com"), (3, "pool"), (4, "gpu-0"))))
    container = message((1, "c")) + b"\x18\x07" + message((2, gpu), (2, renamed), (2, other), (5, dra))
    answer = message((1, message((1, "web"), (2, "ns"), (3, container))), (1, message((1, "bare"), (2, "ns"))))
    assert decode_pods(answer) == [
        {"namespace": "ns", "name": "web", "devices": ["GPU-a", "GPU-b::1", "GPU-c", "dra:pool/gpu-0"]}
    ]
    assert decode_pods(b"") == []
