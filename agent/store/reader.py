"""Reads any database of ours, live, stopped or copied, and never writes a byte.

A file's tables must be those that we ship, and where its views are not ours to the letter, ours are put over its
tables, so that nothing runs that its maker wrote in SQL. Rows, time and the longest cell of a reading are bounded.
"""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Literal

from ...rules.base.errors import NothingToDo, StoreError, UsageError
from .database import SCHEMA_VERSION, foreign_error, kind_of, schema_sql, schema_version, version_error
from .disk_errors import damaged_error, is_damage, said_by

MAX_TEXT = 4096  # the agent's longest text is 1 kB; a longer one is cut where it is read
_REMEDY = "Take a snapshot of it with 'skuwise agent snapshot' on the node, or leave the file out."
# Our queries gave a row per 1300 bytes of simulated fleets.
_ROWS, _BYTES_PER_ROW = 250_000, 200
# An honest node's file takes well under a second. More is given for what really lies on the disk, which may be slow.
_SECONDS, _SECONDS_PER_BYTE, _MOST_SECONDS = 8.0, 1e-7, 60.0
_CELL_BYTES = 256 << 10  # the longest text that an agent writes is 1 kB, the longest of its schema a view of 14 kB
_STEPS_AT_ONCE, _ROWS_AT_ONCE = 20_000, 4096
# Functions that a statement of ours may call: none that makes much out of little in one step.
_CHEAP_FUNCTIONS = {
    "abs", "avg", "ceil", "coalesce", "count", "floor", "ifnull", "iif", "julianday", "length", "lower", "max", "min",
    "nullif", "round", "strftime", "substr", "sum", "total", "typeof", "unixepoch", "upper",
}  # fmt: skip

Parameters = Sequence[object] | Mapping[str, object]
Rows = list[tuple[object, ...]]


def disk_bytes(path: Path) -> int:
    """Bytes that a database and its log take up on the disk; holes take none. What cannot be read counts as 0."""
    there = 0
    for suffix in ("", "-wal"):
        with suppress(OSError):
            about = os.stat(f"{os.path.realpath(path)}{suffix}")  # noqa: PTH116 - realpath gives a text
            there += min(about.st_blocks * 512, about.st_size)
    return there


def _allow_reading(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    """An authorizer: SELECT with cheap functions, no recursion; also of what a view of the file would bring in."""
    is_read = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    is_cheap = action == sqlite3.SQLITE_FUNCTION and name in _CHEAP_FUNCTIONS
    return sqlite3.SQLITE_OK if is_read or is_cheap else sqlite3.SQLITE_DENY


class Reader(sqlite3.Connection):
    """A read-only connection to one database (`open_reader`), as a context closed at the end. `execute` is without
    bounds; `fetch` and `parts` are bounded. An open cursor holds a transaction, and the writer's log."""

    path: Path
    version: int  # the schema's, major x 1000 + minor
    # What is left of the bounds of this reading: rows in all, and seconds of wall clock while SQLite works.
    rows_left: int
    seconds_left: float

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False

    def fetch(self, sql: str, parameters: Parameters = ()) -> Rows:
        """All rows of a SELECT of ours, within what is left of this reading's bounds. Raises StoreError."""
        return [row for part in self.parts(sql, parameters) for row in part]

    def parts(self, sql: str, parameters: Parameters = ()) -> Iterator[Rows]:
        """The same, some thousand rows at a time. Raises StoreError."""
        self.set_authorizer(_allow_reading)
        try:
            yield from self._parts(sql, parameters)
        except (sqlite3.Error, MemoryError) as error:
            why = said_by(error) if isinstance(error, sqlite3.Error) else "reading it takes too much memory"
            if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
                why = "reading it takes too long for its size"
            raise StoreError(f"{self.path} cannot be read: {why}.", _REMEDY) from error
        finally:
            self.set_authorizer(None)

    def _parts(self, sql: str, parameters: Parameters) -> Iterator[Rows]:
        with closing(self.cursor()) as cursor:
            while True:
                begin = time.monotonic()
                self.set_progress_handler(lambda b=begin: time.monotonic() - b > self.seconds_left, _STEPS_AT_ONCE)
                try:
                    if cursor.description is None:
                        cursor.execute(sql, parameters)
                    part = cursor.fetchmany(_ROWS_AT_ONCE)
                finally:
                    self.set_progress_handler(None, _STEPS_AT_ONCE)
                    self.seconds_left -= time.monotonic() - begin
                self.rows_left -= len(part)
                if self.rows_left < 0:
                    raise sqlite3.DataError("it gives more rows than its size can hold")
                if not part:
                    return
                yield part


def decoded(raw: bytes) -> str:
    """What is no valid UTF-8 is shown as such, and does not keep the rest from being read."""
    text = raw.decode("utf-8", "replace")
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


@cache
def _shipped() -> tuple[dict[str, set[str]], list[str], dict[str, str]]:
    """Our schema: the columns of each table, the statements of the views, and all statements by name."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema_sql())
        made = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        tables = {name: _columns(connection, name) for kind, name, _ in made if kind == "table"}
    return tables, [sql for kind, _, sql in made if kind == "view"], {name: sql for _, name, sql in made if sql}


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    rows = connection.execute(f"PRAGMA main.table_xinfo({table})").fetchall()
    return {f"{name} {type_}" for _, name, type_, _, _, _, hidden in rows if not hidden}


def _put_views(reader: Reader) -> None:
    """Put our views over the file's tables where it has others. Raises StoreError for a table that is not as we ship
    it; a newer minor version may have added columns, and what an older one lacks is NULL."""
    sql = "SELECT name, sql FROM main.sqlite_master WHERE sql IS NOT NULL"
    made = {str(name): str(sql) for part in reader._parts(sql, ()) for name, sql in part}
    tables, views, ours = _shipped()
    if made == ours:
        return
    if reader.version < SCHEMA_VERSION:
        tables = tables | {"serving_sample": tables["serving_sample"] - {"requests_per_second INTEGER"}}
        views = [sql.replace("s.requests_per_second * 1e-03", "NULL") for sql in views]
    for name, columns in tables.items():
        if not (made.get(name, "").startswith("CREATE TABLE") and columns <= _columns(reader, name)):
            raise StoreError(f"{reader.path} cannot be read: it has no table {name!r} as skuwise makes it.", _REMEDY)
    if not set(views) <= set(made.values()):
        for sql in views:
            reader.execute(sql.replace("CREATE VIEW", "CREATE TEMP VIEW", 1))


def open_reader(path: Path) -> Reader:
    """Open a database for reading. Raises UsageError (no such file), NothingToDo (nothing in it yet), StoreError."""
    if not path.exists():
        raise UsageError(f"{path} does not exist.", "Name a database with --db, or start the agent to make one.")
    try:
        kind = kind_of(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.", "Name a file that you may read.") from error
    if kind == "empty":
        raise NothingToDo(f"{path} holds nothing yet.", "Let the agent run for a while, or name another database.")
    if kind != "ours":
        raise foreign_error(path)
    for beside in (f"{os.path.realpath(path)}{suffix}" for suffix in ("-wal", "-shm", "-journal")):
        if os.path.lexists(beside) and not stat.S_ISREG(os.lstat(beside).st_mode):  # opening it may block forever
            raise StoreError(f"{path} cannot be read: {beside} is no ordinary file.", "Remove that.")
    address = path.absolute().as_uri()
    try:
        try:
            return _open(path, f"{address}?mode=ro")
        except sqlite3.OperationalError:
            # As an unchanging file only where nothing can write: no log, and no way to make one.
            writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
            if writable or os.path.exists(f"{path}-wal"):  # noqa: PTH110
                raise
            return _open(path, f"{address}?mode=ro&immutable=1")
    except UnicodeDecodeError as error:  # what SQLite says of a damaged schema repeats its bytes
        raise damaged_error(path, sqlite3.DatabaseError("its schema is damaged")) from error
    except sqlite3.Error as error:
        if is_damage(error):
            raise damaged_error(path, error) from error
        remedy = "Read a copy made with 'skuwise agent snapshot', or copy it with its -wal to a writable folder."
        raise StoreError(f"{path} cannot be read: {said_by(error)}.", remedy) from error


def _open(path: Path, address: str) -> Reader:
    """A reader with our views over the file's tables where they are not its own, that can write nothing."""
    reader = sqlite3.connect(address, uri=True, timeout=5.0, isolation_level=None, factory=Reader)
    try:
        on_disk = disk_bytes(path)
        reader.path, reader.rows_left = path, _ROWS + on_disk // _BYTES_PER_ROW
        reader.seconds_left = min(_SECONDS + _SECONDS_PER_BYTE * on_disk, _MOST_SECONDS)
        reader.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL_BYTES)
        reader.version = schema_version(reader)
        if (refused := version_error(path, reader.version)) is not None:
            raise refused
        _put_views(reader)
        # Write nothing, and map no page: a file that is cut short meanwhile would end the process.
        reader.executescript("PRAGMA query_only = 1; PRAGMA trusted_schema = 0; PRAGMA mmap_size = 0")
        reader.text_factory = decoded
    except BaseException:
        reader.close()
        raise
    return reader
