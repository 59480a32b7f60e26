"""The card of one job, as frozen values; names and their order are those of its JSON, schema ``skuwise.card/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...rules.base.typed import Amount, Moment, Share
from ...rules.policy.labels import BottleneckLabel, KindLabel
from .coded_text import CodedText
from .verdict_types import Owner

SCHEMA, LIST_SCHEMA = "skuwise.card/1", "skuwise.cards/1"
# Spans of a course: as many signs as stand beside a label in a line of 100 columns.
COURSE_SPANS = 48

# running: it holds its GPUs at the end of the data. ended: it no longer does. unknown: telemetry ended before now
# while it ran.
CardState = Literal["running", "ended", "unknown"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the job asked its scheduler for. None: nobody told; `reason` says why where nothing is told at all."""

    gpus: float | None = None
    cpus: float | None = None
    mem_bytes: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """Activity over the life of the job, in equal spans from `start` on: means over its GPUs (0..1). None: no data."""

    start: Moment
    step_seconds: Amount
    sm_active: tuple[float | None, ...] = ()
    tensor_active: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class CardPrice:
    """What the cost rests on. `usd_per_gpu_hour`: of one GPU. `text`: the price with its basis, date and source."""

    id: str
    usd_per_gpu_hour: Amount
    basis: str
    source: str
    as_of: str
    text: str


@dataclass(frozen=True, slots=True)
class Compared:
    """Medians of earlier runs of the same series. None: no run told it. `runs`: how many there are."""

    runs: int
    gpu_hours: float | None = None
    sm_active: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What the job is and what limits it. `time_shares`: of the observed time, by label; they sum to 1."""

    kind: KindLabel
    kind_confidence: Share
    bottleneck: BottleneckLabel
    bottleneck_confidence: Share
    time_shares: Mapping[str, Share] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Use:
    """What the job used: ratios 0..1, means over its GPUs and its observed time unless the name says otherwise.

    None is not measured, and `Card.missing` says why. `mem_peak_bytes`: the highest of any one GPU, `mem_total_bytes`
    of that GPU. `fabric`, `nvlink`: of what the links carry one way. `cpu`, `io_wait`, `disk_read_bytes_per_second`,
    `disk_write_bytes_per_second`: of its nodes as a whole, other work included. `idle_gpu_hours`: the hours in which a
    GPU that it held did nothing; `idle_since`: when its GPUs last did something, where they rest at its end; `unused`:
    GPUs that never did anything.
    """

    observed: Share
    sm_active: float | None = None
    tensor_active: float | None = None
    engine_active: float | None = None
    mem_peak_bytes: float | None = None
    mem_total_bytes: float | None = None
    fabric: float | None = None
    nvlink: float | None = None
    cpu: float | None = None
    io_wait: float | None = None
    disk_read_bytes_per_second: float | None = None
    disk_write_bytes_per_second: float | None = None
    idle_gpu_hours: float | None = None
    idle_since: Moment | None = None
    unused: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """One job, running or finished. Times are Unix seconds; `elapsed_seconds` from its start to its end or now.

    `job_id`: the scheduler's, of an array's task `22_7`. `scheduler_state`: Slurm's word. `restarts`: requeues before
    this run. `gpu_count`: GPUs or MIG instances, each `gpu_part` of a GPU. `kwh`: at the GPUs; None with its reason in
    `missing`. `cost_usd`, `idle_usd`: None where no price is known. `missing`: name of a figure -> why there is none.
    `data_since`: where data of it begin, if that is after its start; all figures are of the time from then on.
    `kept_at`: when it was kept, where it was read from a state file instead of telemetry.
    """

    id: str
    series_id: str
    name: str
    cluster: str | None
    scheduler: str
    job_id: str | None
    namespace: str | None
    pod: str | None
    owner: Owner
    generated_at: Moment
    state: CardState
    scheduler_state: str | None
    restarts: int | None
    start: Moment
    end: Moment
    elapsed_seconds: Amount
    nodes: tuple[str, ...]
    gpu_sku: str | None
    gpu_count: int
    gpu_part: float
    shared: bool
    basis: str
    gpu_hours: Amount
    asked: Asked
    judged: Judged
    use: Use
    course: Course
    kwh: float | None
    energy_basis: str | None
    cost_usd: float | None
    idle_usd: float | None
    price: CardPrice | None
    compared: Compared | None
    next_step: CodedText
    missing: Mapping[str, str] = field(default_factory=dict)
    data_since: Moment | None = None
    kept_at: Moment | None = None
