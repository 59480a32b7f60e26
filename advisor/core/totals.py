"""Sums that do not depend on the order of their terms."""

from __future__ import annotations

import math
from collections.abc import Iterable


def added(values: Iterable[float]) -> float:
    """The sum, rounded to the six decimals of the JSON."""
    return round(math.fsum(values), 6)


def sum_if_all(values: Iterable[float | None]) -> float | None:
    """The sum; None where a value is unknown."""
    terms = list(values)
    return None if None in terms else added(v for v in terms if v is not None)


def peak(spans: Iterable[tuple[float, float, float]]) -> float:
    """The largest sum of overlapping spans (begin, end, amount), 0 without any. Adjacent spans do not overlap."""
    edges = [edge for begin, end, amount in spans for edge in ((begin, amount), (end, -amount))]
    highest = level = 0.0
    for _, change in sorted(edges):
        level += change
        highest = max(highest, level)
    return highest


def most_at_once(spans: Iterable[tuple[float, float]], slack_seconds: float) -> int:
    """The most spans (begin, end) at one time. Overlaps of up to `slack_seconds`, as of a replacement, do not count."""
    return round(peak((begin, max(end - slack_seconds, begin + 1.0), 1.0) for begin, end in spans))
