"""When to try again, and when to give up: by tries and by time that was lived through, never by one clock's word.

The wall clock may jump by a year between two tries, either way. The clock that runs since the machine booted cannot,
but begins anew with each boot: what it says has passed is never too much.
"""

from __future__ import annotations

from ...agent.model import Instant

# RFC 5321, 4.5.4.1: a sender tries for at least four to five days.
GIVE_UP_SECONDS = 5 * 86400.0
FIRST_PAUSE_SECONDS = 300.0
MAX_PAUSE_SECONDS = 4 * 3600.0
# Of the time between two tries so much counts at most: nobody is given up after two tries a month apart.
_MOST_BETWEEN_SECONDS = 86400.0


def pause_seconds(tries: int) -> float:
    """How long to wait after so many tries: 5 min, then twice as long each time, up to 4 h."""
    return min(FIRST_PAUSE_SECONDS * 2 ** (min(tries, 20) - 1), MAX_PAUSE_SECONDS) if tries > 0 else 0.0


def lived_seconds(before: Instant, now: Instant) -> float:
    """Time between two tries that counts towards giving up.

    The clock since boot gives what has surely passed. Where the machine was booted in between that may be little, and
    the wall clock is heard as well, up to the longest pause.
    """
    wall = min(max(now.wall_seconds - before.wall_seconds, 0.0), MAX_PAUSE_SECONDS)
    return min(max(_since_boot(before, now), wall), _MOST_BETWEEN_SECONDS)


def left_seconds(next_at: float, tries: int, tried: Instant | None, now: Instant) -> float:
    """How long to wait yet for a try that was put off until `next_at` (Unix seconds); 0: it is due.

    `tried`: when the last try ended, None: it was not tried yet. Nothing is put off for longer than its
    pause, so that a moment further away was told by a clock that ran ahead.
    """
    pause = pause_seconds(tries)
    left = next_at - now.wall_seconds
    if not 0 < left <= pause:
        return 0.0
    return min(left, max(pause - _since_boot(tried, now), 0.0)) if tried is not None else left


def _since_boot(before: Instant, now: Instant) -> float:
    """The least time that has passed, by the clock that runs since boot."""
    passed = now.monotonic_seconds - before.monotonic_seconds
    return passed if passed >= 0 else now.monotonic_seconds
