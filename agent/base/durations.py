"""Spans of time and sizes as people write them: 250ms, 30s, 10m, 24h, 14d; 512MB, 1GiB."""

from __future__ import annotations

import re

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_PATTERN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d|w)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds in `text` (``30s``, ``1.5h``, ``14d``). Raises `UsageError` for anything else, zero included."""
    match = _PATTERN.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        raise UsageError(f"{quoted(text)} is not a span of time.", "Write it like 250ms, 30s, 10m, 24h or 14d.")
    return seconds


def parse_bytes(text: str) -> int:
    """Bytes in `text` (``512MB``, ``1GiB``, a plain number). Raises `UsageError` for anything else, zero included."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?([KMG]?I?B)?", text.strip().upper(), re.ASCII)
    unit = _BYTES.get(match[2] or "", 0) if match else 0
    size = round(float(match[1]) * unit) if match else 0
    if size <= 0:
        raise UsageError(f"{quoted(text)} is not a size.", "Write it like 512MB or 1GiB.")
    return size
