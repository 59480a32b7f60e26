"""Statistics of many groups of rows at once. NaN is missing: it is ignored, and the result where nothing is known."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Segments:
    """Consecutive rows as segments. `bounds`: the first row of each segment, and the number of rows at the end."""

    bounds: Ints

    @classmethod
    def of_lengths(cls, lengths: Iterable[int]) -> Self:
        return cls(np.concatenate(([0], np.cumsum(np.asarray(lengths, dtype=np.intp)))))

    @classmethod
    def of_sorted(cls, number: Ints, count: int) -> Self:
        """`count` segments of rows whose segment numbers are in rising order."""
        return cls(np.searchsorted(number, np.arange(count + 1)))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def lengths(self) -> Ints:
        return np.diff(self.bounds)

    @cached_property
    def number(self) -> Ints:
        """The segment of each row."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def where(self, chosen: Mask) -> "Segments":
        """The segments of the chosen rows alone: as many, some of them perhaps empty."""
        return Segments.of_lengths(self.count(chosen))

    def spread(self, values: npt.NDArray) -> npt.NDArray:
        """The value of its segment for each row."""
        return np.repeat(values, self.lengths)

    def _reduced(self, ufunc: np.ufunc, values: npt.NDArray, empty: float) -> npt.NDArray:
        out = np.full((len(self), *values.shape[1:]), empty)
        filled = self.lengths > 0
        if filled.any():
            out[filled] = ufunc.reduceat(values, self.bounds[:-1][filled], axis=0, dtype=np.float64)
        return out

    def total(self, values: npt.NDArray) -> npt.NDArray:
        """The sum of all values, 0 of none; of a matrix by column."""
        return self._reduced(np.add, values, 0.0)

    def highest(self, values: Floats) -> Floats:
        return self._reduced(np.fmax, values, np.nan)

    def lowest(self, values: Floats) -> Floats:
        return self._reduced(np.fmin, values, np.nan)

    def count(self, chosen: Mask) -> Ints:
        """The number of chosen rows."""
        return np.bincount(self.number[chosen], minlength=len(self))

    def any(self, chosen: Mask) -> Mask:
        return self.count(chosen) > 0

    def all(self, chosen: Mask) -> Mask:
        return self.count(chosen) == self.lengths

    def mean(self, values: npt.NDArray, weights: Floats | None = None) -> Floats:
        """The weighted mean; NaN where the known values weigh nothing."""
        measured = ~np.isnan(values)
        weight = measured.astype(np.float64) if weights is None else np.where(measured, weights, 0.0)
        return over(self.total(np.where(measured, values, 0.0) * weight), self.total(weight))

    def deviation(self, values: Floats) -> Floats:
        """The standard deviation."""
        return np.sqrt(self.mean((values - self.spread(self.mean(values))) ** 2))

    def quantile(self, values: Floats, share: float) -> Floats:
        """The quantile, linear between neighbors."""
        quantiles = pd.Series(values).groupby(self.number).quantile(share)
        return np.asarray(quantiles.reindex(range(len(self))), dtype=np.float64)

    def median(self, values: Floats) -> Floats:
        return self.quantile(values, 0.5)

    def grouped(self, keys: npt.NDArray[np.integer]) -> "Groups":
        """The rows of one key within one segment as a group."""
        return grouped(self.number, keys, len(self))


@dataclass(frozen=True)
class Groups:
    """Groups of rows, ordered by owner and key. `of_row`: the group of each row; `keys`: of the groups; `each`: the
    groups of each owner."""

    of_row: Ints
    keys: Ints
    each: Segments

    def __len__(self) -> int:
        return len(self.keys)


def grouped(owner: Ints, keys: npt.NDArray[np.integer], owners: int) -> Groups:
    """The rows of one owner (0 to `owners`) and key as a group, wherever they are."""
    least = int(keys.min()) if len(keys) else 0
    width = int(keys.max()) - least + 1 if len(keys) else 1
    pairs, group = np.unique(owner * width + (keys - least), return_inverse=True)
    return Groups(group, pairs % width + least, Segments.of_sorted(pairs // width, owners))


def over(sums: npt.NDArray, weights: npt.NDArray) -> Floats:
    """Sums over weights; NaN where there is no weight."""
    return np.divide(sums, weights, out=np.full(len(sums), np.nan), where=weights > 0)


def group_means(values: Floats, group: Ints, count: int, weights: Floats | None = None) -> Floats:
    """The weighted mean of each group, wherever its rows are."""
    measured = ~np.isnan(values)
    weight = measured.astype(np.float64) if weights is None else np.where(measured, weights, 0.0)
    sums = np.bincount(group, weights=np.where(measured, values, 0.0) * weight, minlength=count)
    return over(sums, np.bincount(group, weights=weight, minlength=count))


def group_highest(values: Floats, group: Ints, count: int) -> Floats:
    """The highest value of each group, wherever its rows are."""
    out = np.full(count, np.nan)
    np.fmax.at(out, group, values)
    return out


def runs(*columns: npt.NDArray, breaks: Mask | None = None) -> Mask:
    """Rows that begin a run: a column changes, or there is a break before the row."""
    starts = np.ones(len(columns[0]), dtype=np.bool_)
    changed = [column[1:] != column[:-1] for column in columns]
    starts[1:] = np.logical_or.reduce(changed if breaks is None else [*changed, breaks])
    return starts
