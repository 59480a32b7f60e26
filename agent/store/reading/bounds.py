"""What one reading of a database may cost, whoever made the file: SQLite's steps, rows, bytes, time and memory.

Everything is measured by what really lies on the disk. What the file says of itself (its page count, its page size) is
whatever its maker wrote there, and a hole in a sparse file is as long as anybody likes.
"""

from __future__ import annotations

import marshal
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# SQLite's machine took at most 0.1 steps a byte for our queries on simulated fleets, and gave a row per 1300 bytes;
# samples and other page sizes leave room for far more. What it gave back came to
# 0.6 times its bytes where it held hours alone, to 0.1 times where it held minutes, too.
_STEPS, _STEPS_PER_BYTE = 50_000_000, 50
_ROWS, _BYTES_PER_ROW = 100_000, 8
_BYTES, _BYTES_PER_BYTE = 64 << 20, 2
# An honest node's file takes well under a second: 134 MB of it, 0.5 s of a processor. More is given for what really is
# there, as it may have to come from a slow disk, and never more than a minute.
_SECONDS, _SECONDS_PER_BYTE, _MOST_SECONDS = 8.0, 1e-7, 60.0
# The longest text that an agent writes is 1 kB, the longest of its schema a view of 14 kB.
_CELL_BYTES = 256 << 10
_STEPS_AT_ONCE = 20_000
# So many rows are taken before they are weighed: 64 of the longest cells are 16 MiB.
_ROWS_AT_ONCE = 64

# Functions that a statement of ours may call: none that makes much out of little in one step.
CHEAP_FUNCTIONS = frozenset(
    {
        "abs", "avg", "ceil", "coalesce", "count", "floor", "ifnull", "iif", "json_array",
        "json_group_array", "julianday", "length", "lower", "max", "min", "nullif", "round", "strftime", "substr",
        "sum", "total", "typeof", "unixepoch", "upper",
    }
)  # fmt: skip

Parameters = Sequence[object] | Mapping[str, object]
Rows = list[tuple[object, ...]]


class BoundsError(sqlite3.DataError):
    """A reading went beyond its bounds. The message goes on after "The database cannot be read: "."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one reading: from opening a database to closing it, however many statements it takes.

    `steps` of SQLite's virtual machine; `rows` and `given_bytes` that statements give back in all; `seconds` of wall
    clock; `cell_bytes`: the longest text, blob or table row.
    """

    steps: int
    rows: int
    given_bytes: int
    seconds: float
    cell_bytes: int = _CELL_BYTES


def bounds_of(on_disk: int) -> Bounds:
    """What reading a file with so many bytes on the disk (`disk_bytes`) may cost."""
    return Bounds(
        steps=_STEPS + _STEPS_PER_BYTE * on_disk,
        rows=_ROWS + on_disk // _BYTES_PER_ROW,
        given_bytes=_BYTES + _BYTES_PER_BYTE * on_disk,
        seconds=min(_SECONDS + _SECONDS_PER_BYTE * on_disk, _MOST_SECONDS),
    )


def disk_bytes(path: Path) -> int:
    """Bytes that a database and its log take up on the disk; holes take none. What cannot be looked at counts as 0."""
    there = 0
    real = os.path.realpath(path)
    for name in (real, f"{real}-wal"):
        with suppress(OSError):
            about = os.stat(name)  # noqa: PTH116 - realpath gives a text
            there += min(about.st_blocks * 512, about.st_size)
    return there


def hold(connection: sqlite3.Connection, bounds: Bounds, *, on_disk: bool = False) -> None:
    """Settings that keep a connection to somebody's file small, before anything is read through it.

    Nothing is written, no page is mapped (a file that is cut short meanwhile would end the process), no cell is longer
    than its bound. Sorting stays in memory, but `on_disk`.
    """
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.cell_bytes)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1 << 20)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
    connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
    kept_in = "FILE" if on_disk else "MEMORY"
    for setting in ("query_only = 1", "trusted_schema = 0", f"temp_store = {kept_in}", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}").fetchall()


def weight_of(rows: Rows) -> int:
    """The bytes that rows hold; weighed in C, at a fraction of what reading them took."""
    return len(marshal.dumps(rows, 2))


class Meter:
    """What is left of the bounds of one reading; time counts while SQLite works. `now`: a monotonic clock, s."""

    def __init__(self, bounds: Bounds, now: Callable[[], float] = time.monotonic) -> None:
        self._bounds, self._now = bounds, now
        self._begin = self._spent = 0.0
        self._turns = bounds.steps // _STEPS_AT_ONCE
        self._rows, self._bytes = bounds.rows, bounds.given_bytes

    def is_over(self) -> bool:
        """Called by SQLite's progress handler; True ends the statement."""
        self._turns -= 1
        return self._turns < 0 or self._is_late()

    @contextmanager
    def on(self, connection: sqlite3.Connection) -> Iterator[None]:
        """While it lasts, what `connection` does is counted. Raises BoundsError for what goes beyond."""
        connection.set_progress_handler(self.is_over, _STEPS_AT_ONCE)
        self._begin = self._now()
        try:
            yield
        except sqlite3.Error as error:
            told = self._told(error)
            if told is error:
                raise
            raise told from error
        except UnicodeDecodeError as error:  # what SQLite says of a damaged schema repeats its bytes
            raise sqlite3.DatabaseError("its schema is damaged") from error
        finally:
            self._spent += self._now() - self._begin
            connection.set_progress_handler(None, _STEPS_AT_ONCE)

    def fetch(self, connection: sqlite3.Connection, sql: str, parameters: Parameters = ()) -> Rows:
        """All rows of one statement, within what is left. Raises BoundsError, or what sqlite3 raises."""
        rows: Rows = []
        for part in self.parts(connection, sql, parameters):
            self.charge(weight_of(part))
            rows += part
        return rows

    def charge(self, given: int) -> None:
        """Count so many bytes as given back. Raises BoundsError."""
        self._bytes -= given
        if self._bytes < 0:
            raise BoundsError("it gives more text than its size can hold")

    def parts(self, connection: sqlite3.Connection, sql: str, parameters: Parameters = ()) -> Iterator[Rows]:
        """The rows of one statement, some at a time; whoever takes them does so on this reading's time. What
        they weigh is theirs to `charge`. Raises as `fetch` does."""
        with self.on(connection), closing(connection.execute(sql, parameters)) as cursor:
            while part := cursor.fetchmany(_ROWS_AT_ONCE):
                self._take(part)
                yield part

    def _take(self, part: Rows) -> None:
        self._rows -= len(part)
        if self._rows < 0:
            raise BoundsError("it gives more rows than its size can hold")
        if self._is_late():
            raise self._too_long()

    def _told(self, error: sqlite3.Error) -> sqlite3.Error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
            return error
        return self._too_long() if self._is_late() else BoundsError("it asks for far more work than its size can need")

    def _is_late(self) -> bool:
        return self._spent + self._now() - self._begin > self._bounds.seconds

    def _too_long(self) -> BoundsError:
        return BoundsError(f"reading it takes longer than {self._bounds.seconds:.0f} s")


def allow_reading(action: int, _: str | None, name: str | None, __: str | None, ___: str | None) -> int:
    """An authorizer (`Connection.set_authorizer`) for statements of ours: SELECT, with cheap functions, no recursion.

    It is asked of everything that a view or a generated column of the file would bring in as well.
    """
    cheap = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (
        action == sqlite3.SQLITE_FUNCTION and name in CHEAP_FUNCTIONS
    )
    return sqlite3.SQLITE_OK if cheap else sqlite3.SQLITE_DENY
