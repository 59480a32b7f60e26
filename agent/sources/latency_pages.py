"""The histograms of a server's page that tell how long its requests waited: counts up to each edge."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf

from ..statistics.latency_bins import MAX_BUCKETS
from .prometheus_text import Series

Buckets = Mapping[float, float]
"""Upper edge in seconds (``inf``: the whole) -> requests or tokens up to it since the server began."""


def buckets_of(series: Sequence[Series], names: Sequence[str], repeated: Collection[str]) -> Buckets:
    """The first of these histograms that is on a page, its parts (data-parallel ranks, models) added up.

    `repeated`: labels of ranks that tell the same numbers, which count once. An edge that not every part has is left
    out: the counts up to the others hold all the same. Empty: no such histogram.
    """
    for name in names:
        found = _of(series, f"{name}_bucket", repeated)
        if found:
            return found
    return {}


def _of(series: Sequence[Series], name: str, repeated: Collection[str]) -> Buckets:
    parts: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    named = [one for one in series if one.name == name]
    # SGLang tells the whole with an empty priority and each priority again.
    for one in [one for one in named if not one.labels.get("priority")] or named:
        edge, value = edge_of(one.labels.get("le", "")), one.value
        if edge is None or value is None or value < 0:
            continue
        key = tuple(sorted((k, v) for k, v in one.labels.items() if k != "le" and k not in repeated))
        own = parts.setdefault(key, {})
        own[edge] = max(value, own.get(edge, 0.0))
    if not parts or any(len(own) > MAX_BUCKETS for own in parts.values()):
        return {}
    common = set[float].intersection(*(set(own) for own in parts.values()))
    return {edge: sum(own[edge] for own in parts.values()) for edge in sorted(common)}


def edge_of(text: str) -> float | None:
    """A bucket's upper edge in seconds, of its label ``le``; None where it is no number above 0."""
    try:
        edge = float(text) if len(text) <= 32 else 0.0
    except ValueError:
        return None
    return edge if 0 < edge <= inf else None
