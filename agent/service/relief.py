"""A thread that calls a driver itself, and another one that takes over where the driver does not return.

To hand every reading to a thread of the driver's wakes two threads at each tick, which costs more than the reading. So
the loop's thread reads, and is itself what a hung driver may keep: its work then goes on, at the very tick where it
stopped, on a new thread. The main thread does nothing but wait for that and for signals: the timer that wakes it is set
before each reading and cleared after it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..base.signal_pipe import SignalPipe

_Spec = ctypes.c_long * 4  # struct itimerspec: interval and value, seconds and nanoseconds of each
_AT_ONCE, _NEVER = _Spec(0, 0, 0, 1), _Spec(0, 0, 0, 0)


class Timer:
    """`wait` returns `seconds` after `set`, unless `clear` came first. Raises OSError where the kernel has none."""

    def __init__(self, seconds: float) -> None:
        # Without letting go of the interpreter: neither call ever waits.
        library = ctypes.PyDLL(None, use_errno=True)
        self._settime = library.timerfd_settime
        self._fd = library.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "The kernel has no timer")
        whole, part = divmod(seconds, 1.0)
        self._on, self._off, self._now = (
            (self._fd, 0, ctypes.byref(spec), None)
            for spec in (_Spec(0, 0, int(whole), int(part * 1e9)), _NEVER, _AT_ONCE)
        )

    def set(self) -> None:
        self._settime(*self._on)

    def clear(self) -> None:
        self._settime(*self._off)

    def fire(self) -> None:
        """End the wait now."""
        self._settime(*self._now)

    def wait(self, other_fd: int | None = None) -> bool:
        """Until the timer runs off, or `other_fd` can be read. Whether it was the timer."""
        awaited = select.poll()  # of descriptors of any number
        for fd in (self._fd,) if other_fd is None else (self._fd, other_fd):
            awaited.register(fd, select.POLLIN)
        while True:
            if self._fd not in {fd for fd, _ in awaited.poll()}:
                return False
            with contextlib.suppress(BlockingIOError):  # it was cleared just then
                os.read(self._fd, 8)
                return True

    def close(self) -> None:
        """Let go of it. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_T = TypeVar("_T")


class Relieved(BaseException):
    """This thread was away for so long that another one took over its work: it must touch nothing and end."""


class Relief:
    """Runs one piece of work on a thread, and on another where that one does not return from `away` within `seconds`.

    `signals` wakes the thread that waits, so that handlers of signals run on it. Raises OSError from its constructor
    where the kernel has no timer.
    """

    def __init__(self, seconds: float, signals: SignalPipe | None = None) -> None:
        self._timer = Timer(seconds)
        self._signals = signals
        self._lock = threading.Lock()  # of whose turn it is
        self._turn = 0
        self._away = False
        self._ended = False
        self._error: BaseException | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Wait, on this thread, until `work` has ended. Raises what it raises.

        It is called anew, on another thread, where the one before is away for too long; it goes on from there.
        """
        self._ended, self._error = False, None
        self._begin(work)
        while not self._ended:
            if not self._ran_off():
                continue
            with self._lock:
                stuck, self._away = self._away, False
                self._turn += stuck
            if stuck:
                self._begin(work)
        if self._error is not None:
            raise self._error

    def away(self, function: Callable[[], _T]) -> _T:
        """Call what may never return, from the thread of `work`. Raises Relieved where it returned too late."""
        turn = self._turn
        self._away = True
        self._timer.set()
        result = function()
        with self._lock:
            if self._turn != turn:
                raise Relieved
            self._away = False
        self._timer.clear()
        return result

    def close(self) -> None:
        self._timer.close()

    def _ran_off(self) -> bool:
        """Wait for the timer or a signal. Whether it was the timer."""
        if self._signals is None:
            return self._timer.wait()
        if self._timer.wait(self._signals.fd):
            return True
        self._signals.take()
        return False

    def _begin(self, work: Callable[[], None]) -> None:
        # It dies with the process, stuck or not.
        threading.Thread(target=self._live, args=(work,), name="loop", daemon=True).start()

    def _live(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Relieved:
            return
        except BaseException as error:  # it is the main thread's, which waits for the end
            self._error = error
        self._ended = True
        self._timer.fire()
