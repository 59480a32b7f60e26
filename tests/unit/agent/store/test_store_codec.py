"""The metric catalogue, the codec and the SQL say the same."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from skuwise.advisor.telemetry import queries
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.model import PERIOD_SECONDS, Gpu, Node, ServingSample, Tick, Workload
from skuwise.agent.statistics.burst_stats import Burst
from skuwise.agent.statistics.latency_bins import decode
from skuwise.agent.store import codec
from skuwise.agent.store.database import schema_sql
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.writer import Writer
from skuwise.tests.support import stored_rows
from skuwise.tests.support.stored_rows import put_ticks

ROLLUPS: tuple[codec.RollupTable, ...] = get_args(codec.RollupTable)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(schema_sql())
    connection.executescript(
        "INSERT INTO node (id, node, first_seen, last_seen) VALUES (1, 'n', 0, 0);"
        "INSERT INTO gpu (id, node_id, gpu_uuid, gpu_index, name, valid_from) VALUES (1, 1, 'g', 0, 'x', 0);"
        "INSERT INTO port (id, node_id, device, port, role, link_layer, valid_from) VALUES (1, 1, 'p', 1, '', '', 0)"
    )
    yield connection
    connection.close()


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def test_what_is_written_has_the_columns_of_the_tables(database: sqlite3.Connection) -> None:
    for table in ROLLUPS:
        assert columns(database, table) == ["id", *codec.stored_columns(table)]
    for table, written in codec.TABLES.items():
        names = columns(database, table)
        assert names[0] == written[0] and sorted(names) == sorted(written)


def through_the_view(
    database: sqlite3.Connection, table: codec.RollupTable, row: dict[str, object]
) -> dict[str, object]:
    (values,) = codec.encode_rollups(table, {name: [value] for name, value in row.items()})
    end = PERIOD_SECONDS[codec.rollup_period(table)]
    codec.write_rollups(database, table, [(end, 1, values)])
    cursor = database.execute(f"SELECT * FROM {table}s")
    (stored,) = [dict(zip([name for name, *_ in cursor.description], values, strict=True)) for values in cursor]
    assert stored["ts"] == end
    return stored


@pytest.mark.parametrize("table", ROLLUPS)
def test_rollups_come_back_in_base_units(database: sqlite3.Connection, table: codec.RollupTable) -> None:
    bins = [0.0] * 3 + [17.3] + [0.0] * 23 + [1.0]
    row: dict[str, object] = {"observed_seconds": 57.3}
    for measure in codec.MEASURES[codec.rollup_kind(table)]:
        mean = 700 / measure.steps
        # Half a step of the distances beyond each: both come back as the step nearer to the mean.
        row |= {
            f"{measure.name}_mean": mean,
            f"{measure.name}_p95": mean - 3.5 * measure.spread / measure.steps,
            f"{measure.name}_max": mean + 9.5 * measure.spread / measure.steps,
            f"{measure.name}_n": 57,
        }
    others = [name for name in codec.stored_columns(table)[3:] if not name.endswith(("_mean", "_to_p95", "_to_max"))]
    row |= {name: bins if name.endswith("_bins") else 1024.0 if "mem" in name else 0.5 for name in others}
    stored = through_the_view(database, table, row)
    for measure in codec.MEASURES[codec.rollup_kind(table)]:
        step = measure.spread / measure.steps
        below, above = (3, 9) if measure.spread > 1 else (3, 10)
        assert stored[f"{measure.name}_mean"] == pytest.approx(700 / measure.steps)
        assert stored[f"{measure.name}_p95"] == pytest.approx(700 / measure.steps - below * step)
        assert stored[f"{measure.name}_max"] == pytest.approx(700 / measure.steps + above * step)
        assert stored[f"{measure.name}_n"] == 57
    for name in others:
        value = json.loads(str(stored[name])) if name.endswith("_bins") else stored[name]
        assert value == pytest.approx(row[name])
    assert stored["observed_seconds"] == pytest.approx(57.3)


def test_counts_that_differ_and_statistics_that_are_missing_come_back(database: sqlite3.Connection) -> None:
    row: dict[str, object] = {"observed_seconds": 60, "gpu_util_mean": 0.5, "gpu_util_max": 0.75, "gpu_util_n": 60}
    row |= {"sm_active_mean": 0.25, "sm_active_n": 6, "tensor_active_n": 0, "dram_active_n": 5}
    stored = through_the_view(database, "gpu_minute", row)
    assert stored["gpu_util_max"] == pytest.approx(0.75)
    assert stored["gpu_util_p95"] is None
    counts = {name: value for name, value in stored.items() if name.endswith("_n") and value}
    assert counts == {"gpu_util_n": 60, "sm_active_n": 6, "dram_active_n": 5}
    assert stored["tensor_active_n"] == stored["power_watts_n"] == 0
    assert stored["sm_active_max"] is stored["tensor_active_mean"] is None
    stored = through_the_view(database, "gpu_minute", row | {"sm_active_n": 60, "dram_active_n": 0})
    assert stored["sm_active_n"] == 60
    assert database.execute("SELECT sample_counts FROM gpu_minute").fetchall() == [(None,)]


START = 1_800_000_000.0 - 1_800_000_000.0 % 3600
GPUS = [Gpu("GPU-1", 0, "H100"), Gpu("GPU-2", 1, "H100")]
FIRST = Burst("GPU-1", START + 130.2, 10.1, 96, 0.8123, 0.934, 0.62345, 0.31, 0.4567, -0.872, 0.515)
SECOND = Burst("GPU-1", START + 430.0, 10.0, 94, 0.8311, 0.9, 0.7, 1.25, 0.5)
COLUMNS = (
    "n", "period_seconds", "period_strength", "duty", "idle_run_seconds", "sm_active_cv", "tensor_nvlink_correlation",
    "tensor_fabric_correlation",
)  # fmt: skip


@pytest.fixture(scope="module")
def database_bursts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour and a bit of two GPUs, one of which had two bursts."""
    path = tmp_path_factory.mktemp("bursts") / "node.db"
    with Writer.open(path) as writer:
        node = writer.for_node(Node("n1"), START)
        node.set_gpus(GPUS, START)
        put_ticks(
            node, (Tick(START + 10 * i, 10.0, {gpu.uuid: {"sm_active": 0.5} for gpu in GPUS}) for i in range(1, 366))
        )
        for burst in (FIRST, SECOND, Burst("GPU-9", START + 130.2, 10.0, 96, duty=1.0)):
            node.add_burst(burst)
    RollupJob(path).run(START + 7200)
    return path


def rows(path: Path, view: str, where: str) -> list[tuple[object, ...]]:
    columns = ", ".join(f"burst_{name}" for name in COLUMNS)
    sql = f"SELECT ts - {START}, gpu_uuid, {columns} FROM {view} WHERE {where} ORDER BY ts, gpu_uuid"
    return stored_rows.rows(path, sql)


def test_a_burst_stands_beside_the_minute_in_which_it_ended(database_bursts: Path) -> None:
    first, second = rows(database_bursts, "gpu_minutes", "burst_n IS NOT NULL")
    assert first[:3] == (180.0, "GPU-1", 96)
    assert first[3:] == pytest.approx((0.812, 0.93, 0.6235, 0.31, 0.457, -0.87, 0.52), abs=0.006)
    assert second == pytest.approx((480.0, "GPU-1", 94, 0.831, 0.9, 0.7, 1.25, 0.5, None, None))
    others = rows(database_bursts, "gpu_minutes", "burst_n IS NULL")
    assert len(others) == 2 * 61 - 2
    assert {value for row in others for value in row[2:]} == {None}


def test_an_hour_tells_of_its_bursts(database_bursts: Path) -> None:
    (busy, other) = rows(database_bursts, "gpu_hours", f"ts = {START + 3600}")
    assert busy[:3] == (3600.0, "GPU-1", 190)
    duty = (0.6235 * 96 + 0.7 * 94) / 190
    assert busy[3:] == pytest.approx((0.812, 0.9, duty, 1.25, 0.457, -0.87, 0.52), abs=0.006)
    assert other == (3600.0, "GPU-2", *[None] * 8)


T0 = 1_790_000_000.0
WORK = Workload("w-1", "s-1", "serve", "process", framework="vllm")
VALUES = {
    "kv_cache_usage": 0.4565, "requests_running": 7.0, "requests_waiting": 0.0, "prompt_tokens_per_second": 100.1,
    "generation_tokens_per_second": 50.0, "time_to_first_token_seconds": 0.3123, "preemptions_per_second": 0.2,
    "time_per_output_token_seconds": 0.02345, "requests_per_second": 80.125,
}  # fmt: skip


def sample(ts: float, workload_id: str | None = None, **values: float) -> ServingSample:
    return ServingSample(ts, 10.02, "http://127.0.0.1:8000/metrics", "vllm", values or VALUES, workload_id=workload_id)


def test_a_sample_comes_back_in_base_units(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with Writer.open(path) as writer:
        node = writer.for_node(Node("n1"), T0)
        node.set_workloads((WORK,), (), T0)
        node.add_serving(sample(T0 + 10, "w-1"))
        node.add_serving(sample(T0 + 20, "nobody-named-it", requests_running=3.0))
    with open_reader(path) as reader:
        first, second = reader.fetch("SELECT * FROM serving_samples ORDER BY ts")
    expected = (T0 + 10, 10.02, "n1", "w-1", "vllm", "http://127.0.0.1:8000/metrics", *VALUES.values())
    assert first == pytest.approx(expected)
    assert second[3] is None
    assert second[6:] == (None, 3.0, None, None, None, None, None, None, None)


FAST, SLOW = (0.0,) * 7 + (80.0, 20.0) + (0.0,) * 22, (0.0,) * 30 + (3.0,)


def test_what_servers_counted_is_added_up_by_the_hour_and_the_work_that_held_them(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    hour = T0 // 3600 * 3600
    first = [(10.0, "w-1", FAST), (20.0, "w-1", FAST), (30.0, None, SLOW)]
    for part in (first, [(3590.0, "w-1", SLOW), (3610.0, "w-1", FAST)]):  # the agent is started again in between
        with Writer.open(path, now=lambda: hour + 7200) as writer:
            node = writer.for_node(Node("n1"), hour)
            node.set_workloads((WORK,), (), hour)
            for after, work, counts in part:
                serving_sample = sample(hour + after, work)
                node.add_serving(replace(serving_sample, latency={"output_token": counts}))
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
    assert waited["workload_id"].tolist() == ["w-1"] * 3  # free time has no owner
    assert waited["seconds"].tolist() == [0.0] * 3 and waited["kv_percent"].isna().all()
    assert table.loc[table["workload_id"] == "w-1", "generated_tokens"].sum() == pytest.approx(50.0 * 10.02 * 4)
