"""Where a recommendation stands by the telemetry: still at its source, at its target, or between the two.

What kinds of recommendations share; each kind tells its own state from these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ...core.advice_types import Configuration
from ...core.formatting import listed
from ...core.timestamps import minute
from ...core.verdict_types import WorkloadVerdict
from .observation import Observation, PredictionSnapshot, hours, since_last

Place = Literal["source", "target", "between"]
Fits = Callable[[WorkloadVerdict], bool]


@dataclass(frozen=True, slots=True)
class MoveState:
    """`since`: from then on (Unix seconds); `hours`: observed there since; `told`: the evidence, a sentence."""

    place: Place
    since: float
    hours: float
    told: str


def stands_on(there: Configuration) -> Fits:
    """Tells whether a run is on these nodes and GPUs."""
    return lambda w: w.node_sku == there.node_sku and w.gpu_sku == there.gpu_sku


def by_runs(snapshot: PredictionSnapshot, seen: Observation, there: Fits, here: Fits, name: str) -> MoveState | None:
    """By where the runs of its series are. `name`: of what is at the target, in words."""
    now, runs = seen.now(snapshot.series_id), seen.series(snapshot.series_id)
    if not now:
        return None
    arrived = [w for w in now if there(w)]
    if len(arrived) == len(now):
        since, own = since_last(runs, there, seen.start)
        return MoveState("target", since, hours(own, since), f"It has run only on {name} since {minute(since)}.")
    if all(here(w) for w in now):
        since, own = since_last(runs, here, seen.start)
        return MoveState("source", since, hours(own, since), f"It has run on its original nodes since {minute(since)}.")
    since = min((w.start for w in arrived), default=seen.end)
    return MoveState("between", since, hours(arrived), f"{len(arrived)} of its {len(now)} runs are on {name}.")


def by_nodes(snapshot: PredictionSnapshot, seen: Observation) -> MoveState | None:
    """By the kind of node that the runs of its series are on."""
    there, here = snapshot.target, snapshot.source
    if there.node_sku is None or there.node_sku == here.node_sku:
        return None
    return by_runs(snapshot, seen, stands_on(there), stands_on(here), there.node_sku)


def by_freed_nodes(snapshot: PredictionSnapshot, seen: Observation) -> MoveState | None:
    """Nodes given back or emptied (consolidate), or given back or put to use (release of nodes without work)."""
    nodes, fewer = snapshot.yardstick.nodes, snapshot.source.gpu_count - snapshot.target.gpu_count
    if not nodes:
        return None
    pooled = snapshot.target.gpu_count > 0  # so many GPUs of the pool go on working
    wanted = max(round(fewer / (snapshot.source.gpu_count / len(nodes))), 1) if pooled else len(nodes)
    free: list[tuple[float, str]] = []
    for node in nodes:
        holders = seen.holders(node)
        if seen.gone(node):
            free.append((seen.last_seen(node), f"{node} is gone"))
        elif pooled and not holders and not seen.silent(node):
            left = max((w.end for w in seen.on_node.get(node, ())), default=seen.start)
            free.append((left, f"{node} is empty"))
        elif not pooled and holders and _filled(node, seen):
            free.append((max(min(w.start for w in holders), seen.start), f"{node} is in use"))
    if len(free) < wanted:
        # Nobody knows whether one that is silent is empty, or where one is that is not shown at all.
        unsure = [n for n in nodes if seen.silent(n) and (pooled or n not in seen.nodes)]
        if len(free) + len(unsure) >= wanted:
            return None
        still = [n for n in nodes if not seen.gone(n)]
        return MoveState("source", seen.start, (seen.end - seen.start) / 3600, f"No change: {listed(still)}.")
    free = sorted(free)[:wanted]
    since = free[-1][0]
    told = f"Since {minute(since)}: {listed([what for _, what in free])}."
    return MoveState("target", since, (seen.end - since) / 3600, told)


def _filled(node: str, seen: Observation) -> bool:
    return len({g for w in seen.holders(node) for g in w.gpus}) >= seen.nodes[node].gpu_count
