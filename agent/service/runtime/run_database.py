"""The database of a run: locked and open, or still to be while its disk takes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ....rules.base.errors import StoreError
from ...base.retention_limits import Limits
from ...store.file.database import SetAside
from ...store.writing.deferred_writer import PatientWriter
from ...store.writing.writer import Writer
from .db_lock import WAIT_SECONDS, DatabaseLock


class RunDatabase:
    """The lock, the writer, and what outlives a restart (in the lock file, once there is one).

    Raises StoreError where another agent holds the database, or it cannot be opened for a reason that does not pass.
    Without a lock nobody knows when the agent last ended by itself: `restarted_at` is then the time it began, so that
    it does not end by itself within the hour.
    """

    def __init__(self, database: Path, limits: Limits, wall: Callable[[], float]) -> None:
        self._database = database
        self._limits = limits
        self._instance: DatabaseLock | None = None
        self._restarted_at = wall()
        self._paused_until: float | None = None
        self._wait_seconds = WAIT_SECONDS
        try:
            self.writer = PatientWriter(self._open)
        except BaseException:
            self.release()
            raise

    @property
    def aside(self) -> SetAside | None:
        """The database of a wedged agent that was set aside."""
        return self._instance.aside if self._instance is not None else None

    @property
    def restarted_at(self) -> float:
        return self._instance.restarted_at if self._instance is not None else self._restarted_at

    @property
    def paused_until(self) -> float:
        return self._instance.paused_until if self._instance is not None else self._paused_until or 0.0

    def note_restart(self, ts: float) -> bool:
        """See `DatabaseLock.note_restart`."""
        return self._instance is not None and self._instance.note_restart(ts)

    def note_pause(self, until: float) -> None:
        """See `DatabaseLock.note_pause`."""
        self._paused_until = until
        if self._instance is not None:
            self._instance.note_pause(until)

    def release(self) -> None:
        """Let go of the lock. Idempotent."""
        if self._instance is not None:
            self._instance.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """At the end what waits is written and the file let go; the lock stays."""
        try:
            yield
        except BaseException:
            with suppress(StoreError):  # what went wrong first is what a person must see
                self.writer.close()
            raise
        self.writer.close()

    def __enter__(self) -> RunDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _open(self) -> Writer:
        if self._instance is None:
            wait, self._wait_seconds = self._wait_seconds, 0.0  # the loop cannot wait for another agent
            self._instance = DatabaseLock.take(self._database, wait_seconds=wait)
            if self._paused_until is not None:
                self._instance.note_pause(self._paused_until)
        return Writer.open(self._database, max_log_bytes=self._limits.log_bytes)
