"""Signals that contradict one another: a fault of the telemetry, never waste."""

from __future__ import annotations

from collections.abc import Sequence

from ....rules.base.templates import fill
from ....rules.policy.thresholds import WasteRule
from ...classify.doubts import Doubt
from ...classify.features.soundness import CONTRADICTIONS
from ...classify.types import BareGpu, NodeFacts, Verdicts
from ...core.advice_types import Evidence, Finding
from ...core.coded_text import CodedText
from ...core.ids import stable_id
from ...core.timestamps import rfc3339
from ...core.verdict_types import WorkloadVerdict
from ..finding_context import FindingContext, clamped_confidence
from ..groups import Group
from ..rule_context import (
    FAULT_RULE,
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    finding_of,
    watts,
    would_change_if,
)


def telemetry_fault(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Nodes whose counters do not change while their GPUs draw power, or the reverse: one finding for each set of
    nodes, whatever ran there."""
    found: list[FindingContext] = []
    notes: list[CodedText] = []
    by_nodes: dict[tuple[str, ...], list[Group]] = {}
    for group in scope.groups:
        if group.nodes and scope.faulty(group) and group.observed_hours >= rule.value("hours_min"):
            by_nodes.setdefault(tuple(n.node for n in group.nodes), []).append(group)
    for groups in by_nodes.values():
        found.append(_of_groups(scope, rule, groups))
        notes += [
            CodedText(
                "signals-contradict",
                f"No waste verdict for {g.lead.name}: its metrics contradict each other in "
                f"{g.fault_share * 100:.0f} % of the time (telemetry fault).",
                {"workload": g.lead.name, "share": g.fault_share},
            )
            for g in groups
        ]
    for node in scope.verdicts.nodes:
        bare = [b for b in scope.verdicts.bare if b.node == node.node and b.telemetry_fault]
        if bare and max(b.hours for b in bare) >= rule.value("hours_min"):
            found.append(_of_node(rule, node, bare))
    return found, notes


def _of_groups(scope: RuleContext, rule: WasteRule, groups: list[Group]) -> FindingContext:
    """`groups`: on the same nodes, the largest first."""
    group, share = groups[0], max(g.fault_share for g in groups)
    others = f"{len(groups)} workloads there show this." if len(groups) > 1 else ""
    doubts = contradictions(scope.verdicts, groups)
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("contradiction", share, rule.value("share_min"), "ratio of observed time"),
            Evidence("engine_active", group.feature("engine_active"), None, "ratio"),
            Evidence("tensor_active", group.feature("tensor_utilization"), None, "ratio"),
            Evidence("power_over_idle", group.feature("power_over_idle"), None, "ratio"),
            *_signals(doubts),
        ),
        gpu_hours=sum(g.fault_share * g.gpu_hours for g in groups),
        cost=None,
        values={"share": as_percent(share)},
        after=" ".join(filter(None, (named(doubts), others))),
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes, faulty=frozenset(g.series_id for g in groups))


def contradictions(verdicts: Verdicts, groups: Sequence[Group]) -> list[Doubt]:
    """The doubts about GPUs of these groups, while they held them, that are contradictions; the longest first."""
    held: dict[str, list[WorkloadVerdict]] = {}
    for group in groups:
        for workload in group.workloads:
            for uuid in workload.gpus:
                held.setdefault(uuid, []).append(workload)
    found = [
        doubt
        for doubt in verdicts.doubts
        if doubt.code in CONTRADICTIONS
        and any(
            doubt.node in w.nodes and w.start < doubt.end and doubt.start < w.end for w in held.get(doubt.gpu_uuid, ())
        )
    ]
    return sorted(found, key=lambda doubt: (-doubt.hours, doubt.node, doubt.gpu_uuid))


def named(doubts: Sequence[Doubt]) -> str:
    """The signals of the first, as a sentence, and how many more GPUs show the same kind; empty for none."""
    if not doubts:
        return ""
    first, gpus = doubts[0], {(d.node, d.gpu_uuid) for d in doubts}
    more = f" {len(gpus) - 1} more {'GPU shows' if len(gpus) == 2 else 'GPUs show'} the same." if len(gpus) > 1 else ""
    return f"{first.gpu_uuid} on {first.node}: {first.text}{more}"


def _signals(doubts: Sequence[Doubt]) -> list[Evidence]:
    """The contradiction that lasted longest: hours, and since when."""
    if not doubts:
        return []
    return [
        Evidence("contradiction_hours", doubts[0].hours, None, "hours"),
        Evidence("contradiction_since", rfc3339(doubts[0].start), None, "time (UTC)"),
    ]


def _of_node(rule: WasteRule, node: NodeFacts, bare: list[BareGpu]) -> FindingContext:
    hours = sum(b.hours for b in bare)
    power = [b.power_mean_watts for b in bare if b.power_mean_watts is not None]
    floor = [b.idle_power_watts for b in bare if b.idle_power_watts is not None]
    over = sum(power) / sum(floor) if power and len(power) == len(floor) and sum(floor) else None
    values = {
        "workload": f"{len(bare)} free GPUs",
        "node": node.node,
        "nodes": f"node {node.node}",
        "gpu_count": len(bare),
        "gpu_sku": node.gpu_sku or node.gpu_name,
        "power": watts(sum(power) / len(power)) if power else None,
        **{name: threshold.value for name, threshold in rule.thresholds.items()},
    }
    finding = Finding(
        id=stable_id("f", rule.id, node.cluster, node.node),
        rule=rule.id,
        severity=rule.severity,  # type: ignore[arg-type]
        workload=None,
        node=node.node,
        gpus=tuple(b.gpu_uuid for b in bare),
        evidence=(
            Evidence("power_over_idle", over, None, "ratio"),
            Evidence("hours_without_workload", hours, None, "GPU-hours"),
        ),
        gpu_hours=hours,
        cost_usd=None,
        price=None,
        confidence=clamped_confidence(0.9),
        would_change_if=would_change_if(rule, values),
        text=fill(rule.text, values) + f" {bare[0].telemetry_fault}",
        nodes=(node.node,),
    )
    return FindingContext(finding, None, (node,))


RULE = RuleDescription(
    id=FAULT_RULE,
    rank=11,
    fact="contradictory telemetry",
    judge=telemetry_fault,
    answered_by={"fix-first": 1},
    waste="none",
)
