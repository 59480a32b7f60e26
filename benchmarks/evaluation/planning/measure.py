"""What a plan promised of its fleet, held against what the two weeks after it show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from skuwise.advisor.moves.base.workload_groups import Group
from skuwise.advisor.pipeline import Reasoned
from skuwise.advisor.plan.result import Plan

# A service that was sized by the 95th percentile of its demand is above its headroom in so many hours.
PROMISED_SHARE = 0.05
RESAMPLED = 400


@dataclass(frozen=True)
class ServiceOutcome:
    """Share of hours in which its load is above its headroom. `touched`: what the plan does with it; empty: nothing.

    `predicted`: on the demand of before, with the GPUs and the times of the plan, 90th percentile of days drawn anew.
    `measured` None: it is not there afterwards. `lacks_gpus`: that it would need beside those that it has then.
    """

    name: str
    touched: str
    gpus_before: int
    gpus_after: int
    before: float
    predicted_p50: float
    predicted_p90: float
    measured: float | None
    measured_p95: float | None
    headroom: float
    lacks_gpus: int = 0
    pool: str = ""

    @property
    def promised(self) -> float:
        """At most so many hours above its headroom: 5 %, or as many as before."""
        return max(PROMISED_SHARE, self.before)

    @property
    def beyond(self) -> bool:
        return self.measured is not None and self.measured > self.promised

    @property
    def beyond_interval(self) -> bool:
        """Beyond it, and beyond what days like those before would bring in one case of ten."""
        return self.measured is not None and self.measured > max(self.promised, self.predicted_p90)


def services(before: Reasoned, after: Reasoned, plan: Plan, known: Collection[str]) -> tuple[ServiceOutcome, ...]:
    """Of those series that truly are services (`known`) and whose load was measured."""
    recommendations = {r.id: r for r in before.advice.recommendations}
    steps: dict[str, list[tuple[str, str | None]]] = {}
    for s in plan.steps:
        if s.series is not None:
            steps.setdefault(s.series, []).append((s.action or s.kind, s.recommendation))
    later: dict[str, list[Group]] = {}
    for g in after.groups:
        later.setdefault(g.lead.series_id, []).append(g)
    out = []
    for g in before.groups:
        if g.lead.series_id not in known or not len(g.load):
            continue
        own = steps.get(g.series_id, [])
        if any(action == "release" for action, _ in own):
            continue
        found = [one for one in later.get(g.lead.series_id, []) if len(one.load)]
        now = found[0] if len(found) == 1 else None
        headroom = before.scene.of(g).headroom
        scale = 1.0
        for _, rec in own:
            r = recommendations.get(rec or "")
            if r is not None and r.target.gpu_count:
                scale = g.gpu_count / r.target.gpu_count * (r.time_ratio.p50 if r.time_ratio is not None else 1.0)
        drawn = _drawn(g, scale, headroom)
        lacks = 0
        if now is not None and now.demand_p95 is not None and any(a != "relocate" for a, _ in own):
            lacks = max(now.right_size(now.demand_p95, headroom) - now.gpu_count, 0)
        out.append(
            ServiceOutcome(
                name=g.lead.name, touched=" ".join(dict.fromkeys(a for a, _ in own)), gpus_before=g.gpu_count,
                gpus_after=now.gpu_count if now is not None else 0, before=float(np.mean(g.load > headroom)),
                predicted_p50=float(np.percentile(drawn, 50)), predicted_p90=float(np.percentile(drawn, 90)),
                measured=float(np.mean(now.load > headroom)) if now is not None else None,
                measured_p95=float(np.percentile(now.load, 95)) if now is not None else None, headroom=headroom,
                lacks_gpus=lacks, pool=now.nodes[0].node_sku or "" if now is not None and now.nodes else "",
            )
        )  # fmt: skip
    return tuple(out)


def _drawn(g: Group, scale: float, headroom: float) -> np.ndarray:
    """Share of hours above the headroom with days drawn anew."""
    days, day = np.unique(np.floor(g.load_ts / 86400.0), return_inverse=True)
    rng = np.random.default_rng(7)
    times = rng.multinomial(len(days), np.full(len(days), 1.0 / len(days)), size=RESAMPLED)
    above = np.bincount(day, weights=g.load * scale > headroom, minlength=len(days))
    return (times @ above) / np.maximum(times @ np.bincount(day, minlength=len(days)), 1)


def empty_nodes(found: Reasoned) -> frozenset[str]:
    """Nodes all of whose GPUs were held by nobody in the whole window, as the product measures it."""
    rows = found.verdicts.occupancy
    used = rows[(rows["class"] != "unallocated") & (rows["class"] != "unobserved") & (rows["gpu_hours"] > 0)]
    return frozenset(n.node for n in found.verdicts.nodes) - frozenset(used["node"].astype(str))


def again_needed(after: Reasoned, outcomes: Sequence[ServiceOutcome], kept: Mapping[str, int]) -> Mapping[str, int]:
    """Node SKU -> nodes that services need beyond those that are there (`kept`: node -> GPUs)."""
    out: dict[str, int] = {}
    lacking: dict[str, int] = {}
    for o in outcomes:
        if o.lacks_gpus:
            lacking[o.pool] = lacking.get(o.pool, 0) + o.lacks_gpus
    for sku, gpus in lacking.items():
        own = [n for n in after.verdicts.nodes if n.node_sku == sku and n.node in kept]
        # What is free in the hour of most use.
        free = sum(n.gpu_count for n in own) - _peak(after, frozenset(n.node for n in own))
        size = max((n.gpu_count for n in after.verdicts.nodes if n.node_sku == sku), default=1)
        if gpus > free:
            out[sku] = -(-(gpus - max(free, 0)) // size)
    return out


def _peak(found: Reasoned, nodes: frozenset[str]) -> int:
    moments = [w.start for w in found.verdicts.workloads]
    return max(
        (
            sum(len(w.gpus) for w in found.verdicts.workloads if w.start <= at < w.end and set(w.nodes) <= nodes)
            for at in moments
        ),
        default=0,
    )
