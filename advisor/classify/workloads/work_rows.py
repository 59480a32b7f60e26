"""The rows of telemetry that belong to one workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WorkRows:
    """Rows of a workload in parallel arrays, as in `Attribution.workload_rows`: `row` of the frame's `gpu`, `seconds`
    observed of the workload, whether the row lies within it (`whole`), whether it shares the GPU with another, and its
    `share` of the GPU's time, 0..1."""

    row: Ints
    seconds: Floats
    whole: Mask
    shared: Mask
    share: Floats

    @classmethod
    def of(cls, table: pd.DataFrame) -> WorkRows:
        return cls(
            table["row"].to_numpy(np.intp), table["seconds"].to_numpy(np.float64), table["whole"].to_numpy(np.bool_),
            table["shared"].to_numpy(np.bool_), table["share"].to_numpy(np.float64),
        )  # fmt: skip

    @classmethod
    def joined(cls, parts: Sequence[WorkRows]) -> WorkRows:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def __len__(self) -> int:
        return len(self.row)

    def at(self, chosen: Ints | Mask | slice) -> WorkRows:
        return WorkRows(*(getattr(self, name)[chosen] for name in self.__slots__))
