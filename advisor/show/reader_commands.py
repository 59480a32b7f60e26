"""The commands that a page prints: complete, so that they run where they are pasted."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from ..core.timestamps import day, rfc3339


@dataclass(frozen=True, slots=True)
class ReaderCommands:
    """How the reader of a page runs skuwise on the telemetry of that page. All are words of a shell, quoted already.

    `program`: what starts skuwise. `source`: the options that name the telemetry, with absolute paths; empty: unknown.
    `book`: those for rules and prices. `state`: that for the state file; empty: the fleet's default. `window`: those of
    the page's window. `host`: the machine on which they run; empty: any.
    """

    program: str = "skuwise"
    source: str = ""
    book: str = ""
    state: str = ""
    window: str = ""
    host: str = ""

    @property
    def where(self) -> str:
        """What stands behind a sentence that announces a command."""
        return f" (run on {self.host})" if self.host else ""

    def of_window(self, start: float, end: float) -> ReaderCommands:
        """The same for a window (Unix seconds)."""
        days = (end - start) / 86400
        length = f"{days:g}d" if days == round(days) else f"{(end - start) / 3600:g}h" if end > start else ""
        until = day(end) if end % 86400 == 0 else rfc3339(end)
        return replace(self, window=f"--since {length} --until {until}" if length else "")

    def advice(self, command: str, *words: str) -> str:
        """``advise`` or ``explain`` on the telemetry, window, prices and state of the page."""
        return self.run(command, *words, options=f"{self.source} {self.window} {self.book} {self.state}")

    def job(self, workload_id: str) -> str:
        """The card of a workload."""
        return self.run("job", workload_id, options=self.source)

    def stored(self, command: str, *words: str) -> str:
        """A command of ``ledger`` or ``incidents`` on the page's state file."""
        return self.run(command, *words, options=self.state)

    def run(self, command: str, *words: str, options: str = "") -> str:
        """`command` with `words`, which are quoted, and `options`, which are quoted already."""
        return " ".join(filter(None, (self.program, command, *map(shlex.quote, words), " ".join(options.split()))))


NO_COMMANDS = ReaderCommands()
