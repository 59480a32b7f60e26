"""Which time retention goes by: a clock that suddenly runs a year ahead must not cost a year of data."""

from __future__ import annotations

import json
import math
import sqlite3

# A step forward larger than this between two runs of retention is doubted ...
JUMP_SECONDS = 86400.0
# ... until the clock has stood by it for so long. A node that was off for a month is believed as late as this.
PROBATION_SECONDS = 6 * 3600.0
_KEY = "retention_clock"


def trusted_now(connection: sqlite3.Connection, now: float) -> float:
    """The time to judge ages by, at most `now`; remembers what it needs in `meta` (inside the caller's transaction)."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    trusted, doubted_since = _parse(row[0]) if row else (None, None)
    if trusted is None:
        newest = connection.execute("SELECT max(last_seen) FROM node").fetchone()[0]
        # Nothing is remembered yet: the newest data tell the time, as far as they go.
        trusted = min(now, float(newest)) if newest is not None else now
    if now - trusted <= JUMP_SECONDS:
        trusted, doubted_since = now, None
    elif doubted_since is None or now < doubted_since:
        doubted_since = now
    elif now - doubted_since >= PROBATION_SECONDS:
        trusted, doubted_since = now, None
    connection.execute(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (_KEY, json.dumps([trusted, doubted_since]))
    )
    return trusted


def _parse(text: str) -> tuple[float | None, float | None]:
    try:
        trusted, doubted = (None if one is None else float(one) for one in json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None, None
    return (trusted, doubted) if all(one is None or math.isfinite(one) for one in (trusted, doubted)) else (None, None)
