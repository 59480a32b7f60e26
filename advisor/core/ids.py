"""Ids that stay the same from run to run, so that a ledger can follow them."""

from __future__ import annotations

import hashlib


def stable_id(prefix: str, *parts: object) -> str:
    """`prefix` and twelve hex digits of a hash over the parts, which may hold any text."""
    joined = "\x1f".join("" if p is None else str(p) for p in parts)
    return f"{prefix}-{hashlib.sha256(joined.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
