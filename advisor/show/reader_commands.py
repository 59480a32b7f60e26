"""The commands that a page prints: complete, so that they run where they are pasted."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from ..core.timestamps import day, rfc3339


@dataclass(frozen=True, slots=True)
class ReaderCommands:
    """How the reader of a page runs skuwise on the telemetry of that page. All are words of a shell, quoted already.

    `program`: what starts skuwise. `source`: the options that name the telemetry, with absolute paths; empty: unknown.
    `book`: those for rules and prices. `state`: that for the state file; empty: the fleet's own. `window`: those of the
    page's window. `host`: the machine on which they run; empty: any.
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

    def explain(self, id_: str) -> str:
        """All about one recommendation, finding or workload."""
        return self._run("explain", shlex.quote(id_), self.source, self.window, self.book, self.state)

    def advise(self, *options: str) -> str:
        """The whole advice of the window."""
        return self._run("advise", self.source, self.window, self.book, self.state, *options)

    def accept(self, id_: str) -> str:
        """Accept a recommendation."""
        return self._run("ledger accept", shlex.quote(id_), self.state)

    def ledger_list(self) -> str:
        return self._run("ledger list", self.state)

    def job(self, workload_id: str) -> str:
        """The card of a workload."""
        return self._run("job", shlex.quote(workload_id), self.source)

    def acknowledge(self, incident_id: str) -> str:
        return self._run("incidents acknowledge", shlex.quote(incident_id), self.state)

    def show(self, incident_id: str) -> str:
        """One incident with its evidence and history."""
        return self._run("incidents show", shlex.quote(incident_id), self.state)

    def snooze(self, incident_id: str) -> str:
        return self._run("incidents snooze", shlex.quote(incident_id), "--until 1d", self.state)

    def incidents(self) -> str:
        """All incidents."""
        return self._run("incidents list", self.state)

    def _run(self, *words: str) -> str:
        return " ".join(word for word in (self.program, *words) if word)


NO_COMMANDS = ReaderCommands()
