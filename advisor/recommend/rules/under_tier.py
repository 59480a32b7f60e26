"""Training that waits for links its nodes lack: a fabric between them, or NVLink within."""

from __future__ import annotations

from ....rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ..finding_context import FindingContext
from ..groups import Group
from ..rule_context import (
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    busy_share,
    finding_of,
    kind_chance,
    measured_percentile,
)


def under_tier(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Training bound by the network on nodes without RDMA, or by PCIe on nodes without NVLink."""
    found: list[FindingContext] = []
    for group in scope.seen:
        # Work of unknown kind waits in collectives as training does, unless it is likelier to answer requests.
        trains, answers = kind_chance(group, *TRAINING_KINDS), kind_chance(group, *ON_DEMAND_KINDS)
        if group.kind not in TRAINING_KINDS and (group.kind != "unknown" or trains <= answers):
            continue
        if group.observed_hours < rule.value("coverage_hours"):
            continue
        network = busy_share(group, "network") if scope.without_rdma(group.nodes[0]) else 0.0
        within = scope.without_nvlink(group.nodes[0])
        inside = busy_share(group, "pcie") + busy_share(group, "nvlink") if within else 0.0
        share = network + inside
        if share < rule.value("share_min"):
            continue
        link, use = ("the network", group.use.u_i) if network >= inside else ("PCIe", group.use.u_p)
        found.append(_finding(scope, rule, group, share=share, link=link, line=measured_percentile(use, 50)))
    return found, []


def _finding(
    scope: RuleContext, rule: WasteRule, group: Group, *, share: float, link: str, line: float | None
) -> FindingContext:
    # The use of the line is the least share of the time that it takes; the rest of the wait may overlap with work.
    lost = None if line is None else group.gpu_hours * min(line, share)
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("bound_by_link", share, rule.value("share_min"), "ratio of busy time"),
            Evidence("link_use_p50", line, None, "ratio of line rate"),
            Evidence("hours_observed", group.observed_hours, rule.value("coverage_hours"), "hours"),
        ),
        gpu_hours=group.gpu_hours if lost is None else lost,
        cost=None if lost is None else scope.cost(lost, group.nodes),
        values={"share": as_percent(share), "link": link, "lost": None if lost is None else f"{lost:,.0f}"},
        sure=kind_chance(group, *TRAINING_KINDS) * group.lead.bottleneck.confidence,
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes)


RULE = RuleDescription(
    id="under-tier",
    rank=6,
    fact="waits for a slow link",
    judge=under_tier,
    answered_by={"swap-placement": 2, "move-sku": 4},
    waste="none",
)
