"""Checkpoints, communication, polling and waiting ranks: what is told of them, in figures that are known by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.classify.bottlenecks.evidence import signatures
from skuwise.advisor.classify.features.piece_rows import PieceRows, RowTables
from skuwise.advisor.core.column_rows import columns_of
from skuwise.advisor.core.segments import Segments

HOUR = 3600.0
QUIET = {
    "c": 0.5, "g": 0.9, "disk_write": 1e6, "disk_write_max": 2e6, "n_share": math.nan, "u_n": math.nan,
    "i_share": math.nan, "i": math.nan, "nvlink_bytes": math.nan, "wire_bytes": math.nan, "waits": 0.0,
    "coarse": False, "several": False, "waiting": False, "lost": math.nan,
}  # fmt: skip
# 500 MB/s at its highest and 50 MB/s in the mean: a tenth of the hour at least.
BURST = {**QUIET, "disk_write": 5e7, "disk_write_max": 5e8}


def table(rows, at):
    tables = RowTables({}, columns_of(pd.DataFrame(rows)), np.zeros(len(rows), dtype=np.intp))
    return PieceRows(tables, Segments.of_lengths([len(at)]), np.array(at, dtype=np.intp), np.full(len(at), HOUR))


def told(*rows, trains=True):
    (said,) = signatures(table(rows, range(len(rows))), np.array([trains]))
    return {one.code: dict(one.fields) for one in said}


def test_checkpoints_cost_what_is_done_less_in_hours_with_them():
    said = told(*[QUIET] * 6, *[{**BURST, "c": 0.45}] * 6)
    assert said["checkpoint-bursts"]["bytes_per_second"] == pytest.approx(5e8)
    assert said["checkpoint-bursts"]["bytes_per_hour"] == pytest.approx(5e7 * HOUR)
    assert said["checkpoint-bursts"]["seconds_per_hour"] == pytest.approx(360)
    assert said["checkpoint-bursts"]["share"] == pytest.approx(0.5)
    assert said["checkpoint-cost"]["less"] == pytest.approx(0.1)
    assert said["checkpoint-cost"]["seconds"] == pytest.approx(360)
    assert said["checkpoint-cost"]["of_all"] == pytest.approx(0.05)


@pytest.mark.parametrize(("engine", "most"), [(0.95, 180.0), (0.5, 360.0)])
def test_without_hours_to_compare_checkpoints_cost_no_more_than_the_engine_rests_or_the_host_writes(engine, most):
    said = told(*[{**BURST, "g": engine}] * 6)
    assert said["checkpoint-cost-at-most"]["seconds"] == pytest.approx(most)
    assert "checkpoint-cost" not in said


def test_a_host_that_writes_all_along_or_of_other_work_writes_no_checkpoints():
    assert not told(*[{**BURST, "disk_write": 4e8}] * 6)
    assert not told(*[{**BURST, "disk_write": math.nan, "disk_write_max": math.nan}] * 6)
    assert not told(*[BURST] * 6, trains=False)


@pytest.mark.parametrize(("share", "use", "said"), [(0.2, 0.1, 0.2), (0.0, 0.25, 0.25), (0.1, 0.1, None)])
def test_communication_is_told_with_its_share_and_its_rate(share, use, said):
    row = {**QUIET, "several": True, "n_share": share, "u_n": use, "nvlink_bytes": 4e10}
    found = told(*[row] * 4).get("communication-nvlink")
    assert (found and found["share"]) == (said and pytest.approx(said))
    assert found is None or found["bytes_per_second"] == pytest.approx(4e10)


def test_polling_is_told_only_where_samples_are_short_enough_to_show_it():
    row = {**QUIET, "several": True, "waits": 0.3}
    assert told(*[row] * 4)["collectives-spin"]["share"] == pytest.approx(0.3)
    assert not told(*[{**row, "coarse": True}] * 4)
    assert not told(*[{**row, "waits": 0.05}] * 4)


def test_waiting_ranks_are_told_with_what_they_lose():
    late, waits = {**QUIET, "several": True}, {**QUIET, "several": True, "waiting": True}
    said = told(*[late] * 2, *[{**waits, "lost": 0.4}] * 6)
    assert said["ranks-wait-and-lose"] == {"share": pytest.approx(0.75), "lost": pytest.approx(0.4)}
    assert told(*[late] * 2, *[waits] * 6) == {"ranks-wait": {"share": pytest.approx(0.75)}}
    assert not told(*[late] * 8)
