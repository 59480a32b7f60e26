"""The private tables' columns, and the statements that write them."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Sequence
from functools import cache

from ..model import PERIOD_SECONDS, Absence, AgentStats, Event, FabricPort, Gpu, Node, Workload
from ..statistics.latency_bins import MEASURES as LATENCY_MEASURES
from .burst_rows import COLUMNS as BURST_COLUMNS
from .codec import (
    FABRIC_STEPS,
    GPU_STEPS,
    HOST_STEPS,
    SERVING_STEPS,
    Cell,
    RollupTable,
    rollup_period,
    row_id,
    stored_columns,
)

# Fields of the model that their table calls otherwise.
_RENAMED = {"uuid": "gpu_uuid", "index": "gpu_index"}


def _fields(kind: type) -> tuple[str, ...]:
    """The columns that keep a value of the model, in the order of `kept`."""
    return tuple(_RENAMED.get(one.name, one.name) for one in dataclasses.fields(kind) if one.compare)


def kept(value: Node | Gpu | FabricPort | Workload | Absence | Event | AgentStats) -> tuple[Cell, ...]:
    """What is kept of a value of the model: what makes two of them equal."""
    return tuple(getattr(value, one.name) for one in dataclasses.fields(value) if one.compare)


# Small tables, whose whole rows are written again when something of them changes. The first column is the key.
TABLES: dict[str, tuple[str, ...]] = {
    "node": ("id", *_fields(Node), "first_seen", "last_seen"),
    "gpu": ("id", "node_id", *_fields(Gpu), "valid_from", "valid_to"),
    "port": ("id", "node_id", *_fields(FabricPort), "valid_from", "valid_to"),
    "workload": ("id", *_fields(Workload), "first_seen", "last_seen"),
    "workload_use": (
        "id", "workload_ref", "node_id", "gpu_uuid", "ts_start", "ts_end", "basis", "shared", "mem_used_bytes",
    ),
    "absence": ("id", "node_id", *_fields(Absence), "since", "until"),
    "server": ("id", "node_id", "engine", "endpoint"),
    "serving_sample": ("id", "server_id", "workload_ref", "ts", "interval_ms", *(name for name, _ in SERVING_STEPS)),
    "serving_hour": (
        "id", "server_id", "workload_ref", "ts", "interval_ms", *(f"{measure}_bins" for measure in LATENCY_MEASURES),
    ),
    "event": ("id", "node_id", *_fields(Event)),
    "gpu_burst": BURST_COLUMNS,
    "agent_stat": (*_fields(AgentStats), "node_id"),
}  # fmt: skip

_SAMPLES: dict[str, tuple[str, ...]] = {
    "tick": ("id", "node_id", "ts", "interval_ms", *(name for name, _ in HOST_STEPS)),
    "gpu_sample": ("id", *(name for name, _ in GPU_STEPS)),
    "fabric_sample": ("id", "active", "state", *(name for name, _ in FABRIC_STEPS)),
}


def _insert(table: str, columns: tuple[str, ...], verb: str = "INSERT") -> str:
    marks = ", ".join("?" * len(columns))
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({marks})"


INSERTS = {table: _insert(table, columns) for table, columns in _SAMPLES.items()}


@cache
def upsert(table: str) -> str:
    """Write a whole row of a small table. Columns that a newer minor version added keep their values."""
    columns = TABLES[table]
    if table == "agent_stat":
        return _insert(table, columns, "INSERT OR REPLACE")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    return f"{_insert(table, columns)} ON CONFLICT (id) DO UPDATE SET {changes}"


@cache
def _insert_rollup(table: RollupTable) -> str:
    columns = ("id", *stored_columns(table))
    marks = ["(SELECT id FROM sample_counts WHERE counts = ?)" if c == "sample_counts" else "?" for c in columns]
    return f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({', '.join(marks)})"  # noqa: S608


def write_rollups(
    connection: sqlite3.Connection, table: RollupTable, rows: Sequence[tuple[float, int, Sequence[Cell]]]
) -> None:
    """Write rollup rows, each its period's end, its device's id and its values in the order of `stored_columns`. A row
    of the same period and device is replaced. Within the caller's transaction."""
    period = rollup_period(table)
    length, at = PERIOD_SECONDS[period], stored_columns(table).index("sample_counts")
    ends = {round(ts) // length * length for ts, _, _ in rows}
    insert_end = f"INSERT OR IGNORE INTO {period} (ts) VALUES (?)"  # noqa: S608
    connection.executemany(insert_end, [(end,) for end in sorted(ends)])
    counts = {values[at] for _, _, values in rows if values[at] is not None}
    connection.executemany("INSERT OR IGNORE INTO sample_counts (counts) VALUES (?)", [(text,) for text in counts])
    connection.executemany(
        _insert_rollup(table), ([row_id(period, ts, device), *values] for ts, device, values in rows)
    )
