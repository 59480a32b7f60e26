"""What every source is, and what sources share.

A source of metrics is a module with a class, which `agent/sources/registry.py` builds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..model import Absence, Capability, Instant, Probe, Reading, Scope


class Source(Protocol):
    """One thing read on this node: probed once (again after a change of hardware), read each tick, closed at the end.
    A source never raises for what can be expected of hardware (no driver, a lost GPU, a restricted counter): it leaves
    an `Absence`. What it does raise is recorded as ``source-failed`` and does not touch the other sources. Rates cover
    the time since the previous reading. A source that found other devices than it named sets `wants_probe`.
    """

    name: str

    def probe(self) -> Probe: ...

    def read(self, instant: Instant) -> Reading: ...

    def close(self) -> None: ...


NOTHING_READ = Reading()  # where there is nothing to say


@runtime_checkable
class SlowSource(Protocol):
    """A source whose reading may take long: `begin` starts it, soon and without raising; the others read; then `read`
    of the same instant collects it."""

    name: str

    def begin(self, instant: Instant) -> None: ...


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
ROUNDED = 1.001  # a ratio may pass 1 by rounding; NVIDIA/DCGM#152 shows what is above it by more


def sort_out(
    scope: Scope, subject: str, told: Mapping[str, float | Fault], most: Mapping[str, float]
) -> tuple[dict[str, float], list[Absence]]:
    """What is told of a subject by metric, parted: the sound values, and the absences of all others. `most`: above it a
    metric's value is impossible."""
    values: dict[str, float] = {}
    absences: list[Absence] = []
    for metric, value in told.items():
        limit = most.get(metric, math.inf)
        if not isinstance(value, Fault) and 0.0 <= value <= (ROUNDED if limit == 1.0 else limit):
            values[metric] = min(value, limit)
        else:
            fault = value if isinstance(value, Fault) else NOT_A_NUMBER if math.isnan(value) else OUT_OF_RANGE
            absences.append(fault.of(scope, subject, metric))
    return values, absences


@dataclass(frozen=True, slots=True)
class UnreadGpu:
    """A GPU whose driver does not tell how busy its units are, and how a page may name it: a MIG instance is its
    parent's UUID with the id of a GPU instance."""

    uuid: str
    page_uuid: str
    instance_id: str = ""
