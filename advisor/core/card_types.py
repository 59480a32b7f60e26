"""The card of one job. Names and order are those of its JSON, schema ``skuwise.card/1``; `Moment` is Unix seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...rules.base.typed import Amount, Moment, Share
from ...rules.policy.labels import BottleneckLabel, KindLabel
from .coded_text import CodedText
from .verdict_types import Owner

SCHEMA, LIST_SCHEMA = "skuwise.card/1", "skuwise.cards/1"
COURSE_SPANS = 48  # fits beside a label in a line of 100 columns

# running: it holds its GPUs at the end of the data. ended: it no longer does. unknown: telemetry ended while it ran.
CardState = Literal["running", "ended", "unknown"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The resources that the job requested. None: not reported; `reason`: why nothing is."""

    gpus: float | None = None
    cpus: float | None = None
    mem_bytes: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """Activity over the life of the job (0..1, means over its GPUs) in equal spans from `start` on. None: no data."""

    start: Moment
    step_seconds: Amount
    sm_active: tuple[float | None, ...] = ()
    tensor_active: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class CardPrice:
    """The price behind the cost. `text`: with its basis, date and source."""

    id: str
    usd_per_gpu_hour: Amount
    basis: str
    source: str
    as_of: str
    text: str


@dataclass(frozen=True, slots=True)
class Compared:
    """Medians of `runs` earlier runs of the same series. None: unknown in all of them."""

    runs: int
    gpu_hours: float | None = None
    sm_active: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The kind of the job and its bottleneck. `time_shares`: of the observed time, by label; they sum to 1."""

    kind: KindLabel
    kind_confidence: Share
    bottleneck: BottleneckLabel
    bottleneck_confidence: Share
    time_shares: Mapping[str, Share] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Use:
    """Utilization: ratios 0..1, means over its GPUs and its observed time. None: not measured (`Card.missing`)."""

    observed: Share
    sm_active: float | None = None
    tensor_active: float | None = None
    engine_active: float | None = None
    mem_peak_bytes: float | None = None  # the highest of any one GPU
    mem_total_bytes: float | None = None  # of that GPU
    fabric: float | None = None  # of the line rate, one way, as is `nvlink`
    nvlink: float | None = None
    cpu: float | None = None  # of its whole nodes, other work included, as are the next three
    io_wait: float | None = None
    disk_read_bytes_per_second: float | None = None
    disk_write_bytes_per_second: float | None = None
    idle_gpu_hours: float | None = None
    idle_since: Moment | None = None  # last activity of its GPUs, where they are idle at its end
    unused: int | None = None  # GPUs that were never active


@dataclass(frozen=True, slots=True)
class Card:
    """One job, running or finished."""

    id: str
    series_id: str
    name: str
    cluster: str | None
    scheduler: str
    job_id: str | None  # of an array's task `22_7`
    namespace: str | None
    pod: str | None
    owner: Owner
    generated_at: Moment
    state: CardState
    scheduler_state: str | None  # Slurm's word
    restarts: int | None  # requeues before this run
    start: Moment
    end: Moment
    elapsed_seconds: Amount  # from its start to its end or now
    nodes: tuple[str, ...]
    gpu_sku: str | None
    gpu_count: int  # GPUs or MIG instances, each `gpu_part` of a GPU
    gpu_part: float
    shared: bool
    basis: str
    gpu_hours: Amount
    asked: Asked
    judged: Judged
    use: Use
    course: Course
    kwh: float | None  # at the GPUs
    energy_basis: str | None
    cost_usd: float | None  # None: no price is known
    idle_usd: float | None
    price: CardPrice | None
    compared: Compared | None
    next_step: CodedText
    missing: Mapping[str, str] = field(default_factory=dict)  # name of a figure -> why it is unknown
    data_since: Moment | None = None  # first data, if after its start: all figures begin there
    kept_at: Moment | None = None  # when it was stored, if read from a state file
