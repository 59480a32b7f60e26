"""Between base units and what the tables hold: integers in quanta (see agent/model.py), bins as short text.

The one place that knows which column is kept in which step. Missing (None, NaN, infinite) becomes NULL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite
from operator import itemgetter, mul
from typing import Literal

from ..metrics import (
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
from ..model import PERIOD_SECONDS, Period

RollupTable = Literal["gpu_minute", "gpu_hour", "fabric_minute", "fabric_hour", "host_minute", "host_hour"]
Cell = int | float | str | None

STATISTICS = ("mean", "max", "p95", "n")

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
    "period_strength": 100.0,
    "tensor_nvlink_correlation": 100.0,
    "tensor_fabric_correlation": 100.0,
    "throttled_fraction": 1e4,
}
FABRIC_DYNAMICS: Mapping[str, float] = {"active_fraction": 1e4, "idle_run_seconds": _SECONDS}

# In which steps the rollups keep a measure, by its unit: the mean's step in base units, and how many of those make a
# step of p95 and max (docs/metrics.md). They are a few bits coarser than the samples' where nobody can tell the
# difference, so that 90 days of minutes find room (docs/operations.md).
_GPU_ROLLUP_STEPS: Mapping[str, tuple[float, int]] = {
    "ratio": (1e-4, 10),
    "bytes": (65536.0, 16),
    "bytes per second": (65536.0, 16),
    "watts": (0.1, 10),
    "joules": (0.1, 10),
}
_FABRIC_ROLLUP_STEPS: Mapping[str, tuple[float, int]] = {"bytes per second": (16384.0, 64)}


def _per_unit(quantum: float) -> float:
    """Stored steps per base unit. The inverse is exact for our quanta (1e-4 -> 10000, 0.1 -> 10)."""
    return float(round(1 / quantum)) if quantum < 1 else 1 / quantum


GPU_STEPS = tuple((metric.name, _per_unit(metric.quantum)) for metric in GPU_METRICS)
FABRIC_STEPS = tuple((metric.name, _per_unit(metric.quantum)) for metric in FABRIC_METRICS)
HOST_STEPS = (*((metric.name, _per_unit(metric.quantum)) for metric in HOST_METRICS), ("mem_total_bytes", 1 / 1024))
SERVING_STEPS = tuple((metric.name, _per_unit(metric.quantum)) for metric in SERVING_METRICS)


@dataclass(frozen=True, slots=True)
class RollupMeasure:
    """How the rollups keep one measure: stored steps per base unit, and how many steps of the mean make one of the
    distances from mean to p95 and from p95 to max."""

    name: str
    steps: float
    spread: int


def _measures(metrics: Iterable[Metric], coarser: Mapping[str, tuple[float, int]]) -> tuple[RollupMeasure, ...]:
    kept: list[RollupMeasure] = []
    for metric in metrics:
        if metric.rolled_up:
            quantum, spread = coarser.get(metric.unit, (metric.quantum, 1))
            kept.append(RollupMeasure(metric.name, _per_unit(quantum), spread))
    return tuple(kept)


# A fabric's util keeps its full step: silence is judged by it.
MEASURES: Mapping[str, tuple[RollupMeasure, ...]] = {
    "gpu": _measures(GPU_METRICS, _GPU_ROLLUP_STEPS),
    "fabric": (RollupMeasure("util", 1e4, 1), *_measures(FABRIC_METRICS, _FABRIC_ROLLUP_STEPS)),
    "host": _measures(HOST_METRICS, {}),
}
# Columns beside the measures -> stored steps per base unit, None for bins (JSON).
_OTHERS: Mapping[str, Mapping[str, float | None]] = {
    "gpu": GPU_DYNAMICS,
    "fabric": FABRIC_DYNAMICS,
    "host": {"mem_total_bytes": 1 / 1024},
}
_BINS: Mapping[str, tuple[str, ...]] = {
    "gpu": tuple(f"{name}_bins" for name in GPU_BINS),
    "fabric": tuple(f"{name}_bins" for name in FABRIC_BINS),
    "host": tuple(f"{name}_bins" for name in HOST_BINS),
}
# A count of samples in `sample_counts` takes so many digits.
COUNT_DIGITS = 6


def rollup_kind(table: RollupTable) -> str:
    """What a rollup's rows are about: gpu, fabric or host."""
    return table.partition("_")[0]


def rollup_period(table: RollupTable) -> Period:
    """Which period a rollup's rows stand for."""
    return "minute" if table.endswith("_minute") else "hour"


def rollup_columns(table: RollupTable) -> tuple[str, ...]:
    """The values a row of a rollup brings, under the names of its view."""
    kind = rollup_kind(table)
    bins = _BINS[kind] if rollup_period(table) == "hour" else ()
    statistics = (f"{measure.name}_{what}" for measure in MEASURES[kind] for what in STATISTICS)
    return ("observed_seconds", *statistics, *_OTHERS[kind], *bins)


def stored_columns(table: RollupTable) -> tuple[str, ...]:
    """The columns of a rollup's table behind its id, in the order of what `row_encoder` gives."""
    kind = rollup_kind(table)
    bins = _BINS[kind] if rollup_period(table) == "hour" else ()
    spreads = (f"{measure.name}_{what}" for measure in MEASURES[kind] for what in ("mean", "to_p95", "to_max"))
    return ("samples", "sample_counts", "unobserved_seconds", *spreads, *_OTHERS[kind], *bins)


def row_id(period: Period, ts: float, device: int) -> int:
    """The id of a device's row in a rollup: rows of one period lie together, so that no second index is needed."""
    if not 0 <= device < DEVICES:
        raise ValueError(f"a device's id must be below {DEVICES}, not {device}")
    return round(ts) // PERIOD_SECONDS[period] * DEVICES + device


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


def values_encoder(steps: Sequence[tuple[str, float]]) -> Callable[[Mapping[str, float]], list[int | None]]:
    """`encode_values` for readings that mostly have all their values: what can be prepared is."""
    take = itemgetter(*(name for name, _ in steps))
    factors = tuple(k for _, k in steps)

    def encode(values: Mapping[str, float]) -> list[int | None]:
        if len(values) >= len(factors):
            try:
                return [floor(scaled + 0.5) for scaled in map(mul, take(values), factors)]
            except (KeyError, ValueError, OverflowError, TypeError):  # the careful road takes them
                pass
        return encode_values(values.get, steps)

    return encode


def encode_bins(bins: object) -> str | None:
    """Seconds per bin of BIN_EDGES (a sequence of numbers, such JSON text, or None) as the tables keep them: two digits
    each for how many bins are zero before the first and after the last that is not, then those between, in 0.1 s."""
    if bins is None:
        return None
    seconds = [float(value) for value in (json.loads(bins) if isinstance(bins, str) else bins)]  # type: ignore[union-attr]
    if len(seconds) != len(BIN_EDGES):
        raise ValueError(f"bins must hold {len(BIN_EDGES)} values, not {len(seconds)}")
    if not all(map(isfinite, seconds)):  # SQL and JSON know neither nan nor inf
        raise ValueError("bins must be finite")
    texts = [f"{round(value, 1):g}" for value in seconds]
    filled = [index for index, text in enumerate(texts) if text != "0"] or [0]
    first, last = filled[0], filled[-1]
    return f"{first:02d}{len(texts) - 1 - last:02d}{','.join(texts[first : last + 1])}"


def row_encoder(table: RollupTable, columns: Sequence[str]) -> Callable[[Sequence[object]], list[Cell]]:
    """A function that turns values in base units, in the order of `columns`, into a row in that of `stored_columns`.

    `columns` are names of `rollup_columns`; one left out is missing. p95 and max are kept as distances, so that they
    need their mean; where they are kept in coarser steps, they are rounded towards it (a ratio stays within 0..1).
    """
    known = rollup_columns(table)
    if unknown := [name for name in columns if name not in known]:
        raise ValueError(f"{table} has no column {', '.join(unknown)}")
    kind = rollup_kind(table)
    places = {name: index for index, name in enumerate(columns)}
    nowhere = len(columns)

    def place(name: str) -> int:
        return places.get(name, nowhere)

    measures = [
        (*(place(f"{measure.name}_{what}") for what in STATISTICS), measure.steps, measure.spread)
        for measure in MEASURES[kind]
    ]
    for measure in MEASURES[kind]:
        if f"{measure.name}_mean" not in places and {f"{measure.name}_p95", f"{measure.name}_max"} & places.keys():
            raise ValueError(f"{table}: p95 and max of {measure.name} need its mean")
    others = [(place(name), steps or 0.0) for name, steps in _OTHERS[kind].items()]
    bins = [place(name) for name in _BINS[kind]] if rollup_period(table) == "hour" else []
    observed_at = place("observed_seconds")
    whole = PERIOD_SECONDS[rollup_period(table)] * _SECONDS

    def encode(row: Sequence[object]) -> list[Cell]:
        cells = (*row, None)
        observed = encode_number(cells[observed_at], _SECONDS)
        stored: list[Cell] = [None, None, None if observed is None else int(whole) - observed]
        counts: list[tuple[int | None, bool]] = []
        for mean_at, max_at, p95_at, n_at, steps, spread in measures:
            mean = encode_number(cells[mean_at], steps)
            counts.append((encode_number(cells[n_at], 1.0), mean is not None))
            if mean is None:
                stored += (None, None, None)
                continue
            p95 = _distance(cells[p95_at], mean, steps, spread)
            most = _distance(cells[max_at], mean, steps, spread)
            stored += (mean, p95, most if most is None or p95 is None else most - p95)
        stored[0], stored[1] = _counts(counts)
        stored += [encode_number(cells[at], steps) for at, steps in others]
        stored += [encode_bins(cells[at]) for at in bins]
        return stored

    return encode


def _distance(value: object, mean: int, steps: float, spread: int) -> int | None:
    """How far a value lies from the mean, in whole steps of `spread`, rounded towards the mean."""
    number = encode_number(value, steps)
    return None if number is None else int((number - mean) / spread)


def _counts(counts: Sequence[tuple[int | None, bool]]) -> tuple[int | None, str | None]:
    """The most samples that any measure has, and the counts of all where one has neither so many nor, without a mean,
    none. (count, has a mean) each; a count that nobody gave is the usual one."""
    samples = max((count for count, _ in counts if count is not None), default=None)
    usual = [(samples or 0) if has_mean else 0 for _, has_mean in counts]
    found = [expected if count is None else count for (count, _), expected in zip(counts, usual, strict=True)]
    if found == usual:
        return samples, None
    most = 10**COUNT_DIGITS - 1
    return samples, "".join(f"{min(max(count, 0), most):0{COUNT_DIGITS}d}" for count in found)


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
