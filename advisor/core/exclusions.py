"""Which recommendations can be carried out together, where some exclude one another."""

from __future__ import annotations

from collections.abc import Iterable

from .advice_types import Recommendation


def counted_recommendations(ways: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Those whose cash enters a sum, the best of each that exclude one another, the largest first."""
    return compatible(sorted((r for r in ways if r.counts), key=lambda r: r.rank))


def compatible(ways: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Of ways in their order, those that no earlier one excludes."""
    chosen: dict[str, Recommendation] = {}
    excluded: set[str] = set()
    for r in ways:
        if r.id not in excluded and chosen.keys().isdisjoint(r.excludes):
            chosen[r.id] = r
            excluded.update(r.excludes)
    return tuple(chosen.values())
