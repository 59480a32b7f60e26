"""How long a snooze lasts, as people type it."""

from __future__ import annotations

from ....agent.base.durations import parse_duration
from ....rules.base.errors import UsageError
from ...core.timestamps import minute, parse_moment, rfc3339

HINT = "a date, RFC 3339 (UTC), or a duration such as 8h"


def parse_until(text: str, now: float) -> float:
    """The end of a snooze, Unix seconds: a moment, or a length of time from `now`. Raises UsageError for what is
    neither, or is not ahead."""
    try:
        until = parse_moment(text)
    except UsageError as error:
        try:
            until = now + parse_duration(text.strip())
            rfc3339(until)
        except (UsageError, ValueError, OverflowError):
            raise UsageError(f"Invalid end of a snooze {text!r}.", f"Use {HINT}.") from error
    if until <= now:
        raise UsageError(f"{minute(until)} is in the past.", "Set a later date.")
    return until
