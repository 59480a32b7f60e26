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
