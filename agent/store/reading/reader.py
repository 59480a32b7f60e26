"""The one who reads: any database of ours, live, stopped or copied, and never writes a byte.

Our views are what is asked. A file brings its own schema: its tables must be those that we ship, and where its views
are not ours to the letter, ours are put over its tables as temporary ones. So nothing that its maker wrote in SQL runs.
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

from ....rules.base.errors import NothingToDo, StoreError, UsageError
from ..file.database import foreign_error, read_header, schema_sql, schema_version, version_error
from ..file.disk_errors import damaged_error, said_by
from .bounds import Meter, Parameters, Rows, allow_reading, bounds_of, disk_bytes, hold

_BUSY_SECONDS = 5.0
# The agent's longest text is 1 kB; a longer one is cut where it is read.
MAX_TEXT = 4096
_REMEDY = "Take a snapshot of it with 'skuwise agent snapshot' on the node, or leave the file out."
_EFFECTIVE = os.access in os.supports_effective_ids


class Reader(sqlite3.Connection):
    """A read-only connection to one database: `open_reader` makes it; as a context it is closed at the end.

    `execute` takes any SELECT, without bounds; `fetch` and `parts` are bounded. Fetch at once: an open cursor holds a
    transaction, and with it the writer's log.
    """

    address = ""  # the URI by which it was opened
    path = Path()
    meter = Meter(bounds_of(0))  # each has its own

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False

    @property
    def version(self) -> int:
        """The schema's version, major x 1000 + minor."""
        return schema_version(self)

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

    def begin(self, path: Path) -> None:
        """Look at the file, put our views over its tables where they are not its own, then let nothing be written.
        Raises StoreError."""
        bounds = bounds_of(disk_bytes(path))
        self.path, self.meter = path, Meter(bounds)
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.cell_bytes)
        if (refused := version_error(path, self.version)) is not None:
            raise refused
        for sql in _views_to_put(self):
            self.execute(sql)
        hold(self, bounds)
        self.text_factory = decoded


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
    has_ours = set(views) <= set(made.values())
    return [] if has_ours else [sql.replace("CREATE VIEW", "CREATE TEMP VIEW", 1) for sql in views]


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
        raise NothingToDo(f"{path} holds nothing yet.", "Let the agent run for a while, or name another database.")
    if not header.ours:
        raise foreign_error(path, header)
    real = os.path.realpath(path)
    for beside in (f"{real}{suffix}" for suffix in ("-wal", "-shm", "-journal")):
        if os.path.lexists(beside) and not stat.S_ISREG(os.lstat(beside).st_mode):  # whoever opens it may wait forever
            raise StoreError(f"{path} cannot be read: {beside} is no ordinary file.", "Remove that.")
    address = path.absolute().as_uri()
    try:
        try:
            return _open(path, f"{address}?mode=ro")
        except sqlite3.OperationalError:
            # As an unchanging file only where nobody can be writing: no log, and no way to make one.
            if os.path.exists(f"{path}-wal") or os.access(path.parent, os.W_OK, effective_ids=_EFFECTIVE):  # noqa: PTH110
                raise
            return _open(path, f"{address}?mode=ro&immutable=1")
    except (sqlite3.Error, UnicodeDecodeError) as error:  # what SQLite says of a damaged schema repeats its bytes
        raise _read_error(path, error) from error


def _open(path: Path, address: str) -> Reader:
    reader = sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, factory=Reader)
    reader.address = address
    try:
        reader.begin(path)
    except BaseException:
        reader.close()
        raise
    return reader


def _read_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> StoreError:
    if isinstance(error, UnicodeDecodeError):
        return damaged_error(path, sqlite3.DatabaseError("its schema is damaged"))
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged_error(path, error)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        if os.path.exists(f"{os.path.realpath(path)}-journal"):  # noqa: PTH110 - realpath gives a text
            why = f"{path.name}-journal beside it holds a change that was never finished"
            return StoreError(f"{path} cannot be read: {why}.", "Open it once with sqlite3, which undoes that change.")
        why = "it has an unfinished log beside it, and its folder is not writable for this user"
        remedy = "Read a copy made with 'skuwise agent snapshot', or copy it with its -wal to a writable folder."
        return StoreError(f"{path} cannot be read: {why}.", remedy)
    return StoreError(f"{path} cannot be read: {said_by(error)}.", "Try again, or read a snapshot of it.")
