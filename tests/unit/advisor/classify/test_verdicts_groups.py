"""A fleet that is judged in groups of nodes gets the verdicts that it gets as a whole."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from skuwise.advisor.classify.judge import judge, judge_groups
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.frame_groups import node_groups, parts_of
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

NOTE = CodedText("some-note", "A note on the whole source.", {})


def fleet() -> Frame:
    """Six nodes of two GPUs: one job over two of them, a service with replicas on two others, one held, one free from
    the second day on."""
    built = FrameBuilder(hours=48)
    of: dict[str, list[tuple[str, str]]] = {}
    for n, reads in enumerate((TRAINING, TRAINING, DECODE, DECODE, HELD, FREE), start=1):
        node, start = f"n{n}", 24 if reads is FREE else 0
        of[node] = [(node, uuid) for uuid in built.node(node, gpus=2, first_seen=START + start * HOUR)]
        for _, uuid in of[node]:
            built.use(reads, node, uuid, start=start)
    built.work("w-job", [*of["n1"], *of["n2"]], series="s-job", name="pretrain")
    for node in ("n3", "n4"):
        built.work(f"w-{node}", of[node], series="s-serve", name="serve")
    built.work("w-held", of["n5"], series="s-held", name="notebook")
    return replace(built.frame(), notes=(NOTE,))


@pytest.mark.parametrize(
    ("rows_at_once", "groups"),
    [
        (1, [["n1", "n2"], ["n3", "n4"], ["n5"], ["n6"]]),
        (200, [["n1", "n2"], ["n3", "n4"], ["n5", "n6"]]),
        (10_000, [["n1", "n2", "n3", "n4", "n5", "n6"]]),
    ],
)
def test_nodes_that_share_a_series_stay_together(rows_at_once: int, groups: list[list[str]]) -> None:
    frame = fleet()
    rows = {str(node): int(count) for node, count in frame.gpu.groupby("node").size().items()}
    assert node_groups(frame, rows, rows_at_once) == groups


@pytest.mark.parametrize("rows_at_once", [1, 200])
def test_groups_give_the_verdicts_of_the_whole(rows_at_once: int) -> None:
    frame, book = fleet(), rulebook()
    parts = list(parts_of(frame, rows_at_once))
    assert len(parts) > 1
    assert sum(len(part.gpu) for part in parts) == len(frame.gpu)
    whole, grouped = judge(frame, book), judge_groups(parts, book)
    for told, same in zip(whole.workloads, grouped.workloads, strict=True):
        assert (same.id, same.kind.label, same.bottleneck.label) == (told.id, told.kind.label, told.bottleneck.label)
        assert same.gpu_hours == pytest.approx(told.gpu_hours)
    assert grouped.nodes == whole.nodes
    assert grouped.inventory.hours == pytest.approx(whole.inventory.hours)
    assert grouped.inventory.observed_hours == pytest.approx(whole.inventory.observed_hours)
    assert {node: one.span_hours for node, one in grouped.inventory.nodes.items()} == {
        node: one.span_hours for node, one in whole.inventory.nodes.items()
    }
    for name in ("occupancy", "energy"):
        own, other = (pd.DataFrame(getattr(one, name)) for one in (whole, grouped))
        own_hours, other_hours = (table.groupby("node")["gpu_hours"].sum() for table in (own, other))
        pd.testing.assert_series_equal(own_hours, other_hours)
    assert len(grouped.usage) == len(whole.usage)
    ids = [workload.id for workload in whole.workloads]
    assert grouped.used(ids)["sm"].sum() == pytest.approx(whole.used(ids)["sm"].sum())
    assert grouped.waste_ready == whole.waste_ready
    assert NOTE in grouped.notes
