"""MIG in the advice: instances are parts of a GPU that is counted, priced and judged once."""

from __future__ import annotations

import pytest
from skuwise.advisor.verdicts.verdict import judge
from skuwise.advisor.verdicts.workloads import attribute
from skuwise.rules.catalog_loader import Catalog, load_catalog
from skuwise.tests.frames import DECODE, FREE, HOUR, FrameBuilder

PARENT = "GPU-n1-0"
_PARENT_READS = {name: value for name, value in FREE.items() if name != "gpu_util"}
_INSTANCE_READS = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "mem_used_bytes")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def sliced(hours: int = 48) -> FrameBuilder:
    """One GPU in two instances. The parent's own counters say idle all along; the first instance decodes."""
    b = FrameBuilder(hours=hours)
    b.node()
    b.use(_PARENT_READS)
    for number, reads in ((1, DECODE), (2, FREE)):
        uuid = f"MIG-n1-{number}"
        b.gpus.append(b.gpus[0] | {"gpu_uuid": uuid, "kind": "mig", "parent_uuid": PARENT, "slices": 3.0,
                                   "mig_profile": "3g.40gb", "name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
                                   "power_limit_watts": None, "nvlink_bytes_per_second": None})  # fmt: skip
        b.use({name: reads[name] for name in _INSTANCE_READS}, uuid=uuid)
    return b


def test_a_gpu_is_shared_while_an_instance_is_held_and_every_hour_counts_once(catalog: Catalog) -> None:
    b = sliced()
    b.work("served", [("n1", "MIG-n1-1")], start=0, end=30)
    verdicts = judge(b.frame(), catalog)
    hours = verdicts.occupancy.groupby("class")["gpu_hours"].sum().to_dict()
    assert hours == {"shared": pytest.approx(30), "unallocated": pytest.approx(18)}
    (node,) = verdicts.nodes
    assert (node.gpu_count, node.gpu_sku) == (1, "H100-SXM5")
    assert node.hours_observed == pytest.approx(48)


def test_no_parent_is_idle_while_its_instances_work_and_no_instance_is_a_gpu(catalog: Catalog) -> None:
    b = sliced()
    b.work("served", [("n1", "MIG-n1-1")])
    assert judge(b.frame(), catalog).bare == ()
    unused = judge(sliced().frame(), catalog).bare
    assert [gpu.gpu_uuid for gpu in unused] == [PARENT]
    assert unused[0].hours == pytest.approx(48)


def test_work_on_an_instance_has_its_own_rows_and_is_marked_as_shared(catalog: Catalog) -> None:
    b = sliced()
    b.work("served", [("n1", "MIG-n1-1")], end=30)
    frame = b.frame()
    (session,) = attribute(frame).sessions
    assert session.shared
    assert session.held_seconds == pytest.approx(30 * HOUR)
    (workload,) = judge(frame, catalog).workloads
    assert workload.gpus == ("MIG-n1-1",)
    assert workload.features["hours"] == pytest.approx(30)


def test_whoever_was_given_the_whole_gpu_keeps_it(catalog: Catalog) -> None:
    b = sliced()
    b.work("job", [("n1", PARENT)], basis="allocation")
    b.work("job", [("n1", "MIG-n1-1")], start=10, end=20)
    hours = judge(b.frame(), catalog).occupancy.groupby("class")["gpu_hours"].sum()
    assert set(hours.index) <= {"workload", "allocated_idle"}
    assert hours.sum() == pytest.approx(48)
