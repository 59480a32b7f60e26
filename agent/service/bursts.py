"""Bursts: every few minutes all GPUs and the fabric are read at some 10 Hz for some seconds, beside the ticks.

A burst has its own thread (a job's), reader of the driver and counters of the fabric, so that the ticks are not
touched; the driver is called on its one thread all the same. Idle GPUs are read too: that a GPU does nothing between
two requests is what a second's mean cannot show. A burst that ends early (a pause, a hung driver) leaves nothing.
"""

import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

from ..model import Absence, Capability, Gpu, Instant
from ..sampler import MIN_SPACING_SECONDS
from ..sources.fabric import InfinibandSource
from ..sources.nvidia_driver import GpmSource, Pass
from ..statistics.burst_stats import BURST_METRICS, Burst, BurstReading, burst_of
from .driver_thread import DriverThread, Job

# A counter's delta over more than this is not of this burst; some readings in a row may be missed.
MAX_GAP_SECONDS = 1.0
# A reading takes milliseconds. What takes this long is a hung driver, and the loop will find out by itself.
PASS_SECONDS = 1.0
METRIC = "burst"  # under which absences and capabilities name the fast dynamics

_MOST_WAITING = 1024  # bursts of single GPUs; the loop takes them each second
_SOURCE, _ASKED = "gpm", ("*", "sm_active")  # the source whose metrics a burst reads, and what stands for them
_SWITCHED_OFF = Absence("source", METRIC, METRIC, "switched-off", "Bursts are switched off.", "Set burst_every.")


class Bursts:
    """One node's bursts. `run` belongs to a job's thread; `take` and `absences` may be asked by the loop's."""

    def __init__(
        self, driver: DriverThread, fabric: InfinibandSource, now: Callable[[], Instant], seconds: float
    ) -> None:
        self._driver, self._fabric, self._now = driver, fabric, now
        self._reader = GpmSource(driver.driver, MAX_GAP_SECONDS, BURST_METRICS)
        self._seconds = seconds
        self._job: Job | None = None  # what the driver was asked last
        self._stopped = threading.Event()
        self._done: deque[Burst] = deque(maxlen=_MOST_WAITING)
        self.absences: frozenset[Absence] = frozenset()

    def run(self) -> list[Burst]:
        """One burst, now: its readings of each GPU. Empty where it could not be taken or was ended early."""
        if self._job is not None and not self._job.done.is_set():
            return []  # the driver still holds what the last burst asked for
        self._fabric.probe()
        self._fabric.keep_only("compute")
        taken = self._take()
        ts = self._now().wall_seconds
        bursts = [burst for uuid in sorted(taken) if (burst := burst_of(uuid, ts, taken[uuid])) is not None]
        self._done.extend(bursts)
        return bursts

    def take(self) -> list[Burst]:
        return [self._done.popleft() for _ in range(len(self._done))]

    def stop(self) -> None:
        self._stopped.set()

    def _take(self) -> dict[str, list[BurstReading]]:
        readings: dict[str, list[BurstReading]] = {}
        ended: dict[str, float] = {}  # when each GPU was last read, in monotonic seconds
        most = 1
        start = self._now().monotonic_seconds
        while True:
            job = self._job = self._driver.burst(lambda: self._reader.read_each(self._now))
            ports = [
                max(values["tx_bytes_per_second"], values["rx_bytes_per_second"])
                for values in self._fabric.read(self._now()).fabric.values()
                if "tx_bytes_per_second" in values and "rx_bytes_per_second" in values
            ]
            # A reading in which a port is missing is no sum: it would fall without the traffic having fallen.
            most = max(most, len(ports))
            carried = sum(ports) if len(ports) == most else None
            if not job.done.wait(PASS_SECONDS):
                return {}  # the driver hangs
            if isinstance(job.result, Exception):
                raise job.result
            pass_readings, absent = cast("tuple[Pass, list[Absence]]", job.result)
            if not pass_readings and not absent:
                return {}  # no session is open
            for uuid, (instant, values) in pass_readings.items():
                before, end = ended.get(uuid), instant.monotonic_seconds
                ended[uuid] = end
                if before is not None:
                    readings.setdefault(uuid, []).append(BurstReading(end, end - before, values, carried))
            if self._now().monotonic_seconds - start >= self._seconds:
                # For each GPU of which nothing was read in the whole burst: why, as the last reading has it.
                reasons = {a.subject: a for a in absent if a.metric in _ASKED and a.subject not in ended}
                self.absences = frozenset(_about(uuid, reason) for uuid, reason in reasons.items())
                return readings
            # From the end of one pass to the start of the next, so that every GPU's samples are far enough apart
            # also where a tick came between.
            if self._stopped.wait(MIN_SPACING_SECONDS):
                return {}


def _about(uuid: str, why: Absence) -> Absence:
    return replace(why, scope="gpu", subject=uuid, metric=METRIC)


def capabilities(
    gpus: Iterable[Gpu], lines: Iterable[Capability], every_seconds: float, seconds: float
) -> tuple[Capability, ...]:
    """What `doctor` says of the fast dynamics, GPU by GPU: they need what `lines` says the bursts' source can read."""
    how = f" for {seconds:g} s every {every_seconds:g} s" if every_seconds else ""
    asked = {line.subject: line for line in lines if line.source == _SOURCE and line.metric in _ASKED}
    capabilities: list[Capability] = []
    for gpu in gpus:
        if (line := asked.get(gpu.uuid)) is not None:
            why = line.absence or (None if every_seconds else _SWITCHED_OFF)
            origin = f"{_SOURCE.upper()} at 10 Hz{how}"
            capabilities.append(Capability(METRIC, "gpu", gpu.uuid, METRIC, origin, why and _about(gpu.uuid, why)))
    return tuple(capabilities)


def next_start(node: str, now: float, every_seconds: float) -> float:
    """When the next burst after `now` begins (Unix seconds): one in each window of `every_seconds`. Its place in the
    window's first half comes from the node's name and the window's number: a fleet does not pulse together, work that
    repeats every few minutes is not always met at the same point, and a restart changes nothing."""
    window = int(now // every_seconds)
    while True:
        share = zlib.crc32(f"{node}\0{window}".encode(errors="replace")) / 2**32
        start = (window + 0.5 * share) * every_seconds
        if start > now:
            return start
        window += 1
