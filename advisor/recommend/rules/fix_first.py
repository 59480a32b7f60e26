"""Work with a bottleneck that no other GPU removes: its input, its launches, one slow rank, a throttled clock."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ....rules.policy.labels import JOB_KINDS
from ....rules.policy.thresholds import WasteRule
from ...core.formatting import dated, usd
from ..finding import as_percent
from ..fleet import Fleet
from ..groups import Group
from ..rule import Verdict, Why, WorkloadRule, is_job, seen_too_short

# Of each: its cause; the column of `Verdicts.usage` with what it loses (`lost` itself, of the others the rest).
_CAUSES = {
    "host-input": ("waits for its input", "g"),
    "latency": ("waits for launches", "sm"),
    "straggler": ("waits for one slow rank", "lost"),
    "throttled": ("runs at a throttled clock", "clock_ratio"),
}
# The fix of each, as an imperative clause.
REMEDIES = {
    "host-input": "speed up its input: more loader processes, data on local disks, decoding on the GPU",
    "latency": "use larger kernels: CUDA graphs, compilation, larger batches, fused operators",
    "straggler": "repair or replace the slow GPU or its host",
    "throttled": "fix the cause of throttling: cooling, power limit or power supply",
}


class FixFirst(WorkloadRule):
    """Jobs with such a bottleneck in a good part of their busy time. A service whose engine rests lacks requests, and
    what people try out is small by nature: both are out of its scope."""

    id = "fix-first"
    waste = "slowed"
    fact = "slowed by a fault"
    answered_by = {"fix-first": 1}

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in super().scope(fleet) if group.kind in (*JOB_KINDS, "unknown"))

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        # Its own floor is hours: what recurs in runs of a night each is a fault in each of them.
        if group.observed_hours < limits.value("hours_min"):
            return seen_too_short(limits.value("hours_min"))
        label = max(REMEDIES, key=group.busy_share)
        share, least = group.busy_share(label), limits.value("share_min")
        by_network = group.busy_share("network") > limits.value("network_share_max")
        # Work that waits for its network looks like these: where the network is a bottleneck too, there is no finding.
        if share + group.busy_share("unknown") < least or (label in ("latency", "straggler") and by_network):
            return None
        if not is_job(group):
            return Why.KIND_UNKNOWN
        if share < least:
            return Why.BOTTLENECK_UNKNOWN
        lost = _lost_share(fleet, group, label)
        hours = group.gpu_hours * (share if lost is None else lost)
        cost = None if lost is None else fleet.cost(hours, group.nodes)
        text = "unknown" if lost is None else f"up to {hours:,.0f} GPU-hours"
        if cost is not None and (price := fleet.book.of(group.nodes[0])) is not None:
            text += f", {usd(cost)} in the window, {dated((price,))}"
        return self.found(
            fleet, group,
            evidence=(
                ("held_back", share, "share_min", "ratio of busy time"),
                ("lost_at_most", lost, None, "ratio of GPU-hours"),
                ("bottleneck", label, None, "label"),
            ),
            gpu_hours=hours, cost=cost,
            values={"share": as_percent(share), "bottleneck": label, "cause": _CAUSES[label][0]},
            sure=group.lead.bottleneck.confidence,
            after=f"Loss: {text}. Fix: {REMEDIES[label]}.",
            fault=label,
        )  # fmt: skip


def _lost_share(fleet: Fleet, group: Group, label: str) -> float | None:
    """The share of its GPU-hours that a fix recovers at most; None: the loss was not measured."""
    rows = fleet.verdicts.used(w.id for w in group.workloads)
    held, (_, column) = rows.floats("seconds"), _CAUSES[label]
    values = rows.floats(column) if column in rows else np.full(len(rows), math.nan)
    # Of a late rank, where no share was measured, the whole row was spent in a collective.
    lost = np.where(np.isfinite(values), values, 1.0) if label == "straggler" else 1 - values
    limited = (rows["bottleneck"] != "idle" if label == "host-input" else rows["bottleneck"] == label) & np.isfinite(
        lost
    )
    return float((np.clip(lost, 0.0, 1.0) * held)[limited].sum() / held.sum()) if held[limited].sum() > 0 else None
