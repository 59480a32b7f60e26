"""A GPU driver with a deadline per read: a hung one costs its GPUs, never the loop.

A driver that wedges leaves its caller in a call that does not return. So it is opened, looked at and closed on a worker
thread; the loop hands it a job, waits until the deadline and goes on without it. Readings of a driver that has always
answered at once are made on the loop's own thread, where there is a `Relief` to take the loop over; for some minutes
after one that was late they are handed over too. While a job is outstanding the GPUs are absent (``driver-hung``) and
nobody asks again: one stuck thread is all that a wedged driver gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ..model import Absence, Gpu, Instant, Probe, Reading
from ..sampler import Sampler
from ..sources.base import Fault
from ..sources.gpu_backend import DRIVER_MISMATCH, NO_DRIVER, GpuBackend, GpuDriver
from .relief import Relief
from .worker import Aside, Call, Worker

# Eight GPUs answer in some milliseconds; a busy driver was seen to take a few hundred.
READ_SECONDS = 1.0
# NVIDIA's without persistence mode wakes every GPU, some seconds each on a node of eight.
OPEN_SECONDS = 20.0
CLOSE_SECONDS = 5.0
USUAL_SECONDS = 0.05  # waited before the others read: longer, and their counters would be older than their instant
# How long a driver that was late is read on its own thread: to be taken over at each tick would cost more.
CALM_SECONDS = 600.0
RETRY_SECONDS = 60.0  # a driver that comes up late is taken up within this

PAUSED = Fault(
    "paused",
    "The agent was paused and has released the GPUs.",
    "Run skuwise agent resume; the agent also resumes when the pause is over.",
)
_Job = Literal["open", "probe", "read", "close"]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the loop waits for the driver, in seconds."""

    read: float = READ_SECONDS
    open: float = OPEN_SECONDS
    close: float = CLOSE_SECONDS
    retry: float = RETRY_SECONDS


class GuardedDriver:
    """All sources that one vendor's driver has, as one `Source` that always answers in time.

    Not for several threads: all but `aside` belongs to the loop. `wants_probe` is set when the driver was
    opened, late or anew: the GPUs may be others.
    """

    def __init__(
        self,
        backend: GpuBackend,
        driver: GpuDriver,
        interval_seconds: float,
        max_gap_seconds: float,
        *,
        sysfs: Path = Path("/sys"),
        deadlines: Deadlines | None = None,
    ) -> None:
        self.name = backend.name
        self.backend = backend
        self.driver = driver
        self._inner = Sampler(driver.sources, interval_seconds, max_gap_seconds)
        self._version_file = sysfs / backend.version_file if backend.version_file else None
        self._limits = deadlines or Deadlines()
        self._worker = Worker(backend.name)
        self._hung = Fault(
            "driver-hung",
            f"The {backend.vendor} driver does not answer; everything else is still read.",
            "See the kernel log for an XID; the GPU or the node may need a reset. The agent continues once it answers.",
        )
        self._job: _Job | None = None
        self._call: Call | None = None
        self._began = 0.0  # when the outstanding job was handed over, monotonic seconds
        self._overdue = False  # it has been given all the time there is
        self._stale = False  # an answer came too late: what is read next has no sound start to count from
        self._begun: Instant | None = None
        self.relief: Relief | None = None  # set while the loop may read the driver on its own thread
        self._read_at: Instant | None = None  # of the reading that is outstanding
        self._aloof_until = 0.0  # until then it is read on the driver's thread
        self._unreadable: Fault | None = None
        self._retry_at = 0.0
        self._look_at = 0.0
        self._paused_until: float | None = None
        self._probe = Probe()
        self._blind: dict[Fault, frozenset[Absence]] = {}
        self._last_fault: Fault | None = driver.fault
        self.wants_probe = False
        self._changed: tuple[str, str] | None = None  # the driver's version then and now

    # What the loop asks.

    def open(self, instant: Instant) -> None:
        """Open the driver, waiting for it for `Deadlines.open`. What takes longer is taken up when it is there."""
        self._start("open", instant, lambda: self._open(instant))
        self._overdue = not self._waited(self._limits.open)
        self.wants_probe = False  # whoever assembles the agent probes it anyway

    def probe(self) -> Probe:
        """What was found when the driver was last opened; the GPUs stay named while it is hung or paused."""
        self._settle()
        self.wants_probe = False
        fault = self._why_blind()
        if fault is None:
            return self._probe
        return replace(self._probe, capabilities=(fault.line(self.name, self.backend.library),))

    def read(self, instant: Instant) -> Reading:
        """One reading of every GPU, or why there is none, within `Deadlines.read`."""
        if self._begun is not instant:
            self.begin(instant)
        self._begun, fault = None, self._unreadable
        if fault is not None:
            return Reading(absences=self._all_blind(fault))
        call = self._call
        assert call is not None
        if not call.wait(self._limits.read):
            return Reading(absences=self._all_blind(self._hung))
        return self._take(call, instant.monotonic_seconds)

    def begin(self, instant: Instant) -> None:
        """Hand the reading to the driver's thread; it is done in a moment, unless the driver is slow or hung."""
        self._begun = instant
        now = instant.monotonic_seconds
        if self._read_at is instant and self._call is not None:
            # The thread before this one is still at it: from here on it is as if it had been handed over.
            self._unreadable, self._aloof_until = None, now + CALM_SECONDS
            return
        self._settle()
        self._overdue = self._overdue or now - self._began > self._limits.open
        if self._paused_until is not None and now >= self._paused_until:
            self.resume()
        if self._call is None:
            self._next_step(instant)
        self._unreadable = self._why_blind()
        if self._unreadable is None:
            self._look_for_a_change(now)
            self._begin_reading(instant)

    def close(self) -> None:
        """Let go of the driver, where it lets us. Idempotent."""
        self._settle()
        if self._call is None:
            self._worker.start(self._inner.close).wait(self._limits.close)
        self._worker.stop()

    def aside(self, steps: Iterator[object]) -> Aside | None:
        """Do `steps` where the driver may be called, whenever nothing else is to be done there. From any thread.

        None where there is no such thread. The steps look for themselves whether the session is open: a pause may come
        between two of them.
        """
        return self._worker.aside(steps)

    # Pause, and what the daemon wants to know.

    def pause(self, instant: Instant, seconds: float) -> bool:
        """Let go of the GPUs for `seconds`. Whether they are free now; if not, they will be when the driver answers."""
        self._paused_until = instant.monotonic_seconds + seconds
        self._settle()
        if self._call is None:
            self._next_step(instant)
        if self._job == "close":
            self._waited(self._limits.close)
        return self._call is None

    def resume(self) -> None:
        """End the pause; the next reading takes the GPUs up again."""
        self._paused_until = None
        self._retry_at = 0.0

    @property
    def paused_until(self) -> float | None:
        """Monotonic seconds at which the pause ends by itself; None: not paused."""
        return self._paused_until

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Those that the driver named when it was last opened or looked at."""
        return self._probe.gpus

    @property
    def missing(self) -> bool:
        """Whether this node has no such driver, as far as anybody could look."""
        fault = self.fault
        return fault is not None and fault.reason == NO_DRIVER and not self._probe.gpus

    def wants_restart(self, monotonic_seconds: float, after_seconds: float) -> str | None:
        """Why only a new process can read these GPUs; None: this one can. A driver is hung after `after_seconds`."""
        fault, vendor = self.fault, self.backend.vendor
        if self._paused_until is not None:
            return None
        if self._changed is not None:
            before, now = self._changed
            return f"The {vendor} driver was changed from {before} to {now} under the agent."
        if fault is not None and fault.reason == DRIVER_MISMATCH:
            return f"The {vendor} driver was changed under the agent."
        hung = self.hung_seconds(monotonic_seconds)
        return f"The {vendor} driver has not answered for {hung:.0f} s." if hung >= after_seconds else None

    @property
    def fault(self) -> Fault | None:
        """Why no GPU is read at present; None while they are."""
        self._settle()
        return self._why_blind()

    def hung_seconds(self, monotonic_seconds: float) -> float:
        """For how long the driver has not answered; 0.0 where it does."""
        self._settle()
        if self._call is None:
            return 0.0
        grace = self._limits.open if self._job == "open" else self._limits.read
        return max(0.0, monotonic_seconds - self._began - grace)

    # Inside.

    def _begin_reading(self, instant: Instant) -> None:
        self._read_at = instant
        call = Call(partial(self._inner.read_gpus, instant))
        self._note("read", instant, call)
        relief = self.relief
        alone = relief is not None and instant.monotonic_seconds >= self._aloof_until
        if relief is not None and alone and relief.away(partial(self._worker.here, call)):
            return
        self._worker.hand(call)
        call.wait(USUAL_SECONDS)

    def _open(self, instant: Instant) -> Probe:
        self.driver.open(instant)
        return self._look()

    def _look(self) -> Probe:
        survey = self._inner.probe()
        return Probe(survey.gpus, survey.ports, survey.capabilities, survey.unnamed_gpus)

    def _take(self, call: Call, now: float) -> Reading:
        self._call = self._job = None
        if call.error is not None:
            raise call.error
        reading = call.result
        assert isinstance(reading, Reading)
        if self.driver.fault is not None:
            self._retry_at = now + self._limits.retry
        if self._stale:
            # The reading before was taken later than its instant says, so this one's rates would be wrong.
            self._stale = False
            return Reading(absences=self._all_blind(self._hung))
        return reading

    def _next_step(self, instant: Instant) -> None:
        """With no job outstanding: let go where a pause wants it, open where it is time."""
        now = instant.monotonic_seconds
        if self._paused_until is not None:
            if self.driver.fault is None:
                self._start("close", instant, self._inner.close)
        elif self.driver.fault is not None and now >= self._retry_at:
            self._retry_at = now + self._limits.retry
            self._start("open", instant, lambda: self._open(instant))
        elif self._inner.wants_probe:
            self._start("probe", instant, self._look)
            self._waited(self._limits.read)

    def _start(self, job: _Job, instant: Instant, function: Callable[[], object]) -> Call:
        call = Call(function)
        self._note(job, instant, call)
        self._worker.hand(call)
        return call

    def _note(self, job: _Job, instant: Instant, call: Call) -> None:
        self._job, self._began, self._overdue = job, instant.monotonic_seconds, False
        self._last_fault = self.driver.fault
        self._call = call

    def _waited(self, seconds: float) -> bool:
        """Wait for the outstanding job and take what it brought. False: it is still outstanding."""
        if self._call is not None and self._call.wait(seconds):
            self._settle()
        return self._call is None

    def _settle(self) -> None:
        """Take what an outstanding job brought, if it is done."""
        if self._call is None or not self._call.done:
            return
        call, job, self._call, self._job = self._call, self._job, None, None
        if job == "read":
            self._stale = True
        elif job in ("open", "probe") and isinstance(call.result, Probe):
            if self.driver.fault is None or not self._probe.gpus:
                self._probe = call.result
            self.wants_probe = self.driver.fault is None
            self._stale = self._stale and job == "probe"  # what was opened anew begins at its first reading
            self._blind.clear()

    def _why_blind(self) -> Fault | None:
        if self._paused_until is not None:
            return PAUSED
        if self._call is None:
            return self.driver.fault
        # While an attempt to open is under way, the reason before it still holds.
        return self._last_fault if self._job == "open" and not self._overdue and self._last_fault else self._hung

    def _all_blind(self, fault: Fault) -> frozenset[Absence]:
        found = self._blind.get(fault)
        if found is None:
            names = [source.name for source in self._inner.sources]
            found = frozenset(
                [fault.of("source", name) for name in names] + [fault.of("gpu", g.uuid) for g in self._probe.gpus]
            )
            self._blind[fault] = found
        return found

    def _look_for_a_change(self, now: float) -> None:
        """Whether the kernel's module is another than the one whose library we hold: only a new process can read it."""
        if now < self._look_at or self.driver.version is None or self._version_file is None:
            return
        self._look_at = now + self._limits.retry
        try:
            version = self._version_file.read_text(encoding="ascii", errors="replace").strip()[:64]
        except OSError:
            return
        if version and version != self.driver.version:
            self._changed = (self.driver.version, version)
