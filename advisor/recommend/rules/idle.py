"""Free GPUs without activity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ....rules.base.templates import fill
from ....rules.policy.thresholds import WasteRule
from ...classify.types import BareGpu, NodeFacts
from ...core.advice_types import Evidence, Finding
from ...core.coded_text import CodedText, coded
from ...core.ids import stable_id
from ...core.timestamps import span
from ..evidence import GAP_MAX
from ..finding_context import FindingContext, clamped_confidence, severity_for_share, when_possible
from ..rule_context import (
    MIN_SHARE,
    OF_WHOLE_GPUS,
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    power_words,
    watts,
    would_change_if,
)

# A GPU counts as idle where nearly all of the time that nobody held it was idle: else somebody unseen worked there. The
# same share by which work is called idle (rules/kinds.yaml), so that a label that is missing makes nothing idle.
IDLE_OF_UNHELD = 0.95
# A MIG instance unused in half of its node's hours is not between two pieces of work.
IDLE_INSTANCE_SHARE = 0.5


def idle(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Nodes whose free GPUs stood idle for a tenth of their hours or more."""
    verdicts = scope.verdicts
    found: list[FindingContext] = []
    notes: list[CodedText] = []
    for node in verdicts.nodes:
        bare = [b for b in verdicts.bare if b.node == node.node]
        faults = sorted({b.telemetry_fault for b in bare if b.telemetry_fault})
        notes += [
            coded("idle-not-judged", "No verdict on idle GPUs of {node}: {fault}.", node=node.node, fault=fault)
            for fault in faults
        ]
        seen_idle = [
            b
            for b in bare
            if not b.telemetry_fault
            and b.idle_hours * 60 >= rule.value("minutes") * b.part
            and b.idle_hours >= IDLE_OF_UNHELD * (b.idle_hours + b.part * b.busy_hours)
        ]
        dark = {b: _dark(scope, node, b) for b in seen_idle}
        still = [
            b for b in seen_idle if b.idle_hours >= IDLE_OF_UNHELD * (b.idle_hours + b.part * (b.busy_hours + dark[b]))
        ]
        notes += _partly_observed(node, {b: dark[b] for b in seen_idle if b not in still}, rule)
        hours = sum(b.idle_hours for b in still)
        share = hours / (node.gpu_count * node.span_hours) if node.gpu_count and node.span_hours else 0.0
        # A part of a GPU is little of a node, and all of it may be idle all along.
        cut = [b for b in still if b.part < 1 and b.idle_hours >= IDLE_INSTANCE_SHARE * b.part * node.span_hours]
        if not still or (share < MIN_SHARE and not cut):
            continue
        if node.evidence_hours < rule.value("coverage_hours"):
            then = when_possible(node.hours_observed, rule.value("coverage_hours"), verdicts.window, scope.at, node)
            seen = span(node.hours_observed * 3600)
            notes.append(
                CodedText(
                    "idle-seen-too-short",
                    f"{node.node} appears idle, but has only {seen} of data. {then}",
                    {"node": node.node, "hours": node.hours_observed, "needed_hours": rule.value("coverage_hours")},
                )
            )
            continue
        found.append(_finding(scope, rule, node, still, hours=hours, share=share))
    return found, notes


def _partly_observed(node: NodeFacts, dark: Mapping[BareGpu, float], rule: WasteRule) -> Iterator[CodedText]:
    """A note on GPUs that were idle whenever they were observed. `dark`: the hours in which they were not."""
    hours = sum(b.idle_hours for b in dark)
    if hours > MIN_SHARE * node.gpu_count * node.span_hours and node.evidence_hours >= rule.value("coverage_hours"):
        yield coded(
            "idle-partly-observed",
            "No verdict on {gpus} GPUs of {node}: idle in all hours observed, but {unobserved_hours:.0f} h of the "
            "window were not.",
            gpus=len(dark), node=node.node, unobserved_hours=max(dark.values()),
        )  # fmt: skip


def _dark(scope: RuleContext, node: NodeFacts, bare: BareGpu) -> float:
    """Hours of a GPU, or of the one that an instance is a part of, of which nothing was observed: they may have held
    work."""
    counted = scope.verdicts.inventory.nodes.get(node.node)
    uuid = bare.parent_uuid or bare.gpu_uuid
    seen = next((gpu.hours for gpu in counted.gpus if gpu.gpu_uuid == uuid), 0.0) if counted is not None else 0.0
    return max(node.span_hours - seen, 0.0)


def _held_by(idle: Sequence[BareGpu]) -> str:
    held = sum(b.held_hours > GAP_MAX * b.hours for b in idle)
    if not held:
        return "No workload holds them."
    return f"No label names a workload on them; memory in use on {held} of them."


def _finding(
    scope: RuleContext, rule: WasteRule, node: NodeFacts, idle: Sequence[BareGpu], *, hours: float, share: float
) -> FindingContext:
    def mean(values: Sequence[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return sum(known) / len(known) if known else None

    engine, dram = mean([b.engine_mean for b in idle]), mean([b.dram_mean for b in idle])
    power, floor = mean([b.power_mean_watts for b in idle]), mean([b.idle_power_watts for b in idle])
    rate, price = scope.book.per_gpu_hour(node), scope.book.of(node)
    cost = None if rate is None else rate * hours
    values = {
        **_named(node, idle),
        "node": node.node,
        "nodes": node.node,
        "node_sku": node.node_sku,
        "hours": f"{sum(b.idle_hours / b.part for b in idle) / len(idle):.0f}",
        "gpu_hours": f"{hours:,.0f}",
        "engine": as_percent(engine),
        "dram": as_percent(dram),
        "power": watts(power),
        "idle_power": watts(floor),
        "held_by": _held_by(idle),
        "power_words": power_words(power, floor) if any(b.part >= 1 for b in idle) else OF_WHOLE_GPUS,
        **{name: threshold.value for name, threshold in rule.thresholds.items()},
    }
    measured = sum(v is not None for v in (engine, dram, power)) / 3
    finding = Finding(
        id=stable_id("f", rule.id, node.cluster, node.node),
        rule=rule.id,
        severity=severity_for_share(share, rule),
        workload=None,
        node=node.node,
        gpus=tuple(b.gpu_uuid for b in idle),
        evidence=(
            Evidence("engine_active", engine, rule.value("engine_max"), "ratio"),
            Evidence("dram_active", dram, rule.value("dram_max"), "ratio"),
            Evidence(
                "power_over_idle",
                power / floor if power and floor else None,
                rule.value("power_over_idle_max"),
                "ratio",
            ),
            Evidence("idle_hours", hours, rule.value("minutes") / 60, "GPU-hours"),
            Evidence("hours_observed", node.hours_observed, rule.value("coverage_hours"), "hours"),
        ),
        gpu_hours=hours,
        cost_usd=cost,
        price=price.id if price else None,
        confidence=clamped_confidence(
            0.95, 0.6 + 0.4 * measured, node.hours_observed / node.span_hours if node.span_hours else 0
        ),
        would_change_if=would_change_if(rule, values),
        text=f"{fill(rule.text, values)} {scope.cost_words(cost, [node])}",
        nodes=(node.node,),
        parts={b.gpu_uuid: b.part for b in idle if b.part < 1},
    )
    return FindingContext(finding, None, (node,), tuple(idle))


def _named(node: NodeFacts, idle: Sequence[BareGpu]) -> dict[str, object]:
    """How a text counts and calls what stood idle: whole GPUs, MIG instances, or both."""
    sku = node.gpu_sku or node.gpu_name
    cut = [b for b in idle if b.part < 1]
    if not cut:
        return {"gpu_count": len(idle), "gpu_sku": sku}
    profiles = Counter(b.profile or "unknown profile" for b in cut)
    listed = ", ".join(f"{count} x {profile}" for profile, count in sorted(profiles.items()))
    said = f"MIG {'instance' if len(cut) == 1 else 'instances'} ({listed}) of {sku or 'its GPUs'}"
    if len(cut) == len(idle):
        return {"gpu_count": len(cut), "gpu_sku": said}
    return {"gpu_count": len(idle) - len(cut), "gpu_sku": f"{sku or 'GPUs'} and {len(cut)} {said}"}


RULE = RuleDescription(
    id="idle", rank=2, fact="idle GPUs", judge=idle, answered_by={"release": 1, "consolidate": 1}, waste="unused"
)
