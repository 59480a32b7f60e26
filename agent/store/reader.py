"""The one who reads: any database of ours, live, stopped or copied, and never writes a byte."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from ...rules.errors import NothingToDo, StoreError, UsageError
from .faults import damaged_error
from .migrations import SCHEMA_VERSION, foreign_error, read_header, schema_version

_BUSY_SECONDS = 5.0

# What a database costs to read is bounded by its size, because its views may be anybody's: the steps of SQLite's
# machine and the rows of one query. Ours took at most 0.1 steps a byte and a row per
# 1300 bytes on simulated fleets; samples and other page sizes leave room for far more.
_STEPS, _STEPS_PER_BYTE = 50_000_000, 50
_ROWS, _BYTES_PER_ROW = 100_000, 8
_STEPS_AT_ONCE = 20_000
_ROWS_AT_ONCE = 10_000
_MAX_CELL_BYTES = 1 << 20
# Functions that a view may use: none that makes much out of little in one step.
_CHEAP = frozenset(
    {
        "abs", "avg", "ceil", "coalesce", "count", "floor", "ifnull", "iif", "json_each", "julianday", "length",
        "lower", "max", "min", "nullif", "round", "strftime", "substr", "sum", "total", "trim", "typeof", "unixepoch",
        "upper",
    }
)  # fmt: skip


class Reader(sqlite3.Connection):
    """A read-only connection to one database: `open_reader` makes it; as a context it is closed at the end.

    `execute` takes any SELECT; `query` those on the public views only. Fetch at once: an open cursor holds a
    transaction, and with it the writer's log.
    """

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False

    address = ""  # the URI by which it was opened

    @property
    def version(self) -> int:
        """The schema's version, major x 1000 + minor."""
        return schema_version(self)

    def views(self) -> tuple[str, ...]:
        """What may be queried: the public views, and ``truth`` where a simulator left it."""
        rows = self.execute(
            "SELECT name FROM sqlite_master WHERE type = 'view' OR (type = 'table' AND name = 'truth') ORDER BY name"
        )
        return tuple(name for (name,) in rows.fetchall())

    def columns(self, view: str) -> tuple[str, ...]:
        """The columns of a view. Raises StoreError for a name that is not one."""
        if view not in self.views():
            raise StoreError(f"There is no view {view!r}.", f"There are: {', '.join(self.views())}.")
        with closing(self.execute(f"SELECT * FROM {view} LIMIT 0")) as cursor:  # noqa: S608 - a name from views()
            return tuple(column[0] for column in cursor.description)

    def fetch(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> list[tuple[object, ...]]:
        """All rows of a SELECT of ours, in one short transaction, whatever views the file brings: recursion, functions
        that make much out of little, and work or rows out of all proportion to the file end it.

        Raises StoreError.
        """
        try:
            file_bytes = self._file_bytes()
            self.set_authorizer(_without_tricks)
            return self._bounded(sql, parameters, file_bytes)
        except sqlite3.Error as error:
            told = "it asks for far more work than its size can need" if _is_interrupt(error) else str(error)
            raise StoreError(
                f"The database cannot be read: {told}.", "Take a snapshot of it, or check it with sqlite3."
            ) from error
        finally:
            self.set_authorizer(None)

    def _file_bytes(self) -> int:
        return self.execute("PRAGMA page_count").fetchone()[0] * self.execute("PRAGMA page_size").fetchone()[0]

    def _bounded(
        self, sql: str, parameters: Sequence[object] | Mapping[str, object], file_bytes: int
    ) -> list[tuple[object, ...]]:
        left = (_STEPS + _STEPS_PER_BYTE * file_bytes) // _STEPS_AT_ONCE

        def spend() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        most = _ROWS + file_bytes // _BYTES_PER_ROW
        self.set_progress_handler(spend, _STEPS_AT_ONCE)
        try:
            with closing(self.execute(sql, parameters)) as cursor:
                rows: list[tuple[object, ...]] = []
                while part := cursor.fetchmany(_ROWS_AT_ONCE):
                    rows += part
                    if len(rows) > most:
                        raise sqlite3.DataError("it gives more rows than its size can hold")
                return rows
        finally:
            self.set_progress_handler(None, _STEPS_AT_ONCE)

    def query(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> list[tuple[object, ...]]:
        """All rows of one SELECT on the public views, in one short transaction. Raises StoreError for anything else."""
        public = frozenset(self.views())
        private = (
            frozenset(
                name for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            )
            - public
        )

        def allow(action: int, table: str | None, column: str | None, _: str | None, inside: str | None) -> int:
            if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE):
                return sqlite3.SQLITE_OK
            # No column is named where rows are only counted.
            if action == sqlite3.SQLITE_READ and (table not in private or inside in public or not column):
                return sqlite3.SQLITE_OK
            return sqlite3.SQLITE_DENY

        file_bytes = self._file_bytes()
        self.set_authorizer(allow)
        try:
            return self._bounded(sql, parameters, file_bytes)
        except sqlite3.Error as error:
            raise StoreError(
                f"The query cannot be answered: {error}.",
                f"Write one SELECT on the views: {', '.join(sorted(public))}.",
            ) from error
        finally:
            self.set_authorizer(None)


def _without_tricks(action: int, _: str | None, name: str | None, __: str | None, ___: str | None) -> int:
    cheap = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (
        action == sqlite3.SQLITE_FUNCTION and name in _CHEAP
    )
    return sqlite3.SQLITE_OK if cheap else sqlite3.SQLITE_DENY


def _is_interrupt(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT"


def open_reader(path: Path) -> Reader:
    """Open a database for reading. Raises UsageError (no such file), NothingToDo (nothing in it yet), StoreError."""
    if not path.exists():
        raise UsageError(f"{path} does not exist.", "Name a database with --db, or start the agent to make one.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a database.", "Name a file in it.")
    try:
        header = read_header(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
    if header.empty:
        raise _nothing_yet(path)
    if not header.ours:
        raise foreign_error(path, header)
    try:
        reader = _connect(path)
    except sqlite3.Error as error:
        raise _read_error(path, error) from error
    try:
        _check_version(path, reader.version)
    except BaseException:
        reader.close()
        raise
    return reader


def _check_version(path: Path, version: int) -> None:
    if version == 0:
        raise _nothing_yet(path)
    if version // 1000 > SCHEMA_VERSION // 1000:
        raise StoreError(
            f"{path} was written by a newer skuwise (schema {version // 1000}.{version % 1000}); "
            f"this one reads up to {SCHEMA_VERSION // 1000}.x.",
            "Update skuwise here.",
        )


def _connect(path: Path) -> Reader:
    """Read-only as others may be writing; as an unchanging file only where nobody can be: no log, and no way to make
    one."""
    address = path.absolute().as_uri()
    writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    log = path.with_name(path.name + "-wal")
    try:
        return _try(f"{address}?mode=ro")
    except sqlite3.OperationalError:
        if log.exists() or writable:
            raise
        return _try(f"{address}?mode=ro&immutable=1")


def _try(address: str) -> Reader:
    reader = sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, factory=Reader)
    reader.address = address
    try:
        reader.execute("PRAGMA query_only = 1")
        reader.execute("PRAGMA trusted_schema = 0")
        reader.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
        # A name that is not UTF-8 is shown as such, and does not keep all others from being read.
        reader.text_factory = _text
        # Looks at the file, and has SQLite register json_each, which `query` would take for a change of the schema.
        reader.execute("SELECT count(*) FROM sqlite_master, json_each('[]')").fetchone()
    except BaseException:
        reader.close()
        raise
    return reader


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _nothing_yet(path: Path) -> NothingToDo:
    return NothingToDo(f"{path} holds nothing yet.", "Let the agent run for a while, or name another database.")


def _read_error(path: Path, error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged_error(path, error)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return StoreError(
            f"{path} cannot be read: it has an unfinished log beside it, and its folder is not writable for this user.",
            "Read a copy made with 'skuwise agent snapshot', or copy the file with its -wal to a writable folder.",
        )
    return StoreError(f"{path} cannot be read: {error}.", "Try again, or read a snapshot of it.")
