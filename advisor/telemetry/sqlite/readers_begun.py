"""Processes that help to read databases, begun while this process still loads what it makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .database_files import database_files
from .helpers import Helpers, weight_of, worth_processes


class ReadersBegun:
    """For several threads."""

    def __init__(self) -> None:
        self.helpers = Helpers()

    def begin(self, paths: Sequence[Path], processes: int, kept: Path | None = None) -> None:
        """For `paths`, read by as many as they are worth of `processes`; where hours are `kept`, little is left to
        read. What fails, fails when they are read."""
        if processes > 1 and not (kept is not None and kept.exists()):
            self.helpers.begin(worth_processes(map(weight_of, database_files(paths)), processes) - 1)

    def close(self) -> None:
        """End those that nobody took. Idempotent."""
        self.helpers.close()

    def end(self) -> None:
        """End those that help, too, whoever took them: the program is about to end."""
        self.helpers.end()
