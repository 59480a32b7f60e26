"""The one who reads: any database of ours, live, stopped or copied, and never writes a byte."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from ...rules.errors import NothingToDo, StoreError, UsageError
from .migrations import SCHEMA_VERSION, damaged_error, foreign_error, read_header, schema_version

_BUSY_SECONDS = 5.0


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

        self.set_authorizer(allow)
        try:
            with closing(self.execute(sql, parameters)) as cursor:
                return cursor.fetchall()
        except sqlite3.Error as error:
            raise StoreError(
                f"The query cannot be answered: {error}.",
                f"Write one SELECT on the views: {', '.join(sorted(public))}.",
            ) from error
        finally:
            self.set_authorizer(None)


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
    try:
        reader.execute("PRAGMA query_only = 1")
        # Looks at the file, and has SQLite register json_each, which `query` would take for a change of the schema.
        reader.execute("SELECT count(*) FROM sqlite_master, json_each('[]')").fetchone()
    except BaseException:
        reader.close()
        raise
    return reader


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
