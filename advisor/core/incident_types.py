"""The last hours of a fleet from any source, what the watch finds in them, and incidents. `Moment` is Unix seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...rules.base.typed import Moment
from .advice_types import Evidence, Fleet, Severity
from .coded_text import CodedText
from .verdict_types import NOT_IN_JSON, Owner

Values = npt.NDArray[np.float32]
Measures = Mapping[str, Values]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
# Holders of GPUs: work with an end, a notebook, something that answers requests, any other process, an allocation
# without a process on the GPU.
HolderKind = Literal["job", "notebook", "service", "process", "allocation"]


@dataclass(frozen=True)
class Spans:
    """Consecutive spans of time: their `ends` (Unix seconds) and lengths."""

    ends: Floats
    seconds: Floats

    @property
    def start(self) -> float:
        return float(self.ends[0] - self.seconds[0])

    @property
    def end(self) -> float:
        return float(self.ends[-1])

    def since(self, ts: float) -> Mask:
        """The spans that end after a moment."""
        return self.ends > ts + 1e-6

    def last_end(self, mask: Mask) -> float:
        """The end of the last span that is in a mask; the begin of the first where none is."""
        return float(self.ends[mask][-1]) if mask.any() else self.start


@dataclass(frozen=True, slots=True)
class RecentGpu:
    """A GPU or a MIG instance."""

    node: str
    uuid: str
    index: int | None = None
    sku: str | None = None  # of the catalog, else the reported name
    part: float = 1.0  # of a GPU
    power_limit_watts: float | None = None
    last_seen: float | None = None  # end of its newest sample, Unix seconds; None: none in the spans


@dataclass(frozen=True, slots=True)
class RecentNode:
    node: str
    sku: str | None = None
    usd_per_gpu_hour: float | None = None
    price_source: str | None = None
    gpus_expected: int | None = None  # by its SKU or earlier observation
    last_seen: float | None = None
    drained: bool = False  # out of service by a scheduler or an operator, with or without telemetry


@dataclass(frozen=True, slots=True)
class Hold:
    """A workload and the GPUs that it holds at the end of the spans."""

    workload_id: str
    series_id: str
    name: str
    holder: HolderKind
    owner: Owner
    gpus: tuple[int, ...]  # indices of `Recent.gpus`
    since: float
    basis: str = "process"  # allocation, process or activity
    shared: bool = False  # others hold the same GPUs
    engine: bool = False  # its engine reports metrics, so an empty queue is known
    scheduler: str = "process"
    job_id: str | None = None
    pod: str | None = None
    is_workload: bool = True  # else a node or GPUs that are asked about


@dataclass(frozen=True)
class Recent:
    """The last hours: measures by name, arrays whose rows are `gpus`, `nodes` or `holds` and whose columns are `spans`.

    `gpu` (GPUs and MIG instances): ``observed``, the share of the span; ``engine``, the mean share of time in which any
    kernel ran, by SM_ACTIVE or GPU utilization, with ``engine_max`` and ``engine_p95``; ``util``, the driver's
    utilization alone; ``sm``, ``tensor``, ``dram``, ``power_watts``, ``mem_used_ratio``; of minutes alone
    ``sm_clock_hertz``, ``links_bytes_per_second`` (PCIe and NVLink, both ways), ``throttled`` (share of the span).
    `node`: ``cpu_util``, ``disk_bytes_per_second``; ``fabric_bytes_per_second``, all compute ports, both ways;
    ``fabric_line_bytes_per_second``, one way; ``fabric_up``, the share of them that are active;
    ``network_bytes_per_second``, all other ports, both ways. `service`, by the workload's inference engine:
    ``requests_running``, ``requests_waiting``, ``tokens_per_second``. NaN is missing, never zero.
    """

    now: float  # the clock at reading
    gpus: tuple[RecentGpu, ...]
    nodes: tuple[RecentNode, ...]
    holds: tuple[Hold, ...]
    spans: Spans  # minutes last; the newest ends where most of the source has data
    gpu: Measures
    node: Measures
    service: Measures
    fleet: Fleet
    past: tuple[Spans, Measures] | None = None  # the hours before, measures of `gpus`; None: not read
    notes: tuple[CodedText, ...] = ()


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
    owner: Owner = field(default_factory=Owner)


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
    live_nodes: frozenset[str] = frozenset()  # nodes with fresh data: incidents of others do not open or end
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
