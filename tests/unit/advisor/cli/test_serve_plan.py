"""`skuwise serve`: what it plans, and what it does when a job fails."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from skuwise.advisor.cli.serve import Job, Schedule, ServeSettings, scheduled_jobs, served_answers
from skuwise.advisor.notify.routes import ReportSettings
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.agent.base.settings import Address
from skuwise.agent.config import SlurmImportSettings
from skuwise.rules.base.errors import UsageError

SUNDAY = datetime(2026, 11, 15, 12, tzinfo=UTC)
BY_NAME = ReportSettings(prometheus="http://127.0.0.1:9090", match=('cluster="eu"',))
BY_FILE = ReportSettings(db=(Path("/a.db"),))
SERVED = ServeSettings(
    spread_seconds=0, snapshot_db=Path("/a.db"), snapshot_folder=Path("/copies"), listen=Address("127.0.0.1", 9478),
)  # fmt: skip
NO_SLURM, SLURM = SlurmImportSettings(), SlurmImportSettings(jobs=Path("/jobs.txt"), scheduled=True)


def planned(settings: ServeSettings, report: ReportSettings, slurm=NO_SLURM) -> dict[str, Job]:
    jobs = scheduled_jobs(settings, report, slurm, WatchSettings(every_seconds=120), Path("/advice.json"))
    return {job.name: job for job in jobs}


def test_what_is_run_and_when() -> None:
    jobs = planned(SERVED, BY_NAME, SLURM)
    assert {name: " ".join(job.arguments) for name, job in jobs.items()} == {
        "report": "report --send",
        "watch": "watch --once",
        "snapshot": "agent snapshot /copies --rollups-only --db /a.db",
        "slurm": "slurm import --output /jobs.txt",
        "advice": 'advise --prometheus http://127.0.0.1:9090 --match cluster="eu" --format json --output /advice.json',
    }
    first = {name: job.trigger.get_next_fire_time(None, SUNDAY) for name, job in jobs.items()}
    assert first["report"] == datetime(2026, 11, 16, 6, tzinfo=UTC)
    again = jobs["watch"].trigger.get_next_fire_time(first["watch"], first["watch"])
    assert first["watch"] is not None and again == first["watch"] + timedelta(minutes=2)
    # Advice of databases is made for the page alone; that of a server fetches its answers ahead, too.
    assert planned(SERVED, BY_FILE)["advice"].arguments[1:3] == ("--db", "/a.db")
    assert set(planned(ServeSettings(watch=False), BY_FILE)) == {"report"}
    assert planned(ServeSettings(), BY_NAME)["advice"].arguments[-3:] == ("--no-ledger", "--output", "/dev/null")
    ruled = ReportSettings(db=(Path("/a.db"),), rules=Path("/rules"), prices=Path("/prices.yaml"))
    assert planned(SERVED, ruled)["advice"].arguments[3:7] == ("--rules", "/rules", "--prices", "/prices.yaml")
    for settings, slurm in ((ServeSettings(), False), (SERVED, True)):
        with pytest.raises(UsageError):
            planned(settings, ReportSettings(), SlurmImportSettings(scheduled=slurm))


@pytest.mark.parametrize(
    ("host", "has_token", "report", "is_served"),
    [
        ("127.0.0.1", False, BY_FILE, True), ("localhost", False, BY_NAME, True), ("0.0.0.0", True, BY_FILE, True),
        ("0.0.0.0", False, BY_FILE, False), ("10.0.0.7", False, BY_FILE, False),
        ("127.0.0.1", True, ReportSettings(), False),
    ],
)  # fmt: skip
def test_others_than_this_machine_need_a_token(tmp_path: Path, capsys, host, has_token, report, is_served) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    settings = ServeSettings(listen=Address(host, 9478), token_file=token if has_token else None)
    served = served_answers(settings, report, tmp_path / "advice.json")
    assert (served is not None) == is_served
    assert ("serve.token_file" in capsys.readouterr().err) == (report is BY_FILE and not is_served)
    if served is not None:
        served[0].close()


@pytest.fixture
def scheduler() -> Iterator[BackgroundScheduler]:
    """One that keeps its plan and runs nothing."""
    paused = BackgroundScheduler(timezone=UTC)
    paused.start(paused=True)
    yield paused
    if paused.running:
        paused.shutdown(wait=False)


# A failure and a kill are tried again; wrong settings (2), nothing to work on (3) and a watch are not.
@pytest.mark.parametrize(
    ("name", "status", "again"),
    [("report", 1, True), ("report", -9, True), ("report", 2, False), ("report", 3, False), ("report", 0, False),
     ("watch", 1, False)],
)  # fmt: skip
def test_a_report_is_run_at_the_start_and_again_while_it_fails(scheduler, monkeypatch, name, status, again) -> None:
    schedule = Schedule(scheduler, Mock(side_effect=OSError(12, "Cannot allocate memory")))
    if status != 1:  # that of a machine without memory
        monkeypatch.setattr(schedule, "_run", lambda _: status)
    jobs = planned(ServeSettings(), BY_NAME)
    before = datetime.now(UTC)
    for job in jobs.values():
        schedule.add(job)
    assert all(before <= job.next_run_time <= datetime.now(UTC) for job in scheduler.get_jobs())
    for _ in range(2):
        schedule.work(jobs[name])
    repeated = [job for job in scheduler.get_jobs() if job.id == "report again"]
    assert [job.next_run_time >= before + timedelta(minutes=15) for job in repeated] == [True] * again
    passes = schedule.watch
    assert (passes is not None) == (name == "watch")
    assert passes is None or (passes.passes, passes.failures, passes.last_end) == (2, 2, None)
