"""The diagnosis: what exists, what is observed, what is missing, and what to add. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...rules.catalog.loader import Catalog
from ...rules.catalog.price_files import SOURCE
from ...rules.catalog.types import Price
from ..classify.types import NodeFacts, Verdicts
from ..classify.workloads.inventory import NodeInventory
from ..core.advice_types import Advice
from ..core.coded_text import CodedText
from ..core.frame import Frame
from .coverage import MetricCoverage


@dataclass(frozen=True, slots=True)
class TelemetryGap:
    """Something that the source lacks. `loses`: its effect on the advice; `where`: the file or program that `add`
    belongs into; `add`: lines to copy, or what to do; empty: no remedy. `nodes`: empty: the whole source."""

    code: str
    what: str
    loses: str
    where: str
    add: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as in the advice. `price`: of the whole node, None: unknown. `instance_type`: as its provider calls it.
    `hours`: measure of the node -> hours; `fabric_ports`: of any kind; `judged`: GPUs and MIG instances that were
    observed long enough to judge waste."""

    facts: NodeFacts
    inventory: NodeInventory
    price: Price | None
    instance_type: str | None
    hours: Mapping[str, float]
    fabric_ports: int
    mig_instances: int
    judged: int

    @property
    def node(self) -> str:
        return self.facts.node

    @property
    def observed(self) -> int:
        """GPUs that are observed."""
        return max(self.inventory.gpu_count - self.inventory.unobserved_count, 0)

    @property
    def network_observed(self) -> bool:
        return any(self.hours.get(name, 0.0) > 0 for name in ("infiniband", "ethernet"))

    @property
    def price_words(self) -> str | None:
        """The basis of the price and its date: ``list, 2026-07-20``."""
        if self.price is None:
            return None
        basis = self.price.source if self.price.source.startswith(SOURCE) else self.price.basis
        return f"{basis}, {self.price.as_of}"

    @property
    def assumed_region(self) -> str | None:
        """The region of the price, where the node's region is unknown or has none."""
        return self.price.region if self.price is not None and self.price.region_assumed else None


@dataclass(frozen=True)
class Diagnosis:
    """The content of ``skuwise doctor``. `advice`, `verdicts`: of the same `frame`. `begin`: of the telemetry of GPUs,
    Unix seconds.

    `labels`: GPUs at work and their GPU-hours, all and those with a workload's name. `kubernetes`, `slurm`: workloads,
    and those with a pod's owner or image, or with a job's name (`observed`, `named`).
    """

    frame: Frame = field(repr=False)
    verdicts: Verdicts = field(repr=False)
    catalog: Catalog = field(repr=False)
    advice: Advice
    begin: float
    nodes: tuple[NodeState, ...]
    metrics: tuple[MetricCoverage, ...]
    exporters: tuple[str, ...]
    labels: Mapping[str, float]
    kubernetes: Mapping[str, int]
    slurm: Mapping[str, int]
    notes: tuple[CodedText, ...]
    gaps: tuple[TelemetryGap, ...] = ()

    @property
    def on_server(self) -> bool:
        return self.advice.source.get("kind") == "prometheus"

    @property
    def observed(self) -> int:
        """GPUs that are observed."""
        return max(self.advice.summary.gpu_count - self.advice.summary.unobserved_gpu_count, 0)
