"""The monotonic loop: probe once, read each tick, keep one source's failure from the others, report its own cost."""

import resource
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from .base.clock import LOOK_SECONDS, SystemClock
from .model import Absence, AgentStats, Capability, Instant, Probe, Reading, Tick
from .sources.base import NOTHING_READ, Source

# Two GPM samples must lie more than 100 ms apart (NVML's documentation); two more for the jitter of a tick.
MIN_SPACING_SECONDS = 0.102
# Slewing moves a clock by at most 0.5 ms a second (adjtimex); half a second between two ticks was a step.
CLOCK_STEP_SECONDS = 0.5
REPORT_SECONDS = 60.0  # how often the cost of watching is reported


class Sampler:
    """Reads all sources together. Earlier sources win where two give the same metric of the same device."""

    def __init__(self, sources: Sequence[Source], interval_seconds: float, max_gap_seconds: float) -> None:
        self.sources = tuple(sources)
        self.interval_seconds = interval_seconds
        self.max_gap_seconds = max_gap_seconds
        self._order = sorted(range(len(sources)), key=lambda place: hasattr(sources[place], "begin"))
        self._last: Instant | None = None

    @property
    def wants_probe(self) -> bool:
        return any(getattr(source, "wants_probe", False) for source in self.sources)

    def probe(self) -> Probe:
        """Ask each source what is here. A source that fails is one capability line saying so."""
        probes: list[Probe] = []
        for source in self.sources:
            try:
                probes.append(source.probe())
            except Exception as error:
                line = Capability(source.name, "source", source.name, "*", source.name, _failure(source, error))
                probes.append(Probe(capabilities=(line,)))
        return Probe(
            gpus=tuple(gpu for probe in probes for gpu in probe.gpus),
            ports=tuple(port for probe in probes for port in probe.ports),
            capabilities=tuple(line for probe in probes for line in probe.capabilities),
            unnamed_gpus=sum(probe.unnamed_gpus for probe in probes),
        )

    def sample(self, instant: Instant) -> Tick:
        elapsed = None if self._last is None else instant.monotonic_seconds - self._last.monotonic_seconds
        self._last = instant
        readings = self._read_all(instant)
        looked = [r.processes for r in readings if r.processes is not None]
        provided = frozenset(chain.from_iterable(r.provides for r in readings))
        return Tick(
            instant.wall_seconds,
            # After a long stop the gauges speak for this tick alone, not for the time of the stop.
            self.interval_seconds if elapsed is None or elapsed > self.max_gap_seconds else elapsed,
            gpus=_merge_devices([r.gpus for r in readings]),
            fabric=_merge_devices([r.fabric for r in readings]),
            port_states={key: state for r in readings[::-1] for key, state in r.port_states.items()},
            host={name: value for r in readings[::-1] for name, value in r.host.items()},
            processes=tuple(chain.from_iterable(looked)) if looked else None,
            absences=frozenset(a for r in readings for a in r.absences if (a.subject, a.metric) not in provided),
            serving=tuple(sample for r in readings for sample in r.serving),
            events=tuple(event for r in readings for event in r.events),
        )

    def close(self) -> None:
        for source in self.sources:
            try:
                source.close()
            except Exception:  # noqa: S112 - a source that cannot release must not keep the others from it
                continue

    def _read_all(self, instant: Instant) -> list[Reading]:
        """In the order of rank. Who may keep us waiting begins first, and is waited for after the others have read."""
        readings = [NOTHING_READ] * len(self.sources)
        for source in self.sources:
            if begin := getattr(source, "begin", None):
                begin(instant)
        for place in self._order:
            source = self.sources[place]
            try:
                readings[place] = source.read(instant)
            except Exception as error:
                readings[place] = Reading(absences=frozenset({_failure(source, error)}))
        return readings


def _failure(source: Source, error: Exception) -> Absence:
    detail = f"The source {source.name} failed with {type(error).__name__}: {str(error)[:200]}."
    return Absence("source", source.name, "*", "source-failed", detail, "Report this; the other sources go on.")


def _merge_devices(parts: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Mapping[str, float]]:
    merged: dict[str, Mapping[str, float]] = {}
    for part in parts:
        for device, values in part.items():
            present = merged.get(device)
            merged[device] = values if present is None else {**values, **present}
    return merged


def run_loop(
    sampler: Sampler,
    clock: SystemClock,
    keep: Callable[[Tick], None],
    report: Callable[[AgentStats], None],
    *,
    duration_seconds: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
    stepped: Callable[[float, float], None] = lambda _step, _ts: None,
) -> int:
    """Sample every `sampler.interval_seconds` until `duration_seconds` are over or `stopped()`, which is asked once a
    tick, every `LOOK_SECONDS` of a long wait and when the clock was woken; returns the ticks kept. `stepped` hears of
    every step of the wall clock: by how many seconds, and the time after it.

    Ticks stand on a fixed monotonic grid: a late one does not shift the rest, and ticks that could not be taken are
    counted as missed, never made up. No two are closer than `MIN_SPACING_SECONDS`, so that each has a GPM value.
    """
    interval = sampler.interval_seconds
    start = reported = began = clock.now()
    offset = offset_at_start = start.wall_seconds - start.monotonic_seconds
    cpu = clock.cpu_seconds()
    number = kept = missed = 0
    late = longest = 0.0  # since the last report, the worst

    def tell(at: Instant) -> None:
        used, moved = clock.cpu_seconds() - cpu, offset - offset_at_start
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        rss_bytes = pages * resource.getpagesize()
        report(AgentStats(at.wall_seconds, used, rss_bytes, longest, late, missed, moved))

    sampler.sample(start)  # not kept: it gives the first tick counters to subtract from
    while True:
        number += 1
        on_grid = start.monotonic_seconds + number * interval
        due = max(on_grid, began.monotonic_seconds + MIN_SPACING_SECONDS)
        is_over = duration_seconds is not None and (number - 0.5) * interval > duration_seconds
        if is_over or not _waited(clock, due, stopped):
            break
        began = clock.now()
        late = max(late, began.monotonic_seconds - due)
        before, offset = offset, began.wall_seconds - began.monotonic_seconds
        if abs(offset - before) >= CLOCK_STEP_SECONDS:
            stepped(offset - before, began.wall_seconds)
        skipped = int((began.monotonic_seconds - on_grid) // interval)
        missed, number = missed + skipped, number + skipped
        keep(sampler.sample(began))
        kept += 1
        ended = clock.now()
        longest = max(longest, ended.monotonic_seconds - began.monotonic_seconds)
        if ended.monotonic_seconds - reported.monotonic_seconds >= REPORT_SECONDS:
            tell(ended)
            reported, cpu, missed, late, longest = ended, clock.cpu_seconds(), 0, 0.0, 0.0
    if kept:
        tell(clock.now())
    return kept


def _waited(clock: SystemClock, due: float, stopped: Callable[[], bool]) -> bool:
    while True:
        at = clock.now().monotonic_seconds
        if at < due:
            clock.wait_until(min(due, at + LOOK_SECONDS))
        if stopped():
            return False
        if clock.now().monotonic_seconds >= due:
            return True
