"""`skuwise agent run`: the loop, the store and the jobs, from start to a clean stop, through reloads and restarts."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ...rules.base.errors import SkuwiseError, StoreError
from ..base.clock import Signals, SystemClock
from ..base.self_command import child_command
from ..config import AgentConfig
from ..model import Absence, AgentStats, Node, Probe, Tick
from ..sampler import run_loop
from ..store.database import checkpoint
from ..store.rollups import RollupJob
from ..store.writer import Writer
from .assembly import Agent, assemble
from .bursts import Bursts, next_start
from .control import ControlServer
from .instance_lock import InstanceLock
from .supervisor import MAX_PAUSE_SECONDS, Notifier, Supervisor

if TYPE_CHECKING:
    from .page_server import PageServer
    from .totals import Totals


# How long a wait lasts at most before the wall clock is asked again: it may be set meanwhile.
_LOOK_SECONDS = 30.0
# A run of retention ends by itself after 30 s (RetentionJob); a look at the whole file takes seconds.
_CHILD_SECONDS = 300.0

# What to run, and its first time after a given one (both Unix seconds).
Job = tuple[Callable[[], object], Callable[[float], float]]
# Processes are listed every 10 s; where none come for this long the driver is silent, but the node can be drained.
_WITHOUT_PROCESSES_SECONDS = 15.0


def run_agent(config: AgentConfig, environ: Mapping[str, str], reload: Callable[[], AgentConfig]) -> tuple[int, bool]:
    """Sample into `config.db` until the duration is over or SIGTERM or SIGINT comes. Returns the ticks kept, and
    whether the agent is to be started again. SIGHUP asks `reload` for new settings; those that are wrong, or whose
    database cannot be opened, are refused in a sentence and the old ones stay. Raises `StoreError` where the database
    cannot be opened at the start for a reason that does not pass, or the last ticks could not be written."""
    daemon = _Daemon(config, environ)
    wanted = config
    with contextlib.closing(daemon.signals):
        while daemon.live(wanted):
            daemon.notifier.tell("RELOADING")
            daemon.signals.reload = False
            try:
                wanted = reload()
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

    def live(self, wanted: AgentConfig) -> bool:
        """Sample to the end, or until new settings are wanted: whether they are. Where the database of those cannot be
        opened, the ones before stay."""
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
                # All that was seen, also of the periods that are not over.
                try:
                    RollupJob(self.config.db).run(time.time(), and_open=True)
                except (StoreError, sqlite3.Error) as error:  # the samples stay; the next run takes up what is left
                    say_on_stderr(f"rollups are late: {error}")
        return reloads

    def _sample(self, stack: contextlib.ExitStack, lock: InstanceLock, writer: Writer) -> None:
        config, clock, signals = self.config, self.clock, self.signals
        pause_left = min(lock.memory.paused_until - clock.now().wall_seconds, MAX_PAUSE_SECONDS)
        agent = assemble(config, self.environ, clock.now, pause_seconds=pause_left, stopped=lambda: signals.stop)
        stack.callback(agent.sampler.close)
        stack.callback(agent.attribution.allocations.close)
        totals, page = serve_metrics(config, stack, agent.node)
        recorder = Recorder(writer, agent, clock.now().wall_seconds, totals, page)
        try:
            server = ControlServer(config.control_socket)
            stack.callback(server.close)
        except SkuwiseError as error:
            say_on_stderr(str(error))
            server = None
        supervisor = Supervisor(
            clock, self.notifier, agent.driver, lock, writer, server, recorder.node_writer.note, say_on_stderr
        )
        writer.commit()
        opening = _opening(agent, config)
        say_on_stderr(opening)

        def is_over() -> bool:
            supervisor.attend()
            # New settings begin a new writer, and what waits in this one would be lost.
            return signals.stop or supervisor.wants_restart or (signals.reload and writer.fault is None)

        writer.when_open(lambda: stack.callback(start_jobs(config, agent.node.node, agent.bursts, say_on_stderr)))
        self.notifier.tell("READY", opening)
        self.kept += run_loop(
            agent.sampler,
            clock,
            recorder.keep,
            recorder.report,
            duration_seconds=config.duration_seconds,
            stopped=is_over,
            stepped=supervisor.clock_stepped,
        )
        self.restarts = supervisor.wants_restart


def serve_metrics(
    config: AgentConfig, stack: contextlib.ExitStack, node: Node
) -> tuple[Totals | None, PageServer | None]:
    """Serve a page of running totals, until `stack` ends, where the settings ask for one."""
    if config.listen is None:
        return None, None
    from .metrics_page import make_page  # noqa: PLC0415 - most agents serve no page
    from .page_server import PageServer  # noqa: PLC0415
    from .totals import Totals  # noqa: PLC0415

    totals = Totals(node, config.interval_seconds)
    page = PageServer(
        config.listen,
        partial(make_page, totals),
        version=lambda: totals.ticks,
        is_healthy=lambda: totals.seconds_since_tick() <= config.max_gap_seconds,
    )
    page.start()
    stack.callback(page.stop)
    fault = page.fault
    say_on_stderr(f"{fault.detail} {fault.remedy}" if fault else f"metrics at http://{page.address}/metrics")
    return totals, page


class Recorder:
    """Keeps what the sampler reads in its database, and in `totals` where metrics are served by `page`."""

    def __init__(
        self, writer: Writer, agent: Agent, ts: float, totals: Totals | None = None, page: PageServer | None = None
    ) -> None:
        self._writer, self._agent, self._totals, self._page = writer, agent, totals, page
        self.node_writer = writer.for_node(agent.node, ts)
        self._attribution, self._bursts = agent.attribution, agent.bursts
        self._absences: frozenset[Absence] | None = None
        self._attributed_at = ts
        self._announce(agent.survey, ts)

    def keep(self, tick: Tick) -> None:
        """Store one tick. What cannot be written waits in the writer; the fault is kept as an absence."""
        ts = tick.ts
        if self._agent.sampler.wants_probe:  # a port came up, a NIC or a GPU appeared
            self._announce(self._agent.look(), ts)
        if tick.processes is not None:
            workloads, uses = self._attribution.attribute(tick.processes)
            self.node_writer.set_workloads(workloads, uses, ts)
            if self._totals is not None:
                self._totals.set_uses(workloads, [use for use in uses if use.until is None])
            self._attributed_at = ts
        elif abs(ts - self._attributed_at) >= _WITHOUT_PROCESSES_SECONDS:
            self._attribution.look_at_node()
            self._attributed_at = ts
        self.node_writer.add_tick(tick)
        self._keep_absences(tick.absences, ts)  # whether the tick could be written is among them
        for event in tick.events:
            self.node_writer.add_event(event)
        if self._totals is not None:
            self._totals.add_tick(tick)
        for served in tick.serving:
            holder = self._attribution.holder_of(served.pids)
            self.node_writer.add_serving(replace(served, workload_id=holder))
        for burst in self._bursts.take():
            self.node_writer.add_burst(burst)

    def report(self, stats: AgentStats) -> None:
        self.node_writer.add_agent_stats(stats)
        if self._totals is not None:
            self._totals.add_stats(stats)

    def _keep_absences(self, absences: frozenset[Absence], ts: float) -> None:
        faults = (self._writer.fault, None if self._page is None else self._page.fault)
        whole = absences.union(self._attribution.absences, self._bursts.absences, filter(None, faults))
        if whole != self._absences:
            self._absences = whole
            self.node_writer.set_absences(whole, ts)
            if self._totals is not None:
                self._totals.set_absences(whole)

    def _announce(self, survey: Probe, ts: float) -> None:
        if survey.node is not None:
            self.node_writer.set_node(survey.node, ts)
        self._attribution.allocations.gpus = survey.gpus
        self.node_writer.set_gpus(survey.gpus, ts)
        self.node_writer.set_ports(survey.ports, ts)
        if self._totals is not None:
            self._totals.set_survey(survey)


def every(period_seconds: float, offset_seconds: float = 0.0) -> Callable[[float], float]:
    """The first moment after a given one (both Unix seconds) that lies `offset_seconds` into a period, in UTC."""
    return lambda now: ((now - offset_seconds) // period_seconds + 1) * period_seconds + offset_seconds


def run_jobs(
    jobs: Sequence[Job], stopped: threading.Event, say: Callable[[str], None], now: Callable[[], float] = time.time
) -> None:
    """Run jobs at their times, one after the other, until `stopped`; each once however often its time came meanwhile.
    What one of them raises is said, and it is tried again the next time."""
    times = [next_after(now()) for _, next_after in jobs]
    while not stopped.wait(max(0.0, min(_LOOK_SECONDS, min(times) - now()))):
        for place, (run, next_after) in enumerate(jobs):
            is_due, following = times[place] <= now(), next_after(now())
            # A clock that was put back brings the next time nearer.
            times[place] = following if is_due else min(times[place], following)
            if is_due and not stopped.is_set():
                try:
                    run()
                except Exception as error:
                    say(f"a job failed with {type(error).__name__}: {str(error)[:200]}")


def start_jobs(config: AgentConfig, node: str, bursts: Bursts, say: Callable[[str], None]) -> Callable[[], None]:
    """Start the jobs of this node; call what is returned to stop them."""
    db, burst_every = config.db, config.burst_every_seconds
    minutes, stopped = RollupJob(db), threading.Event()

    def roll_minutes() -> None:
        minutes.run(time.time(), periods=("minute",))
        checkpoint(db)  # the log is brought home here, for the loop's thread never does

    def child(what: str, module: str, *arguments: str) -> None:
        """Run what is heavy in its own process. systemd ends it with the agent; nothing is lost by that."""
        command = child_command(f"skuwise.agent.store.{module}", *arguments)
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, check=False, timeout=_CHILD_SECONDS
        )
        if done.returncode != 0 and not stopped.is_set():
            say(f"{what}: {done.stderr.strip()[-500:]}")

    roll_hours = partial(child, "rollups are late", "rollups", str(db))
    limits = msgspec.json.encode(config.limits).decode()
    retain = partial(child, "retention is late", "retention", str(db), limits)
    # A period's last samples are committed some seconds after its end, so the minute's job waits for them; the hour's
    # runs between two of the minute's, and so does retention.
    store_jobs: list[Job] = [
        (roll_minutes, every(60, 17)),
        (roll_hours, every(3600, 47)),
        (retain, every(600, 7 * 60 + 32)),
    ]
    tables = [store_jobs]
    if burst_every > 0:  # a burst takes seconds and must be on time: it does not wait for the rollups
        tables.append([(bursts.run, partial(next_start, node, every_seconds=burst_every))])
    threads = [threading.Thread(target=run_jobs, args=(table, stopped, say), daemon=True) for table in tables]
    for thread in threads:
        thread.start()

    def stop() -> None:
        bursts.stop()
        stopped.set()
        for thread in threads:
            thread.join(0.3)  # they die with the process

    return stop


def _opened(config: AgentConfig) -> tuple[InstanceLock, Writer]:
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
