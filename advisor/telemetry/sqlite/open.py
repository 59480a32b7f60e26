"""Databases opened for reading: which files, and the tables of statements of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ....agent.store.reader import Reader, decoded, open_reader
from ....rules.base.errors import UsageError
from ..queries import Query
from ..resolution import Only
from ..tables import to_table

DatabaseReader = Reader
open_database = open_reader


def database_files(paths: Sequence[Path]) -> list[Path]:
    """The databases that `paths` name: files as they are, folders as the ``*.db`` in them. Raises UsageError."""
    files: list[Path] = []
    for path in paths:
        # A pipe or a link to nothing is left out with a note, like any other file that cannot be read.
        inside = sorted(p for p in path.glob("*.db") if not p.is_dir()) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"No *.db file in folder {path}.", "Use a folder of node databases.")
        files += inside
    if not files:
        raise UsageError("No database given.", "Use --db PATH.")
    return list(dict.fromkeys(files))


def read_tables(
    reader: DatabaseReader,
    query: Query,
    parameters: Mapping[str, float],
    lost: Counter[str] | None = None,
    only: Only | None = None,
) -> list[pd.DataFrame]:
    """All rows of a query of ours in tables of some thousand rows. `lost` counts what was not believed; `only`: rows
    with these values of a column. Raises StoreError."""
    sql, given = query.sql, dict[str, object](parameters)
    if only is not None:
        column, values = only
        given |= {f"only{n}": value for n, value in enumerate(sorted(values))}
        sql = f"{sql} AND {column} IN ({', '.join(f':only{n}' for n in range(len(values)))})"
    reader.text_factory = bytes  # a table decodes each distinct text once
    try:
        return [to_table(rows, query, lost) for rows in reader.parts(sql, given)]
    finally:
        reader.text_factory = decoded
