"""Rows of (subject, moment, value) laid into arrays of equal spans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.recent import COARSE_SECONDS, FINE_SECONDS, Rows, Values

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
FINE_SPAN_SECONDS = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class SpanGrid:
    """Equal spans up to `end`."""

    end: float
    step_seconds: float
    count: int

    @property
    def start(self) -> float:
        return self.end - self.step_seconds * self.count

    def places(self, ts: Floats) -> npt.NDArray[np.int64]:
        """Which span each moment (the end of an interval) lies in; -1 outside of all."""
        at = self.count - 1 - np.floor((self.end - ts) / self.step_seconds + 1e-9)
        return np.where((at >= 0) & (at < self.count), at, -1).astype(np.int64)

    def empty(self, subjects: int) -> Values:
        return np.full((subjects, self.count), np.nan, dtype=np.float32)

    def rows(self, values: Mapping[str, Values]) -> Rows:
        """The arrays as rows; measures that are missing throughout are left out."""
        known = {name: one for name, one in values.items() if np.isfinite(one).any()}
        return Rows(self.start, self.step_seconds, self.count, known)


def fine_start(end: float, span_seconds: float = FINE_SPAN_SECONDS) -> float:
    """Where the fine spans of a reading that ends at `end` begin: coarse ones lie on whole five minutes."""
    return math.floor((end - span_seconds) / COARSE_SECONDS) * COARSE_SECONDS


def grids(end: float, lookback_seconds: float) -> tuple[SpanGrid, SpanGrid]:
    """The fine spans of a reading that ends at `end` (a whole minute), and the coarse ones up to where they begin."""
    start = fine_start(end)
    coarse = max(round((start - (end - lookback_seconds)) / COARSE_SECONDS), 0)
    return SpanGrid(end, FINE_SECONDS, round((end - start) / FINE_SECONDS)), SpanGrid(start, COARSE_SECONDS, coarse)
