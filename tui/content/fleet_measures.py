"""The measures that a map of the fleet can show, their scale, and how nodes are grouped. No screen is needed for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice
from ...advisor.core.verdict_types import WorkloadVerdict
from ..cell_text import CUT, nice

if TYPE_CHECKING:
    from ...advisor.show.series.fleet_map import GpuUse, NodeUse

NO_WORKLOAD, NO_OWNER, NOT_OBSERVED = "no workload", "owner unknown", "not observed"
_WORTH_CUTTING = 4


@dataclass(frozen=True)
class MapMeasure:
    """One thing that a map can show of a GPU. `of` gives it in `unit`; `top`: the scale's upper end, None: what the
    fleet needs. Without `of` it is the kind of work, which has no scale."""

    name: str
    unit: str
    of: Callable[[GpuUse], float | None] | None
    top: float | None = None


def _scaled(key: str, factor: float) -> Callable[[GpuUse], float | None]:
    def of(gpu: GpuUse) -> float | None:
        value = gpu.values.get(key)
        return None if value is None else value * factor

    return of


def _memory(gpu: GpuUse) -> float | None:
    used = gpu.values.get("mem_used_bytes")
    return None if used is None or not gpu.mem_total_bytes else used / gpu.mem_total_bytes * 100.0


MEASURES: tuple[MapMeasure, ...] = (
    MapMeasure("SM active", "%", _scaled("sm_active", 100.0), 100.0),
    MapMeasure("tensor active", "%", _scaled("tensor_active", 100.0), 100.0),
    MapMeasure("DRAM active", "%", _scaled("dram_active", 100.0), 100.0),
    MapMeasure("NVLink sent", "GB/s", _scaled("nvlink_tx_bytes_per_second", 1e-9)),
    MapMeasure("fabric of the node", "% of line rate", _scaled("fabric_util", 100.0), 100.0),
    MapMeasure("memory used", "%", _memory, 100.0),
    MapMeasure("power", "W", _scaled("power_watts", 1.0)),
    MapMeasure("kind of work", "", None),
)
GROUPINGS = ("SKU", "fabric", "team")


@dataclass(frozen=True)
class Spot:
    """One place of the map: a GPU, or the place of one that is not known (`gpu` None)."""

    node: NodeUse
    gpu: GpuUse | None

    @property
    def unobserved(self) -> str | None:
        """Why nothing of the GPU was observed; None: something was."""
        return self.gpu.unobserved if self.gpu is not None else None


@dataclass(frozen=True)
class FleetMap:
    """What the telemetry tells of every node, and the verdicts by workload."""

    nodes: tuple[NodeUse, ...]
    verdicts: Mapping[str, WorkloadVerdict]

    def verdict(self, spot: Spot) -> WorkloadVerdict | None:
        """Of what held the GPU longest; None: nothing did, or it was not judged."""
        workload = spot.gpu.workload if spot.gpu is not None else None
        return self.verdicts.get(workload) if workload is not None else None

    def value(self, spot: Spot, measure: MapMeasure) -> float | None:
        return measure.of(spot.gpu) if measure.of is not None and spot.gpu is not None else None

    def top(self, measure: MapMeasure) -> float:
        """Where the measure's scale ends."""
        if measure.top is not None or measure.of is None:
            return measure.top or 1.0
        values = (measure.of(gpu) for node in self.nodes for gpu in node.gpus)
        return nice(max((value for value in values if value is not None), default=0.0))

    @property
    def any_dark(self) -> bool:
        """Whether of some GPU nothing was observed."""
        return any(gpu.unobserved is not None for node in self.nodes for gpu in node.gpus)

    def title(self, name: str, nodes: Sequence[NodeUse], measure: MapMeasure) -> str:
        """Of a group: ``azure/ND96 · 12 nodes, 96 GPUs · mean 62 %``."""
        count = sum(len(spots(node)) for node in nodes)
        told = f"{name} · {words.counted(len(nodes), 'node')}, {words.counted(count, 'GPU')}"
        dark = sum(gpu.unobserved is not None for node in nodes for gpu in node.gpus)
        if dark:
            told += f", {dark:,} not observed"
        of = measure.of
        if of is not None:
            values = [value for node in nodes for gpu in node.gpus if (value := of(gpu)) is not None]
            if values:
                told += f" · mean {value_words(sum(values) / len(values), measure)}"
        return told

    def grouped(self, by: str) -> tuple[tuple[str, tuple[NodeUse, ...]], ...]:
        """Names of the groups with their nodes, the group with most GPUs first. A node whose GPUs belong to several
        teams stands with the one that holds most of them."""
        groups: dict[str, list[NodeUse]] = {}
        for node in self.nodes:
            groups.setdefault(self._group(node, by), []).append(node)
        sizes = {name: sum(len(spots(node)) for node in nodes) for name, nodes in groups.items()}
        return tuple((name, tuple(groups[name])) for name in sorted(groups, key=lambda name: (-sizes[name], name)))

    def _group(self, node: NodeUse, by: str) -> str:
        if by == "fabric":
            return node.fabric
        if by == "SKU":
            return node.node_sku or _gpu_skus(node) or "unknown SKU"
        counts: dict[str, int] = {}
        for spot in spots(node):
            owner = self.owner(spot)
            counts[owner] = counts.get(owner, 0) + 1
        held = {owner: count for owner, count in counts.items() if owner not in (NO_WORKLOAD, NOT_OBSERVED)} or counts
        return max(sorted(held), key=lambda owner: held[owner], default=NO_WORKLOAD)

    def owner(self, spot: Spot) -> str:
        """Whose work it is, by the most that is known."""
        if spot.gpu is None or spot.gpu.workload is None:
            return NO_WORKLOAD if spot.unobserved is None else NOT_OBSERVED
        verdict = self.verdict(spot)
        return owner_of(verdict) or NO_OWNER if verdict is not None else NO_OWNER


def fleet_map(nodes: Sequence[NodeUse], advice: Advice) -> FleetMap:
    return FleetMap(tuple(nodes), {w.id: w for w in advice.workloads})


def owner_of(w: WorkloadVerdict) -> str | None:
    """The most that is known of whose it is; None: nothing."""
    return w.owner.team or w.owner.namespace or w.owner.account or w.owner.user


def spots(node: NodeUse) -> tuple[Spot, ...]:
    """The GPUs of a node; where none is known, the places that it should have, one at least."""
    if node.gpus:
        return tuple(Spot(node, gpu) for gpu in node.gpus)
    return (Spot(node, None),) * min(max(node.gpu_count or 1, 1), 64)


def shortened(names: Sequence[str]) -> dict[str, str]:
    """Names without the beginning and the domain that all of them share, with a sign in their place, so that what tells
    them apart is seen."""
    if len(set(names)) < 2:
        return {name: name for name in names}
    prefix, suffix = _shared(names), _shared([name[::-1] for name in names])[::-1]
    head = max((n for n, letter in enumerate(prefix, 1) if letter in "-_."), default=0)
    tail = len(suffix) - suffix.find(".") if "." in suffix else 0
    head, tail = (cut if cut >= _WORTH_CUTTING else 0 for cut in (head, tail))
    told = {}
    for name in names:
        rest = name[head : len(name) - tail]
        told[name] = f"{CUT * bool(head)}{rest}{CUT * bool(tail)}" if rest else name
    return told


def _shared(names: Sequence[str]) -> str:
    """The beginning that all have."""
    first, last = min(names), max(names)
    return first[: next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def value_words(value: float | None, measure: MapMeasure) -> str:
    return "not measured" if value is None else f"{words.figure(_rounded(value))} {measure.unit}"


def _rounded(value: float) -> float:
    """To what a person needs: whole numbers from 10 on."""
    return round(value) if value >= 10 else float(f"{value:.2g}")


def _gpu_skus(node: NodeUse) -> str:
    return ", ".join(sorted({gpu.sku for gpu in node.gpus if gpu.sku}))
