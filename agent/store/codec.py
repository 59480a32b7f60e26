"""Between base units and the private tables: which column is kept in which step, and the statements that write rows.

Tables hold integers in quanta (agent/metrics.py) and bins as short text. Missing (None, NaN, infinite) becomes NULL.
"""

import dataclasses
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import floor, isfinite
from typing import Any, Literal, NamedTuple, cast

from ..metrics import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, SERVING_METRICS, Metric
from ..model import PERIOD_SECONDS, Absence, AgentStats, Event, FabricPort, Gpu, Node, Period, Workload
from ..statistics.latency_bins import MEASURES as LATENCY_MEASURES

RollupTable = Literal["gpu_minute", "gpu_hour", "fabric_minute", "fabric_hour", "host_minute", "host_hour"]
Cell = int | float | str | None
Steps = Sequence[tuple[str, float]]

# A row's id in the sample tables is tick id * DEVICES + device id (gpu.id or port.id).
DEVICES = 4096
_SECONDS = 10.0  # durations are kept in 0.1 s
_INT64 = 2**63 - 1
# A count of samples in `sample_counts` takes so many digits.
_COUNT_DIGITS = 6

# Columns of the rollups beside the metrics' statistics -> stored steps per base unit.
GPU_DYNAMICS: Mapping[str, float] = {
    "duty": 1e4,
    "idle_run_seconds": _SECONDS,
    "sm_active_cv": 1e3,
    "period_seconds": 10.0,
    "period_strength": 100.0,
    "tensor_nvlink_correlation": 100.0,
    "tensor_fabric_correlation": 100.0,
    "throttled_fraction": 1e4,
}
_OTHERS: Mapping[str, Mapping[str, float]] = {
    "gpu": GPU_DYNAMICS,
    "fabric": {"active_fraction": 1e4, "idle_run_seconds": _SECONDS},
    "host": {"mem_total_bytes": 1 / 1024},
}
# The ratios of which the hours keep bins: mem_used is of the memory, power of its limit, nvlink the larger direction
# over the bandwidth one way, util of a port the larger direction over its line rate.
_BINS: Mapping[str, Iterable[str]] = {
    "gpu": ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "mem_used", "power", "nvlink"),
    "fabric": ("util",),
    "host": ("cpu_util",),
}
# In which steps the rollups keep a measure, by its unit: the mean's step in base units, and how many of those make a
# step of p95 and max (docs/metrics.md). They are a few bits coarser than the samples' where none shows the
# difference, so that 90 days of minutes find room (docs/operations.md).
_GPU_ROLLUP_STEPS: Mapping[str, tuple[float, int]] = {
    "ratio": (1e-4, 10),
    **dict.fromkeys(("bytes", "bytes per second"), (65536.0, 16)),
    **dict.fromkeys(("watts", "joules"), (0.1, 10)),
}
_FABRIC_ROLLUP_STEPS: Mapping[str, tuple[float, int]] = {"bytes per second": (16384.0, 64)}
# Bursts: a step's time has milliseconds, which is what a burst adds.
_FINER = {"period_seconds": 1e3, "idle_run_seconds": 100.0}
BURST_STEPS: Steps = tuple((GPU_DYNAMICS | _FINER).items())[:-1]  # a burst has no throttling


def _per_unit(quantum: float) -> float:
    """Stored steps per base unit. The inverse is exact for our quanta (1e-4 -> 10000, 0.1 -> 10)."""
    return float(round(1 / quantum)) if quantum < 1 else 1 / quantum


def _steps(metrics: Iterable[Metric]) -> tuple[tuple[str, float], ...]:
    return tuple((metric.name, _per_unit(metric.quantum)) for metric in metrics)


GPU_STEPS, FABRIC_STEPS, SERVING_STEPS = map(_steps, (GPU_METRICS, FABRIC_METRICS, SERVING_METRICS))
HOST_STEPS = (*_steps(HOST_METRICS), ("mem_total_bytes", 1 / 1024))


class RollupMeasure(NamedTuple):
    """How the rollups keep a measure: steps per base unit, and steps of the mean in one of the distances to p95 and to
    max."""

    name: str
    steps: float
    spread: int


def _measures(metrics: Iterable[Metric], coarser: Mapping[str, tuple[float, int]]) -> tuple[RollupMeasure, ...]:
    kept = ((m.name, coarser.get(m.unit, (m.quantum, 1))) for m in metrics if m.rolled_up)
    return tuple(RollupMeasure(name, _per_unit(quantum), spread) for name, (quantum, spread) in kept)


# A fabric's util keeps its full step: silence is judged by it.
MEASURES: Mapping[str, tuple[RollupMeasure, ...]] = {
    "gpu": _measures(GPU_METRICS, _GPU_ROLLUP_STEPS),
    "fabric": (RollupMeasure("util", 1e4, 1), *_measures(FABRIC_METRICS, _FABRIC_ROLLUP_STEPS)),
    "host": _measures(HOST_METRICS, {}),
}


def rollup_kind(table: RollupTable) -> str:
    return table.partition("_")[0]


def rollup_period(table: RollupTable) -> Period:
    return "minute" if table.endswith("_minute") else "hour"


def _bins(table: RollupTable) -> list[str]:
    return [f"{name}_bins" for name in _BINS[rollup_kind(table)]] if table.endswith("_hour") else []


def stored_columns(table: RollupTable) -> tuple[str, ...]:
    """The columns of a rollup's table behind its id, in the order of what `encode_rollups` gives."""
    kind = rollup_kind(table)
    spreads = (f"{measure.name}_{what}" for measure in MEASURES[kind] for what in ("mean", "to_p95", "to_max"))
    return ("samples", "sample_counts", "unobserved_seconds", *spreads, *_OTHERS[kind], *_bins(table))


def row_id(period: Period, ts: float, device: int) -> int:
    """The id of a device's row in a rollup: rows of one period lie together, so that no second index is needed."""
    if not 0 <= device < DEVICES:
        raise ValueError(f"a device's id must be below {DEVICES}, not {device}")
    return round(ts) // PERIOD_SECONDS[period] * DEVICES + device


def encode_number(value: object, steps: float) -> int | None:
    """One value in whole steps, rounded to the nearest; None where it is missing, not finite or beyond 64 bits."""
    if value is None:
        return None
    try:
        stored = floor(float(cast("float", value)) * steps + 0.5)
    except (TypeError, ValueError, OverflowError):
        return None
    return stored if -_INT64 <= stored <= _INT64 else None


def encode_values(get: Callable[[str], object], steps: Steps) -> list[int | None]:
    return [encode_number(get(name), per_unit) for name, per_unit in steps]


def encode_bins(bins: object) -> str | None:
    """Seconds per bin of BIN_EDGES (a sequence of numbers, or None) as the tables keep them: two digits each for how
    many bins are zero before the first and after the last that is not, then those between, in 0.1 s."""
    if bins is None:
        return None
    seconds = cast("Sequence[float]", bins)
    if len(seconds) != len(BIN_EDGES) or not isfinite(sum(seconds)):  # SQL and JSON have no nan or inf
        raise ValueError(f"bins must be {len(BIN_EDGES)} finite values")
    texts = [f"{round(value, 1):g}" if value else "0" for value in seconds]  # most are 0
    filled = [index for index, text in enumerate(texts) if text != "0"] or [0]
    first, last = filled[0], filled[-1]
    return f"{first:02d}{len(texts) - 1 - last:02d}{','.join(texts[first : last + 1])}"


def encode_rollups(table: RollupTable, columns: Mapping[str, Sequence[object]]) -> list[list[Cell]]:
    """Rows in the order of `stored_columns`, of values in base units by the columns of the table's view. What is left
    out is missing. p95 and max are kept as distances, so that they need their mean; in coarser steps they are rounded
    towards it (a ratio stays within 0..1). Counts are kept where one is not the usual one: the most that any measure
    has, or none without a mean. Column by column: row by row takes three times as long."""
    kind, most_samples = rollup_kind(table), 10**_COUNT_DIGITS - 1
    absent = [None] * len(next(iter(columns.values()), ()))

    def encoded(name: str, steps: float) -> Sequence[int | None]:
        return _encode_column(columns[name], steps) if name in columns else absent

    spreads: list[Sequence[int | None]] = []
    for name, steps, spread in MEASURES[kind]:
        mean, p95, most = (encoded(f"{name}_{statistic}", steps) for statistic in ("mean", "p95", "max"))
        to_p95 = [None if m is None or p is None else int((p - m) / spread) for m, p in zip(mean, p95, strict=True)]
        to_max = [
            None if m is None or x is None else int((x - m) / spread) - (below or 0)
            for m, x, below in zip(mean, most, to_p95, strict=True)
        ]
        spreads += (mean, to_p95, to_max)
    samples: list[Cell] = []
    sample_counts: list[Cell] = []
    counts = [encoded(f"{measure.name}_n", 1.0) for measure in MEASURES[kind]]
    for row, means in zip(zip(*counts, strict=True), zip(*spreads[::3], strict=True), strict=True):
        most_counted = max((count for count in row if count is not None), default=None)
        usual = [0 if mean is None else most_counted or 0 for mean in means]
        kept = [expected if count is None else count for count, expected in zip(row, usual, strict=True)]
        digits = (
            "".join(f"{min(max(count, 0), most_samples):0{_COUNT_DIGITS}d}" for count in kept)
            if kept != usual
            else None
        )
        samples.append(most_counted)
        sample_counts.append(digits)
    whole = round(PERIOD_SECONDS[rollup_period(table)] * _SECONDS)
    unobserved = [None if seen is None else whole - seen for seen in encoded("observed_seconds", _SECONDS)]
    others = [encoded(name, steps) for name, steps in _OTHERS[kind].items()]
    bins = [list(map(encode_bins, columns.get(name, absent))) for name in _bins(table)]
    return [list(row) for row in zip(samples, sample_counts, unobserved, *spreads, *others, *bins, strict=True)]


def _encode_column(values: Sequence[Any], steps: float) -> Sequence[int | None]:
    try:
        stored = [floor(value * steps + 0.5) for value in values]
    except (TypeError, ValueError, OverflowError):  # some are missing
        return [encode_number(value, steps) for value in values]
    if min(stored, default=0) >= -_INT64 and max(stored, default=0) <= _INT64:
        return stored
    return [encode_number(value, steps) for value in values]


def storable(row: Sequence[Cell]) -> tuple[Cell, ...]:
    """The row as SQLite can take it: integers beyond 64 bits become missing (such a value is a sentinel, not a
    measurement), and text that is not valid Unicode has its broken parts replaced."""

    def cell(value: Cell) -> Cell:
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        return None if isinstance(value, int) and abs(value) > _INT64 else value

    return tuple(map(cell, row))


# The tables and their statements. Fields of the model that their table calls otherwise:
_RENAMED = {"uuid": "gpu_uuid", "index": "gpu_index"}


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(_RENAMED.get(field.name, field.name) for field in dataclasses.fields(kind) if field.compare)


def kept(value: Node | Gpu | FabricPort | Workload | Absence | Event | AgentStats) -> tuple[Cell, ...]:
    """What is kept of a value of the model: what makes two of them equal."""
    return tuple(getattr(value, field.name) for field in dataclasses.fields(value) if field.compare)


BURST_COLUMNS = ("id", "n", *dict(BURST_STEPS))
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
    "serving_sample": ("id", "server_id", "workload_ref", "ts", "interval_ms", *dict(SERVING_STEPS)),
    "serving_hour": (
        "id", "server_id", "workload_ref", "ts", "interval_ms", *(f"{measure}_bins" for measure in LATENCY_MEASURES),
    ),
    "event": ("id", "node_id", *_fields(Event)),
    "gpu_burst": BURST_COLUMNS,
    "agent_stat": (*_fields(AgentStats), "node_id"),
}  # fmt: skip


def insert(table: str, columns: Sequence[str], verb: str = "INSERT") -> str:
    marks = ["(SELECT id FROM sample_counts WHERE counts = ?)" if c == "sample_counts" else "?" for c in columns]
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({', '.join(marks)})"


INSERTS = {
    "tick": insert("tick", ("id", "node_id", "ts", "interval_ms", *dict(HOST_STEPS))),
    "gpu_sample": insert("gpu_sample", ("id", *dict(GPU_STEPS))),
    "fabric_sample": insert("fabric_sample", ("id", "active", "state", *dict(FABRIC_STEPS))),
}


@cache
def upsert(table: str) -> str:
    """Write a whole row of a small table. Columns that a newer minor version added keep their values."""
    columns = TABLES[table]
    if table == "agent_stat":
        return insert(table, columns, "INSERT OR REPLACE")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    return f"{insert(table, columns)} ON CONFLICT (id) DO UPDATE SET {changes}"


def write_rollups(
    connection: sqlite3.Connection, table: RollupTable, rows: Sequence[tuple[float, int, Sequence[Cell]]]
) -> None:
    """Write rollup rows, each its period's end, its device's id and its values in the order of `stored_columns`. A row
    of the same period and device is replaced. Within the caller's transaction."""
    period, columns = rollup_period(table), stored_columns(table)
    length, at = PERIOD_SECONDS[period], columns.index("sample_counts")
    ends = {round(ts) // length * length for ts, _, _ in rows}
    connection.executemany(insert(period, ["ts"], "INSERT OR IGNORE"), [(end,) for end in sorted(ends)])
    counts = {values[at] for _, _, values in rows if values[at] is not None}
    connection.executemany("INSERT OR IGNORE INTO sample_counts (counts) VALUES (?)", [(text,) for text in counts])
    connection.executemany(
        insert(table, ("id", *columns), "INSERT OR REPLACE"),
        ([row_id(period, ts, device), *values] for ts, device, values in rows),
    )
