"""Jobs at their times beside the loop."""

from __future__ import annotations

import threading

import pytest
from skuwise.agent.service.timetable import Schedule, ScheduledJob, Timetable, every

DAY = 86400.0
MINUTELY = ScheduledJob(lambda: None, every(60))


def test_the_next_moment_is_later_than_now_and_at_the_offset() -> None:
    at = every(60, 17)
    assert [at(0), at(16.9), at(17), at(59), at(77)] == [17, 17, 77, 77, 137]
    daily = every(DAY, 3 * 3600)
    assert daily(10 * DAY + 3 * 3600 - 1) == 10 * DAY + 3 * 3600
    assert daily(10 * DAY + 3 * 3600) == 11 * DAY + 3 * 3600


PUNCTUAL = ScheduledJob(lambda: None, every(60), grace_seconds=5)


@pytest.mark.parametrize(
    ("jobs", "taken"),
    [
        ([MINUTELY], [(59.9, []), (60, [MINUTELY]), (60.1, []), (120, [MINUTELY])]),
        ([MINUTELY], [(500, [MINUTELY]), (501, [])]),  # times that passed meanwhile are run once
        ([PUNCTUAL, MINUTELY], [(70, [MINUTELY]), (121, [PUNCTUAL, MINUTELY])]),
    ],
)
def test_a_job_is_due_once_at_its_time_and_within_its_grace(
    jobs: list[ScheduledJob], taken: list[tuple[float, list[ScheduledJob]]]
) -> None:
    plan = Schedule(jobs, 0)
    assert [(at, plan.take(at)) for at, _ in taken] == taken


def test_nobody_waits_longer_than_to_the_next_time_and_the_clock_is_looked_at_meanwhile() -> None:
    plan = Schedule([MINUTELY, ScheduledJob(lambda: None, every(3600))], 50)
    assert plan.seconds_left(50) == 10
    assert plan.seconds_left(70) == 0
    assert Schedule([ScheduledJob(lambda: None, every(3600))], 0).seconds_left(0) == 30


def test_a_job_that_fails_is_said_and_the_others_run() -> None:
    ran, failures = threading.Event(), list[Exception]()

    def fail() -> None:
        raise ValueError("no")

    table = Timetable("test", [ScheduledJob(fail, every(0.01)), ScheduledJob(ran.set, every(0.01))], failures.append)
    table.start()
    assert ran.wait(60)
    table.stop()
    assert str(failures[0]) == "no"
