"""The diagnosis: what was expected, what is observed, what is missing, and what to add. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.advice_types import Unobserved
from ..core.coded_text import CodedText
from ..core.frame import Window
from .facts import PodCoverage, SeenExporter, SlurmCoverage


@dataclass(frozen=True, slots=True)
class TelemetryGap:
    """Something that the source does not tell. `loses`: what the advice lacks because of it; `where`: the file or
    program that `add` belongs into; `add`: the exact line, empty where there is none. `nodes`: those concerned, empty:
    the whole source."""

    code: str
    what: str
    loses: str
    where: str
    add: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricCoverage:
    """How well one measure is known. `having` of `of` devices (GPUs or nodes) that could have it tell it at all;
    `window_share`: of the window, in the mean over those that have it, 0..1; None where none has it."""

    metric: str
    title: str
    scope: str
    having: int
    of: int
    window_share: float | None
    resolution_seconds: float | None


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node. `expected` GPUs by `expected_from` (node SKU, declared, requested, named), `named` and `observed` ones;
    `hours`: observed GPU-hours over expected GPUs; `usd_per_hour`: of the whole node, None: no price; `price`: its
    basis and date; `assumed_region`: whose price it is, where the node's own region tells none."""

    node: str
    expected: int
    expected_from: str
    named: int
    observed: int
    unobserved: tuple[Unobserved, ...]
    hours: float
    node_sku: str | None
    node_sku_source: str | None
    provider: str | None
    region: str | None
    usd_per_hour: float | None
    price: str | None
    assumed_region: str | None
    fabric_ports: int
    fabric_seen: bool
    mig_instances: int


@dataclass(frozen=True, slots=True)
class Labels:
    """Whether the GPUs at work name their workload: GPUs that were busy at all, and GPU-hours."""

    busy_gpus: int
    labeled_gpus: int
    busy_gpu_hours: float
    labeled_gpu_hours: float


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether waste can be judged: `ready_nodes` have `floor_hours` of data; `hours_left` until the best node has,
    0 where one has."""

    floor_hours: float
    ready_nodes: int
    best_hours: float
    hours_left: float


@dataclass(frozen=True)
class Diagnosis:
    """All that ``skuwise doctor`` says of a source."""

    generated_at: float
    source: Mapping[str, object]
    window: Window
    begin: float
    observed_hours: float
    sampled: int | None
    nodes: tuple[NodeState, ...]
    metrics: tuple[MetricCoverage, ...]
    exporters: tuple[SeenExporter, ...]
    labels: Labels
    readiness: Readiness
    gaps: tuple[TelemetryGap, ...]
    notes: tuple[CodedText, ...]
    pods: PodCoverage | None = None
    slurm: SlurmCoverage = field(default_factory=SlurmCoverage)

    @property
    def expected(self) -> int:
        return sum(node.expected for node in self.nodes)

    @property
    def observed(self) -> int:
        return sum(node.observed for node in self.nodes)

    @property
    def mig_instances(self) -> int:
        return sum(node.mig_instances for node in self.nodes)

    @property
    def unobserved(self) -> tuple[Unobserved, ...]:
        return tuple(one for node in self.nodes for one in node.unobserved)
