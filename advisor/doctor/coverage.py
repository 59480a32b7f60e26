"""On how many GPUs and nodes each measure is known, from the inventory that the advice rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...rules.catalog.loader import Catalog
from ...rules.catalog.price_files import SOURCE
from ...rules.catalog.types import Price
from ..classify.types import NodeFacts, Verdicts
from ..classify.workloads.inventory import GpuCoverage, Inventory, NodeInventory
from ..core.advice_types import Advice
from ..core.coded_text import CodedText
from ..core.frame import Frame
from ..core.scalars import text
from ..core.timestamps import span
from ..pipeline import Reasoned
from ..show.coverage import observed_fabrics

HOUR = 3600.0
# Below this share of the window, its gaps are reported.
WINDOW_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class MetricCoverage:
    """Coverage of one measure. `having` of `of` devices (GPUs or nodes) that can have it were measured; `window_share`:
    of the window, mean over those, 0..1; None: none was. `resolution_seconds`: between samples of GPUs, None: not
    counted. `lacking`: nodes with an observed device that can have it and has not."""

    metric: str
    title: str
    scope: Literal["gpu", "node"]
    having: int
    of: int
    window_share: float | None
    resolution_seconds: float | None
    lacking: tuple[str, ...] = ()


# Name -> title, of each GPU and of each node.
GPU_MEASURES = {
    "engine_active": "GPU engine", "sm_active": "SM activity", "tensor_active": "tensor activity",
    "dram_active": "DRAM activity", "mem_used": "memory used", "power": "power", "clocks": "SM clock",
    "nvlink": "NVLink traffic", "pcie": "PCIe traffic",
}  # fmt: skip
NODE_MEASURES = {"infiniband": "InfiniBand", "ethernet": "Ethernet", "host": "host CPU"}
# What DCGM's profiling module alone measures.
PROFILED = ("sm_active", "tensor_active", "dram_active", "nvlink", "pcie")
# Columns of the frame's `gpu` that count samples.
_SAMPLES = ("gpu_util_n", "tensor_active_n", "dram_active_n", "power_watts_n")
# Its memory is the host's: drivers report no use of it (NVIDIA's DGX Spark User Guide, "Known Issues").
_UNIFIED_MEMORY = "GB10"
# No driver measures these of a MIG instance.
_WHOLE_ONLY = ("nvlink", "pcie")


def metric_coverage(
    frame: Frame, reasoned: Reasoned, hours_of: Mapping[str, Mapping[str, float]], catalog: Catalog
) -> tuple[MetricCoverage, ...]:
    """All measures. `hours_of`: of `node_hours`. A fabric counts where the advice can judge it: ports of storage alone,
    or that are down, do not."""
    inventory, fabrics = reasoned.fleet.verdicts.inventory, observed_fabrics(reasoned.advice)[0]
    models = _Models(frame, catalog)
    gpus = [gpu for node in hours_of for gpu in inventory.nodes[node].observed]
    # Seconds between samples, by the measure that has the most.
    samples = frame.gpu[max(_SAMPLES, key=lambda name: float(frame.gpu[name].sum()))]
    observed = frame.gpu.loc[samples > 0, "observed_seconds"].sum()
    resolution = float(observed / samples.sum()) if samples.sum() > 0 else None
    coverage = []
    for name, title in (GPU_MEASURES | NODE_MEASURES).items():
        if name in GPU_MEASURES:
            known_as = "activity" if name == "engine_active" else name
            hours = [(gpu.node, gpu.measured.get(known_as, 0.0)) for gpu in gpus if models.can_have(gpu, name)]
            # Unobserved GPUs lack every measure that the others of their node can have.
            without = {gpu.node for gpu in gpus} - {node for node, _ in hours}
            of = len(hours) + sum(inventory.nodes[node].unobserved_count for node in hours_of if node not in without)
        else:
            usable = fabrics if name == "infiniband" else hours_of
            hours = [(node, of_node.get(name, 0.0) if node in usable else 0.0) for node, of_node in hours_of.items()]
            of = len(hours)
        having = [measured for _, measured in hours if measured > 0]
        coverage.append(MetricCoverage(
            name, title, "gpu" if name in GPU_MEASURES else "node", len(having), of,
            min(sum(having) / len(having) / max(frame.window.hours, 1e-9), 1.0) if having else None,
            resolution if having and name in GPU_MEASURES else None,
            tuple(sorted({node for node, measured in hours if measured <= 0})),
        ))  # fmt: skip
    return tuple(coverage)


def unprofiled(frame: Frame, inventory: Inventory, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Model -> nodes with GPUs that have no profiling measure, and may be unable to."""
    models = _Models(frame, catalog)
    nodes: dict[str, set[str]] = {}
    for node in inventory.nodes.values():
        for gpu in node.observed:
            if not models.can_be_profiled(gpu):
                nodes.setdefault(models.of(gpu), set()).add(node.node)
    return {model: tuple(sorted(names)) for model, names in nodes.items()}


def node_hours(frame: Frame, inventory: Inventory) -> dict[str, dict[str, float]]:
    """Node -> measure of the node -> measured hours; renamed nodes are under the new name."""
    hours = {name: {"host": node.host_hours} for name, node in sorted(inventory.nodes.items()) if node.moved_to is None}
    fabric = frame.fabric[frame.fabric["tx_bytes_per_second_mean"].notna()]
    if not fabric.empty:
        layer = fabric["link_layer"].eq("InfiniBand").map({True: "infiniband", False: "ethernet"})
        ports = fabric.groupby([fabric["node"], layer, fabric["device"], fabric["port"]])["observed_seconds"].sum()
        for (node, name), seconds in ports.groupby(level=[0, 1]).max().items():  # type: ignore[misc] - a tuple of two
            hours.get(str(node), {})[str(name)] = float(seconds) / HOUR
    return hours


class _Models:
    def __init__(self, frame: Frame, catalog: Catalog) -> None:
        self._catalog = catalog
        rows = zip(frame.gpus["node"], frame.gpus["gpu_uuid"], frame.gpus["sku"], frame.gpus["name"], strict=True)
        self._models = {(str(node), str(uuid)): text(sku) or text(name) or "" for node, uuid, sku, name in rows}

    def of(self, gpu: GpuCoverage) -> str:
        return self._models.get((gpu.node, gpu.gpu_uuid), "")

    def can_be_profiled(self, gpu: GpuCoverage) -> bool:
        """DCGM profiles data-center GPUs from Volta on (NVIDIA's documentation of DCGM, "Profiling Metrics"); a GPU
        that the catalog lacks only where a measure shows it."""
        sku = self._catalog.gpu(self.of(gpu))
        profiled = sku is not None and not sku.name.startswith("P100")
        return profiled or any(gpu.measured.get(measure, 0.0) > 0 for measure in PROFILED)

    def can_have(self, gpu: GpuCoverage, measure: str) -> bool:
        if measure in PROFILED and not self.can_be_profiled(gpu):
            return False
        if (measure in _WHOLE_ONLY and gpu.sliced) or (measure == "mem_used" and _UNIFIED_MEMORY in self.of(gpu)):
            return False
        sku = self._catalog.gpu(self.of(gpu))
        return measure != "nvlink" or sku is None or sku.link_bytes_per_second is not None


# Measures of `coverage_line`, as it names them.
_CORE = {
    "engine_active": "GPU activity", "tensor_active": "tensor activity", "dram_active": "DRAM activity",
    "mem_used": "memory used", "power": "power",
}  # fmt: skip
_MISSING_SHARE = 0.1


def coverage_line(frame: Frame, reasoned: Reasoned, catalog: Catalog, command: str) -> str | None:
    """Poor coverage in a sentence; None: coverage is good. `command`: the ``skuwise doctor`` with the remedies."""
    summary, inventory = reasoned.advice.summary, reasoned.fleet.verdicts.inventory
    missing = summary.unobserved_gpu_count
    parts = [
        f"{_CORE[metric.metric]} on {metric.having}"
        for metric in metric_coverage(frame, reasoned, node_hours(frame, inventory), catalog)
        if metric.metric in _CORE and summary.gpu_count - metric.having > _MISSING_SHARE * summary.gpu_count + missing
    ]
    if missing or parts:
        parts = [", ".join([f"{summary.gpu_count - missing} of {summary.gpu_count} GPUs observed", *parts])]
    window, observed = summary.window_hours, summary.observed_hours
    if window is not None and observed is not None and observed < WINDOW_SHARE * window:
        parts.append(f"{span(observed * 3600)} of {span(window * 3600)} observed")
    if summary.cost_usd is None:
        parts.append("no price")
    seen, fabrics = observed_fabrics(reasoned.advice)
    if parts and frame.fabric.empty:
        parts.append("no fabric counters")
    elif parts and len(seen) < len(fabrics):
        parts.append(f"fabric observed on {len(seen)} of {len(fabrics)} nodes")
    if parts and len(frame.nodes) and frame.nodes["region"].isna().all():
        parts.append("region unknown")
    return f"Coverage: {'; '.join(parts)}. For remedies run '{command}'." if parts else None


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
