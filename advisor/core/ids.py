"""Ids that stay the same from run to run, so that a ledger can follow them, and their short form for tables."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

_SHORT_DIGITS = 8


def stable_id(prefix: str, *parts: object) -> str:
    """`prefix` and twelve hex digits of a hash over the parts, which may hold any text."""
    joined = "\x1f".join("" if p is None else str(p) for p in parts)
    return f"{prefix}-{hashlib.sha256(joined.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def short_id(full: str, digits: int = _SHORT_DIGITS) -> str:
    """The form of an id that tables show (``w-7d371f98``); every command accepts it as the beginning of the id."""
    prefix, dash, rest = full.partition("-")
    return f"{prefix}-{rest[:digits]}" if dash else full[:digits]


def short_ids(every: Iterable[str]) -> Mapping[str, str]:
    """The short form of each id. Ids that share it keep as many more digits as set them apart."""
    whole = list(dict.fromkeys(every))
    found = {full: short_id(full) for full in whole}
    digits = _SHORT_DIGITS
    while True:
        counted = Counter(found.values())
        alike = [full for full, short in found.items() if counted[short] > 1 and short != full]
        if not alike:
            return found
        digits += 2
        found |= {full: short_id(full, digits) for full in alike}
