"""What every source is, and what sources share. `agent/service/assembly.py` builds them."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..model import Absence, Capability, Instant, Probe, Reading, Scope


class Source(Protocol):
    """One thing read on this node: probed once (again after a change of hardware), read each tick, closed at the end.
    For what can be expected of hardware it never raises, but leaves an `Absence`; what it does raise is recorded as
    ``source-failed``. Rates cover the time since the last reading. One that found other devices sets `wants_probe`; one
    whose reading may take long has `begin`, which starts it, soon and without raising: it is collected last."""

    name: str

    def probe(self) -> Probe: ...

    def read(self, instant: Instant) -> Reading: ...

    def close(self) -> None: ...


NOTHING_READ = Reading()  # where there is nothing to say


@dataclass(frozen=True, slots=True)
class Fault:
    """Why something cannot be read: a stable code, the sentence, and what to do. Subject and metric come later."""

    reason: str
    detail: str
    remedy: str

    def of(self, scope: Scope, subject: str, metric: str = "*") -> Absence:
        return Absence(scope, subject, metric, self.reason, self.detail, self.remedy)

    def line(self, source: str, origin: str) -> Capability:
        """Doctor's line of a source that cannot give anything for this reason."""
        return Capability(source, "source", source, "*", origin, self.of("source", source))


STAYS_MISSING = "Nothing to do: it stays missing."
COMES_BACK = "Nothing to do: the next interval counts."
_UPDATE = "If it stays so, update what reports it."
OUT_OF_RANGE = Fault("out-of-range", "The reading is impossible.", _UPDATE)
NOT_A_NUMBER = Fault("not-a-number", "The reading is not a number.", _UPDATE)
# Why an interval has no rate.
FIRST_READING = Fault("first-reading", "A rate needs two readings; this was the first.", COMES_BACK)
COUNTER_RESET = Fault("counter-reset", "The counter went back (a reset or a wrap), so there is no rate.", COMES_BACK)
LONG_GAP = Fault("long-gap", "The gap between two readings is too long for a meaningful mean.", COMES_BACK)
ROUNDED = 1.001  # a ratio may pass 1 by rounding; NVIDIA/DCGM#152 shows what is above it by more


def sort_out(
    scope: Scope, subject: str, readings: Mapping[str, float | Fault], most: Mapping[str, float]
) -> tuple[dict[str, float], list[Absence]]:
    """The readings of a subject: the sound values, and the absences of all others. `most`: a metric's largest value."""
    values: dict[str, float] = {}
    absences: list[Absence] = []
    for metric, value in readings.items():
        limit = most.get(metric, math.inf)
        if not isinstance(value, Fault) and 0.0 <= value <= (ROUNDED if limit == 1.0 else limit):
            values[metric] = min(value, limit)
        else:
            fault = value if isinstance(value, Fault) else NOT_A_NUMBER if math.isnan(value) else OUT_OF_RANGE
            absences.append(fault.of(scope, subject, metric))
    return values, absences


@dataclass(slots=True)
class CounterRate:
    """Remembers the last value of one counter and turns deltas into rates. A negative delta is a reset or a wrap, which
    cannot be distinguished; over more than `max_gap_seconds` a mean would hide what happened."""

    max_gap_seconds: float
    last: float | None = None  # its value at the last reading; None: not known
    at: float = 0.0  # when that was, monotonic seconds

    def rate(self, value: float, monotonic_seconds: float) -> float | Fault:
        last, elapsed = self.last, monotonic_seconds - self.at
        self.last, self.at = value, monotonic_seconds
        if last is None:
            return FIRST_READING
        if value < last:
            return COUNTER_RESET
        return (value - last) / elapsed if 0 < elapsed <= self.max_gap_seconds else LONG_GAP


def read_file(path: Path) -> bytes | None:
    """A file of procfs or sysfs; None if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def names_in(folder: Path) -> list[str]:
    """What is in a folder of sysfs, sorted; nothing if it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that counts
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class UnreadGpu:
    """A GPU whose driver does not show how busy its units are. A MIG instance is named by its parent's UUID and its
    id."""

    uuid: str
    page_uuid: str
    instance_id: str = ""
