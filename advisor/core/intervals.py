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


def most_at_once(spans: Iterable[tuple[float, float]], slack_seconds: float) -> int:
    """The most that were there at a time: one that took another's place adds nothing. `spans`: begin and end;
    `slack_seconds`: by how much the rows of the two may overlap."""
    return round(peak((begin, max(end - slack_seconds, begin + 1.0), 1.0) for begin, end in spans))
