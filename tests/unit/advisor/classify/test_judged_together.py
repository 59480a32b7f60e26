"""Workloads, nodes and runs judged together get the verdicts of each alone; runs of one series help one another."""

import dataclasses
from dataclasses import replace

import pandas as pd
import pytest
from skuwise.advisor.classify.accounting.nodes import node_facts
from skuwise.advisor.classify.judge import judge, judge_groups, measured_rows
from skuwise.advisor.classify.pieces import JudgementInputs, judge_pieces, pieces_of
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.frame_groups import parts_of
from skuwise.advisor.recommend.groups import groups_of
from skuwise.agent.jobs.ids import series_id
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook


def test_verdicts_on_many_are_those_on_each_alone_by_whatever_batches() -> None:
    # Workloads of all sizes: of days and of one hour, on several GPUs and on one, with gaps and with no row at all.
    b = FrameBuilder(hours=96)
    uuids = b.node(gpus=6)
    gap = {name: value for name, value in TRAINING.items() if name not in {"tensor_active", "mem_used_bytes"}}
    for uuid, values in zip(uuids, (TRAINING, TRAINING, DECODE, DECODE, HELD, gap), strict=True):
        b.use(values, uuid=uuid, wave="dram_active")
    b.work("trains", [("n1", uuid) for uuid in uuids[:2]], framework="pytorch")
    b.work("serves", [("n1", uuids[2])], framework="vllm")
    for n in range(6):
        b.work(f"short-{n}", [("n1", uuids[3])], start=8 * n + 0.5, end=9 * n + 1)
    b.work("rests", [("n1", uuids[4])])
    b.work("blind", [("n1", uuids[5])])
    measured = measured_rows(b.frame(), book := rulebook())
    nodes = node_facts(measured.frame, measured.inventory, measured.index, measured.attribution, measured.rows)
    inputs = JudgementInputs.of(measured.frame, measured.index, measured.rows, nodes, book)
    pieces = pieces_of(measured.attribution)
    rows = pieces[1].rows
    empty = dataclasses.replace(pieces[0], rows=rows.taken(rows.at[:0]))
    nothing = {**rows.table, "seconds": 0 * rows.table["seconds"]}
    unseen = dataclasses.replace(pieces[1], rows=dataclasses.replace(rows, table=nothing))
    pieces += [empty, unseen]
    together = judge_pieces(pieces, inputs)
    assert together == [judge_pieces([piece], inputs)[0] for piece in pieces]
    assert together == judge_pieces(pieces[::-1], inputs)[::-1]
    assert {"compute", "hbm-bandwidth", "idle", "unknown"} <= {one.bottleneck.label for one in together}
    assert judge_pieces([], inputs) == []
    for rows in (1, 100, 300):
        assert judge_pieces(pieces, inputs, batch_rows=rows) == together


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


@pytest.mark.parametrize("rows_at_once", [1, 200])
def test_groups_give_the_verdicts_of_the_whole(rows_at_once: int) -> None:
    frame, book = fleet(), rulebook()
    parts = list(parts_of(frame, rows_at_once))
    assert len(parts) > 1 and sum(len(part.gpu) for part in parts) == len(frame.gpu)
    whole, grouped = judge(frame, book), judge_groups(parts, book)
    for told, same in zip(whole.workloads, grouped.workloads, strict=True):
        assert (same.id, same.kind.label, same.bottleneck.label) == (told.id, told.kind.label, told.bottleneck.label)
        assert same.gpu_hours == pytest.approx(told.gpu_hours)
    assert grouped.nodes == whole.nodes and grouped.inventory.hours == pytest.approx(whole.inventory.hours)
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
    assert grouped.waste_ready == whole.waste_ready and NOTE in grouped.notes


# An hour of this could be anything.
_VAGUE = {**DECODE, "tensor_active": 0.3, "dram_active": 0.3, "mem_used_bytes": 4e10}


def test_a_pod_that_has_just_moved_is_what_its_service_was() -> None:
    b = FrameBuilder(hours=96)
    old, new = b.node("n1")[0], b.node("n2")[0]
    b.use(DECODE, "n1", old, end=94, wave="tensor_active")
    b.use(_VAGUE, "n2", new, start=95)
    b.work("a", [("n1", old)], end=94, name="svc")
    b.work("b", [("n2", new)], start=95, name="svc")
    verdicts = judge(b.frame(), rulebook())
    moved = next(w for w in verdicts.workloads if w.id == "b")
    assert moved.kind.label == "online-inference" and "1 other run of the same series" in moved.kind.evidence[0].text
    assert moved.phases[0].kind == "online-inference"
    assert moved.kind.confidence < next(w for w in verdicts.workloads if w.id == "a").kind.confidence
    assert verdicts.waste_ready == {"a": True, "b": True}


def test_replicas_side_by_side_do_not_add_up_to_the_floor() -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=4)
    for n, uuid in enumerate(uuids):
        b.use(DECODE, uuid=uuid)
        b.work(f"r{n}", [("n1", uuid)], series="s")
    assert not any(judge(b.frame(), rulebook()).waste_ready.values())


def test_services_of_one_name_in_two_namespaces_are_two() -> None:
    b = FrameBuilder(hours=48)
    one, two = b.node(gpus=2)
    for uuid, namespace in ((one, "red"), (two, "blue")):
        b.use(DECODE, uuid=uuid)
        b.work(namespace, [("n1", uuid)], name="chat", namespace=namespace,
               series=series_id("c", namespace, None, "chat"))  # fmt: skip
    groups = groups_of(judge(b.frame(), rulebook()))
    assert sorted(w.id for g in groups for w in g.workloads) == ["blue", "red"] and len(groups) == 2
