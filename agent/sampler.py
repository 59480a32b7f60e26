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
from .sources.base import SlowSource, Source

_V = TypeVar("_V")

# Two GPM samples must lie more than 100 ms apart (NVML's documentation); two more for the jitter of a tick.
MIN_SPACING_SECONDS = 0.102
# Slewing moves a clock by at most 0.5 ms a second (adjtimex); half a second between two ticks was a step.
CLOCK_STEP_SECONDS = 0.5
_UNREAD = Reading()


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
    """What all sources found when they looked once. `node`: what the node is now, where that was looked at again."""

    gpus: tuple[Gpu, ...]
    ports: tuple[FabricPort, ...]
    capabilities: tuple[Capability, ...]
    node: Node | None = None


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
        return any(getattr(source, "wants_probe", False) for source in self.sources)

    def probe(self) -> Survey:
        """Ask each source what is here. A source that fails is one capability line saying so."""
        probes = [self._probe_one(source) for source in self.sources]
        return Survey(
            gpus=tuple(gpu for probe in probes for gpu in probe.gpus),
            ports=tuple(port for probe in probes for port in probe.ports),
            capabilities=tuple(line for probe in probes for line in probe.capabilities),
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
            gpus=_merge_devices([r.gpus for r in readings]),
            fabric=_merge_devices([r.fabric for r in readings]),
            port_states=_first([r.port_states for r in readings]),
            host=_first([r.host for r in readings]),
        )
        looked = [r.processes for r in readings if r.processes is not None]
        processes = tuple(p for found in looked for p in found) if looked else None
        self._last = instant
        serving = tuple(one for r in readings for one in r.serving)
        events = tuple(one for r in readings for one in r.events)
        return Sampled(tick, processes, self._all_absences(readings), serving, events)

    def close(self) -> None:
        """Close every source, whatever one of them raises."""
        for source in self.sources:
            try:
                source.close()
            except Exception:  # noqa: S112 - a source that cannot let go must not keep the others from doing so
                continue

    def _read_all(self, instant: Instant) -> list[Reading]:
        """In the order of rank, not of reading."""
        readings = [_UNREAD] * len(self.sources)
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
        parts = (*(reading.absences for reading in readings), *(reading.provides for reading in readings))
        unchanged = len(parts) == len(self._absence_parts) and all(
            new is old or new == old for new, old in zip(parts, self._absence_parts, strict=True)
        )
        if not unchanged:
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


def _merge_devices(parts: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Mapping[str, float]]:
    merged: dict[str, Mapping[str, float]] = {}
    for part in parts:
        for device, values in part.items():
            known = merged.get(device)
            merged[device] = values if known is None else {**values, **known}
    return merged


def _first(parts: Sequence[Mapping[str, _V]]) -> dict[str, _V]:
    merged: dict[str, _V] = {}
    for part in reversed(parts):
        merged.update(part)
    return merged


def run_loop(
    sampler: Sampler,
    clock: Clock,
    keep: Callable[[Sampled], None],
    report: Callable[[AgentStats], None],
    rss_bytes: Callable[[], int],
    *,
    duration_seconds: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
    stepped: Callable[[float, float], None] = lambda _step, _ts: None,
    report_every_seconds: float = 60.0,
) -> int:
    """Sample every `sampler.interval_seconds` until `duration_seconds` are over or `stopped()`. Returns ticks kept.

    `stopped` is asked once a tick, when its time has come or the clock was woken.

    Ticks stand on a fixed monotonic grid: a late one does not shift the rest, and ticks that could not be taken are
    counted as missed, never made up. No two are closer than `MIN_SPACING_SECONDS`, so that each has a GPM value: an
    interval of 0.1 s gives some 9.8 ticks a second. `stepped` hears of every step of the wall clock: by how many
    seconds, and the time after it.
    """
    interval = sampler.interval_seconds
    start = clock.now()
    offset = offset_at_start = start.wall_seconds - start.monotonic_seconds
    sampler.prime(start)
    last_report, last_cpu = start.monotonic_seconds, clock.cpu_seconds()
    last_began = start.monotonic_seconds
    kept, missed, number, worst_late, worst_tick = 0, 0, 0, 0.0, 0.0
    while True:
        number += 1
        on_grid = start.monotonic_seconds + number * interval
        if duration_seconds is not None and on_grid - start.monotonic_seconds > duration_seconds + interval / 2:
            break
        due = max(on_grid, last_began + MIN_SPACING_SECONDS)
        clock.wait_until(due)
        if stopped():
            break
        began = clock.now()
        last_began = began.monotonic_seconds
        late = max(0.0, began.monotonic_seconds - due)
        last_offset, offset = offset, began.wall_seconds - began.monotonic_seconds
        if abs(offset - last_offset) >= CLOCK_STEP_SECONDS:
            stepped(offset - last_offset, began.wall_seconds)
        skipped = int((began.monotonic_seconds - on_grid) // interval)
        missed, number = missed + skipped, number + skipped
        keep(sampler.sample(began))
        kept += 1
        ended = clock.now()
        worst_late = max(worst_late, late)
        worst_tick = max(worst_tick, ended.monotonic_seconds - began.monotonic_seconds)
        if ended.monotonic_seconds - last_report >= report_every_seconds:
            cpu = clock.cpu_seconds()
            spent = cpu - last_cpu
            moved = offset - offset_at_start
            report(AgentStats(ended.wall_seconds, spent, rss_bytes(), worst_tick, worst_late, missed, moved))
            last_report, last_cpu, missed, worst_late, worst_tick = ended.monotonic_seconds, cpu, 0, 0.0, 0.0
    end = clock.now()
    if kept:
        spent, moved = clock.cpu_seconds() - last_cpu, offset - offset_at_start
        report(AgentStats(end.wall_seconds, spent, rss_bytes(), worst_tick, worst_late, missed, moved))
    return kept
