"""What is known of workloads, as named numbers, and how each is formed (`rules.policy.custom` has names and units).

A feature that cannot be told is absent. Means are weighted by observed seconds; "busy" rows are those not idle. Each
feature is formed for all workloads at once (`core.segments`): one by one, ten thousand short jobs took minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....rules.policy.thresholds import Threshold
from ...core.column_rows import ColumnRows
from ...core.frame import Window
from ..types import NodeFacts
from ..workloads.session import Session
from ..workloads.sku_lookup import GpuIndex
from .at_work import bin_features, busy_features, memory_features
from .course import Course, Figures, course_features, hourly_features, longest_rest
from .piece_rows import PieceRows, RowTables

Features = Mapping[str, float]
Floats = npt.NDArray[np.float64]

# Feature -> the measure (`utilization.measures`) whose mean it is.
_MEANS = {
    "engine_active": "g", "sm_active": "sm", "sm_occupancy": "o", "tensor_utilization": "c", "vector_utilization": "v",
    "hbm_utilization": "m", "nvlink_utilization": "n", "fabric_utilization": "i", "fabric_wait_ticks_per_second": "q",
    "pcie_utilization": "p", "tensor_of_sustained": "u_c", "hbm_of_sustained": "u_m", "nvlink_of_sustained": "u_n",
    "pcie_of_sustained": "u_p", "duty": "duty", "throttled": "throttled", "power_watts": "power",
    "power_over_idle": "power_over_idle",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Observed:
    """A workload, or a part of its time: its rows, and the nodes it is on."""

    session: Session
    rows: ColumnRows
    nodes: Sequence[NodeFacts]


def features(
    observed: Sequence[Observed], window: Window, tables: RowTables, index: GpuIndex, kinds: Mapping[str, Threshold]
) -> list[dict[str, float]]:
    """All features of each that can be told. `kinds`: thresholds, of which some say when memory is a preallocated
    pool."""
    every = PieceRows.of(tables, [one.rows for one in observed])
    seen = every.segments.total(every.seconds) > 0
    hours = (every.segments.total(every.seconds) / 3600).tolist()
    out = [_of_session(one, spent, window) for one, spent in zip(observed, hours, strict=True)]
    own = every.segments.spread(seen)
    rows = every.where(own)
    figures = {name: rows.mean(measure) for name, measure in _MEANS.items()}
    figures["fabric_of_sustained"] = figures["fabric_utilization"]
    figures["engine_active_max"] = rows.segments.highest(rows.measured("g_max"))
    figures["engine_active_row_p95"] = rows.segments.quantile(rows.measured("g"), 95 / 100)
    figures["idle_share"], figures["fault_share"] = rows.mean("idle"), rows.mean("fault")
    samples = rows.gpu("gpu_util_n")
    apart = np.divide(rows.measured("seconds"), samples, out=np.full(len(samples), np.nan), where=samples > 0)
    figures["resolution_seconds"] = rows.segments.median(apart)
    whole = np.concatenate([np.empty(0, dtype=np.bool_), *(one.rows["whole"] for one in observed)])[own]
    shared = np.concatenate([np.empty(0, dtype=np.bool_), *(one.rows["shared"] for one in observed)])[own]
    # The shape of what several held at once is a workload's only where it has nothing else.
    unshared = rows.segments.spread(rows.segments.any(whole & ~shared))
    figures |= _of_shape(rows.where(whole & ~(shared & unshared)), figures, observed, index, kinds)
    for name, values in figures.items():
        for told, value in zip(out, values.tolist(), strict=True):
            if math.isfinite(value):
                told[name] = value
    return out


def _of_session(one: Observed, hours: float, window: Window) -> dict[str, float]:
    """What is known without a look at its rows."""
    session = one.session
    span_hours = (session.last_seen - session.first_seen) / 3600
    out = {
        "hours": hours, "elapsed_hours": (session.end - session.start) / 3600, "span_hours": span_hours,
        "chain_hours": max(session.chain_hours, span_hours), "series_runs": float(session.series.runs),
        "series_run_hours": session.series.hours, "ended": float(session.last_seen < window.end - 3600),
        "gpus": float(len(session.gpus)), "nodes": float(len(session.nodes)),
    }  # fmt: skip
    if math.isfinite(session.series.start_spread_hours):
        out["series_start_spread_hours"] = session.series.start_spread_hours
    peaks = [node.fabric.util_p995 for node in one.nodes if node.fabric and node.fabric.util_p995 is not None]
    return {**out, "fabric_utilization_p995": max(peaks)} if peaks else out


def _of_shape(
    shape: PieceRows, known: Mapping[str, Floats], observed: Sequence[Observed], index: GpuIndex,
    kinds: Mapping[str, Threshold],
) -> Figures:  # fmt: skip
    """What only rows that lie within a workload tell. `known`: of all its rows."""
    idle = shape.flags("idle")
    out = busy_features(shape.where(~idle & ~shape.flags("fault")), known["resolution_seconds"])
    out |= bin_features(shape, [_sustained(one.session.gpus, index) for one in observed])
    out |= memory_features(shape, idle, kinds)
    out["rest_watts"] = shape.where(idle & shape.flags("held")).mean("power")
    out["idle_run_hours"] = shape.mean("idle_run_seconds") / 3600
    gpus = shape.segments.grouped(shape.uuid)
    out["idle_stretch_hours"] = longest_rest(gpus.of_row, gpus.each, idle, shape.seconds) / 3600
    out |= hourly_features(shape, np.array([len(one.session.gpus) >= 2 for one in observed], dtype=np.bool_))
    return out | course_features(_course(shape), shape.segments, kinds["idle_engine_max"].value)


def _course(shape: PieceRows) -> Course:
    """The rows' course; engine by the driver's utilization or the profiler's, else by the SMs."""
    by_sm = shape.segments.spread(shape.segments.all(np.isnan(shape.gpu("gpu_util_mean"))))
    engine, p95, most = (
        np.where(by_sm, _told(shape, f"sm_active_{part}"), _told(shape, f"gpu_util_{part}"))
        for part in ("mean", "p95", "max")
    )
    return Course(
        shape.uuid, shape.gpu("ts"), shape.gpu("interval_seconds"), shape.seconds, engine, p95, most,
        shape.gpu("mem_used_bytes_mean"), shape.gpu("mem_used_bytes_max"),
    )  # fmt: skip


def _told(shape: PieceRows, name: str) -> Floats:
    """A column of the frame's `gpu`, NaN where it has none."""
    return shape.gpu(name) if name in shape.tables.gpu else np.full(len(shape.at), np.nan)


def _sustained(gpus: Iterable[tuple[str, str]], index: GpuIndex) -> tuple[float, float]:
    """What these GPUs sustain of their peaks, of compute and of memory; NaN where they differ or nobody measured it."""
    skus = {sku.name: sku for key in gpus if (sku := index.sku(*key)) is not None}
    achieved = next(iter(skus.values())).achieved if len(skus) == 1 else None
    return (achieved.bf16_gemm or math.nan, achieved.mem or math.nan) if achieved is not None else (math.nan, math.nan)
