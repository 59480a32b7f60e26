"""Sums that do not depend on the order of what is summed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple

from .advice_types import Interval


def added(values: Iterable[float]) -> float:
    """The sum to six decimals, as JSON keeps it: so the order leaves no trace."""
    return round(math.fsum(values), 6)


def added_intervals(parts: Iterable[Interval]) -> Interval | None:
    """Percentile by percentile: right where all parts turn out well or badly together. None: there are no parts."""
    columns = list(zip(*(astuple(i) for i in parts), strict=True))
    return Interval(*map(added, columns)) if columns else None


def sum_if_all(values: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known."""
    known = list(values)
    return added(v for v in known if v is not None) if None not in known else None


def peak(spans: Iterable[tuple[float, float, float]]) -> float:
    """The largest sum of what overlaps. `spans`: begin, end and how much each counts; what ends as another begins
    makes room for it. 0 where there are none."""
    edges = [edge for begin, end, count in spans for edge in ((begin, count), (end, -count))]
    most = now = 0.0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most


def most_at_once(spans: Iterable[tuple[float, float]], slack_seconds: float) -> int:
    """The most that were there at a time: one that took another's place adds nothing. `spans`: begin and end;
    `slack_seconds`: by how much the rows of the two may overlap."""
    return round(peak((begin, max(end - slack_seconds, begin + 1.0), 1.0) for begin, end in spans))
