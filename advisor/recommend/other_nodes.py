"""The same work on other nodes: each gated, predicted and priced, the best first.

Services keep up with demand, so their count follows the prediction; jobs keep their count and run longer or shorter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...rules.catalog.types import GpuSku, NodeSku, Price
from ..core.advice_types import COUNTED_RISKS, Rejected
from ..core.coded_text import CodedText, all_of, coded
from .constraints import gates
from .groups import HOURS_PER_MONTH
from .move_context import Baseline, MoveContext, gpus_needed, nodes_for
from .prediction import Array, Link, Prediction, Refusal

# Demand at which a break-even is looked for, as shares of today's peak.
DEMANDS = tuple(round(0.05 * i, 2) for i in range(1, 61))


@dataclass(frozen=True)
class Candidate:
    """One node that nothing forbids, with its predicted time, the GPUs and nodes it takes, and its saving."""

    node: NodeSku
    price: Price
    prediction: Prediction
    gpus: int
    nodes: int
    draws: Array

    @cached_property
    def saving(self) -> float:
        return float(np.median(self.draws))

    @property
    def safe(self) -> bool:
        """Whether it saves at a risk that is recommended."""
        return self.saving > 0 and self.prediction.risk in COUNTED_RISKS


def candidates(
    scene: MoveContext, base: Baseline, source: GpuSku, sold: Iterable[tuple[NodeSku, Price | None]]
) -> tuple[list[Candidate], dict[str, Rejected]]:
    """The nodes that nothing forbids, what saves at no great risk first, and by GPU why the others are out of the
    question."""
    predicted: dict[tuple[str, Link], Prediction | Refusal] = {}
    rejected: dict[str, Rejected] = {}
    fewest: dict[str, int] = {}
    kept: list[Candidate] = []
    for target, price in sold:
        candidate = _weigh(scene, base, source, target, price, predicted)
        if isinstance(candidate, tuple):
            # One line a GPU: the node of it that least speaks against.
            if target.gpu not in fewest or len(candidate) < fewest[target.gpu]:
                fewest[target.gpu] = len(candidate)
                rejected[target.gpu] = Rejected(target.name, all_of(candidate))
        else:
            kept.append(candidate)
    kept.sort(key=lambda c: (not c.safe, -c.saving, c.node.name))
    return kept, rejected


def _weigh(  # noqa: PLR0917
    scene: MoveContext,
    base: Baseline,
    source: GpuSku,
    target: NodeSku,
    price: Price | None,
    predicted: dict[tuple[str, Link], Prediction | Refusal],
) -> Candidate | tuple[CodedText, ...]:
    """The candidate, or every reason against it.

    `predicted`: what is known already of a GPU behind a link, for nodes that differ in neither.
    """
    gpu = scene.catalog.gpu(target.gpu)
    if gpu is None:
        return (no_figures(target.gpu),)
    closed = gates(base.group, source, base.sku, gpu, target)
    if closed:
        return closed
    if price is None:
        return (coded("no-price-in-region", "no price in this region"),)
    link = link_of(target)
    prediction = predicted.get((gpu.name, link))
    if prediction is None:
        prediction = scene.predicted(source, gpu, base.group, (link_of(base.sku), link))
        predicted[gpu.name, link] = prediction
    if isinstance(prediction, Refusal):
        return (prediction.reason,)
    ratio = prediction.draw(scene.draws("move", base.group.series_id, target.name), len(base.demand_draws))
    assert base.price is not None
    if base.group.phase == "training":
        gpus = base.gpus
        nodes = int(nodes_for(gpus, target.gpu_count))
        here = base.nodes * base.price.usd_per_hour
        draws = (here - nodes * price.usd_per_hour * ratio) * job_hours(scene, base)
    else:
        if base.sized_demand is None:
            return (coded("demand-not-measured", "no demand data"),)
        gpus = int(gpus_needed(base, np.array([base.sized_demand * prediction.median]), scene.headroom)[0])
        nodes = int(nodes_for(gpus, target.gpu_count))
        drawn = nodes_for(gpus_needed(base, base.demand_draws * ratio, scene.headroom), target.gpu_count)
        draws = (base.right_nodes_draws * base.price.usd_per_hour - drawn * price.usd_per_hour) * HOURS_PER_MONTH
    return Candidate(target, price, prediction, gpus, nodes, draws)


def job_hours(scene: MoveContext, base: Baseline) -> float:
    """Hours a month in which a recurring job holds its nodes, from its share of the window."""
    held = base.group.gpu_hours / max(base.gpus, 1)
    return HOURS_PER_MONTH * min(held / scene.window_hours, 1.0) if scene.window_hours > 0 else 0.0


def no_figures(gpu: str) -> CodedText:
    return coded("gpu-not-in-catalog", "the catalog has no data for {gpu}", gpu=gpu)


def link_of(sku: NodeSku | None) -> Link:
    """What each GPU of a node has of its fabric."""
    if sku is None or not sku.fabric.bytes_per_second:
        return Link(None)
    return Link(sku.fabric.bytes_per_second / max(sku.gpu_count, 1))


def break_even(scene: MoveContext, base: Baseline, candidate: Candidate) -> str | None:
    """At which demand (times today's peak) the candidate stops saving, or would begin to. None: at any, or none."""
    if base.group.phase == "training" or base.demand is None or base.price is None:
        return None
    here = _cost(base, np.array(DEMANDS), base.demand, scene.headroom, base.gpus_per_node) * base.price.usd_per_hour
    there = (
        _cost(
            base, np.array(DEMANDS), base.demand * candidate.prediction.median, scene.headroom, candidate.node.gpu_count
        )
        * candidate.price.usd_per_hour
    )
    saves = here - there > 1e-9
    today = DEMANDS.index(1.0)
    if saves[today]:
        above = next((d for d, s in zip(DEMANDS[today:], saves[today:], strict=True) if not s), None)
        below = next((d for d, s in zip(DEMANDS[today::-1], saves[today::-1], strict=True) if not s), None)
        # From where it stops saving.
        told = [f"above {above:.2f}x" if above else "", f"at or below {below:.2f}x" if below else ""]
        limits = " and ".join(t for t in told if t)
        return f"stops saving {limits} the current peak demand" if limits else None
    lower = [d for d, s in zip(DEMANDS[:today], saves[:today], strict=True) if s]
    higher = [d for d, s in zip(DEMANDS[today:], saves[today:], strict=True) if s]
    if lower:
        return f"saves at {max(lower):.2f}x the current peak demand"
    if higher:
        return f"saves at {min(higher):.2f}x the current peak demand"
    return f"saves at no demand up to {DEMANDS[-1]:g}x the current peak"


def _cost(base: Baseline, demands: Array, peak: float, headroom: float, per_node: int) -> Array:
    nodes = nodes_for(gpus_needed(base, demands * peak, headroom), per_node)
    assert math.isfinite(float(nodes.sum()))
    return nodes
