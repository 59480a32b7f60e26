"""On how many GPUs and nodes each measure is known, from the inventory that the advice rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from ...rules.catalog.loader import Catalog
from ..classify.workloads.inventory import GpuCoverage, Inventory
from ..core.frame import Frame
from ..core.scalars import text
from ..core.timestamps import span
from ..pipeline import Reasoned
from ..show.coverage import observed_fabrics
from .types import MetricCoverage

HOUR = 3600.0
# Below this share of a window something is said of its holes.
WINDOW_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that advice rests on, of each GPU or of each node. `known_as`: the inventory's name of it."""

    name: str
    title: str
    scope: Literal["gpu", "node"] = "gpu"
    known_as: str = ""


MEASURES = (
    Measure("engine_active", "GPU engine", known_as="activity"),
    Measure("sm_active", "SM activity"),
    Measure("tensor_active", "tensor activity"),
    Measure("dram_active", "DRAM activity"),
    Measure("mem_used", "memory used"),
    Measure("power", "power"),
    Measure("clocks", "SM clock"),
    Measure("nvlink", "NVLink traffic"),
    Measure("pcie", "PCIe traffic"),
    Measure("infiniband", "InfiniBand", "node"),
    Measure("ethernet", "Ethernet", "node"),
    Measure("host", "host CPU", "node"),
)
# What DCGM's profiling module alone measures.
PROFILED = ("sm_active", "tensor_active", "dram_active", "nvlink", "pcie")
# Columns of the frame's `gpu` that count samples.
_SAMPLES = ("gpu_util_n", "tensor_active_n", "dram_active_n", "power_watts_n")
# Its memory is the host's: drivers tell no use of it (NVIDIA's DGX Spark User Guide, "Known Issues").
_UNIFIED_MEMORY = "GB10"
# No driver measures these of a MIG instance.
_WHOLE_ONLY = ("nvlink", "pcie")


def metric_coverage(
    frame: Frame, found: Reasoned, known: Mapping[str, Mapping[str, float]], catalog: Catalog
) -> tuple[MetricCoverage, ...]:
    """All `MEASURES`. `known`: node -> measure of the node -> hours; the nodes that are counted, and no others. The
    fabric counts where the advice can judge it: ports of storage alone, or that are down, show none."""
    inventory, fabrics = found.fleet.verdicts.inventory, observed_fabrics(found.advice)[0]
    can = _CanHave(frame, catalog)
    seen = [gpu for node in known for gpu in inventory.nodes[node].observed]
    every = _resolution(frame.gpu)
    out = []
    for measure in MEASURES:
        if measure.scope == "node":
            hours = [
                (node, own.get(measure.name, 0.0) if measure.name != "infiniband" or node in fabrics else 0.0)
                for node, own in known.items()
            ]
            of = len(hours)
        else:
            name = measure.known_as or measure.name
            hours = [(gpu.node, gpu.known.get(name, 0.0)) for gpu in seen if can.have(gpu, measure.name)]
            # What is not observed at all lacks everything that its neighbors could have.
            without = {gpu.node for gpu in seen} - {node for node, _ in hours}
            of = len(hours) + sum(inventory.nodes[node].unobserved_count for node in known if node not in without)
        having = [one for _, one in hours if one > 0]
        share = min(sum(having) / len(having) / max(frame.window.hours, 1e-9), 1.0) if having else None
        lacking = tuple(sorted({node for node, one in hours if one <= 0}))
        resolution = every if having and measure.scope == "gpu" else None
        out.append(
            MetricCoverage(measure.name, measure.title, measure.scope, len(having), of, share, resolution, lacking)
        )
    return tuple(out)


def unprofiled(frame: Frame, inventory: Inventory, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Model -> nodes with GPUs of which no profiling measure is known, and which may have none."""
    can = _CanHave(frame, catalog)
    found: dict[str, set[str]] = {}
    for node in inventory.nodes.values():
        for gpu in node.observed:
            if not can.be_profiled(gpu):
                found.setdefault(can.model(gpu), set()).add(node.node)
    return {model: tuple(sorted(nodes)) for model, nodes in found.items()}


def node_hours(frame: Frame, inventory: Inventory) -> dict[str, dict[str, float]]:
    """Node -> measure of the node -> hours in which it was measured; of nodes that were renamed under the new name."""
    known = {name: {"host": node.host_hours} for name, node in sorted(inventory.nodes.items()) if node.moved_to is None}
    fabric = frame.fabric
    read = fabric[fabric["tx_bytes_per_second_mean"].notna()] if not fabric.empty else fabric
    if not read.empty:
        layer = read["link_layer"].eq("InfiniBand").map({True: "infiniband", False: "ethernet"})
        ports = read.groupby([read["node"], layer, read["device"], read["port"]])["observed_seconds"].sum()
        for (node, name), seconds in ports.groupby(level=[0, 1]).max().items():  # type: ignore[misc] - a tuple of two
            known.get(str(node), {})[str(name)] = float(seconds) / HOUR
    return known


class _CanHave:
    """Which measures a GPU can have at all."""

    def __init__(self, frame: Frame, catalog: Catalog) -> None:
        self._catalog = catalog
        rows = zip(frame.gpus["node"], frame.gpus["gpu_uuid"], frame.gpus["sku"], frame.gpus["name"], strict=True)
        self._models = {(str(node), str(uuid)): text(sku) or text(name) or "" for node, uuid, sku, name in rows}

    def model(self, gpu: GpuCoverage) -> str:
        return self._models.get((gpu.node, gpu.gpu_uuid), "")

    def be_profiled(self, gpu: GpuCoverage) -> bool:
        """DCGM profiles data-center GPUs from Volta on (NVIDIA's documentation of DCGM, "Profiling Metrics"): of what
        the catalog lacks it is only known where a measure shows it."""
        sku = self._catalog.gpu(self.model(gpu))
        profiled = sku is not None and not sku.name.startswith("P100")
        return profiled or any(gpu.known.get(measure, 0.0) > 0 for measure in PROFILED)

    def have(self, gpu: GpuCoverage, measure: str) -> bool:
        if measure in PROFILED and not self.be_profiled(gpu):
            return False
        if (measure in _WHOLE_ONLY and gpu.sliced) or (measure == "mem_used" and _UNIFIED_MEMORY in self.model(gpu)):
            return False
        sku = self._catalog.gpu(self.model(gpu))
        return measure != "nvlink" or sku is None or sku.link_bytes_per_second is not None


def _resolution(gpu: pd.DataFrame) -> float | None:
    """Seconds between samples of GPUs, in the mean, by the measure that has the most."""
    counts = {name: float(gpu[name].sum()) for name in _SAMPLES}
    most = max(counts, key=lambda name: counts[name])
    return float(gpu.loc[gpu[most] > 0, "observed_seconds"].sum() / counts[most]) if counts[most] > 0 else None


# Measures of the line, by the words that it has for them.
_CORE = {
    "engine_active": "GPU activity", "tensor_active": "tensor activity", "dram_active": "DRAM activity",
    "mem_used": "memory used", "power": "power",
}  # fmt: skip
_MISSING_SHARE = 0.1


def coverage_line(frame: Frame, found: Reasoned, catalog: Catalog, command: str) -> str | None:
    """What is poorly covered; None where nothing is. `command`: the ``skuwise doctor`` with the remedies."""
    s, inventory = found.advice.summary, found.fleet.verdicts.inventory
    missing = s.unobserved_gpu_count
    parts: list[str] = []
    lacking = [
        f"{_CORE[one.metric]} on {one.having}"
        for one in metric_coverage(frame, found, node_hours(frame, inventory), catalog)
        if one.metric in _CORE and s.gpu_count - one.having > _MISSING_SHARE * s.gpu_count + missing
    ]
    if missing or lacking:
        parts.append(", ".join([f"{s.gpu_count - missing} of {s.gpu_count} GPUs observed", *lacking]))
    window, observed = s.window_hours, s.observed_hours
    if window is not None and observed is not None and observed < WINDOW_SHARE * window:
        parts.append(f"{span(observed * 3600)} of {span(window * 3600)} observed")
    if s.cost_usd is None:
        parts.append("no price")
    seen, fabrics = observed_fabrics(found.advice)
    if parts and frame.fabric.empty:
        parts.append("no fabric counters")
    elif parts and len(seen) < len(fabrics):
        parts.append(f"fabric observed on {len(seen)} of {len(fabrics)} nodes")
    if parts and len(frame.nodes) and frame.nodes["region"].isna().all():
        parts.append("region unknown")
    return f"Coverage: {'; '.join(parts)}. For remedies run '{command}'." if parts else None
