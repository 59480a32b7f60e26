"""NVLink that nothing crosses: work on single GPUs of a node that was built, and is paid, for more."""

from __future__ import annotations

from ....rules.catalog.fabric_premium import Premium
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ...core.formatting import dated, usd
from ...core.number_sources import GPU_HOURS, NODE_HOURS, Outside, Sql
from ..base.pricing import nvlink_premium
from ..base.workload_groups import TRAINING, Group
from ..context.finding_context import FindingContext
from ..context.rule_context import (
    ReferenceLine,
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    finding_of,
    seen_at_work,
)


def idle_nvlink(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Groups at work on nodes whose NVLink was silent in all but a few seconds, whoever ran there."""
    found: list[FindingContext] = []
    limit = rule.value("util_p995_max")
    for group in scope.judged:
        if group.kind in TRAINING and group.gpus_per_replica > 1:
            continue
        if not all(scope.has_nvlink(n) for n in group.nodes):
            continue
        peaks = [n.nvlink_util_p995 for n in group.nodes]
        known = [p for p in peaks if p is not None]
        if len(known) < len(peaks) or max(known) > limit or not seen_at_work(group, rule):
            continue
        if min(n.hours_observed for n in group.nodes) < rule.value("coverage_hours"):
            continue
        premiums = [nvlink_premium(scope.book, n) for n in group.nodes]
        priced = [p for p in premiums if p is not None]
        found.append(_finding(scope, rule, group, max(known), priced if len(priced) == len(premiums) else []))
    return found, []


def _finding(scope: RuleContext, rule: WasteRule, group: Group, util: float, premiums: list[Premium]) -> FindingContext:
    share = sum(p.share for p in premiums) / len(premiums) if premiums else None
    whole = scope.cost(group.gpu_hours, group.nodes)
    cost = None if share is None or whole is None else whole * share
    evidence = [
        Evidence("nvlink_util_p995", util, rule.value("util_p995_max"), "ratio of one-way NVLink"),
        Evidence("hours_observed", min(n.hours_observed for n in group.nodes), rule.value("coverage_hours"), "hours"),
    ]
    if premiums:
        evidence.append(Evidence("nvlink_premium", share, None, "ratio of the node's price"))
    finding = finding_of(
        scope, rule, group,
        evidence=evidence,
        gpu_hours=group.gpu_hours,
        cost=cost,
        values={"util": as_percent(util)},
        sure=group.lead.kind.confidence,
        after=_cost_words(cost, premiums),
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes, premium=premiums[0] if premiums else None)


def _cost_words(cost: float | None, premiums: list[Premium]) -> str:
    if cost is None or not premiums:
        return "What NVLink adds to the price is not known."
    first = premiums[0]
    share = f"{first.share * 100:.0f} % of the node's price, {usd(cost)} in the window, {dated((first.price,))}"
    if first.twin is not None:
        return f"Over {first.twin.sku}, the same GPU as a PCIe card and a slower part as well, it adds {share}."
    return f"What it adds is assumed, from pairs at other providers: {share}."


RULE = RuleDescription(
    id="idle-nvlink",
    rank=8,
    judge=idle_nvlink,
    answered_by={"move-sku": 2},
    waste="nvlink",
    metrics={
        "nvlink_util_p995": Sql(("link_p995",), "SELECT max(p995) FROM link_p995"),
        "hours_observed": NODE_HOURS,
        "nvlink_premium": Outside("the prices of this node and of one without NVLink, or rules/premiums.yaml"),
        "gpu_hours": GPU_HOURS,
    },
    line=ReferenceLine("NVLink sent", "util_p995_max", "idle NVLink up to"),
)
