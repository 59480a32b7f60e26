"""Features of what workloads do while they work: levels of busy rows, of the seconds in bins, and of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ....rules.policy.thresholds import Threshold
from ...core.column_rows import bins_quantiles
from ...core.segments import Segments, over
from .course import Figures
from .piece_rows import PieceRows

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# An autocorrelation peak is looked for only where the samples are fine enough (agent/statistics/signal_stats.py: 1 s).
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
    out["tensor_per_sm"] = c / np.maximum(sm, 0.01)
    fine = ~(resolution > PERIOD_INTERVAL_MAX_SECONDS)
    strength = busy.measured("period_strength")
    has_period = (~np.isnan(strength)).astype(np.float64)
    for name, figure in (
        ("period_share", segments.mean(has_period, weights)),
        ("period_seconds", segments.median(busy.measured("period_seconds"))),
        ("period_strength", segments.median(strength)),
    ):
        out[name] = np.where(fine, figure, np.nan)
    for name in (
        "sm_active_cv", "nvlink_symmetry", "fabric_symmetry", "tensor_fabric_correlation", "tensor_nvlink_correlation",
    ):  # fmt: skip
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


def bin_features(shape: PieceRows, etas: Sequence[tuple[float, float]]) -> Figures:
    """`etas`: what each workload's GPUs sustain of their peaks, of compute and of memory."""
    out: Figures = {}
    sustained = np.array(etas, dtype=np.float64).reshape(-1, 2)
    for column, names, of in _QUANTILES:
        total = shape.segments.total(np.nan_to_num(shape.tables.gpu[column][shape.at], copy=False))
        for name, share in names.items():
            level = bins_quantiles(total, share)
            out[name] = level if of is None else level / sustained[:, of]
    return out


def memory_features(shape: PieceRows, idle: Mask, kinds: Mapping[str, Threshold]) -> Figures:
    """The level of memory and whether it is a pool that is taken once."""
    segments, memory = shape.segments, shape.measured("mem")
    measured = ~np.isnan(memory)
    working = ~idle & measured
    # Memory that was released for the night does not show what the work takes.
    chosen = working | ~segments.spread(segments.any(working))
    level = segments.where(chosen).median(memory[chosen])
    out = {
        "mem_level": level,
        "mem_max": np.where(segments.any(measured), segments.highest(shape.measured("mem_max")), np.nan),
    }
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
    cv_max, low, high = (kinds[f"mem_flat_{name}"].value for name in ("cv_max", "level_min", "level_max"))
    flat = (out["mem_cv"] <= cv_max) & (low <= level) & (level <= high)
    out["mem_flat"] = np.where(np.isnan(out["mem_cv"]), np.nan, flat)
    return out
