"""A loop that reads the driver itself: what a hung, a slow and a failing driver do to it."""

from __future__ import annotations

import threading

import pytest
from skuwise.agent.model import Instant, Probe, Reading
from skuwise.agent.sampler import Sampled, Sampler, SamplingLoop
from skuwise.agent.service.driver.guard import Deadlines, GuardedDriver
from skuwise.agent.service.driver.relief import Relief
from skuwise.agent.sources.gpu_backend import GpuBackend
from skuwise.tests.support.hanging_driver import Session, at, reasons
from skuwise.tests.support.stepped_clock import SteppedClock

SOON = 0.02
LONG = 60.0


def guarded(session: Session, **deadlines: float) -> GuardedDriver:
    backend = GpuBackend("nvml", "NVML", "no library", ("nvml",), lambda _: Session())
    limits = Deadlines(**{"read": 0.1, "open": 30.0, "close": 0.1, "retry": 60.0, **deadlines})
    driver = GuardedDriver(backend, session, 1.0, 10.0, deadlines=limits)
    driver.open(at(0))
    return driver


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
        self.driver, self.host, self.kept = guarded(session), Host(), list[Sampled]()
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
