"""What wakes the main thread when a signal came, whichever thread the kernel gave it to.

Python runs a handler on the main thread only, and does not wake it: a signal that another thread took, or that came
just before the main thread began to wait, ends no wait. A byte in a pipe does (signal.set_wakeup_fd). The kernel gives
a process's signal to another thread where the main one has just been continued (SIGCONT) and has not run yet.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from types import FrameType

_MOST_BYTES = 4096
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SignalPipe:
    """A descriptor, `fd`, that can be read once a signal with a handler came. There is one at a time, made and closed
    by the main thread."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def take(self) -> bytes:
        """The numbers of the signals that came since this was last asked, a byte each."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.fd, _MOST_BYTES)
        return b""

    def close(self) -> None:
        """Wake nobody any longer."""
        signal.set_wakeup_fd(self._before)
        os.close(self.fd)
        os.close(self._write_fd)


class StopSignals:
    """Waits that end when one of `numbers` comes, once and for all; they no longer end the process."""

    def __init__(self, numbers: Iterable[signal.Signals] = STOP_SIGNALS) -> None:
        self._numbers = frozenset(numbers)
        self._pipe = SignalPipe()
        self._poll = select.poll()
        self._poll.register(self._pipe.fd, select.POLLIN)
        self._came = False
        self._handlers = {number: signal.signal(number, _heard) for number in self._numbers}

    def wait(self, seconds: float) -> bool:
        """Whether one came, at the latest after `seconds`."""
        ends = time.monotonic() + seconds
        while not self._came:
            ready = self._poll.poll(1e3 * max(0.0, ends - time.monotonic()))
            self._came = not self._numbers.isdisjoint(self._pipe.take())
            if not ready:
                break
        return self._came

    def close(self) -> None:
        """Let the signals do what they did before."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._pipe.close()


def _heard(number: int, frame: FrameType | None) -> None:
    """Nothing: the byte in the pipe tells it, and an event may be locked just then."""
