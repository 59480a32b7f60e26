"""How many of something there were at once, from when each began and ended."""

from __future__ import annotations

from collections.abc import Iterable


def peak(spans: Iterable[tuple[float, float, float]]) -> float:
    """The largest sum of what overlaps. `spans`: begin, end and how much each counts; what ends as another begins
    makes room for it. 0 where there are none."""
    edges = [edge for begin, end, count in spans for edge in ((begin, count), (end, -count))]
    most = now = 0.0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most
