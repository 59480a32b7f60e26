"""The page of metrics of ``skuwise serve``: what it tells is read again when its files change, and served by a thread.

Files are read by the loop of ``serve``, never by the thread that answers: a scrape meets either the state before or
the one after. A file that cannot be read leaves what was known, which says its age and ends with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

from ...agent.base.address import Address
from ...agent.service.page_server import Page, PageServer
from ...rules.base.errors import EXIT_DONE, SkuwiseError
from ..core.advice_json import read_advice
from ..metrics_page import PageLimits, SiteState, WatchStanding, make_page
from ..state.incidents import IncidentStore

_PATIENCE_SECONDS = 5.0  # of an advice file that is a pipe, which it should not be


class WatchLog:
    """Runs commands by `run` and keeps how those of the watch ended."""

    def __init__(
        self, run: Callable[[Sequence[str]], int], now: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._run, self._now, self._monotonic = run, now, monotonic
        self._lock = Lock()
        self.standing: WatchStanding | None = None

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command and give its exit status. Raises whatever `run` raises; a pass that cannot begin has failed."""
        if arguments[:1] != ("watch",):
            return self._run(arguments)
        began, status = self._monotonic(), None
        try:
            status = self._run(arguments)
            return status
        finally:
            done, seconds = status == EXIT_DONE, self._monotonic() - began
            with self._lock:
                known = self.standing or WatchStanding()
                last = self._now() if done else known.last_end
                self.standing = WatchStanding(known.passes + 1, known.failures + (not done), last, seconds)


class ServedPage:
    """`advice`, `incidents`: the files. `look` reads what changed; between `start` and `stop` the page is served."""

    def __init__(
        self, address: Address, *, advice: Path, incidents: Path, limits: PageLimits,
        watch: Callable[[], WatchStanding | None], say: Callable[[str], None], now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._advice, self._store, self._limits = advice, IncidentStore(incidents), limits
        self._incidents = incidents
        self._watch, self._say, self._now = watch, say, now
        self._state = SiteState()
        self._mark: tuple[int, int, int] | None = None
        self._version = 0
        self.server = PageServer(address, self._page, version=lambda: self._version, is_healthy=lambda: True)

    def start(self) -> None:
        """Serve, and say where, or why not: an address that is in use is tried again."""
        self.look()
        self.server.start()
        fault = self.server.fault
        said = "It is tried again every 30 s; set serve.listen to an address of this machine and a free port."
        self._say(f"{fault.detail} {said}" if fault else f"metrics at http://{self.server.address}/metrics")

    def stop(self) -> None:
        """Serve no longer."""
        self.server.stop()

    def look(self) -> None:
        """Read the files again, the advice only where it changed. Never raises for what they hold."""
        state = replace(self._state, watch=self._watch())
        state = self._with_incidents(self._with_advice(state))
        self._state = state
        self._version += 1  # ages change, too

    def _with_advice(self, state: SiteState) -> SiteState:
        try:
            about = self._advice.stat()
        except OSError:
            return replace(state, advice_readable=None)
        # What changes with a file's content.
        mark = about.st_ino, about.st_mtime_ns, about.st_size
        if mark == self._mark:
            return state
        self._mark = mark
        try:
            advice = read_advice(self._advice, patience_seconds=_PATIENCE_SECONDS)
        except SkuwiseError as error:
            self._say(f"metrics: {error}")
            return replace(state, advice_readable=False)
        return replace(state, advice=advice, advice_readable=True)

    def _with_incidents(self, state: SiteState) -> SiteState:
        if not self._incidents.exists():
            return replace(state, incidents=None, incidents_readable=None)
        try:
            return replace(state, incidents=self._store.current(), incidents_readable=True)
        except SkuwiseError as error:
            if state.incidents_readable is not False:
                self._say(f"metrics: {error}")
            return replace(state, incidents=None, incidents_readable=False)

    def _page(self, ended: Mapping[str, int]) -> Page:
        return make_page(self._state, self._limits, self._now(), ended)
