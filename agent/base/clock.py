"""Time, injected: the loop asks a clock and never the operating system."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import Protocol

from ..model import Instant

_ATTEND_SECONDS = 5.0  # the longest time for which nobody looks after signals, requests and the watchdog


class Clock(Protocol):
    """Where `Instant`s come from, and how to wait for one."""

    def now(self) -> Instant: ...

    def cpu_seconds(self) -> float:
        """CPU time of this process so far."""
        ...

    def wait_until(self, monotonic_seconds: float) -> None:
        """Return at `monotonic_seconds`, or earlier when woken."""
        ...


def boot_seconds() -> float:
    """The time of `Instant.monotonic_seconds`, as `SystemClock` gives it, alone."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The real clocks. The monotonic one goes on while the machine sleeps, so a suspend is a gap like any other.

    `attend` is called every few seconds of a long wait, and whenever `wake` was called, before or during it; the wait
    ends early where it returns True.
    """

    def __init__(self) -> None:
        self.attend: Callable[[], bool] = lambda: False
        # Unlike a threading.Event, which may be locked just then, a descriptor can be written from a signal handler.
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __del__(self) -> None:
        os.close(self._wake_fd)

    def now(self) -> Instant:
        return Instant(time.time(), boot_seconds())

    def cpu_seconds(self) -> float:
        return time.process_time()

    def suspended_seconds(self) -> float:
        """For how long this machine has slept since it booted."""
        return boot_seconds() - time.clock_gettime(time.CLOCK_MONOTONIC)

    def wake(self) -> None:
        """End a wait early, also from a signal handler or another thread."""
        os.eventfd_write(self._wake_fd, 1)

    def wait_until(self, monotonic_seconds: float) -> None:
        while (left := monotonic_seconds - boot_seconds()) > 0:
            woken, _, _ = select.select((self._wake_fd,), (), (), min(left, _ATTEND_SECONDS))
            if woken:
                os.eventfd_read(self._wake_fd)
            elif left <= _ATTEND_SECONDS:
                return
            if self.attend():
                return
