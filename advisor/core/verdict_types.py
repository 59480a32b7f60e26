"""What is said of one workload, as frozen values; names and their order are those of the JSON, as in `advice_types`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...rules.base.typed import Amount, Moment, Share
from ...rules.policy.labels import BottleneckLabel, KindLabel
from .coded_text import CodedText
from .energy_types import WorkloadEnergy

NOT_IN_JSON: Mapping[str, object] = {"json": None}  # a field that the JSON does not have (advice_json.py)
# The basis of work that was found by what its GPUs do alone: nobody is named as its owner.
INFERRED = "activity"


@dataclass(frozen=True, slots=True)
class Alternative:
    label: str
    confidence: Share


@dataclass(frozen=True, slots=True)
class KindVerdict:
    """`evidence`: the strongest reason first."""

    label: KindLabel
    confidence: Share
    evidence: tuple[CodedText, ...] = ()
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class BottleneckVerdict:
    """`time_shares` are shares of the observed time by label; they sum to 1."""

    label: BottleneckLabel
    confidence: Share
    time_shares: Mapping[str, Share] = field(default_factory=dict)
    evidence: tuple[CodedText, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """A span (Unix seconds) in which a workload does one thing. `evidence`: what tells it from the others."""

    start: Moment
    end: Moment
    kind: str
    bottleneck: str
    evidence: tuple[CodedText, ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """`fraction`: observed over elapsed GPU time. `missing`: metric -> reason; `missing_codes`: metric -> its code."""

    fraction: Amount
    resolution_seconds: float
    missing: Mapping[str, str] = field(default_factory=dict)
    missing_codes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Owner:
    team: str | None = None
    user: str | None = None
    account: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What a scheduler knows of a workload beside its owner; None: not told, or the scheduler has no such thing.

    `name` is slurm, kubernetes, docker or process. `restarts`: how often Slurm requeued the job before this run.
    `state` is Slurm's word for how it ended, or RUNNING. `controller_kind`: the kind of Kubernetes object that made its
    pods. `image`: of the container that holds the GPUs; `container`: its name, where one alone requests them.
    """

    name: str = "process"
    job_id: str | None = None
    array_job_id: str | None = None
    array_task_id: str | None = None
    partition: str | None = None
    qos: str | None = None
    state: str | None = None
    restarts: int | None = None
    controller_kind: str | None = None
    image: str | None = None
    container: str | None = field(default=None, metadata=NOT_IN_JSON)


LatencyBasis = Literal["site", "measured", "kind"]


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """How long the requests of a service's busy hours waited, in seconds. `counted`: requests, or tokens where it is of
    tokens. A percentile is None where too few were counted for it."""

    counted: Amount
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None

    def at(self, share: float) -> float | None:
        """The percentile of this share (0.5, 0.9, 0.95 or 0.99); None: too few were counted."""
        return getattr(self, f"p{100 * share:.0f}")


@dataclass(frozen=True, slots=True)
class Latency:
    """How long those who ask a service may wait, and how long they do.

    `label`: its class (rules/latency_classes.yaml); None: it keeps none today, so none is held against it. `basis`: the
    site's word, its own measured times, or what its kind alone tells. `limits`: of the class, in seconds, by the keys
    of the rules; what is not limited is not in it. `first_token`, `output_token`: measured over its busy hours, all
    replicas of the series together; None: not measured. `busy_hours`: how many hours these are. `evidence`: why it has
    this class.
    """

    label: str | None = field(metadata={"json": "class"})
    basis: LatencyBasis
    limits: Mapping[str, float] = field(default_factory=dict)
    first_token: LatencyFigures | None = None
    output_token: LatencyFigures | None = None
    busy_hours: Amount = 0.0
    evidence: tuple[CodedText, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """One workload of the window and what it is. Times are Unix seconds; `cost_usd` None: price unknown.

    `basis` is allocation, process or activity (how its hold on the GPUs is known), `shared` whether another workload
    held the same GPUs. `features` are named numbers absent where they cannot be told. `command` is
    its program and some flags; None: not kept. `gpu_part`: the part of a GPU that each of its GPUs is:
    below 1 on MIG instances, whose hours and costs are that part of their GPU's. `latency`: of a service, or of what a
    site or an engine tells the latency of; None: nobody waits for it by the token.

    `levers`: what a lower precision would change where it serves a language model, as of recommendations;
    `levers_unknown`: why that could not be weighed. Both empty: there is nothing to gain, or it serves none. `energy`
    None: not told.
    """

    id: str
    series_id: str
    name: str
    owner: Owner
    basis: str = field(default="process", kw_only=True)
    shared: bool = field(default=False, kw_only=True)
    scheduled: Scheduled = field(default_factory=Scheduled, kw_only=True, metadata={"json": "scheduler"})
    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    gpu_sku: str | None
    node_sku: str | None
    start: Moment
    end: Moment
    gpu_hours: Amount
    cost_usd: float | None
    kind: KindVerdict
    bottleneck: BottleneckVerdict
    phases: tuple[Phase, ...]
    coverage: Coverage
    latency: Latency | None = None
    levers: tuple[CodedText, ...] = field(default=(), kw_only=True)
    levers_unknown: CodedText | None = field(default=None, kw_only=True)
    energy: WorkloadEnergy | None = field(default=None, kw_only=True)
    features: Mapping[str, float] = field(default_factory=dict, metadata=NOT_IN_JSON)
    framework: str | None = field(default=None, metadata=NOT_IN_JSON)
    command: str | None = field(default=None, metadata=NOT_IN_JSON)
    gpu_part: float = field(default=1.0, metadata=NOT_IN_JSON)
