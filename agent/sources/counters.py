"""Files of sysfs that are read at each tick, and rates of counters over measured time."""

from __future__ import annotations

import os
from pathlib import Path

from .base import COMES_BACK, Fault

# Why an interval has no rate.
FIRST_READING = Fault("first-reading", "A rate needs two readings; this was the first.", COMES_BACK)
COUNTER_RESET = Fault("counter-reset", "The counter went back (a reset or a wrap), so there is no rate.", COMES_BACK)
LONG_GAP = Fault("long-gap", "The gap between two readings is too long for a meaningful mean.", COMES_BACK)


class CounterRate:
    """Remembers the last value of one counter and turns deltas into rates.

    A negative delta is a reset or a wrap: the two cannot be told apart, so it is a gap. A delta over more than
    `max_gap_seconds` is a gap too, because a mean over it would hide what happened.
    """

    __slots__ = ("at", "last", "max_gap_seconds")

    def __init__(self, max_gap_seconds: float) -> None:
        self.max_gap_seconds = max_gap_seconds
        self.last: float | None = None  # its value at the last reading; None: not known
        self.at = 0.0  # when that was, monotonic seconds

    def rate(self, value: float, monotonic_seconds: float) -> float | Fault:
        """Per-second rate since the last value, or why there is none."""
        last, elapsed = self.last, monotonic_seconds - self.at
        self.last, self.at = value, monotonic_seconds
        if last is None:
            return FIRST_READING
        if value < last:
            return COUNTER_RESET
        return (value - last) / elapsed if 0 < elapsed <= self.max_gap_seconds else LONG_GAP

    def forget(self) -> None:
        """Drop what is known (the counter's device went away)."""
        self.last = None


class SysfsFile:
    """A small file that is read from its beginning again and again, for the kernel makes its text anew at each read.
    The descriptor stays open: a read takes 1 us, opening the path 8, which is 0.25 ms a tick for 10 ports. An ordinary
    file (a fixture) must be rewritten in place."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None  # None: it is opened when it is read

    def read(self) -> bytes:
        """Its text, 128 bytes at most. Raises `OSError`; after one the path is opened anew: its device may be back."""
        try:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            return os.pread(self._fd, 128, 0)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let the descriptor go; the next read opens the path anew."""
        fd, self._fd = self._fd, None  # first: a close that fails has let go all the same
        if fd is not None:
            os.close(fd)
