"""Batches statements in memory and writes them once a second; keeps them where the disk fails.

Rows get their ids in the transaction that writes, so it makes no difference whether the file could be opened yet, and a
transaction that fails leaves nothing behind.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Self

from ...rules.base.errors import StoreError
from ..model import Absence, Limits, Node, Tick
from .database import LOG_KEPT_BYTES, SetAside, checkpoint, log_bytes, open_for_writing, transaction
from .disk_errors import PassingError, disk_error, is_damage, mark_damaged, store_absence
from .node_writer import NodeWriter, Told

# How many ticks wait at most, and how many other things (a workload, a use, an absence, an event): some 6 MB.
HOLD_TICKS = 600
MOST_OTHERS = 20_000
# By the ticks' time: how often what waits is written, and how often that is tried again where it failed.
_FLUSH_SECONDS = 1.0
_RETRY_SECONDS = 5.0
# So much is written at once: where it fails, little work is lost.
_AT_ONCE = 100


class Writer:
    """Writes one database file, for one node or many: `for_node` gives the writer of a node. Not for several threads.

    Where the disk takes nothing, at the start too, `fault` says why (``disk-full``, ``store-busy``, ...; None: all is
    well), and statements wait: up to `hold_ticks` ticks, of which the oldest are then dropped (`lost_ticks`), and an
    absence names the gap. A killed process loses a second of statements at most.
    """

    connection: sqlite3.Connection  # once the file is open

    def __init__(
        self,
        path: Path,
        *,
        before_opening: Callable[[], SetAside | None] = lambda: None,
        hold_ticks: int = HOLD_TICKS,
        max_log_bytes: int = Limits().log_bytes,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Open or create the database at `path`, now or, where its disk takes nothing, with a later tick.
        `before_opening` is called before each attempt; it may set a database aside. Raises StoreError for a file that
        is not ours or cannot be written for a reason that does not pass. While a reader holds more than `max_log_bytes`
        of log, ticks wait."""
        self.path = path
        self.fault: Absence | None = None
        self.set_aside: SetAside | None = None
        self.is_open = False
        self.lost_ticks = 0
        self._before_opening, self._now = before_opening, now
        self._hold_ticks, self._max_log_bytes = hold_ticks, max_log_bytes
        self._nodes: dict[str, NodeWriter] = {}
        self._when_open: list[Callable[[], object]] = []
        self._waiting: list[Told] = []
        # Of each node, when the first dropped tick began, and when the last one ended.
        self._gaps: dict[NodeWriter, tuple[float, float]] = {}
        self._tried_at = -inf
        try:
            self._open()
        except PassingError as error:
            self._hold(error)

    @classmethod
    def open(cls, path: Path, **options: Any) -> Self:  # noqa: ANN401 - those of `Writer`
        """A writer of a file that can be opened at once. Raises StoreError, a PassingError where that may pass."""
        writer = cls(path, **options)
        if not writer.is_open:
            writer._open()
        return writer

    @property
    def waiting_ticks(self) -> int:
        return sum(statement.tick is not None for statement in self._waiting)

    def when_open(self, call: Callable[[], object]) -> None:
        """Call once when the file is open; at once where it is."""
        if self.is_open:
            call()
        else:
            self._when_open.append(call)

    def for_node(self, node: Node, ts: float) -> NodeWriter:
        """The writer of one node; the same one for the same name. Records the node as seen at `ts`."""
        writer = self._nodes.get(node.node)
        if writer is None:
            writer = self._nodes[node.node] = NodeWriter(self, node, ts)
            self.when_open(partial(self._note_aside, writer))
        writer.set_node(node, ts)
        return writer

    def tell(self, statement: Told) -> None:
        self._waiting.append(statement)

    def flush(self, tick: Tick) -> None:
        """Write what waits where that is due with this tick."""
        wait = _FLUSH_SECONDS if self.fault is None else _RETRY_SECONDS
        if abs(tick.ts - self._tried_at) + tick.interval_seconds / 2 >= wait:
            self._tried_at = tick.ts
            self.commit()

    def commit(self) -> bool:
        """Write what waits. False: it could not be written now, still waits, and `fault` says why. Raises StoreError
        where waiting does not help: the file is damaged, or was replaced."""
        while True:
            part = self._waiting[:_AT_ONCE]
            try:
                if not self.is_open:
                    self._open()
                self._transact(partial(self._write, part))
            except PassingError as error:
                for node in self._nodes.values():
                    node.forget()
                self._hold(error)
                return False
            self.fault = None
            self._gaps.clear()
            del self._waiting[: len(part)]
            if not self._waiting:
                return True

    def put_now(self, write: Callable[[], object] = lambda: None) -> None:
        """Commit what waits, then run `write` in its own transaction: bulk work. Raises StoreError where it fails."""
        if not self.commit() and self.fault is not None:
            raise StoreError(self.fault.detail, self.fault.remedy)
        self._transact(write)

    def put_truth(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """What a simulated workload really is: (workload_id, kind, bottleneck, waste). No agent writes this table."""
        columns = "workload_id TEXT PRIMARY KEY, kind TEXT NOT NULL, bottleneck TEXT NOT NULL, waste TEXT NOT NULL"
        self.put_now(lambda: self.connection.execute(f"CREATE TABLE IF NOT EXISTS truth ({columns})"))
        self.put_now(lambda: self.connection.executemany("INSERT OR REPLACE INTO truth VALUES (?, ?, ?, ?)", rows))

    def close(self) -> None:
        """Commit and release the file. Idempotent. Raises StoreError where something could not be written."""
        if self._tried_at == inf:
            return
        self._tried_at = inf
        try:
            written = self.commit()
        finally:
            if self.is_open:
                self.connection.close()
        if not written and self.fault is not None:
            why = f"{self.path}: the last {self.waiting_ticks} ticks could not be written ({self.fault.reason})."
            raise StoreError(why, self.fault.remedy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # What went wrong first is what a person must see.
        with nullcontext() if error is None else suppress(StoreError):
            self.close()

    def _open(self) -> None:
        before = self._before_opening()
        self.connection, aside = open_for_writing(self.path, self._now)
        self.set_aside = aside or before
        self._file = self._identity()
        self.is_open = True
        for call in self._when_open:
            call()

    def _note_aside(self, node: NodeWriter) -> None:
        if (aside := self.set_aside) is not None:
            detail = f"The database was set aside as {aside.kept_as.name}: {aside.why}."
            node.note(store_absence(aside.reason, detail, aside.remedy), node.begun)

    def _write(self, part: Iterable[Told]) -> None:
        for node, (since, until) in self._gaps.items():
            why = self.fault.reason if self.fault else "not written"
            detail = f"The database could not be written ({why}) for longer than {self._hold_ticks} ticks."
            node.put_absence(store_absence("ticks-lost", detail, "See the reason reported before it."), since, until)
        for statement in part:
            statement.write()

    def _transact(self, write: Callable[[], object]) -> None:
        try:
            if self._identity() != self._file:
                # Written on, an unlinked file would take every sample and show none.
                why = f"{self.path} was removed or replaced while it was being written, so the agent stops."
                raise StoreError(why, "Start it again; to clear a database, stop the agent first.")
            if log_bytes(self.path) > self._max_log_bytes:
                # The jobs bring the log home each minute; a writer without them does it here.
                checkpoint(self.path, min(LOG_KEPT_BYTES, self._max_log_bytes // 2))
            if (size := log_bytes(self.path)) > self._max_log_bytes:
                why = f"a reader has held its log of {size / 1e6:.0f} MB in one long transaction"
                remedy = f"End the program that reads {self.path.name} (fuser names it), or let it read a snapshot."
                raise PassingError(self.path, "log-held", why, remedy)
            with transaction(self.connection):
                write()
        except (OSError, sqlite3.Error) as error:
            if is_damage(error):
                mark_damaged(self.path, str(error))
            raise disk_error(self.path, error) from error

    def _identity(self) -> tuple[int, int] | None:
        with suppress(FileNotFoundError):
            stat_result = self.path.stat()
            return stat_result.st_dev, stat_result.st_ino
        return None

    def _hold(self, error: PassingError) -> None:
        """Say why nothing is written. Drop the oldest ticks, and of the rest the oldest that does not hold any more."""
        if self.fault is None or self.fault.reason != error.reason:
            what = f"{error.path.name} cannot be written ({error.why})"
            detail = f"{what}; up to {self._hold_ticks} ticks are held in memory."
            self.fault = store_absence(error.reason, detail, error.remedy)
        ticks = self.waiting_ticks - self._hold_ticks
        others = sum(statement.size for statement in self._waiting) - MOST_OTHERS
        last_words = {(statement.node, statement.state): statement for statement in self._waiting if statement.state}
        kept: list[Told] = []
        for waiting in self._waiting:
            if waiting.tick is not None and ticks > 0:
                ticks -= 1
                self.lost_ticks += 1
                began, end = waiting.tick.ts - waiting.tick.interval_seconds, waiting.tick.ts
                since, until = self._gaps.get(waiting.node, (began, end))
                self._gaps[waiting.node] = (min(since, began), max(until, end))
            elif waiting.tick is None and others > 0 and last_words.get((waiting.node, waiting.state)) is not waiting:
                others -= waiting.size
            else:
                kept.append(waiting)
        self._waiting = kept
