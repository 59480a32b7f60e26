"""The process in which somebody's database is read: small, and limited by the system in memory, disk and time.

It is told on stdin what to open and what to fetch, a line of JSON each, and answers with frames (`packing`) on stdout.
Whoever started it ends it when an answer takes too long and takes nothing of an answer
for granted. It imports neither numpy nor pandas: it begins in a fraction of a second, and needs some 15 MB.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ....rules.base.errors import NothingToDo, SkuwiseError, StoreError, UsageError
from ..file.disk_errors import said_by
from .bounds import Bounds, BoundsError, allow_reading, weight_of
from .packing import ANYTHING, PackedColumn, frame
from .reader import Reader, open_reader
from .shipped import shipped

_ERRORS = (NothingToDo, StoreError, UsageError)
# What Python and SQLite need before a row is read, and what each byte that is given back takes on its way.
_DATA_BYTES, _DATA_PER_BYTE = 128 << 20, 2
# SQLite sorts in memory up to this, then in temporary files; each of those may grow to this and the size of the file.
_HEAP_BYTES = 64 << 20
_TEMPORARY_BYTES = 64 << 20
# Rows are made columns when so many wait, or so many bytes: a long text stands in each, but is kept once.
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 4096, 4 << 20

Answer = Iterable[bytes | memoryview]


class Served:
    """What is open. Its methods are what may be asked."""

    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._path = ""

    def open(self, path: str, on_disk: int, bounds: dict[str, Any]) -> Answer:
        """A database of so many bytes on the disk, within these bounds."""
        self.close()
        self._path = path
        most = Bounds(**bounds)
        _limit(resource.RLIMIT_DATA, _DATA_BYTES + _DATA_PER_BYTE * most.given_bytes)
        _limit(resource.RLIMIT_FSIZE, _TEMPORARY_BYTES + on_disk)
        # Were nobody left to end it: the time of the processor is limited as well.
        _limit(resource.RLIMIT_CPU, int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) + most.seconds) + 5)
        self._reader = reader = open_reader(Path(path), most, on_disk=True)
        reader.text_factory = bytes
        reader.set_authorizer(allow_reading)
        return frame({})

    def fetch(self, sql: str, parameters: dict[str, Any], forms: str) -> Answer:
        """The rows of a statement of ours, as columns of these forms; without, of anything."""
        if self._reader is None:
            raise StoreError("The database cannot be read: it is not open.", "Try again.")
        columns = [PackedColumn(form) for form in forms]
        meter = self._reader.meter
        waiting: list[tuple[object, ...]] = []
        rows = weight = held = 0
        for part in meter.parts(self._reader, self._reader.over_tables(sql), parameters):
            waiting += part
            rows += len(part)
            weight += weight_of(part)
            if len(waiting) >= _ROWS_AT_ONCE or weight >= _BYTES_AT_ONCE:
                columns = _packed(columns, waiting)
                waiting.clear()
                weight, before, held = 0, held, sum(column.weight for column in columns)
                meter.charge(held - before)
        columns = _packed(columns, waiting)
        meter.charge(sum(column.weight for column in columns) - held)
        return frame({"rows": rows}, columns)

    def fetch_all(self, asked: list[dict[str, Any]]) -> Iterator[bytes | memoryview]:
        """A frame for each of several statements, as `fetch` gives it: asked one by one they would wait for one another
        longer than they take."""
        for one in asked:
            yield from self.fetch(**one)

    def close(self) -> Answer:
        """Nobody waits for an answer."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        return ()

    def error(self, error: Exception) -> Answer:
        """Why it cannot be answered."""
        if isinstance(error, SkuwiseError):
            kind = next((one for one in _ERRORS if isinstance(error, one)), StoreError)
            return frame({"error": [kind.__name__, error.message, error.remedy]})
        if isinstance(error, MemoryError):
            why = "reading it takes more memory than its size can need"
        elif isinstance(error, (BoundsError, sqlite3.Error)):
            why = said_by(error)
        else:
            why = f"it makes no sense ({type(error).__name__})"
        remedy = "Take a snapshot of it, or check it with sqlite3."
        return frame({"error": [StoreError.__name__, f"{self._path} cannot be read: {why}.", remedy]})


def _packed(columns: list[PackedColumn], rows: list[tuple[object, ...]]) -> list[PackedColumn]:
    if rows:
        columns = columns or [PackedColumn(ANYTHING) for _ in rows[0]]
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
            column.add(cells)
    return columns


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def main() -> None:
    """Answer until there is nobody who asks."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sqlite3.connect(":memory:").execute(f"PRAGMA hard_heap_limit = {_HEAP_BYTES}").fetchall()
    shipped()
    served, given = Served(), sys.stdout.buffer
    does: dict[str, Callable[..., Answer]] = {
        "open": served.open, "fetch": served.fetch, "fetch_all": served.fetch_all, "close": served.close,
    }  # fmt: skip
    _answer(given, frame({"ready": os.getpid()}))
    for line in sys.stdin.buffer:
        task = json.loads(line)
        try:
            answer = list(does[task.pop("do")](**task))
        except Exception as error:  # whatever a hostile file brings about is told as that file's
            answer = served.error(error)
        _answer(given, answer)


def _answer(stream: Any, parts: Answer) -> None:  # noqa: ANN401 - sys.stdout.buffer
    for part in parts:
        stream.write(part)
    stream.flush()


if __name__ == "__main__":
    main()
