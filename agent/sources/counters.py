"""Rates from cumulative counters, over measured time; what cannot be a rate is a gap with a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoRate:
    """No rate for this interval. `reason`: first-reading, counter-reset, long-gap or counter-wrap."""

    reason: str


_FIRST_READING, _COUNTER_RESET, _LONG_GAP = NoRate("first-reading"), NoRate("counter-reset"), NoRate("long-gap")
_COUNTER_WRAP = NoRate("counter-wrap")


class CounterRate:
    """Remembers the last value of one counter and turns deltas into rates.

    A negative delta is a reset or a wrap: the two cannot be told apart, so it is a gap. A delta over more than
    `max_gap_seconds` is a gap too, because a mean over it would hide what happened; so is one over a time in which the
    counter can wrap, because a delta that looks sound may lack whole turns.
    """

    __slots__ = ("at", "last", "max_gap_seconds")

    def __init__(self, max_gap_seconds: float) -> None:
        self.max_gap_seconds = max_gap_seconds
        self.last: float | None = None  # what it stood at when it was last read; None: not known
        self.at = 0.0  # when that was, monotonic seconds

    def rate(self, value: float, monotonic_seconds: float, wrap_seconds: float = math.inf) -> float | NoRate:
        """Per-second rate since the last value, or a `NoRate`. `wrap_seconds`: the shortest time of one whole turn."""
        last, elapsed = self.last, monotonic_seconds - self.at
        self.last, self.at = value, monotonic_seconds
        if last is None:
            return _FIRST_READING
        if value < last:
            return _COUNTER_RESET
        if elapsed <= 0 or elapsed > self.max_gap_seconds:
            return _LONG_GAP
        if elapsed >= wrap_seconds:
            return _COUNTER_WRAP
        return (value - last) / elapsed

    def forget(self) -> None:
        """Drop what is known (the counter's device went away)."""
        self.last = None


class CounterRates:
    """A `CounterRate` for each of many counters, by key."""

    def __init__(self, max_gap_seconds: float) -> None:
        self.max_gap_seconds = max_gap_seconds
        self._counters: dict[object, CounterRate] = {}

    def rate(
        self, key: object, value: float, monotonic_seconds: float, wrap_seconds: float = math.inf
    ) -> float | NoRate:
        """Per-second rate of counter `key` since its last value, or a `NoRate`; see `CounterRate.rate`."""
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = CounterRate(self.max_gap_seconds)
        return counter.rate(value, monotonic_seconds, wrap_seconds)

    def forget(self, key: object) -> None:
        """Drop what is known of `key` (its device went away)."""
        self._counters.pop(key, None)
