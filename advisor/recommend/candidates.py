"""The same work on other nodes: each gated, predicted and priced, the best first. Services keep up with demand, so
their count follows the prediction; jobs keep their count and run longer or shorter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from ...rules.catalog.types import GpuSku, NodeSku, Price
from ..core.advice_types import COUNTED_RISKS, Rejected
from ..core.coded_text import CodedText, all_of, coded
from ..core.worth import HOURS_PER_MONTH
from .constraints import gates
from .fleet import Baseline, Fleet, nodes_for
from .prediction import Array, Prediction

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
    fleet: Fleet, base: Baseline, source: GpuSku, sold: Iterable[tuple[NodeSku, Price | None]]
) -> tuple[list[Candidate], dict[str, Rejected]]:
    """The nodes that nothing forbids, what saves at no great risk first, and by GPU why the others are rejected."""
    group, today = base.group, base.price
    assert today is not None

    @cache  # nodes that differ in neither have one answer
    def predicted(gpu: str, link: float | None) -> Prediction | CodedText:
        return fleet.predicted(source, fleet.catalog.gpus[gpu], group, (link_of(base.sku), link))

    def weighed(node: NodeSku, price: Price | None) -> Candidate | tuple[CodedText, ...]:
        """The candidate, or every reason against it."""
        if (gpu := fleet.catalog.gpu(node.gpu)) is None:
            return (no_figures(node.gpu),)
        closed = gates(group, source, base.sku, gpu, node)
        if closed or price is None:
            return closed or (coded("no-price-in-region", "no price in this region"),)
        if isinstance(prediction := predicted(gpu.name, link_of(node)), CodedText):
            return (prediction,)
        ratio = prediction.draw(fleet.draws("move", group.series_id, node.name), len(base.demand_draws))
        if group.phase == "training":
            gpus, held, hours = base.gpus, base.nodes, job_hours(fleet, base)
            there = nodes_for(gpus, node.gpu_count) * ratio
        elif base.sized_demand is None:
            return (coded("demand-not-measured", "no demand data"),)
        else:
            gpus = int(base.gpus_needed(np.array([base.sized_demand * prediction.median]))[0])
            held, hours = base.right_nodes_draws, HOURS_PER_MONTH
            there = nodes_for(base.gpus_needed(base.demand_draws * ratio), node.gpu_count)
        draws = (held * today.usd_per_hour - there * price.usd_per_hour) * hours
        return Candidate(node, price, prediction, gpus, int(nodes_for(gpus, node.gpu_count)), draws)

    weighed_targets = [(target, weighed(target, price)) for target, price in sold]
    kept = [candidate for _, candidate in weighed_targets if isinstance(candidate, Candidate)]
    rejected: dict[str, Rejected] = {}
    # One line a GPU: the node of it that least speaks against.
    for target, why in sorted(
        ((t, o) for t, o in weighed_targets if isinstance(o, tuple)), key=lambda entry: len(entry[1])
    ):
        rejected.setdefault(target.gpu, Rejected(target.name, all_of(why)))
    order = dict.fromkeys(target.gpu for target, _ in weighed_targets if target.gpu in rejected)
    return sorted(kept, key=lambda c: (not c.safe, -c.saving, c.node.name)), {gpu: rejected[gpu] for gpu in order}


def job_hours(fleet: Fleet, base: Baseline) -> float:
    """Hours a month in which a recurring job holds its nodes."""
    return min(fleet.monthly(base.group, base.group.gpu_hours / max(base.gpus, 1)), HOURS_PER_MONTH)


def no_figures(gpu: str) -> CodedText:
    return coded("gpu-not-in-catalog", "the catalog has no data for {gpu}", gpu=gpu)


def link_of(sku: NodeSku | None) -> float | None:
    """What each GPU of a node has of its fabric, bytes per second one way; None: unknown or none."""
    rate = sku.fabric.bytes_per_second if sku is not None else None
    return rate / max(sku.gpu_count, 1) if sku is not None and rate else None


def break_even(base: Baseline, candidate: Candidate) -> str | None:
    """At which demand (times today's peak) the candidate stops saving, or would begin to. None: at any, or none."""
    if base.group.phase == "training" or base.demand is None or base.price is None:
        return None
    demands = np.array(DEMANDS) * base.demand
    here = nodes_for(base.gpus_needed(demands), base.gpus_per_node) * base.price.usd_per_hour
    needed = base.gpus_needed(demands * candidate.prediction.median)
    there = nodes_for(needed, candidate.node.gpu_count) * candidate.price.usd_per_hour
    saves = dict(zip(DEMANDS, here - there > 1e-9, strict=True))
    # Where it is otherwise than at today's demand, next to it.
    below = max((d for d in DEMANDS if d < 1.0 and saves[d] != saves[1.0]), default=None)
    above = min((d for d in DEMANDS if d > 1.0 and saves[d] != saves[1.0]), default=None)
    if not saves[1.0]:
        near = f"at {below or above:.2f}x the current peak demand" if below or above else None
        return f"saves {near or f'at no demand up to {DEMANDS[-1]:g}x the current peak'}"
    places = [f"{where} {at:.2f}x" for where, at in (("above", above), ("at or below", below)) if at]
    return f"stops saving {' and '.join(places)} the current peak demand" if places else None
