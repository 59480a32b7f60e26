"""Time, injected: the loop asks a clock and never the operating system."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from .model import Instant


class Clock(Protocol):
    """Where `Instant`s come from, and how to wait for one."""

    def now(self) -> Instant: ...

    def cpu_seconds(self) -> float:
        """CPU time of this process so far."""
        ...

    def wait_until(self, monotonic_seconds: float) -> None:
        """Return at `monotonic_seconds`, or earlier when woken."""
        ...


class SystemClock:
    """The real clocks. `wake` ends a wait early, also from a signal handler."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def now(self) -> Instant:
        return Instant(time.time(), time.monotonic())

    def cpu_seconds(self) -> float:
        return time.process_time()

    def wake(self) -> None:
        self._woken.set()

    def wait_until(self, monotonic_seconds: float) -> None:
        left = monotonic_seconds - time.monotonic()
        if left > 0:
            self._woken.wait(left)


class SteppedClock:
    """A clock that moves only when told or waited on: tests run hours in no time."""

    def __init__(self, wall_seconds: float, monotonic_seconds: float = 0.0) -> None:
        self._wall = wall_seconds
        self._monotonic = monotonic_seconds
        self.cpu = 0.0

    def now(self) -> Instant:
        return Instant(self._wall, self._monotonic)

    def cpu_seconds(self) -> float:
        return self.cpu

    def advance(self, seconds: float) -> None:
        self._wall += seconds
        self._monotonic += seconds

    def wait_until(self, monotonic_seconds: float) -> None:
        if monotonic_seconds > self._monotonic:
            self.advance(monotonic_seconds - self._monotonic)
