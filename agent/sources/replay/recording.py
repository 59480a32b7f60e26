"""A labelled recording: what one node's telemetry looked like while known work ran, and a source that replays it.

A file is gzip'd JSON Lines (``.jsonl.gz``): a header line (schema ``skuwise.recording/1``) with the label, the truth
and how it was made, then one line a tick (`recording_format`). Values are in the base units of `agent.model`; a missing
value is left out. A recording is data from outside: what the format does not name is refused, saying what and where.
"""

from __future__ import annotations

import bisect
import contextlib
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....rules.base.errors import SourceError
from ....rules.base.sanitize import clean
from ...model import Absence, Capability, Instant, Probe, Reading, Scope, Tick
from .recording_format import (
    FormatError,
    RecordingHeader,
    header_from_json,
    header_to_json,
    tick_from_json,
    tick_to_json,
)

MAX_BYTES = 64 * 1024 * 1024  # decompressed; a minute of 8 GPUs at 0.1 s is about 3 MB
MAX_TICKS = 200_000
_MAX_WHY = 400  # characters of what is wrong with a line
_REMEDY = "Make it again with tests/hardware/record.py, or name another file."

# How ticks join when a replay reads more seldom than was recorded; what is not named here is a mean over time.
_SUMMED = frozenset({"energy_joules"})
_NEWEST = frozenset(
    {
        "mem_used_bytes",
        "mem_total_bytes",
        "sm_clock_hertz",
        "mem_clock_hertz",
        "temperature_celsius",
        "throttle_reasons",
    }
)


@dataclass(frozen=True, slots=True)
class Recording:
    """A header and its ticks, oldest first; at least one."""

    header: RecordingHeader
    ticks: tuple[Tick, ...]

    @property
    def start(self) -> float:
        """Unix time at which the first tick's interval began."""
        return self.ticks[0].ts - self.ticks[0].interval_seconds


def write_recording(path: Path, header: RecordingHeader, ticks: Iterable[Tick]) -> None:
    """Write a recording; the same content gives the same bytes. Raises `SourceError` for what a reader would refuse.

    The file appears whole or not at all.
    """
    kept = tuple(ticks)
    try:
        lines = [header_to_json(header, len(kept)), *(tick_to_json(tick) for tick in kept)]
        _decode(path, lines)
        data = "".join(f"{line}\n" for line in lines).encode()
    except FormatError as error:
        raise SourceError(f"The recording {path} cannot be written: {error}.", "Fix what is recorded.") from error
    if len(data) > MAX_BYTES:
        raise SourceError(f"The recording {path} would hold more than {MAX_BYTES} bytes.", "Record a shorter time.")
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(gzip.compress(data, mtime=0))
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise SourceError(
            f"The recording {path} cannot be written: {error.strerror}.", "Choose another folder."
        ) from error


def read_recording(path: Path) -> Recording:
    """The recording in `path`, checked to the last value. Raises `SourceError`."""
    return _decode(path, _lines(path))


def _lines(path: Path) -> Iterator[str]:
    left = MAX_BYTES
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline(left + 1):
                left -= len(line)
                if left < 0:
                    raise SourceError(
                        f"The recording {path} holds more than {MAX_BYTES} bytes.", "Record a shorter time."
                    )
                if not line.endswith(b"\n"):
                    raise SourceError(f"The recording {path} breaks off in the middle of a line.", _REMEDY)
                yield line.decode("utf-8")
    except EOFError:
        raise SourceError(f"The recording {path} is cut off: its gzip data has no end.", _REMEDY) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(f"The recording {path} is not sound gzip data: {error}.", _REMEDY) from error
    except UnicodeDecodeError:
        raise SourceError(f"The recording {path} is not UTF-8 text.", _REMEDY) from None
    except OSError as error:
        raise SourceError(f"The recording {path} cannot be read: {error.strerror}.", "Name one that can.") from error


def _decode(path: Path, lines: Iterable[str]) -> Recording:
    numbered = enumerate(lines, start=1)
    _, first = next(numbered, (0, None))
    if first is None:
        raise SourceError(f"The recording {path} is empty.", _REMEDY)
    number = 1
    try:
        header, count = header_from_json(first)
        ticks: list[Tick] = []
        for number, line in numbered:  # noqa: B007 - named in the error below
            if len(ticks) >= MAX_TICKS:
                raise FormatError(f"it is tick {MAX_TICKS + 1}, one more than a recording may hold")
            ticks.append(tick_from_json(line, header, ticks[-1].ts if ticks else None))
    except FormatError as error:
        why = clean(error)[:_MAX_WHY]
        raise SourceError(f"Line {number} of the recording {path} cannot be taken: {why}.", _REMEDY) from error
    if not ticks:
        raise SourceError(f"The recording {path} holds no ticks.", _REMEDY)
    if len(ticks) != count:
        raise SourceError(f"The recording {path} holds {len(ticks)} ticks, but its header announces {count}.", _REMEDY)
    return Recording(header, tuple(ticks))


def timeline(recording: Recording) -> tuple[Instant, ...]:
    """The moments of a replay: the start, then the end of every tick, on a monotonic clock that begins at 0.

    A tick's own interval is the measured one; where ticks were missed before it, the wall clock tells the distance.
    """
    at, wall = 0.0, recording.start
    moments = [Instant(wall, at)]
    for tick in recording.ticks:
        passed = tick.ts - wall
        # The wall clock is slewed against the monotonic one, so its difference is only trusted where ticks are missing.
        at += passed if passed > 1.5 * tick.interval_seconds else tick.interval_seconds
        wall = tick.ts
        moments.append(Instant(wall, at))
    return tuple(moments)


class RecordingClock:
    """An `agent.clock.Clock` that lives through the recorded moments, without waiting for any of them."""

    def __init__(self, recording: Recording) -> None:
        self._moments = timeline(recording)
        self._slack = recording.header.interval_seconds / 2
        self._now = self._moments[0]
        self._next = 1

    def over(self) -> bool:
        """Whether someone waited past the last recorded moment: the loop's `stopped`."""
        return self._next > len(self._moments)

    def now(self) -> Instant:
        return self._now

    def cpu_seconds(self) -> float:
        """Nothing is spent in recorded time."""
        return 0.0

    def wait_until(self, monotonic_seconds: float) -> None:
        """Go to the recorded moment that was taken for this one: it may be late, as it was."""
        last = len(self._moments)
        while self._next < last and self._moments[self._next].monotonic_seconds < monotonic_seconds - self._slack:
            self._next += 1
        if self._next < last:
            self._now = self._moments[self._next]
        elif monotonic_seconds > self._now.monotonic_seconds:
            passed = monotonic_seconds - self._now.monotonic_seconds
            self._now = Instant(self._now.wall_seconds + passed, monotonic_seconds)
        self._next += 1


class RecordingSource:
    """A `Source` that gives a recording's ticks again, by the time passed since its first reading.

    The first reading stands for the recording's start and is empty, as with any source of rates. Read more seldom than
    recorded, it gives what the interval held: means over time, sums of energy, the newest of sizes and clocks; a value
    that one of the joined ticks lacks is missing. Where nothing was recorded it says so with an `Absence`.
    """

    name = "recording"

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._ends = [moment.monotonic_seconds for moment in timeline(recording)[1:]]
        self._slack = recording.header.interval_seconds / 2
        self._origin: float | None = None
        self._given = 0

    def probe(self) -> Probe:
        """The recorded devices; a capability for each metric that some tick holds and each recorded absence."""
        header = self._recording.header
        origin = f"{header.made.method}: {header.label.work}"
        seen: dict[tuple[Scope, str, str], None] = {}
        for tick in self._recording.ticks:
            seen.update({("gpu", device, name): None for device, values in tick.gpus.items() for name in values})
            seen.update({("fabric", device, name): None for device, values in tick.fabric.items() for name in values})
            seen.update({("host", "", name): None for name in tick.host})
        read = [Capability(self.name, scope, subject, metric, origin) for scope, subject, metric in seen]
        lacking = [
            Capability(self.name, absence.scope, absence.subject, absence.metric, origin, absence.absence())
            for absence in header.absences
        ]
        return Probe(header.gpus, header.ports, (*read, *lacking))

    def read(self, instant: Instant) -> Reading:
        if self._origin is None:
            self._origin = instant.monotonic_seconds
            return Reading(absences=self._absences(self._recording.start))
        elapsed = instant.monotonic_seconds - self._origin
        end = bisect.bisect_right(self._ends, elapsed + self._slack)
        due, self._given = self._recording.ticks[self._given : end], max(end, self._given)
        if not due:
            return Reading(absences=frozenset({_nothing(end >= len(self._ends))}))
        return Reading(
            gpus=_join_devices([tick.gpus for tick in due], due),
            fabric=_join_devices([tick.fabric for tick in due], due),
            port_states=due[-1].port_states,
            host=_join([tick.host for tick in due], due),
            absences=self._absences(due[-1].ts),
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _absences(self, ts: float) -> frozenset[Absence]:
        return frozenset(absence.absence() for absence in self._recording.header.absences if absence.at(ts))


def _nothing(over: bool) -> Absence:
    if over:
        return Absence("source", "recording", "*", "recording-over", "The recording has no more ticks.")
    return Absence("source", "recording", "*", "not-recorded", "The recording has no tick for this interval.")


def _join_devices(
    parts: Sequence[Mapping[str, Mapping[str, float]]], ticks: Sequence[Tick]
) -> Mapping[str, Mapping[str, float]]:
    if len(parts) == 1:
        return parts[0]
    everywhere = [device for device in parts[-1] if all(device in part for part in parts)]
    return {device: _join([part[device] for part in parts], ticks) for device in everywhere}


def _join(parts: Sequence[Mapping[str, float]], ticks: Sequence[Tick]) -> Mapping[str, float]:
    if len(parts) == 1:
        return parts[0]
    total = sum(tick.interval_seconds for tick in ticks)
    joined: dict[str, float] = {}
    for name, newest in parts[-1].items():
        if not all(name in part for part in parts):
            continue
        if name in _NEWEST:
            joined[name] = newest
        elif name in _SUMMED:
            joined[name] = sum(part[name] for part in parts)
        else:
            joined[name] = (
                sum(part[name] * tick.interval_seconds for part, tick in zip(parts, ticks, strict=True)) / total
            )
    return joined
