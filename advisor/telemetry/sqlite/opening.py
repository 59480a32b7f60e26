"""Databases opened for reading: statements of ours, within the bounds of a file of its size, and their tables."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ....agent.store.reading.queries import Query
from ....agent.store.reading.reader import Reader, open_reader
from ..plausible import Lost
from ..resolution import Only, concat
from ..tables import to_table

DatabaseReader = Reader
open_database = open_reader


def read_tables(
    reader: DatabaseReader,
    query: Query,
    parameters: Mapping[str, float],
    lost: Lost | None = None,
    only: Only | None = None,
) -> list[pd.DataFrame]:
    """All rows of a query of ours in tables of some thousand rows. `lost` counts what was not believed; `only`: rows
    with these values of a column. Raises StoreError."""
    sql, given = query.sql, dict[str, object](parameters)
    if only is not None:
        column, values = only
        given |= {f"only{n}": value for n, value in enumerate(sorted(values))}
        sql = f"{sql} AND {column} IN ({', '.join(f':only{n}' for n in range(len(values)))})"
    return [to_table(rows, query, lost) for rows in reader.parts(sql, given)]


def read_table(
    reader: DatabaseReader, query: Query, parameters: Mapping[str, float], lost: Lost | None = None
) -> pd.DataFrame:
    """The same as one table."""
    return concat(read_tables(reader, query, parameters, lost), query.columns)
