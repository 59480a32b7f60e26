"""Weeks: from Monday 00:00 to Monday 00:00, UTC, wherever the clock of this machine stands."""

from __future__ import annotations

from dataclasses import dataclass

from ...rules.errors import UsageError
from ..moments import day, minute

WEEK_SECONDS = 7 * 86400.0
_FIRST_MONDAY = 4 * 86400.0  # 1970-01-05


@dataclass(frozen=True, slots=True)
class Week:
    """One week. `start`: Unix seconds of its Monday."""

    start: float

    @property
    def end(self) -> float:
        return self.start + WEEK_SECONDS

    @property
    def name(self) -> str:
        """The date of its Monday."""
        return day(self.start)


def week_of(ts: float) -> Week:
    """The week in which a moment (Unix seconds) lies."""
    return Week(_FIRST_MONDAY + (ts - _FIRST_MONDAY) // WEEK_SECONDS * WEEK_SECONDS)


def reported_week(asked: float | None, now: float) -> Week:
    """The week in which `asked` lies, by default the last one that is over. Raises UsageError for one to come."""
    if asked is None:
        return week_of(now - WEEK_SECONDS)
    week = week_of(asked)
    if week.start >= now:
        raise UsageError(f"The week of {week.name} begins at {minute(week.start)}, which is to come.", "Name another.")
    return week
