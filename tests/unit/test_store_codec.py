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
from skuwise.agent.model import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, Metric
from skuwise.agent.store.codec import (
    FABRIC_STEPS,
    GPU_STEPS,
    HOST_STEPS,
    RollupTable,
    encode_values,
    rollup_columns,
    rollup_kind,
    row_encoder,
    storable,
)
from skuwise.agent.store.migrations import migrate, migrations
from skuwise.agent.store.tables import TABLES

ROLLUPS: tuple[RollupTable, ...] = get_args(RollupTable)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, migrations())
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
    assert set(columns(database, table)[2:]) == set(rollup_columns(table))


@pytest.mark.parametrize("table", TABLES)
def test_small_tables_are_written_whole(database: sqlite3.Connection, table: str) -> None:
    assert columns(database, table) == list(TABLES[table])


@pytest.mark.parametrize(
    ("view", "table", "metrics"),
    [
        ("gpu_samples", "gpu_sample", GPU_METRICS),
        ("fabric_samples", "fabric_sample", FABRIC_METRICS),
        ("host_samples", "tick", HOST_METRICS),
    ],
)
def test_every_metric_is_in_its_view_with_its_quantum(
    database: sqlite3.Connection, view: str, table: str, metrics: tuple[Metric, ...]
) -> None:
    database.execute("INSERT INTO node VALUES (1, 'n', '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, 0, 0)")
    database.execute(
        "INSERT INTO gpu (id, node_id, gpu_uuid, gpu_index, name, valid_from) VALUES (1, 1, 'g', 0, 'x', 0)"
    )
    database.execute(
        "INSERT INTO port (id, node_id, device, port, role, link_layer, valid_from) VALUES (1, 1, 'p', 1, '', '', 0)"
    )
    database.execute("INSERT INTO tick (id, node_id, ts, interval_ms, cpu_util) VALUES (1, 1, 5, 1000, 1)")
    for metric in metrics:
        if table != "tick":
            database.execute(f"INSERT OR REPLACE INTO {table} (id, {metric.name}) VALUES (4097, 3)")
        else:
            database.execute(f"UPDATE tick SET {metric.name} = 3")
        assert database.execute(f"SELECT {metric.name} FROM {view}").fetchall() == [
            (pytest.approx(3 * metric.quantum),)
        ]


@pytest.mark.parametrize("table", ROLLUPS)
def test_rollups_come_back_in_base_units(database: sqlite3.Connection, table: RollupTable) -> None:
    database.execute("INSERT INTO node VALUES (1, 'n', '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, 0, 0)")
    database.execute(
        "INSERT INTO gpu (id, node_id, gpu_uuid, gpu_index, name, valid_from) VALUES (1, 1, 'g', 0, 'x', 0)"
    )
    database.execute(
        "INSERT INTO port (id, node_id, device, port, role, link_layer, valid_from) VALUES (1, 1, 'p', 1, '', '', 0)"
    )
    known = rollup_columns(table)
    for number, (name, steps) in enumerate(known.items(), 2):
        stored = 7 if steps else "[1]"
        database.execute(f"INSERT OR REPLACE INTO {table} VALUES (60, 1, 0{', NULL' * (len(known) - 1)})")
        database.execute(f"UPDATE {table} SET {name} = ?", (stored,))
        value = database.execute(f"SELECT {name} FROM {rollup_kind(table)}_{table.partition('_')[2]}s").fetchone()[0]
        assert value == (pytest.approx(7 / steps) if steps else "[1]"), (number, name)


@given(st.floats(0, 1e13), st.sampled_from([*GPU_STEPS, *FABRIC_STEPS, *HOST_STEPS]))
def test_a_value_is_kept_within_half_a_quantum(value: float, step: tuple[str, float]) -> None:
    (stored,) = encode_values({step[0]: value}.get, [step])
    assert stored is not None
    assert abs(stored / step[1] - value) <= 0.5 / step[1] * (1 + 1e-9) + value * 1e-15


def test_what_is_no_number_is_missing() -> None:
    reading: dict[str, float] = {"sm_active": math.nan, "gpu_util": math.inf, "temperature_celsius": -3.0}
    stored = dict(zip((name for name, _ in GPU_STEPS), encode_values(reading.get, GPU_STEPS), strict=True))
    assert stored["sm_active"] is None
    assert stored["gpu_util"] is None
    assert stored["tensor_active"] is None
    assert stored["temperature_celsius"] == -3


def test_rows_of_rollups_are_encoded_column_by_column() -> None:
    encode = row_encoder("gpu_hour", ["observed_seconds", "tensor_nvlink_correlation", "sm_active_bins", "duty"])
    row = encode([3599.96, -0.5, [0.0] * 27 + [3600.0], math.nan])
    assert row[:2] == [36000, -500]
    assert json.loads(str(row[2])) == [0] * 27 + [3600]
    assert len(json.loads(str(row[2]))) == len(BIN_EDGES)
    assert row[3] is None
    assert encode([1.0, math.inf, None, "x"]) == [10, None, None, None]


def test_unknown_columns_and_wrong_bins_are_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        row_encoder("gpu_hour", ["nonsense"])
    with pytest.raises(ValueError, match="28"):
        row_encoder("gpu_hour", ["sm_active_bins"])([[1.0, 2.0]])
    with pytest.raises(ValueError, match="finite"):
        row_encoder("gpu_hour", ["sm_active_bins"])([[math.nan] * 28])


def test_storable_takes_out_what_sqlite_cannot_hold() -> None:
    assert storable([2**63, -5, "a\udc80b", None, 1.5]) == (None, -5, "a?b", None, 1.5)
