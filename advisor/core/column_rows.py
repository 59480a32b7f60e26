"""Rows of a table as arrays by column, for many small selections, where a pandas object for each would be slow; and
seconds per bin as a column, stored as one matrix: separate arrays would take three times the memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionArray, ExtensionDtype, take

from ...agent.metrics import BIN_EDGES

WIDTH = len(BIN_EDGES)
Matrix = npt.NDArray[np.float32]


class BinsDtype(ExtensionDtype):
    """Seconds in each bin of ``BIN_EDGES``; None where there are none."""

    name = "bins"
    type = np.ndarray
    na_value = None  # type: ignore[assignment] - pandas itself sets a plain attribute here

    @classmethod
    def construct_array_type(cls) -> "type[BinsArray]":  # type: ignore[override] - a class method before pandas 3
        return BinsArray


class BinsArray(ExtensionArray):
    """Cells are arrays of seconds, or None. `matrix`: rows x bins (float32); a missing row is NaN."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix

    @classmethod
    def missing(cls, count: int) -> "BinsArray":
        return cls(np.full((count, WIDTH), np.nan, dtype=np.float32))

    @classmethod
    def of(cls, values: Iterable[object]) -> Self:
        """From one array of seconds a row; anything but an array of `WIDTH` is missing."""
        missing = np.full(WIDTH, np.nan)
        cells = [cell if isinstance(cell, np.ndarray) and cell.shape == (WIDTH,) else missing for cell in values]
        return cls(np.array(cells, dtype=np.float32).reshape(-1, WIDTH))

    @classmethod
    def _from_sequence(cls, scalars: Iterable[object], *, dtype: object = None, copy: bool = False) -> Self:  # noqa: ARG003
        return cls.of(scalars)

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[Self]) -> Self:
        return cls(np.concatenate([part.matrix for part in to_concat]))

    @property
    def dtype(self) -> BinsDtype:
        return BinsDtype()

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, item: Any) -> Any:  # noqa: ANN401 - as pandas has it
        if isinstance(item, (int, np.integer)):
            row = self.matrix[item]
            return None if np.isnan(row[0]) else row
        return type(self)(self.matrix[pd.api.indexers.check_array_indexer(self, item)])

    def __eq__(self, other: object) -> Any:  # noqa: ANN401
        if not isinstance(other, BinsArray):
            return NotImplemented
        return (self.matrix == other.matrix).all(axis=1)

    __hash__ = None  # type: ignore[assignment]

    def isna(self) -> npt.NDArray[np.bool_]:
        return np.isnan(self.matrix[:, 0])

    def take(self, indexer: Any, *, allow_fill: bool = False, fill_value: object = None) -> Self:  # noqa: ANN401, ARG002
        rows = take(self.matrix, np.asarray(indexer), allow_fill=allow_fill, fill_value=np.nan)
        return type(self)(np.asarray(rows, dtype=np.float32))

    def copy(self) -> Self:
        return type(self)(self.matrix.copy())


def bins_quantiles(totals: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.float64]:
    """Upper edge of the bin that holds this quantile of each row's seconds: an upper bound; NaN where there are none.
    The last bin ends at 1."""
    seconds = totals.sum(axis=1)
    position = (np.cumsum(totals, axis=1) < (share * seconds - 1e-9)[:, None]).sum(axis=1)
    edges = np.array([*BIN_EDGES[1:], 1.0])
    return np.where(seconds > 0, edges[np.minimum(position, len(edges) - 1)], np.nan)


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

    def taken(self, at: Ints) -> "ColumnRows":
        """Other rows of the same table."""
        return replace(self, at=at)

    def where(self, mask: npt.NDArray[np.bool_]) -> "ColumnRows":
        return self.taken(self.at[mask])

    def frame(self, names: Iterable[str]) -> pd.DataFrame:
        """These columns, as far as they exist, indexed by row number."""
        return pd.DataFrame({name: self[name] for name in names if name in self}, index=pd.Index(self.at), copy=False)

    def floats(self, name: str) -> Floats:
        return self[name].astype(np.float64, copy=False)

    def flags(self, name: str) -> npt.NDArray[np.bool_]:
        return self[name].astype(np.bool_, copy=False)

    def groups(self, name: str) -> "dict[str, ColumnRows]":
        """The rows of each text of a column, in order of appearance; rows without one are left out."""
        indices = pd.Series(self.at).groupby(self[name], sort=False).groups
        return {str(text): self.taken(self.at[at]) for text, at in indices.items()}

    def mean(self, name: str) -> float:
        """The mean of the known values; NaN without any."""
        values = self.floats(name)
        return float(np.nan if np.isnan(values).all() else np.nanmean(values))
