"""What is known of a workload, as named numbers, and how each is formed (`rules.policy.features` has names and units).

A feature that cannot be told is absent. Means are weighted by observed seconds; "busy" rows are those not idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.policy.thresholds import Threshold
from ...core.column_rows import ColumnRows, Columns, known_median
from ...core.frame import Window
from ...core.histogram_array import bins_quantile
from ..types import NodeFacts
from ..workloads.session import Session
from ..workloads.sku_lookup import GpuIndex
from .course import Course, course_features, longest_rest
from .resting_power import FREE_MEM_RATIO

Features = Mapping[str, float]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

# Feature -> the measure (`utilization.measures`) whose mean it is.
_MEANS = {
    "engine_active": "g", "sm_active": "sm", "sm_occupancy": "o", "tensor_utilization": "c", "vector_utilization": "v",
    "hbm_utilization": "m", "nvlink_utilization": "n", "fabric_utilization": "i", "fabric_wait_ticks_per_second": "q",
    "pcie_utilization": "p", "tensor_of_sustained": "u_c", "hbm_of_sustained": "u_m", "nvlink_of_sustained": "u_n",
    "pcie_of_sustained": "u_p", "duty": "duty", "throttled": "throttled", "power_watts": "power",
    "power_over_idle": "power_over_idle",
}  # fmt: skip
# A daily shape needs so many days: below it a trend looks like one.
DIURNAL_DAYS_MIN = 3.0
# What may show a daily wave, each as an hourly mean over the workload's GPUs.
DEMAND_MEASURES = ("c", "m", "n", "power", "sm", "g")
# Synchrony needs so many common rows to be more than chance.
SYNC_ROWS_MIN = 6
# A correlation of each hour with the next needs so many hours to be more than chance.
DRIFT_HOURS_MIN = 8
# An autocorrelation peak is looked for only where the samples are fine enough (agent/statistics/signal_stats.py: 1 s).
PERIOD_INTERVAL_MAX_SECONDS = 1.5


def features(  # noqa: PLR0917
    session: Session,
    workload_rows: pd.DataFrame,
    window: Window,
    gpu: Columns,
    row_columns: Columns,
    index: GpuIndex,
    nodes: Iterable[NodeFacts],
    kinds: Mapping[str, Threshold],
) -> dict[str, float]:
    """All features of one workload that can be told.

    `workload_rows`: its rows of the attribution's; `gpu`, `row_columns`: the frame's GPU rows and what was measured of
    each, by column; `nodes`: those it is on; `kinds`: thresholds, of which some say when memory is a preallocated pool.
    """
    out: dict[str, float] = {}
    weights = workload_rows["seconds"].to_numpy(float)
    at = workload_rows["row"].to_numpy(int)
    rows = ColumnRows(row_columns, at)
    out["hours"] = float(weights.sum()) / 3600
    out["elapsed_hours"] = (session.end - session.start) / 3600
    out["span_hours"] = (session.last_seen - session.first_seen) / 3600
    out["chain_hours"] = max(session.chain_hours, out["span_hours"])
    out["series_runs"], out["series_run_hours"] = float(session.series.runs), session.series.hours
    _put(out, "series_start_spread_hours", session.series.start_spread_hours)
    out["ended"] = float(session.last_seen < window.end - 3600)
    out["gpus"], out["nodes"] = float(len(session.gpus)), float(len(session.nodes))
    peaks = [one.fabric.util_p995 for one in nodes if one.fabric and one.fabric.util_p995 is not None]
    if peaks:
        out["fabric_utilization_p995"] = max(peaks)
    if not len(rows) or weights.sum() <= 0:
        return out
    for name, measure in _MEANS.items():
        _put(out, name, _mean(rows[measure], weights))
    if "fabric_utilization" in out:
        out["fabric_of_sustained"] = out["fabric_utilization"]
    _put(out, "engine_active_max", _max(rows["g_max"]))
    _put(out, "engine_active_row_p95", _p95(rows["g"]))
    out["idle_share"] = float(np.average(rows["idle"], weights=weights))
    out["fault_share"] = float(np.average(rows["fault"], weights=weights))
    samples = gpu["gpu_util_n"][at]
    ok = samples > 0
    if ok.any():
        out["resolution_seconds"] = float(np.median(rows["seconds"][ok] / samples[ok]))
    whole = workload_rows["whole"].to_numpy(bool) & ~workload_rows["shared"].to_numpy(bool)
    if not whole.any():
        whole = workload_rows["whole"].to_numpy(bool)
    if whole.any():
        shape, w, at = rows.where(whole), weights[whole], at[whole]
        idle = shape["idle"]
        busy = ~idle & ~shape["fault"]
        _busy_features(out, shape.where(busy), w[busy])
        _bin_features(out, gpu, at, _sustained(session, index))
        _memory_features(out, gpu["gpu_uuid"], shape, at, kinds)
        held = idle & (shape["mem"] >= FREE_MEM_RATIO)
        _put(out, "rest_watts", _mean(shape["power"][held], w[held]))
        _put(out, "idle_run_hours", _mean(shape["idle_run_seconds"], w) / 3600)
        _put(out, "idle_stretch_hours", longest_rest(pd.factorize(gpu["gpu_uuid"][at])[0], idle, w) / 3600)
        _time_features(out, gpu, shape, at)
        out |= course_features(_course(gpu, at, w), kinds["idle_engine_max"].value)
    return out


def _course(gpu: Columns, at: Ints, seconds: Floats) -> Course:
    """The rows' course; engine by the driver's utilization or the profiler's, else by the SMs."""
    name = "sm_active" if np.isnan(gpu["gpu_util_mean"][at]).all() else "gpu_util"
    engine, p95, most = (
        gpu[f"{name}_{part}"][at].astype(float) if f"{name}_{part}" in gpu else np.full(len(at), np.nan)
        for part in ("mean", "p95", "max")
    )
    return Course(
        pd.factorize(gpu["gpu_uuid"][at])[0], gpu["ts"][at].astype(float), gpu["interval_seconds"][at].astype(float),
        seconds, engine, p95, most, gpu["mem_used_bytes_mean"][at].astype(float),
        gpu["mem_used_bytes_max"][at].astype(float),
    )  # fmt: skip


def _sustained(session: Session, index: GpuIndex) -> tuple[float, float]:
    """What its GPUs sustain of their peaks, of compute and of memory; NaN where they differ or nobody measured it."""
    skus = {sku.name: sku for key in session.gpus if (sku := index.sku(*key)) is not None}
    achieved = next(iter(skus.values())).achieved if len(skus) == 1 else None
    return (achieved.bf16_gemm or math.nan, achieved.mem or math.nan) if achieved is not None else (math.nan, math.nan)


def _busy_features(out: dict[str, float], busy: ColumnRows, weights: Floats) -> None:
    if not len(busy) or weights.sum() <= 0:
        return
    for name, measure in (("tensor", "u_c"), ("hbm", "u_m")):
        _put(out, f"{name}_of_sustained_busy_p95", _p95(busy[measure]))
    u_c, u_m = _mean(busy["u_c"], weights), _mean(busy["u_m"], weights)
    if not math.isnan(u_c + u_m):
        out["memory_over_compute"] = u_m / max(u_c, 0.01)
    engine, sm = _mean(busy["g"], weights), _mean(busy["sm"], weights)
    for name, part in (("tensor_per_engine", "c"), ("hbm_per_engine", "m")):
        # No second holds more than all of it, whatever a utilization that was read once a minute missed.
        _put(out, name, min(_mean(busy[part], weights) / max(sm if math.isnan(engine) else engine, 0.01), 1.0))
    _put(out, "tensor_per_sm", _mean(busy["c"], weights) / max(sm, 0.01))
    if out.get("resolution_seconds", 1.0) <= PERIOD_INTERVAL_MAX_SECONDS:
        found = ~np.isnan(busy["period_strength"])
        out["period_share"] = float(weights[found].sum() / weights.sum())
        _put(out, "period_seconds", known_median(busy["period_seconds"]))
        _put(out, "period_strength", known_median(busy["period_strength"]))
    for name in (
        "sm_active_cv", "nvlink_symmetry", "fabric_symmetry", "tensor_fabric_correlation", "tensor_nvlink_correlation",
    ):  # fmt: skip
        _put(out, name, known_median(busy[name]))
    for name in ("cpu", "io_wait", "clock_ratio"):
        _put(out, name, _mean(busy[name], weights))
    most = busy["disk_write_max"]
    burst = (most >= 2e8) & (most >= 5 * busy["disk_write"])
    if not np.isnan(most).all():
        out["write_bursts"] = float(np.average(burst, weights=weights))


def _bin_features(out: dict[str, float], gpu: Columns, at: Ints, etas: tuple[float, float]) -> None:
    for column, names, eta in (
        ("tensor_active_bins", {"tensor_of_sustained_p95": 0.95, "tensor_of_sustained_p99": 0.99}, etas[0]),
        ("dram_active_bins", {"hbm_of_sustained_p95": 0.95, "hbm_of_sustained_p99": 0.99}, etas[1]),
        ("sm_active_bins", {"sm_active_p99": 0.99}, 1.0),
        ("nvlink_bins", {"nvlink_utilization_p995": 0.995}, 1.0),
    ):
        total = np.nansum(gpu[column][at], axis=0, dtype=float)
        for name, share in names.items():
            value = bins_quantile(total, share)
            if value is not None:
                _put(out, name, value / eta)


def _memory_features(
    out: dict[str, float],
    uuid: npt.NDArray[np.object_],
    shape: ColumnRows,
    index: npt.NDArray[np.intp],
    kinds: Mapping[str, Threshold],
) -> None:
    memory = shape["mem"]
    if np.isnan(memory).all():
        return
    # What was let go for the night says nothing of what the work takes.
    working = ~shape["idle"].astype(bool) & ~np.isnan(memory)
    if working.any():
        memory, index = memory[working], index[working]
    _put(out, "mem_level", float(np.nanmedian(memory)))
    _put(out, "mem_max", _max(shape["mem_max"]))
    # Loading and unloading are no part of the level: of each GPU the first and last row are left out where there are
    # enough. Within the rest a pool that is taken once does not move at all.
    gpu = pd.factorize(uuid[index])[0]
    order = np.argsort(gpu, kind="stable")
    spreads = []
    for values in np.split(memory[order], np.nonzero(np.diff(gpu[order]))[0] + 1):
        inner = values[1:-1] if len(values) > 4 else values
        inner = inner[~np.isnan(inner)]
        if len(inner) >= 2 and inner.mean() > 0:
            spreads.append(float(inner.std() / inner.mean()))
    if spreads:
        out["mem_cv"] = float(np.median(spreads))
        cv_max, low, high = (kinds[f"mem_flat_{name}"].value for name in ("cv_max", "level_min", "level_max"))
        out["mem_flat"] = float(out["mem_cv"] <= cv_max and low <= out["mem_level"] <= high)


def _time_features(out: dict[str, float], gpu: Columns, shape: ColumnRows, index: npt.NDArray[np.intp]) -> None:
    """Features of the hourly course: daily wave, swing, and whether its GPUs move together."""
    ends = np.ceil(gpu["ts"][index] / 3600)
    hours, hour = np.unique(ends, return_inverse=True)
    # Demand shows where it is not saturated: SMs of a decoding service stay busy by day and by night, its tensor cores
    # do not. So the wave and the swing are those of the measure that moves most.
    enough = len(hours) >= DIURNAL_DAYS_MIN * 12 and hours[-1] - hours[0] >= DIURNAL_DAYS_MIN * 24
    best = -1.0
    for name in DEMAND_MEASURES:
        values = _group_means(shape[name], hour, len(hours))
        known = ~np.isnan(values)
        values = values[known]
        if len(values) < 2 or values.mean() <= 0.005:
            continue
        level = float(values.mean())
        swing = float(values.std() / level)
        if swing >= out.get("swing", 0.0):
            out["swing"] = swing
            if len(values) >= DRIFT_HOURS_MIN and min(values[:-1].std(), values[1:].std()) > 1e-9:
                _put(out, "drift", float(np.corrcoef(values[:-1], values[1:])[0, 1]))
        if enough and len(values) >= 0.9 * len(hours):
            share, wave = _daily_share(hours[known], values)
            if share * wave / level > best:
                best = share * wave / level
                out["diurnal_share"], out["diurnal_amplitude"] = share, wave / level
    if out["gpus"] >= 2:
        activity = next((v for v in (shape["c"], shape["sm"]) if not np.isnan(v).all()), shape["g"])
        _put(out, "sync", _sync(activity, hour, len(hours), gpu["gpu_uuid"][index]))


def _sync(activity: Floats, hour: Ints, hours: int, uuid: npt.NDArray[np.object_]) -> float:
    """Median correlation between the GPUs' hourly courses; NaN where too little is common to them."""
    gpu, names = pd.factorize(uuid, sort=True)
    wide = _group_means(activity, hour * len(names) + gpu, hours * len(names)).reshape(hours, len(names))
    wide = wide[:, ~np.isnan(wide).all(axis=0)]
    wide = wide[~np.isnan(wide).any(axis=1), :16]  # 16 GPUs tell whether they move together; pairs grow with the square
    if len(wide) < SYNC_ROWS_MIN:
        return math.nan
    moving = wide[:, wide.std(axis=0, ddof=1) > 1e-6]
    if moving.shape[1] < 2:
        return math.nan
    corr = np.asarray(np.corrcoef(moving.T))
    return float(np.median(corr[np.triu_indices_from(corr, 1)]))


def _group_means(values: Floats, group: Ints, groups: int) -> Floats:
    """The mean of the known values of each group; NaN where none is known."""
    known = ~np.isnan(values)
    counts = np.bincount(group[known], minlength=groups)
    sums = np.bincount(group[known], weights=values[known], minlength=groups)
    return np.divide(sums, counts, out=np.full(groups, np.nan), where=counts > 0)


def _daily_share(hours: Floats, values: Floats) -> tuple[float, float]:
    """Share of the variance that a 24 h wave and its first harmonic explain, and the wave's standard deviation."""
    angle = 2 * np.pi * hours / 24
    design = np.column_stack([np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle), np.ones(len(angle))])
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    spread = values.var()
    if spread <= 1e-12:
        return 0.0, 0.0
    # Five coefficients explain 4 / (n - 1) of pure noise: taken off, so that noise counts as 0.
    share = fitted.var() / spread
    chance = 4 / max(len(values) - 1, 5)
    return float(max(0.0, (share - chance) / (1 - chance))), float(fitted.std())


def _mean(values: Floats, weights: Floats) -> float:
    ok = ~np.isnan(values)
    total = weights[ok].sum()
    return float((values[ok] * weights[ok]).sum() / total) if total > 0 else math.nan


def _known(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _p95(values: Floats) -> float:
    known = _known(values)
    return float(np.percentile(known, 95)) if len(known) else math.nan


def _max(values: Floats) -> float:
    known = _known(values)
    return float(known.max()) if len(known) else math.nan


def _put(out: dict[str, float], name: str, value: float) -> None:
    if math.isfinite(value):
        out[name] = float(value)
