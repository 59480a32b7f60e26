"""The GPU driver on its own thread, with a deadline: a hung driver costs its GPUs, never the loop.

A driver that wedges leaves its caller in a call that does not return. So all that calls it is a job of one thread, for
which the loop waits until a deadline. While one of the loop's jobs is outstanding the GPUs are absent (``driver-hung``)
and no one asks again: one stuck thread is all that a wedged driver gets.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

from ..model import Gpu, Instant, Probe, Reading, Tick
from ..sampler import Sampler
from ..sources.base import Fault
from ..sources.nvidia_driver import NvidiaDriver
from ..sources.nvml_table import DRIVER_MISMATCH

# Waited before the other sources read: longer, and their counters would be older than the instant of the tick.
_USUAL_SECONDS = 0.05
_CHECK_SECONDS = 0.1  # how often a wait looks whether the agent is to stop

_RESUME = "Run skuwise agent resume; the agent also resumes when the pause is over."
PAUSED = Fault("paused", "The agent was paused and has released the GPUs.", _RESUME)
_RESET = "See the kernel log for an XID; the GPU or the node may need a reset. The agent continues once it answers."
HUNG = Fault("driver-hung", "The NVIDIA driver does not answer; everything else is still read.", _RESET)


@dataclass(slots=True, eq=False)
class Job:
    """Calls of the driver that may take `seconds`. `result` (or what was raised) holds once it is `done`. `before`: why
    no GPU could be read when it began, which still holds while it opens the driver."""

    call: Callable[[], object]
    seconds: float
    before: Fault | None = None
    result: object = None
    started: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def late_seconds(self) -> float:
        """For how long it has not been done beyond what it may take."""
        return 0.0 if self.done.is_set() else max(0.0, time.monotonic() - self.started - self.seconds)


class DriverThread:
    """All sources of the driver as one `Source` that always answers in time. All but `burst` belongs to the loop's
    thread. `stopped`: whether the agent is to end, so that nothing is waited for. `wants_probe` is set when the driver
    was opened, late or again: the GPUs may be others. `paused_until`: monotonic seconds at which a pause ends by
    itself."""

    name = "nvml"
    read_seconds = 1.0  # eight GPUs answer in some milliseconds; a busy driver was seen to take a few hundred
    open_seconds = 20.0  # without persistence mode it wakes every GPU, some seconds each on a node of eight
    close_seconds = 1.5  # a wait for events, which ends first, lasts a second
    retry_seconds = 60.0  # a driver that comes up late, or was changed, is seen within this

    def __init__(self, driver: NvidiaDriver, *, stopped: Callable[[], bool] = lambda: False) -> None:
        self.driver = driver
        self.wants_probe = False
        self.paused_until: float | None = None
        self._inner = Sampler(driver.sources, driver.interval_seconds, driver.max_gap_seconds)
        self._stopped = stopped
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._job: Job | None = None  # the loop's, which is outstanding
        self._is_reading = False  # whether that is this tick's
        self._stale = False  # an answer came too late: what is read next has no sound start to count from
        self._retry_at = 0.0
        self._probe: Probe = Probe()
        threading.Thread(target=self._work, name=self.name, daemon=True).start()  # dies with the process, stuck or not

    def open(self, instant: Instant) -> None:
        """Open the driver, waiting for it. What takes longer than its deadline is taken up when it is there."""
        if self._wait(self._start(instant)):
            self._job = None

    def probe(self) -> Probe:
        """What was found when the driver was last opened; the GPUs stay named while it is hung or paused."""
        self.wants_probe = False
        if (fault := self.fault) is None:
            return self._probe
        return replace(self._probe, capabilities=(fault.line(self.name, "libnvidia-ml.so.1"),))

    def begin(self, instant: Instant) -> None:
        """Hand the reading of `instant` to the driver's thread; it is done in a moment, unless the driver is slow."""
        if self.paused_until is not None and instant.monotonic_seconds >= self.paused_until:
            self.resume()
        self._is_reading = self._is_free()
        if self._is_reading:
            self._start(instant).done.wait(_USUAL_SECONDS)

    def read(self, instant: Instant) -> Reading:  # noqa: ARG002 - it was handed over in `begin`
        """What `begin` began: one reading of every GPU, or why there is none."""
        job = self._job
        if job is None or not self._is_reading or not self._wait(job):
            return self._blind(self.fault or HUNG)
        self._job = None
        if isinstance(job.result, Exception):
            raise job.result
        stale, self._stale = self._stale, False
        if isinstance(job.result, Tick) and not stale:
            return Reading(gpus=job.result.gpus, processes=job.result.processes, absences=job.result.absences)
        # The reading before was taken later than its instant says, so the rates of this one would be wrong.
        return self._blind(job.result if isinstance(job.result, Fault) else HUNG)

    def close(self) -> None:
        if self._is_free():
            self._put(Job(self._inner.close, self.close_seconds)).done.wait(self.close_seconds)

    def pause(self, instant: Instant, seconds: float) -> bool:
        """Release the GPUs for `seconds`. Whether they are free now; if not, they will be when the driver answers."""
        self.paused_until = instant.monotonic_seconds + seconds
        return self._is_free() and self._start(instant).done.wait(self.close_seconds)

    def resume(self) -> None:
        """End the pause; the next reading takes the GPUs up again."""
        self.paused_until = None
        self._retry_at = 0.0

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self._probe.gpus

    @property
    def fault(self) -> Fault | None:
        """Why no GPU is read at present; None while they are."""
        if self.paused_until is not None:
            return PAUSED
        if self._job is None:
            return self.driver.fault
        return (None if self.hung_seconds else self._job.before) or HUNG

    @property
    def hung_seconds(self) -> float:
        """For how long the driver has not answered beyond what it may take; 0.0 where it does."""
        return 0.0 if self._job is None else self._job.late_seconds

    def wants_restart(self, after_seconds: float) -> str | None:
        """Why only a new process can read the GPUs; None: this one can. A driver is hung after `after_seconds`."""
        fault, hung = self.fault, self.hung_seconds
        if fault is PAUSED:
            return None
        if fault is not None and fault.reason == DRIVER_MISMATCH:
            return fault.detail
        return f"The NVIDIA driver has not answered for {hung:.0f} s." if hung >= after_seconds else None

    def _start(self, instant: Instant) -> Job:
        before = self.driver.fault
        seconds = self.read_seconds if before is None else self.open_seconds
        self._job = self._put(Job(lambda: self._tick(instant), seconds, before))
        return self._job

    def _wait(self, job: Job) -> bool:
        """Wait for a job until it is late, in parts, so that a signal to stop ends the wait. Whether it is done."""
        while not job.done.wait(_CHECK_SECONDS):
            if self._stopped() or job.late_seconds:
                return False
        return True

    def _is_free(self) -> bool:
        """Whether none of the loop's jobs is outstanding. What a late one brought is thrown away."""
        if self._job is not None and self._job.done.is_set():
            self._job, self._stale = None, True
        return self._job is None

    def _blind(self, fault: Fault) -> Reading:
        sources = {fault.of("source", source.name) for source in self._inner.sources}
        return Reading(absences=frozenset(sources | {fault.of("gpu", gpu.uuid) for gpu in self._probe.gpus}))

    def burst(self, call: Callable[[], object]) -> Job:
        """Call the driver for a burst. From any thread; the job waits for its turn as the loop's do."""
        return self._put(Job(call, self.read_seconds))

    def _put(self, job: Job) -> Job:
        self._jobs.put(job)
        return job

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job.result = job.call()
            except Exception as error:
                job.result = error
            job.done.set()

    def _tick(self, instant: Instant) -> Tick | Fault:
        """Read the GPUs, or say why not: released where a pause wants it, open where it is time."""
        now, fault = instant.monotonic_seconds, self.driver.fault
        if self.paused_until is not None:
            if fault is None:
                self._inner.close()
            return PAUSED
        if fault is not None:
            if now >= self._retry_at:
                self._retry_at = now + self.retry_seconds
                self._look(instant)
            return fault  # opening takes time: the first reading is the next tick's
        if self._inner.wants_probe:
            self._look(instant)
        sampled = self._inner.sample(instant)
        if self.driver.fault is not None:
            self._retry_at = now + self.retry_seconds
        return sampled

    def _look(self, instant: Instant) -> None:
        self.driver.open(instant)
        survey = self._inner.probe()
        if self.driver.fault is None or not self._probe.gpus:
            self._probe = survey
        self.wants_probe = self.driver.fault is None
