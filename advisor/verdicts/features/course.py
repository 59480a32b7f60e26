"""The course of a workload's activity and memory, hour by hour: how often it works, how long it rests, when and how.

Everything here can be told from samples a minute apart: means, highest values and 95th percentiles of an hour. It is
what remains to tell kinds apart where no second is seen. Hours are those of one GPU; a workload of less than
`SHORT_HOURS` is looked at in pieces of ten minutes, as far as its rows are that short. Memory is compared with itself
in bytes, so that no total need be known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

HOUR, DAY = 3600.0, 86400.0
SHORT_HOURS, SHORT_BIN_SECONDS = 6.0, 600.0
# A daily pattern needs two of its days, a weekly one a whole weekend beside four working days.
DAILY_DAYS_MIN = 2.0
WEEKEND_HOURS_MIN, WEEKDAY_HOURS_MIN = 36.0, 72.0
# People work some ten hours of a day; where those lie is not asked, as nobody knows their clock.
WORKING_HOURS = 10
# 1 January 1970 was a Thursday: days 2 and 3 of each seven from it are a weekend.
_WEEKEND = (2, 3)
# Seven seconds of an hour: a health probe now and then is no work.
_BLINK = 0.002
_CHANGE = 0.02  # of the memory in use: less is an allocator's noise
_BETWEEN = (0.2, 0.7)  # of the usual level of an active hour: neither at rest nor at work all along


@dataclass(frozen=True, slots=True)
class Course:
    """What is known of every row of a workload. Shapes (row,); NaN where missing.

    `engine`, `engine_p95`, `engine_max`: activity of the engine (else of the SMs), 0..1. `memory`, `memory_max`: bytes
    in use. `gpu`: which GPU, as a number. `ts`: the end of the row, Unix seconds. `seconds`: observed ones.
    """

    gpu: Ints
    ts: Floats
    length_seconds: Floats
    seconds: Floats
    engine: Floats
    engine_p95: Floats
    engine_max: Floats
    memory: Floats
    memory_max: Floats

    def of(self, at: npt.NDArray[np.bool_]) -> Course:
        return Course(*(getattr(self, name)[at] for name in self.__slots__))


def course_features(course: Course, active_min: float) -> dict[str, float]:
    """The features of `rules.policy.features` that tell of the course; what cannot be told is left out.

    `active_min`: from which activity of the engine on a row counts as active.
    """
    out: dict[str, float] = {}
    engine, memory = (~np.isnan(values) & (course.seconds > 0) for values in (course.engine, course.memory))
    bins = _binned(course.of(engine)) if engine.any() else None
    if bins is not None:
        _engine_features(out, bins, active_min)
    if memory.any():
        # Both are known of the same rows nearly always: they are put into bins once.
        same = bins is not None and bool((engine == memory).all())
        _memory_features(out, bins if same and bins is not None else _binned(course.of(memory)), active_min)
    return {name: value for name, value in out.items() if math.isfinite(value)}


@dataclass(frozen=True, slots=True)
class _Bins:
    """A course in bins of one GPU and hour (or ten minutes), ordered by GPU and time. `at`: the bin's number since
    1970; `bin_hours`: its length."""

    gpu: Ints
    at: Ints
    bin_hours: float
    seconds: Floats
    engine: Floats
    engine_p95: Floats
    engine_max: Floats
    memory: Floats
    memory_max: Floats


def _binned(course: Course) -> _Bins:
    span = float(course.ts.max() - (course.ts - course.length_seconds).min()) / HOUR
    short = span < SHORT_HOURS and float(course.length_seconds.max()) <= SHORT_BIN_SECONDS
    length = SHORT_BIN_SECONDS if short else HOUR
    number = np.floor((course.ts - course.length_seconds / 2) / length).astype(np.intp)
    key = course.gpu.astype(np.int64) * (1 << 40) + number
    keys, inverse = np.unique(key, return_inverse=True)
    count = len(keys)
    seconds = np.bincount(inverse, weights=course.seconds, minlength=count)

    def mean(values: Floats) -> Floats:
        ok = ~np.isnan(values)
        weight = np.bincount(inverse[ok], weights=course.seconds[ok], minlength=count)
        total = np.bincount(inverse[ok], weights=values[ok] * course.seconds[ok], minlength=count)
        return np.divide(total, weight, out=np.full(count, np.nan), where=weight > 0)

    def most(values: Floats) -> Floats:
        filled = np.full(count, -np.inf)
        np.fmax.at(filled, inverse, values)
        return np.where(np.isfinite(filled), filled, np.nan)

    # Of several rows in one bin the 95th percentile is nowhere below the mean of theirs.
    return _Bins(
        (keys >> 40).astype(np.intp), (keys & ((1 << 40) - 1)).astype(np.intp), length / HOUR,
        seconds.astype(np.float64),
        mean(course.engine), np.fmax(mean(course.engine_p95), mean(course.engine)), most(course.engine_max),
        mean(course.memory), most(course.memory_max),
    )  # fmt: skip


def _active(bins: _Bins, active_min: float) -> npt.NDArray[np.bool_]:
    """Bins in which something ran, by the highest value, else by the percentile or mean; and not for a blink alone."""
    highest = np.fmax(np.fmax(bins.engine_max, bins.engine_p95), bins.engine)
    return (highest >= active_min) & ~(bins.engine < _BLINK)


def _engine_features(out: dict[str, float], bins: _Bins, active_min: float) -> None:
    active = _active(bins, active_min)
    weight = bins.seconds
    out["active_share"] = float(np.average(active, weights=weight))
    out["rest_hours_max"] = _longest(bins, ~active)
    out["rests_per_day"] = _rests(bins, active)
    if active.any():
        own = weight[active]
        level = bins.engine[active]
        out["active_engine"] = float(np.average(level, weights=own))
        top = np.fmax(bins.engine_p95[active], bins.engine_max[active] * 0.5)
        filled = np.divide(level, top, out=np.full(len(level), np.nan), where=top > 0)
        ok = ~np.isnan(filled)
        if ok.any():
            out["active_fill"] = float(np.average(np.clip(filled[ok], 0, 1), weights=own[ok]))
        if len(level) >= 4 and level.mean() > 0:
            out["active_swing"] = float(level.std() / level.mean())
            usual = float(np.percentile(level, 90))
            low, high = (share * usual for share in _BETWEEN)
            out["between_share"] = float(np.average((level > low) & (level < high), weights=own))
    _calendar(out, bins)


def longest_rest(
    gpu: npt.NDArray, resting: npt.NDArray[np.bool_], lengths: Floats, *, breaks: npt.NDArray[np.bool_] | bool = False
) -> float:
    """The longest unbroken run of rests, summed over `lengths`, the median of the GPUs. Rows of one GPU stand together
    and in order of time; `breaks`: between which rows a run ends whatever they are."""
    starts = np.r_[True, (gpu[1:] != gpu[:-1]) | (resting[1:] != resting[:-1]) | breaks]
    runs = np.bincount(np.cumsum(starts) - 1, weights=np.where(resting, lengths, 0.0))
    names, whose = np.unique(gpu[starts], return_inverse=True)
    longest = np.zeros(len(names))
    np.maximum.at(longest, whose, runs)
    return float(np.median(longest))


def _longest(bins: _Bins, resting: npt.NDArray[np.bool_]) -> float:
    """Hours of the longest unbroken rest, the median of the GPUs."""
    return longest_rest(
        bins.gpu, resting, np.full(len(resting), bins.bin_hours), breaks=bins.at[1:] != bins.at[:-1] + 1
    )


def _rests(bins: _Bins, active: npt.NDArray[np.bool_]) -> float:
    """How many times a day work begins again after a rest, per GPU."""
    follows = (bins.gpu[1:] == bins.gpu[:-1]) & (bins.at[1:] == bins.at[:-1] + 1)
    starts = float((active[1:] & ~active[:-1] & follows).sum())
    days = float(bins.seconds.sum()) / DAY
    return starts / days if days > 0 else math.nan


def _calendar(out: dict[str, float], bins: _Bins) -> None:
    """What follows the clock: the best ten hours of the day, the same hours as the day before, weekends."""
    if bins.bin_hours != 1.0:
        return
    hours, inverse = np.unique(bins.at, return_inverse=True)
    load = np.bincount(inverse, weights=bins.engine * bins.seconds) / np.bincount(inverse, weights=bins.seconds)
    if load.sum() <= 0:
        return
    span_days = (hours[-1] - hours[0] + 1) / 24
    of_day = hours % 24
    if span_days >= DAILY_DAYS_MIN:
        count = np.bincount(of_day, minlength=24)
        mean = np.bincount(of_day, weights=load, minlength=24) / np.maximum(count, 1)
        if (count > 0).all():
            twice = np.concatenate([mean, mean])
            best = max(float(twice[start : start + WORKING_HOURS].sum()) for start in range(24))
            out["working_hours_share"] = best / float(mean.sum())
            out["night_level"] = float(np.sort(mean)[:6].mean() / mean.mean())
        before = np.searchsorted(hours, hours - 24)
        paired = (before < len(hours)) & (hours[np.minimum(before, len(hours) - 1)] == hours - 24)
        if paired.sum() >= 18:
            a, b = load[paired], load[before[paired]]
            if a.std() > 1e-4 and b.std() > 1e-4:
                out["day_before"] = float(np.corrcoef(a, b)[0, 1])
    weekend = np.isin((hours // 24) % 7, _WEEKEND)
    if weekend.sum() >= WEEKEND_HOURS_MIN and (~weekend).sum() >= WEEKDAY_HOURS_MIN:
        out["weekend_level"] = float(load[weekend].mean() / max(load[~weekend].mean(), 1e-6))


def _memory_features(out: dict[str, float], bins: _Bins, active_min: float) -> None:
    """Memory against itself: within the hour, from hour to hour, and at rest against at work."""
    active = _active(bins, active_min) if not np.isnan(bins.engine).all() else np.ones(len(bins.at), dtype=np.bool_)
    memory, weight = bins.memory, bins.seconds
    rising = np.divide(
        bins.memory_max - memory, bins.memory_max, out=np.full(len(memory), np.nan), where=bins.memory_max > 0
    )
    ok = active & ~np.isnan(rising)
    if ok.any():
        out["mem_swing_in_hour"] = float(np.average(rising[ok], weights=weight[ok]))
    spread, changed = _between_hours(bins, _inner(bins) & active)
    if len(spread):
        out["mem_hourly_cv"], out["mem_changes_share"] = float(np.median(spread)), float(np.median(changed))
    if active.any() and (~active).any() and memory[active].mean() > 0:
        at_work = np.average(memory[active], weights=weight[active])
        out["mem_kept_at_rest"] = float(min(np.average(memory[~active], weights=weight[~active]) / at_work, 2.0))


def _between_hours(bins: _Bins, chosen: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Of each GPU with two such bins: memory's coefficient of variation, and the share of bins that differ from the
    last one."""
    memory = bins.memory[chosen]
    names, gpu = np.unique(bins.gpu[chosen], return_inverse=True)
    count = np.bincount(gpu, minlength=len(names)).astype(np.float64)
    mean = np.bincount(gpu, weights=memory, minlength=len(names)) / np.maximum(count, 1)
    square = np.bincount(gpu, weights=(memory - mean[gpu]) ** 2, minlength=len(names)) / np.maximum(count, 1)
    same = gpu[1:] == gpu[:-1]
    differs = same & (np.abs(np.diff(memory)) > _CHANGE * np.maximum(memory[1:], memory[:-1]))
    changes = np.bincount(gpu[1:], weights=differs.astype(np.float64), minlength=len(names))
    enough = (count >= 2) & (mean > 0)
    return np.sqrt(square[enough]) / mean[enough], changes[enough] / (count[enough] - 1)


def _inner(bins: _Bins) -> npt.NDArray[np.bool_]:
    """All bins but the first and last of each GPU, in which memory is taken and let go; all where they are few."""
    first = np.r_[True, bins.gpu[1:] != bins.gpu[:-1]]
    last = np.r_[first[1:], True]
    gpu = np.cumsum(first) - 1
    few = np.bincount(gpu)[gpu] <= 4
    return few | ~(first | last)
