"""Rates from cumulative counters, over measured time; what cannot be a rate is a gap with a reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """No rate for this interval. `reason`: first-reading, counter-reset or long-gap."""

    reason: str


class CounterRates:
    """Remembers the last value of each counter and turns deltas into rates.

    A negative delta is a reset or a wrap: the two cannot be told apart, so it is a gap. A delta over more than
    `max_gap_seconds` is a gap too, because a mean over it would hide what happened.
    """

    def __init__(self, max_gap_seconds: float) -> None:
        self.max_gap_seconds = max_gap_seconds
        self._last: dict[object, tuple[float, float]] = {}

    def rate(self, key: object, value: float, monotonic_seconds: float) -> float | Gap:
        """Per-second rate of counter `key` since its last value, or a `Gap`."""
        previous = self._last.get(key)
        self._last[key] = (value, monotonic_seconds)
        if previous is None:
            return Gap("first-reading")
        last_value, last_at = previous
        elapsed = monotonic_seconds - last_at
        if value < last_value:
            return Gap("counter-reset")
        if elapsed <= 0 or elapsed > self.max_gap_seconds:
            return Gap("long-gap")
        return (value - last_value) / elapsed

    def forget(self, key: object) -> None:
        """Drop what is known of `key` (its device went away)."""
        self._last.pop(key, None)
