"""What the watch finds and what becomes of it, as frozen values. Times are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...rules.base.typed import Moment
from .advice_types import Evidence, Severity
from .coded_text import CodedText
from .recent import HolderKind
from .verdict_types import NOT_IN_JSON, Owner

# held-idle: GPUs held and unused for longer than the holder's limit. stopped: a job that worked does not any more, or
# spins. telemetry-dead: a node, a GPU or its counters report nothing. fault-clock: a busy GPU runs at a clock that only
# a fault explains. fabric-silent: the fabric carries nothing under a training job that used it.
IncidentKind = Literal["held-idle", "stopped", "telemetry-dead", "fault-clock", "fabric-silent"]
# Within a kind, what exactly (Sighting.code):
#   held-idle: worked-before, never-worked, no-work-in-view, no-process
#   stopped: pattern-ended, collectives-spin
#   telemetry-dead: node-silent, gpu-missing, counters-stuck, source-stale
#   fault-clock: slowdown-throttle, clock-stuck-low
#   fabric-silent: fabric-silent, port-down
IncidentState = Literal["open", "acknowledged", "resolved"]
_NOBODY = Owner()
EventKind = Literal["opened", "reminded", "resolved"]
# Why an incident is over: work came back, the GPUs were released, data came back.
Resolution = Literal["works-again", "released", "data-back", "cleared"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a sighting is about. `key` is stable over passes: ``workload:ID``, ``node:NAME``, ``gpu:NODE/UUID`` or
    ``source``. What does not apply or is unknown is None or empty. `gpus`: ids of GPUs; `gpu_count`: in whole GPUs,
    a MIG instance counts as its part."""

    key: str
    name: str
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    gpu_count: float = 0.0
    gpu_sku: str | None = None
    node_sku: str | None = None
    workload_id: str | None = field(default=None, metadata={"json": "workload"})
    series_id: str | None = field(default=None, metadata={"json": "series"})
    holder: HolderKind | None = None
    scheduler: str | None = None
    job_id: str | None = None
    pod: str | None = None
    owner: Owner = _NOBODY


@dataclass(frozen=True, slots=True)
class Sighting:
    """One thing found in one pass. `id`: stable over passes (kind and subject). `since`: when it began, as far as the
    data reach. `last_work`: the last sign of work before it; None: none within view. `gpu_hours`: since `since`, of
    observed time. `cost_usd`: None: price unknown; `price_source` names where the price is from. `text`: the finding in
    one sentence; `do_next`: the one thing to do."""

    id: str = field(metadata=NOT_IN_JSON)
    kind: IncidentKind
    code: str
    severity: Severity
    subject: Subject
    since: Moment
    last_work: Moment | None
    gpu_hours: float
    usd_per_hour: float | None
    cost_usd: float | None
    price_source: str | None
    evidence: tuple[Evidence, ...]
    text: CodedText
    do_next: CodedText


@dataclass(frozen=True, slots=True)
class WatchPass:
    """What one look at the fleet found. `now`: the clock; `data_end`: the newest moment of the data. `unknown`: keys of
    subjects that could not be judged: nothing about them opens or ends. `live_nodes`: nodes with fresh data: an
    incident about any other node neither opens nor ends. `judged_holds`: workloads that were looked at. `held`: keys of
    the subjects that hold GPUs now, which tells work that came back from GPUs that were released; None: not known.
    `dark`: how many of `unknown` lack data."""

    now: float
    data_end: float
    sightings: tuple[Sighting, ...] = ()
    unknown: frozenset[str] = frozenset()
    live_nodes: frozenset[str] = frozenset()
    judged_holds: int = 0
    notes: tuple[CodedText, ...] = ()
    held: frozenset[str] | None = None
    dark: int = 0


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident's state on disk. `id`: of this opening (the sighting's id and when it began). `sighting`: as last
    seen. `opened_at`, `updated_at`, `resolved_at`: by the watcher's clock. `since`: the earliest that any pass said.
    `gpu_hours`, `cost_usd`: so far; they never shrink. `last_seen_at`: the last pass that confirmed it; `silent_since`:
    since when its data are missing (None: they are there). `snoozed_until`: no reminders before that. `told_at`: when
    people were last told that it is open. `data_until`: the end of the data in which it was last confirmed, or which
    came back after a silence. `reopenings`: how often it went on after it was resolved. `resolution_told`: whether
    people were told that it is over."""

    id: str
    sighting: Sighting = field(metadata=NOT_IN_JSON)
    state: IncidentState
    opened_at: Moment
    since: Moment
    updated_at: Moment
    last_seen_at: Moment
    gpu_hours: float
    cost_usd: float | None
    silent_since: Moment | None = None
    acknowledged_at: Moment | None = None
    acknowledged_by: str | None = None
    snoozed_until: Moment | None = None
    resolved_at: Moment | None = None
    resolution: Resolution | None = None
    reminders: int = 0
    told_at: float | None = field(default=None, metadata=NOT_IN_JSON)
    data_until: float | None = field(default=None, metadata=NOT_IN_JSON)
    reopenings: int = 0
    resolution_told: bool = field(default=False, metadata=NOT_IN_JSON)


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """Something that people are told of an incident. `number`: 0 for opened, 1.. for reminders, -1 for resolved, -2 for
    resolved at last, of one that came back after -1; with the incident's id it is the event's key: each recipient is
    told of it once."""

    incident_id: str
    kind: EventKind
    number: int
    at: float


@dataclass(frozen=True, slots=True)
class Advance:
    """What a pass changed. `incidents`: all that changed or are new; `events`: what people are to be told, in the
    order in which it happened."""

    incidents: tuple[Incident, ...] = ()
    events: tuple[IncidentEvent, ...] = ()
