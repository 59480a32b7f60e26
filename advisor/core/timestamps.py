"""Moments and lengths of time as people type and read them, always UTC; `agent.durations` parses lengths."""

import re
from datetime import UTC, datetime

from ...rules.base.errors import UsageError

# RFC 3339 requires date, time and offset; a bare date is accepted as its first second, UTC.
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2}))?", re.ASCII)


def parse_moment(text: str) -> float:
    """Unix seconds of an RFC 3339 moment (``2026-03-01T00:00:00Z``) or of a date's first second, UTC."""
    try:
        if not _MOMENT.fullmatch(text.strip()):
            raise ValueError(text)
        moment = datetime.fromisoformat(text.strip().upper().replace("Z", "+00:00"))
        ts = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        rfc3339(ts)  # an offset may move it out of the years that can be written
    except (ValueError, OverflowError) as error:
        remedy = "Use RFC 3339, for example 2026-03-01T00:00:00Z, or a date."
        raise UsageError(f"Invalid time {text!r}.", remedy) from error
    return ts


def rfc3339(ts: float) -> str:
    """A moment (Unix seconds) in UTC, to the second."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def day(ts: float) -> str:
    """The UTC date of a moment."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d")


def minute(ts: float) -> str:
    """A moment in a sentence: ``2026-03-01 14:05 UTC``."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d %H:%M UTC")


def span(seconds: float) -> str:
    """A length of time: ``15 s``, ``12 min``, ``23.8 h``, ``14.0 days``."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 3570:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 10 * 86400 else f"{seconds / 86400:.1f} days"
