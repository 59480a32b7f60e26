"""Shapes of the course: when it works and rests, by the hour and the day; its memory; how long it lives.

Samples a minute apart show all of them. Where a window holds no second day or no weekend, what rests on them is 0.
"""

from __future__ import annotations

from ..features.features import Features
from .kind_signal import B, F, I, KindSignal, O, T, ramp

# A course of fewer hours shows neither a night nor an evening.
COURSE_HOURS_MIN = 5.0


def _course(f: Features) -> bool:
    return f.get("elapsed_hours", 0.0) >= COURSE_HOURS_MIN


def _day(f: Features) -> bool:
    return f.get("elapsed_hours", 0.0) >= 20.0


def _swing(f: Features) -> float | None:
    return f.get("swing") if f.get("elapsed_hours", 0.0) >= 6 else None


def _daily(f: Features) -> float:
    return min(ramp(f.get("diurnal_share"), 0.1, 0.4), ramp(f.get("diurnal_amplitude"), 0.02, 0.08))


def _never_rests(f: Features) -> float:
    return ramp(f.get("active_share"), 0.9, 0.99)


def _light_all_day(f: Features) -> float:
    """Of a few hours it may be an afternoon's; a whole day holds a night."""
    light = min(ramp(f.get("active_share"), 0.55, 0.8), ramp(f.get("active_engine"), 0.5, 0.2))
    return light * ramp(f.get("elapsed_hours"), 2.0, 20.0)


def _pool(f: Features) -> float:
    """Memory of an engine that preallocates; half of it where the level is all that was seen."""
    if "mem_flat" in f:
        return ramp(f["mem_flat"], 0.0, 1.0)
    return 0.5 if 0.88 <= f.get("mem_level", 0.0) <= 0.95 else 0.0


def _full(f: Features) -> float:
    return ramp(f.get("active_fill"), 0.6, 0.85) * ramp(f.get("active_engine"), 0.4, 0.7)


def _span(f: Features) -> float:
    return f.get("chain_hours", 0.0)


def _recurs(f: Features) -> float:
    """How surely its series is one of runs that end and come again."""
    return ramp(f.get("series_runs"), 1.5, 3.5)


COURSE_SHAPES: tuple[KindSignal, ...] = (
    KindSignal(
        "never-rests",
        lambda f: _never_rests(f) * ramp(f.get("elapsed_hours"), 20.0, 36.0),
        "Active in {active_share:.0%} of the hours, day and night.",
        (T, O, B), (I,),
    ),
    KindSignal(
        "light-all-day",
        _light_all_day,
        "Light load in nearly every hour: {active_engine:.0%} of the time in {active_share:.0%} of the hours.",
        (O,), (T, F, B, I),
    ),
    KindSignal(
        "seldom-at-work",
        lambda f: ramp(f.get("active_share"), 0.55, 0.3) if _day(f) else 0.0,
        "Active in only {active_share:.0%} of the hours.",
        (I, B), (T, O),
    ),
    KindSignal(
        "full-hours",
        lambda f: min(ramp(f.get("active_fill"), 0.7, 0.92), ramp(f.get("active_engine"), 0.5, 0.8)),
        "Active for whole hours: {active_engine:.0%} of the time in its active hours.",
        (T, F, B), (O, I),
    ),
    KindSignal(
        "bursts",
        lambda f: ramp(f.get("active_fill"), 0.6, 0.3),
        "Load comes in bursts: the hourly mean is {active_fill:.0%} of the busiest minutes.",
        (O, I), (T, F, B),
    ),
    KindSignal(
        "level-hours",
        lambda f: ramp(f.get("active_swing"), 0.25, 0.05) * ramp(f.get("active_engine"), 0.3, 0.6) if _course(f)
        else 0.0,
        "Hours are alike: load differs by {active_swing:.0%}.",
        (T, F, B), (I,),
    ),
    KindSignal(
        "graded-hours",
        lambda f: ramp(f.get("between_share"), 0.2, 0.6) if _course(f) else 0.0,
        "Medium load in {between_share:.0%} of the hours, typical of varying demand.",
        (O, I), (T, F, B),
    ),
    KindSignal(
        "on-or-off",
        lambda f: min(
            ramp(f.get("between_share"), 0.3, 0.1), ramp(f.get("active_share"), 0.85, 0.6),
            ramp(f.get("active_engine"), 0.3, 0.6),
        ) if _day(f) else 0.0,
        "Either full load or none: {between_share:.0%} of the hours are in between.",
        (B, F), (O, I),
    ),
    KindSignal(
        "rests-at-night",
        lambda f: min(ramp(f.get("rest_hours_max"), 5.0, 9.0), ramp(f.get("active_share"), 0.8, 0.6)) if _day(f)
        else 0.0,
        "Idle for up to {rest_hours_max:.0f} hours in a row.",
        (I, B), (T, O),
    ),
    KindSignal(
        "rests-for-days",
        lambda f: ramp(f.get("rest_hours_max"), 20.0, 40.0),
        "Idle for {rest_hours_max:.0f} hours in a row.",
        (I,), (T, O, F),
    ),
    KindSignal(
        "often-interrupted",
        lambda f: ramp(f.get("rests_per_day"), 1.5, 4.0) if _day(f) else 0.0,
        "Starts again {rests_per_day:.1f} times a day after an hour of rest.",
        (I, O), (T, F, B),
    ),
    KindSignal(
        "daily", _daily, "Load follows the time of day: {diurnal_share:.0%} of its variance is a 24 h wave.",
        (O,), (T, F, B),
    ),
    KindSignal(
        "steady",
        lambda f: ramp(_swing(f), 0.12, 0.03) * ramp(f.get("active_share", 1.0), 0.2, 0.5),
        "Load hardly changes from hour to hour ({swing:.0%}).",
        (T, B, F), (O, I),
    ),
    KindSignal(
        "same-hours",
        lambda f: ramp(f.get("day_before"), 0.3, 0.8),
        "Load repeats at the same hour of the day (correlation {day_before:.2f}).",
        (O, B), (T, F),
    ),
    KindSignal(
        "unlike-days",
        lambda f: ramp(f.get("day_before"), 0.25, 0.0) * ramp(f.get("swing"), 0.1, 0.4),
        "Load differs from day to day.",
        (I, T, F, B), (O,),
    ),
    KindSignal(
        "working-hours",
        lambda f: min(ramp(f.get("working_hours_share"), 0.7, 0.95), ramp(f.get("active_share"), 0.8, 0.5)),
        "{working_hours_share:.0%} of the work is done in the same ten hours of the day.",
        (I, B), (T, F, O),
    ),
    KindSignal(
        "works-at-night",
        lambda f: ramp(f.get("night_level"), 0.15, 0.5),
        "Load in the quietest hours of the day is {night_level:.0%} of the mean.",
        (O, T, B), (I,),
    ),
    KindSignal(
        "weekends-off",
        lambda f: ramp(f.get("weekend_level"), 0.35, 0.1),
        "Load on weekends is {weekend_level:.0%} of that on other days.",
        (I,), (T, O, B),
    ),
    KindSignal(
        "weekends-too",
        lambda f: ramp(f.get("weekend_level"), 0.4, 0.75),
        "Load on weekends is {weekend_level:.0%} of that on other days.",
        (T, O, B), (I,),
    ),
    KindSignal(
        "memory-pool", _pool,
        "{mem_level:.0%} of the memory is allocated once and never changes: typical of an engine that "
        "preallocates.",
        (O, B), (T, F, I),
    ),
    KindSignal(
        "memory-still",
        lambda f: ramp(f.get("mem_hourly_cv"), 0.01, 0.002) if not _pool(f) else 0.0,
        "Memory use is constant: it changes by less than {mem_hourly_cv:.1%} from hour to hour.",
        (O, T), (I,),
    ),
    KindSignal(
        "memory-moves",
        lambda f: ramp(f.get("mem_hourly_cv"), 0.04, 0.3),
        "Memory use changes by {mem_hourly_cv:.0%} from hour to hour.",
        (I, F, B), (O, T),
    ),
    KindSignal(
        "memory-breathes",
        lambda f: ramp(f.get("mem_swing_in_hour"), 0.05, 0.2) * ramp(f.get("mem_changes_share"), 0.3, 0.7)
        if _course(f) else 0.0,
        "Memory use varies by {mem_swing_in_hour:.0%} within an hour, typical of memory allocated per request.",
        (O, B), (T, F),
    ),
    KindSignal(
        "memory-much",
        lambda f: ramp(f.get("mem_max"), 0.3, 0.55) * _full(f) if not _pool(f) else 0.0,
        "{mem_max:.0%} of the memory used under full load, typical of gradients and activations.",
        (T, F),
        (B,),
    ),
    KindSignal(
        "memory-little",
        lambda f: ramp(f.get("mem_max"), 0.3, 0.12) * _full(f),
        "Only {mem_max:.0%} of the memory used under full load: little more than the weights.",
        (B,),
        (T, F),
    ),
    KindSignal(
        "memory-kept",
        lambda f: ramp(f.get("mem_kept_at_rest"), 0.6, 0.9) * ramp(f.get("active_share"), 0.95, 0.8),
        "Memory is kept at rest.",
        (O, I), (B, T, F),
    ),
    KindSignal(
        "memory-let-go",
        lambda f: ramp(f.get("mem_kept_at_rest"), 0.4, 0.1) * ramp(f.get("active_share"), 0.95, 0.8),
        "Memory is released at rest, down to {mem_kept_at_rest:.0%}.",
        (B, F), (O,),
    ),
    KindSignal(
        "older-than-a-day", lambda f: ramp(_span(f), 20.0, 30.0), "Running for {chain_hours:.0f} hours.",
        (T, O, B, I), (F,),
    ),
    KindSignal(
        "older-than-days", lambda f: ramp(_span(f), 48.0, 120.0), "Running for {days:.0f} days.", (O, I), (F, B),
    ),
    KindSignal(
        "came-and-went",
        lambda f: ramp(f.get("ended"), 0.0, 1.0) * ramp(_span(f), 28.0, 20.0),
        "Started and ended within {chain_hours:.1f} hours.",
        (F, B), (O, T),
    ),
    KindSignal(
        "ended", lambda f: ramp(f.get("ended"), 0.0, 1.0), "The workload ended.", (T, F, B), (O,)
    ),
    KindSignal(
        "begins-at-one-hour",
        lambda f: ramp(f.get("series_start_spread_hours"), 3.0, 0.7) * ramp(f.get("series_run_hours"), 24.0, 14.0),
        "Runs of the series start at the same hour of the day, within {series_start_spread_hours:.1f} h.",
        (B,),
        (T, F, I),
    ),
    KindSignal(
        "days-without-rest",
        lambda f: min(ramp(f.get("active_share"), 0.95, 1.0), ramp(f.get("active_engine"), 0.2, 0.5))
        * min(ramp(f.get("active_swing"), 0.2, 0.08), ramp(_span(f), 24.0, 60.0)),
        "Constant load for {days:.1f} days without a break.",
        (T,),
        (F, B, O, I),
    ),
    KindSignal(
        "even-below-its-limit",
        lambda f: min(ramp(f.get("active_swing"), 0.1, 0.04), ramp(f.get("active_engine"), 0.95, 0.85))
        * ramp(f.get("active_share"), 0.95, 1.0) * ramp(f.get("elapsed_hours"), 12.0, 24.0),
        "Load is the same in every hour and below the limit ({active_engine:.0%} of the time): too even "
        "for user demand.",
        (T, F, B),
        (O, I),
    ),
    KindSignal(
        "short-and-full",
        lambda f: _full(f) * ramp(f.get("mem_max"), 0.25, 0.5) * ramp(f.get("ended"), 0.0, 1.0)
        * ramp(_span(f), 28.0, 20.0) * (1.0 - _pool(f)),
        "Full load for {chain_hours:.1f} hours with {mem_max:.0%} of the memory, then ended.",
        (F,),
        (B, O, I),
    ),
    KindSignal(
        "runs-recur",
        lambda f: _recurs(f) * ramp(f.get("series_run_hours"), 24.0, 14.0),
        "One of {series_runs:.0f} runs of a series, {series_run_hours:.1f} hours each.",
        (F, B), (T, O),
    ),
)  # fmt: skip
