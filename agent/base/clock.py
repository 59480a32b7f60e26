"""Time and waiting: the loop asks a clock and never the operating system."""

import contextlib
import signal
import time
from queue import Empty, SimpleQueue

from ..model import Instant

# The longest wait in which no one looks: the kernel may give a signal to another thread, which ends no wait.
LOOK_SECONDS = 1.5


def boot_seconds() -> float:
    """The time of `Instant.monotonic_seconds`. It goes on while the machine sleeps: a suspend is a gap like others."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The clocks of the machine; tests pass a clock that they step."""

    def __init__(self) -> None:
        # Not a threading.Event: a signal's handler that comes while the event is locked would wait for ever.
        self._woken: SimpleQueue[None] = SimpleQueue()

    def now(self) -> Instant:
        return Instant(time.time(), boot_seconds())

    def cpu_seconds(self) -> float:
        return time.process_time()

    def wake(self) -> None:
        """End a wait early, also from a signal handler or another thread."""
        self._woken.put(None)

    def wait_until(self, monotonic_seconds: float) -> None:
        """Return at `monotonic_seconds`, or earlier when woken."""
        with contextlib.suppress(Empty):
            self._woken.get(timeout=max(0.0, monotonic_seconds - boot_seconds()))


class Signals:
    """What was asked of this process: SIGTERM and SIGINT set `stop`, SIGHUP (where it `reloads`) `reload`; each ends a
    wait of `clock`. For the main thread."""

    def __init__(self, clock: SystemClock, *, reloads: bool = False) -> None:
        self.stop = self.reload = False
        self._clock = clock
        numbers = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if reloads else []))
        self._before = {number: signal.signal(number, self._note) for number in numbers}

    def _note(self, number: int, _frame: object) -> None:
        self.reload = self.reload or number == signal.SIGHUP
        self.stop = self.stop or number != signal.SIGHUP
        self._clock.wake()

    def wait(self, seconds: float) -> bool:
        """Whether the process is to stop, at the latest after `seconds`."""
        ends = boot_seconds() + seconds
        while not self.stop and (now := boot_seconds()) < ends:
            self._clock.wait_until(min(ends, now + LOOK_SECONDS))
        return self.stop

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
