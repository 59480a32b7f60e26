"""A fleet before it is written: nodes, the workloads on them, when they ran, and what they truly are."""

from __future__ import annotations

from dataclasses import dataclass

from ...agent.model import Absence, Workload
from ...rules.policy.labels import BottleneckLabel, KindLabel
from .hardware import SimNode
from .load import Model


@dataclass(frozen=True, slots=True)
class TruePhase:
    """A span (Unix seconds) of a workload that changes what it does."""

    start: float
    end: float
    kind: KindLabel
    bottleneck: BottleneckLabel


@dataclass(frozen=True, slots=True)
class Truth:
    """What a workload is. `waste`: rule ids that hold for it, empty for none. For GPUs that nobody used
    `workload_id` is ``node:NODE``.

    `phases`: its spans, where its behaviour changes; kind and bottleneck are then those of most of its time.
    `suspect`: the GPU (uuid) that the others wait for; None: nobody waits for one.
    `sort`: what sort of its kind it is, in a word or two; empty where the scenario draws no sorts.
    """

    workload_id: str
    kind: KindLabel
    bottleneck: BottleneckLabel
    waste: tuple[str, ...] = ()
    phases: tuple[TruePhase, ...] = ()
    suspect: str | None = None
    sort: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """A workload on its GPUs of its nodes (name -> GPU indices), and the spans in which it ran (Unix seconds).

    One whose nodes do different things is placed once for each part, with the same workload and truth.
    """

    workload: Workload
    model: Model
    nodes: dict[str, tuple[int, ...]]
    runs: tuple[tuple[float, float], ...]
    basis: str
    truth: Truth


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that a node could not read for a while."""

    absence: Absence
    since: float
    until: float | None


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node with its flaws of telemetry: `gaps` are spans without an agent."""

    sim: SimNode
    gaps: tuple[tuple[float, float], ...]
    missing: tuple[Missing, ...]


@dataclass(frozen=True, slots=True)
class FleetPlan:
    nodes: tuple[PlannedNode, ...]
    placed: tuple[Placed, ...]
    bare: tuple[Truth, ...]  # nodes that nobody used

    def on(self, node: str) -> tuple[Placed, ...]:
        return tuple(p for p in self.placed if node in p.nodes)
