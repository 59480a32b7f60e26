"""NVLink that nothing crosses: work on single GPUs of a node that was built, and is paid, for more."""

from __future__ import annotations

import numpy as np

from ....rules.catalog.fabric_premium import Premium
from ....rules.policy.labels import TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ...core.formatting import dated, usd
from ..finding_context import FindingContext
from ..groups import Group
from ..pricing import nvlink_premium
from ..rule_context import (
    ReferenceLine,
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    finding_of,
    seen_at_work,
)

# What a link carries in the mean bounds how long it is used: at a share of the limit so small, it is above the limit
# for half a per cent of the seconds at most.
_REST = 0.005


def idle_nvlink(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Groups at work on nodes whose NVLink was silent in all but a few seconds, whoever ran there, or between whose own
    GPUs it was."""
    found: list[FindingContext] = []
    limit = rule.value("util_p995_max")
    for group in scope.seen:
        # For work of unknown kind on several GPUs, training is not excluded.
        if group.kind in (*TRAINING_KINDS, "unknown") and group.gpus_per_replica > 1:
            continue
        if not all(scope.has_nvlink(n) for n in group.nodes):
            continue
        peaks = [n.nvlink_util_p995 for n in group.nodes]
        known = [p for p in peaks if p is not None]
        # Some hundred MB/s are below a hundredth of it, and all that experts or a small model's shards exchange.
        if group.exchanges:
            continue
        own = _own_mean(group)
        # Where the node's NVLink is another's, its own GPUs may be silent still.
        alone = own is not None and own <= limit * _REST
        silent = bool(known) and max(known) <= limit
        if len(known) < len(peaks) or not (silent or alone) or not seen_at_work(group, rule):
            continue
        if min(n.evidence_hours for n in group.nodes) < rule.value("coverage_hours"):
            continue
        premiums = [nvlink_premium(scope.book, n) for n in group.nodes]
        priced = [p for p in premiums if p is not None]
        if len(priced) < len(premiums):
            priced = []
        found.append(_finding(scope, rule, group, max(known, default=0.0) if silent else None, own, premiums=priced))
    return found, []


def _own_mean(group: Group) -> float | None:
    """What its own GPUs carried of what NVLink sustains, in the mean; None: of one GPU, or not measured all along."""
    use = group.use
    held = use.seconds > 0
    if group.gpus_per_replica < 2 or not held.any() or not np.isfinite(use.u_n[held]).all():
        return None
    return float(np.average(use.u_n[held], weights=use.seconds[held]))


def _finding(
    scope: RuleContext, rule: WasteRule, group: Group, peak: float | None, own: float | None, *, premiums: list[Premium]
) -> FindingContext:
    """`peak`: of its nodes' NVLink; None: another's work is in it, and `own`, the mean of its own GPUs, decides."""
    limit = rule.value("util_p995_max")
    util = limit if peak is None else peak
    share = sum(p.share for p in premiums) / len(premiums) if premiums else None
    whole = scope.cost(group.gpu_hours, group.nodes)
    cost = None if share is None or whole is None else whole * share
    evidence = [
        Evidence("nvlink_util_p995", util, limit, "ratio of one-way NVLink")
        if peak is not None
        else Evidence("nvlink_util_mean", own, limit * _REST, "ratio of what NVLink sustains"),
        Evidence("hours_observed", min(n.hours_observed for n in group.nodes), rule.value("coverage_hours"), "hours"),
    ]
    if premiums:
        evidence.append(Evidence("nvlink_premium", share, None, "ratio of the node's price"))
    finding = finding_of(
        scope, rule, group,
        evidence=evidence,
        gpu_hours=group.gpu_hours,
        cost=cost,
        values={
            "util": as_percent(util), "traffic": _traffic(util),
            "whose": "between its GPUs" if peak is None else "whatever ran there",
        },
        sure=1.0 if group.gpus_per_replica == 1 else group.lead.kind.confidence,
        after=_cost_words(cost, premiums),
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes, premium=premiums[0] if premiums else None)


def _traffic(util: float) -> str:
    """What NVLink carried: nothing, or little in nearly all seconds."""
    if util > 0:
        most = "less than 0.1 %" if util < 0.001 else f"at most {as_percent(util)}"
        return f"used {most} of one direction in 99.5 % of seconds"
    return "carried no traffic in 99.5 % of seconds"


def _cost_words(cost: float | None, premiums: list[Premium]) -> str:
    if cost is None or not premiums:
        return "Price share of NVLink: unknown."
    first = premiums[0]
    share = f"{first.share * 100:.0f} % of the node's price, {usd(cost)} in the window, {dated((first.price,))}"
    if first.twin is not None:
        return f"NVLink adds {share}, compared with {first.twin.sku} (PCIe card, a slower GPU as well)."
    return f"NVLink adds an assumed {share} (from node pairs at other providers)."


RULE = RuleDescription(
    id="idle-nvlink",
    rank=8,
    fact="NVLink unused",
    judge=idle_nvlink,
    answered_by={"move-sku": 2},
    waste="nvlink",
    line=ReferenceLine("NVLink sent", "util_p995_max", "idle NVLink up to"),
)
