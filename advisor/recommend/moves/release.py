"""Unused GPUs released: free ones, and those that a workload holds without using them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ....rules.catalog.types import Price
from ...classify.types import BareGpu, NodeFacts, Verdicts
from ...core.advice_types import Configuration, Interval, Recommendation, SavingsBaseline
from ...core.formatting import gpus as gpus_words
from ...core.formatting import listed
from ...core.timestamps import minute
from ..evidence import GAP_MAX, REST, EvidenceClaim, all_seen
from ..finding_context import FindingContext, node_words, series_label
from ..fleet_context import FleetContext, Saving, recommend
from ..groups import HOURS_PER_MONTH, Group
from ..move_context import DRAWS, DrawnRecommendation
from ..pricing import cash_of
from ..progress import MoveState, Observation, PredictionSnapshot, by_freed_nodes, cost_of_nodes_left, hours
from ..recommendation_kind import WEEK_HOURS, RecommendationKind, TitleSubject

# A GPU unused in this share of its node's hours is free, not between two jobs.
FREE_SHARE = 0.9
# Instances that divide a GPU wholly add up to all of it, but for rounding.
WHOLE = 0.999


def _build(fleet: FleetContext) -> Iterator[DrawnRecommendation]:
    """None of GPUs that are used at other times, or no longer held."""
    for found in fleet.found:
        if "release" not in found.answered_by:
            continue
        of = _bare(fleet, found) if found.group is None else _held(fleet, found, found.group)
        if of is not None:
            yield of


def _bare(fleet: FleetContext, found: FindingContext) -> DrawnRecommendation | None:
    node = found.nodes[0]
    if fleet.verdicts.inventory.nodes[node.node].end is not None:
        return None  # it left
    free = [
        b
        for b in found.bare
        if b.idle_hours >= FREE_SHARE * b.part * node.span_hours and b.last_ts >= fleet.verdicts.window.end - 86400
    ]
    if free_gpus(free) < node.gpu_count:
        # Somebody's memory lies on it, whom no label names. Of a whole node the gate says so.
        free = [b for b in free if b.held_hours <= GAP_MAX * b.hours]
    if not free or not node.span_hours:
        return None
    gpus = free_gpus(free)
    whole = 1 if gpus >= node.gpu_count else 0
    cut = sum(1 for b in free if b.part < 1)
    parts = [f"{len(free) - cut} {'GPU' if len(free) - cut == 1 else 'GPUs'}"] if len(free) > cut else []
    parts += [f"{cut} MIG {'instance' if cut == 1 else 'instances'}"] if cut else []
    who = f"{node.node} idle" if whole else f"{' and '.join(parts)} of {node.node} idle"
    what = f"{who} for {node.span_hours / 24:.0f} days."
    released, parts_held = frozenset(b.gpu_uuid for b in free), sum(b.part for b in free)
    return _option(fleet, found, None, (node,), released=released, gpus=parts_held, whole=whole, what=what)


def free_gpus(free: Sequence[BareGpu]) -> int:
    """How many GPUs are free as wholes: those that are no instances, and those whose instances are all of them free."""
    parts: dict[str, float] = {}
    for b in free:
        if b.parent_uuid is not None:
            parts[b.parent_uuid] = parts.get(b.parent_uuid, 0.0) + b.part
    return sum(1 for b in free if b.parent_uuid is None) + sum(1 for part in parts.values() if part >= WHOLE)


def _held(fleet: FleetContext, found: FindingContext, group: Group) -> DrawnRecommendation | None:
    if not group.current:
        return None
    released, count = frozenset(found.finding.gpus), len(found.finding.gpus)
    # Where another replica works on the same node, that stays.
    kept = {n for w in group.now if not released.issuperset(w.gpus) for n in w.nodes}
    whole = 0 if group.shared else sum(1 for n in found.nodes if n.node in group.alone - kept)
    one = "MIG instance" if group.sliced else "GPU"
    held = f"{count} {one}" + ("s" if count != 1 else "")
    them = "it" if count == 1 else "them"
    what = f"{series_label(group)} holds {held} on {node_words(found.nodes)} and does not use {them}."
    parts_held = sum(len(w.gpus) * w.gpu_part for w in group.now if released.issuperset(w.gpus))
    parts_held = parts_held if group.sliced else float(count)
    return _option(fleet, found, group, found.nodes, released=released, gpus=parts_held, whole=whole, what=what)


def _option(
    fleet: FleetContext,
    found: FindingContext,
    group: Group | None,
    nodes: Sequence[NodeFacts],
    *,
    released: frozenset[str],
    gpus: float,
    whole: int,
    what: str,
) -> DrawnRecommendation:
    node, names, scene = nodes[0], tuple(n.node for n in nodes), fleet.scene
    price = scene.book.saving_price(node)
    cash, saving = cash_of(price, whole, scene.at), None
    if cash is not None:
        month = whole * cash.price.usd_per_hour * HOURS_PER_MONTH
        saving = Saving.in_cash(cash, np.full(DRAWS, month), month)
        then = f"Return or shut down the {'node' if whole == 1 else f'{whole} nodes'}. {saving.sentence}"
    else:
        then = f"Release {_count(gpus)} for other work. {_no_cash(price, whole)}"
    # A node is switched off, or given back, as a whole: with every GPU of it.
    all_of_them = whole == len(nodes) and gpus >= sum(n.gpu_count for n in nodes) and all_seen(fleet.verdicts, names)
    watts = _drawn(fleet.verdicts, found, group) if all_of_them else None
    kwh = None if watts is None else watts * HOURS_PER_MONTH / 1000
    if kwh is not None:
        off = "This also" if saving is not None else "A shutdown until then"
        then += f" {off} saves {kwh:,.0f} kWh/month (measured idle power of the GPUs)."
    key = group.identity if group else f"{node.cluster}/{node.node}"
    return recommend(
        "release", key, node.node_sku, "nothing",
        findings=(found.finding.id,),
        workload=group.lead.id if group else None,
        # Of instances, the GPUs that they are parts of.
        source=Configuration(node.gpu_sku or node.gpu_name, node.node_sku, math.ceil(gpus - 1e-9)),
        target=Configuration(None, None, 0),
        text=f"{what} {then}", saving=saving, freed_gpu_hours_per_month=gpus * HOURS_PER_MONTH,
        energy_saving_kwh_per_month=None if kwh is None else Interval(kwh, kwh, kwh),
        risk="low" if group else "very-low",
        would_change_if=found.finding.would_change_if,
        yardstick=SavingsBaseline(nodes=tuple(sorted(names))),
        exclusive=f"release:{key}",
        claim=EvidenceClaim(names, REST, released, whole=saving is not None, unheld=group is None),
    )  # fmt: skip


def _drawn(verdicts: Verdicts, found: FindingContext, group: Group | None) -> float | None:
    """Watts that the GPUs drew at rest, all together; None: not measured of each of them.

    Only the mean over the window is known, so it applies to every month. Instances have no power of their own.
    """
    if group is None:
        watts = [b.power_mean_watts for b in found.bare if b.part >= 1 and b.power_mean_watts is not None]
        return sum(watts) if watts and len(watts) == len(found.bare) else None
    usage = verdicts.usage_of({w.id for w in group.now}, "bottleneck", "node", "gpu_uuid", "power_watts")
    rows = usage[usage["bottleneck"] == "idle"]
    each = rows.groupby(["node", "gpu_uuid"])["power_watts"].mean()
    told = len(each) == group.gpu_count and not rows["power_watts"].isna().any() and not group.sliced
    return float(each.sum()) if told else None


def _count(gpus: float) -> str:
    """GPUs to be freed; parts of them where instances are."""
    if abs(gpus - round(gpus)) < 0.005:
        return f"{round(gpus)} {'GPU' if round(gpus) == 1 else 'GPUs'}"
    return f"{gpus:.2f} GPUs (MIG instances)"


def _no_cash(price: Price | None, whole: int) -> str:
    if price is None:
        return "Savings unknown: no price for the node."
    if not whole:
        return "No cash savings: nodes are rented as a whole, and none becomes free."
    return f"No cash savings: the node is {price.basis} ({price.source}, {price.as_of})."


def _state(snapshot: PredictionSnapshot, seen: Observation, _: bool) -> MoveState | None:
    return by_freed_nodes(snapshot, seen) if snapshot.series_id is None else _let_go(snapshot, seen)


def _let_go(snapshot: PredictionSnapshot, seen: Observation) -> MoveState | None:
    now = seen.now(snapshot.series_id)
    if now:
        since = max(min(w.start for w in now), seen.start)
        return MoveState("source", since, hours(now, since), f"It holds {len({g for w in now for g in w.gpus})} GPUs.")
    left = max((w.end for w in seen.series(snapshot.series_id)), default=seen.start)
    # Released, or an agent that stopped reporting: the nodes must have reported since, or be gone.
    known = [n for n in snapshot.yardstick.nodes if not seen.gone(n)]
    if any(seen.last_seen(n) <= left + 3600 for n in known):
        return None
    what = f"no other workload on {listed(known)}" if known else "its nodes report no data"
    return MoveState("target", left, (seen.end - left) / 3600, f"It has held no GPU since {minute(left)}; {what}.")


def _title(r: Recommendation, of: TitleSubject) -> str:
    held = f" held by {of.workload}" if of.workload is not None else ""
    return f"Release {gpus_words(r.source.gpu_count, r.source.gpu_sku, 'idle')}{held}{of.place}"


KIND = RecommendationKind(
    actions=("release",),
    rank=2,
    build=_build,
    title=_title,
    words=lambda _: "release",
    subject="Releasing these GPUs",
    state=_state,
    cost=cost_of_nodes_left,
    unasked_hours=WEEK_HOURS,
    by_absence=True,
    frees=True,
)
