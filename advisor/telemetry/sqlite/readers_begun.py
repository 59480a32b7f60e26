"""What will read databases, begun while this process still loads what it makes of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ....rules.base.errors import SkuwiseError
from .database_files import database_files
from .helpers import Helpers, weight_of, worth_processes
from .reading_process import ReadingProcess


class ReadersBegun:
    """The process that opens files, and those that help to make tables of them. For several threads."""

    def __init__(self) -> None:
        self.helpers = Helpers()
        self._lock = threading.Lock()
        self._apart: ReadingProcess | None = None

    def begin(self, paths: Sequence[Path], processes: int, kept: Path | None = None) -> None:
        """For `paths`, read by as many as they are worth of `processes`; where hours are `kept`, little is left to
        read. What fails, fails when they are read."""
        with self._lock, suppress(SkuwiseError, OSError):
            weights = [] if kept is not None and kept.exists() else map(weight_of, database_files(paths))
            self.helpers.begin(worth_processes(weights, processes) - 1)
            self._apart = self._apart or ReadingProcess()
            self._apart.start()

    def take(self) -> ReadingProcess:
        """The one that opens files. Whoever takes it ends it."""
        with self._lock:
            apart, self._apart = self._apart or ReadingProcess(), None
            return apart

    def close(self) -> None:
        """End those that nobody took. Idempotent."""
        self.helpers.close()
        if self._apart is not None:
            self.take().close()

    def end(self) -> None:
        """End those that help, too, whoever took them: the program is about to end."""
        self.close()
        self.helpers.end()
