"""The commands that a page prints: complete, so that they run where they are pasted."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from ...core.timestamps import day, rfc3339


@dataclass(frozen=True, slots=True)
class ReaderCommands:
    """How the reader of a page runs skuwise on the telemetry of that page. All are words of a shell, quoted already.

    `program`: what starts skuwise. `source`: the options that name the telemetry, with absolute paths; empty: unknown.
    `book`: those for rules and prices. `ledger`: that for the ledger; empty: the default one. `window`: those of the
    page's window. `host`: the machine on which they run; empty: any.
    """

    program: str = "skuwise"
    source: str = ""
    book: str = ""
    ledger: str = ""
    window: str = ""
    host: str = ""

    def of_window(self, start: float, end: float) -> ReaderCommands:
        """The same for a window (Unix seconds)."""
        days = (end - start) / 86400
        length = f"{days:g}d" if days == round(days) else f"{(end - start) / 3600:g}h" if end > start else ""
        until = day(end) if end % 86400 == 0 else rfc3339(end)
        return replace(self, window=f"--since {length} --until {until}" if length else "")

    def explain(self, id_: str) -> str:
        """All about one recommendation, finding or workload."""
        return self._command("explain", shlex.quote(id_), self.source, self.window, self.book, self.ledger)

    def advise(self, *options: str) -> str:
        """The whole advice of the window."""
        return self._command("advise", self.source, self.window, self.book, self.ledger, *options)

    def ledger_show(self, id_: str) -> str:
        """What became of one recommendation."""
        return self._command("ledger show", shlex.quote(id_), self.ledger)

    def ledger_list(self) -> str:
        return self._command("ledger list", self.ledger)

    @property
    def lead(self) -> str:
        """What stands before a command."""
        return f"Details (run on {self.host}):" if self.host else "Details:"

    def _command(self, *words: str) -> str:
        return " ".join(word for word in (self.program, *words) if word)


NO_COMMANDS = ReaderCommands()
