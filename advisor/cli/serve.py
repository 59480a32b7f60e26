"""``skuwise serve``: reports, watch, snapshots and the cache on a schedule, where there is no systemd (a container),
with a page of metrics and the HTTP API.

Each job is a command in its own process, whose end frees its memory. Its memory of what was sent is on the disk: a
container that was down on Monday sends later, and one that starts ten times sends once.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from click import option
from msgspec import Meta

from ...agent.base.clock import Signals, SystemClock
from ...agent.base.settings import Address, parse_listen
from ...agent.config import load_section
from ...rules.base.click_commands import FILE, Parsed, command
from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, UsageError
from ...rules.base.output import say

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.base import BaseTrigger

    from ...agent.config import SlurmImportSettings
    from ...agent.service.page_server import PageServer, Respond
    from ..api.answers import Answers
    from ..metrics_page import SitePage, WatchPasses
    from ..notify.routes import ReportSettings
    from ..watch.settings import WatchSettings

_DAY_SECONDS = 86400.0
# Of making advice: so long after its time the advice before still answers.
_ADVICE_SECONDS = 900.0
# How often something runs: each minute to each week.
_Every = Annotated[float, Meta(ge=60, le=7 * _DAY_SECONDS)]


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """`report`: whether the weekly report is run, on `report_day` at `report_hour` (UTC), within the `spread_seconds`
    after it, and again every `retry_seconds` while it fails. `watch`: whether the last hours are evaluated, every
    ``watch.every``. `snapshot_db` is copied to `snapshot_folder` every `snapshot_every_seconds`; None: it is not.
    `cache_every_seconds`: how often advice is made, which fetches the answers of ``report.prometheus`` ahead. `listen`:
    where the page of metrics and the API are served; None: nowhere. `token_file`: the file with the token of callers
    of the API; None: callers on this machine need none, and others are not served. `advice`: the file with its advice;
    None: ``serve-advice.json`` beside the state files. `series_max`, `stale_seconds`: as of `SitePage`.
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
    token_file: Path | None = None
    advice: Path | None = None
    series_max: Annotated[int, Meta(ge=0, le=5000)] = 500
    stale_seconds: _Every = _DAY_SECONDS


class Job(NamedTuple):
    """One command on a schedule. `retry_seconds`: a failed run is repeated after so long; None: at its next time."""

    name: str
    arguments: tuple[str, ...]
    trigger: BaseTrigger
    retry_seconds: float | None = None


def load_serve_settings(environ: Mapping[str, str], **places: Path) -> ServeSettings:
    """Every layer over the one before. Raises UsageError for an unknown key or an invalid value."""
    settings = load_section(ServeSettings, "serve", environ, **places)
    if (settings.snapshot_db is None) != (settings.snapshot_folder is None):
        raise UsageError("A snapshot needs both serve.snapshot_db and serve.snapshot_folder.", "Set the other one too.")
    return settings


def command_words(report: ReportSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The options of commands for the source of the report (empty: none is set), and for its rules and prices."""
    if report.prometheus:
        source = ["--prometheus", report.prometheus, *(part for match in report.match for part in ("--match", match))]
    else:
        source = [part for db in report.db for part in ("--db", str(db))]
    files = {"--rules": report.rules, "--prices": report.prices}
    return tuple(source), tuple(part for flag, path in files.items() if path for part in (flag, str(path)))


def scheduled_jobs(
    settings: ServeSettings, report: ReportSettings, slurm: SlurmImportSettings, watch: WatchSettings, advice: Path
) -> tuple[Job, ...]:
    """The jobs and their times. `advice`: the file for the page of metrics. Raises UsageError where there is none."""
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.interval import IntervalTrigger

    def every(seconds: float) -> IntervalTrigger:
        return IntervalTrigger(seconds=round(seconds), timezone=UTC)

    if slurm.scheduled and slurm.jobs is None:
        raise UsageError("slurm.scheduled needs a file to keep.", "Set slurm.jobs, which advice reads, too.")
    source, book = command_words(report)
    day, hour, jitter = settings.report_day, settings.report_hour, int(settings.spread_seconds) or None
    weekly = CronTrigger(day_of_week=day, hour=hour, minute=0, timezone=UTC, jitter=jitter)
    copies = (str(settings.snapshot_folder), "--rollups-only", "--db", str(settings.snapshot_db))
    # Later reads of the window find its days in the cache, also where no page shows this advice.
    output = ("--no-ledger", "--output", os.devnull)
    if settings.listen is not None:
        output = ("--format", "json", "--output", str(advice))
    is_advised = report.prometheus or (source and settings.listen is not None)
    wanted = (
        (slurm.scheduled, Job("slurm", ("slurm", "import", "--output", str(slurm.jobs)), every(slurm.every_seconds))),
        (source and settings.report, Job("report", ("report", "--send"), weekly, settings.retry_seconds)),
        (source and settings.watch, Job("watch", ("watch", "--once"), every(watch.every_seconds))),
        (settings.snapshot_db, Job("snapshot", ("agent", "snapshot", *copies), every(settings.snapshot_every_seconds))),
        (is_advised, Job("advice", ("advise", *source, *book, *output), every(settings.cache_every_seconds))),
    )
    jobs = tuple(job for is_wanted, job in wanted if is_wanted)
    if not jobs:
        raise UsageError("There is nothing to do on a schedule.", "Set report.db or report.prometheus in the settings.")
    return jobs


class Schedule:
    """Runs jobs at once and at their times, one of a kind at a time; turns missed meanwhile are one run, however late.
    `command`: the words that run a job's arguments. `watch`: how its passes ended; None: none has."""

    def __init__(self, scheduler: BackgroundScheduler, command: Callable[..., Sequence[str]]) -> None:
        self.watch: WatchPasses | None = None
        self._scheduler, self._command = scheduler, command
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped = False

    def add(self, job: Job, retry_at: datetime | None = None) -> None:
        """Schedule a job from now on; with `retry_at` one more run of it, then."""
        again = {"trigger": "date", "run_date": retry_at, "id": f"{job.name} again", "replace_existing": True}
        options = again if retry_at else {"trigger": job.trigger, "id": job.name}
        options["next_run_time"] = retry_at or datetime.now(UTC)
        self._scheduler.add_job(self.work, args=[job], coalesce=True, misfire_grace_time=None, **options)

    def work(self, job: Job) -> None:
        """Run a job; one that failed is run again later where it has `retry_seconds`."""
        from ..metrics_page import WatchPasses

        began, status = time.monotonic(), self._run(job)
        if job.name == "watch":
            before, done = self.watch or WatchPasses(), status == EXIT_DONE
            last = time.time() if done else before.last_end
            self.watch = WatchPasses(before.passes + 1, before.failures + (not done), last, time.monotonic() - began)
        next_run = "at its next turn"
        # Below 0 a signal ended it: it was killed, most often by the OOM killer.
        if job.retry_seconds is not None and (status == EXIT_FAILED or status < 0):
            next_run = f"in {job.retry_seconds / 60:g} min"
            self.add(job, datetime.now(UTC) + timedelta(seconds=job.retry_seconds))
        if status != EXIT_DONE:
            say(f"{job.name} ended with status {status}; next run {next_run}")

    def stop(self) -> None:
        """End the running jobs, and start none any more. A sender loses nothing: the state file has it."""
        self._stopped = True
        for child in [*self._children.values()]:
            child.terminate()
        self._scheduler.shutdown(wait=True)

    def _run(self, job: Job) -> int:
        if self._stopped:
            return EXIT_DONE
        try:
            child = subprocess.Popen(self._command(*job.arguments), stdin=subprocess.DEVNULL)  # noqa: S603 - our own
        except OSError as error:  # no memory, or no process left
            say(f"{job.name} cannot be started: {error.strerror}")
            return EXIT_FAILED
        self._children[job.name] = child
        if self._stopped:  # while it was started
            child.terminate()
        status = child.wait()
        return EXIT_DONE if self._stopped else status


def served_answers(settings: ServeSettings, report: ReportSettings, advice: Path) -> tuple[Answers, Respond] | None:
    """The answers of the API, and what responds with them; None: there is no source, or its address can be reached from
    elsewhere and no token is set, with a note. Raises UsageError for an unusable token."""
    from ..api.answers import Answers, CommandOptions
    from ..api.http_api import PATIENCE_SECONDS, caller_token, respond
    from ..core.http_session import is_loopback

    source, book = command_words(report)
    token = caller_token(settings.token_file) if settings.token_file else None
    if settings.listen is None or not source:
        return None
    if token is None and not is_loopback(settings.listen.host):
        say(f"no API at http://{settings.listen}/v1/: other machines reach it, and no token is set (serve.token_file)")
        return None
    fresh, options = settings.cache_every_seconds + _ADVICE_SECONDS, CommandOptions(source, rulebook=book)
    answers = Answers(options, patience_seconds=PATIENCE_SECONDS, advice_file=advice, advice_seconds=fresh)
    return answers, partial(respond, answers, token)


def serve_page(address: Address, page: SitePage, respond: Respond | None = None) -> PageServer:
    """Serve the page at its address, with other paths. An address in use is tried again, with a note."""
    from ...agent.service.page_server import PageServer

    version, is_healthy = lambda: time.monotonic() // 15, lambda: True
    # A scrape reads the files at most every 15 s.
    server = PageServer(address, page.page, version=version, is_healthy=is_healthy, respond=respond)
    server.start()
    retried = "It is tried again every 30 s; set serve.listen to a free port of this machine."
    say(f"{server.fault.detail} {retried}" if server.fault else f"metrics at http://{server.address}/metrics")
    return server


@command("skuwise serve", "skuwise serve --listen 127.0.0.1:9478 --token-file /etc/skuwise/api-token")
@option(
    "--listen", type=Parsed(parse_listen, "HOST:PORT"), help="serve metrics and the API here (setting serve.listen)"
)
@option("--token-file", type=FILE, help="file with the token that API callers send (setting serve.token_file)")
def serve(listen: Address | None, token_file: Path | None) -> int:
    """Run reports and watch on a schedule, serve metrics and an API."""
    from apscheduler.schedulers.background import BackgroundScheduler

    from ...agent.base.self_command import child_command
    from ...agent.config import SlurmImportSettings, load_section
    from ..metrics_page import SitePage
    from ..notify.routes import load_mail_settings
    from ..state.file import State, load_state_settings, state_folder
    from ..state.fleets import state_files
    from ..watch.settings import load_watch_settings

    environ = os.environ
    settings, named, folder = load_serve_settings(environ), load_state_settings(environ).file, state_folder(environ)
    settings = replace(settings, listen=listen or settings.listen, token_file=token_file or settings.token_file)
    if folder is None:
        raise UsageError("No home folder for state files.", "Set XDG_STATE_HOME or HOME.")
    advice = settings.advice or folder / "serve-advice.json"
    slurm, watch = load_section(SlurmImportSettings, "slurm", environ), load_watch_settings(environ)
    report = load_mail_settings(environ)
    jobs = scheduled_jobs(settings, report, slurm, watch, advice)
    served = served_answers(settings, report, advice)
    scheduler = BackgroundScheduler(timezone=UTC)
    schedule, server = Schedule(scheduler, partial(child_command, "skuwise")), None

    def states() -> list[State]:
        return [State(path) for path in ([named] if named is not None else state_files(folder))]

    with closing(Signals(SystemClock())) as stop:
        for job in jobs:
            say(f"{job.name}: {' '.join(job.arguments)}")
            schedule.add(job)
        if settings.listen is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            page = SitePage(advice, states, lambda: schedule.watch, settings.series_max, settings.stale_seconds)
            server = serve_page(settings.listen, page, served[1] if served else None)
        scheduler.start()
        while not stop.wait(60.0):
            scheduler.wakeup()  # it counts the time until its next job by a clock that stands still in a suspend
        say("stopping")
        if server is not None:
            server.stop()
        if served is not None:
            served[0].close()
        schedule.stop()
    return EXIT_DONE
