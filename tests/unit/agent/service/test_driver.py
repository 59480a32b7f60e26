"""The driver's thread and its deadlines, with a driver that hangs on request."""

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from skuwise.agent.base.clock import SystemClock
from skuwise.agent.model import Absence, Gpu, Instant, Probe, Reading, Tick
from skuwise.agent.sampler import Sampler, run_loop
from skuwise.agent.service.control import ControlServer
from skuwise.agent.service.daemon import every, run_jobs
from skuwise.agent.service.driver_thread import DriverThread
from skuwise.agent.service.instance_lock import InstanceLock
from skuwise.agent.service.supervisor import Notifier, Supervisor
from skuwise.agent.sources.base import Fault
from skuwise.agent.sources.nvml_table import NO_DRIVER
from skuwise.tests.support.sysfs_trees import at
from skuwise.tests.unit.agent.test_sampler import Steady, SteppedClock

HUNG = {("nvml", "driver-hung"), ("GPU-1", "driver-hung")}


class Driver:
    """In place of `NvidiaDriver`: one GPU. While `answers` is not set, what opens, reads or closes it hangs."""

    name, version, interval_seconds, max_gap_seconds = "nvml", None, 1.0, 10.0

    def __init__(self) -> None:
        self.fault: Fault | None = Fault(NO_DRIVER, "It is not open.", "")
        self.answers = threading.Event()
        self.answers.set()
        self.reads = 0
        self.sources = (self,)

    def open(self, instant: Instant) -> None:
        self.answers.wait()
        self.fault = None

    def probe(self) -> Probe:
        return Probe(gpus=(Gpu("GPU-1", 0, "H100"),))

    def read(self, instant: Instant) -> Reading:
        self.reads += 1
        self.answers.wait()
        return Reading(gpus={"GPU-1": {"power_watts": 300.0}})

    def close(self) -> None:
        self.answers.wait()
        self.fault = Fault("released", "It is closed.", "")


def reasons(reading: Reading | Tick) -> set[tuple[str, str]]:
    return {(absence.subject, absence.reason) for absence in reading.absences}


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.answers.set()


def opened(driver: Driver) -> DriverThread:
    thread = DriverThread(driver)  # type: ignore[arg-type]
    thread.read_seconds = thread.close_seconds = 0.1
    thread.open(at(0))
    return thread


def read(thread: DriverThread, seconds: float) -> Reading:
    thread.begin(instant := at(seconds))
    return thread.read(instant)


def finish(thread: DriverThread) -> None:
    assert thread._job is not None and thread._job.done.wait(60)


def test_a_hang_is_one_outstanding_call_and_the_late_answer_is_dropped(driver: Driver) -> None:
    thread = opened(driver)
    assert read(thread, 1).gpus
    driver.answers.clear()
    assert [reasons(read(thread, second)) for second in (2, 3, 4)] == [HUNG] * 3
    assert driver.reads == 2  # no one asked again
    assert thread._job is not None
    thread._job.started -= 60.0
    assert 59 < thread.hung_seconds < 61
    assert [gpu.uuid for gpu in thread.probe().gpus] == ["GPU-1"]  # it is still there, only not read
    driver.answers.set()
    finish(thread)
    assert reasons(read(thread, 5)) == HUNG  # its rates would count from a reading of unknown time
    assert read(thread, 6).gpus == {"GPU-1": {"power_watts": 300.0}}
    assert thread.hung_seconds == 0.0
    thread.close()
    assert driver.fault is not None and driver.fault.reason == "released"


def test_a_pause_waits_for_a_hung_driver_and_ends_by_itself(driver: Driver) -> None:
    thread = opened(driver)
    driver.answers.clear()
    read(thread, 1)
    assert thread.pause(at(2), 100.0) is False
    assert reasons(read(thread, 3)) == {("nvml", "paused"), ("GPU-1", "paused")}
    driver.answers.set()
    finish(thread)
    read(thread, 4)
    assert driver.fault is not None and driver.fault.reason == "released"
    assert reasons(read(thread, 101)) == {("nvml", "paused"), ("GPU-1", "paused")}
    assert reasons(read(thread, 102.5)) == {("nvml", "released"), ("GPU-1", "released")}  # it is being opened
    assert thread.paused_until is None and read(thread, 103).gpus


class Told:
    """What a supervisor said and noted."""

    def __init__(self, folder: Path, thread: DriverThread, server: ControlServer | None = None) -> None:
        self.said: list[str] = []
        self.noted: list[Absence] = []
        self.lock = InstanceLock(folder / "node.db")
        self.lock.take()
        notifier = Notifier({"NOTIFY_SOCKET": str(folder / "nobody")})
        store, clock, say = cast("Any", SimpleNamespace(fault=None, waiting_ticks=0)), SystemClock(), self.said.append
        self.supervisor = Supervisor(clock, notifier, thread, self.lock, store, server, self.note, say)

    def note(self, absence: Absence, ts: float) -> None:
        self.noted.append(absence)


def test_a_driver_hung_for_a_minute_ends_the_agent_once_an_hour(tmp_path: Path, driver: Driver) -> None:
    thread = opened(driver)
    driver.answers.clear()
    read(thread, 1)
    assert thread._job is not None
    thread._job.started -= 60.0
    first = Told(tmp_path, thread)
    first.supervisor.attend()
    assert first.supervisor.wants_restart
    assert [absence.reason for absence in first.noted] == ["self-restart"]
    first.lock.close()
    again = Told(tmp_path, thread)
    again.supervisor.attend()
    again.supervisor.attend()
    assert not again.supervisor.wants_restart
    assert sum("within the last hour" in line for line in again.said) == 1
    again.lock.close()


def test_a_burst_that_hangs_is_late_for_the_loop_and_is_not_waited_for_at_the_end(driver: Driver) -> None:
    thread = opened(driver)
    driver.answers.clear()
    job = thread.burst(driver.answers.wait)
    assert reasons(read(thread, 1)) == HUNG and not job.done.is_set()
    thread.close()
    assert driver.reads == 0
    driver.answers.set()
    assert job.done.wait(60) and job.result is True


class Wall(threading.Event):
    """A wall clock that a wait moves, and that is set back by an hour at 200; it ends at 4000."""

    seconds, was_set = 50.0, False

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds += timeout or 0.0
        if self.seconds >= 200 and not self.was_set:
            self.seconds, self.was_set = self.seconds - 3600.0, True
        return self.seconds >= 4000


def test_jobs_run_at_their_times_and_go_on_after_one_that_fails_and_a_clock_that_is_set() -> None:
    wall, ran, said = Wall(), list[tuple[str, float]](), list[str]()

    def fail() -> None:
        raise ValueError("no")

    jobs = [(lambda: ran.append(("minute", wall.seconds)), every(60, 17)), (fail, every(3600))]
    jobs.append((lambda: ran.append(("hour", wall.seconds)), every(3600, 47)))
    run_jobs(jobs, wall, said.append, lambda: wall.seconds)
    minutes = [at for name, at in ran if name == "minute"]
    assert minutes[:3] == [77, 137, 197] and minutes[3] < -3300 and minutes[-1] == 3977
    assert {round(b - a) for a, b in pairwise(minutes[3:])} == {60}
    assert [at for name, at in ran if name == "hour"] == [47, 3647]
    assert said == ["a job failed with ValueError: no"] * 2


@pytest.mark.parametrize("after", [None, 0, 3])
def test_a_driver_that_hangs_costs_no_tick_of_the_others(driver: Driver, after: int | None) -> None:
    """`after` so many ticks; 0: at the very first reading, which is thrown away; None: never."""
    thread, host, kept = opened(driver), Steady("host"), list[Tick]()

    def keep(sampled: Tick) -> None:
        kept.append(sampled)
        if len(kept) == after:
            driver.answers.clear()

    if after == 0:
        driver.answers.clear()
    sampler, clock = Sampler([thread, host], 1.0, 10.0), SteppedClock()
    run_loop(sampler, clock, keep, lambda _: None, duration_seconds=6.0)
    assert host.order == ["read host"] * 7  # each tick once, the first one to count from
    assert {sampled.interval_seconds for sampled in kept} == {1.0}
    whole = 6 if after is None else after
    assert [bool(sampled.gpus) for sampled in kept] == [number < whole for number in range(6)]
    for late in kept[whole:]:
        assert reasons(late) == HUNG
