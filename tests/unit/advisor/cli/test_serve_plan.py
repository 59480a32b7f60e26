"""`skuwise serve`: what it plans, what it does when a job fails, and what its page tells."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client.exposition import generate_latest
from skuwise.advisor.cli.serve import CommandSchedule, ScheduledCommand, ServeSettings, scheduled_commands
from skuwise.advisor.cli.serve_page import ServedPage, WatchLog
from skuwise.advisor.metrics_page import PageLimits
from skuwise.advisor.notify.settings import ReportSettings
from skuwise.advisor.render import render
from skuwise.advisor.state.incidents import IncidentStore
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.agent.base.address import Address
from skuwise.agent.slurm_jobs.settings import SlurmImportSettings
from skuwise.tests.support.incident_builders import NOW, opened, sighting
from skuwise.tests.support.report_fixtures import fleet

SUNDAY = datetime(2026, 11, 15, 12, tzinfo=UTC)
BY_NAME = ReportSettings(prometheus="http://127.0.0.1:9090", match=('cluster="eu"',))
BY_FILE = ReportSettings(db=(Path("/a.db"),))
WATCH = WatchSettings(every_seconds=120)


@pytest.fixture
def scheduler() -> Iterator[BackgroundScheduler]:
    """One that keeps its plan and runs nothing."""
    found = BackgroundScheduler(timezone=UTC)
    yield found


def named(found: Sequence[ScheduledCommand]) -> dict[str, ScheduledCommand]:
    return {job.name: job for job in found}


def test_what_is_run_and_when() -> None:
    settings = ServeSettings(
        spread_seconds=0, snapshot_db=Path("/a.db"), snapshot_folder=Path("/copies"), listen=Address("127.0.0.1", 9478),
        advice=Path("/advice.json"),
    )  # fmt: skip
    slurm = SlurmImportSettings(jobs=Path("/jobs.txt"), scheduled=True)
    planned = named(scheduled_commands(settings, BY_NAME, slurm, WATCH))
    assert {name: " ".join(job.arguments) for name, job in planned.items()} == {
        "report": "report --send",
        "watch": "watch --once",
        "snapshot": "agent snapshot /copies --rollups-only --db /a.db",
        "slurm": "slurm import --output /jobs.txt",
        "cache": 'advise --prometheus http://127.0.0.1:9090 --match cluster="eu" --no-ledger '
        "--format json --output /advice.json",
    }
    assert {name for name, job in planned.items() if job.at_start} == {"report", "watch", "slurm", "cache"}
    first = {name: job.trigger.get_next_fire_time(None, SUNDAY) for name, job in planned.items()}
    assert first["report"] == datetime(2026, 11, 16, 6, tzinfo=UTC)
    again = planned["watch"].trigger.get_next_fire_time(first["watch"], first["watch"])
    assert first["watch"] is not None and again == first["watch"] + timedelta(minutes=2)
    assert set(named(scheduled_commands(settings, BY_FILE))) == {"report", "snapshot", "advice"}


def test_a_report_is_run_at_the_start_and_again_while_it_fails(scheduler: BackgroundScheduler) -> None:
    status: list[int | OSError] = [1]

    def run(_: Sequence[str]) -> int:
        if isinstance(status[0], OSError):
            raise status[0]
        return status[0]

    serving = CommandSchedule(scheduler, run, lambda: SUNDAY)
    planned = named(scheduled_commands(ServeSettings(), BY_NAME))
    for job in planned.values():
        serving.add(job)
    scheduler.start(paused=True)
    try:
        kept = {job.id: job for job in scheduler.get_jobs()}
        assert kept["report"].next_run_time == SUNDAY and kept["cache"].next_run_time > SUNDAY
        assert all((job.coalesce, job.max_instances) == (True, 1) for job in kept.values())
        # A failure, a kill and a machine without memory are tried again, and once.
        for status[0] in (1, 1, -9, OSError(12, "Cannot allocate memory")):
            serving.work(planned["report"])
            again = [job for job in scheduler.get_jobs() if job.id == "report again"]
            assert [job.next_run_time for job in again] == [SUNDAY + timedelta(minutes=15)]
        # Wrong settings (2) and nothing to work on (3) are not mended by trying again; nor is a copy urgent.
        scheduler.remove_job("report again")
        for name, status[0] in (("report", 2), ("report", 3), ("report", 0), ("cache", 1)):
            serving.work(planned[name])
        assert not [job for job in scheduler.get_jobs() if "again" in job.id]
        serving.clock_set()
        assert {job.next_run_time for job in scheduler.get_jobs()} == {SUNDAY}
    finally:
        scheduler.shutdown(wait=False)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def page(tmp_path: Path, said: list[str]) -> Callable[[], str]:
    """Looks at the files anew, and gives the page."""
    told = ServedPage(
        Address("127.0.0.1", 0), advice=tmp_path / "advice.json", incidents=tmp_path / "incidents.db",
        limits=PageLimits(), watch=lambda: None, say=said.append,
        now=lambda: fleet().generated_at,
    )  # fmt: skip

    def look() -> str:
        told.look()
        return generate_latest(told._page({})).decode()

    return look


def test_the_page_tells_what_the_files_say_and_keeps_advice_that_can_no_longer_be_read(
    tmp_path: Path, page: Callable[[], str], said: list[str]
) -> None:
    advice = tmp_path / "advice.json"
    assert "skuwise_advice" not in page() and "skuwise_incident" not in page()
    advice.write_text(render(fleet(), "json"))
    IncidentStore(tmp_path / "incidents.db").commit(opened(sighting(), now=NOW))
    text = page()
    assert "skuwise_advice_readable 1.0\n" in text and "skuwise_fleet_gpus 96.0\n" in text
    assert "skuwise_incident_info{" in text
    odd = render(fleet(), "json").replace('"high"', '"deadly"', 1)
    for damaged, why in (
        ('{"schema": "skuwise.advice/1", ', "not valid JSON"),
        ('{"schema": "x/1"}', "Unsupported"),
        ("[]", "not skuwise advice"),
        (odd, "cannot be used"),
    ):
        advice.write_text(damaged)
        assert "skuwise_advice_readable 0.0\n" in page() and "skuwise_fleet_gpus 96.0\n" in page()
        assert why in said[-1] and len([one for one in said if why in one]) == 1
    (tmp_path / "incidents.db").write_bytes(b"no database" * 500)
    assert "skuwise_incident_file_readable 0.0\n" in page() and "skuwise_incident_info" not in page()


def test_the_watch_log_counts_only_the_watch() -> None:
    statuses = {"watch": 1, "report": 0}
    log = WatchLog(lambda arguments: statuses[arguments[0]], lambda: NOW, lambda: 0.0)
    assert log.run(("report",)) == 0 and log.standing is None
    log.run(("watch", "--once"))
    statuses["watch"] = 0
    log.run(("watch", "--once"))
    assert log.standing is not None
    assert (log.standing.passes, log.standing.failures, log.standing.last_end) == (2, 1, NOW)
