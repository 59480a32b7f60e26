"""Findings of the watch and their incidents. `Moment` is Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...rules.base.quantities import Moment
from .advice_types import Evidence, Severity
from .coded_text import CodedText
from .recent import HolderKind
from .verdict_types import NOT_IN_JSON, Owner

# A kind, and its codes (Sighting.code):
# held-idle: GPUs held and unused for longer than the holder's limit (worked-before, never-worked, no-work-in-view,
#   no-process). stopped: a job no longer works, or spins (pattern-ended, collectives-spin). telemetry-dead: a node, a
#   GPU or its counters report nothing (node-silent, gpu-missing, counters-stuck, source-stale). fault-clock: a busy GPU
#   runs at a clock that only a fault explains (slowdown-throttle, clock-stuck-low). fabric-silent: no traffic under a
#   training job that used the fabric (fabric-silent, port-down).
IncidentKind = Literal["held-idle", "stopped", "telemetry-dead", "fault-clock", "fabric-silent"]
IncidentState = Literal["open", "acknowledged", "resolved"]
EventKind = Literal["opened", "reminded", "resolved"]
Resolution = Literal["works-again", "released", "data-back", "cleared"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a sighting is about. None or empty: unknown or not applicable."""

    key: str  # stable over passes: ``workload:ID``, ``node:NAME``, ``gpu:NODE/UUID`` or ``source``
    name: str
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    gpu_count: float = 0.0  # in whole GPUs: a MIG instance counts as its part
    gpu_sku: str | None = None
    node_sku: str | None = None
    workload_id: str | None = field(default=None, metadata={"json": "workload"})
    series_id: str | None = field(default=None, metadata={"json": "series"})
    holder: HolderKind | None = None
    scheduler: str | None = None
    job_id: str | None = None
    pod: str | None = None
    owner: Owner = Owner()


@dataclass(frozen=True, slots=True)
class Sighting:
    """One problem in one pass."""

    id: str = field(metadata=NOT_IN_JSON)  # stable over passes, by kind and subject
    kind: IncidentKind
    code: str
    severity: Severity
    subject: Subject
    since: Moment  # as far back as the data reach
    last_work: Moment | None  # None: none in view
    gpu_hours: float  # observed since then
    usd_per_hour: float | None
    cost_usd: float | None  # None: price unknown
    price_source: str | None
    evidence: tuple[Evidence, ...]
    text: CodedText
    do_next: CodedText


@dataclass(frozen=True, slots=True)
class WatchPass:
    """The result of one pass over the fleet."""

    now: float  # the clock
    data_end: float  # newest moment of the data
    sightings: tuple[Sighting, ...] = ()
    unknown: frozenset[str] = frozenset()  # keys of subjects not judged: nothing about them opens or ends
    live_nodes: frozenset[str] = frozenset()  # nodes with fresh data: incidents of others neither open nor end
    judged_holds: int = 0
    notes: tuple[CodedText, ...] = ()
    held: frozenset[str] | None = None  # keys that hold GPUs now: work came back, GPUs were not released; None: unknown
    dark: int = 0  # how many of `unknown` lack data


@dataclass(frozen=True, slots=True)
class Incident:
    """The stored state of one incident."""

    id: str  # of this opening: the sighting's id and when it began
    sighting: Sighting = field(metadata=NOT_IN_JSON)  # the last one
    state: IncidentState
    opened_at: Moment  # by the watcher's clock, as are `updated_at` and `resolved_at`
    since: Moment  # the earliest of any pass
    updated_at: Moment
    last_seen_at: Moment  # the last pass that confirmed it
    gpu_hours: float  # so far; as `cost_usd`, it never shrinks
    cost_usd: float | None
    silent_since: Moment | None = None  # start of missing data; None: there are data
    acknowledged_at: Moment | None = None
    acknowledged_by: str | None = None
    snoozed_until: Moment | None = None  # no reminders before
    resolved_at: Moment | None = None
    resolution: Resolution | None = None
    reminders: int = 0
    told_at: float | None = field(default=None, metadata=NOT_IN_JSON)  # last notification that it is open
    data_until: float | None = field(default=None, metadata=NOT_IN_JSON)  # end of the data of the last confirmation
    reopenings: int = 0
    resolution_told: bool = field(default=False, metadata=NOT_IN_JSON)  # its end was notified


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """A notification of an incident; each recipient gets each (id, number) once."""

    incident_id: str
    kind: EventKind
    number: int  # 0 opened, 1.. reminders, -1 resolved, -2 resolved after it came back
    at: float


@dataclass(frozen=True, slots=True)
class Advance:
    """What a pass changed: incidents, and notifications in the order of their causes."""

    incidents: tuple[Incident, ...] = ()
    events: tuple[IncidentEvent, ...] = ()
