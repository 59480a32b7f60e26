"""Spans of time as people write them: 250ms, 30s, 10m, 24h, 14d."""

from __future__ import annotations

import re

from ..rules.errors import UsageError

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_PATTERN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d|w)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds in `text` (``30s``, ``1.5h``, ``14d``). Raises `UsageError` for anything else, zero included."""
    match = _PATTERN.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        raise UsageError(f"{text!r} is not a span of time.", "Write it like 250ms, 30s, 10m, 24h or 14d.")
    return seconds
