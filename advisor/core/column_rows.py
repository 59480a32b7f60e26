"""Some rows of a table as arrays by column: hundreds of workloads ask for dozens of columns each, and pandas makes a
Series anew each time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from .histogram_array import BinsArray

Columns = Mapping[str, npt.NDArray]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


def columns_of(table: pd.DataFrame) -> Columns:
    """A table's columns as arrays, those of bins as matrices (`BinsArray`)."""
    columns = ((str(name), table[name].array) for name in table.columns)
    return {name: one.matrix if isinstance(one, BinsArray) else one.to_numpy() for name, one in columns}


def with_one_nothing(table: pd.DataFrame) -> pd.DataFrame:
    """The table, in which one column that cannot be written to stands for every number that is missing in all rows: a
    fleet of which little is exported does not pay for what is not."""
    nothing = np.full(len(table), np.nan)
    nothing.flags.writeable = False
    told: dict[str, object] = {}
    for name in table.columns:
        column = table[name]
        is_number = column.dtype == np.float64
        told[str(name)] = nothing if is_number and bool(np.isnan(column.to_numpy()).all()) else column.array
    return pd.DataFrame(told, index=table.index, copy=False)


def rows_of(table: pd.DataFrame) -> ColumnRows:
    """All rows of a table."""
    return ColumnRows(columns_of(table), np.arange(len(table)))


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """The rows `at` of a table by column, each taken when it is asked for.

    `behind`: more columns, of another table, of which each row of this one has the row `row`.
    """

    table: Columns
    at: Ints
    behind: Columns = field(default_factory=dict)
    row: Ints = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, name: str) -> npt.NDArray:
        own = self.table.get(name)
        return own[self.at] if own is not None else self.behind[name][self.row[self.at]]

    def __contains__(self, name: str) -> bool:
        return name in self.table or name in self.behind

    def taken(self, at: Ints) -> ColumnRows:
        """Other rows of the same table."""
        return replace(self, at=at)

    def where(self, mask: npt.NDArray[np.bool_]) -> ColumnRows:
        return self.taken(self.at[mask])

    def frame(self, names: Iterable[str]) -> pd.DataFrame:
        """These columns, without those that there are not, under the numbers of the rows."""
        return pd.DataFrame({name: self[name] for name in names if name in self}, index=pd.Index(self.at), copy=False)

    def floats(self, name: str) -> Floats:
        return self[name].astype(np.float64, copy=False)

    def flags(self, name: str) -> npt.NDArray[np.bool_]:
        return self[name].astype(np.bool_, copy=False)

    def groups(self, name: str) -> dict[str, ColumnRows]:
        """The rows of each text of a column, in the order in which they come first; those without one are left out."""
        codes, names = pd.factorize(self[name])
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
        return {str(text): self.taken(self.at[order[ends[n] : ends[n + 1]]]) for n, text in enumerate(names)}

    def total(self, name: str) -> float | None:
        """The sum of what is known; None where nothing is."""
        values = self.floats(name)
        value = values[~np.isnan(values)]
        return float(value.sum()) if len(value) else None

    def sum(self, name: str) -> float:
        """The sum of what is known, as of hours: nothing is none of them."""
        return float(np.nansum(self.floats(name)))

    def mean(self, name: str) -> float:
        """The plain mean of what is known; NaN: nothing is."""
        values = self.floats(name)
        value = values[~np.isnan(values)]
        return float(value.mean()) if len(value) else math.nan
