"""How long the requests of inference engines waited, by the buckets of their histograms, row by row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from .....agent.sources.scrape.latency_pages import edge_of
from .....agent.sources.scrape.serving import ENGINES, histograms_of
from .....agent.statistics.latency_bins import bucket_shares, can_tell, encode
from ..client.range_planner import Ask
from ..client.response import Floats, SeriesAnswer
from ..promql import promql as queries

Page = tuple[str, tuple[str, ...]]
"""An engine, and the labels that name a page of its metrics."""
# Buckets of a histogram, to estimate the size of an answer: engines have 20 to 30.
_BUCKETS = 30
# `increase` extrapolates each bucket by itself, so counts may fall a little from one edge to the next. Where they fall
# by more of the whole, the row is left out.
_SLACK = 0.05
_MAX_COUNT = 1e15


def latency_counts(
    ranges: Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]], known: Collection[str],
    matches: Sequence[str], step: float, *, where: Sequence[str], parts: Sequence[str], series: int,
) -> dict[Page, dict[str, Floats]]:  # fmt: skip
    """By page and measure the counts of each row (first axis) by bin; NaN: missing.

    `where`: labels that name a page; `parts`: those of an engine's parts that count for themselves; `series`: how many
    are expected of a measure.
    """
    asks = list(latency_asks(known, matches, step, where=where, parts=parts))
    answers = ranges(asks, _BUCKETS * series) if asks else {}
    buckets: dict[tuple[Page, str], dict[float, Floats]] = {}
    for name, answer in answers.items():
        engine, measure = name.split(" ")[:2]
        for labels, values in zip(answer.labels, answer.values, strict=True):
            edge = edge_of(labels.get("le", ""))
            if edge is not None:
                page = engine, tuple(labels.get(label, "") for label in where)
                buckets.setdefault((page, measure), {})[edge] = values
    found: dict[Page, dict[str, Floats]] = {}
    for (page, measure), up_to in buckets.items():
        if can_tell(sorted(up_to)):
            found.setdefault(page, {})[measure] = _binned(up_to)
    return found


def latency_asks(
    known: Collection[str], matches: Sequence[str], step: float, *, where: Sequence[str], parts: Sequence[str]
) -> Iterator[Ask]:
    """The growth of every bucket over each row, of the first histogram of each measure that the server has."""
    window = queries.row_range(step)
    by, each_part = ", ".join((*where, "le")), ", ".join((*where, *parts, "le"))
    for engine in ENGINES:
        for measure, names in histograms_of(engine).items():
            name = next((f"{one}_bucket" for one in names if f"{one}_bucket" in known), None)
            if name is not None:
                each = f"increase({name}{queries.selector(matches)}{window})"
                query = f"sum by ({by}) (max by ({each_part}) ({each}))"
                yield Ask(f"{engine.name} {measure} buckets", query, (*where, "le"))


def _binned(buckets: Mapping[float, Floats]) -> Floats:
    """Counts by row and bin of cumulative counts by upper edge."""
    edges = sorted(buckets)
    up_to = np.stack([buckets[edge] for edge in edges])
    with np.errstate(invalid="ignore"):
        rising = np.maximum.accumulate(up_to, axis=0)
        whole = rising[-1]
        is_sound = ((up_to >= 0) & (up_to <= _MAX_COUNT)).all(axis=0) & (whole > 0)
        is_sound &= (rising - up_to).max(axis=0) <= _SLACK * whole
    counts = np.diff(rising, axis=0, prepend=0.0).T @ np.array(bucket_shares(edges))
    return np.where(is_sound[:, None], counts, np.nan)


def latency_rows(latency: Mapping[str, Floats] | None, holders: pd.DataFrame) -> pd.DataFrame:
    """The latencies of rows in which a workload held GPUs, as rows of the table `serving`. `holders`: ``node,
    workload_id, ts`` by the number of the row."""
    if not latency or holders.empty:
        return pd.DataFrame()
    at = holders.index.to_numpy()
    table = holders.assign(latency_ts=holders["ts"], samples=0.0, seconds=0.0)
    for measure, counts in latency.items():
        texts = [None if np.isnan(row[0]) else encode(row) for row in counts[at]]
        table[f"{measure}_bins"] = pd.Series(texts, table.index, dtype=object)
    return table.dropna(subset=[f"{measure}_bins" for measure in latency], how="all")
