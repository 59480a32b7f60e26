"""The GPU driver on a thread of its own, with a deadline: a hung driver costs its GPUs, never the loop.

A driver that wedges leaves its caller in a call that does not return. So all that calls it (open, probe, read, a
burst's reading, close) is a job of one thread. The loop waits for a job until its deadline and goes on without it.
While one of the loop's jobs is outstanding the GPUs are absent (``driver-hung``) and nobody asks again: one stuck
thread is all that a wedged driver gets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

from ..model import Absence, Gpu, Instant, Probe, Reading
from ..sampler import Sampled, Sampler
from ..sources.base import Fault
from ..sources.nvidia_driver import NvidiaDriver
from ..sources.nvml_errors import DRIVER_MISMATCH

# Waited before the other sources read: longer, and their counters would be older than the instant of the tick.
_USUAL_SECONDS = 0.05
_CHECK_SECONDS = 0.1  # how often a wait looks whether the agent is to stop

PAUSED = Fault(
    "paused",
    "The agent was paused and has released the GPUs.",
    "Run skuwise agent resume; the agent also resumes when the pause is over.",
)
HUNG = Fault(
    "driver-hung",
    "The NVIDIA driver does not answer; everything else is still read.",
    "See the kernel log for an XID; the GPU or the node may need a reset. The agent continues once it answers.",
)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the loop waits for the driver, in seconds."""

    read: float = 1.0  # eight GPUs answer in some milliseconds; a busy driver was seen to take a few hundred
    open: float = 20.0  # without persistence mode it wakes every GPU, some seconds each on a node of eight
    pause: float = 5.0  # to let go of the GPUs
    leave: float = 1.5  # the same at the end; a wait for events lasts a second
    retry: float = 60.0  # a driver that comes up late is taken up within this


@dataclass(slots=True, eq=False)
class Job:
    """Some calls of the driver that may take `seconds`. `result` and `error` hold once it is `done`.

    `before`: why no GPU could be read when it began, which still holds while it opens the driver.
    """

    call: Callable[[], object]
    seconds: float
    before: Fault | None = None
    result: object = None
    error: Exception | None = None
    started: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def late_seconds(self) -> float:
        return max(0.0, time.monotonic() - self.started - self.seconds)

    def run(self) -> None:
        try:
            self.result = self.call()
        except Exception as error:
            self.error = error
        self.done.set()


class DriverThread:
    """All sources of the driver as one `Source` that always answers in time.

    All but `burst` belongs to the loop's thread. `stopped`: whether the agent is to end, so that nothing is waited for.
    `wants_probe` is set when the driver was opened, late or anew: the GPUs may be others. `paused_until`: monotonic
    seconds at which a pause ends by itself.
    """

    name = "nvml"

    def __init__(
        self,
        driver: NvidiaDriver,
        interval_seconds: float,
        max_gap_seconds: float,
        *,
        sysfs: Path = Path("/sys"),
        stopped: Callable[[], bool] = lambda: False,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.driver = driver
        self.wants_probe = False
        self.paused_until: float | None = None
        self._inner = Sampler(driver.sources, interval_seconds, max_gap_seconds)
        self._version_file = sysfs / "module/nvidia/version"
        self._stopped = stopped
        self._limits = deadlines or Deadlines()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._job: Job | None = None  # the loop's, which is outstanding
        self._reading: Job | None = None  # the same, where it is this tick's reading
        self._stale = False  # an answer came too late: what is read next has no sound start to count from
        self._retry_at = self._look_at = 0.0
        self._probe = Probe()
        self._changed: str | None = None  # the driver's version now, where it is not the one that was opened
        threading.Thread(target=self._work, name=self.name, daemon=True).start()  # dies with the process, stuck or not

    # What the loop asks of a source.

    def open(self, instant: Instant) -> None:
        """Open the driver, waiting for it. What takes longer than its deadline is taken up when it is there."""
        self._wait(self._look(instant))
        self._settle()
        self.wants_probe = False  # whoever assembles the agent probes it anyway

    def probe(self) -> Probe:
        """What was found when the driver was last opened; the GPUs stay named while it is hung or paused."""
        self.wants_probe = False
        if (fault := self.fault) is None:
            return self._probe
        return replace(self._probe, capabilities=(fault.line(self.name, "libnvidia-ml.so.1"),))

    def begin(self, instant: Instant) -> None:
        """Hand the reading of `instant` to the driver's thread; it is done in a moment, unless the driver is slow."""
        now = instant.monotonic_seconds
        if self.paused_until is not None and now >= self.paused_until:
            self.resume()
        if self.fault is not None or self._inner.wants_probe:
            self._next_step(instant)
        self._reading = None
        if self.fault is None:
            self._look_for_a_change(now)
            self._reading = self._start(lambda: self._inner.sample(instant), self._limits.read)
            self._reading.done.wait(_USUAL_SECONDS)

    def read(self, instant: Instant) -> Reading:
        """What `begin` began: one reading of every GPU, or why there is none."""
        job, self._reading = self._reading, None
        if job is None or not self._wait(job):
            return Reading(absences=self._all_blind(self.fault or HUNG))
        self._job = None
        if job.error is not None:
            raise job.error
        if self.driver.fault is not None:
            self._retry_at = instant.monotonic_seconds + self._limits.retry
        if self._stale:
            # The reading before was taken later than its instant says, so this one's rates would be wrong.
            self._stale = False
            return Reading(absences=self._all_blind(HUNG))
        assert isinstance(job.result, Sampled)
        return Reading(gpus=job.result.tick.gpus, processes=job.result.processes, absences=job.result.absences)

    def close(self) -> None:
        """Let go of the driver, where it lets us."""
        if self._settle():
            self._start(self._inner.close, self._limits.leave).done.wait(self._limits.leave)
        self._jobs.put(None)

    def burst(self, call: Callable[[], object]) -> Job:
        """Call the driver for a burst. From any thread; the job waits for its turn as the loop's do."""
        job = Job(call, self._limits.read)
        self._jobs.put(job)
        return job

    # What the supervisor asks.

    def pause(self, instant: Instant, seconds: float) -> bool:
        """Let go of the GPUs for `seconds`. Whether they are free now; if not, they will be when the driver answers."""
        self.paused_until = instant.monotonic_seconds + seconds
        if not self._settle():
            return False
        self._next_step(instant)
        return self._job is None or self._wait(self._job)

    def resume(self) -> None:
        """End the pause; the next reading takes the GPUs up again."""
        self.paused_until = None
        self._retry_at = 0.0

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Those that the driver named when it was last opened or looked at."""
        return self._probe.gpus

    @property
    def fault(self) -> Fault | None:
        """Why no GPU is read at present; None while they are."""
        is_free = self._settle()
        if self.paused_until is not None:
            return PAUSED
        if is_free or self._job is None:
            return self.driver.fault
        return (None if self._job.late_seconds else self._job.before) or HUNG

    @property
    def hung_seconds(self) -> float:
        """For how long the driver has not answered beyond what it may take; 0.0 where it does."""
        return 0.0 if self._settle() or self._job is None else self._job.late_seconds

    def wants_restart(self, after_seconds: float) -> str | None:
        """Why only a new process can read the GPUs; None: this one can. A driver is hung after `after_seconds`."""
        fault = self.fault
        if self.paused_until is not None:
            return None
        if self._changed is not None:
            return f"The NVIDIA driver was changed from {self.driver.version} to {self._changed} under the agent."
        if fault is not None and fault.reason == DRIVER_MISMATCH:
            return "The NVIDIA driver was changed under the agent."
        hung = self.hung_seconds
        return f"The NVIDIA driver has not answered for {hung:.0f} s." if hung >= after_seconds else None

    # Inside.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()

    def _start(self, call: Callable[[], object], seconds: float, before: Fault | None = None) -> Job:
        self._job = Job(call, seconds, before)
        self._jobs.put(self._job)
        return self._job

    def _wait(self, job: Job) -> bool:
        """Wait for a job until it is late, in parts, so that a signal to stop ends the wait. Whether it is done."""
        while not job.done.wait(_CHECK_SECONDS):
            if self._stopped() or job.late_seconds:
                return False
        return True

    def _settle(self) -> bool:
        """Take what an outstanding job brought, if it is done. Whether none is outstanding."""
        job = self._job
        if job is None:
            return True
        if not job.done.is_set():
            return False
        self._job = None
        # A driver that was let go begins anew anyway.
        self._stale = self.driver.fault is None and (self._stale or isinstance(job.result, Sampled))
        if isinstance(job.result, Probe):
            if self.driver.fault is None or not self._probe.gpus:
                self._probe = job.result
            self.wants_probe = self.driver.fault is None
        return True

    def _next_step(self, instant: Instant) -> None:
        """Let go where a pause wants it, open where it is time, look again where the GPUs are others."""
        if self._job is not None:
            return
        if self.paused_until is not None:
            if self.driver.fault is None:
                self._start(self._inner.close, self._limits.pause)
        elif self.driver.fault is None:
            self._wait(self._look(instant))
        elif instant.monotonic_seconds >= self._retry_at:
            self._retry_at = instant.monotonic_seconds + self._limits.retry
            self._look(instant)

    def _look(self, instant: Instant) -> Job:
        """Open the driver, where it is not open, and see what is there."""

        def look() -> Probe:
            self.driver.open(instant)
            survey = self._inner.probe()
            return Probe(gpus=survey.gpus, ports=survey.ports, capabilities=survey.capabilities)

        fault = self.driver.fault
        return self._start(look, self._limits.read if fault is None else self._limits.open, fault)

    def _all_blind(self, fault: Fault) -> frozenset[Absence]:
        sources = {fault.of("source", source.name) for source in self._inner.sources}
        return frozenset(sources | {fault.of("gpu", gpu.uuid) for gpu in self._probe.gpus})

    def _look_for_a_change(self, now: float) -> None:
        """Whether the kernel's module is another than the one whose library we hold: only a new process can read it."""
        if now < self._look_at or self.driver.version is None:
            return
        self._look_at = now + self._limits.retry
        try:
            version = self._version_file.read_text(encoding="ascii", errors="replace").strip()[:64]
        except OSError:
            return
        self._changed = version if version and version != self.driver.version else None
