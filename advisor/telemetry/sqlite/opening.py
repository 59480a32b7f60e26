"""Databases opened for reading: statements of ours, within the bounds of a file of its size, and their answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ....agent.store.file.disk_errors import said_by
from ....agent.store.reading.bounds import allow_reading
from ....agent.store.reading.reader import Reader, open_reader
from ....rules.base.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd

    from ....agent.store.reading.queries import Query
    from ....agent.store.reading.stored_rollups import StoredRollup
    from ..only import Only
    from ..packing import PackedColumn, Unpacked
    from ..plausible import Lost
    from .stored_rows import StoredTables

_REMEDY = "Take a snapshot of it, or remove the file from --db."
# Rows are made columns when so many wait: a long text stands in each, but is kept once.
_ROWS_AT_ONCE = 4096

Parameters = Mapping[str, object]


@contextmanager
def open_database(path: Path) -> Iterator[DatabaseReader]:
    """A database, open as long as the context lasts.

    Raises UsageError (no such file), NothingToDo (nothing in it yet), StoreError.
    """
    with open_reader(path, on_disk=True) as reader:
        reader.text_factory = bytes
        reader.set_authorizer(allow_reading)
        yield DatabaseReader(reader, path)


class DatabaseReader:
    """One open database. Raises StoreError from every method where it cannot be read."""

    def __init__(self, reader: Reader, path: Path) -> None:
        self._reader, self.path = reader, path

    def fetch(self, sql: str, parameters: Parameters | None = None) -> list[tuple[object, ...]]:
        """All rows of a SELECT of ours. What is no valid UTF-8 is shown as such."""
        return self._ask(sql, parameters or {}, "").rows()

    def table(self, query: Query, parameters: Parameters, lost: Lost | None = None) -> pd.DataFrame:
        """All rows of a query of ours, as `to_table` gives them; `lost` counts what was not believed."""
        from ..resolution import concat  # noqa: PLC0415
        from ..tables import columns_to_table  # noqa: PLC0415

        stored = self.rollup(query, parameters, lost)
        if stored is not None:
            return concat(stored, query.columns)
        try:
            return columns_to_table(self.columns(query, parameters), query, lost)
        except (ValueError, IndexError) as error:
            raise StoreError(f"{self.path} cannot be read: it holds invalid data.", _REMEDY) from error

    def tables(
        self,
        query: Query,
        parameters: Parameters,
        lost: Lost | None = None,
        *,
        only: Only | None = None,
    ) -> Sequence[pd.DataFrame]:
        """The same in several tables, in no order. `only`: of whom they are wanted; those of others may come, too."""
        stored = self.rollup(query, parameters, lost, only=only)
        return [self.table(query, parameters, lost)] if stored is None else stored

    def rollup(
        self,
        query: Query,
        parameters: Parameters,
        lost: Lost | None = None,
        *,
        only: Only | None = None,
    ) -> Sequence[pd.DataFrame] | None:
        """The rows of a view of rollups, from its tables; None for another query, or where they are not plain."""
        from .stored_rows import rollup_of  # noqa: PLC0415

        stored = rollup_of(query)
        return None if stored is None else self._tables.tables(stored, parameters, lost, only)

    def devices(self, stored: StoredRollup) -> Unpacked:
        """The devices of a rollup, as they came."""
        return self._tables.devices(stored)

    def sets_of_counts(self) -> Mapping[int, bytes]:
        """The counts of samples that rollups name, by id."""
        return self._tables.sets_of_counts()

    @cached_property
    def _tables(self) -> StoredTables:
        from .stored_rows import StoredTables  # noqa: PLC0415

        return StoredTables(self.columns)

    def columns(self, query: Query, parameters: Parameters) -> Unpacked:
        """The columns of a query of ours as they came: of the right kind, and not yet held against any range."""
        forms = "t" * len(query.text) + "n" * len(query.numbers) + "t" * len(query.bins)
        return self._ask(query.sql, parameters, forms)

    def _ask(self, sql: str, parameters: Parameters, forms: str) -> Unpacked:
        from ..packing import ANYTHING, PackedColumn, Unpacked  # noqa: PLC0415

        columns = [PackedColumn(form) for form in forms]
        waiting: list[tuple[object, ...]] = []
        count = held = 0
        meter = self._reader.meter
        try:
            for part in meter.parts(self._reader, self._reader.over_tables(sql), dict(parameters)):
                columns = columns or [PackedColumn(ANYTHING) for _ in part[0]]
                waiting += part
                count += len(part)
                if len(waiting) >= _ROWS_AT_ONCE:
                    _add(columns, waiting)
                    before, held = held, sum(column.weight for column in columns)
                    meter.charge(held - before)
            _add(columns, waiting)
            meter.charge(sum(column.weight for column in columns) - held)
        except (sqlite3.Error, MemoryError) as error:
            why = said_by(error) if isinstance(error, sqlite3.Error) else "reading it takes too much memory"
            raise StoreError(f"{self.path} cannot be read: {why}.", _REMEDY) from error
        return Unpacked(count, tuple(column.told() for column in columns))


def _add(columns: Sequence[PackedColumn], rows: list[tuple[object, ...]]) -> None:
    if rows:
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
            column.add(cells)
        rows.clear()
