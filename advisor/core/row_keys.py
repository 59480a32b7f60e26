"""Which GPU each row of a table is of, as numbers: comparing and grouping texts row by row costs more than judging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.intp]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GpuKeys:
    """`keys`: node and uuid of each GPU, in the order in which they come first; `number`: which of them each row is."""

    keys: tuple[Key, ...]
    number: Ints

    @classmethod
    def of(cls, table: pd.DataFrame) -> GpuKeys:
        """Of a table with `node` and `gpu_uuid`."""
        if table.empty:
            return cls((), np.empty(0, dtype=np.intp))
        (node, nodes), (uuid, uuids) = (pd.factorize(table[name]) for name in ("node", "gpu_uuid"))
        number, pairs = pd.factorize(node.astype(np.int64) * len(uuids) + uuid)
        keys = tuple((nodes[pair // len(uuids)], uuids[pair % len(uuids)]) for pair in pairs.tolist())
        return cls(keys, number.astype(np.intp))

    def nodes(self) -> tuple[Ints, npt.NDArray[np.object_]]:
        """The number of each row's node, and the names of the nodes, in the order in which they come first."""
        codes, names = pd.factorize(np.array([node for node, _ in self.keys], dtype=object))
        return codes.astype(np.intp)[self.number], names

    def rows(self) -> Iterator[tuple[Key, Ints]]:
        """Each GPU with the rows of it, in rising order."""
        order = np.argsort(self.number, kind="stable").astype(np.intp)
        ends = np.searchsorted(self.number[order], np.arange(len(self.keys) + 1))
        for n, key in enumerate(self.keys):
            yield key, order[ends[n] : ends[n + 1]]

    def among(self, chosen: Iterable[Key]) -> npt.NDArray[np.bool_]:
        """Whether each row is of one of these GPUs."""
        wanted = set(chosen)
        return np.fromiter((key in wanted for key in self.keys), dtype=np.bool_, count=len(self.keys))[self.number]
