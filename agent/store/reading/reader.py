"""The one who reads: any database of ours, live, stopped or copied, and never writes a byte.

Our views are what is asked. A file brings its own schema: its tables must be those that we ship, and where its views
are not ours to the letter, ours are put over its tables as temporary ones. So nothing that its maker wrote in SQL runs.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Literal

from ....rules.base.errors import NothingToDo, StoreError, UsageError
from ..file.database import SCHEMA_VERSION, foreign_error, read_header, schema_sql, schema_version, version_error
from ..file.disk_errors import damaged_error, said_by
from .bounds import Bounds, BoundsError, Meter, Parameters, Rows, allow_reading, bounds_of, disk_bytes, hold

_BUSY_SECONDS = 5.0
# The agent's longest text is 1 kB; a longer one is cut where it is read.
MAX_TEXT = 4096
_REMEDY = "Take a snapshot of it with 'skuwise agent snapshot' on the node, or leave the file out."
_OF_A_VIEW = re.compile(r"^CREATE VIEW\b", re.ASCII)


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

    def begin(self, path: Path, bounds: Bounds) -> None:
        """Look at the file, put our views over its tables where they are not its own, then let nothing be written.
        Raises StoreError, NothingToDo."""
        self.path, self.meter = path, Meter(bounds)
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.cell_bytes)
        with self.meter.on(self):
            version = self.version
            if (refused := version_error(path, version)) is not None:
                raise refused
            for sql in _views_to_put(self, path, version):
                self.execute(sql)
            hold(self, bounds)
        # What is no valid UTF-8 is shown as such, and does not keep the rest from being read.
        self.text_factory = _text


def _text(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


@cache
def _shipped() -> tuple[dict[str, tuple[str, dict[str, str]]], tuple[str, ...]]:
    """Our schema: of each table its statement and its columns, and the statements of the views."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema_sql())
        made = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        tables = {name: (sql, _columns(connection, name)) for kind, name, sql in made if kind == "table"}
    return tables, tuple(sql for kind, _, sql in made if kind == "view")


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """Columns that are kept, with their types; those that are computed are not among them."""
    rows = connection.execute(f"PRAGMA main.table_xinfo({table})").fetchall()
    return {name: type_ for _, name, type_, _, _, _, hidden in rows if not hidden}


def _views_to_put(connection: sqlite3.Connection, path: Path, version: int) -> list[str]:
    """The statements that put our views over the file's tables; none where it has them already. Raises StoreError for
    a table that is not as we ship it; a newer minor version may have added columns."""
    found = connection.execute("SELECT name, sql FROM main.sqlite_master WHERE sql IS NOT NULL").fetchall()
    made = {str(name): str(sql) for name, sql in found}
    tables, views = _shipped()
    for name, (sql, columns) in tables.items():
        if made.get(name) == sql:
            continue
        is_plain = made.get(name, "").startswith("CREATE TABLE")
        if not is_plain or not columns.items() <= _columns(connection, name).items():
            remedy = "Update skuwise here: a newer one wrote the file." if version > SCHEMA_VERSION else _REMEDY
            raise StoreError(f"{path} cannot be read: it has no table {name!r} as skuwise makes it.", remedy)
    if set(views) <= set(made.values()):
        return []
    return [_OF_A_VIEW.sub("CREATE TEMP VIEW", sql) for sql in views]


def open_reader(path: Path, bounds: Bounds | None = None) -> Reader:
    """Open a database for reading. Raises UsageError (no such file), NothingToDo (nothing in it yet), StoreError.

    `bounds`: None: what a file of its size on the disk may cost.
    """
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
    _check_side_files(path)
    try:
        return _connect(path, bounds or bounds_of(disk_bytes(path)))
    except BoundsError as error:
        raise StoreError(f"{path} cannot be read: {error}.", _REMEDY) from error
    except sqlite3.Error as error:
        raise _read_error(path, error) from error


def _check_side_files(path: Path) -> None:
    """A log or a journal that is no ordinary file would hold up whoever opens it; SQLite looks beside the real file."""
    real = os.path.realpath(path)
    for suffix in ("-wal", "-shm", "-journal"):
        try:
            mode = os.lstat(real + suffix).st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode):
            said = f"{path} cannot be read: {path.name}{suffix} beside it is no ordinary file."
            raise StoreError(said, "Remove that.")


def _connect(path: Path, bounds: Bounds) -> Reader:
    """Read-only as others may be writing; as an unchanging file only where nobody can be: no log, and no way to make
    one."""
    address = path.absolute().as_uri()
    writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    try:
        return _try(path, f"{address}?mode=ro", bounds)
    except sqlite3.OperationalError:
        if path.with_name(path.name + "-wal").exists() or writable:
            raise
        return _try(path, f"{address}?mode=ro&immutable=1", bounds)


def _try(path: Path, address: str, bounds: Bounds) -> Reader:
    reader = sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, factory=Reader)
    reader.address = address
    try:
        reader.begin(path, bounds)
    except BaseException:
        reader.close()
        raise
    return reader


def _read_error(path: Path, error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged_error(path, error)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) and Path(f"{os.path.realpath(path)}-journal").exists():
        return StoreError(
            f"{path} cannot be read: {path.name}-journal beside it holds a change that was never finished.",
            "Open it once with sqlite3, which undoes that change, or leave the file out.",
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return StoreError(
            f"{path} cannot be read: it has an unfinished log beside it, and its folder is not writable for this user.",
            "Read a copy made with 'skuwise agent snapshot', or copy the file with its -wal to a writable folder.",
        )
    return StoreError(f"{path} cannot be read: {said_by(error)}.", "Try again, or read a snapshot of it.")
