"""The diagnosis: what exists, what is observed, what is missing, and what to add. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...rules.catalog.hour_prices import SOURCE
from ...rules.catalog.types import Price
from ..classify.types import NodeFacts
from ..classify.workloads.inventory import NodeInventory
from ..core.advice_types import Advice
from ..core.coded_text import CodedText


@dataclass(frozen=True, slots=True)
class TelemetryGap:
    """Something that the source lacks. `loses`: what the advice lacks because of it; `where`: the file or program that
    `add` belongs into; `add`: the exact line, or what to do; empty where nothing helps. `nodes`: those concerned,
    empty: the whole source."""

    code: str
    what: str
    loses: str
    where: str
    add: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricCoverage:
    """How well one measure is known. `having` of `of` devices (GPUs or nodes) that could have it were measured at all;
    `window_share`: of the window, in the mean over those, 0..1; None where none was. `resolution_seconds`: between
    samples of GPUs, None where they are not counted. `lacking`: nodes with an observed device that could have it and
    has not."""

    metric: str
    title: str
    scope: str
    having: int
    of: int
    window_share: float | None
    resolution_seconds: float | None
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as the advice takes it. `price`: of the whole node, None: unknown. `instance_type`: as its provider
    calls it. `known`: measure of the node -> hours; `fabric_ports`: of any kind; `judged`: GPUs and MIG instances that
    were observed long enough to judge waste."""

    facts: NodeFacts
    counted: NodeInventory
    price: Price | None
    instance_type: str | None
    known: Mapping[str, float]
    fabric_ports: int
    mig_instances: int
    judged: int

    @property
    def node(self) -> str:
        return self.facts.node

    @property
    def expected(self) -> int:
        return self.counted.gpu_count

    @property
    def observed(self) -> int:
        return max(self.expected - self.counted.unobserved_count, 0)

    @property
    def network_observed(self) -> bool:
        return any(self.known.get(name, 0.0) > 0 for name in ("infiniband", "ethernet"))

    @property
    def price_words(self) -> str | None:
        """The basis of the price and its date: ``list, 2026-07-20``."""
        if self.price is None:
            return None
        basis = self.price.source if self.price.source.startswith(SOURCE) else self.price.basis
        return f"{basis}, {self.price.as_of}"

    @property
    def assumed_region(self) -> str | None:
        """Whose price it is, where the node's own region is unknown or has none."""
        return self.price.region if self.price is not None and self.price.region_assumed else None


@dataclass(frozen=True, slots=True)
class Labels:
    """Whether GPUs at work name their workload: GPUs that worked at all, and their GPU-hours of work."""

    busy_gpus: int
    labeled_gpus: int
    busy_gpu_hours: float
    labeled_gpu_hours: float


@dataclass(frozen=True, slots=True)
class SchedulerWorkloads:
    """Workloads of one scheduler, and how many of them have more than a number or a pod's name: of Slurm the job's
    name, of Kubernetes the pod's owner."""

    observed: int
    named: int


@dataclass(frozen=True)
class Diagnosis:
    """All that ``skuwise doctor`` says of a source. `advice`: of the same frame. `begin`: where telemetry of GPUs
    begins, Unix seconds. `best_hours`: observed GPU-hours over GPUs of the node that was observed longest."""

    advice: Advice
    begin: float
    best_hours: float
    nodes: tuple[NodeState, ...]
    metrics: tuple[MetricCoverage, ...]
    exporters: tuple[str, ...]
    labels: Labels
    kubernetes: SchedulerWorkloads
    slurm: SchedulerWorkloads
    gaps: tuple[TelemetryGap, ...]
    notes: tuple[CodedText, ...]

    @property
    def on_server(self) -> bool:
        return self.advice.source.get("kind") == "prometheus"

    @property
    def observed(self) -> int:
        summary = self.advice.summary
        return max(summary.gpu_count - summary.unobserved_gpu_count, 0)

    @property
    def mig_instances(self) -> int:
        return sum(node.mig_instances for node in self.nodes)
