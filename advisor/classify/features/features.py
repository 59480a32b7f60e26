"""What is known of workloads, as named numbers (`rules.policy.custom` has names and units). An unknown feature is
absent. Means are weighted by observed seconds; "busy" rows are those not idle. Each feature is formed for all workloads
at once: one by one, ten thousand short jobs took minutes."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ....rules.policy.thresholds import Levels
from ...core.column_rows import ColumnRows, bins_quantiles
from ...core.frame import Window
from ...core.segments import Floats, Mask, Segments, over
from ..workloads.session import Session
from ..workloads.sku_lookup import GpuIndex
from .course import Figures, PieceRows, RowTables, course_features, hourly_features

# An autocorrelation peak is looked for only where the samples are fine enough (agent/statistics/rollup_stats.py: 1 s).
PERIOD_INTERVAL_MAX_SECONDS = 1.5
# Column of bins -> features, each with its quantile, and whether they are over what compute or memory sustains.
_QUANTILES = (
    ("tensor_active_bins", {"tensor_of_sustained_p95": 0.95, "tensor_of_sustained_p99": 0.99}, 0),
    ("dram_active_bins", {"hbm_of_sustained_p95": 0.95, "hbm_of_sustained_p99": 0.99}, 1),
    ("sm_active_bins", {"sm_active_p99": 0.99}, None),
    ("nvlink_bins", {"nvlink_utilization_p995": 0.995}, None),
)


def busy_features(busy: PieceRows, resolution: Floats) -> Figures:
    """`resolution`: seconds between the samples behind each workload's rows (NaN: not known, taken for fine)."""
    segments, weights = busy.segments, busy.seconds
    busy = busy.where(segments.spread(segments.total(weights) > 0))
    segments, weights = busy.segments, busy.seconds
    out = {
        f"{name}_of_sustained_busy_p95": segments.quantile(busy.measured(measure), 95 / 100)
        for name, measure in (("tensor", "u_c"), ("hbm", "u_m"))
    }
    out["memory_over_compute"] = busy.mean("u_m") / np.maximum(busy.mean("u_c"), 0.01)
    engine, sm, c = busy.mean("g"), busy.mean("sm"), busy.mean("c")
    at_work = np.maximum(np.where(np.isnan(engine), sm, engine), 0.01)
    # No second holds more than all of it, whatever a utilization that was read once a minute missed.
    out["tensor_per_engine"] = np.minimum(c / at_work, 1.0)
    out["hbm_per_engine"] = np.minimum(busy.mean("m") / at_work, 1.0)
    fine = ~(resolution > PERIOD_INTERVAL_MAX_SECONDS)
    strength = busy.measured("period_strength")
    has_period = (~np.isnan(strength)).astype(np.float64)
    for name, figure in (
        ("period_share", segments.mean(has_period, weights)),
        ("period_seconds", segments.median(busy.measured("period_seconds"))),
        ("period_strength", segments.median(strength)),
    ):
        out[name] = np.where(fine, figure, np.nan)
    for name in ("sm_active_cv", "nvlink_symmetry", "tensor_fabric_correlation", "tensor_nvlink_correlation"):
        out[name] = segments.median(busy.measured(name))
    out |= {name: busy.mean(name) for name in ("cpu", "io_wait", "clock_ratio", "power_of_limit")}
    most = busy.measured("disk_write_max")
    share = segments.mean(is_burst(busy.measured("disk_write"), most).astype(np.float64), weights)
    out["write_bursts"] = np.where(segments.any(~np.isnan(most)), share, np.nan)
    return out


def is_burst(mean: Floats, most: Floats) -> Mask:
    """Whether a host wrote in a burst: its highest sample is that of a fast disk or more, and several times its mean.
    Both in bytes per second; no burst is known where one is NaN."""
    return (most >= 2e8) & (most >= 5 * mean)


def memory_features(shape: PieceRows, idle: Mask, kinds: Levels) -> Figures:
    """The level of memory and whether it is a pool that is taken once."""
    segments, memory = shape.segments, shape.measured("mem")
    measured = ~np.isnan(memory)
    working = ~idle & measured
    # Memory that was released for the night does not show what the work takes.
    chosen = working | ~segments.spread(segments.any(working))
    level = segments.where(chosen).median(memory[chosen])
    most = np.where(segments.any(measured), segments.highest(shape.measured("mem_max")), np.nan)
    out = {"mem_level": level, "mem_max": most}
    # Loading and unloading are no part of the level: of each GPU the first and last row are left out where there are
    # enough. Within the rest a pool that is taken once does not move at all.
    gpus = segments.where(chosen).grouped(shape.uuid[chosen])
    order = np.argsort(gpus.of_row, kind="stable")
    values, per_gpu = memory[chosen][order], Segments.of_sorted(gpus.of_row[order], len(gpus))
    place = np.arange(len(values)) - per_gpu.spread(per_gpu.bounds[:-1])
    edge = (place == 0) | (place == per_gpu.spread(per_gpu.lengths) - 1)
    inner = ~(edge & per_gpu.spread(per_gpu.lengths > 4)) & ~np.isnan(values)
    within, values = per_gpu.where(inner), values[inner]
    mean = within.mean(values)
    spread = np.where((within.lengths >= 2) & (mean > 0), over(within.deviation(values), mean), np.nan)
    out["mem_cv"] = gpus.each.median(spread)
    flat = out["mem_cv"] <= kinds.mem_flat_cv_max
    flat &= (kinds.mem_flat_level_min <= level) & (level <= kinds.mem_flat_level_max)
    out["mem_flat"] = np.where(np.isnan(out["mem_cv"]), np.nan, flat)
    return out


Features = Mapping[str, float]

# Feature -> the measure (`utilization.measures`) whose mean it is.
_MEANS = {
    "engine_active": "g", "sm_active": "sm", "sm_occupancy": "o", "tensor_utilization": "c", "vector_utilization": "v",
    "hbm_utilization": "m", "nvlink_utilization": "n", "fabric_utilization": "i", "fabric_wait_ticks_per_second": "q",
    "pcie_utilization": "p", "tensor_of_sustained": "u_c", "hbm_of_sustained": "u_m", "nvlink_of_sustained": "u_n",
    "duty": "duty", "throttled": "throttled", "power_watts": "power", "power_over_idle": "power_over_idle",
}  # fmt: skip


def features(
    each: Sequence[tuple[Session, ColumnRows]], window: Window, tables: RowTables, index: GpuIndex,
    kinds: Levels,
) -> list[dict[str, float]]:  # fmt: skip
    """All known features of each session by its rows. `kinds`: thresholds, also of when memory is a preallocated
    pool."""
    sessions, parts = [session for session, _ in each], [rows for _, rows in each]
    every = PieceRows.of(tables, parts)
    seen = every.segments.total(every.seconds) > 0
    hours = (every.segments.total(every.seconds) / 3600).tolist()
    out = [_of_session(session, spent, window) for session, spent in zip(sessions, hours, strict=True)]
    seen_rows = every.segments.spread(seen)
    rows = every.where(seen_rows)
    figures = {name: rows.mean(measure) for name, measure in _MEANS.items()}
    figures["engine_active_max"] = rows.segments.highest(rows.measured("g_max"))
    figures["idle_share"], figures["fault_share"] = rows.mean("idle"), rows.mean("fault")
    samples = rows.gpu("gpu_util_n")
    apart = np.divide(rows.measured("seconds"), samples, out=np.full(len(samples), np.nan), where=samples > 0)
    figures["resolution_seconds"] = rows.segments.median(apart)
    none = np.empty(0, dtype=np.bool_)
    whole, shared = (np.concatenate([none, *(part[n] for part in parts)])[seen_rows] for n in ("whole", "shared"))
    # The shape of what several held at once is a workload's only where it has nothing else.
    unshared = rows.segments.spread(rows.segments.any(whole & ~shared))
    shape = rows.where(whole & ~(shared & unshared))
    idle = shape.flags("idle")
    figures |= busy_features(shape.where(~idle & ~shape.flags("fault")), figures["resolution_seconds"])
    etas = [_sustained(session.gpus, index) for session in sessions]
    sustained = np.array(etas, dtype=np.float64).reshape(-1, 2)
    for column, names, of in _QUANTILES:
        total = shape.segments.total(np.nan_to_num(shape.tables.gpu[column][shape.at], copy=False))
        for name, share in names.items():
            level = bins_quantiles(total, share)
            figures[name] = level if of is None else level / sustained[:, of]
    figures |= memory_features(shape, idle, kinds)
    figures["rest_watts"] = shape.where(idle & shape.flags("held")).mean("power")
    figures["idle_run_hours"] = shape.mean("idle_run_seconds") / 3600
    figures |= hourly_features(shape, np.array([len(session.gpus) >= 2 for session in sessions], dtype=np.bool_))
    figures |= course_features(shape, kinds.idle_engine_max)
    for name, values in figures.items():
        for features, value in zip(out, values.tolist(), strict=True):
            if math.isfinite(value):
                features[name] = value
    return out


def _of_session(session: Session, hours: float, window: Window) -> dict[str, float]:
    span_hours = (session.last_seen - session.first_seen) / 3600
    out = {
        "hours": hours, "elapsed_hours": (session.end - session.start) / 3600, "span_hours": span_hours,
        "chain_hours": max(session.chain_hours, span_hours), "series_runs": float(session.series_runs),
        "series_run_hours": session.series_run_hours, "ended": float(session.last_seen < window.end - 3600),
        "gpus": float(len(session.gpus)), "nodes": float(len(session.nodes)),
    }  # fmt: skip
    if math.isfinite(session.series_start_spread_hours):
        out["series_start_spread_hours"] = session.series_start_spread_hours
    return out


def _sustained(gpus: Iterable[tuple[str, str]], index: GpuIndex) -> tuple[float, float]:
    """What these GPUs sustain of their peaks, of compute and of memory; NaN where they differ or were not measured."""
    skus = {sku.name: sku for key in gpus if (sku := index.sku(*key)) is not None}
    achieved = next(iter(skus.values())).achieved if len(skus) == 1 else None
    return (achieved.bf16_gemm or math.nan, achieved.mem or math.nan) if achieved is not None else (math.nan, math.nan)
