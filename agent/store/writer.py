"""The one who writes: holds ticks for a moment, writes them in batches, and survives a full disk.

Everything waits in memory as rows and is written in one transaction; where that fails the rows stay, the fault is
said, and the next commit tries again. So a caller never loses what it handed over, up to `hold_ticks`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from ...rules.base.errors import StoreError
from ..base.retention_limits import Limits
from ..model import Absence, Node
from .database import SetAside, open_for_writing
from .disk_errors import opening_error, store_absence
from .node_writer import NodeWriter, Schedule
from .write_batch import Batch


class Writer:
    """Writes one database file, for one node or many: `for_node` gives the writer of a node.

    Not for several threads. At most `commit_every` ticks or `commit_seconds` are not yet written: that much a killed
    process loses.
    """

    def __init__(self, path: Path, batch: Batch, set_aside: SetAside | None, schedule: Schedule) -> None:
        self.path = path
        self.set_aside = set_aside
        self._batch = batch
        self._schedule = schedule
        self._nodes: dict[str, NodeWriter] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        commit_every: int = 10,
        commit_seconds: float = 10.0,
        hold_ticks: int = 600,
        max_log_bytes: int = Limits().log_bytes,
        now: Callable[[], float] = time.time,
    ) -> Writer:
        """Open or create the database at `path`. Raises StoreError for a file that is not ours or cannot be written,
        a PassingError where that may pass.

        While a reader holds more than `max_log_bytes` of log, ticks wait in memory as they do on a full disk.

        Whoever opens last writes: an earlier writer of the same file is told so at its next commit and stops. (A lock
        would stay held by a process that a broken GPU keeps from dying.)
        """
        connection, aside = open_for_writing(path, now)
        try:
            batch = Batch(path, connection, hold_ticks, max_log_bytes)
        except sqlite3.Error as error:
            connection.close()
            raise opening_error(path, error) from error
        return cls(path, batch, aside, Schedule(commit_every, commit_seconds))

    @property
    def fault(self) -> Absence | None:
        """Why nothing can be written at present (``disk-full``, ``store-busy``, ...); None while all is well."""
        return self._batch.fault

    @property
    def waiting_ticks(self) -> int:
        """How many ticks are not yet written."""
        return self._batch.waiting_ticks

    @property
    def lost_ticks(self) -> int:
        """How many ticks were let go because a fault lasted longer than `hold_ticks`."""
        return self._batch.lost_ticks

    def for_node(self, node: Node, ts: float) -> NodeWriter:
        """The writer of one node; the same one for the same name. Records the node as seen at `ts`."""
        writer = self._nodes.get(node.node)
        if writer is not None:
            writer.set_node(node, ts)
            return writer
        writer = self._nodes[node.node] = NodeWriter(self._batch, self._schedule, node, ts)
        if self.set_aside is not None:
            detail = f"The database was set aside as {self.set_aside.kept_as.name}: {self.set_aside.why}."
            writer.note(store_absence(self.set_aside.reason, detail, self.set_aside.remedy), ts)
        return writer

    def commit(self) -> bool:
        """Write what waits, in one transaction. False: it could not be written now, still waits, and `fault` says why.

        Raises StoreError where waiting does not help: the file is damaged, or another writer took it over.
        """
        self._schedule.restart()
        return self._batch.commit()

    def close(self) -> None:
        """Commit and let go of the file. Idempotent. Raises StoreError where something could not be written."""
        if self._batch.closed:
            return
        try:
            written = self.commit()
        finally:
            self._batch.close()
        if not written and self.fault is not None:
            raise StoreError(
                f"{self.path}: the last {self._batch.waiting_ticks} ticks could not be written ({self.fault.reason}).",
                self.fault.remedy,
            )

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StoreError:
            if error is None:  # what went wrong first is what a person must see
                raise

    def limit_bytes(self, max_bytes: int | None) -> None:
        """Let the file grow to at most this size (None: as far as SQLite can). Beyond it the disk counts as full."""
        connection = self._batch.connection
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
        pages = 2**32 - 2 if max_bytes is None else max(1, max_bytes // page_bytes)
        connection.execute(f"PRAGMA max_page_count = {pages:d}").fetchone()

    def put_truth(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """What a simulated workload really is: (workload_id, kind, bottleneck, waste), in the table ``truth``."""
        columns = "workload_id TEXT PRIMARY KEY, kind TEXT NOT NULL, bottleneck TEXT NOT NULL, waste TEXT NOT NULL"
        self._put_beside(f"truth ({columns})", "INSERT OR REPLACE INTO truth VALUES (?, ?, ?, ?)", rows)

    def _put_beside(self, table: str, insert: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Rows of a table that no agent writes; it is made where it is not there."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            connection.executemany(insert, rows)

        self._batch.put_now(write)
