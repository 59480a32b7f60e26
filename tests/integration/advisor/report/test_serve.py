"""`skuwise serve`: what it plans, what it does when a job fails, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger
from skuwise.advisor.cli.serve import (
    Children,
    CommandSchedule,
    ScheduledCommand,
    ServeSettings,
    load_serve_settings,
    scheduled_commands,
)
from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.agent.slurm_jobs.settings import SlurmImportSettings
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.base.errors import UsageError

SUNDAY = datetime(2026, 11, 15, 12, tzinfo=UTC)
BY_NAME = ReportSettings(prometheus="http://127.0.0.1:9090", match=('cluster="eu"',))


@pytest.fixture
def scheduler() -> Iterator[BackgroundScheduler]:
    """One that keeps its plan and runs nothing."""
    found = BackgroundScheduler(timezone=UTC)
    found.start(paused=True)
    yield found
    found.shutdown(wait=False)


def named(found: Sequence[ScheduledCommand]) -> dict[str, ScheduledCommand]:
    return {job.name: job for job in found}


def test_what_is_run_and_when() -> None:
    settings = ServeSettings(spread_seconds=0, snapshot_db=Path("/a.db"), snapshot_folder=Path("/copies"))
    planned = named(scheduled_commands(settings, BY_NAME))
    assert planned["report"].arguments == ("report", "--send") and planned["report"].at_start
    assert planned["report"].trigger.get_next_fire_time(None, SUNDAY) == datetime(2026, 11, 16, 6, tzinfo=UTC)
    assert planned["snapshot"].arguments == ("agent", "snapshot", "/copies", "--rollups-only", "--db", "/a.db")
    assert planned["cache"].arguments[:5] == (
        "advise",
        "--prometheus",
        "http://127.0.0.1:9090",
        "--match",
        'cluster="eu"',
    )
    assert set(named(scheduled_commands(ServeSettings(), ReportSettings(db=(Path("/a.db"),))))) == {"report"}
    with pytest.raises(UsageError, match="nothing to do"):
        scheduled_commands(ServeSettings(), ReportSettings())


def test_slurms_job_table_is_kept_where_the_settings_name_it() -> None:
    slurm = SlurmImportSettings(jobs=Path("/jobs.txt"), scheduled=True)
    (job,) = scheduled_commands(ServeSettings(), ReportSettings(), slurm)
    assert job.arguments == ("slurm", "import", "--output", "/jobs.txt") and job.at_start
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    first = job.trigger.get_next_fire_time(None, now)
    assert first is not None and job.trigger.get_next_fire_time(first, first) == first + timedelta(minutes=10)
    with pytest.raises(UsageError, match="needs a file"):
        scheduled_commands(ServeSettings(), ReportSettings(), SlurmImportSettings(scheduled=True))
    with pytest.raises(UsageError, match="nothing to do"):
        scheduled_commands(ServeSettings(), ReportSettings(), SlurmImportSettings(jobs=Path("/jobs.txt")))


def test_the_watch_is_run_where_a_source_is_configured() -> None:
    watch = WatchSettings(every_seconds=120)
    for report in (ReportSettings(db=(Path("/a.db"),)), BY_NAME):
        job = named(scheduled_commands(ServeSettings(), report, None, watch))["watch"]
        # Whether anything is sent is the setting watch.send's; a failure waits for its turn, which is minutes away.
        assert job.arguments == ("watch", "--once") and job.at_start and job.retry_seconds is None
        first = job.trigger.get_next_fire_time(None, SUNDAY)
        assert first is not None and job.trigger.get_next_fire_time(first, first) == first + timedelta(minutes=2)
    assert "watch" not in named(scheduled_commands(ServeSettings(watch=False), BY_NAME, None, watch))
    with pytest.raises(UsageError, match="nothing to do"):
        scheduled_commands(ServeSettings(), ReportSettings(), None, watch)


def test_a_pass_that_takes_longer_than_its_interval_does_not_pile_up() -> None:
    skipped, go_on = threading.Semaphore(0), threading.Event()
    lock, at_once, most = threading.Lock(), 0, 0

    def run(_: Sequence[str]) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        go_on.wait(60)
        with lock:
            at_once -= 1
        return 0

    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_listener(lambda _: skipped.release(), EVENT_JOB_MAX_INSTANCES)
    serving = CommandSchedule(scheduler, run, lambda: datetime.now(UTC))
    every = IntervalTrigger(timezone=UTC)
    every.interval = timedelta(milliseconds=20)
    serving.add(ScheduledCommand("watch", ("watch", "--once"), every, at_start=True))
    scheduler.start()
    try:
        assert all(skipped.acquire(timeout=60) for _ in range(5))
    finally:
        go_on.set()
        scheduler.shutdown(wait=True)
    assert most == 1


def test_a_report_is_run_at_the_start_and_again_while_it_fails(scheduler: BackgroundScheduler) -> None:
    status, ran = [1], []

    def run(arguments: Sequence[str]) -> int:
        ran.append(arguments)
        return status[0]

    serving = CommandSchedule(scheduler, run, lambda: SUNDAY)
    planned = named(scheduled_commands(ServeSettings(), BY_NAME))
    for job in planned.values():
        serving.add(job)
    kept = {job.id: job for job in scheduler.get_jobs()}
    assert kept["report"].next_run_time == SUNDAY and kept["cache"].next_run_time > SUNDAY
    assert all((job.coalesce, job.max_instances, job.misfire_grace_time) == (True, 1, None) for job in kept.values())
    for _ in range(2):  # a second failure puts it off, and does not double it
        serving.work(planned["report"])
    again = [job for job in scheduler.get_jobs() if job.id == "report again"]
    assert [job.next_run_time for job in again] == [SUNDAY + timedelta(minutes=15)]
    assert len(ran) == 2
    # Wrong settings (2) and nothing to work on (3) are not mended by trying again; nor is a copy urgent.
    scheduler.remove_job("report again")
    for name, status[0] in (("report", 2), ("report", 3), ("report", 0), ("cache", 1)):
        serving.work(planned[name])
    assert not [job for job in scheduler.get_jobs() if "again" in job.id]


@pytest.mark.parametrize("ended", [-9, OSError(12, "Cannot allocate memory")])
def test_a_report_that_was_killed_or_could_not_begin_is_run_again(
    scheduler: BackgroundScheduler, ended: int | OSError
) -> None:
    def run(_: Sequence[str]) -> int:
        if isinstance(ended, OSError):
            raise ended
        return ended

    CommandSchedule(scheduler, run, lambda: SUNDAY).work(named(scheduled_commands(ServeSettings(), BY_NAME))["report"])
    assert [job.id for job in scheduler.get_jobs()] == ["report again"]


@pytest.mark.parametrize(
    "text",
    [
        "report_day = 'monday'",
        "report_hour = 24",
        "retry = 0",
        "snapshot_db = '/a'",
        "snapshots = true",
        "report = 7",
        "watch = 'sometimes'",
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "skuwise.toml"
    file.write_text(f"[serve]\n{text}\n")
    with pytest.raises(UsageError):
        load_serve_settings({}, system_file=file, config_home=tmp_path)


def test_a_command_that_runs_is_ended_and_none_is_started_any_more(tmp_path: Path) -> None:
    children, database, statuses = Children(), tmp_path / "node.db", []
    arguments = ("agent", "run", "--db", str(database))
    working = threading.Thread(target=lambda: statuses.append(children.run(arguments)))
    working.start()
    ends = time.monotonic() + 60
    while not database.exists() and time.monotonic() < ends:
        time.sleep(0.02)
    assert database.exists()
    children.stop()
    working.join(60)
    assert statuses == [0] and children.run(arguments) == 0


@pytest.mark.slow
def test_it_runs_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    config = tmp_path / "skuwise/skuwise.toml"
    config.parent.mkdir()
    config.write_text("[report]\ndb = ['fleet.db']\nteams = 'no-such-file.toml'\n")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "skuwise", "serve"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = []
        too_long = threading.Timer(120, process.kill)
        too_long.start()
        for line in process.stderr:
            told.append(line)
            if line.startswith("report ended"):
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        too_long.cancel()
    assert "report ended with status 2: it waits for its next turn\n" in told and told[-1] == "stopping\n"


@pytest.mark.slow
def test_it_runs_the_watch_where_a_source_is_configured(tmp_path: Path) -> None:
    simulate("idle", tmp_path / "fleet", days=1, until=time.time() // 3600 * 3600, minutes_seconds=86400)
    config = tmp_path / "skuwise/skuwise.toml"
    config.parent.mkdir()
    config.write_text(f"[report]\ndb = ['{tmp_path / 'fleet'}']\n[serve]\nreport = false\n")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    state = tmp_path / "state/skuwise/incidents.db"
    with subprocess.Popen([sys.executable, "-m", "skuwise", "serve"], env=environ, stderr=subprocess.PIPE) as process:
        ends = time.monotonic() + 120
        while not state.exists() and time.monotonic() < ends:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0 and state.exists(), told
    assert b"watch: watch --once\n" in told and b"Traceback" not in told
    assert state.stat().st_mode & 0o777 == 0o600
