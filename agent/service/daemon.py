"""`skuwise agent run`: the loop, the store and the jobs, from start to a clean stop, through reloads and restarts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...rules.base.errors import SkuwiseError, StoreError
from ..base.clock import Signals, SystemClock
from ..config import AgentConfig
from ..model import Node
from ..sampler import run_loop
from ..store.writer import Writer
from .assembly import Agent, assemble
from .control import ControlServer
from .instance_lock import InstanceLock
from .recorder import Recorder
from .supervisor import MAX_PAUSE_SECONDS, Notifier, Supervisor
from .timetable import roll_last, start_jobs

if TYPE_CHECKING:
    from .page_server import PageServer
    from .totals import Totals


def run_agent(config: AgentConfig, environ: Mapping[str, str], reload: Callable[[], AgentConfig]) -> tuple[int, bool]:
    """Sample into `config.db` until the duration is over or SIGTERM or SIGINT comes. Returns the ticks kept, and
    whether the agent is to be started again.

    SIGHUP asks `reload` for new settings and goes on with them; settings that are wrong, or whose database cannot be
    opened, are refused in a sentence and the old ones stay. Raises `StoreError` where the database cannot be opened at
    the start for a reason that does not pass (the writer waits for the others), or the last ticks could not be written.
    """
    daemon = _Daemon(config, environ)
    wanted = config
    with contextlib.closing(daemon.signals):
        while daemon.live(wanted):
            daemon.notifier.tell("RELOADING")
            daemon.signals.reload = False
            try:
                wanted = replace(reload(), duration_seconds=config.duration_seconds)
            except SkuwiseError as error:
                wanted = daemon.config
                say_on_stderr(f"the new settings are not taken: {error}")
    return daemon.kept, daemon.restarts and not daemon.signals.stop


class _Daemon:
    """One process: what outlives a reload of the settings. `live` is the agent with one set of them."""

    def __init__(self, config: AgentConfig, environ: Mapping[str, str]) -> None:
        self.config, self.environ = config, environ
        self.clock = SystemClock()
        self.signals = Signals(self.clock, reloads=True)
        self.notifier = Notifier(environ)
        self.kept = 0
        self.restarts = False
        self._left = config.duration_seconds
        self._totals: Totals | None = None  # of the metrics page, over all reloads; None: none served yet

    def live(self, wanted: AgentConfig) -> bool:
        """Sample to the end, or until new settings are wanted: whether they are. Where the database of those that are
        `wanted` cannot be opened, the ones before stay."""
        try:
            lock, writer = _opened(wanted)
            self.config = wanted
        except StoreError as error:
            if wanted is self.config:
                raise
            say_on_stderr(f"the new settings are not taken: {error}")
            lock, writer = _opened(self.config)
        with contextlib.closing(lock):
            with writer, contextlib.ExitStack() as stack:
                self._sample(stack, lock, writer)
            reloads = self.signals.reload and not self.signals.stop and not self.restarts
            if not reloads and writer.is_open:
                self.notifier.tell("STOPPING", "writing the last rollups")
                roll_last(self.config.db, say_on_stderr)
        return reloads

    def _sample(self, stack: contextlib.ExitStack, lock: InstanceLock, writer: Writer) -> None:
        config, clock, signals = self.config, self.clock, self.signals
        pause_left = min(lock.memory.paused_until - clock.now().wall_seconds, MAX_PAUSE_SECONDS)
        agent = assemble(config, self.environ, clock.now, pause_seconds=pause_left, stopped=lambda: signals.stop)
        stack.callback(agent.sampler.close)
        stack.callback(agent.attribution.close)
        page = self._serve_metrics(stack, agent.node)
        recorder = Recorder(writer, agent, clock.now().wall_seconds, self._totals if page else None, page)
        try:
            server = ControlServer(config.control_socket)
            stack.callback(server.close)
        except SkuwiseError as error:
            say_on_stderr(str(error))
            server = None
        supervisor = Supervisor(clock, self.notifier, agent.driver, lock, writer, server, recorder.note, say_on_stderr)
        writer.commit()
        opening = _opening(agent, config)
        say_on_stderr(opening)

        def begun() -> None:
            supervisor.begun()
            stack.callback(start_jobs(config, agent.node.node, agent.bursts, say_on_stderr))

        def is_over() -> bool:
            supervisor.attend()
            # New settings begin a new writer, and what waits in this one would be lost.
            return signals.stop or supervisor.wants_restart or (signals.reload and writer.fault is None)

        writer.when_open(begun)
        self.notifier.tell("READY", opening)
        began = clock.now().monotonic_seconds
        self.kept += run_loop(
            agent.sampler,
            clock,
            recorder.keep,
            recorder.report,
            duration_seconds=self._left,
            stopped=is_over,
            stepped=supervisor.clock_stepped,
        )
        if self._left is not None:
            self._left = max(0.0, self._left - (clock.now().monotonic_seconds - began))
        self.restarts = supervisor.wants_restart

    def _serve_metrics(self, stack: contextlib.ExitStack, node: Node) -> PageServer | None:
        config = self.config
        if config.listen is None:
            return None
        from .metrics_page import page_server  # noqa: PLC0415 - most agents serve no page
        from .totals import Totals  # noqa: PLC0415

        if self._totals is None or not self._totals.go_on(node, config.interval_seconds):
            self._totals = Totals(node, config.interval_seconds)
        page = page_server(config.listen, self._totals, config.max_gap_seconds)
        page.start()
        stack.callback(page.stop)
        fault = page.fault
        say_on_stderr(f"{fault.detail} {fault.remedy}" if fault else f"metrics at http://{page.address}/metrics")
        return page


def _opened(config: AgentConfig) -> tuple[InstanceLock, Writer]:
    """The right to write the database and its writer. Raises StoreError where waiting does not help."""
    lock = InstanceLock(config.db)
    try:
        return lock, Writer(config.db, before_opening=lock.take, max_log_bytes=config.limits.log_bytes)
    except StoreError:
        lock.close()
        raise


def _opening(agent: Agent, config: AgentConfig) -> str:
    gpus, ports = sum(gpu.kind == "gpu" for gpu in agent.survey.gpus), len(agent.survey.ports)
    instances = len(agent.survey.gpus) - gpus
    parts = f" ({instances} MIG instances)" if instances else ""
    why = "" if gpus else "; no GPU can be read: run 'skuwise agent doctor' for the reason"
    what = f"{gpus} GPUs{parts}, {ports} fabric ports and the host"
    return f"sampling {what} every {config.interval_seconds:g} s into {config.db}{why}"


def say_on_stderr(text: str) -> None:
    """Narration: data alone goes to stdout."""
    print(f"skuwise agent: {text}", file=sys.stderr, flush=True)  # noqa: T201
