"""Workloads hour by hour: how often they work and rest, when and how, and what follows the clock.

This distinguishes kinds without data by the second. Hours are those of one GPU; a workload of less than `SHORT_HOURS`
is read in pieces of ten minutes. Memory is compared with itself in bytes, so that no total need be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.column_rows import ColumnRows, Columns
from ...core.segments import Floats, Ints, Mask, Segments, group_highest, group_means, grouped, over, runs


@dataclass(frozen=True)
class RowTables:
    """The rows of a frame's `gpu` by column, with measures; `uuid`: the number of each row's GPU, by uuid."""

    gpu: Columns
    measures: Columns
    uuid: Ints


@dataclass(frozen=True)
class PieceRows:
    """The rows of some pieces, piece (segment) by piece. `at`: of the tables; `seconds`: observed of each."""

    tables: RowTables
    segments: Segments
    at: Ints
    seconds: Floats

    @classmethod
    def of(cls, tables: RowTables, pieces: Sequence[ColumnRows]) -> PieceRows:
        """`pieces`: rows of `Attribution.workload_rows`, of each."""
        at = np.concatenate([np.empty(0, dtype=np.intp), *(piece["row"] for piece in pieces)])
        seconds = np.concatenate([np.empty(0), *(piece["seconds"] for piece in pieces)])
        return cls(tables, Segments.of_lengths([len(piece) for piece in pieces]), at, seconds)

    def where(self, chosen: Mask) -> PieceRows:
        return PieceRows(self.tables, self.segments.where(chosen), self.at[chosen], self.seconds[chosen])

    @property
    def uuid(self) -> Ints:
        return self.tables.uuid[self.at]

    def measured(self, name: str) -> Floats:
        return self.tables.measures[name][self.at].astype(np.float64, copy=False)

    def flags(self, name: str) -> Mask:
        return self.tables.measures[name][self.at].astype(np.bool_, copy=False)

    def gpu(self, name: str) -> Floats:
        if name not in self.tables.gpu:
            return np.full(len(self.at), np.nan)
        return self.tables.gpu[name][self.at].astype(np.float64, copy=False)

    def mean(self, name: str) -> Floats:
        """The mean of a measure by time; NaN where nothing is known."""
        return self.segments.mean(self.measured(name), self.seconds)


# One figure of every workload by its name, NaN where unknown.
Figures = dict[str, Floats]

HOUR, DAY = 3600.0, 86400.0
SHORT_HOURS, SHORT_BIN_SECONDS = 6.0, 600.0
# Seven seconds of an hour: a health probe now and then is no work.
_BLINK = 0.002
_BETWEEN = (0.2, 0.7)  # of the usual level of an active hour: at work for a part of the hour


def course_features(shape: PieceRows, active_min: float) -> Figures:
    """The features of `rules.policy.custom` about the hours of each workload. `active_min`: from which activity of the
    engine on a row counts as active: by the driver's utilization or the profiler's, else by the SMs."""
    by_sm = shape.segments.spread(shape.segments.all(np.isnan(shape.gpu("gpu_util_mean"))))
    engine = {
        part: np.where(by_sm, shape.gpu(f"sm_active_{part}"), shape.gpu(f"gpu_util_{part}"))
        for part in ("mean", "p95", "max")
    }
    has_engine, measured = (
        ~np.isnan(values) & (shape.seconds > 0) for values in (engine["mean"], shape.gpu("mem_used_bytes_mean"))
    )
    bins = _binned(shape, engine, has_engine)
    # Both are known of the same rows nearly always: they are put into bins once.
    of_memory = bins if (has_engine == measured).all() else _binned(shape, engine, measured)
    return _engine_features(bins, active_min) | _memory_features(of_memory, active_min)


@dataclass(frozen=True, slots=True)
class _Bins:
    """Bins of one GPU and hour (or ten minutes). `gpu`: its number, by workload; `gpus`, `segments`: of each workload.
    `at`: the bin's number since 1970; `bin_hours`: its length in each workload. `memory`: bytes in use."""

    segments: Segments
    gpus: Segments
    gpu: Ints
    at: Ints
    bin_hours: Floats
    seconds: Floats
    engine: Floats
    engine_p95: Floats
    engine_max: Floats
    memory: Floats

    @property
    def follows(self) -> Mask:
        return (self.gpu[1:] == self.gpu[:-1]) & (self.at[1:] == self.at[:-1] + 1)


def _binned(shape: PieceRows, engine: Figures, chosen: Mask) -> _Bins:
    rows = shape.where(chosen)
    segments, seconds, ts, lengths = rows.segments, rows.seconds, rows.gpu("ts"), rows.gpu("interval_seconds")
    span = segments.highest(ts) - segments.lowest(ts - lengths)
    short = (span / HOUR < SHORT_HOURS) & (segments.highest(lengths) <= SHORT_BIN_SECONDS)
    length = np.where(short, SHORT_BIN_SECONDS, HOUR)
    number = np.floor((ts - lengths / 2) / segments.spread(length)).astype(np.intp)
    gpus = segments.grouped(rows.uuid)
    bins = grouped(gpus.of_row, number, len(gpus))
    slot, count = bins.of_row, len(bins)
    level, p95, memory = (
        group_means(values, slot, count, seconds)
        for values in (engine["mean"][chosen], engine["p95"][chosen], rows.gpu("mem_used_bytes_mean"))
    )
    # Of several rows in one bin the 95th percentile is nowhere below the mean of theirs.
    return _Bins(
        Segments(bins.each.bounds[gpus.each.bounds]), gpus.each, bins.each.number, bins.keys, length / HOUR,
        np.bincount(slot, weights=seconds, minlength=count).astype(np.float64),
        level, np.fmax(p95, level), group_highest(engine["max"][chosen], slot, count),
        memory,
    )  # fmt: skip


def _active(bins: _Bins, active_min: float) -> Mask:
    """Bins in which something ran, by the highest value, else by the percentile or mean; and not for a blink alone."""
    highest = np.fmax(np.fmax(bins.engine_max, bins.engine_p95), bins.engine)
    return (highest >= active_min) & ~(bins.engine < _BLINK)


def _engine_features(bins: _Bins, active_min: float) -> Figures:
    active, segments = _active(bins, active_min), bins.segments
    weight = bins.seconds
    begins = np.zeros(len(active), dtype=np.bool_)
    begins[1:] = active[1:] & ~active[:-1] & bins.follows
    out = {
        "active_share": segments.mean(active.astype(np.float64), weight),
        "rest_hours_max": _longest_rest(bins, ~active),
        "rests_per_day": over(segments.count(begins).astype(np.float64), segments.total(weight) / DAY),
    }
    working = segments.where(active)
    active_weight, level = weight[active], bins.engine[active]
    out["active_engine"] = working.mean(level, active_weight)
    top = np.fmax(bins.engine_p95[active], bins.engine_max[active] * 0.5)
    filled = np.divide(level, top, out=np.full(len(level), np.nan), where=top > 0)
    out["active_fill"] = working.mean(np.clip(filled, 0, 1), active_weight)
    mean = working.mean(level)
    several = (working.lengths >= 4) & (mean > 0)
    out["active_swing"] = np.where(several, over(working.deviation(level), mean), np.nan)
    usual = working.quantile(level, 90 / 100)
    low, high = (working.spread(share * usual) for share in _BETWEEN)
    between = ((level > low) & (level < high)).astype(np.float64)
    out["between_share"] = np.where(several, working.mean(between, active_weight), np.nan)
    hours = segments.grouped(bins.at)
    load = group_means(bins.engine, hours.of_row, len(hours), weight)
    # Of workloads that are evaluated hour by hour.
    out |= {name: np.full(len(segments), np.nan) for name in _CALENDAR}
    for n in np.nonzero((bins.bin_hours == 1.0) & (hours.each.lengths > 0))[0]:
        at = slice(hours.each.bounds[n], hours.each.bounds[n + 1])
        if hours.keys[at][-1] - hours.keys[at][0] + 1 >= DAILY_DAYS_MIN * 24:
            for name, value in _calendar(hours.keys[at], load[at]).items():
                out[name][n] = value
    return out


def _longest_rest(bins: _Bins, resting: Mask) -> Floats:
    """Hours of the longest unbroken run of rests of each workload, the median of its GPUs."""
    longest = np.zeros(bins.gpus.bounds[-1])
    if len(bins.gpu):
        starts = runs(bins.gpu, resting, breaks=~bins.follows)
        hours = np.where(resting, bins.segments.spread(bins.bin_hours), 0.0)
        np.maximum.at(longest, bins.gpu[starts], np.bincount(np.cumsum(starts) - 1, weights=hours))
    return bins.gpus.median(longest)


def _memory_features(bins: _Bins, active_min: float) -> Figures:
    segments, memory, weight = bins.segments, bins.memory, bins.seconds
    active = _active(bins, active_min) | segments.spread(segments.all(np.isnan(bins.engine)))
    at_work, at_rest = (segments.where(rows).mean(memory[rows], weight[rows]) for rows in (active, ~active))
    # Of each GPU all bins but the first and last, in which memory is taken and released; all where they are few.
    per_gpu = Segments.of_sorted(bins.gpu, bins.gpus.bounds[-1])
    first = runs(bins.gpu) if len(bins.gpu) else np.zeros(0, dtype=np.bool_)
    last = np.append(first[1:], True)[: len(first)]
    inner = active & (per_gpu.spread(per_gpu.lengths <= 4) | ~(first | last))
    memory, per_gpu = memory[inner], per_gpu.where(inner)
    mean = per_gpu.mean(memory)
    spread = np.where((per_gpu.lengths >= 2) & (mean > 0), over(per_gpu.deviation(memory), mean), np.nan)
    return {"mem_kept_at_rest": np.minimum(over(at_rest, at_work), 2.0), "mem_hourly_cv": bins.gpus.median(spread)}


# A daily pattern needs two of its days.
DAILY_DAYS_MIN = 2.0
# People work some ten hours of a day; their time zone is unknown.
WORKING_HOURS = 10
_CALENDAR = ("working_hours_share", "day_before")


def _calendar(hours: Ints, load: Floats) -> dict[str, float]:
    """Those of `_CALENDAR` that are known. `hours`: since 1970, in rising order, with the `load` of each."""
    if load.sum() <= 0:
        return {}
    out: dict[str, float] = {}
    of_day = hours % 24
    count = np.bincount(of_day, minlength=24)
    mean = np.bincount(of_day, weights=load, minlength=24) / np.maximum(count, 1)
    if (count > 0).all():
        twice = np.concatenate([mean, mean])
        spans = np.lib.stride_tricks.sliding_window_view(twice, WORKING_HOURS).copy()
        out["working_hours_share"] = float(spans.sum(axis=1).max() / mean.sum())
    before = np.searchsorted(hours, hours - 24)
    paired = (before < len(hours)) & (hours[np.minimum(before, len(hours) - 1)] == hours - 24)
    if paired.sum() >= 18:
        a, b = load[paired], load[before[paired]]
        if a.std() > 1e-4 and b.std() > 1e-4:
            out["day_before"] = float(np.corrcoef(a, b)[0, 1])
    return out


# A daily shape needs so many days: below it a trend looks like one.
DIURNAL_DAYS_MIN = 3.0
# What may show a daily wave, each as an hourly mean over the workload's GPUs.
DEMAND_MEASURES = ("c", "m", "n", "power", "sm", "g")
# Synchrony needs so many common rows to be more than chance.
SYNC_ROWS_MIN = 6
# A level below this is nothing that could swing.
_LEVEL_MIN = 0.005


def hourly_features(shape: PieceRows, several: Mask) -> Figures:
    """`several`: which workloads hold more than one GPU."""
    hours = shape.segments.grouped(np.ceil(shape.gpu("ts") / 3600).astype(np.intp))
    swing = np.full(len(shape.segments), np.nan)
    wave = {name: np.full(len(shape.segments), np.nan) for name in ("diurnal_share", "diurnal_amplitude")}
    best = np.full(len(shape.segments), -1.0)
    long = hours.each.lengths >= DIURNAL_DAYS_MIN * 12
    first, last = hours.each.bounds[:-1][long], hours.each.bounds[1:][long] - 1
    long[long] = hours.keys[last] - hours.keys[first] >= DIURNAL_DAYS_MIN * 24
    angle = 2 * np.pi * hours.keys / 24
    waves = np.column_stack([np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle), np.ones(len(angle))])
    # Demand shows where it is not saturated: SMs of a decoding service stay busy by day and by night, its tensor cores
    # do not. So the wave and the swing are those of the measure that moves most.
    for name in DEMAND_MEASURES:
        means = group_means(shape.measured(name), hours.of_row, len(hours))
        measured = ~np.isnan(means)
        each, values = hours.each.where(measured), means[measured]
        level = each.mean(values)
        moves = (each.lengths >= 2) & (level > _LEVEL_MIN)
        relative = np.divide(each.deviation(values), level, out=np.full(len(level), np.nan), where=moves)
        swing = np.fmax(swing, relative)
        day = waves[measured]
        for n in np.nonzero(moves & long & (each.lengths >= 0.9 * hours.each.lengths))[0]:
            piece = slice(each.bounds[n], each.bounds[n + 1])
            share, deviation = _daily_share(day[piece], values[piece])
            if share * deviation / level[n] > best[n]:
                best[n] = share * deviation / level[n]
                wave["diurnal_share"][n], wave["diurnal_amplitude"][n] = share, deviation / level[n]
    return {"swing": swing, **wave, **_together(shape, several)}


def _together(shape: PieceRows, several: Mask) -> Figures:
    """The median correlation between the GPUs of workloads with several of them; NaN where too little is common."""
    segments = shape.segments
    out = np.full(len(segments), np.nan)
    c, sm, g = (shape.measured(name) for name in ("c", "sm", "g"))
    measured = [segments.spread(segments.any(~np.isnan(values))) for values in (c, sm)]
    activity = np.where(measured[0], c, np.where(measured[1], sm, g))
    ts, uuid = shape.gpu("ts"), shape.uuid
    for n in np.nonzero(several)[0]:
        segment = slice(segments.bounds[n], segments.bounds[n + 1])
        names, gpu = np.unique(uuid[segment], return_inverse=True)
        times, moment = np.unique(ts[segment], return_inverse=True)
        if len(names) < 2:
            continue
        wide = group_means(activity[segment], moment * len(names) + gpu, len(times) * len(names))
        wide = wide.reshape(len(times), len(names))[:, :16]  # as many are enough; pairs grow with the square
        wide = wide[~np.isnan(wide).any(axis=1)]
        if len(wide) >= SYNC_ROWS_MIN and (moving := wide[:, wide.std(axis=0, ddof=1) > 1e-6]).shape[1] >= 2:
            corr = np.asarray(np.corrcoef(moving.T))
            out[n] = np.median(corr[np.triu_indices_from(corr, 1)])
    return {"sync": out}


def _daily_share(waves: Floats, values: Floats) -> tuple[float, float]:
    """Share of the variance that a 24 h wave and its first harmonic (`waves`) explain, and the wave's deviation."""
    fitted = waves @ np.linalg.lstsq(waves, values, rcond=None)[0]
    spread = values.var()
    if spread <= 1e-12:
        return 0.0, 0.0
    # Five coefficients explain 4 / (n - 1) of pure noise: taken off, so that noise counts as 0.
    share = fitted.var() / spread
    chance = 4 / max(len(values) - 1, 5)
    return float(max(0.0, (share - chance) / (1 - chance))), float(fitted.std())
