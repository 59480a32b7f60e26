"""What one reading of a database may cost, whoever made the file: rows, time, and the longest cell.

It is measured by what really lies on the disk: what the file says of itself is whatever its maker wrote there.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# Our queries gave a row per 1300 bytes of simulated fleets; samples and other page sizes leave room for far more.
_ROWS, _BYTES_PER_ROW = 100_000, 8
# An honest node's file takes well under a second: 134 MB of it, 0.5 s of a processor. More is given for what really is
# there, as it may have to come from a slow disk, and never more than a minute.
_SECONDS, _SECONDS_PER_BYTE, _MOST_SECONDS = 8.0, 1e-7, 60.0
# The longest text that an agent writes is 1 kB, the longest of its schema a view of 14 kB.
_CELL_BYTES = 256 << 10
_STEPS_AT_ONCE, _ROWS_AT_ONCE = 20_000, 4096

# Functions that a statement of ours may call: none that makes much out of little in one step.
_CHEAP_FUNCTIONS = frozenset(
    {
        "abs", "avg", "ceil", "coalesce", "count", "floor", "ifnull", "iif", "julianday", "length", "lower", "max",
        "min", "nullif", "round", "strftime", "substr", "sum", "total", "typeof", "unixepoch", "upper",
    }
)  # fmt: skip

Parameters = Sequence[object] | Mapping[str, object]
Rows = list[tuple[object, ...]]


class BoundsError(sqlite3.DataError):
    """A reading went beyond its bounds. The message goes on after "The database cannot be read: "."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one reading, from opening a database to closing it: `rows` that statements give in all, `seconds`
    of wall clock while SQLite works, and `cell_bytes`, the longest text, blob or table row."""

    rows: int
    seconds: float
    cell_bytes: int = _CELL_BYTES


def bounds_of(on_disk: int) -> Bounds:
    """What reading a file with so many bytes on the disk (`disk_bytes`) may cost."""
    seconds = min(_SECONDS + _SECONDS_PER_BYTE * on_disk, _MOST_SECONDS)
    return Bounds(rows=_ROWS + on_disk // _BYTES_PER_ROW, seconds=seconds)


def disk_bytes(path: Path) -> int:
    """Bytes that a database and its log take up on the disk; holes take none. What cannot be looked at counts as 0."""
    there = 0
    real = os.path.realpath(path)
    for name in (real, f"{real}-wal"):
        with suppress(OSError):
            about = os.stat(name)  # noqa: PTH116 - realpath gives a text
            there += min(about.st_blocks * 512, about.st_size)
    return there


def hold(connection: sqlite3.Connection, bounds: Bounds) -> None:
    """Settings that keep a connection to somebody's file small, before anything is read through it.

    Nothing is written, no page is mapped (a file that is cut short meanwhile would end the process), no cell is longer
    than its bound.
    """
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.cell_bytes)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
    connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
    for setting in ("query_only = 1", "trusted_schema = 0", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}").fetchall()


class Meter:
    """What is left of the bounds of one reading. `now`: a monotonic clock, s."""

    def __init__(self, bounds: Bounds, now: Callable[[], float] = time.monotonic) -> None:
        self._bounds, self._now = bounds, now
        self._begin = self._spent = 0.0
        self._rows = bounds.rows

    @contextmanager
    def on(self, connection: sqlite3.Connection) -> Iterator[None]:
        """While it lasts, the time that `connection` takes is counted. Raises BoundsError where it is over."""
        connection.set_progress_handler(self._is_late, _STEPS_AT_ONCE)
        self._begin = self._now()
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
                raise
            raise self._too_long() from error
        except UnicodeDecodeError as error:  # what SQLite says of a damaged schema repeats its bytes
            raise sqlite3.DatabaseError("its schema is damaged") from error
        finally:
            self._spent += self._now() - self._begin
            connection.set_progress_handler(None, _STEPS_AT_ONCE)

    def fetch(self, connection: sqlite3.Connection, sql: str, parameters: Parameters = ()) -> Rows:
        """All rows of one statement, within what is left. Raises BoundsError, or what sqlite3 raises."""
        return [row for part in self.parts(connection, sql, parameters) for row in part]

    def parts(self, connection: sqlite3.Connection, sql: str, parameters: Parameters = ()) -> Iterator[Rows]:
        """The rows of one statement, some thousand at a time. Raises as `fetch` does."""
        with self.on(connection), closing(connection.execute(sql, parameters)) as cursor:
            while part := cursor.fetchmany(_ROWS_AT_ONCE):
                self._rows -= len(part)
                if self._rows < 0:
                    raise BoundsError("it gives more rows than its size can hold")
                if self._is_late():
                    raise self._too_long()
                yield part

    def _is_late(self) -> bool:
        return self._spent + self._now() - self._begin > self._bounds.seconds

    def _too_long(self) -> BoundsError:
        return BoundsError(f"reading it takes longer than {self._bounds.seconds:.0f} s")


def allow_reading(action: int, _: str | None, name: str | None, __: str | None, ___: str | None) -> int:
    """An authorizer (`Connection.set_authorizer`) for statements of ours: SELECT, with cheap functions, no recursion.

    It is asked of everything that a view or a generated column of the file would bring in as well.
    """
    cheap = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (
        action == sqlite3.SQLITE_FUNCTION and name in _CHEAP_FUNCTIONS
    )
    return sqlite3.SQLITE_OK if cheap else sqlite3.SQLITE_DENY
