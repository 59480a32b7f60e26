"""Ids that are stable over runs, so that a ledger can follow them, and their short form for tables."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping


def stable_id(prefix: str, *parts: object) -> str:
    """`prefix` and twelve hex digits of a hash over the parts, which may hold any text."""
    joined = "\x1f".join("" if p is None else str(p) for p in parts)
    return f"{prefix}-{hashlib.sha256(joined.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def short_id(full: str, digits: int = 8) -> str:
    """The short form of an id (``w-7d371f98``); every command accepts it as the beginning of the id."""
    prefix, dash, rest = full.partition("-")
    return f"{prefix}-{rest[:digits]}" if dash else full[:digits]


def short_ids(every: Iterable[str]) -> Mapping[str, str]:
    """The short form of each id, longer where ids would share it."""
    digits, short = 8, {full: short_id(full) for full in every}
    while True:
        counts = Counter(short.values())
        alike = [full for full in short if counts[short[full]] > 1 and short[full] != full]
        if not alike:
            return short
        digits += 2
        short |= {full: short_id(full, digits) for full in alike}
