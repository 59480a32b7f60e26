"""How long the requests of servers waited: one row an hour for each server and each work that held it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor

from ..model import ServingSample
from ..statistics.latency_bins import MEASURES, added, encode
from .codec import Cell
from .write_batch import Batch

_HOUR_SECONDS = 3600.0


@dataclass(slots=True)
class _Row:
    """The row of an hour while it grows. `begun`: the hour, in hours since 1970."""

    id: int
    begun: int
    seconds: float = 0.0
    counts: dict[str, tuple[float, ...]] = field(default_factory=dict)


class LatencyRows:
    """Adds samples up and lets the row of their hour wait. After a restart an hour goes on in a row of its own."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._rows: dict[tuple[int, Cell], _Row] = {}

    def add(self, sample: ServingSample, server: int, workload: Cell) -> None:
        """Count what a sample counted, for the work that held the server then (None: the node's)."""
        if not sample.latency:
            return
        hour = floor(sample.ts / _HOUR_SECONDS)
        row = self._rows.get((server, workload))
        if row is None or row.begun != hour:
            row = self._rows[server, workload] = _Row(self._batch.next_id("serving_hour"), hour)
        row.seconds += sample.interval_seconds
        for measure, counts in sample.latency.items():
            row.counts[measure] = added([row.counts[measure], counts]) or counts if measure in row.counts else counts
        bins = [encode(row.counts[measure]) if measure in row.counts else None for measure in MEASURES]
        told = (row.id, server, workload, sample.ts, round(row.seconds * 1000), *bins)
        self._batch.put_sample("serving_hour", row.id, told)
