"""The monotonic loop: probe once, read each tick, keep one source's failure from the others, report its own cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .base.clock import Clock
from .model import (
    Absence,
    AgentStats,
    Capability,
    Event,
    FabricPort,
    Gpu,
    GpuProcess,
    Instant,
    Node,
    Probe,
    Reading,
    ServingSample,
    Tick,
)
from .sources.base import NOTHING_READ, SlowSource, Source

_V = TypeVar("_V")

# Two GPM samples must lie more than 100 ms apart (NVML's documentation); two more for the jitter of a tick.
MIN_SPACING_SECONDS = 0.102
# Slewing moves a clock by at most 0.5 ms a second (adjtimex); half a second between two ticks was a step.
CLOCK_STEP_SECONDS = 0.5
REPORT_SECONDS = 60.0  # what watching costs is told so often


@dataclass(frozen=True, slots=True)
class Sampled:
    """One tick of every source. `absences` is the whole set that holds now; `processes` None: nobody looked."""

    tick: Tick
    processes: tuple[GpuProcess, ...] | None
    absences: frozenset[Absence]
    serving: tuple[ServingSample, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """What all sources found when they looked once. `node`: what the node is now, where that was looked at again.

    `unnamed_gpus` as in `Probe`.
    """

    gpus: tuple[Gpu, ...]
    ports: tuple[FabricPort, ...]
    capabilities: tuple[Capability, ...]
    node: Node | None = None
    unnamed_gpus: int = 0


class Sampler:
    """Reads all sources together. Earlier sources win where two give the same metric of the same device."""

    def __init__(self, sources: Sequence[Source], interval_seconds: float, max_gap_seconds: float) -> None:
        self.sources = tuple(sources)
        # Who may keep us waiting begins first and is waited for after the others have read; ranks stay.
        places = range(len(self.sources))
        self._slow = [source for source in self.sources if isinstance(source, SlowSource)]
        self._order = sorted(places, key=lambda place: isinstance(self.sources[place], SlowSource))
        self.interval_seconds = interval_seconds
        self.max_gap_seconds = max_gap_seconds
        self._last: Instant | None = None
        self._absence_parts: tuple[frozenset[Absence] | frozenset[tuple[str, str]], ...] = ()
        self._absences: frozenset[Absence] = frozenset()

    @property
    def wants_probe(self) -> bool:
        """Whether a source has found other devices than it named."""
        for source in self.sources:  # noqa: SIM110 - asked at each tick, and a generator costs more than it does
            if getattr(source, "wants_probe", False):
                return True
        return False

    def probe(self) -> Survey:
        """Ask each source what is here. A source that fails is one capability line saying so."""
        probes = [self._probe_one(source) for source in self.sources]
        return Survey(
            gpus=tuple(gpu for probe in probes for gpu in probe.gpus),
            ports=tuple(port for probe in probes for port in probe.ports),
            capabilities=tuple(line for probe in probes for line in probe.capabilities),
            unnamed_gpus=sum(probe.unnamed_gpus for probe in probes),
        )

    def prime(self, instant: Instant) -> None:
        """Read once and keep nothing, so that the first stored tick has counters to subtract from."""
        self._read_all(instant)
        self._last = instant

    def sample(self, instant: Instant) -> Sampled:
        """Read every source at `instant`."""
        readings = self._read_all(instant)
        tick = Tick(
            ts=instant.wall_seconds,
            interval_seconds=self._interval(instant),
            gpus=_merge_devices([r.gpus for r in readings if r.gpus]),
            fabric=_merge_devices([r.fabric for r in readings if r.fabric]),
            port_states=_first([r.port_states for r in readings if r.port_states]),
            host=_first([r.host for r in readings if r.host]),
        )
        self._last = instant
        serving = tuple([one for r in readings if r.serving for one in r.serving])
        events = tuple([one for r in readings if r.events for one in r.events])
        return Sampled(tick, _all_processes(readings), self._all_absences(readings), serving, events)

    def read_gpus(self, instant: Instant) -> Reading:
        """Read every source at `instant`, for what they tell of GPUs alone."""
        readings = self._read_all(instant)
        self._last = instant
        gpus = _merge_devices([r.gpus for r in readings if r.gpus])
        return Reading(gpus=gpus, processes=_all_processes(readings), absences=self._all_absences(readings))

    def close(self) -> None:
        """Close every source, whatever one of them raises."""
        for source in self.sources:
            try:
                source.close()
            except Exception:  # noqa: S112 - a source that cannot let go must not keep the others from doing so
                continue

    def _read_all(self, instant: Instant) -> list[Reading]:
        """In the order of rank, not of reading."""
        readings = [NOTHING_READ] * len(self.sources)
        for source in self._slow:
            source.begin(instant)
        for place in self._order:
            readings[place] = self._read_one(self.sources[place], instant)
        return readings

    def _interval(self, instant: Instant) -> float:
        if self._last is None:
            return self.interval_seconds
        elapsed = instant.monotonic_seconds - self._last.monotonic_seconds
        # After a long stop the gauges speak for this tick alone, not for the time nobody looked.
        return elapsed if elapsed <= self.max_gap_seconds else self.interval_seconds

    def _all_absences(self, readings: Sequence[Reading]) -> frozenset[Absence]:
        parts = (*[reading.absences for reading in readings], *[reading.provides for reading in readings])
        if parts != self._absence_parts:  # the same objects are not compared further
            self._absence_parts = parts
            provided = frozenset[tuple[str, str]]().union(*(reading.provides for reading in readings))
            absences = frozenset[Absence]().union(*(reading.absences for reading in readings))
            if provided:
                absences = frozenset(a for a in absences if (a.subject, a.metric) not in provided)
            self._absences = absences
        return self._absences

    def _probe_one(self, source: Source) -> Probe:
        try:
            return source.probe()
        except Exception as error:
            failed = _failure(source, error)
            return Probe(capabilities=(Capability(source.name, "source", source.name, "*", source.name, failed),))

    def _read_one(self, source: Source, instant: Instant) -> Reading:
        try:
            return source.read(instant)
        except Exception as error:
            return Reading(absences=frozenset({_failure(source, error)}))


def _failure(source: Source, error: Exception) -> Absence:
    return Absence(
        "source",
        source.name,
        "*",
        "source-failed",
        f"The source {source.name} failed with {type(error).__name__}: {str(error)[:200]}.",
        "Report this; the other sources go on.",
    )


def _all_processes(readings: Sequence[Reading]) -> tuple[GpuProcess, ...] | None:
    looked = [r.processes for r in readings if r.processes is not None]
    return tuple(p for found in looked for p in found) if looked else None


def _merge_devices(parts: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Mapping[str, float]]:
    merged: dict[str, Mapping[str, float]] = dict(parts[0]) if parts else {}
    for part in parts[1:]:
        for device, values in part.items():
            known = merged.get(device)
            merged[device] = values if known is None else {**values, **known}
    return merged


def _first(parts: Sequence[Mapping[str, _V]]) -> dict[str, _V]:
    merged: dict[str, _V] = {}
    for part in parts[::-1]:
        merged.update(part)
    return merged


class SamplingLoop:
    """Samples every `sampler.interval_seconds` until `duration_seconds` are over or `stopped()`.

    `stopped` is asked once a tick, when its time has come or the clock was woken.

    Ticks stand on a fixed monotonic grid: a late one does not shift the rest, and ticks that could not be taken are
    counted as missed, never made up. No two are closer than `MIN_SPACING_SECONDS`, so that each has a GPM value: an
    interval of 0.1 s gives some 9.8 ticks a second. `stepped` hears of every step of the wall clock: by how many
    seconds, and the time after it.
    """

    def __init__(
        self,
        sampler: Sampler,
        clock: Clock,
        keep: Callable[[Sampled], None],
        report: Callable[[AgentStats], None],
        rss_bytes: Callable[[], int],
        *,
        duration_seconds: float | None = None,
        stopped: Callable[[], bool] = lambda: False,
        stepped: Callable[[float, float], None] = lambda _step, _ts: None,
    ) -> None:
        self._sampler, self._clock = sampler, clock
        self._keep, self._report, self._rss_bytes = keep, report, rss_bytes
        self._duration, self._stopped, self._stepped = duration_seconds, stopped, stepped
        self.kept = 0
        self._start: Instant | None = None
        self._primed = False
        self._taking: Instant | None = None  # the tick that is being taken
        self._number, self._missed = 0, 0
        self._last_began = 0.0
        self._offset, self._offset_at_start = 0.0, 0.0
        self._last_report, self._last_cpu = 0.0, 0.0
        self._worst_late, self._worst_tick = 0.0, 0.0

    def run(self) -> None:
        """Until the end; or, where another thread was stuck in it while it read, from the same reading on."""
        start = self._start
        if start is None:
            start = self._start = self._clock.now()
            self._offset = self._offset_at_start = start.wall_seconds - start.monotonic_seconds
            self._last_report, self._last_cpu = start.monotonic_seconds, self._clock.cpu_seconds()
            self._last_began = start.monotonic_seconds
        if not self._primed:
            self._sampler.prime(start)
            self._primed = True
        while self._taking is not None or self._next(start.monotonic_seconds):
            self._take()
        end = self._clock.now()
        if self.kept:
            self._tell(end)

    def _next(self, start: float) -> bool:
        """Wait for the next tick's time. False: there is none."""
        interval, clock = self._sampler.interval_seconds, self._clock
        self._number += 1
        on_grid = start + self._number * interval
        if self._duration is not None and on_grid - start > self._duration + interval / 2:
            return False
        due = max(on_grid, self._last_began + MIN_SPACING_SECONDS)
        clock.wait_until(due)
        if self._stopped():
            return False
        began = clock.now()
        self._last_began = began.monotonic_seconds
        self._worst_late = max(self._worst_late, began.monotonic_seconds - due)
        last_offset, self._offset = self._offset, began.wall_seconds - began.monotonic_seconds
        if abs(self._offset - last_offset) >= CLOCK_STEP_SECONDS:
            self._stepped(self._offset - last_offset, began.wall_seconds)
        skipped = int((began.monotonic_seconds - on_grid) // interval)
        self._missed, self._number = self._missed + skipped, self._number + skipped
        self._taking = began
        return True

    def _take(self) -> None:
        """Read and keep the tick whose time has come."""
        began = self._taking
        assert began is not None
        sampled = self._sampler.sample(began)
        self._taking = None
        self._keep(sampled)
        self.kept += 1
        ended = self._clock.now()
        self._worst_tick = max(self._worst_tick, ended.monotonic_seconds - began.monotonic_seconds)
        if ended.monotonic_seconds - self._last_report >= REPORT_SECONDS:
            self._tell(ended)
            self._last_report, self._missed = ended.monotonic_seconds, 0
            self._worst_late = self._worst_tick = 0.0

    def _tell(self, now: Instant) -> None:
        """Report what watching cost since this was last told."""
        cpu = self._clock.cpu_seconds()
        spent, self._last_cpu = cpu - self._last_cpu, cpu
        moved = self._offset - self._offset_at_start
        late, tick = self._worst_late, self._worst_tick
        self._report(AgentStats(now.wall_seconds, spent, self._rss_bytes(), tick, late, self._missed, moved))
