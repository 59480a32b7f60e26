"""Files of sysfs and procfs that are read at each tick, and rates of counters over measured time."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 16384


@dataclass(frozen=True, slots=True)
class NoRate:
    """No rate for this interval. `reason`: first-reading, counter-reset, long-gap or counter-wrap."""

    reason: str


class CounterRate:
    """Remembers the last value of one counter and turns deltas into rates.

    A negative delta is a reset or a wrap: the two cannot be told apart, so it is a gap. A delta over more than
    `max_gap_seconds` is a gap too, because a mean over it would hide what happened; so is one over a time in which the
    counter can wrap, because a delta that looks sound may lack whole turns.
    """

    __slots__ = ("at", "last", "max_gap_seconds")

    def __init__(self, max_gap_seconds: float) -> None:
        self.max_gap_seconds = max_gap_seconds
        self.last: float | None = None  # its value at the last reading; None: not known
        self.at = 0.0  # when that was, monotonic seconds

    def rate(self, value: float, monotonic_seconds: float, wrap_seconds: float = math.inf) -> float | NoRate:
        """Per-second rate since the last value, or a `NoRate`. `wrap_seconds`: the shortest time of one whole turn."""
        last, elapsed = self.last, monotonic_seconds - self.at
        self.last, self.at = value, monotonic_seconds
        if last is None:
            return NoRate("first-reading")
        if value < last:
            return NoRate("counter-reset")
        if elapsed <= 0 or elapsed > self.max_gap_seconds:
            return NoRate("long-gap")
        if elapsed >= wrap_seconds:
            return NoRate("counter-wrap")
        return (value - last) / elapsed

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

    def read(self, size: int = 128) -> bytes:
        """The first `size` bytes. Raises `OSError`; after one the path is opened anew, as its device may be back."""
        try:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            return os.pread(self._fd, size, 0)
        except OSError:
            self.close()
            raise

    def read_all(self, limit: int = 1 << 20) -> bytes:
        """The whole file, up to some `limit` bytes; procfs hands long ones out a page at a time. Raises `OSError`."""
        text = self.read(_CHUNK)
        while self._fd is not None and len(text) < limit and (more := os.pread(self._fd, _CHUNK, len(text))):
            text += more
        return text

    def close(self) -> None:
        """Let the descriptor go; the next read opens the path anew."""
        fd, self._fd = self._fd, None  # first: a close that fails has let go all the same
        if fd is not None:
            os.close(fd)
