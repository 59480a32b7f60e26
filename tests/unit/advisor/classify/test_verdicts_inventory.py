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


@pytest.mark.parametrize(
    ("sku", "used", "count", "gap", "code", "words"),
    [
        ("azure/Standard_ND96isr_H100_v5", 2, 8, tuple(f"unnamed-{n}" for n in range(1, 7)), "not-named", "8 GPUs"),
        (None, 1, 2, ("GPU-n1-1",), "no-samples", "no metric of it"),
    ],
)
def test_gpus_that_exist_and_tell_nothing_are_unobserved(
    sku: str | None, used: int, count: int, gap: tuple[str, ...], code: str, words: str
) -> None:
    b = FrameBuilder(hours=40)
    uuids = b.node(gpus=2)
    b.nodes[-1]["node_sku"] = sku
    for uuid in uuids[:used]:
        b.use(DECODE, uuid=uuid)
    found = counted(b.frame())
    (one,) = found.unobserved
    assert (found.gpu_count, found.observed_hours) == (count, pytest.approx(40))
    assert (one.node, one.gpus, one.code) == ("n1", gap, code)
    assert words in one.reason


def asked(b: FrameBuilder, node: str, *requests: tuple[str, str, float, float, float]) -> Frame:
    """A frame with requests of pods: (pod, resource, GPUs, from and until which hour)."""
    rows = [
        {"node": node, "namespace": "ml", "pod": pod, "container": "c", "resource": resource, "count": count,
         "ts_start": START + start * HOUR, "ts_end": START + end * HOUR}
        for pod, resource, count, start, end in requests
    ]  # fmt: skip
    return replace(b.frame(), requests=pd.DataFrame(rows))


def test_a_node_that_pods_alone_tell_of_is_counted_by_what_they_requested() -> None:
    b = FrameBuilder(hours=4)
    b.nodes.append({"node": "dark", "first_seen": START, "last_seen": START + 4 * HOUR})
    spans = [("p", "nvidia_com_gpu", 4.0, 0, 2), ("q", "nvidia_com_gpu", 2.0, 1, 4), ("r", "nvidia_com_gpu", 1.0, 3, 4)]
    found = counted(asked(b, "dark", *spans))
    assert (found.nodes["dark"].gpu_count, found.nodes["dark"].unobserved_count) == (6, 6)
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
    old = b.node("old", gpus=2)
    b.node("new", gpus=2, first_seen=START + 24 * HOUR)
    for gpu, uuid in zip(b.gpus, [*old, *old], strict=True):
        gpu["gpu_uuid"] = uuid
    for uuid in old:
        b.use(DECODE, node="old", uuid=uuid, end=24)
        b.use(DECODE, node="new", uuid=uuid, start=24)
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
    resources = ["nvidia_com_gpu"] * 4 + ["nvidia_com_gpu_shared"] * 4
    requests = [(f"asr-{n}", resource, 1.0, 0, 40) for n, resource in enumerate(resources)]
    found = counted(asked(b, "n1", *requests)).nodes["n1"]
    assert (found.gpu_count, found.unobserved) == (2, ())
    assert found.unaccounted_pods == tuple(f"ml/asr-{n}" for n in range(8))
