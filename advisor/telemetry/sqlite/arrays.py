"""Tables as plain arrays, and back. What says which columns they have is JSON: nothing in it can name code to run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.histogram_array import BinsArray
from ..tables import empty_table

Array = npt.NDArray[Any]


def packed_tables(tables: Mapping[str, pd.DataFrame], told: Mapping[str, object]) -> bytes:
    """Tables by name, and what is `told` beside them: a line of JSON, then all arrays as they lie in memory.

    Raises TypeError as `columns_told`.
    """
    arrays: list[Array] = []
    columns = {name: columns_told(table, arrays) for name, table in tables.items()}
    shapes = [[array.dtype.str, list(array.shape)] for array in arrays]
    head = json.dumps({**told, "tables": columns, "arrays": shapes}).encode()
    # The arrays begin where the widest of their numbers may, and the widest come first.
    line = head.ljust(-(-(len(head) + 1) // _ALIGNED) * _ALIGNED - 1) + b"\n"
    return b"".join(
        [line, *(np.ascontiguousarray(array).tobytes().ljust(_room(array.nbytes), b"\0") for array in arrays)]
    )


def head_of(content: memoryview) -> Mapping[str, Any]:
    """What was told beside packed tables. Raises ValueError."""
    line = bytes(content[:_MOST_HEAD]).partition(b"\n")[0]
    head = json.loads(line)
    if not isinstance(head, dict):
        raise ValueError("no head")
    return {**head, "head_bytes": len(line) + 1}


def unpacked_tables(content: memoryview) -> dict[str, pd.DataFrame]:
    """The tables of `packed_tables`, whose numbers lie in `content` and cannot be changed. Raises ValueError."""
    head = head_of(content)
    try:
        at = int(head["head_bytes"])
        arrays: list[Array] = []
        for kind, shape in head["arrays"]:
            array = np.frombuffer(content, dtype=_KINDS[kind], count=math.prod(shape), offset=at).reshape(shape)
            arrays.append(array)
            at += _room(array.nbytes)
        if at != len(content):
            raise ValueError("another size")
        rest = iter(arrays)
        return {str(name): table_read(columns, lambda: next(rest)) for name, columns in head["tables"].items()}
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError) as error:
        raise ValueError(f"not tables: {error!r}") from error


_ALIGNED = 8
_MOST_HEAD = 32 << 20
_KINDS = {kind.str: kind for kind in (np.dtype("<f8"), np.dtype("<f4"), np.dtype("<i4"))}


def _room(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def write_arrays(arrays: Sequence[Array], stream: IO[bytes]) -> None:
    """Arrays to a stream, one after the other."""
    for array in arrays:
        np.lib.format.write_array(stream, array, allow_pickle=False)


def read_array(stream: IO[bytes]) -> Array:
    """The next of them."""
    return np.lib.format.read_array(stream, allow_pickle=False)


def columns_told(table: pd.DataFrame, arrays: list[Array]) -> list[list[object]]:
    """Each column's name, its kind and its distinct texts; into `arrays`: one of all numbers, then each other column's.

    Raises TypeError: a column is neither float64, nor bins, nor text.
    """
    if table.empty:
        return [[name, "none", []] for name in table.columns]
    columns: list[list[object]] = []
    numbers = [name for name in table.columns if table[name].dtype == np.float64]
    arrays.append(table[numbers].to_numpy().T)
    for name in table.columns:
        column = table[name]
        if column.dtype == np.float64:
            columns.append([name, "number", []])
        elif isinstance(column.array, BinsArray):
            columns.append([name, "bins", []])
            arrays.append(column.array.matrix)
        elif column.dtype == object:
            codes, distinct = pd.factorize(column.to_numpy())
            if not all(isinstance(text, str) for text in distinct):
                raise TypeError(f"column {name!r} holds more than text")
            columns.append([name, "text", list(distinct)])
            arrays.append(codes.astype(np.int32))
        else:
            raise TypeError(f"column {name!r} is of type {column.dtype}")
    return columns


def table_read(columns: list[list[Any]], take: Callable[[], Array]) -> pd.DataFrame:
    """The table of which `columns_told` told. `take`: gives its arrays, one after the other."""
    names = [name for name, _, _ in columns]
    if all(kind == "none" for _, kind, _ in columns):
        return empty_table(names)
    block = take()
    table = pd.DataFrame(block.T, columns=[name for name, kind, _ in columns if kind == "number"], copy=False)
    for n, (name, kind, distinct) in enumerate(columns):
        if kind == "bins":
            table.insert(n, name, pd.Series(BinsArray(take()), copy=False))
        elif kind == "text":
            cells = np.array([*distinct, None], dtype=object)[take()]
            table.insert(n, name, pd.Series(cells, dtype=object, copy=False))
    return table
