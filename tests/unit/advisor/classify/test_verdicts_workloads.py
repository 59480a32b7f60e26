"""Whose rows are whose, and where every GPU-hour went."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.classify.accounting.energy import PLACE, hours_by_use, occupancy, placed_by_nodes, summed
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.workloads.attribution import attribute, overlaps
from skuwise.advisor.classify.workloads.inventory import inventory_of
from skuwise.advisor.core.unobservable import blind_nodes
from skuwise.tests.support.frame_builder import FREE, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook


def _occupied(builder: FrameBuilder) -> dict[str, float]:
    """Where the GPU-hours of a fleet that never rests went, and their sum (``total``)."""
    frame = builder.frame()
    idle = pd.Series(False, index=frame.gpu.index)
    inventory = inventory_of(frame, lambda _: None, blind_nodes(frame.absences))
    places = placed_by_nodes(frame, attribute(frame), idle, np.ones(len(frame.gpu)))
    table = occupancy(summed(places, PLACE, ["gpu_hours"]), frame, inventory)
    assert table.loc[table["class"] == "shared", "workload_id"].isna().all()
    return {name: hours for name, hours in asdict(hours_by_use(table)).items() if hours}


def test_overlaps_give_each_pair_once_with_its_share() -> None:
    stop = np.array([10.0, 20.0, 30.0])
    row, span, seconds, whole = overlaps(
        stop - 10, stop, np.full(3, 8.0), np.array([5.0, 30.0]), np.array([25.0, 40.0])
    )
    assert row.tolist() == [0, 1, 2]
    assert span.tolist() == [0, 0, 0]
    assert seconds.tolist() == pytest.approx([4.0, 8.0, 4.0])
    assert whole.tolist() == [False, True, False]


def test_rows_that_a_use_cuts_are_shared_out_but_are_not_its_shape() -> None:
    b = FrameBuilder(hours=4)
    (uuid,) = b.node()
    b.use(TRAINING)
    b.work("job", [("n1", uuid)], start=0.5, end=3)
    mine = attribute(b.frame()).workload_rows
    assert mine["seconds"].tolist() == pytest.approx([1800, 3600, 3600])
    assert mine["whole"].tolist() == [False, True, True]


def test_two_workloads_at_the_same_time_are_shared_and_belong_to_neither() -> None:
    b = FrameBuilder(hours=10)
    (uuid,) = b.node()
    b.use(TRAINING)
    b.work("a", [("n1", uuid)], start=0, end=6)
    b.work("b", [("n1", uuid)], start=4, end=10)
    attribution = attribute(b.frame())
    assert _occupied(b) == pytest.approx({"shared": 2, "workloads": 8, "total": 10})
    assert all(session.shared for session in attribution.sessions)
    # Together the hours are no more than the GPU's: by the shares of its use where they are known, else in equal parts.
    for shares, hours in (
        ((), (5, 5)),
        ((0.75, 0.25), (5.5, 4.5)),
        ((0.6, 0), (6, 4)),
        ((0, 0), (5, 5)),
        ((1, np.nan), (5, 5)),
    ):
        frame = b.frame()
        uses = frame.uses.assign(share=shares) if shares else frame.uses
        found = {w.id: w.gpu_hours for w in judge(replace(frame, uses=uses), rulebook()).workloads}
        assert found == pytest.approx(dict(zip("ab", hours, strict=True)))


@pytest.mark.parametrize("gpu_count", [2, 3])
def test_occupancy_sums_to_gpu_count_times_window(gpu_count: int) -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=2, gpu_count=gpu_count)
    b.use(TRAINING, uuid=uuids[0])
    b.use(FREE, uuid=uuids[1], end=5, observed=0.5)
    b.work("a", [("n1", uuids[0])], start=2.25, end=11)
    hours = {"workloads": 8.75, "unallocated": 20 - 8.75 + 2.5, "unobserved": 17.5 + 20 * (gpu_count - 2)}
    assert _occupied(b) == pytest.approx({**hours, "total": gpu_count * 20})


def test_hours_before_a_node_existed_are_no_money() -> None:
    b = FrameBuilder(hours=20)
    (uuid,) = b.node(first_seen=START + 5.5 * HOUR)
    b.use(TRAINING, start=6)
    b.work("a", [("n1", uuid)], start=6)
    assert _occupied(b) == pytest.approx({"workloads": 14, "unobserved": 0.5, "total": 14.5})


def test_restarts_of_a_run_make_one_chain_and_other_numbers_do_not() -> None:
    b = FrameBuilder(hours=48)
    (uuid,) = b.node()
    b.use(TRAINING)
    for n, (start, name) in enumerate([(0, "pretrain"), (20, "pretrain"), (39.9, "pretrain")]):
        b.work(f"a{n}", [("n1", uuid)], start=start, end=start + 19.9 if n < 2 else 48, name=name, series="p")
    chains = {s.workload_id: s.chain_hours for s in attribute(b.frame()).sessions}
    assert chains["a0"] == pytest.approx(48)
    b.uses, b.workloads = [], []
    b.work("r1", [("n1", uuid)], end=10, name="run-1", series="r")
    b.work("r2", [("n1", uuid)], start=10.1, end=20, name="run-2", series="r")
    assert {round(s.chain_hours, 1) for s in attribute(b.frame()).sessions} == {10.0, 9.9}


def test_hours_of_a_drained_node_are_drained_where_nobody_worked_and_still_sum_up() -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=2)
    b.use(TRAINING, uuid=uuids[0])
    b.use(FREE, uuid=uuids[1], end=15)
    b.work("a", [("n1", uuids[0])], start=0, end=6.5)
    out = {"node": "n1", "device": "node", "scope": "source", "metric": "*", "reason": "drained"}
    for since, until in ((5, 8), (7.5, 10.25), (18, None)):
        end = None if until is None else START + until * HOUR
        b.absences.append({**out, "since": START + since * HOUR, "until": end})
    drained = (10.25 - 6.5) + (10.25 - 5) + 2
    hours = {"workloads": 6.5, "drained": drained, "unallocated": 40 - 6.5 - drained - 5, "unobserved": 5}
    assert _occupied(b) == pytest.approx({**hours, "total": 40})
