"""Rows of a table as arrays by column: for many small selections, where a pandas object for each would be slow."""

from __future__ import annotations

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
    return {name: array.matrix if isinstance(array, BinsArray) else array.to_numpy() for name, array in columns}


def with_one_nothing(table: pd.DataFrame) -> pd.DataFrame:
    """The table, in which all columns of missing numbers share one read-only array (saves memory)."""
    nothing = np.full(len(table), np.nan)
    nothing.flags.writeable = False
    empty = {name for name in table.columns if table[name].dtype == np.float64 and table[name].isna().all()}
    arrays = {str(name): nothing if name in empty else table[name].array for name in table.columns}
    return pd.DataFrame(arrays, index=table.index, copy=False)


def rows_of(table: pd.DataFrame) -> ColumnRows:
    """All rows of a table."""
    return ColumnRows(columns_of(table), np.arange(len(table)))


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """The rows `at` of a table. `behind`: columns of another table, in which each row of this one has the row `row`."""

    table: Columns
    at: Ints
    behind: Columns = field(default_factory=dict)
    row: Ints = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, name: str) -> npt.NDArray:
        return self.table[name][self.at] if name in self.table else self.behind[name][self.row[self.at]]

    def __contains__(self, name: str) -> bool:
        return name in self.table or name in self.behind

    def taken(self, at: Ints) -> ColumnRows:
        """Other rows of the same table."""
        return replace(self, at=at)

    def where(self, mask: npt.NDArray[np.bool_]) -> ColumnRows:
        return self.taken(self.at[mask])

    def frame(self, names: Iterable[str]) -> pd.DataFrame:
        """These columns, as far as they exist, indexed by row number."""
        return pd.DataFrame({name: self[name] for name in names if name in self}, index=pd.Index(self.at), copy=False)

    def floats(self, name: str) -> Floats:
        return self[name].astype(np.float64, copy=False)

    def flags(self, name: str) -> npt.NDArray[np.bool_]:
        return self[name].astype(np.bool_, copy=False)

    def groups(self, name: str) -> dict[str, ColumnRows]:
        """The rows of each text of a column, in order of appearance; rows without one are left out."""
        indices = pd.Series(self.at).groupby(self[name], sort=False).groups
        return {str(text): self.taken(self.at[at]) for text, at in indices.items()}

    def sum(self, name: str) -> float:
        """The sum of the known values, 0 without any."""
        return float(np.nansum(self.floats(name)))

    def mean(self, name: str) -> float:
        """The mean of the known values; NaN without any."""
        values = self.floats(name)
        return float(np.nan if np.isnan(values).all() else np.nanmean(values))
