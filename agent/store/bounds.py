"""What one reading of a database may cost, whoever made the file: rows, time, and the longest cell."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one reading: rows in all, seconds of wall clock while SQLite works, bytes of the longest text, blob or row."""

    rows: int
    seconds: float
    cell_bytes: int = _CELL_BYTES


def bounds_of(on_disk: int) -> Bounds:
    """What reading a file with so many bytes on the disk (`disk_bytes`) may cost."""
    return Bounds(_ROWS + on_disk // _BYTES_PER_ROW, min(_SECONDS + _SECONDS_PER_BYTE * on_disk, _MOST_SECONDS))


def disk_bytes(path: Path) -> int:
    """Bytes that a database and its log take up on the disk; holes take none. What cannot be looked at counts as 0."""
    there = 0
    for suffix in ("", "-wal"):
        with suppress(OSError):
            about = os.stat(f"{os.path.realpath(path)}{suffix}")  # noqa: PTH116 - realpath gives a text
            there += min(about.st_blocks * 512, about.st_size)
    return there


def hold(connection: sqlite3.Connection, bounds: Bounds) -> None:
    """Write nothing, map no page (a file that is cut short meanwhile would end the process), bound each cell."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.cell_bytes)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
    connection.executescript("PRAGMA query_only = 1; PRAGMA trusted_schema = 0; PRAGMA mmap_size = 0")


class Meter:
    """What is left of the bounds of one reading."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds, self._rows, self._seconds = bounds, bounds.rows, bounds.seconds

    def fetch(self, connection: sqlite3.Connection, sql: str, parameters: Parameters = ()) -> Rows:
        """All rows of one statement. Raises sqlite3.Error."""
        return [row for part in self.parts(connection, sql, parameters) for row in part]

    def parts(self, connection: sqlite3.Connection, sql: str, parameters: Parameters = ()) -> Iterator[Rows]:
        """The same, some thousand rows at a time. Raises sqlite3.Error."""
        with self._timed(connection):
            cursor = connection.execute(sql, parameters)
        with closing(cursor):
            while True:
                with self._timed(connection):
                    part = cursor.fetchmany(_ROWS_AT_ONCE)
                if not part:
                    return
                self._rows -= len(part)
                if self._rows < 0:
                    raise sqlite3.DataError("it gives more rows than its size can hold")
                yield part

    @contextmanager
    def _timed(self, connection: sqlite3.Connection) -> Iterator[None]:
        begin = time.monotonic()
        connection.set_progress_handler(lambda: time.monotonic() - begin > self._seconds, _STEPS_AT_ONCE)
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
                raise
            raise sqlite3.DataError(f"reading it takes longer than {self._bounds.seconds:.0f} s") from error
        finally:
            connection.set_progress_handler(None, _STEPS_AT_ONCE)
            self._seconds -= time.monotonic() - begin


def allow_reading(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    """An authorizer: SELECT with cheap functions, no recursion; also of what a view of the file would bring in."""
    is_read = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    is_cheap = action == sqlite3.SQLITE_FUNCTION and name in _CHEAP_FUNCTIONS
    return sqlite3.SQLITE_OK if is_read or is_cheap else sqlite3.SQLITE_DENY
