"""Features of the hourly course of workloads: daily wave, swing, drift, and whether their GPUs move together."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...core.segments import Groups, Segments, group_means
from .course import Figures
from .piece_rows import PieceRows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

# A daily shape needs so many days: below it a trend looks like one.
DIURNAL_DAYS_MIN = 3.0
# What may show a daily wave, each as an hourly mean over the workload's GPUs.
DEMAND_MEASURES = ("c", "m", "n", "power", "sm", "g")
# Synchrony needs so many common rows to be more than chance.
SYNC_ROWS_MIN = 6
# A correlation of each hour with the next needs so many hours to be more than chance.
DRIFT_HOURS_MIN = 8
# A level below this is nothing that could swing.
_LEVEL_MIN = 0.005


def hourly_features(shape: PieceRows, several: Mask) -> Figures:
    """`several`: which workloads hold more than one GPU."""
    hours = shape.segments.grouped(np.ceil(shape.gpu("ts") / 3600).astype(np.intp))
    swing, drift = (np.full(len(shape.segments), np.nan) for _ in range(2))
    wave = {name: np.full(len(shape.segments), np.nan) for name in ("diurnal_share", "diurnal_amplitude")}
    best = np.full(len(shape.segments), -1.0)
    long = _long_enough(hours)
    # Demand shows where it is not saturated: SMs of a decoding service stay busy by day and by night, its tensor cores
    # do not. So the wave and the swing are those of the measure that moves most.
    for name in DEMAND_MEASURES:
        means = group_means(shape.measured(name), hours.of_row, len(hours))
        known = ~np.isnan(means)
        each, values = hours.each.where(known), means[known]
        level = each.mean(values)
        moves = (each.lengths >= 2) & (level > _LEVEL_MIN)
        own = np.divide(each.deviation(values), level, out=np.full(len(level), np.nan), where=moves)
        more = moves & (own >= np.nan_to_num(swing))
        swing = np.where(more, own, swing)
        drifts = _drift(each, values)
        drift = np.where(more & ~np.isnan(drifts), drifts, drift)
        at = hours.keys[known]
        for n in np.nonzero(moves & long & (each.lengths >= 0.9 * hours.each.lengths))[0]:
            piece = slice(each.bounds[n], each.bounds[n + 1])
            share, deviation = _daily_share(at[piece], values[piece])
            if share * deviation / level[n] > best[n]:
                best[n] = share * deviation / level[n]
                wave["diurnal_share"][n], wave["diurnal_amplitude"][n] = share, deviation / level[n]
    return {"swing": swing, "drift": drift, **wave, **_together(shape, several)}


def _long_enough(hours: Groups) -> Mask:
    """Which workloads have the days that a daily wave needs."""
    many = hours.each.lengths >= DIURNAL_DAYS_MIN * 12
    first, last = hours.each.bounds[:-1][many], hours.each.bounds[1:][many] - 1
    many[many] = hours.keys[last] - hours.keys[first] >= DIURNAL_DAYS_MIN * 24
    return many


def _drift(each: Segments, values: Floats) -> Floats:
    """The correlation of each hour with the next."""
    place = np.arange(len(values)) - each.spread(each.bounds[:-1])
    before, after = place < each.spread(each.lengths) - 1, place > 0
    pairs, ones, others = each.where(after), values[before], values[after]
    varies = np.minimum(pairs.deviation(ones), pairs.deviation(others)) > 1e-9
    return np.where((each.lengths >= DRIFT_HOURS_MIN) & varies, pairs.correlation(ones, others), np.nan)


def _together(shape: PieceRows, several: Mask) -> Figures:
    """The median correlation between the GPUs of workloads with several of them; NaN where too little is common."""
    segments = shape.segments
    out = np.full(len(segments), np.nan)
    c, sm, g = (shape.measured(name) for name in ("c", "sm", "g"))
    told = [segments.spread(segments.any(~np.isnan(values))) for values in (c, sm)]
    activity = np.where(told[0], c, np.where(told[1], sm, g))
    ts, uuid = shape.gpu("ts"), shape.uuid
    for n in np.nonzero(several)[0]:
        own = slice(segments.bounds[n], segments.bounds[n + 1])
        names, gpu = np.unique(uuid[own], return_inverse=True)
        times, moment = np.unique(ts[own], return_inverse=True)
        if len(names) < 2:
            continue
        wide = group_means(activity[own], moment * len(names) + gpu, len(times) * len(names))
        wide = wide.reshape(len(times), len(names))[:, :16]  # as many tell it; pairs grow with the square
        out[n] = _sync(wide)
    return {"sync": out}


def _sync(wide: Floats) -> float:
    """Median correlation between columns over the rows in which all are known."""
    wide = wide[~np.isnan(wide).any(axis=1)]
    if len(wide) < SYNC_ROWS_MIN:
        return math.nan
    moving = wide[:, wide.std(axis=0, ddof=1) > 1e-6]
    if moving.shape[1] < 2:
        return math.nan
    corr = np.asarray(np.corrcoef(moving.T))
    return float(np.median(corr[np.triu_indices_from(corr, 1)]))


def _daily_share(hours: Ints, values: Floats) -> tuple[float, float]:
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
