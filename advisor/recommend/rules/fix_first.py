"""Work with a bottleneck that no other GPU removes: its input, its launches, one slow rank, a throttled clock."""

from __future__ import annotations

import math

import numpy as np

from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ...core.formatting import dated, usd
from ..finding_context import FindingContext
from ..groups import Group
from ..rule_context import RuleContext, RuleDescription, RuleResult, as_percent, busy_share, finding_of, is_job

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


def fix_first(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Jobs with such a bottleneck in a good part of their busy time."""
    found: list[FindingContext] = []
    # Its own floor is hours: what recurs in runs of a night each is a fault in each of them.
    for group in scope.at_work:
        # A service whose engine rests lacks requests; what people try out is small by nature.
        if not is_job(group) or group.observed_hours < rule.value("hours_min"):
            continue
        shares = {label: busy_share(group, label) for label in REMEDIES}
        label = max(shares, key=lambda name: shares[name])
        if label in _LIKE_THE_NETWORK and busy_share(group, "network") > rule.value("network_share_max"):
            continue
        if shares[label] >= rule.value("share_min"):
            found.append(_finding(scope, rule, group, label, shares[label]))
    return found, []


def lost_share(scope: RuleContext, group: Group, label: str) -> float | None:
    """The share of its GPU-hours that a fix recovers at most; None: the loss was not measured."""
    usage = scope.verdicts.usage_of(
        {w.id for w in group.workloads}, "seconds", "g", "sm", "lost", "clock_ratio", "bottleneck"
    )
    held = usage["seconds"].to_numpy(float)
    total = held.sum()
    if total <= 0:
        return None

    def column(name: str) -> np.ndarray:
        return usage[name].to_numpy(float) if name in usage else np.full(len(usage), math.nan)

    busy = usage["bottleneck"].to_numpy() != "idle"
    with np.errstate(invalid="ignore"):
        lost = {
            "host-input": 1 - column("g"),
            "latency": 1 - column("sm"),
            # Where no share was measured, the whole row was spent in a collective.
            "straggler": np.where(np.isfinite(column("lost")), column("lost"), 1.0),
            "throttled": 1 - column("clock_ratio"),
        }[label]
    here = busy & (usage["bottleneck"].to_numpy() == label) if label != "host-input" else busy
    known = here & np.isfinite(lost)
    if not known.any():
        return None
    return float((np.clip(lost, 0.0, 1.0) * held)[known].sum() / total)


def _finding(scope: RuleContext, rule: WasteRule, group: Group, label: str, share: float) -> FindingContext:
    lost = lost_share(scope, group, label)
    hours = group.gpu_hours * (share if lost is None else lost)
    cost = None if lost is None else scope.cost(hours, group.nodes)
    price = scope.book.of(group.nodes[0])
    told = (
        "Loss: unknown."
        if lost is None
        else f"Loss: up to {hours:,.0f} GPU-hours"
        + (f", {usd(cost)} in the window, {dated((price,))}." if cost is not None and price is not None else ".")
    )
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("held_back", share, rule.value("share_min"), "ratio of busy time"),
            Evidence("lost_at_most", lost, None, "ratio of GPU-hours"),
            Evidence("bottleneck", label, None, "label"),
        ),
        gpu_hours=hours,
        cost=cost,
        values={"share": as_percent(share), "bottleneck": label, "cause": _CAUSES[label]},
        sure=group.lead.bottleneck.confidence,
        after=f"{told} Fix: {REMEDIES[label]}.",
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes, fault=label)


RULE = RuleDescription(
    id="fix-first", rank=5, fact="slowed by a fault", judge=fix_first, answered_by={"fix-first": 1}, waste="none"
)
