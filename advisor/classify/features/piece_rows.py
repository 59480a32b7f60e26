"""The rows of many pieces of workloads at once: what was measured in each, and how much of it is the workload's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.column_rows import ColumnRows, Columns
from ...core.segments import Segments

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowTables:
    """The rows of a frame's `gpu` by column, with measures; `uuid`: the number of each row's GPU, by uuid."""

    gpu: Columns
    measures: Columns
    uuid: Ints


@dataclass(frozen=True)
class PieceRows:
    """The rows of some pieces, piece (segment) by piece. `at`: of the tables; `seconds`: observed of each."""

    tables: RowTables
    segments: Segments
    at: Ints
    seconds: Floats

    @classmethod
    def of(cls, tables: RowTables, pieces: Sequence[ColumnRows]) -> PieceRows:
        """`pieces`: rows of `Attribution.workload_rows`, of each."""
        at = np.concatenate([np.empty(0, dtype=np.intp), *(piece["row"] for piece in pieces)])
        seconds = np.concatenate([np.empty(0), *(column_rows["seconds"] for column_rows in pieces)])
        return cls(tables, Segments.of_lengths([len(column_rows) for column_rows in pieces]), at, seconds)

    def where(self, chosen: Mask) -> PieceRows:
        return PieceRows(self.tables, self.segments.where(chosen), self.at[chosen], self.seconds[chosen])

    @property
    def uuid(self) -> Ints:
        return self.tables.uuid[self.at]

    def measured(self, name: str) -> Floats:
        return self.tables.measures[name][self.at].astype(np.float64, copy=False)

    def flags(self, name: str) -> Mask:
        return self.tables.measures[name][self.at].astype(np.bool_, copy=False)

    def gpu(self, name: str) -> Floats:
        return self.tables.gpu[name][self.at].astype(np.float64, copy=False)

    def mean(self, name: str) -> Floats:
        """The mean of a measure by time; NaN where nothing is known."""
        return self.segments.mean(self.measured(name), self.seconds)
