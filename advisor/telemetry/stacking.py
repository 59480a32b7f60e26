"""Many tables under one another in one pass, each row put where it belongs: no copy for joining and one more for order.

What is put together is a fleet's rows, the most memory that a look takes: a table is let go once its rows are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...agent.store.reading.queries import Query
from ..core.histogram_array import WIDTH, BinsArray
from .tables import empty_table


def stacked(parts: list[tuple[int, pd.DataFrame]], query: Query, order: Sequence[str]) -> pd.DataFrame:
    """The rows of all tables in the columns of `query` and ``file``, the number that came with each table; ordered by
    `order`, rows that are equal in it as they came. A number that a table lacks is NaN, bins that it lacks are missing.

    `parts` is empty afterwards.
    """
    parts[:] = [part for part in parts if not part[1].empty]
    if not parts:
        return empty_table([*query.columns, "file"])
    starts = np.cumsum([0, *(len(table) for _, table in parts)])
    count = int(starts[-1])
    place = _places([table for _, table in parts], order)
    numbers = np.full((len(query.numbers), count), np.nan)
    texts = {name: np.full(count, None, dtype=object) for name in query.text}
    bins = {name: np.full((count, WIDTH), np.nan, dtype=np.float32) for name in query.bins}
    files = np.empty(count, dtype=np.int64)
    for n in range(len(parts)):
        file, table = parts[n]
        at = place[starts[n] : starts[n + 1]]
        files[at] = file
        for row, name in enumerate(query.numbers):
            if name in table:
                numbers[row, at] = table[name].to_numpy(float)
        for name, cells in texts.items():
            cells[at] = table[name].to_numpy(object)
        for name, matrix in bins.items():
            if name in table and isinstance(column := table[name].array, BinsArray):
                matrix[at] = column.matrix
        parts[n] = (file, table.iloc[:0])
    parts.clear()
    out = pd.DataFrame(numbers.T, columns=list(query.numbers), copy=False)
    for n, (name, cells) in enumerate(texts.items()):
        out.insert(n, name, pd.Series(cells, dtype=object, copy=False))
    for name, matrix in bins.items():
        out.insert(out.shape[1], name, pd.Series(BinsArray(matrix), copy=False))
    out.insert(out.shape[1], "file", files)
    return out


def _places(tables: Sequence[pd.DataFrame], order: Sequence[str]) -> npt.NDArray[np.intp]:
    """Of each row, in the order of the tables, its place in the order of `order`."""
    keys = [_ranks([table[name].to_numpy() for table in tables]) for name in reversed(order)]
    sorted_rows = np.lexsort(keys)
    place = np.empty(len(sorted_rows), dtype=np.intp)
    place[sorted_rows] = np.arange(len(sorted_rows))
    return place


def _ranks(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One column of all tables, as numbers in the same order; what is missing comes last."""
    values = np.concatenate(columns)
    if values.dtype != object:
        return values
    codes, distinct = pd.factorize(values, sort=True)
    return np.where(codes < 0, len(distinct), codes)
