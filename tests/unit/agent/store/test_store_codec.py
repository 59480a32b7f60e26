"""The metric catalogue, the codec and the SQL say the same."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.model import PERIOD_SECONDS
from skuwise.agent.store.file.codec import (
    GPU_STEPS,
    MEASURES,
    RollupTable,
    encode_values,
    rollup_columns,
    rollup_kind,
    rollup_period,
    row_encoder,
    row_id,
    storable,
    stored_columns,
    values_encoder,
)
from skuwise.agent.store.file.database import schema_sql
from skuwise.agent.store.file.tables import TABLES, write_rollups

ROLLUPS: tuple[RollupTable, ...] = get_args(RollupTable)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(schema_sql())
    yield connection
    connection.close()


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


# What users may rely on; columns may be added, never taken away.
CONTRACT = {
    "nodes": "node cluster machine_id boot_id provider region instance_type node_sku node_sku_source gpu_count "
    "agent_version first_seen last_seen",
    "gpus": "node gpu_uuid gpu_index name sku kind parent_uuid slices mig_profile pci_bus_id mem_total_bytes "
    "power_limit_watts nvlink_links nvlink_bytes_per_second driver_version valid_from valid_to",
    "gpu_samples": "ts interval_seconds node gpu_uuid gpu_index gpu_util sm_active sm_occupancy tensor_active "
    "dram_active fp64_active fp32_active fp16_active mem_used_bytes mem_total_bytes power_watts energy_joules "
    "sm_clock_hertz mem_clock_hertz temperature_celsius throttle_reasons pcie_tx_bytes_per_second "
    "pcie_rx_bytes_per_second nvlink_tx_bytes_per_second nvlink_rx_bytes_per_second",
    "fabric_samples": "ts interval_seconds node device port role link_layer state line_rate_bytes_per_second "
    "tx_bytes_per_second rx_bytes_per_second xmit_wait_per_second",
    "host_samples": "ts interval_seconds node cpu_util io_wait mem_used_bytes mem_total_bytes "
    "disk_read_bytes_per_second disk_write_bytes_per_second",
    "workloads": "workload_id series_id name scheduler job_id namespace pod user account framework command first_seen "
    "last_seen",
    "workload_gpus": "workload_id node gpu_uuid ts_start ts_end basis shared mem_used_bytes",
    "absences": "node gpu_uuid device metric reason since until",
    "agent_stats": "ts cpu_seconds rss_bytes tick_seconds late_seconds missed_ticks clock_offset_seconds",
    "gpu_minutes": "ts node gpu_uuid sm_active_mean sm_active_max sm_active_p95 sm_active_n duty idle_run_seconds "
    "sm_active_cv period_seconds period_strength tensor_nvlink_correlation",
    "gpu_hours": "ts node gpu_uuid sm_active_bins tensor_active_p95 nvlink_bins duty",
    "fabric_hours": "ts node device port util_mean util_max util_p95 util_n util_bins idle_run_seconds",
    "host_hours": "ts node cpu_util_mean cpu_util_max cpu_util_p95 cpu_util_n cpu_util_bins",
}


@pytest.mark.parametrize("view", CONTRACT)
def test_the_views_keep_their_columns(database: sqlite3.Connection, view: str) -> None:
    assert set(CONTRACT[view].split()) <= set(columns(database, view))


@pytest.mark.parametrize("table", ROLLUPS)
def test_rollup_columns_are_those_of_the_tables(database: sqlite3.Connection, table: RollupTable) -> None:
    assert columns(database, table) == ["id", *stored_columns(table)]


@pytest.mark.parametrize("table", TABLES)
def test_small_tables_are_written_whole(database: sqlite3.Connection, table: str) -> None:
    assert columns(database, table)[0] == TABLES[table][0]
    assert sorted(columns(database, table)) == sorted(TABLES[table])


def with_devices(database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO node VALUES (1, 'n', '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, 0, 0)")
    database.execute(
        "INSERT INTO gpu (id, node_id, gpu_uuid, gpu_index, name, valid_from) VALUES (1, 1, 'g', 0, 'x', 0)"
    )
    database.execute(
        "INSERT INTO port (id, node_id, device, port, role, link_layer, valid_from) VALUES (1, 1, 'p', 1, '', '', 0)"
    )


def through_the_view(database: sqlite3.Connection, table: RollupTable, row: dict[str, object]) -> dict[str, object]:
    names = rollup_columns(table)
    values = row_encoder(table, names)([row.get(name) for name in names])
    end = PERIOD_SECONDS[rollup_period(table)]
    write_rollups(database, table, [(end, 1, values)])
    (told,) = database.execute(f"SELECT ts, {', '.join(names)} FROM {table}s").fetchall()
    assert told[0] == end
    return dict(zip(names, told[1:], strict=True))


@pytest.mark.parametrize("table", ROLLUPS)
def test_rollups_come_back_in_base_units(database: sqlite3.Connection, table: RollupTable) -> None:
    with_devices(database)
    bins = [0.0] * 3 + [17.3] + [0.0] * 23 + [1.0]
    row: dict[str, object] = {"observed_seconds": 57.3}
    for measure in MEASURES[rollup_kind(table)]:
        mean = 700 / measure.steps
        # Half a step of the distances beyond each: both come back as the step nearer to the mean.
        row |= {
            f"{measure.name}_mean": mean,
            f"{measure.name}_p95": mean - 3.5 * measure.spread / measure.steps,
            f"{measure.name}_max": mean + 9.5 * measure.spread / measure.steps,
            f"{measure.name}_n": 57,
        }
    others = [name for name in rollup_columns(table) if name not in row]
    row |= {name: bins if name.endswith("_bins") else 1024.0 if "mem" in name else 0.5 for name in others}
    told = through_the_view(database, table, row)
    for measure in MEASURES[rollup_kind(table)]:
        step = measure.spread / measure.steps
        below, above = (3, 9) if measure.spread > 1 else (3, 10)
        assert told[f"{measure.name}_mean"] == pytest.approx(700 / measure.steps)
        assert told[f"{measure.name}_p95"] == pytest.approx(700 / measure.steps - below * step)
        assert told[f"{measure.name}_max"] == pytest.approx(700 / measure.steps + above * step)
        assert told[f"{measure.name}_n"] == 57
    for name in others:
        assert (
            told[name] == pytest.approx(row[name])
            if not name.endswith("_bins")
            else json.loads(str(told[name])) == bins
        )
    assert told["observed_seconds"] == pytest.approx(57.3)


def test_counts_that_differ_and_statistics_that_are_missing_come_back(database: sqlite3.Connection) -> None:
    with_devices(database)
    row: dict[str, object] = {"observed_seconds": 60, "gpu_util_mean": 0.5, "gpu_util_max": 0.75, "gpu_util_n": 60}
    row |= {"sm_active_mean": 0.25, "sm_active_n": 6, "tensor_active_n": 0, "dram_active_n": 5}
    told = through_the_view(database, "gpu_minute", row)
    assert told["gpu_util_max"] == pytest.approx(0.75)
    assert told["gpu_util_p95"] is None
    found = {name: value for name, value in told.items() if name.endswith("_n") and value}
    assert found == {"gpu_util_n": 60, "sm_active_n": 6, "dram_active_n": 5}
    assert told["tensor_active_n"] == told["power_watts_n"] == 0
    assert told["sm_active_max"] is told["tensor_active_mean"] is None
    told = through_the_view(database, "gpu_minute", row | {"sm_active_n": 60, "dram_active_n": 0})
    assert told["sm_active_n"] == 60
    assert database.execute("SELECT sample_counts FROM gpu_minute").fetchall() == [(None,)]


_ODD = st.sampled_from([math.nan, math.inf, -math.inf, 1e300, None, "text", True])


@given(st.dictionaries(st.sampled_from([name for name, _ in GPU_STEPS]), st.floats(-1e13, 1e13) | _ODD))
def test_the_prepared_encoder_gives_what_the_plain_one_does(reading: dict[str, float]) -> None:
    whole = {name: 0.5 for name, _ in GPU_STEPS} | reading
    encode = values_encoder(GPU_STEPS)
    for values in (whole, reading):
        assert encode(values) == encode_values(values.get, GPU_STEPS)


def test_rows_of_rollups_are_encoded_column_by_column() -> None:
    encode = row_encoder("gpu_hour", ["observed_seconds", "tensor_nvlink_correlation", "sm_active_bins", "duty"])

    def stored(row: list[object]) -> dict[str, object]:
        return dict(zip(stored_columns("gpu_hour"), encode(row), strict=True))

    row = stored([3599.96, -0.5, [0.0] * 27 + [3600.0], math.nan])
    assert row["unobserved_seconds"] == 0
    assert row["tensor_nvlink_correlation"] == -50
    assert row["sm_active_bins"] == "27003600"
    assert row["duty"] is None
    row = stored([1.0, math.inf, json.dumps([1.25, 0.04] + [0] * 26), "x"])
    assert (row["unobserved_seconds"], row["tensor_nvlink_correlation"], row["duty"]) == (35990, None, None)
    assert row["sm_active_bins"] == "00271.2"
    assert stored([0.0, None, [0.0] * 28, None])["sm_active_bins"] == "00270"
    assert stored([0.0, None, None, None])["sm_active_bins"] is None


def test_unknown_columns_and_wrong_bins_are_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        row_encoder("gpu_hour", ["nonsense"])
    with pytest.raises(ValueError, match="need its mean"):
        row_encoder("gpu_hour", ["sm_active_p95"])
    with pytest.raises(ValueError, match="28"):
        row_encoder("gpu_hour", ["sm_active_bins"])([[1.0, 2.0]])
    with pytest.raises(ValueError, match="finite"):
        row_encoder("gpu_hour", ["sm_active_bins"])([[math.nan] * 28])
    with pytest.raises(ValueError, match="4096"):
        row_id("hour", 3600, 4096)


def test_storable_takes_out_what_sqlite_cannot_hold() -> None:
    assert storable([2**63, -5, "a\udc80b", None, 1.5]) == (None, -5, "a?b", None, 1.5)
