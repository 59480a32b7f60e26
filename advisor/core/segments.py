"""Figures of many groups of rows at once: the rows of each stand together, one group after another.

A fleet has thousands of workloads of a few rows each. Asked one by one, each pays for every figure what a call costs,
which is more than its rows do. NaN is missing, everywhere: it counts for nothing, and where nothing is known the figure
is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
# From so many values on numpy sums by pairs, below in turn.
_PAIRWISE_FROM = 8


@dataclass(frozen=True)
class Segments:
    """`bounds`: where each segment begins, and at the end of them how many rows there are."""

    bounds: Ints

    @classmethod
    def of_lengths(cls, lengths: Iterable[int] | npt.NDArray[np.integer]) -> Self:
        """Segments of so many rows each."""
        counts = np.asarray(lengths if isinstance(lengths, np.ndarray) else list(lengths), dtype=np.intp)
        return cls(np.concatenate(([0], np.cumsum(counts))).astype(np.intp))

    @classmethod
    def of_sorted(cls, number: Ints, count: int) -> Self:
        """`count` segments, of rows that tell (in rising order) the segment that they belong to."""
        return cls(np.searchsorted(number, np.arange(count + 1)).astype(np.intp))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def lengths(self) -> Ints:
        return np.diff(self.bounds)

    @cached_property
    def number(self) -> Ints:
        """The segment of each row."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def _filled(self) -> Ints:
        """The segments that have rows."""
        return np.nonzero(self.lengths)[0]

    def where(self, chosen: Mask) -> Segments:
        """The segments of the chosen rows alone: as many, some of them perhaps empty."""
        return Segments.of_lengths(self.count(chosen))

    def spread(self, values: npt.NDArray) -> npt.NDArray:
        """What is told of each segment, at each of its rows."""
        return np.repeat(values, self.lengths)

    @cached_property
    def _long(self) -> list[tuple[int, int, int]]:
        """The segments of many rows: number, first row, end."""
        many = np.nonzero(self.lengths >= _PAIRWISE_FROM)[0]
        return list(zip(many.tolist(), self.bounds[many].tolist(), self.bounds[many + 1].tolist(), strict=True))

    def total(self, values: npt.NDArray) -> npt.NDArray:
        """The sum of all values, 0 of none; of a matrix by column. To the last bit it is that of `numpy.sum`."""
        if values.ndim == 1:
            out = np.bincount(self.number, weights=values, minlength=len(self)).astype(np.float64, copy=False)
            for n, first, end in self._long:
                out[n] = np.add.reduce(values[first:end])
            return out
        out = np.zeros((len(self), *values.shape[1:]), dtype=np.float64)
        if len(self._filled):
            out[self._filled] = np.add.reduceat(values, self.bounds[self._filled], axis=0, dtype=np.float64)
        return out

    def count(self, chosen: Mask) -> Ints:
        """How many rows are chosen."""
        return np.diff(np.concatenate(([0], np.cumsum(chosen, dtype=np.intp)))[self.bounds])

    def any(self, chosen: Mask) -> Mask:
        return self.count(chosen) > 0

    def all(self, chosen: Mask) -> Mask:
        """Whether all rows are chosen, as those of an empty segment are."""
        return self.count(chosen) == self.lengths

    def mean(self, values: npt.NDArray, weights: Floats | None = None) -> Floats:
        """The mean of what is known, by weight; NaN where what is known weighs nothing."""
        known = ~np.isnan(values)
        if not known.all():
            return self.where(known).mean(values[known], None if weights is None else weights[known])
        if weights is None:
            return over(self.total(values), self.lengths.astype(np.float64))
        return over(self.total(values * weights), self.total(weights))

    def deviation(self, values: Floats) -> Floats:
        """The standard deviation of what is known."""
        return np.sqrt(self.mean((values - self.spread(self.mean(values))) ** 2))

    def highest(self, values: Floats) -> Floats:
        return self._reduced(np.fmax, values)

    def lowest(self, values: Floats) -> Floats:
        return self._reduced(np.fmin, values)

    def _reduced(self, ufunc: np.ufunc, values: Floats) -> Floats:
        out = np.full(len(self), np.nan)
        if len(self._filled):
            out[self._filled] = ufunc.reduceat(values, self.bounds[self._filled])
        return out

    def quantile(self, values: Floats, share: float) -> Floats:
        """The quantile of what is known, straight between its neighbours (as `numpy.percentile` forms it)."""
        ranked, known = self._ranked(values)
        place = np.maximum(known - 1, 0) * share
        low = np.floor(place).astype(np.intp)
        part = place - low
        a, b = self._picked(ranked, low), self._picked(ranked, np.minimum(low + 1, np.maximum(known - 1, 0)))
        # From the nearer of the two, so that equal values give that very value.
        return np.where(known > 0, np.where(part >= 0.5, b - (b - a) * (1 - part), a + (b - a) * part), np.nan)

    def median(self, values: Floats) -> Floats:
        """The median of what is known."""
        ranked, known = self._ranked(values)
        a, b = self._picked(ranked, np.maximum(known - 1, 0) // 2), self._picked(ranked, known // 2)
        return np.where(known > 0, np.where(known % 2 == 1, b, (a + b) / 2), np.nan)

    def _ranked(self, values: Floats) -> tuple[Floats, Ints]:
        """The values in rising order within each segment, NaN last, and how many are known."""
        ranked = values.copy()
        many = np.nonzero(self.lengths > 1)[0]
        # A call to sort a few rows costs less than a sort of all rows by two keys.
        for first, end in zip(self.bounds[many].tolist(), self.bounds[many + 1].tolist(), strict=True):
            ranked[first:end].sort()
        return ranked, self.count(~np.isnan(values))

    def _picked(self, ranked: Floats, place: Ints) -> Floats:
        """The value at a place within each segment; NaN where that is beyond its end."""
        if not len(ranked):
            return np.full(len(self), np.nan)
        at = self.bounds[:-1] + place
        return np.where(place < self.lengths, ranked[np.minimum(at, len(ranked) - 1)], np.nan)

    def correlation(self, ones: Floats, others: Floats) -> Floats:
        """The correlation of two columns without gaps; NaN where one of them does not vary."""
        a, b = (values - self.spread(self.mean(values)) for values in (ones, others))
        with np.errstate(invalid="ignore", divide="ignore"):
            found = self.total(a * b) / np.sqrt(self.total(a * a)) / np.sqrt(self.total(b * b))
        return np.clip(found, -1.0, 1.0)

    def grouped(self, keys: npt.NDArray[np.integer]) -> Groups:
        """Rows of one key within one segment as a group."""
        return grouped(self.number, keys, len(self))


@dataclass(frozen=True)
class Groups:
    """Groups of rows in order of owner and key. `of_row`: the group of each row; `keys`: the key of each group; `each`:
    the groups of each owner."""

    of_row: Ints
    keys: Ints
    each: Segments

    def __len__(self) -> int:
        return len(self.keys)


def grouped(owner: Ints, keys: npt.NDArray[np.integer], owners: int) -> Groups:
    """Rows of one owner (0 to `owners`) and key as a group, wherever they stand."""
    if not len(keys):
        none = np.empty(0, dtype=np.intp)
        return Groups(none, none, Segments.of_lengths(np.zeros(owners, dtype=np.intp)))
    least = int(keys.min())
    width = int(keys.max()) - least + 1
    pairs, group = np.unique(owner * width + (keys - least), return_inverse=True)
    return Groups(
        group.astype(np.intp), (pairs % width + least).astype(np.intp), Segments.of_sorted(pairs // width, owners)
    )


def over(sums: Floats, weights: Floats) -> Floats:
    """Sums over weights; NaN where there is no weight."""
    return np.divide(sums, weights, out=np.full(len(sums), np.nan), where=weights > 0)


def group_means(values: Floats, group: Ints, count: int, weights: Floats | None = None) -> Floats:
    """The mean of what is known of each group, by weight, wherever its rows stand; NaN where nothing is known."""
    known = ~np.isnan(values)
    weight = None if weights is None else weights[known]
    sums = np.bincount(
        group[known], weights=values[known] if weight is None else values[known] * weight, minlength=count
    )
    return over(sums.astype(np.float64), np.bincount(group[known], weights=weight, minlength=count).astype(np.float64))


def group_highest(values: Floats, group: Ints, count: int) -> Floats:
    """The highest known value of each group, wherever its rows stand; NaN where nothing is known."""
    out = np.full(count, -np.inf)
    np.fmax.at(out, group, values)
    return np.where(np.isfinite(out), out, np.nan)


def runs(*columns: npt.NDArray, breaks: Mask | None = None) -> Mask:
    """Rows with which a run begins: where a column changes from one row to the next, or there is a break before it."""
    starts = np.ones(len(columns[0]), dtype=np.bool_)
    if len(starts) > 1:
        changed = [column[1:] != column[:-1] for column in columns]
        starts[1:] = np.logical_or.reduce(changed if breaks is None else [*changed, breaks])
    return starts
