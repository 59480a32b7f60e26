"""Bursts in the database: beside the minute and the hour in which they ended, through copies, and let go with them."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.classify.bottlenecks.kv_cache import tokens_of
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.model import Gpu, Node, ServingSample, Tick, Workload
from skuwise.agent.statistics.burst_stats import Burst
from skuwise.agent.statistics.latency_bins import decode
from skuwise.agent.store.file.burst_rows import merge_bursts
from skuwise.agent.store.reading import queries
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.retention.retention import RetentionJob
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.agent.store.snapshot import take_snapshot
from skuwise.agent.store.writing.writer import Writer

START = 1_800_000_000.0 - 1_800_000_000.0 % 3600
GPUS = [Gpu("GPU-1", 0, "H100"), Gpu("GPU-2", 1, "H100")]
FIRST = Burst("GPU-1", START + 130.2, 10.1, 96, 0.8123, 0.934, 0.62345, 0.31, 0.4567, -0.872, 0.515)
SECOND = Burst("GPU-1", START + 430.0, 10.0, 94, 0.8311, 0.9, 0.7, 1.25, 0.5)
COLUMNS = (
    "n", "period_seconds", "period_strength", "duty", "idle_run_seconds", "sm_active_cv", "tensor_nvlink_correlation",
    "tensor_fabric_correlation",
)  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour and a bit of two GPUs, one of which had two bursts."""
    path = tmp_path_factory.mktemp("bursts") / "node.db"
    with Writer.open(path) as writer:
        node = writer.for_node(Node("n1"), START)
        node.set_gpus(GPUS, START)
        node.put_ticks(
            Tick(START + 10 * i, 10.0, {gpu.uuid: {"sm_active": 0.5} for gpu in GPUS}) for i in range(1, 366)
        )
        for burst in (FIRST, SECOND, Burst("GPU-9", START + 130.2, 10.0, 96, duty=1.0)):
            node.add_burst(burst)
    RollupJob(path).run(START + 7200)
    return path


def rows(path: Path, view: str, where: str) -> list[tuple[object, ...]]:
    columns = ", ".join(f"burst_{name}" for name in COLUMNS)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        sql = f"SELECT ts - {START}, gpu_uuid, {columns} FROM {view} WHERE {where} ORDER BY ts, gpu_uuid"
        return connection.execute(sql).fetchall()


def test_a_burst_stands_beside_the_minute_in_which_it_ended(database: Path) -> None:
    first, second = rows(database, "gpu_minutes", "burst_n IS NOT NULL")
    assert first[:3] == (180.0, "GPU-1", 96)
    assert first[3:] == pytest.approx((0.812, 0.93, 0.6235, 0.31, 0.457, -0.87, 0.52), abs=0.006)
    assert second == pytest.approx((480.0, "GPU-1", 94, 0.831, 0.9, 0.7, 1.25, 0.5, None, None))
    others = rows(database, "gpu_minutes", "burst_n IS NULL")
    assert len(others) == 2 * 61 - 2
    assert {value for row in others for value in row[2:]} == {None}


def test_an_hour_tells_of_its_bursts(database: Path) -> None:
    (one, other) = rows(database, "gpu_hours", f"ts = {START + 3600}")
    assert one[:3] == (3600.0, "GPU-1", 190)
    duty = (0.6235 * 96 + 0.7 * 94) / 190
    assert one[3:] == pytest.approx((0.812, 0.9, duty, 1.25, 0.457, -0.87, 0.52), abs=0.006)
    assert other == (3600.0, "GPU-2", *[None] * 8)


def test_a_snapshot_of_the_rollups_keeps_them(database: Path, tmp_path: Path) -> None:
    copy = take_snapshot(database, tmp_path / "copy.db", rollups_only=True, now=START + 7200)
    for view in ("gpu_minutes", "gpu_hours"):
        assert rows(copy, view, "burst_n IS NOT NULL") == rows(database, view, "burst_n IS NOT NULL") != []


def test_retention_lets_them_go_with_the_minutes_and_keeps_the_hours(database: Path, tmp_path: Path) -> None:
    copy = take_snapshot(database, tmp_path / "copy.db")
    RetentionJob(copy, Limits(raw_seconds=7200, minutes_seconds=86400), sleep=lambda _: None).run(START + 86400 + 300)
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM gpu_burst").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM gpu_burst_hour").fetchone() == (1,)
    limits = Limits(raw_seconds=7200, minutes_seconds=7200, hours_seconds=7200)
    RetentionJob(copy, limits, sleep=lambda _: None).run(START + 86400)
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM gpu_burst").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM gpu_burst_hour").fetchone() == (0,)


def test_an_hours_values_are_of_the_bursts_that_have_them() -> None:
    assert merge_bursts([[90, 800, 90, 9000, 10, 300, None, 50], [60, None, None, 4000, 250, 500, None, None]]) == [
        150, 800, 90, 7000, 250, 300, None, 50,
    ]  # fmt: skip


T0 = 1_790_000_000.0
WORK = Workload("w-1", "s-1", "serve", "process", framework="vllm")
VALUES = {
    "kv_cache_usage": 0.4565, "requests_running": 7.0, "requests_waiting": 0.0, "prompt_tokens_per_second": 100.1,
    "generation_tokens_per_second": 50.0, "time_to_first_token_seconds": 0.3123, "preemptions_per_second": 0.2,
    "time_per_output_token_seconds": 0.02345,
}  # fmt: skip
COLUMNS_SERVING = ("ts", "interval_seconds", "node", "workload_id", "engine", "endpoint", *VALUES)


def sample(ts: float, workload_id: str | None = None, **values: float) -> ServingSample:
    return ServingSample(ts, 10.02, "http://127.0.0.1:8000/metrics", "vllm", values or VALUES, workload_id=workload_id)


def shown(path: Path) -> list[tuple[object, ...]]:
    with open_reader(path) as reader:
        return reader.fetch("SELECT * FROM serving_samples ORDER BY ts")


def test_a_sample_comes_back_in_base_units(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with Writer.open(path) as writer:
        node = writer.for_node(Node("n1"), T0)
        node.set_workloads((WORK,), (), T0)
        node.add_serving(sample(T0 + 10, "w-1"))
        node.add_serving(sample(T0 + 20, "nobody-named-it", requests_running=3.0))
    first, second = shown(path)
    with open_reader(path) as reader:
        assert tuple(c[0] for c in reader.execute("SELECT * FROM serving_samples").description) == COLUMNS_SERVING
    expected = (T0 + 10, 10.02, "n1", "w-1", "vllm", "http://127.0.0.1:8000/metrics", *VALUES.values())
    assert first == pytest.approx(expected)
    assert second[3] is None
    assert second[6:] == (None, 3.0, None, None, None, None, None, None)


FAST, SLOW = (0.0,) * 7 + (80.0, 20.0) + (0.0,) * 22, (0.0,) * 30 + (3.0,)


def test_what_servers_counted_is_added_up_by_the_hour_and_the_work_that_held_them(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    hour = T0 // 3600 * 3600
    told = [(10.0, "w-1", FAST), (20.0, "w-1", FAST), (30.0, None, SLOW), (3590.0, "w-1", SLOW), (3610.0, "w-1", FAST)]
    for part in (told[:3], told[3:]):  # the agent is started again in between
        with Writer.open(path, now=lambda: hour + 7200) as writer:
            node = writer.for_node(Node("n1"), hour)
            node.set_workloads((WORK,), (), hour)
            for after, work, counts in part:
                one = sample(hour + after, work)
                node.add_serving(replace(one, latency={"output_token": counts}))
    with open_reader(path) as reader:
        kept = reader.fetch("SELECT ts, interval_seconds, workload_id, first_token_bins, output_token_bins"
                            " FROM serving_hours ORDER BY ts")  # fmt: skip
        rows = reader.fetch(queries.SERVING.sql, {"start": hour, "end": hour + 7200})
    assert [float(str(row[0])) - hour for row in kept] == [20.0, 30.0, 3590.0, 3610.0]
    assert kept[0][1] == pytest.approx(20.04)
    assert all(row[3] is None for row in kept)
    assert decode(kept[0][4]) == tuple(2 * n for n in FAST)
    table = to_table(rows, queries.SERVING)
    waited = table[table["latency_ts"].notna()].sort_values("latency_ts")
    assert waited["workload_id"].tolist() == ["w-1"] * 3  # what nobody held is nobody's
    assert waited["seconds"].tolist() == [0.0] * 3 and waited["kv_percent"].isna().all()
    assert tokens_of(table, "w-1") == pytest.approx(50.0 * 10.02 * 4)
