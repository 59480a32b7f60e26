"""Chains of moments cut apart: where something starts every minute, each is near the next, and all would be one.

Pairs are compared within a chain, so an uncut one costs the square of the whole record, and things that started hours
apart would count as started together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

# A launcher that reaches its nodes one after the other spreads one gang over some edges; not over more than these.
CHAIN_EDGES = 3.0
# Spans of a node, and groups of a cluster, that are compared with one another at most.
MOST_SPANS, MOST_GROUPS = 64, 2048


def unchained(ordered: Sequence[T], moment: Callable[[T], float], reach: float, most: int) -> list[list[T]]:
    """`ordered` in pieces, cut where moments are farthest apart, until none spans more than `reach` seconds or holds
    more than `most`. `moment`: rising; minus infinity for what was there before the data."""
    out: list[list[T]] = []
    left = [list(ordered)]
    while left:
        own = left.pop()
        moments = np.array([moment(one) for one in own])
        spread = moments[-1] - moments[0] if np.isfinite(moments[0]) or np.isfinite(moments[-1]) else 0.0
        if len(own) < 2 or (spread <= reach and len(own) <= most):
            out.append(own)
            continue
        with np.errstate(invalid="ignore"):
            gaps = np.nan_to_num(np.diff(moments), nan=0.0, posinf=np.inf)
        # Of gaps alike the middle one: pieces stay as large as they may be, and few.
        widest = np.nonzero(gaps == gaps.max())[0]
        at = int(widest[len(widest) // 2]) + 1
        left += [own[at:], own[:at]]
    return out
