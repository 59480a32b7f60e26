"""``skuwise serve``: reports, watch, snapshots and the cache on a schedule, where there is no systemd (a container).

Each job is a command of this installation in a process of its own: its memory is given back when it ends, and one that
fails takes nothing with it. What a job must remember (what was sent) lies on the disk, so that a container that was
down on Monday sends when it is up again, and one that starts ten times sends once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from apscheduler.util import undefined
from msgspec import Meta

from ...agent.base.address import Address
from ...agent.base.clock import Signals, SystemClock
from ...agent.base.self_command import child_command
from ...agent.config import SYSTEM_FILE, load_section
from ...agent.model import Instant
from ...agent.slurm_jobs.settings import SlurmImportSettings, load_slurm_settings
from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, UsageError
from ...rules.base.output import say
from ..metrics_page import PageLimits
from ..notify.settings import ReportSettings, load_mail_settings
from ..state.incidents import default_incidents
from ..watch.settings import WatchSettings, load_watch_settings
from .serve_page import ServedPage, WatchLog

SECTION = "serve"
_DAY_SECONDS = 86400.0
_SET_SECONDS = 60.0
_LOOK_SECONDS = 60.0  # between two looks at the clocks
_STOP_SECONDS = 20.0  # containers are killed 30 s after they were asked to stop (Kubernetes' default)


# How often something runs: each minute to each week.
_Every = Annotated[float, Meta(ge=60, le=7 * _DAY_SECONDS)]


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """`report`: whether the weekly report is run, on `report_day` at `report_hour` (UTC), within the `spread_seconds`
    after it, and again every `retry_seconds` while it fails. `watch`: whether the last hours are evaluated, every
    ``watch.every``. `snapshot_db` is copied to `snapshot_folder` every `snapshot_every_seconds`; None: it is not.
    `cache_every_seconds`: how often the answers of ``report.prometheus`` are fetched ahead. `listen`: where the page of
    metrics is served; None: nowhere. `advice`: the file with the advice that it tells of; None: ``serve-advice.json``
    beside the incidents. `series_max`, `stale_seconds`: as `PageLimits`.
    """

    report: bool = True
    report_day: Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"] = "mon"
    report_hour: Annotated[int, Meta(ge=0, le=23)] = 6
    spread_seconds: Annotated[float, Meta(ge=0, le=_DAY_SECONDS)] = 900.0
    retry_seconds: _Every = 900.0
    watch: bool = True
    snapshot_db: Path | None = None
    snapshot_folder: Path | None = None
    snapshot_every_seconds: _Every = 3600.0
    cache_every_seconds: _Every = 6 * 3600.0
    listen: Address | None = None
    advice: Path | None = None
    series_max: Annotated[int, Meta(ge=0, le=5000)] = 500
    stale_seconds: _Every = _DAY_SECONDS


@dataclass(frozen=True)
class ScheduledCommand:
    """One command on a schedule. `at_start`: it is run when the program starts, too. `retry_seconds`: after so long it
    is run again where it failed; None: it waits for its turn."""

    name: str
    arguments: tuple[str, ...]
    trigger: BaseTrigger
    at_start: bool = False
    retry_seconds: float | None = None


def load_serve_settings(
    environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> ServeSettings:
    """Every layer over the one before. Raises `UsageError` for an unknown key or a value that cannot be."""
    settings = load_section(ServeSettings, SECTION, environ, system_file=system_file, config_home=config_home)
    if (settings.snapshot_db is None) != (settings.snapshot_folder is None):
        raise UsageError("A snapshot needs both serve.snapshot_db and serve.snapshot_folder.", "Set the other one too.")
    return settings


def scheduled_commands(
    settings: ServeSettings,
    report: ReportSettings,
    slurm: SlurmImportSettings | None = None,
    watch: WatchSettings | None = None,
) -> tuple[ScheduledCommand, ...]:
    """What is to be run, and when. Raises UsageError where that is nothing."""
    found: list[ScheduledCommand] = []
    if slurm is not None and slurm.scheduled:
        if slurm.jobs is None:
            raise UsageError("slurm.scheduled needs a file to keep.", "Set slurm.jobs, which advice reads, too.")
        table = ("slurm", "import", "--output", str(slurm.jobs))
        found.append(ScheduledCommand("slurm", table, _every(slurm.every_seconds), at_start=True))
    if settings.report and (report.db or report.prometheus):
        weekly = CronTrigger(
            day_of_week=settings.report_day, hour=settings.report_hour, minute=0, timezone=UTC,
            jitter=int(settings.spread_seconds) or None,
        )  # fmt: skip
        found.append(
            ScheduledCommand(
                "report", ("report", "--send"), weekly, at_start=True, retry_seconds=settings.retry_seconds
            )
        )
    if settings.watch and watch is not None and (report.db or report.prometheus):
        # Sending is a setting of its own. A pass that takes longer than the interval loses turns, and does not pile up.
        found.append(ScheduledCommand("watch", ("watch", "--once"), _every(watch.every_seconds), at_start=True))
    if settings.snapshot_db is not None:
        copy = (
            "agent", "snapshot", str(settings.snapshot_folder), "--rollups-only", "--db", str(settings.snapshot_db),
        )  # fmt: skip
        found.append(ScheduledCommand("snapshot", copy, _every(settings.snapshot_every_seconds)))
    if settings.listen is not None and report.db and not report.prometheus:
        databases = [part for db in report.db for part in ("--db", str(db))]
        told = ("advise", *databases, "--no-ledger", "--format", "json", "--output", str(advice_file(settings)))
        found.append(ScheduledCommand("advice", told, _every(settings.cache_every_seconds), at_start=True))
    if report.prometheus:
        matches = [part for match in report.match for part in ("--match", match)]
        # Whatever asks for the window later finds its days answered.
        kept = ("--output", os.devnull)
        if settings.listen is not None:
            kept = ("--format", "json", "--output", str(advice_file(settings)))
        fetch = ("advise", "--prometheus", report.prometheus, *matches, "--no-ledger", *kept)
        every = _every(settings.cache_every_seconds)
        found.append(ScheduledCommand("cache", fetch, every, at_start=settings.listen is not None))
    if not found:
        raise UsageError("There is nothing to do on a schedule.", "Set report.db or report.prometheus in the settings.")
    return tuple(found)


def advice_file(settings: ServeSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the advice lies that the page of metrics tells of. Raises UsageError where there is no home folder."""
    return settings.advice or default_incidents(environ).with_name("serve-advice.json")


def _every(span_seconds: float) -> IntervalTrigger:
    return IntervalTrigger(seconds=round(span_seconds), timezone=UTC)


class CommandSchedule:
    """Runs jobs when their time comes, one of a kind at a time. `run` runs a command and gives its exit status."""

    def __init__(
        self, scheduler: BaseScheduler, run: Callable[[Sequence[str]], int], now: Callable[[], datetime]
    ) -> None:
        self._scheduler = scheduler
        self._run = run
        self._now = now

    def add(self, job: ScheduledCommand) -> None:
        """Put a job on the schedule. What was missed is run once, however late."""
        self._scheduler.add_job(
            self.work, job.trigger, [job], id=job.name, coalesce=True, misfire_grace_time=None, max_instances=1,
            next_run_time=self._now() if job.at_start else undefined,
        )  # fmt: skip

    def work(self, job: ScheduledCommand) -> None:
        """Run a job now; where it fails, again later, if it is one that is to be tried again."""
        try:
            status = self._run(job.arguments)
        except OSError as error:  # no memory or no process to be had
            say(f"{job.name} cannot be started: {error.strerror}")
            status = EXIT_FAILED
        if status == EXIT_DONE:
            return
        # Below 0 a signal ended it: it was killed, for want of memory as a rule.
        again = job.retry_seconds if status == EXIT_FAILED or status < 0 else None
        when = f"it is tried again in {again / 60:g} min" if again is not None else "it waits for its next turn"
        say(f"{job.name} ended with status {status}: {when}")
        if again is not None:
            self._scheduler.add_job(
                self.work, "date", [job], id=f"{job.name} again", replace_existing=True, misfire_grace_time=None,
                run_date=self._now() + timedelta(seconds=again),
            )  # fmt: skip

    def clock_set(self) -> None:
        """Begin the schedule anew after the clock was set: what was planned by another clock may be a year away.

        Everything is run now. That sends nothing twice and misses no week: what was done lies on the disk.
        """
        for planned in self._scheduler.get_jobs():
            planned.modify(next_run_time=self._now())


class ClockWatch:
    """Tells whether the wall clock was set, by the one that runs since boot."""

    def __init__(self, now: Instant) -> None:
        self._offset = now.wall_seconds - now.monotonic_seconds

    def was_set(self, now: Instant) -> bool:
        """Whether it was moved by more than a minute since it was last asked."""
        before, self._offset = self._offset, now.wall_seconds - now.monotonic_seconds
        return abs(self._offset - before) > _SET_SECONDS


class Children:
    """The commands that run just now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._over = False

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command of this installation to its end; its output is ours. Gives its exit status."""
        with self._lock:
            if self._over:
                return EXIT_DONE
            child = subprocess.Popen(child_command("skuwise", *arguments), stdin=subprocess.DEVNULL)  # noqa: S603 - our own
            self._running.add(child)
        status = child.wait()
        with self._lock:
            self._running.discard(child)
            return EXIT_DONE if self._over else status

    def stop(self) -> None:
        """End what runs, and start nothing any more. A sender that is ended so loses nothing: the outbox holds it."""
        with self._lock:
            self._over = True
            running = tuple(self._running)
        for child in running:
            child.terminate()
        for child in running:
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


EXAMPLES = ("skuwise serve",)


def configure(parser: argparse.ArgumentParser) -> None:
    """``skuwise serve`` takes everything from the settings."""


def run(options: argparse.Namespace) -> int:  # noqa: ARG001 - it has none
    """Run until SIGTERM or SIGINT."""
    with closing(Signals(SystemClock())) as stop:
        return _serve(stop)


def _serve(stop: Signals) -> int:
    environ = os.environ
    settings, watching = load_serve_settings(environ), load_watch_settings(environ)
    planned = scheduled_commands(settings, load_mail_settings(environ), load_slurm_settings(environ), watching)
    children = Children()
    scheduler = BackgroundScheduler(timezone=UTC)
    log = WatchLog(children.run, time.time, time.monotonic)
    serving = CommandSchedule(scheduler, log.run, lambda: datetime.now(UTC))
    page = None
    if settings.listen is not None:
        page = ServedPage(
            settings.listen, advice=advice_file(settings, environ), watch=lambda: log.standing, say=say,
            incidents=load_watch_settings(environ).state or default_incidents(environ),
            limits=PageLimits(settings.series_max, settings.stale_seconds),
        )  # fmt: skip
    for job in planned:
        serving.add(job)
    scheduler.start()
    for job in planned:
        say(f"{job.name}: {' '.join(job.arguments)}")
    if page is not None:
        page.start()
    sys.stderr.flush()
    clock = SystemClock()
    watch = ClockWatch(clock.now())
    while not stop.wait(_LOOK_SECONDS):
        if watch.was_set(clock.now()):
            say("the clock was set: everything on the schedule is run now")
            serving.clock_set()
        if page is not None:
            page.look()
        scheduler.wakeup()  # it counts the time until its next job by a clock that stands still in a suspend
    say("stopping")
    if page is not None:
        page.stop()
    children.stop()
    scheduler.shutdown(wait=True)
    return EXIT_DONE
