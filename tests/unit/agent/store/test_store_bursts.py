"""Bursts in the database: beside the minute and the hour in which they ended, through copies, and let go with them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.model import Gpu, Node, Tick
from skuwise.agent.statistics.burst_stats import Burst
from skuwise.agent.store.file.burst_rows import merge_bursts
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
