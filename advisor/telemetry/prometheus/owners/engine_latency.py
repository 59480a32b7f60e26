"""How long the requests of inference engines waited, by the buckets of their histograms, row by row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from .....agent.sources.scrape.latency_pages import edge_of
from .....agent.sources.scrape.serving import ENGINES, histograms_of
from .....agent.statistics.latency_bins import MEASURES, bucket_shares, can_tell, encode
from ..client.range_planner import Ask
from ..client.response import Floats, SeriesAnswer
from ..promql import promql as queries

LATENCY_COLUMNS = (*(f"{measure}_bins" for measure in MEASURES), "latency_ts")
# More buckets than this a page: some 20 to 30 are what engines have.
_BUCKETS = 30
# `increase` reckons each bucket's growth by itself, so that counts may fall by a little from one edge to the next. By
# more of the whole, they are not believed.
_SLACK = 0.05
_MOST = 1e15  # beyond lies no count
Key = tuple[str, tuple[str, ...]]


def latency_counts(
    ranges: Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]], known: Collection[str],
    matches: Sequence[str], step: float, *, where: Sequence[str], parts: Sequence[str], series: int,
) -> dict[Key, dict[str, Floats]]:  # fmt: skip
    """Engine and labels of each page -> by measure, what was counted in each row (a row each) by bin; NaN: not told.

    `where`: labels that name a page; `parts`: those of an engine's parts that count for themselves. `series`: how many
    are expected of a measure.
    """
    asks = list(latency_asks(known, matches, step, where=where, parts=parts))
    answers = ranges(asks, _BUCKETS * series) if asks else {}
    pages: dict[tuple[Key, str], dict[float, Floats]] = {}
    for name, answer in answers.items():
        engine, measure = name.split(" ")[:2]
        for labels, values in zip(answer.labels, answer.values, strict=True):
            edge = edge_of(labels.get("le", ""))
            if edge is not None:
                key = engine, tuple(labels.get(label, "") for label in where)
                pages.setdefault((key, measure), {})[edge] = values
    found: dict[Key, dict[str, Floats]] = {}
    for (key, measure), buckets in pages.items():
        counts = _binned(buckets)
        if counts is not None:
            found.setdefault(key, {})[measure] = counts
    return found


def latency_asks(
    known: Collection[str], matches: Sequence[str], step: float, *, where: Sequence[str], parts: Sequence[str]
) -> Iterator[Ask]:
    """The growth of every bucket over each row, of the first histogram of each measure that the server knows."""
    window = queries.row_range(step)
    by, each_part = ", ".join((*where, "le")), ", ".join((*where, *parts, "le"))
    for engine in ENGINES:
        for measure, names in histograms_of(engine).items():
            name = next((f"{one}_bucket" for one in names if f"{one}_bucket" in known), None)
            if name is not None:
                each = f"increase({name}{queries.selector(matches)}{window})"
                query = f"sum by ({by}) (max by ({each_part}) ({each}))"
                yield Ask(f"{engine.name} {measure} buckets", query, (*where, "le"))


def _binned(buckets: Mapping[float, Floats]) -> Floats | None:
    """Counts by row and bin; None where the buckets tell nothing (the whole alone, no whole, edges too low)."""
    edges = sorted(buckets)
    if not can_tell(edges):
        return None
    up_to = np.stack([buckets[edge] for edge in edges])
    with np.errstate(invalid="ignore"):
        mended = np.maximum.accumulate(up_to, axis=0)
        whole = mended[-1]
        sound = ((up_to >= 0) & (up_to <= _MOST)).all(axis=0) & (whole > 0)
        sound &= (mended - up_to).max(axis=0) <= _SLACK * whole
    counts = np.diff(mended, axis=0, prepend=0.0).T @ np.array(bucket_shares(edges))
    return np.where(sound[:, None], counts, np.nan)


def latency_row(latency: Mapping[str, Floats], n: int, end: float) -> dict[str, object] | None:
    """What row `n`, which ends at `end` (Unix seconds), counted, as a row of the table; None: nothing."""
    bins = {f"{measure}_bins": encode(counts[n]) for measure, counts in latency.items() if not np.isnan(counts[n, 0])}
    if not bins:
        return None
    return {**bins, "latency_ts": end, "kv_percent": float("nan"), "samples": 0.0, "seconds": 0.0}
