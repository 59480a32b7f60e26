"""The window that somebody types, and the next one on a key."""

from __future__ import annotations

import re

from ...advisor.core.timestamps import day, minute, parse_moment
from ...agent.base.durations import parse_duration
from ...rules.base.errors import UsageError
from ..state import FINDINGS_WINDOW, WINDOWS, WindowChoice

WINDOW_HINT = "a length until now (3d, 36h), or two times in UTC (2026-11-01 to 2026-11-03)"
_BETWEEN = re.compile(r"\s+to\s+|\s*\.\.\s*|\s+", re.ASCII)
_DAY_SECONDS = 86400.0
_LEAST_SECONDS, _MOST_SECONDS = 60.0, 3 * 366 * _DAY_SECONDS


def parse_window(text: str, now: float) -> WindowChoice:
    """Parse a length (``3d``, ``36h``) or two times (dates, or RFC 3339). Raises UsageError.

    `now`: Unix seconds; a window may not begin later.
    """
    ends = [part for part in _BETWEEN.split(text.strip()) if part]
    if len(ends) != 2:
        return _bounded(WindowChoice("".join(ends), parse_duration(text.strip())))
    start, end = (parse_moment(part) for part in ends)
    if end <= start:
        raise UsageError("The end is not after the start.", "Enter the earlier time first.")
    if start >= now:
        raise UsageError(f"{minute(start)} is in the future.", "Enter an earlier start.")
    whole_days = start % _DAY_SECONDS == end % _DAY_SECONDS == 0
    name = " to ".join(day(part) if whole_days else minute(part).removesuffix(" UTC") for part in (start, end))
    return _bounded(WindowChoice(name, end - start, end))


def _bounded(window: WindowChoice) -> WindowChoice:
    if not _LEAST_SECONDS <= window.seconds <= _MOST_SECONDS:
        raise UsageError("A window must be between one minute and three years.", "Use a length such as 3d or 36h.")
    return next((w for w in WINDOWS if w.seconds == window.seconds and window.until is None), window)


def window_of(seconds: float | None) -> WindowChoice:
    """Return the window of a length that was remembered; the findings' window for None or an invalid one."""
    if seconds is None or not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        return FINDINGS_WINDOW
    name = f"{seconds / _DAY_SECONDS:g}d" if seconds >= _DAY_SECONDS else f"{seconds / 3600:g}h"
    return _bounded(WindowChoice(name, seconds))


def next_window(window: WindowChoice, by: int) -> WindowChoice:
    """Return the next longer (`by` 1) or shorter (-1) of `WINDOWS`; from the longest back to the shortest."""
    if window in WINDOWS:
        return WINDOWS[(WINDOWS.index(window) + by) % len(WINDOWS)]
    longer = [w for w in WINDOWS if w.seconds > window.seconds]
    shorter = [w for w in WINDOWS if w.seconds < window.seconds]
    return (longer or [WINDOWS[0]])[0] if by > 0 else (shorter or [WINDOWS[-1]])[-1]
