"""What was read of files, as bytes in a file: a line of JSON that says what follows, then plain arrays of numbers.

Nothing in it can name code to run, whoever writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.base.errors import NothingToDo, SkuwiseError, SourceError, StoreError, UsageError
from ...core.coded_text import CodedText
from ...core.histogram_array import BinsArray
from ..tables import empty_table
from .database import Parts

Told = dict[Path, Parts | SkuwiseError]

_ERRORS = {kind.__name__: kind for kind in (NothingToDo, SkuwiseError, SourceError, StoreError, UsageError)}
Array = npt.NDArray[Any]


def write_told(told: Mapping[Path, Parts | SkuwiseError], stream: IO[bytes]) -> None:
    """`told` to a binary stream.

    Raises:
        TypeError: a table has a column that is neither float64, nor bins, nor text.
        KeyError: an error is of a class that `read_told` would not know.
    """
    arrays: list[Array] = []
    files = [{"path": str(path), **_file(entry, arrays)} for path, entry in told.items()]
    stream.write(json.dumps(files).encode() + b"\n")
    for array in arrays:
        np.lib.format.write_array(stream, array, allow_pickle=False)


def read_told(stream: IO[bytes]) -> Told:
    """What `write_told` wrote. `stream` has a position: numpy maps what is a file, and of a pipe it cannot.

    Raises:
        ValueError: it is something else, or ends too early.
    """
    try:
        return {Path(file["path"]): _entry(file, stream) for file in json.loads(stream.readline())}
    except (AttributeError, EOFError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"not what was read of files: {error!r}") from error


def _file(entry: Parts | SkuwiseError, arrays: list[Array]) -> dict[str, object]:
    if isinstance(entry, SkuwiseError):
        name = type(entry).__name__
        _ERRORS[name]
        return {"error": [name, entry.message, entry.remedy]}
    tables = {name: [_columns(table, arrays) for table in tables] for name, tables in entry.tables.items()}
    return {"notes": [asdict(note) for note in entry.notes], "tables": tables}


def _entry(file: Mapping[str, Any], stream: IO[bytes]) -> Parts | SkuwiseError:
    if "error" in file:
        name, message, remedy = file["error"]
        return _ERRORS[name](message, remedy)
    tables = {name: [_table(columns, stream) for columns in tables] for name, tables in file["tables"].items()}
    return Parts(tables, [CodedText(**note) for note in file["notes"]])


def _columns(table: pd.DataFrame, arrays: list[Array]) -> list[list[object]]:
    """Each column's name, its kind and its distinct texts; the arrays: one of all numbers, then each other column's."""
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


def _table(columns: list[list[Any]], stream: IO[bytes]) -> pd.DataFrame:
    names = [name for name, _, _ in columns]
    if all(kind == "none" for _, kind, _ in columns):
        return empty_table(names)
    block = _array(stream)
    table = pd.DataFrame(block.T, columns=[name for name, kind, _ in columns if kind == "number"], copy=False)
    for n, (name, kind, distinct) in enumerate(columns):
        if kind == "bins":
            table.insert(n, name, pd.Series(BinsArray(_array(stream)), copy=False))
        elif kind == "text":
            cells = np.array([*distinct, None], dtype=object)[_array(stream)]
            table.insert(n, name, pd.Series(cells, dtype=object, copy=False))
    return table


def _array(stream: IO[bytes]) -> Array:
    return np.lib.format.read_array(stream, allow_pickle=False)
