"""The commands that a message about incidents prints."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from .reader_commands import NO_COMMANDS, ReaderCommands


@dataclass(frozen=True, slots=True)
class IncidentCommands:
    """`reader`: how the recipient runs skuwise on the telemetry that is watched. `state`: the file of incidents, on the
    machine on which the watch runs; None: the usual one."""

    reader: ReaderCommands = NO_COMMANDS
    state: Path | None = None

    @property
    def where(self) -> str:
        """What stands behind a sentence that announces a command."""
        return f" (run on {self.reader.host})" if self.reader.host else ""

    def job(self, workload_id: str) -> str:
        """The card of a workload."""
        return self._run("job", shlex.quote(workload_id), self.reader.source)

    def acknowledge(self, incident_id: str) -> str:
        return self._run("incidents acknowledge", shlex.quote(incident_id), self._state)

    def show(self, incident_id: str) -> str:
        """One incident with its evidence and history."""
        return self._run("incidents show", shlex.quote(incident_id), self._state)

    def snooze(self, incident_id: str) -> str:
        return self._run("incidents snooze", shlex.quote(incident_id), "--until 1d", self._state)

    def list(self) -> str:
        return self._run("incidents list", self._state)

    @property
    def _state(self) -> str:
        return f"--state {shlex.quote(str(self.state.absolute()))}" if self.state is not None else ""

    def _run(self, *words: str) -> str:
        return " ".join(word for word in (self.reader.program, *words) if word)
