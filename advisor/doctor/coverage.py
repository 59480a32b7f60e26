"""On how many GPUs and nodes each measure is known, from the inventory that the advice rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...agent.sources.dcgm import FIELDS
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


class Measure(NamedTuple):
    """A measure of GPUs: its columns in the frame, the lines of dcgm-exporter's CSV of counters that add it, and what
    the advice lacks without it."""

    title: str
    columns: tuple[str, ...]
    csv: tuple[str, ...]
    loses: str


_CSV = {field.metric: field.csv for field in FIELDS}
_NVLINK = ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second")
_PCIE = ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second")
GPU_MEASURES: Mapping[str, Measure] = {
    "engine_active": Measure(
        "GPU engine", ("gpu_util",),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Ratio of time the graphics engine is active.",),
        "GPU activity is unknown: idle GPUs are not detected, and workloads get no kind.",
    ),
    "sm_active": Measure(
        "SM activity", ("sm_active",), (_CSV["sm_active"],),
        "Busy GPUs that use few SMs are not detected. Launch-bound work is hard to distinguish from communication.",
    ),
    "tensor_active": Measure(
        "tensor activity", ("tensor_active",), (_CSV["tensor_active"],),
        "Compute-bound work is not detected: no bottleneck verdicts, no recommendation of another GPU.",
    ),
    "dram_active": Measure(
        "DRAM activity", ("dram_active",), (_CSV["dram_active"],),
        "Memory bandwidth is unknown: recommendations that need it (fewer GPUs, another GPU) are blocked.",
    ),
    "mem_used": Measure(
        "memory used", ("mem_used_bytes",),
        ("DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).",
         "DCGM_FI_DEV_FB_FREE, gauge, Framebuffer memory free (in MiB)."),
        "Memory use is unknown: no held-idle finding, no recommendation of a smaller GPU or MIG slice.",
    ),
    "power": Measure(
        "power", ("power_watts",), ("DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).",),
        "Faulty telemetry, throttling and energy are not evaluated.",
    ),
    "clocks": Measure(
        "SM clock", ("sm_clock_hertz",), ("DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).",),
        "Throttled GPUs are not detected, and no lower clock is recommended.",
    ),
    "nvlink": Measure(
        "NVLink traffic", _NVLINK, tuple(_CSV[name] for name in _NVLINK),
        "NVLink use is unknown: idle NVLink is not detected, and no node without NVLink is recommended.",
    ),
    "pcie": Measure(
        "PCIe traffic", _PCIE, tuple(_CSV[name] for name in _PCIE), "Work that waits for PCIe is not detected.",
    ),
}  # fmt: skip
# Beside one of which a tensor pipe at zero is believed.
OTHER_PIPES = (_CSV["fp32_active"], _CSV["fp64_active"])
NODE_MEASURES = {"infiniband": "InfiniBand", "ethernet": "Ethernet", "host": "host CPU"}
# What DCGM's profiling module alone measures.
PROFILED = ("sm_active", "tensor_active", "dram_active", "nvlink", "pcie")
# Columns of the frame's `gpu` that count samples.
_SAMPLES = ("gpu_util_n", "tensor_active_n", "dram_active_n", "power_watts_n")
# Its memory is the host's: drivers report no use of it (NVIDIA's DGX Spark User Guide, "Known Issues").
_UNIFIED_MEMORY = "GB10"
# No driver measures these of a MIG instance.
_WHOLE_ONLY = ("nvlink", "pcie")


@dataclass(frozen=True, slots=True)
class MetricCoverage:
    """Coverage of one measure. `having` of `of` devices (GPUs or nodes) that can have it were measured; `window_share`:
    of the window, mean over those, 0..1; None: none was. `resolution_seconds`: between samples of GPUs, None: not
    counted. `lacking`: nodes with an observed device that can have it and has not."""

    metric: str
    having: int
    of: int
    window_share: float | None
    resolution_seconds: float | None
    lacking: tuple[str, ...] = ()


def metric_coverage(
    frame: Frame, reasoned: Reasoned, hours_of: Mapping[str, Mapping[str, float]], catalog: Catalog
) -> tuple[MetricCoverage, ...]:
    """All measures. `hours_of`: of `node_hours`. A fabric counts where the advice can judge it: ports of storage alone,
    or that are down, do not."""
    inventory, fabrics = reasoned.fleet.verdicts.inventory, observed_fabrics(reasoned.advice)[0]
    models = models_of(frame)
    gpus = [(g, models.get((g.node, g.gpu_uuid), "")) for node in hours_of for g in inventory.nodes[node].observed]
    # Seconds between samples, by the measure that has the most.
    samples = frame.gpu[max(_SAMPLES, key=lambda name: float(frame.gpu[name].sum()))]
    observed = frame.gpu.loc[samples > 0, "observed_seconds"].sum()
    resolution = float(observed / samples.sum()) if samples.sum() > 0 else None
    coverage = []
    for name in (*GPU_MEASURES, *NODE_MEASURES):
        if name in GPU_MEASURES:
            known_as = "activity" if name == "engine_active" else name
            hours = [(g.node, g.measured.get(known_as, 0.0)) for g, model in gpus if _can_have(g, model, name, catalog)]
            # Unobserved GPUs lack every measure that the others of their node can have.
            without = {gpu.node for gpu, _ in gpus} - {node for node, _ in hours}
            of = len(hours) + sum(inventory.nodes[node].unobserved_count for node in hours_of if node not in without)
        else:
            usable = fabrics if name == "infiniband" else hours_of
            hours = [(node, of_node.get(name, 0.0) if node in usable else 0.0) for node, of_node in hours_of.items()]
            of = len(hours)
        having = [measured for _, measured in hours if measured > 0]
        share = min(sum(having) / len(having) / max(frame.window.hours, 1e-9), 1.0) if having else None
        lacking = tuple(sorted({node for node, measured in hours if measured <= 0}))
        of_samples = resolution if having and name in GPU_MEASURES else None
        coverage.append(MetricCoverage(name, len(having), of, share, of_samples, lacking))
    return tuple(coverage)


def models_of(frame: Frame) -> dict[tuple[str, str], str]:
    """Node and uuid of a GPU -> its SKU, else its name."""
    rows = zip(frame.gpus["node"], frame.gpus["gpu_uuid"], frame.gpus["sku"], frame.gpus["name"], strict=True)
    return {(str(node), str(uuid)): text(sku) or text(name) or "" for node, uuid, sku, name in rows}


def can_be_profiled(gpu: GpuCoverage, model: str, catalog: Catalog) -> bool:
    """DCGM profiles data-center GPUs from Volta on (NVIDIA's documentation of DCGM, "Profiling Metrics"); a GPU that
    the catalog lacks only where a measure shows it."""
    sku = catalog.gpu(model)
    profiled = sku is not None and not sku.name.startswith("P100")
    return profiled or any(gpu.measured.get(measure, 0.0) > 0 for measure in PROFILED)


def _can_have(gpu: GpuCoverage, model: str, measure: str, catalog: Catalog) -> bool:
    if measure in PROFILED and not can_be_profiled(gpu, model, catalog):
        return False
    if (measure in _WHOLE_ONLY and gpu.sliced) or (measure == "mem_used" and _UNIFIED_MEMORY in model):
        return False
    sku = catalog.gpu(model)
    return measure != "nvlink" or sku is None or sku.link_bytes_per_second is not None


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


# Measures of `coverage_line`, and the share of GPUs without one from which it is in it.
_CORE = ("engine_active", "tensor_active", "dram_active", "mem_used", "power")
_MISSING_SHARE = 0.1


def coverage_line(frame: Frame, reasoned: Reasoned, catalog: Catalog, command: str) -> str | None:
    """Poor coverage in a sentence; None: coverage is good. `command`: the ``skuwise doctor`` with the remedies."""
    summary, inventory = reasoned.advice.summary, reasoned.fleet.verdicts.inventory
    missing = summary.unobserved_gpu_count
    parts = [
        f"{GPU_MEASURES[metric.metric].title} on {metric.having}"
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
    if parts and frame.fabric.empty:
        parts.append("no fabric counters")
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
        return self.hours.get("infiniband", 0.0) > 0 or self.hours.get("ethernet", 0.0) > 0

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

    frame: Frame
    verdicts: Verdicts
    catalog: Catalog
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
