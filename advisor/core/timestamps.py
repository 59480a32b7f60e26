"""Moments as people type and read them: RFC 3339, dates, always UTC. Spans of time are `agent.durations`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ...rules.base.errors import UsageError

# RFC 3339 wants date, time and offset; a bare date is accepted as its first second, UTC.
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2}))?", re.ASCII)


def parse_moment(text: str) -> float:
    """Unix seconds of an RFC 3339 moment (``2026-03-01T00:00:00Z``) or of a date's first second, UTC."""
    stripped = text.strip()
    remedy = "Use RFC 3339, for example 2026-03-01T00:00:00Z, or a date."
    if not _MOMENT.fullmatch(stripped):
        raise UsageError(f"Invalid time {text!r}.", remedy)
    try:
        moment = datetime.fromisoformat(stripped.upper().replace("Z", "+00:00"))
        ts = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        rfc3339(ts)  # an offset may carry it out of the years that can be written
    except (ValueError, OverflowError) as error:
        raise UsageError(f"Invalid time {text!r}.", remedy) from error
    return ts


def rfc3339(ts: float) -> str:
    """A moment (Unix seconds) in UTC, to the second."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def day(ts: float) -> str:
    """The UTC date of a moment."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d")


def span(seconds: float) -> str:
    """A length of time as a person says it: ``15 s``, ``12 min``, ``23.8 h``, ``14.0 days``."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 3570:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 10 * 86400 else f"{seconds / 86400:.1f} days"


def minute(ts: float) -> str:
    """A moment to the minute, for a sentence: ``2026-03-01 14:05 UTC``."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d %H:%M UTC")
