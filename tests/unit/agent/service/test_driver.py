"""The driver's thread and its deadlines, with sources that hang when they are told to."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from skuwise.agent.base.clock import SystemClock
from skuwise.agent.model import Absence, Instant, Probe, Reading
from skuwise.agent.sampler import Sampled, Sampler, SamplingLoop
from skuwise.agent.service.control import ControlServer
from skuwise.agent.service.gpu_drivers import GpuDrivers
from skuwise.agent.service.guard import Deadlines, GuardedDriver
from skuwise.agent.service.notify import Notifier
from skuwise.agent.service.relief import Relief
from skuwise.agent.service.run_database import DatabaseLock
from skuwise.agent.service.supervisor import Supervisor
from skuwise.agent.service.worker import Worker
from skuwise.agent.sources.gpu_backend import GpuBackend
from skuwise.tests.support.hanging_driver import Gpus, Session, at, reasons
from skuwise.tests.support.stepped_clock import SteppedClock

SHORT = Deadlines(read=0.5, open=0.5, close=0.5, retry=60.0)


def driver(session: Session, deadlines: Deadlines = SHORT) -> tuple[GuardedDriver, Gpus]:
    backend = GpuBackend("nvml", "NVML", "no library", ("nvml",), lambda _: Session(), "module/nvidia/version")
    guarded = GuardedDriver(backend, session, 1.0, 10.0, sysfs=Path("/nonexistent"), deadlines=deadlines)
    guarded.open(at(0))
    return guarded, session.gpus


def finish(guarded: GuardedDriver) -> None:
    """Wait until the outstanding job is done."""
    call = guarded._call
    assert call is not None and call.wait(60)


def test_a_hang_is_one_outstanding_call_and_the_late_answer_is_dropped() -> None:
    session = Session()
    guarded, source = driver(session)
    assert guarded.read(at(1)).gpus
    session.answers.clear()
    hung = {("nvml", "driver-hung"), ("GPU-1", "driver-hung")}
    assert reasons(guarded.read(at(2))) == hung
    first = guarded.read(at(3))
    assert reasons(first) == hung and guarded.read(at(4)).absences is first.absences
    assert source.reads == 2  # nobody asked again
    assert guarded.hung_seconds(62.0) > 59
    assert [gpu.uuid for gpu in guarded.probe().gpus] == ["GPU-1"]  # it is still there, only not read
    session.answers.set()
    finish(guarded)
    assert reasons(guarded.read(at(5))) == hung  # its rates would count from a reading of unknown time
    assert guarded.read(at(6)).gpus == {"GPU-1": {"power_watts": 300.0}}
    assert guarded.hung_seconds(70.0) == 0.0
    guarded.close()


def test_a_pause_waits_for_a_hung_driver_and_ends_by_itself() -> None:
    session = Session()
    guarded, _ = driver(session)
    session.answers.clear()
    guarded.read(at(1))
    assert guarded.pause(at(2), 100.0) is False
    assert reasons(guarded.read(at(3))) == {("nvml", "paused"), ("GPU-1", "paused")}
    session.answers.set()
    finish(guarded)
    guarded.read(at(4))
    finish(guarded)
    assert session.fault is not None and session.fault.reason == "released"
    assert reasons(guarded.read(at(101)))
    guarded.read(at(102.5))
    finish(guarded)
    assert guarded.paused_until is None and guarded.read(at(103)).gpus


@dataclass
class Store:
    """A database as an attendant sees it."""

    fault: Absence | None = None
    waiting_ticks: int = 0


class Told:
    """What an attendant said and noted."""

    def __init__(self, folder: Path, guarded: GuardedDriver, server: ControlServer | None = None) -> None:
        self.said: list[str] = []
        self.noted: list[Absence] = []
        self.instance = DatabaseLock.take(folder / "node.db", wait_seconds=0.0)
        self.attendant = Supervisor(
            SystemClock(),
            Notifier({"NOTIFY_SOCKET": str(folder / "nobody")}),
            GpuDrivers([guarded]),
            self.instance,
            store=Store(),
            server=server,
            note=lambda absence, _: self.noted.append(absence),
            say=self.said.append,
            database=folder / "node.db",
        )


def test_a_driver_hung_for_a_minute_ends_the_agent_once_an_hour(tmp_path: Path) -> None:
    session = Session()
    guarded, _ = driver(session)
    session.answers.clear()
    guarded.read(at(-1000.0))  # on the system's own clock, a good while ago
    told = Told(tmp_path, guarded)
    told.attendant.attend()
    assert told.attendant.restart_reason is not None
    assert [one.reason for one in told.noted] == ["self-restart"]
    told.instance.release()
    again = Told(tmp_path, guarded)
    again.attendant.attend()
    again.attendant.attend()
    assert again.attendant.restart_reason is None
    assert sum("within the last hour" in line for line in again.said) == 1
    again.instance.release()
    session.answers.set()


SOON = 0.02
QUICK = Deadlines(read=0.1, open=30.0, close=0.1, retry=60.0)


class Host:
    """A source beside the driver: at which instants it was read, and by which thread."""

    name = "host"

    def __init__(self) -> None:
        self.read_at: list[float] = []
        self.threads: list[int] = []

    def probe(self) -> Probe:
        return Probe()

    def read(self, instant: Instant) -> Reading:
        self.read_at.append(instant.monotonic_seconds)
        self.threads.append(threading.get_ident())
        return Reading(host={"cpu_util": 0.5})

    def close(self) -> None:
        """Nothing is held."""


class Run:
    """An agent's loop over a driver that may hang and the host, relieved as the daemon does it."""

    def __init__(self, session: Session, seconds: float) -> None:
        (self.driver, _), self.host, self.kept = driver(session, QUICK), Host(), list[Sampled]()
        self.hang_after: int | None = None
        self.session = session
        sampler = Sampler([self.driver, self.host], 1.0, 10.0)
        self.loop = SamplingLoop(
            sampler, SteppedClock(1.8e9), self.keep, lambda _: None, lambda: 0, duration_seconds=seconds
        )

    def keep(self, sampled: Sampled) -> None:
        self.kept.append(sampled)
        if len(self.kept) == self.hang_after:
            self.session.answers.clear()

    def live(self) -> None:
        relief = self.driver.relief = Relief(SOON)
        relief.run(self.loop.run)
        self.driver.relief = None
        relief.close()


@pytest.mark.parametrize("after", [None, 0, 3])
def test_a_driver_that_hangs_costs_no_tick_of_the_others(after: int | None) -> None:
    """`after` so many ticks; 0: at the very first reading, which is thrown away; None: never."""
    session = Session()
    run = Run(session, 6.0)
    run.hang_after = after
    if after == 0:
        session.answers.clear()
    run.live()
    assert run.loop.kept == len(run.kept) == 6
    assert run.host.read_at == [float(n) for n in range(7)]  # each tick once, the first one to count from
    assert {one.tick.interval_seconds for one in run.kept} == {1.0}
    whole = 6 if after is None else after
    assert [bool(one.tick.gpus) for one in run.kept] == [number < whole for number in range(6)]
    blind = {("nvml", "driver-hung"), ("GPU-1", "driver-hung")}
    for one in run.kept[whole:]:
        assert {(a.subject, a.reason) for a in one.absences} == blind
    session.answers.set()
    assert len(set(run.host.threads)) == (2 if after else 1)  # from the hang on another one reads


def test_the_thread_that_was_kept_touches_nothing_when_it_comes_back() -> None:
    session = Session()
    run = Run(session, 4.0)
    run.hang_after = 2
    run.live()
    kept = len(run.kept)
    stuck = [one for one in threading.enumerate() if one.name == "loop"]
    session.answers.set()
    for thread in stuck:
        thread.join(60)
    assert not any(thread.is_alive() for thread in stuck)
    assert len(run.kept) == kept == 4
    # What it brought is late: its rates would count from a reading of unknown time.
    assert reasons(run.driver.read(at(50))) == {("nvml", "driver-hung"), ("GPU-1", "driver-hung")}
    assert run.driver.read(at(51)).gpus


def test_steps_give_way_to_every_other_job() -> None:
    worker = Worker("test")
    done: list[str] = []
    first_step, go_on = threading.Event(), threading.Event()

    def steps() -> Generator[None, None, str]:
        for number in range(3):
            done.append(f"step {number}")
            first_step.set()
            assert go_on.wait(60)
            yield
        return "all"

    worker.start(lambda: None).wait(60)
    aside = worker.aside(steps())
    assert aside is not None and first_step.wait(60)
    calls = [worker.start(lambda n=n: done.append(f"job {n}")) for n in range(2)]
    go_on.set()
    assert aside.wait(60) and all(call.done for call in calls)
    assert done == ["step 0", "job 0", "job 1", "step 1", "step 2"]
    assert aside.result == "all"
    worker.stop()
