"""Memory that is paid and never needed: smaller cards or slices of one would do."""

from __future__ import annotations

from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ..finding_context import FindingContext
from ..groups import Group
from ..rule_context import (
    WEAK,
    ReferenceLine,
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    finding_of,
    is_job,
    seen_at_work,
)

# What memory was never taken says the same of any kind of work but an engine's pool, which is told by its level.
_SURE_OF_ANY = 0.8


def memory_unused(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Work that never took half of its GPUs' memory. What it took bounds what it needs from above.

    An engine that fills whatever it finds says nothing of its need: no finding.
    """
    found: list[FindingContext] = []
    for group in scope.at_work:
        most = group.mem_needed_max
        if most is None or most >= rule.value("mem_max"):
            continue
        # Somebody's session works in short spells, which is no probing.
        if group.kind != "interactive" and not seen_at_work(group, rule):
            continue
        # A service may be asked for more on another day; a job has shown in its own hours what it takes.
        floor = rule.value("job_hours" if is_job(group) else "coverage_hours")
        if group.observed_hours < floor:
            continue
        found.append(_finding(scope, rule, group, most))
    return found, []


def _finding(scope: RuleContext, rule: WasteRule, group: Group, most: float) -> FindingContext:
    sku = scope.book.catalog.gpu(group.lead.gpu_sku) if group.lead.gpu_sku else None
    size = None if sku is None else sku.mem_bytes
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("mem_used_max", most, rule.value("mem_max"), "ratio of the GPU's memory"),
            Evidence("mem_total", None if size is None else float(size), None, "bytes"),
            Evidence(
                "hours_observed", group.observed_hours,
                rule.value("job_hours" if is_job(group) else "coverage_hours"), "hours",
            ),
        ),
        gpu_hours=group.gpu_hours,
        cost=None,
        values={"mem_used": as_percent(most), "mem_gb": None if size is None else f"{most * size / 1e9:.0f}"},
        sure=max(group.lead.kind.confidence, _SURE_OF_ANY),
        after="Memory has no separate price; see the recommendations for the savings of a smaller GPU or a slice.",
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes)


RULE = RuleDescription(
    id="memory-unused",
    rank=9,
    fact="GPU memory mostly unused",
    judge=memory_unused,
    answered_by={"mig-slice": 2, "move-sku": WEAK},
    waste="none",
    line=ReferenceLine("memory used", "mem_max", "memory unused up to"),
)
