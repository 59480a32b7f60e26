"""Between base units and what the tables hold: integers in quanta (see agent/model.py), bins as JSON.

The one place that knows which column is kept in which step. Missing (None, NaN, infinite) becomes NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor, isfinite
from typing import Literal

from ..model import (
    BIN_EDGES,
    FABRIC_BINS,
    FABRIC_METRICS,
    GPU_BINS,
    GPU_METRICS,
    HOST_BINS,
    HOST_METRICS,
    SERVING_METRICS,
    Metric,
)

RollupTable = Literal["gpu_minute", "gpu_hour", "fabric_minute", "fabric_hour", "host_minute", "host_hour"]
Period = Literal["minute", "hour"]
Cell = int | float | str | None

STATISTICS = ("mean", "max", "p95", "n")
PERIOD_SECONDS: Mapping[Period, int] = {"minute": 60, "hour": 3600}

# A row's id in the sample tables is tick id * DEVICES + device id (gpu.id or port.id).
DEVICES = 4096

_SECONDS = 10.0  # durations are kept in 0.1 s
_INT64 = 2**63 - 1

# Columns of the rollups beside the metrics' statistics -> stored steps per base unit.
GPU_DYNAMICS: Mapping[str, float] = {
    "duty": 1e4,
    "idle_run_seconds": _SECONDS,
    "sm_active_cv": 1e3,
    "period_seconds": 10.0,
    "period_strength": 1e3,
    "tensor_nvlink_correlation": 1e3,
    "tensor_fabric_correlation": 1e3,
    "throttled_fraction": 1e4,
}
FABRIC_DYNAMICS: Mapping[str, float] = {"active_fraction": 1e4, "idle_run_seconds": _SECONDS}


def _steps(metric: Metric) -> float:
    """Stored steps per base unit. The inverse is exact for our quanta (1e-4 -> 10000, 0.1 -> 10)."""
    return float(round(1 / metric.quantum)) if metric.quantum < 1 else 1 / metric.quantum


GPU_STEPS = tuple((metric.name, _steps(metric)) for metric in GPU_METRICS)
FABRIC_STEPS = tuple((metric.name, _steps(metric)) for metric in FABRIC_METRICS)
HOST_STEPS = (*((metric.name, _steps(metric)) for metric in HOST_METRICS), ("mem_total_bytes", 1 / 1024))
SERVING_STEPS = tuple((metric.name, _steps(metric)) for metric in SERVING_METRICS)


def _statistics(metrics: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {f"{name}_{kind}": 1.0 if kind == "n" else steps for name, steps in metrics for kind in STATISTICS}


_GPU_ROLLED = [(m.name, _steps(m)) for m in GPU_METRICS if m.rolled_up]
_FABRIC_ROLLED = [("util", 1e4), *FABRIC_STEPS]
_HOST_ROLLED = [(m.name, _steps(m)) for m in HOST_METRICS]
_OBSERVED = {"observed_seconds": _SECONDS}

_NUMERIC: Mapping[str, Mapping[str, float]] = {
    "gpu": {**_OBSERVED, **_statistics(_GPU_ROLLED), **GPU_DYNAMICS},
    "fabric": {**_OBSERVED, **_statistics(_FABRIC_ROLLED), **FABRIC_DYNAMICS},
    "host": {**_OBSERVED, **_statistics(_HOST_ROLLED), "mem_total_bytes": 1 / 1024},
}
_BINS: Mapping[str, tuple[str, ...]] = {
    "gpu": tuple(f"{name}_bins" for name in GPU_BINS),
    "fabric": tuple(f"{name}_bins" for name in FABRIC_BINS),
    "host": tuple(f"{name}_bins" for name in HOST_BINS),
}
DEVICE_COLUMN: Mapping[str, str] = {"gpu": "gpu_id", "fabric": "port_id", "host": "node_id"}
_BINS_FORMAT = "[" + ",".join(["%g"] * len(BIN_EDGES)) + "]"


def rollup_kind(table: RollupTable) -> str:
    """What a rollup's rows are about: gpu, fabric or host."""
    return table.partition("_")[0]


def rollup_columns(table: RollupTable) -> dict[str, float | None]:
    """The value columns of a rollup table: name -> stored steps per base unit, None for bins (JSON text)."""
    kind = rollup_kind(table)
    columns: dict[str, float | None] = dict(_NUMERIC[kind])
    if table.endswith("_hour"):
        columns |= dict.fromkeys(_BINS[kind])
    return columns


def encode_number(value: object, steps: float) -> int | None:
    """One value in whole steps, rounded to the nearest; None where it is missing, not finite or beyond 64 bits."""
    if value is None or isinstance(value, str | bytes):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    if not isfinite(number):
        return None
    stored = floor(number * steps + 0.5)
    return stored if -_INT64 <= stored <= _INT64 else None


def encode_values(get: Callable[[str], float | None], steps: Sequence[tuple[str, float]]) -> list[int | None]:
    """A reading's values in the order of `steps`. The fast road takes numbers; odd ones take the careful road."""
    try:
        return [None if (value := get(name)) is None else floor(value * k + 0.5) for name, k in steps]
    except (ValueError, OverflowError, TypeError):
        return [encode_number(get(name), k) for name, k in steps]


def encode_bins(bins: object) -> str | None:
    """Seconds per bin of BIN_EDGES as a JSON array. Takes a sequence of numbers, such JSON text, or None."""
    if bins is None or isinstance(bins, str):
        return bins
    seconds = tuple(bins)  # type: ignore[arg-type]
    if len(seconds) != len(BIN_EDGES):
        raise ValueError(f"bins must hold {len(BIN_EDGES)} values, not {len(seconds)}")
    text = _BINS_FORMAT % seconds
    if "n" in text:  # nan or inf: SQL and JSON know neither
        raise ValueError("bins must be finite")
    return text


def row_encoder(table: RollupTable, columns: Sequence[str]) -> Callable[[Sequence[object]], list[Cell]]:
    """A function that turns values in base units, in the order of `columns`, into what the table holds."""
    known = rollup_columns(table)
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ValueError(f"{table} has no column {', '.join(unknown)}")
    bins = [index for index, name in enumerate(columns) if known[name] is None]
    numbers = [known[name] or 0.0 for name in columns]

    def encode(row: Sequence[object]) -> list[Cell]:
        values: list[object] = list(row)
        texts = [(index, encode_bins(values[index])) for index in bins]
        for index in bins:
            values[index] = None
        try:
            stored: list[Cell] = [
                None if value is None or value != value else floor(value * k + 0.5)  # type: ignore[operator]  # noqa: PLR0124
                for value, k in zip(values, numbers, strict=True)
            ]
        except (OverflowError, TypeError):
            stored = [encode_number(value, k) for value, k in zip(values, numbers, strict=True)]
        for index, text in texts:
            stored[index] = text
        return stored

    return encode


def storable(row: Sequence[Cell]) -> tuple[Cell, ...]:
    """The row as SQLite can take it: integers beyond 64 bits become missing (such a value is a sentinel, not a
    measurement), and text that is not valid Unicode has its broken parts replaced."""
    return tuple(_storable(cell) for cell in row)


def _storable(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return cell.encode("utf-8", "replace").decode()
    if isinstance(cell, int) and not -_INT64 <= cell <= _INT64:
        return None
    return cell
