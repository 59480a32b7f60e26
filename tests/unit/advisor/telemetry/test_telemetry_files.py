"""Many files at once: copies of one node, a file that is broken within, hours that workloads cut."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.histogram_array import WIDTH, BinsArray
from skuwise.advisor.telemetry.prometheus.client.range_planner import Ask
from skuwise.advisor.telemetry.prometheus.promql.promql import of_gpus
from skuwise.advisor.telemetry.prometheus.short_rows import short_asks
from skuwise.advisor.telemetry.resolution import concat
from skuwise.advisor.telemetry.sqlite.database import Parts
from skuwise.advisor.telemetry.sqlite.files import read_file
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.model import Absence, Gpu, Node, ServingSample, Tick, Workload
from skuwise.agent.store.reading.queries import Query
from skuwise.agent.store.snapshot import take_snapshot
from skuwise.agent.store.writing.node_writer import NodeWriter
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.rulebooks import rulebook

HOUR = 3600.0
T0 = 1_790_000_000.0 // HOUR * HOUR
HOURS_COLUMNS = (
    "ts", "device", "observed_seconds", "gpu_util_mean", "gpu_util_p95", "gpu_util_max", "gpu_util_n",
    "sm_active_mean", "tensor_active_mean", "dram_active_mean", "power_watts_mean",
)  # fmt: skip


def node_of(writer: Writer, name: str, ts: float = T0) -> NodeWriter:
    node = writer.for_node(Node(name, "c", machine_id=f"machine of {name}", gpu_count=1), ts)
    node.set_gpus([Gpu(f"GPU-{name}", 0, "NVIDIA H100 80GB HBM3", mem_total_bytes=80 * 2**30)], ts)
    return node


def put_hours(node: NodeWriter, name: str, hours: Sequence[int]) -> None:
    rows = [(T0 + (hour + 1) * HOUR, f"GPU-{name}", HOUR, 0.9, 0.95, 1.0, 3600, 0.8, 0.5, 0.3, 500.0) for hour in hours]
    node.put_rollups("gpu_hour", HOURS_COLUMNS, rows)


def make(folder: Path, name: str, hours: int = 48) -> Path:
    path = folder / f"{name}.db"
    with Writer.open(path) as writer:
        node = node_of(writer, name)
        put_hours(node, name, range(hours))
        work = Workload("w", "s", "train", "slurm")
        node.put_workload_use(work, f"GPU-{name}", T0, T0 + hours * HOUR, "allocation")
        node.set_node(Node(name, "c", machine_id=f"machine of {name}", gpu_count=1), T0 + hours * HOUR)
    return path


def gpu_hours(frame: Frame) -> float:
    return float(frame.gpu["observed_seconds"].sum()) / HOUR


def test_a_snapshot_beside_the_live_file_adds_nothing(tmp_path: Path) -> None:
    live = make(tmp_path, "n1")
    told = {"kv_cache_usage": 0.5, "generation_tokens_per_second": 7.0}
    with Writer.open(live) as writer:
        node = writer.for_node(Node("n1", "c", machine_id="machine of n1", gpu_count=1), T0 + 48 * HOUR)
        node.add_serving(ServingSample(T0 + 60, 60.0, "http://n1:8000/metrics", "vllm", told, workload_id="w"))
    alone = read_frame([live])
    assert float(alone.serving["generated_tokens"].sum()) == pytest.approx(420)
    take_snapshot(live, tmp_path / "copy.db")
    shutil.copy(live, tmp_path / "another.db")
    both = read_frame([tmp_path])
    assert gpu_hours(both) == gpu_hours(alone) == 48
    pd.testing.assert_frame_equal(both.serving, alone.serving, check_dtype=False)
    assert any("96 GPU rows appear in more than one database" in note.text for note in both.notes)
    assert len(both.nodes) == len(both.gpus) == len(both.uses) == len(both.workloads) == 1
    one, other = (judge(frame, rulebook()) for frame in (alone, both))
    assert one.workloads == other.workloads
    assert one.occupancy.equals(other.occupancy)


def test_a_copy_made_in_the_middle_of_a_minute_and_of_an_absence_knows_less(tmp_path: Path) -> None:
    live = tmp_path / "live.db"
    absence = Absence("gpu", "GPU-n1", "*", "drained", "It is out of service.", "")

    def ticks(node: NodeWriter, seconds: range) -> None:
        for second in seconds:
            node.add_tick(Tick(T0 + second, 1.0, {"GPU-n1": {"sm_active": 0.5}}))

    with Writer.open(live) as writer:
        node = node_of(writer, "n1")
        ticks(node, range(1, 31))
        node.set_absences([absence], T0 + 10)
        writer.commit()
        # Read first: its name comes before that of the live file.
        take_snapshot(live, tmp_path / "early.db")
        ticks(node, range(31, 61))
        node.set_absences([], T0 + 20)
    frame = read_frame([tmp_path])
    assert float(frame.gpu["observed_seconds"].sum()) == pytest.approx(60)
    assert frame.absences[["since", "until"]].to_numpy().tolist() == [[T0 + 10, T0 + 20]]


@pytest.mark.parametrize("table", ["gpu_hour", "hour"])
def test_a_file_that_is_broken_within_is_named_and_the_others_are_judged(tmp_path: Path, table: str) -> None:
    make(tmp_path, "good")
    broken = make(tmp_path, "broken")
    with closing(sqlite3.connect(broken)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with broken.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    frame = read_frame([tmp_path])
    assert frame.nodes["node"].tolist() == ["good"]
    assert gpu_hours(frame) == 48
    (note,) = [note for note in frame.notes if note.code == "file-left-out"]
    assert "broken.db" in note.text
    assert "malformed" in note.text
    with pytest.raises(StoreError, match="malformed"):
        read_frame([broken])


def test_where_too_many_hours_are_cut_those_of_the_shortest_workloads_are_read_by_the_minute(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    with Writer.open(path) as writer:
        node = node_of(writer, "n1")
        put_hours(node, "n1", range(48))
        minutes = [(T0 + 60.0 * (n + 1), "GPU-n1", 60.0, 0.4) for n in range(48 * 60)]
        node.put_rollups("gpu_minute", ("ts", "device", "observed_seconds", "sm_active_mean"), minutes)
        for name, start, end in (("long", 0.5, 30.5), ("short", 40.5, 41.5)):
            node.put_workload_use(Workload(name, name, name, "slurm"), "GPU-n1", T0 + start * HOUR, T0 + end * HOUR,
                                  "allocation")  # fmt: skip
    told = read_file(path, Window(T0, T0 + 48 * HOUR), 2)
    assert isinstance(told, Parts)
    gpu = pd.concat(told.rows["gpu"], ignore_index=True)
    by_minute = gpu.loc[gpu["interval_seconds"] == 60, "ts"]
    assert sorted({(ts - T0 - 1) // HOUR for ts in by_minute}) == [40, 41]
    assert float(gpu["observed_seconds"].sum()) == 48 * HOUR


QUERY = Query("", ("node",), ("ts",), ("x_bins",))


def cell(seconds: float) -> np.ndarray:
    return np.full(WIDTH, seconds)


def test_rows_are_taken_sorted_and_joined_with_their_bins() -> None:
    table = pd.DataFrame({"n": [2.0, 1.0, 3.0], "x_bins": BinsArray.of([cell(2), None, cell(3)])})
    ordered = table.sort_values("n", ignore_index=True)
    assert ordered["x_bins"].isna().tolist() == [True, False, False]
    joined = concat([ordered, table[:1]], ["n", "x_bins"])
    assert np.nansum(joined["x_bins"].array.matrix, axis=1).tolist() == [0, 2 * WIDTH, 3 * WIDTH, 2 * WIDTH]
    pd.testing.assert_frame_equal(joined.copy(), joined)
    assert joined[joined["n"] > 1]["x_bins"].array.matrix.shape == (3, WIDTH)


_BAD = ("[]", "[1]", "", "x", "[1,2", '{"a": 1}', "[" + ",".join(["-1"] * WIDTH) + "]", "[" + ",".join(["NaN"] * WIDTH)
        + "]", "[" + ",".join(["1"] * WIDTH) + "]\n[" + ",".join(["1"] * WIDTH) + "]", '"', "#", "1e999")  # fmt: skip
_GOOD = st.lists(st.integers(0, 3600) | st.sampled_from((0.5, 7.5)), min_size=WIDTH, max_size=WIDTH)


@given(st.lists(st.none() | _GOOD, max_size=8), st.sampled_from(_BAD) | st.integers() | st.binary(max_size=4))
def test_cells_are_seconds_or_missing_and_all_are_missing_beside_a_bad_one(
    cells: list[list[float] | None], bad: object
) -> None:
    told = [str(cell).replace(" ", "") if cell else None for cell in cells]
    got = to_table([("n", 1.0, cell) for cell in told], QUERY)["x_bins"].tolist() if cells else []
    assert [None if seconds is None else seconds.tolist() for seconds in got] == cells
    assert to_table([("n", 1.0, cell) for cell in [*told, bad]], QUERY)["x_bins"].isna().all()


MINUTE, FIVE = "[59s999ms]", "[299s999ms]"


@pytest.mark.parametrize(
    ("name", "query", "step", "wanted"),
    [
        # A row of a minute looks back for 2.5 scrapes, a rate for 4.
        ("gpu_util_mean", f"avg_over_time(DCGM_FI_X{MINUTE})", 60, "avg_over_time(DCGM_FI_X[149s999ms])"),
        ("fabric tx_mean", f"rate(node_x{MINUTE})", 60, "rate(node_x[239s999ms])"),
        ("fabric active", "avg_over_time((node_x == bool 4)[60s:5m])", 60, None),
        ("power_watts_mean", f"avg_over_time(a{FIVE})", 300, f"avg_over_time(a{FIVE})"),
        ("pcie_tx_bytes_per_second_mean", f"avg_over_time(a{FIVE})", 300, None),
        ("sm_active_p95", f"quantile_over_time(0.95, a{MINUTE})", 60, None),
        ("vllm time_to_first_token buckets", f"increase(a{MINUTE})", 60, None),
        ("sm_active", f"increase(a_bucket{MINUTE})", 60, None),
    ],
)  # fmt: skip
def test_an_ask_gets_a_range_that_scrapes_fill_or_is_left_out(name, query, step, wanted):
    asked = short_asks(step, 60.0)(Ask(name, query, ()))
    assert (asked and asked.query) == wanted


def test_some_gpus_are_chosen_by_id_where_that_needs_no_escaping():
    assert of_gpus(("GPU-b", "GPU-a/gi1")) == ('UUID=~"GPU-a|GPU-b"',)
    assert of_gpus(('GPU".*',)) == ()
