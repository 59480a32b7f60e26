"""The course of a workload's activity and memory, hour by hour: how often it works, how long it rests, when and how.

Everything here can be told from samples a minute apart: means, highest values and 95th percentiles of an hour. It is
what remains to tell kinds apart where no second is seen. Hours are those of one GPU; a workload of less than
`SHORT_HOURS` is looked at in pieces of ten minutes, as far as its rows are that short. Memory is compared with itself
in bytes, so that no total need be known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.segments import Segments, group_highest, group_means, grouped, over, runs
from .calendar import calendar

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
# One figure of every workload by its name, NaN where it cannot be told.
Figures = dict[str, Floats]

HOUR, DAY = 3600.0, 86400.0
SHORT_HOURS, SHORT_BIN_SECONDS = 6.0, 600.0
# Seven seconds of an hour: a health probe now and then is no work.
_BLINK = 0.002
_CHANGE = 0.02  # of the memory in use: less is an allocator's noise
_BETWEEN = (0.2, 0.7)  # of the usual level of an active hour: neither at rest nor at work all along


@dataclass(frozen=True, slots=True)
class Course:
    """What is known of every row of some workloads, one after another. Shapes (row,); NaN where missing.

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

    def of(self, at: Mask) -> Course:
        return Course(*(getattr(self, name)[at] for name in self.__slots__))


def course_features(course: Course, segments: Segments, active_min: float) -> Figures:
    """The features of `rules.policy.features` that tell of the course of each workload (a segment of the rows).

    `active_min`: from which activity of the engine on a row counts as active.
    """
    engine, memory = (~np.isnan(values) & (course.seconds > 0) for values in (course.engine, course.memory))
    bins = _binned(course.of(engine), segments.where(engine))
    out = _engine_features(bins, active_min)
    # Both are known of the same rows nearly always: they are put into bins once.
    same = bool((engine == memory).all())
    return out | _memory_features(bins if same else _binned(course.of(memory), segments.where(memory)), active_min)


@dataclass(frozen=True, slots=True)
class _Bins:
    """Courses in bins of one GPU and hour (or ten minutes), ordered by GPU and time. `gpu`: its number, each workload's
    apart; `gpus`, `segments`: the GPUs and the bins of each workload. `at`: the bin's number since 1970; `bin_hours`:
    its length in each workload."""

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
    memory_max: Floats

    @property
    def follows(self) -> Mask:
        """Whether each bin but the first comes right after the one before it."""
        return (self.gpu[1:] == self.gpu[:-1]) & (self.at[1:] == self.at[:-1] + 1)


def _binned(course: Course, segments: Segments) -> _Bins:
    span = segments.highest(course.ts) - segments.lowest(course.ts - course.length_seconds)
    short = (span / HOUR < SHORT_HOURS) & (segments.highest(course.length_seconds) <= SHORT_BIN_SECONDS)
    length = np.where(short, SHORT_BIN_SECONDS, HOUR)
    number = np.floor((course.ts - course.length_seconds / 2) / segments.spread(length)).astype(np.intp)
    gpus = segments.grouped(course.gpu)
    bins = grouped(gpus.of_row, number, len(gpus))
    slot, count, seconds = bins.of_row, len(bins), course.seconds

    def mean(values: Floats) -> Floats:
        return group_means(values, slot, count, seconds)

    # Of several rows in one bin the 95th percentile is nowhere below the mean of theirs.
    engine = mean(course.engine)
    return _Bins(
        Segments(bins.each.bounds[gpus.each.bounds]), gpus.each, bins.each.number, bins.keys, length / HOUR,
        np.bincount(slot, weights=seconds, minlength=count).astype(np.float64),
        engine, np.fmax(mean(course.engine_p95), engine), group_highest(course.engine_max, slot, count),
        mean(course.memory), group_highest(course.memory_max, slot, count),
    )  # fmt: skip


def _active(bins: _Bins, active_min: float) -> Mask:
    """Bins in which something ran, by the highest value, else by the percentile or mean; and not for a blink alone."""
    highest = np.fmax(np.fmax(bins.engine_max, bins.engine_p95), bins.engine)
    return (highest >= active_min) & ~(bins.engine < _BLINK)


def _engine_features(bins: _Bins, active_min: float) -> Figures:
    active, segments = _active(bins, active_min), bins.segments
    weight = bins.seconds
    out = {
        "active_share": segments.mean(active.astype(np.float64), weight),
        "rest_hours_max": longest_rest(
            bins.gpu, bins.gpus, ~active, segments.spread(bins.bin_hours), breaks=~bins.follows
        ),
        "rests_per_day": _rests(bins, active),
    }
    working = segments.where(active)
    own, level = weight[active], bins.engine[active]
    out["active_engine"] = working.mean(level, own)
    top = np.fmax(bins.engine_p95[active], bins.engine_max[active] * 0.5)
    filled = np.divide(level, top, out=np.full(len(level), np.nan), where=top > 0)
    out["active_fill"] = working.mean(np.clip(filled, 0, 1), own)
    mean = working.mean(level)
    several = (working.lengths >= 4) & (mean > 0)
    out["active_swing"] = np.where(several, over(working.deviation(level), mean), np.nan)
    usual = working.quantile(level, 90 / 100)
    low, high = (working.spread(share * usual) for share in _BETWEEN)
    between = ((level > low) & (level < high)).astype(np.float64)
    out["between_share"] = np.where(several, working.mean(between, own), np.nan)
    return out | _calendars(bins)


def longest_rest(gpu: Ints, gpus: Segments, resting: Mask, lengths: Floats, *, breaks: Mask | None = None) -> Floats:
    """The longest unbroken run of rests of each workload, summed over `lengths`, the median of its `gpus`.

    `gpu`: which of them each row is of; rows of one stand together and in order of time. `breaks`: between which rows a
    run ends whatever they are."""
    longest = np.zeros(gpus.bounds[-1])
    if len(gpu):
        starts = runs(gpu, resting, breaks=breaks)
        rested = np.bincount(np.cumsum(starts) - 1, weights=np.where(resting, lengths, 0.0))
        np.maximum.at(longest, gpu[starts], rested)
    return gpus.median(longest)


def _rests(bins: _Bins, active: Mask) -> Floats:
    """How many times a day work begins again after a rest, per GPU."""
    begins = np.zeros(len(active), dtype=np.bool_)
    begins[1:] = active[1:] & ~active[:-1] & bins.follows
    return over(bins.segments.count(begins).astype(np.float64), bins.segments.total(bins.seconds) / DAY)


def _calendars(bins: _Bins) -> Figures:
    """What follows the clock, of each workload that is looked at hour by hour and long enough to tell."""
    hours = bins.segments.grouped(bins.at)
    load = group_means(bins.engine, hours.of_row, len(hours), bins.seconds)
    return calendar(hours.keys, load, hours.each, bins.bin_hours == 1.0)


def _memory_features(bins: _Bins, active_min: float) -> Figures:
    """Memory against itself: within the hour, from hour to hour, and at rest against at work."""
    segments, memory, weight = bins.segments, bins.memory, bins.seconds
    active = _active(bins, active_min) | segments.spread(segments.all(np.isnan(bins.engine)))
    rising = np.divide(
        bins.memory_max - memory, bins.memory_max, out=np.full(len(memory), np.nan), where=bins.memory_max > 0
    )
    out = {"mem_swing_in_hour": segments.where(active).mean(rising[active], weight[active])}
    out["mem_hourly_cv"], out["mem_changes_share"] = _between_hours(bins, _inner(bins) & active)
    rest = ~active
    at_work = segments.where(active).mean(memory[active], weight[active])
    at_rest = segments.where(rest).mean(memory[rest], weight[rest])
    out["mem_kept_at_rest"] = np.minimum(over(at_rest, at_work), 2.0)
    return out


def _between_hours(bins: _Bins, chosen: Mask) -> tuple[Floats, Floats]:
    """Over each workload's GPUs with two such bins, the medians: memory's coefficient of variation, and the share of
    bins that differ from the last one."""
    memory, gpu = bins.memory[chosen], bins.gpu[chosen]
    per_gpu = Segments.of_sorted(gpu, bins.gpus.bounds[-1])
    count = per_gpu.lengths
    mean = per_gpu.mean(memory)
    differs = np.zeros(len(memory), dtype=np.bool_)
    differs[1:] = (gpu[1:] == gpu[:-1]) & (np.abs(np.diff(memory)) > _CHANGE * np.maximum(memory[1:], memory[:-1]))
    enough = (count >= 2) & (mean > 0)
    spread = np.where(enough, over(per_gpu.deviation(memory), mean), np.nan)
    changes = np.where(enough, over(per_gpu.count(differs).astype(np.float64), (count - 1).astype(np.float64)), np.nan)
    return bins.gpus.median(spread), bins.gpus.median(changes)


def _inner(bins: _Bins) -> Mask:
    """All bins but the first and last of each GPU, in which memory is taken and let go; all where they are few."""
    per_gpu = Segments.of_sorted(bins.gpu, bins.gpus.bounds[-1])
    first = runs(bins.gpu) if len(bins.gpu) else np.zeros(0, dtype=np.bool_)
    last = np.append(first[1:], True)[: len(first)]
    return per_gpu.spread(per_gpu.lengths <= 4) | ~(first | last)
