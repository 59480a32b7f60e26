"""Unused GPUs released: free ones, and those that a workload holds without using them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator

from ...core.advice_types import Configuration, EvidenceClaim, Interval, Recommendation, SavingsBaseline
from ...core.formatting import counted, gpus, listed
from ...core.timestamps import minute
from ...core.worth import HOURS_PER_MONTH
from ..evidence import GAP_MAX, REST, all_seen
from ..finding import Found, node_words, series_label
from ..fleet import Fleet
from ..groups import Group
from ..move import WEEK_HOURS, Fields, Move, Saving, recommend
from ..progress import MoveState, Observation, PredictionSnapshot, hours

# Instances that divide a GPU wholly add up to all of it, but for rounding.
WHOLE = 0.999


class Release(Move):
    actions = ("release",)
    subject = "Releasing these GPUs"
    unasked_hours = WEEK_HOURS
    by_absence = True
    frees = True

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        """None of GPUs that are used at other times, or no longer held."""
        for waste in fleet.waste:
            if "release" in waste.answered_by:
                r = _bare(fleet, waste) if waste.group is None else _held(fleet, waste, waste.group)
                if r is not None:
                    yield r

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        held = f" held by {of}" if r.workload is not None else ""
        return f"Release {gpus(r.source.gpu_count, r.source.gpu_sku, 'idle')}{held}{at}"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        if snapshot.series_id is None:
            return super().progress(snapshot, seen, proposed)
        if now := seen.now(snapshot.series_id):
            since, held = max(min(w.start for w in now), seen.start), len({g for w in now for g in w.gpus})
            return MoveState("source", since, hours(now, since), f"It holds {held} GPUs.")
        left = max((w.end for w in seen.series(snapshot.series_id)), default=seen.start)
        # Released, or an agent that stopped reporting: the nodes must have reported since, or be gone.
        present = [n for n in snapshot.yardstick.nodes if not seen.gone(n)]
        if any(seen.last_seen(n) <= left + 3600 for n in present):
            return None
        what = f"no other workload on {listed(present)}" if present else "its nodes report no data"
        return MoveState("target", left, (seen.end - left) / 3600, f"It has held no GPU since {minute(left)}; {what}.")


def _bare(fleet: Fleet, waste: Found) -> Recommendation | None:
    node = waste.nodes[0]
    day_ago = fleet.verdicts.window.end - 86400
    # A GPU unused in this share of its node's hours is free, not between two jobs.
    free = [b for b in waste.bare if b.idle_hours >= 0.9 * b.part * node.span_hours and b.last_ts >= day_ago]
    gpus_free: dict[str, float] = defaultdict(float)
    for b in free:
        gpus_free[b.parent_uuid or b.gpu_uuid] += b.part
    if not (whole := sum(part >= WHOLE for part in gpus_free.values()) >= node.gpu_count):
        # Somebody's memory lies on it, whom no label names. Of a whole node the gate says so.
        free = [b for b in free if b.held_hours <= GAP_MAX * b.hours]
    left = fleet.verdicts.inventory.nodes[node.node].end is not None
    if left or not free or not node.span_hours:
        return None
    cut = sum(1 for b in free if b.part < 1)
    counts = [counted(n, of) for n, of in ((len(free) - cut, "GPU"), (cut, "MIG instance")) if n]
    who = node.node if whole else f"{' and '.join(counts)} of {node.node}"
    what = f"{who} idle for {node.span_hours / 24:.0f} days."
    return _released(fleet, waste, [b.gpu_uuid for b in free], sum(b.part for b in free), whole=int(whole), what=what)


def _held(fleet: Fleet, waste: Found, group: Group) -> Recommendation | None:
    if not group.current:
        return None
    released, count = frozenset(waste.finding.gpus), len(waste.finding.gpus)
    # Where another replica works on the same node, that stays.
    kept = {n for w in group.now if not released.issuperset(w.gpus) for n in w.nodes}
    whole = 0 if group.shared else sum(1 for n in waste.nodes if n.node in group.alone - kept)
    held = f"{counted(count, 'MIG instance' if group.sliced else 'GPU')} on {node_words(waste.nodes)}"
    what = f"{series_label(group)} holds {held} and does not use {'it' if count == 1 else 'them'}."
    free = float(count)
    if group.sliced:
        free = sum(len(w.gpus) * w.gpu_part for w in group.now if released.issuperset(w.gpus))
    return _released(fleet, waste, released, free, whole=whole, what=what)


def _released(
    fleet: Fleet, waste: Found, uuids: Collection[str], free: float, *, whole: int, what: str
) -> Recommendation:
    """`uuids`: of the GPUs or instances, `free` GPUs in all; `whole`: nodes that fall free; `what`: a sentence."""
    group, nodes, node = waste.group, waste.nodes, waste.nodes[0]
    names, price = tuple(n.node for n in nodes), fleet.book.saving_price(node)
    saving = Saving.of_nodes(price, whole, fleet.at, whole, whole)
    parted = abs(free - round(free)) >= 0.005
    count = f"{free:.2f} GPUs (MIG instances)" if parted else counted(round(free), "GPU")
    why = "No cash savings: nodes are rented as a whole, and none becomes free"
    if price is None:
        why = "Savings unknown: no price for the node"
    elif whole:
        why = f"No cash savings: the node is {price.basis} ({price.source}, {price.as_of})"
    then = f"Release {count} for other work. {why}."
    if saving is not None:
        then = f"Return or shut down the {'node' if whole == 1 else f'{whole} nodes'}. {saving.sentence}"
    kwh = None
    # A node is switched off, or given back, as a whole: with every GPU of it.
    off = whole == len(nodes) and free >= sum(n.gpu_count for n in nodes) and all_seen(fleet.verdicts, names)
    if off and (drawn := _drawn(fleet, waste)) is not None:
        kwh = drawn * HOURS_PER_MONTH / 1000
        also = "This also" if saving is not None else "A shutdown until then"
        then += f" {also} saves {kwh:,.0f} kWh/month (measured idle power of the GPUs)."
    key = group.identity if group else f"{node.cluster}/{node.node}"
    return recommend(
        "release", key, node.node_sku, "nothing",
        findings=(waste.finding.id,), workload=group.lead.id if group else None,
        # Of instances, the GPUs that they are parts of.
        source=Configuration(node.gpu_sku or node.gpu_name, node.node_sku, math.ceil(free - 1e-9)),
        target=Configuration(None, None, 0),
        text=f"{what} {then}", saving=saving, freed_gpu_hours_per_month=free * HOURS_PER_MONTH,
        energy_saving_kwh_per_month=None if kwh is None else Interval(kwh, kwh, kwh),
        risk="low" if group else "very-low", would_change_if=waste.finding.would_change_if,
        yardstick=SavingsBaseline(nodes=tuple(sorted(names))), claims=(f"release:{key}",),
        needs=EvidenceClaim(names, REST, frozenset(uuids), whole=saving is not None, unheld=group is None),
    )  # fmt: skip


def _drawn(fleet: Fleet, waste: Found) -> float | None:
    """Watts that the GPUs drew at rest, all together; None: not measured of each. Instances have no power of their
    own."""
    if (group := waste.group) is None:
        watts = [b.power_mean_watts for b in waste.bare if b.part >= 1 and b.power_mean_watts is not None]
        return sum(watts) if watts and len(watts) == len(waste.bare) else None
    usage = fleet.verdicts.usage_of({w.id for w in group.now}, "bottleneck", "node", "gpu_uuid", "power_watts")
    rows = usage[usage["bottleneck"] == "idle"]
    each = rows.groupby(["node", "gpu_uuid"])["power_watts"].mean()
    is_measured = len(each) == group.gpu_count and not rows["power_watts"].isna().any() and not group.sliced
    return float(each.sum()) if is_measured else None
