"""Replicas that are alike: which of them runs where makes no difference, so that they are counted, not named."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from .mig import placeable
from .problem import PlanNode, PlanOption, PlanSeries, PlanUnit, Problem, Slices

# Host CPU is counted in tenths of a core, host memory in tenths of a GB.
CPU_TENTH, MEMORY_TENTH = 0.1, 1e8


def needs(value: float, step: float) -> int:
    return math.ceil(value / step - 1e-6)


def there(value: float, step: float) -> int:
    return math.floor(value / step + 1e-6)


@dataclass(frozen=True, eq=False)
class Kind:
    """Replicas of one series that are alike and may move, or that an option starts. `gpus`: whole ones. `cpu`,
    `memory`: tenths of a core and of a GB. `gpu_mem`: bytes that each GPU must have at least; None: no such limit, or
    not known. `sku`: GPU SKU that it runs on now. `homes`: node -> its units there today."""

    series: PlanSeries
    option: PlanOption | None
    gpus: int
    cpu: int
    memory: int
    gpu_mem: float | None
    sku: str | None
    linked: bool
    mig: Slices | None
    homes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(len(units) for units in self.homes.values()) if self.option is None else self.option.started

    @property
    def most(self) -> int:
        """Replicas of it that may arrive on one node, at most: where a node holds more than `apart` today, as many."""
        if self.option is not None:
            return apart(self.series, self.option)
        crowd = Counter(node for u in self.series.units for node in u.gpus)
        return max(self.series.apart, *crowd.values())

    @property
    def pool(self) -> str:
        return self.series.pool if self.option is None else self.option.pool or ""

    @property
    def size(self) -> int:
        """GPUs that it needs free on a node to start there."""
        return 1 if self.mig is not None else self.gpus


@dataclass(frozen=True, eq=False)
class Anchor:
    """Units of a series that stay where they are or end. `parts`: node -> GPUs, CPU, memory of one of them there."""

    series: PlanSeries
    parts: Mapping[str, tuple[int, int, int]]
    linked: bool
    mig: Slices | None
    pinned: bool
    units: tuple[str, ...]

    @property
    def spread(self) -> bool:
        return len(self.parts) > 1

    @property
    def size(self) -> int:
        """GPUs of a unit on one node; 0 where it is on several."""
        if self.spread:
            return 0
        return 1 if self.mig is not None else next(iter(self.parts.values()))[0]


def _gpus(unit: PlanUnit, gpus: int) -> int:
    """An instance whose profile nobody knows how to place holds a GPU."""
    if unit.mig is None:
        return gpus
    return 0 if placeable(unit.mig) else 1


def _memory_each(bytes_each: float | None, mig: Slices | None) -> float | None:
    return bytes_each if bytes_each is None or mig is None else bytes_each * 8 / mig[1]


def kinds_of(problem: Problem, series: PlanSeries) -> list[Kind]:
    found: dict[tuple, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for u in series.units:
        if not u.movable:
            continue
        home = problem.by_node[u.node]
        need = _memory_each(u.gpu_mem_bytes_each, u.mig)
        key = (
            _gpus(u, u.gpu_count), needs(u.cpu_cores, CPU_TENTH), needs(u.host_mem_bytes, MEMORY_TENTH),
            need if need is not None else home.gpu_mem_bytes, home.gpu_sku, u.linked, u.mig,
        )  # fmt: skip
        found[key][u.node].append(u.id)
    return [
        Kind(series, None, *key, homes={node: tuple(sorted(units)) for node, units in sorted(homes.items())})
        for key, homes in found.items()
    ]


def started_by(problem: Problem, option: PlanOption) -> Kind:
    gpus = 1 if option.mig is not None and not placeable(option.mig) else option.gpus_each_whole
    return Kind(
        problem.by_series[option.series], option, gpus, needs(option.cpu_cores_each, CPU_TENTH),
        needs(option.host_mem_bytes_each, MEMORY_TENTH), _memory_each(option.gpu_mem_bytes_each, option.mig), None,
        option.linked, option.mig,
    )  # fmt: skip


def anchors_of(series: PlanSeries) -> list[Anchor]:
    found: dict[tuple, list[str]] = defaultdict(list)
    for u in series.units:
        if u.movable:
            continue
        share = len(u.gpus)
        cpu, memory = needs(u.cpu_cores / share, CPU_TENTH), needs(u.host_mem_bytes / share, MEMORY_TENTH)
        parts = tuple((node, (_gpus(u, gpus), cpu, memory)) for node, gpus in u.gpus.items())
        found[parts, u.linked, u.mig, u.pinned].append(u.id)
    return [
        Anchor(series, dict(parts), linked, mig, pinned, tuple(units))
        for (parts, linked, mig, pinned), units in found.items()
    ]


def may_enter(problem: Problem, kind: Kind, node: PlanNode) -> bool:
    """Whether a node could take a replica if nothing else were there (rules 3, 4, 7, 8, 9 and 11)."""
    if node.pool != kind.pool or node.held is not None or kind.gpus > node.gpus:
        return False
    if kind.mig is not None and not (node.mig and placeable(kind.mig)):
        return False
    if kind.linked and kind.gpus > max(node.islands, default=node.gpus):
        return False
    alien = node.name in problem.closed or (node.tenants and kind.series.tenant not in node.tenants)
    if problem.tenants_apart and alien:
        return False
    if node.gpu_mem_bytes is None:
        return kind.option is not None or kind.sku == node.gpu_sku
    if kind.gpu_mem is None:
        return kind.option is not None or kind.sku == node.gpu_sku
    return node.gpu_mem_bytes >= kind.gpu_mem


def apart(series: PlanSeries, option: PlanOption | None) -> int:
    """Replicas that one node may hold: where an option leaves others, no larger share is lost with a node than now."""
    if option is None:
        return series.apart
    return max(1, series.apart * option.left // max(len(series.units), 1))
