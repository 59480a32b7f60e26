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
        "It works in {active_share:.0%} of the hours, by day and by night.",
        (T, O, B), (I,),
    ),
    KindSignal(
        "light-all-day",
        _light_all_day,
        "It works a little in nearly every hour: {active_engine:.0%} of the time in {active_share:.0%} of the hours.",
        (O,), (T, F, B, I),
    ),
    KindSignal(
        "seldom-at-work",
        lambda f: ramp(f.get("active_share"), 0.55, 0.3) if _day(f) else 0.0,
        "It works in only {active_share:.0%} of the hours.",
        (I, B), (T, O),
    ),
    KindSignal(
        "full-hours",
        lambda f: min(ramp(f.get("active_fill"), 0.7, 0.92), ramp(f.get("active_engine"), 0.5, 0.8)),
        "When it works it works the whole hour: {active_engine:.0%} of the time.",
        (T, F, B), (O, I),
    ),
    KindSignal(
        "bursts",
        lambda f: ramp(f.get("active_fill"), 0.6, 0.3),
        "It works in bursts: the mean of an hour is {active_fill:.0%} of its busiest minutes.",
        (O, I), (T, F, B),
    ),
    KindSignal(
        "level-hours",
        lambda f: ramp(f.get("active_swing"), 0.25, 0.05) * ramp(f.get("active_engine"), 0.3, 0.6) if _course(f)
        else 0.0,
        "One hour is like the next: they differ by {active_swing:.0%}.",
        (T, F, B), (I,),
    ),
    KindSignal(
        "graded-hours",
        lambda f: ramp(f.get("between_share"), 0.2, 0.6) if _course(f) else 0.0,
        "In {between_share:.0%} of its hours it works at a middling level, as demand does that comes and goes.",
        (O, I), (T, F, B),
    ),
    KindSignal(
        "on-or-off",
        lambda f: min(
            ramp(f.get("between_share"), 0.3, 0.1), ramp(f.get("active_share"), 0.85, 0.6),
            ramp(f.get("active_engine"), 0.3, 0.6),
        ) if _day(f) else 0.0,
        "It works at its full level or not at all: between lie {between_share:.0%} of its hours.",
        (B, F), (O, I),
    ),
    KindSignal(
        "rests-at-night",
        lambda f: min(ramp(f.get("rest_hours_max"), 5.0, 9.0), ramp(f.get("active_share"), 0.8, 0.6)) if _day(f)
        else 0.0,
        "It rests for up to {rest_hours_max:.0f} hours on end.",
        (I, B), (T, O),
    ),
    KindSignal(
        "rests-for-days",
        lambda f: ramp(f.get("rest_hours_max"), 20.0, 40.0),
        "It did nothing for {rest_hours_max:.0f} hours on end.",
        (I,), (T, O, F),
    ),
    KindSignal(
        "often-interrupted",
        lambda f: ramp(f.get("rests_per_day"), 1.5, 4.0) if _day(f) else 0.0,
        "It begins again {rests_per_day:.1f} times a day after an hour of rest.",
        (I, O), (T, F, B),
    ),
    KindSignal(
        "daily", _daily, "Its load follows the day: {diurnal_share:.0%} of its variance is a 24 h wave.",
        (O,), (T, F, B),
    ),
    KindSignal(
        "steady",
        lambda f: ramp(_swing(f), 0.12, 0.03) * ramp(f.get("active_share", 1.0), 0.2, 0.5),
        "Its load hardly changes from hour to hour ({swing:.0%}).",
        (T, B, F), (O, I),
    ),
    KindSignal(
        "same-hours",
        lambda f: ramp(f.get("day_before"), 0.3, 0.8),
        "An hour is like the same hour of the day before (correlation {day_before:.2f}).",
        (O, B), (T, F),
    ),
    KindSignal(
        "unlike-days",
        lambda f: ramp(f.get("day_before"), 0.25, 0.0) * ramp(f.get("swing"), 0.1, 0.4),
        "One day is unlike the other.",
        (I, T, F, B), (O,),
    ),
    KindSignal(
        "working-hours",
        lambda f: min(ramp(f.get("working_hours_share"), 0.7, 0.95), ramp(f.get("active_share"), 0.8, 0.5)),
        "{working_hours_share:.0%} of its work falls into the same ten hours of the day.",
        (I, B), (T, F, O),
    ),
    KindSignal(
        "works-at-night",
        lambda f: ramp(f.get("night_level"), 0.15, 0.5),
        "At its quietest hours of the day it still works at {night_level:.0%} of its mean.",
        (O, T, B), (I,),
    ),
    KindSignal(
        "weekends-off",
        lambda f: ramp(f.get("weekend_level"), 0.35, 0.1),
        "At weekends it works {weekend_level:.0%} as much as on other days.",
        (I,), (T, O, B),
    ),
    KindSignal(
        "weekends-too",
        lambda f: ramp(f.get("weekend_level"), 0.4, 0.75),
        "At weekends it works {weekend_level:.0%} as much as on other days.",
        (T, O, B), (I,),
    ),
    KindSignal(
        "memory-pool", _pool,
        "{mem_level:.0%} of the memory is taken once and never moves: an engine that preallocates.",
        (O, B), (T, F, I),
    ),
    KindSignal(
        "memory-still",
        lambda f: ramp(f.get("mem_hourly_cv"), 0.01, 0.002) if not _pool(f) else 0.0,
        "Its memory does not move from hour to hour: not by {mem_hourly_cv:.1%}.",
        (O, T), (I,),
    ),
    KindSignal(
        "memory-moves",
        lambda f: ramp(f.get("mem_hourly_cv"), 0.04, 0.3),
        "Its memory moves from hour to hour, by {mem_hourly_cv:.0%}.",
        (I, F, B), (O, T),
    ),
    KindSignal(
        "memory-breathes",
        lambda f: ramp(f.get("mem_swing_in_hour"), 0.05, 0.2) * ramp(f.get("mem_changes_share"), 0.3, 0.7)
        if _course(f) else 0.0,
        "Its memory rises and falls within every hour, by {mem_swing_in_hour:.0%}: taken and let go by each request.",
        (O, B), (T, F),
    ),
    KindSignal(
        "memory-much",
        lambda f: ramp(f.get("mem_max"), 0.3, 0.55) * _full(f) if not _pool(f) else 0.0,
        "Fully busy, it takes {mem_max:.0%} of the memory, as gradients and activations do.",
        (T, F),
        (B,),
    ),
    KindSignal(
        "memory-little",
        lambda f: ramp(f.get("mem_max"), 0.3, 0.12) * _full(f),
        "Fully busy, it takes only {mem_max:.0%} of the memory: weights and little else.",
        (B,),
        (T, F),
    ),
    KindSignal(
        "memory-kept",
        lambda f: ramp(f.get("mem_kept_at_rest"), 0.6, 0.9) * ramp(f.get("active_share"), 0.95, 0.8),
        "At rest it keeps its memory.",
        (O, I), (B, T, F),
    ),
    KindSignal(
        "memory-let-go",
        lambda f: ramp(f.get("mem_kept_at_rest"), 0.4, 0.1) * ramp(f.get("active_share"), 0.95, 0.8),
        "At rest it lets its memory go, down to {mem_kept_at_rest:.0%}.",
        (B, F), (O,),
    ),
    KindSignal(
        "older-than-a-day", lambda f: ramp(_span(f), 20.0, 30.0), "It has run for {chain_hours:.0f} hours.",
        (T, O, B, I), (F,),
    ),
    KindSignal(
        "older-than-days", lambda f: ramp(_span(f), 48.0, 120.0), "It has run for {days:.0f} days.", (O, I), (F, B),
    ),
    KindSignal(
        "came-and-went",
        lambda f: ramp(f.get("ended"), 0.0, 1.0) * ramp(_span(f), 28.0, 20.0),
        "It came and went within {chain_hours:.1f} hours.",
        (F, B), (O, T),
    ),
    KindSignal(
        "ended", lambda f: ramp(f.get("ended"), 0.0, 1.0), "It ended.", (T, F, B), (O,)
    ),
    KindSignal(
        "begins-at-one-hour",
        lambda f: ramp(f.get("series_start_spread_hours"), 3.0, 0.7) * ramp(f.get("series_run_hours"), 24.0, 14.0),
        "Its runs begin at the same hour of the day, give or take {series_start_spread_hours:.1f} h.",
        (B,),
        (T, F, I),
    ),
    KindSignal(
        "days-without-rest",
        lambda f: min(ramp(f.get("active_share"), 0.95, 1.0), ramp(f.get("active_engine"), 0.2, 0.5))
        * min(ramp(f.get("active_swing"), 0.2, 0.08), ramp(_span(f), 24.0, 60.0)),
        "It has worked at one level for {days:.1f} days on end.",
        (T,),
        (F, B, O, I),
    ),
    KindSignal(
        "even-below-its-limit",
        lambda f: min(ramp(f.get("active_swing"), 0.1, 0.04), ramp(f.get("active_engine"), 0.95, 0.85))
        * ramp(f.get("active_share"), 0.95, 1.0) * ramp(f.get("elapsed_hours"), 12.0, 24.0),
        "It is not at its limit ({active_engine:.0%} of the time), and yet no hour differs from another: no demand is "
        "so even.",
        (T, F, B),
        (O, I),
    ),
    KindSignal(
        "short-and-full",
        lambda f: _full(f) * ramp(f.get("mem_max"), 0.25, 0.5) * ramp(f.get("ended"), 0.0, 1.0)
        * ramp(_span(f), 28.0, 20.0) * (1.0 - _pool(f)),
        "It worked fully for {chain_hours:.1f} hours, with {mem_max:.0%} of the memory, and ended.",
        (F,),
        (B, O, I),
    ),
    KindSignal(
        "runs-recur",
        lambda f: _recurs(f) * ramp(f.get("series_run_hours"), 24.0, 14.0),
        "It is one of {series_runs:.0f} runs of its series, of {series_run_hours:.1f} hours each.",
        (F, B), (T, O),
    ),
)  # fmt: skip
