"""Every GPU of a window is counted, observed or not, before anything is judged."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.workloads.inventory import Inventory, inventory_of
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.unobservable import blind_nodes
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import DECODE, FREE, HOUR, START, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

CATALOG = load_catalog()


def counted(frame: Frame) -> Inventory:
    return inventory_of(frame, CATALOG.node_gpu_count, blind_nodes(frame.absences))


def test_gpus_that_the_sku_has_and_no_series_names_are_unobserved() -> None:
    b = FrameBuilder(hours=40)
    uuids = b.node(gpus=2)
    b.nodes[-1]["node_sku"] = "azure/Standard_ND96isr_H100_v5"
    for uuid in uuids:
        b.use(DECODE, uuid=uuid)
    found = counted(b.frame())
    assert found.gpu_count == 8
    (gap,) = found.unobserved
    assert (gap.node, len(gap.gpus), gap.code) == ("n1", 6, "not-named")
    assert "8 GPUs" in gap.reason
    assert found.observed_hours == pytest.approx(40)


def test_a_gpu_that_is_named_and_told_nothing_of_is_unobserved_by_its_id() -> None:
    b = FrameBuilder(hours=40)
    seen, silent = b.node(gpus=2)
    b.use(DECODE, uuid=seen)
    found = counted(b.frame())
    assert found.gpu_count == 2
    assert [one.gpus for one in found.unobserved] == [(silent,)]


def test_a_node_that_pods_alone_tell_of_is_counted_by_what_they_requested() -> None:
    b = FrameBuilder(hours=4)
    b.nodes.append({"node": "dark", "first_seen": START, "last_seen": START + 4 * HOUR})
    asked = {"node": "dark", "namespace": "a", "container": "c", "resource": "nvidia_com_gpu"}
    spans = [("p", 4.0, 0, 2), ("q", 2.0, 1, 4), ("r", 1.0, 3, 4)]
    requests = pd.DataFrame(
        [{**asked, "pod": pod, "count": n, "ts_start": START + a * HOUR, "ts_end": START + z * HOUR}
         for pod, n, a, z in spans]
    )  # fmt: skip
    found = counted(replace(b.frame(), requests=requests))
    assert found.nodes["dark"].gpu_count == 6
    assert found.nodes["dark"].unobserved_count == 6
    assert found.unobserved[0].code == "not-named"


def test_rows_of_instances_count_for_the_gpu_that_they_are_a_part_of() -> None:
    b = FrameBuilder(hours=10)
    (parent,) = b.node()
    for n in range(2):
        b.gpus.append({**b.gpus[0], "gpu_uuid": f"MIG-n1-{n}", "kind": "mig", "parent_uuid": parent})
        b.use(DECODE, uuid=f"MIG-n1-{n}")
    found = counted(b.frame())
    (gpu,) = found.nodes["n1"].gpus
    assert (found.gpu_count, gpu.gpu_uuid, gpu.sliced) == (1, parent, True)
    assert gpu.hours == pytest.approx(10)
    assert gpu.known["dram_active"] == pytest.approx(10)
    assert not found.unobserved


def test_a_node_that_was_renamed_counts_its_gpus_once_and_ends_where_the_other_name_begins() -> None:
    b = FrameBuilder(hours=40)
    old, new = b.node("old", gpus=2), b.node("new", gpus=2, first_seen=START + 24 * HOUR)
    for gpu, uuid in zip(b.gpus, [*old, *old], strict=True):
        gpu["gpu_uuid"] = uuid
    for uuid in old:
        b.use(DECODE, node="old", uuid=uuid, end=24)
        b.use(DECODE, node="new", uuid=uuid, start=24)
    assert len(new) == 2
    found = counted(b.frame())
    assert found.gpu_count == 2
    assert (found.nodes["old"].moved_to, found.nodes["old"].end) == ("new", START + 24 * HOUR)
    verdicts = judge(b.frame(), rulebook(CATALOG))
    assert verdicts.occupancy["gpu_hours"].sum() == pytest.approx(80)
    assert {one.node for one in verdicts.bare} == {"old", "new"}


def test_a_node_that_left_counts_until_it_was_last_seen() -> None:
    b = FrameBuilder(hours=240)
    for name, hours in (("left", 8), ("late", 239), ("stays", 240)):
        (uuid,) = b.node(name)
        b.nodes[-1]["last_seen"] = START + hours * HOUR
        b.use(DECODE, name, uuid, end=hours)
    found = counted(b.frame())
    spans = {name: (node.span_hours, node.end) for name, node in found.nodes.items()}
    assert spans == {"left": (8.0, START + 8 * HOUR), "late": (240.0, None), "stays": (240.0, None)}
    assert found.gpu_count == 3


def test_pods_that_share_listed_devices_add_none() -> None:
    b = FrameBuilder(hours=40)
    uuids = b.node(gpus=2)
    b.nodes[-1] |= {"gpu_count": None, "node_sku": None}
    for uuid in uuids:
        b.use(FREE, uuid=uuid)
    asked = [
        {"node": "n1", "namespace": "ml", "pod": f"asr-{n}", "container": "main", "resource": resource, "count": 1.0,
         "ts_start": START, "ts_end": START + 40 * HOUR}
        for n, resource in enumerate(["nvidia_com_gpu"] * 4 + ["nvidia_com_gpu_shared"] * 4)
    ]  # fmt: skip
    found = counted(replace(b.frame(), requests=pd.DataFrame(asked))).nodes["n1"]
    assert (found.gpu_count, found.unobserved) == (2, ())
    assert found.unaccounted_pods == tuple(f"ml/asr-{n}" for n in range(8))
