"""Weeks: from Monday 00:00 to Monday 00:00, UTC, wherever the clock of this machine stands."""

from __future__ import annotations

from dataclasses import dataclass

from ...rules.base.errors import SkuwiseError, UsageError
from ..core.timestamps import day, minute

WEEK_SECONDS = 7 * 86400.0
_FIRST_MONDAY = 4 * 86400.0  # 1970-01-05
# Telemetry of a week is complete where it ends within so long of the week: the last hour is yet to be rolled up.
_LATE_SECONDS = 2 * 3600.0
# Beyond so many weeks nothing tells of the last week any more, whichever clock is right.
_MOST_BEHIND = 5


class NotOverError(SkuwiseError):
    """A week is over by this machine's clock, and not by the telemetry. `newest`: its end (Unix seconds)."""

    def __init__(self, week: Week, newest: float) -> None:
        super().__init__(
            f"The telemetry of the week of {week.name} is incomplete: the newest data is of {minute(newest)}.",
            "Check the clock of this machine and the collection of data. "
            f"--week {week.name} reports the data there is.",
        )
        self.newest = newest


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


def check_over(week: Week, newest: float | None) -> None:
    """Raises NotOverError where the newest telemetry (Unix seconds; None: nothing tells) is of before the end of a
    week: by a clock that runs ahead, half a week would be told as a whole, and the rest of it never."""
    if newest is not None and week.end - _MOST_BEHIND * WEEK_SECONDS <= newest < week.end - _LATE_SECONDS:
        raise NotOverError(week, newest)


def reported_week(asked: float | None, now: float) -> Week:
    """The week in which `asked` lies, by default the last one that is over. Raises UsageError for one to come."""
    if asked is None:
        return week_of(now - WEEK_SECONDS)
    week = week_of(asked)
    if week.start >= now:
        raise UsageError(f"The week of {week.name} begins at {minute(week.start)}, which is to come.", "Name another.")
    return week
