"""Work with a bottleneck that no other GPU removes: its input, its launches, one slow rank, a throttled clock."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ....rules.policy.labels import JOB_KINDS
from ...core.advice_types import Evidence
from ...core.formatting import dated, usd
from ..finding import as_percent
from ..fleet import Fleet
from ..groups import Group
from ..rule import Verdict, Why, WorkloadRule, busy_share, finding_of, is_job, seen_too_short

# The fix of each, as an imperative clause.
REMEDIES = {
    "host-input": "speed up its input: more loader processes, data on local disks, decoding on the GPU",
    "latency": "use larger kernels: CUDA graphs, compilation, larger batches, fused operators",
    "straggler": "repair or replace the slow GPU or its host",
    "throttled": "fix the cause of throttling: cooling, power limit or power supply",
}
_CAUSES = {
    "host-input": "waits for its input",
    "latency": "waits for launches",
    "straggler": "waits for one slow rank",
    "throttled": "runs at a throttled clock",
}
# Work that waits for its network looks like these: where the network is a bottleneck too, there is no finding.
_LIKE_THE_NETWORK = ("latency", "straggler")


class FixFirst(WorkloadRule):
    """Jobs with such a bottleneck in a good part of their busy time. A service whose engine rests lacks requests, and
    what people try out is small by nature: both are out of its scope."""

    id = "fix-first"
    waste = "slowed"
    fact = "slowed by a fault"
    answered_by = {"fix-first": 1}

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in super().scope(fleet) if group.kind in (*JOB_KINDS, "unknown"))

    def judge(self, fleet: Fleet, group: Group) -> Verdict:
        limits = self.limits(fleet, group)
        # Its own floor is hours: what recurs in runs of a night each is a fault in each of them.
        if group.observed_hours < limits.value("hours_min"):
            return seen_too_short(limits.value("hours_min"))
        shares = {name: busy_share(group, name) for name in REMEDIES}
        label = max(shares, key=lambda name: shares[name])
        share, least = shares[label], limits.value("share_min")
        by_network = busy_share(group, "network") > limits.value("network_share_max")
        if share + busy_share(group, "unknown") < least or (label in _LIKE_THE_NETWORK and by_network):
            return None
        if not is_job(group):
            return Why.KIND_UNKNOWN
        if share < least:
            return Why.BOTTLENECK_UNKNOWN
        lost = lost_share(fleet, group, label)
        hours = group.gpu_hours * (share if lost is None else lost)
        cost = None if lost is None else fleet.cost(hours, group.nodes)
        price = fleet.book.of(group.nodes[0])
        told = "Loss: unknown." if lost is None else f"Loss: up to {hours:,.0f} GPU-hours."
        if cost is not None and price is not None:
            told = f"{told.rstrip('.')}, {usd(cost)} in the window, {dated((price,))}."
        finding = finding_of(
            fleet, limits, group,
            evidence=(
                Evidence("held_back", share, least, "ratio of busy time"),
                Evidence("lost_at_most", lost, None, "ratio of GPU-hours"),
                Evidence("bottleneck", label, None, "label"),
            ),
            gpu_hours=hours, cost=cost,
            values={"share": as_percent(share), "bottleneck": label, "cause": _CAUSES[label]},
            sure=group.lead.bottleneck.confidence,
            after=f"{told} Fix: {REMEDIES[label]}.",
        )  # fmt: skip
        return self.found(finding, group, group.nodes, fault=label)


def lost_share(fleet: Fleet, group: Group, label: str) -> float | None:
    """The share of its GPU-hours that a fix recovers at most; None: the loss was not measured."""
    usage = fleet.verdicts.usage_of(
        {w.id for w in group.workloads}, "seconds", "g", "sm", "lost", "clock_ratio", "bottleneck"
    )
    held = usage["seconds"].to_numpy(float)
    total = held.sum()
    if total <= 0:
        return None
    column = {"host-input": "g", "latency": "sm", "straggler": "lost", "throttled": "clock_ratio"}[label]
    values = usage[column].to_numpy(float) if column in usage else np.full(len(usage), math.nan)
    # Of a late rank, where no share was measured, the whole row was spent in a collective.
    lost = np.where(np.isfinite(values), values, 1.0) if label == "straggler" else 1 - values
    bottleneck = usage["bottleneck"].to_numpy()
    here = bottleneck != "idle" if label == "host-input" else bottleneck == label
    known = here & np.isfinite(lost)
    if not known.any():
        return None
    return float((np.clip(lost, 0.0, 1.0) * held)[known].sum() / total)
