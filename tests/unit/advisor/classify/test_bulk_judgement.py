"""Workloads judged together are judged as each would be alone: no row of one counts for another."""

import dataclasses

import pandas as pd
from skuwise.advisor.classify.accounting.energy import PLACE, placed_by_nodes, summed
from skuwise.advisor.classify.accounting.nodes import node_facts
from skuwise.advisor.classify.judge import measured_rows
from skuwise.advisor.classify.pieces import JudgementInputs, judge_pieces, pieces_of
from skuwise.tests.support.frame_builder import DECODE, HELD, TRAINING, FrameBuilder
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


def test_hours_are_the_same_by_whatever_nodes_at_a_time() -> None:
    b = FrameBuilder(hours=30)
    for name in ("n2", "n1", "n3"):
        rests, works = b.node(name, gpus=2)
        b.use(HELD, node=name, uuid=rests)
        b.use(TRAINING, node=name, uuid=works)
        if name != "n3":  # nobody's
            b.work(f"works-{name}", [(name, works)], start=5.0, end=20.0)
    measured = measured_rows(b.frame(), rulebook())
    given = (measured.frame, measured.attribution, measured.rows["idle"], measured.parts)
    tables = list(placed_by_nodes(*given, block_rows=1))
    assert [table["node"].unique().tolist() for table in tables] == [["n2"], ["n1"], ["n3"]]
    (whole,) = placed_by_nodes(*given)
    wanted = summed([whole], PLACE, ["gpu_hours"])
    assert len(wanted) == 8  # two GPUs of three nodes, and two of them worked for a while
    pd.testing.assert_frame_equal(summed(tables, PLACE, ["gpu_hours"]), wanted)
    assert summed([], PLACE, ["gpu_hours"]).empty
