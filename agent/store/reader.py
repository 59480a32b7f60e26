"""Reads any database of ours, live, stopped or copied, and never writes a byte.

A file brings its own schema: its tables must be those that we ship, and where its views are not ours to the letter,
ours are put over its tables as temporary ones. So nothing that its maker wrote in SQL runs.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Literal

from ...rules.base.errors import NothingToDo, StoreError, UsageError
from .bounds import Meter, Parameters, Rows, allow_reading, bounds_of, disk_bytes, hold
from .database import foreign_error, read_header, schema_sql, schema_version, version_error
from .disk_errors import damaged_error, said_by

MAX_TEXT = 4096  # the agent's longest text is 1 kB; a longer one is cut where it is read
_REMEDY = "Take a snapshot of it with 'skuwise agent snapshot' on the node, or leave the file out."


class Reader(sqlite3.Connection):
    """A read-only connection to one database (`open_reader`), as a context closed at the end. `execute` is without
    bounds; `fetch` and `parts` are bounded. An open cursor holds a transaction, and the writer's log."""

    address = ""  # the URI by which it was opened
    path = Path()
    version = 0  # the schema's, major x 1000 + minor
    meter = Meter(bounds_of(0))  # each has its own

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False

    def fetch(self, sql: str, parameters: Parameters = ()) -> Rows:
        """All rows of a SELECT of ours, within what is left of this reading's bounds. Raises StoreError."""
        return [row for part in self.parts(sql, parameters) for row in part]

    def parts(self, sql: str, parameters: Parameters = ()) -> Iterator[Rows]:
        """The same, some thousand rows at a time. Raises StoreError."""
        self.set_authorizer(allow_reading)
        try:
            yield from self.meter.parts(self, sql, parameters)
        except (sqlite3.Error, MemoryError) as error:
            why = said_by(error) if isinstance(error, sqlite3.Error) else "reading it takes too much memory"
            raise StoreError(f"{self.path} cannot be read: {why}.", _REMEDY) from error
        finally:
            self.set_authorizer(None)


def decoded(raw: bytes) -> str:
    """What is no valid UTF-8 is shown as such, and does not keep the rest from being read."""
    text = raw.decode("utf-8", "replace")
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


@cache
def _shipped() -> tuple[dict[str, tuple[str, dict[str, str]]], list[str]]:
    """Our schema: of each table its statement and its columns, and the statements of the views."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema_sql())
        made = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        tables = {name: (sql, _columns(connection, name)) for kind, name, sql in made if kind == "table"}
    return tables, [sql for kind, _, sql in made if kind == "view"]


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """Columns that are kept, with their types; those that are computed are not among them."""
    rows = connection.execute(f"PRAGMA main.table_xinfo({table})").fetchall()
    return {name: type_ for _, name, type_, _, _, _, hidden in rows if not hidden}


def _views_to_put(reader: Reader) -> list[str]:
    """The statements that put our views over the file's tables; none where it has them already. Raises StoreError for
    a table that is not as we ship it; a newer minor version may have added columns."""
    found = reader.meter.fetch(reader, "SELECT name, sql FROM main.sqlite_master WHERE sql IS NOT NULL")
    made = {str(name): str(sql) for name, sql in found}
    tables, views = _shipped()
    for name, (sql, columns) in tables.items():
        there = made.get(name, "")
        is_plain = there.startswith("CREATE TABLE")
        if there != sql and not (is_plain and columns.items() <= _columns(reader, name).items()):
            raise StoreError(f"{reader.path} cannot be read: it has no table {name!r} as skuwise makes it.", _REMEDY)
    temporary = [sql.replace("CREATE VIEW", "CREATE TEMP VIEW", 1) for sql in views]
    return [] if set(views) <= set(made.values()) else temporary


def open_reader(path: Path) -> Reader:
    """Open a database for reading. Raises UsageError (no such file), NothingToDo (nothing in it yet), StoreError."""
    if not path.exists():
        raise UsageError(f"{path} does not exist.", "Name a database with --db, or start the agent to make one.")
    try:
        header = read_header(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.", "Name a file that you may read.") from error
    if header.empty:
        raise NothingToDo(f"{path} holds nothing yet.", "Let the agent run for a while, or name another database.")
    if not header.ours:
        raise foreign_error(path, header)
    for beside in (f"{os.path.realpath(path)}{suffix}" for suffix in ("-wal", "-shm", "-journal")):
        if os.path.lexists(beside) and not stat.S_ISREG(os.lstat(beside).st_mode):  # whoever opens it may wait forever
            raise StoreError(f"{path} cannot be read: {beside} is no ordinary file.", "Remove that.")
    address = path.absolute().as_uri()
    try:
        try:
            return _open(path, f"{address}?mode=ro")
        except sqlite3.OperationalError:
            # As an unchanging file only where nobody can be writing: no log, and no way to make one.
            writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
            if writable or os.path.exists(f"{path}-wal"):  # noqa: PTH110
                raise
            return _open(path, f"{address}?mode=ro&immutable=1")
    except UnicodeDecodeError as error:  # what SQLite says of a damaged schema repeats its bytes
        raise damaged_error(path, sqlite3.DatabaseError("its schema is damaged")) from error
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise damaged_error(path, error) from error
        remedy = "Read a copy made with 'skuwise agent snapshot', or copy it with its -wal to a writable folder."
        raise StoreError(f"{path} cannot be read: {said_by(error)}.", remedy) from error


def _open(path: Path, address: str) -> Reader:
    """A reader with our views over the file's tables where they are not its own, that can write nothing."""
    reader = sqlite3.connect(address, uri=True, timeout=5.0, isolation_level=None, factory=Reader)
    try:
        bounds = bounds_of(disk_bytes(path))
        reader.path, reader.address, reader.meter = path, address, Meter(bounds)
        reader.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.cell_bytes)
        reader.version = schema_version(reader)
        if (refused := version_error(path, reader.version)) is not None:
            raise refused
        for sql in _views_to_put(reader):
            reader.execute(sql)
        hold(reader, bounds)
        reader.text_factory = decoded
    except BaseException:
        reader.close()
        raise
    return reader
