"""A timer of the kernel's that wakes one waiting thread. Setting it wakes nobody, and costs one system call."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time

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
