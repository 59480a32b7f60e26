"""The verdicts on one workload. Names and order are those of the JSON, as in `advice_types`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...rules.base.typed import Amount, Moment, Share
from ...rules.policy.labels import BottleneckLabel, KindLabel, Owner
from .coded_text import CodedText
from .energy_types import WorkloadEnergy

NOT_IN_JSON: Mapping[str, object] = {"json": None}  # metadata of a field that the JSON does not have (advice_json.py)
INFERRED = "activity"  # basis of a workload detected by GPU activity alone: its owner is unknown


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
    """`time_shares`: shares of the observed time by label; they sum to 1."""

    label: BottleneckLabel
    confidence: Share
    time_shares: Mapping[str, Share] = field(default_factory=dict)
    evidence: tuple[CodedText, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """A span with one behavior. `evidence`: what distinguishes it from the other phases."""

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
class Scheduled:
    """What a scheduler reports about a workload beside its owner; None: not reported, or not applicable."""

    name: str = "process"  # slurm, kubernetes, docker or process
    job_id: str | None = None
    array_job_id: str | None = None
    array_task_id: str | None = None
    partition: str | None = None
    qos: str | None = None
    state: str | None = None  # Slurm's word for the end of the job, or RUNNING
    restarts: int | None = None  # requeues before this run
    controller_kind: str | None = None  # kind of the Kubernetes object that created its pods
    image: str | None = None  # of the container that holds the GPUs
    container: str | None = field(default=None, metadata=NOT_IN_JSON)  # its name, where only one requests them


LatencyBasis = Literal["site", "measured", "kind"]


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """Latency of a service in its busy hours, seconds. A percentile of too few requests is None."""

    counted: Amount  # requests; tokens, of the time per token
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None

    def at(self, share: float) -> float | None:
        """The percentile of this share (0.5, 0.9, 0.95 or 0.99)."""
        return getattr(self, f"p{100 * share:.0f}")


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency limits and measurements of a service. `first_token`, `output_token`: None where not measured."""

    label: str | None = field(metadata={"json": "class"})  # of latency_classes.yaml; None: it keeps none today
    basis: LatencyBasis  # set by the site, from its own measurements, or by its kind
    limits: Mapping[str, float] = field(default_factory=dict)  # of the class, seconds, by the keys of the rules
    first_token: LatencyFigures | None = None  # over the busy hours of all replicas of the series
    output_token: LatencyFigures | None = None
    busy_hours: Amount = 0.0
    evidence: tuple[CodedText, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """One workload of the window. `cost_usd`: None where a price is unknown."""

    id: str
    series_id: str
    name: str
    owner: Owner
    basis: str = field(default="process", kw_only=True)  # how the hold is known: allocation, process or activity
    shared: bool = field(default=False, kw_only=True)  # another workload held the same GPUs
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
    latency: Latency | None = None  # of services, and where a site or an engine sets or reports one
    levers: tuple[CodedText, ...] = field(default=(), kw_only=True)  # effects of a lower precision
    levers_unknown: CodedText | None = field(default=None, kw_only=True)  # why levers were not evaluated
    energy: WorkloadEnergy | None = field(default=None, kw_only=True)
    features: Mapping[str, float] = field(default_factory=dict, metadata=NOT_IN_JSON)  # unknown ones are absent
    framework: str | None = field(default=None, metadata=NOT_IN_JSON)
    command: str | None = field(default=None, metadata=NOT_IN_JSON)  # program and some flags; None: not recorded
    gpu_part: float = field(default=1.0, metadata=NOT_IN_JSON)  # part of a GPU that each of `gpus` is: below 1 on MIG
