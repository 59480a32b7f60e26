"""MIG in the advice: instances are parts of a GPU that is counted, priced and judged once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.workloads.attribution import attribute
from skuwise.advisor.classify.workloads.sku_lookup import index_gpus, row_parts
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import DECODE, FREE, HOUR, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

PARENT = "GPU-n1-0"
_PARENT_READS = {name: value for name, value in FREE.items() if name != "gpu_util"}
_INSTANCE_READS = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "mem_used_bytes")


def divided(cut: list[str], reads: Sequence[Mapping[str, float]], hours: int) -> FrameBuilder:
    """One GPU, whose own counters say idle all along, and instances of it by profile."""
    b = FrameBuilder(hours=hours)
    b.node()
    b.use(_PARENT_READS)
    for number, (profile, own) in enumerate(zip(cut, reads, strict=True), start=1):
        uuid = f"MIG-n1-{number}"
        b.gpus.append(b.gpus[0] | {"gpu_uuid": uuid, "kind": "mig", "parent_uuid": PARENT, "mig_profile": profile,
                                   "name": f"NVIDIA H100 80GB HBM3 MIG {profile}", "power_limit_watts": None,
                                   "nvlink_bytes_per_second": None})  # fmt: skip
        b.use({name: own[name] for name in _INSTANCE_READS}, uuid=uuid)
    return b


def sliced() -> FrameBuilder:
    """In two instances, of which the first decodes."""
    return divided(["3g.40gb", "3g.40gb"], [DECODE, FREE], 48)


def test_instances_cost_and_rest_for_their_parts_of_the_gpu_and_every_hour_counts_once() -> None:
    b = sliced()
    b.work("served", [("n1", "MIG-n1-1")], start=0, end=30)
    verdicts = judge(b.frame(), rulebook())
    hours = verdicts.occupancy.groupby("class")["gpu_hours"].sum().to_dict()
    assert hours == {"workload": pytest.approx(15), "unallocated": pytest.approx(33)}
    assert set(verdicts.occupancy["gpu_uuid"]) == {PARENT}
    (node,) = verdicts.nodes
    assert (node.gpu_count, node.gpu_sku) == (1, "H100-SXM5")
    assert node.hours_observed == pytest.approx(48)
    free = {one.gpu_uuid: one for one in verdicts.bare}["MIG-n1-2"]
    assert (free.parent_uuid, free.profile, free.part) == (PARENT, "3g.40gb", 0.5)
    assert (free.hours, free.idle_hours) == (pytest.approx(24), pytest.approx(24))


def test_work_on_an_instance_has_its_own_rows_and_is_shared_with_nobody() -> None:
    b = sliced()
    b.work("served", [("n1", "MIG-n1-1")], end=30)
    b.work("other", [("n1", "MIG-n1-2")], end=30)
    frame = b.frame()
    sessions = attribute(frame).sessions
    assert [session.shared for session in sessions] == [False, False]
    assert sessions[0].held_seconds == pytest.approx(30 * HOUR)
    workload = next(w for w in judge(frame, rulebook()).workloads if w.gpus == ("MIG-n1-1",))
    assert workload.features["hours"] == pytest.approx(30)
    assert (workload.gpu_hours, workload.gpu_part) == (pytest.approx(15), 0.5)


@pytest.mark.parametrize(
    ("cut", "parts"),
    [
        (["3g.40gb", "3g.40gb"], [0.5, 0.5]),
        (["1g.10gb"] * 7, [1 / 7] * 7),
        (["2g.20gb", "2g.20gb"], [2 / 7, 2 / 7]),
        (["4g.40gb", "3g.40gb"], [8 / 15, 7 / 15]),
        (["1g.20gb"], [0.25]),
        (["what"], [1.0]),
        (["3g.40gb", "what"], [0.5, 0.5]),
        (["7g.80gb"], [1.0]),
    ],
)
def test_instances_that_divide_a_gpu_wholly_are_all_of_it(cut: list[str], parts: list[float]) -> None:
    b = divided(cut, [FREE] * len(cut), hours=4)
    found = row_parts(b.frame(), index_gpus(b.frame(), load_catalog()))
    rows = dict(zip(b.frame().gpu["gpu_uuid"], found, strict=True))
    assert [rows[f"MIG-n1-{n + 1}"] for n in range(len(cut))] == pytest.approx(parts)
    assert rows[PARENT] == pytest.approx(1 - sum(parts), abs=1e-9)
