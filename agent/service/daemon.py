"""`skuwise agent run`: the loop, the store and the jobs, from start to a clean stop, through reloads and restarts."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ...rules.base.errors import SkuwiseError, StoreError
from ..base.clock import SystemClock
from ..base.signal_pipe import SignalPipe
from ..config import AgentConfig
from ..sampler import SamplingLoop
from .assembly import Agent, assemble
from .control import ControlServer
from .guard import USUAL_SECONDS
from .notify import Notifier
from .process_stats import resident_bytes
from .recorder import Recorder
from .relief import Relief
from .run_database import RunDatabase
from .supervisor import MAX_PAUSE_SECONDS, Supervisor
from .timetable import roll_all, start_jobs

if TYPE_CHECKING:
    from .metrics_page import MetricsPage
    from .totals import Totals

_Ending = Literal["stop", "reload", "restart"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended: ticks kept, and why the agent wants to be started again (None: it does not)."""

    kept: int
    restart: str | None = None


class Signals:
    """What was asked of this process: SIGTERM and SIGINT stop it, SIGHUP reloads its settings.

    `pipe` wakes the main thread, which alone may hear of them; `wake` is called to end the loop's wait.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.pipe = SignalPipe()
        self.stop = False
        self.reload = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.stop = True
        self._wake()


def run_agent(
    config: AgentConfig,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    reload: Callable[[], AgentConfig] | None = None,
) -> RunOutcome:
    """Sample into `config.db` until the duration is over or SIGTERM or SIGINT comes.

    SIGHUP asks `reload` for new settings and goes on with them; settings that are wrong, or whose database cannot be
    opened, are refused in a sentence and the old ones stay. Raises `StoreError` where the database cannot be opened at
    the start for a reason that does not pass (`PatientWriter` waits for the others), or the last ticks could not be
    written.
    """
    clock = SystemClock()
    notifier = Notifier(environ)
    signals = Signals(clock.wake)
    left = config.duration_seconds
    kept = 0
    wanted, current = config, config
    totals: Totals | None = None
    try:
        while True:
            try:
                opened = RunDatabase(wanted.db, wanted.limits, lambda: clock.now().wall_seconds)
            except StoreError as error:
                if wanted is current:
                    raise
                say(f"the new settings are not taken: {error}")
                wanted = current
                continue
            current = wanted
            life = _Life(current, environ, say, clock, notifier, signals, opened, totals)
            ending, ticks, seconds = life.live(left)
            totals = life.totals
            kept += ticks
            left = None if left is None else max(0.0, left - seconds)
            if ending != "reload":
                return RunOutcome(kept, life.restart_reason if ending == "restart" else None)
            notifier.reloading()
            signals.reload = False
            wanted = _reloaded(current, reload, say)
    finally:
        signals.pipe.close()
        notifier.close()


def _reloaded(
    current: AgentConfig, reload: Callable[[], AgentConfig] | None, say: Callable[[str], None]
) -> AgentConfig:
    if reload is None:
        return current
    try:
        return replace(reload(), duration_seconds=current.duration_seconds)
    except SkuwiseError as error:
        say(f"the new settings are not taken: {error}")
        return current


@dataclass(eq=False)
class _Life:
    """The agent with one set of settings. `totals`: of the metrics page, over all reloads; None: none served yet."""

    config: AgentConfig
    environ: Mapping[str, str]
    say: Callable[[str], None]
    clock: SystemClock
    notifier: Notifier
    signals: Signals
    opened: RunDatabase
    totals: Totals | None
    restart_reason: str | None = None

    def live(self, duration_seconds: float | None) -> tuple[_Ending, int, float]:
        """How it ended, the ticks kept, and for how many seconds the loop ran."""
        with self.opened as opened:
            with opened.writing(), contextlib.ExitStack() as stack:
                kept, seconds = self._sample(stack, duration_seconds)
            ending = self._ending()
            if ending != "reload" and opened.writer.is_open:
                self.notifier.stopping("writing the last rollups")
                roll_all(self.config.db, self.say, and_open=True)
        return ending, kept, seconds

    def _sample(self, stack: contextlib.ExitStack, duration_seconds: float | None) -> tuple[int, float]:
        config, clock, opened = self.config, self.clock, self.opened
        start = clock.now()
        pause_left = min(opened.paused_until - start.wall_seconds, MAX_PAUSE_SECONDS)
        agent = assemble(config, self.environ, clock.now, pause_seconds=max(0.0, pause_left))
        stack.callback(agent.sampler.close)
        stack.callback(agent.attribution.close)
        now = clock.now()
        recorder = Recorder(
            opened.writer,
            agent.node,
            agent.survey,
            attribution=agent.attribution,
            resurvey=agent.resurvey,
            bursts=agent.bursts,
            ts=now.wall_seconds,
            metrics=self._serve_metrics(agent, stack),
        )
        attendant = Supervisor(
            clock,
            self.notifier,
            agent.drivers,
            opened,
            store=opened.writer,
            server=self._listen(stack),
            note=recorder.note,
            say=self.say,
            database=config.db,
        )
        opened.writer.commit()
        opening = _opening(agent, config)
        self.say(opening)

        def begun() -> None:
            if opened.aside is not None:
                attendant.note_aside(opened.aside)
            stack.callback(self._start_jobs(agent))

        opened.writer.when_open(begun)
        self.notifier.ready(opening)
        stopping = self._stopping(attendant)
        clock.attend = stopping
        stack.callback(setattr, clock, "attend", lambda: False)
        began = clock.now().monotonic_seconds
        loop = SamplingLoop(
            agent.sampler,
            clock,
            recorder.keep,
            recorder.report,
            resident_bytes,
            duration_seconds=duration_seconds,
            stopped=stopping,
            stepped=attendant.clock_stepped,
        )
        _run(loop, agent, self.signals.pipe)
        self.restart_reason = attendant.restart_reason
        return loop.kept, clock.now().monotonic_seconds - began

    def _start_jobs(self, agent: Agent) -> Callable[[], None]:
        """Start the jobs. Returns what stops them."""
        stop_jobs = start_jobs(self.config.db, self.say, agent.bursts, self.config.limits)

        def stop() -> None:
            agent.bursts.stop()
            stop_jobs()

        return stop

    def _serve_metrics(self, agent: Agent, stack: contextlib.ExitStack) -> MetricsPage | None:
        config = self.config
        if config.listen is None:
            return None
        from .metrics_page import MetricsPage  # noqa: PLC0415 - most agents serve no page
        from .totals import Totals  # noqa: PLC0415

        if self.totals is None or not self.totals.go_on(agent.node, config.interval_seconds):
            self.totals = Totals(agent.node, config.interval_seconds)
        metrics = MetricsPage(config.listen, self.totals, config.max_gap_seconds)
        metrics.start(self.say)
        stack.callback(metrics.stop)
        return metrics

    def _stopping(self, attendant: Supervisor) -> Callable[[], bool]:
        waits = False

        def stopping() -> bool:
            nonlocal waits
            attendant.attend()
            # New settings begin a new writer, and what waits in this one would be lost.
            reload, fault = self.signals.reload, self.opened.writer.fault
            if reload and fault is not None and not waits:
                self.say(f"the settings are read again when the database can be written ({fault.reason})")
            waits = reload and fault is not None
            return self.signals.stop or (reload and not waits) or attendant.restart_reason is not None

        return stopping

    def _ending(self) -> _Ending:
        if self.signals.stop:
            return "stop"
        if self.restart_reason is not None:
            return "restart"
        return "reload" if self.signals.reload else "stop"

    def _listen(self, stack: contextlib.ExitStack) -> ControlServer | None:
        try:
            server = ControlServer(self.config.control_socket, self.clock.wake)
        except SkuwiseError as error:
            self.say(str(error))
            return None
        stack.callback(server.close)
        return server


def _run(loop: SamplingLoop, agent: Agent, signals: SignalPipe) -> None:
    """Run the loop on a thread that reads the drivers itself, and that another one replaces where a driver keeps it."""
    try:
        relief = Relief(USUAL_SECONDS, signals)
    except OSError:
        loop.run()  # the drivers are read on their own threads
        return
    guards = agent.drivers.guards
    for guard in guards:
        guard.relief = relief
    try:
        relief.run(loop.run)
    finally:
        for guard in guards:
            guard.relief = None
        relief.close()


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
