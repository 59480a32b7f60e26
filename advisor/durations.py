"""Durations and moments as people type them: ``30s``, ``10m``, ``24h``, ``14d``, and RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ..rules.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(s|m|h|d|w)", re.ASCII)
# RFC 3339 wants date, time and offset; a bare date is accepted as its first second, UTC.
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2}))?", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds of ``14d``, ``1.5h`` and so on. Raises UsageError for anything else, zero included."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match.group(1)) * _UNITS[match.group(2)] if match else 0.0
    if seconds <= 0:
        raise UsageError(f"{text!r} is not a duration.", "Write a number and a unit, as in 30s, 10m, 24h or 14d.")
    return seconds


def parse_moment(text: str) -> float:
    """Unix seconds of an RFC 3339 moment (``2026-03-01T00:00:00Z``) or of a date's first second, UTC."""
    stripped = text.strip()
    remedy = "Write it in RFC 3339, as in 2026-03-01T00:00:00Z, or as a date."
    if not _MOMENT.fullmatch(stripped):
        raise UsageError(f"{text!r} is not a moment in time.", remedy)
    try:
        moment = datetime.fromisoformat(stripped.upper().replace("Z", "+00:00"))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a moment in time.", remedy) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def rfc3339(ts: float) -> str:
    """A moment (Unix seconds) in UTC, to the second."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def day(ts: float) -> str:
    """The UTC date of a moment."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d")
