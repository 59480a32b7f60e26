"""What was read of files, as bytes in a file: a line of JSON that says what follows, then plain arrays of numbers.

Nothing in it can name code to run, whoever writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from ....rules.base.errors import NothingToDo, SkuwiseError, SourceError, StoreError, UsageError
from ...core.coded_text import CodedText
from .arrays import Array, columns_told, read_array, table_read, write_arrays
from .database import Parts

Told = dict[Path, Parts | SkuwiseError]

_ERRORS = {kind.__name__: kind for kind in (NothingToDo, SkuwiseError, SourceError, StoreError, UsageError)}


def write_told(told: Mapping[Path, Parts | SkuwiseError], stream: IO[bytes]) -> None:
    """`told` to a binary stream.

    Raises:
        TypeError: a table has a column that is neither float64, nor bins, nor text.
        KeyError: an error is of a class that `read_told` would not know.
    """
    arrays: list[Array] = []
    files = [{"path": str(path), **_file(entry, arrays)} for path, entry in told.items()]
    stream.write(json.dumps(files).encode() + b"\n")
    write_arrays(arrays, stream)


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
    tables = {name: [columns_told(table, arrays) for table in tables] for name, tables in entry.tables.items()}
    return {"notes": [asdict(note) for note in entry.notes], "tables": tables}


def _entry(file: Mapping[str, Any], stream: IO[bytes]) -> Parts | SkuwiseError:
    if "error" in file:
        name, message, remedy = file["error"]
        return _ERRORS[name](message, remedy)
    tables = {
        name: [table_read(columns, lambda: read_array(stream)) for columns in tables]
        for name, tables in file["tables"].items()
    }
    return Parts(tables, [CodedText(**note) for note in file["notes"]])
