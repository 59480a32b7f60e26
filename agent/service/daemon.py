"""`skuwise agent run`: the loop, the store and the jobs, from start to a clean stop, through reloads and restarts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...rules.base.errors import SkuwiseError, StoreError
from ..base.clock import Signals, SystemClock
from ..config import AgentConfig
from ..sampler import run_loop
from ..store.writer import Writer
from .assembly import Agent, assemble
from .control import ControlServer
from .instance_lock import InstanceLock
from .recorder import Recorder
from .supervisor import MAX_PAUSE_SECONDS, Notifier, Supervisor
from .timetable import roll_last, start_jobs

if TYPE_CHECKING:
    from .metrics_page import MetricsPage
    from .totals import Totals


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended: ticks kept, and why the agent wants to be started again (None: it does not)."""

    kept: int
    restart: str | None = None


def run_agent(
    config: AgentConfig,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    reload: Callable[[], AgentConfig] | None = None,
) -> RunOutcome:
    """Sample into `config.db` until the duration is over or SIGTERM or SIGINT comes.

    SIGHUP asks `reload` for new settings and goes on with them; settings that are wrong, or whose database cannot be
    opened, are refused in a sentence and the old ones stay. Raises `StoreError` where the database cannot be opened at
    the start for a reason that does not pass (the writer waits for the others), or the last ticks could not be written.
    """
    daemon = _Daemon(config, environ, say)
    wanted = config
    try:
        while daemon.live(wanted):
            daemon.notifier.tell("RELOADING")
            daemon.signals.reload = False
            try:
                wanted = replace(reload(), duration_seconds=config.duration_seconds) if reload else daemon.config
            except SkuwiseError as error:
                wanted = daemon.config
                say(f"the new settings are not taken: {error}")
    finally:
        daemon.signals.close()
    return RunOutcome(daemon.kept, None if daemon.signals.stop else daemon.restart_reason)


class _Daemon:
    """One process: what outlives a reload of the settings. `live` is the agent with one set of them."""

    def __init__(self, config: AgentConfig, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.config = config
        self.environ, self.say = environ, say
        self.clock = SystemClock()
        self.signals = Signals(self.clock, reloads=True)
        self.notifier = Notifier(environ)
        self.kept = 0
        self.restart_reason: str | None = None
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
            self.say(f"the new settings are not taken: {error}")
            lock, writer = _opened(self.config)
        with contextlib.closing(lock):
            with writer, contextlib.ExitStack() as stack:
                self._sample(stack, lock, writer)
            reloads = self.signals.reload and not self.signals.stop and self.restart_reason is None
            if not reloads and writer.is_open:
                self.notifier.tell("STOPPING", "writing the last rollups")
                roll_last(self.config.db, self.say)
        return reloads

    def _sample(self, stack: contextlib.ExitStack, lock: InstanceLock, writer: Writer) -> None:
        config, clock = self.config, self.clock
        pause_left = min(lock.memory.paused_until - clock.now().wall_seconds, MAX_PAUSE_SECONDS)
        agent = assemble(
            config, self.environ, clock.now, pause_seconds=max(0.0, pause_left), stopped=lambda: self.signals.stop
        )
        stack.callback(agent.sampler.close)
        stack.callback(agent.attribution.close)
        recorder = Recorder(writer, agent, clock.now().wall_seconds, self._serve_metrics(agent, stack))
        server = self._listen(stack)
        supervisor = Supervisor(clock, self.notifier, agent.driver, lock, writer, server, recorder.note, self.say)
        writer.commit()
        opening = _opening(agent, config)
        self.say(opening)

        def begun() -> None:
            supervisor.begun()
            stack.callback(start_jobs(config.db, self.say, agent.bursts, config.limits))

        writer.when_open(begun)
        self.notifier.tell("READY", opening)
        began = clock.now().monotonic_seconds
        self.kept += run_loop(
            agent.sampler,
            clock,
            recorder.keep,
            recorder.report,
            duration_seconds=self._left,
            stopped=lambda: self._is_over(supervisor, writer),
            stepped=supervisor.clock_stepped,
        )
        if self._left is not None:
            self._left = max(0.0, self._left - (clock.now().monotonic_seconds - began))
        self.restart_reason = supervisor.restart_reason

    def _is_over(self, supervisor: Supervisor, writer: Writer) -> bool:
        supervisor.attend()
        # New settings begin a new writer, and what waits in this one would be lost.
        reloads = self.signals.reload and writer.fault is None
        return self.signals.stop or reloads or supervisor.restart_reason is not None

    def _serve_metrics(self, agent: Agent, stack: contextlib.ExitStack) -> MetricsPage | None:
        config = self.config
        if config.listen is None:
            return None
        from .metrics_page import MetricsPage  # noqa: PLC0415 - most agents serve no page
        from .totals import Totals  # noqa: PLC0415

        if self._totals is None or not self._totals.go_on(agent.node, config.interval_seconds):
            self._totals = Totals(agent.node, config.interval_seconds)
        page = MetricsPage(config.listen, self._totals, config.max_gap_seconds)
        page.start(self.say)
        stack.callback(page.stop)
        return page

    def _listen(self, stack: contextlib.ExitStack) -> ControlServer | None:
        try:
            server = ControlServer(self.config.control_socket, self.clock.wake)
        except SkuwiseError as error:
            self.say(str(error))
            return None
        stack.callback(server.close)
        return server


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
    what = f"{gpus} GPUs{parts}, {ports} fabric ports and the host"
    text = f"sampling {what} every {config.interval_seconds:g} s into {config.db}"
    return text if gpus else f"{text}; no GPU can be read: run 'skuwise agent doctor' for the reason"


def say_on_stderr(text: str) -> None:
    """Narration: data alone goes to stdout."""
    print(f"skuwise agent: {text}", file=sys.stderr, flush=True)  # noqa: T201
