"""Rules of one's own (``rules/custom/*.yaml``): each series held against named features, with no claim on money."""

from __future__ import annotations

from collections.abc import Mapping

from ...rules.policy.custom import RISING, Condition, CustomRule, CustomRules
from ..core.advice_types import Evidence
from ..core.coded_text import CodedText
from ..core.formatting import figure
from ..core.timestamps import span
from .base.workload_groups import Group
from .context.finding_context import FindingContext, series_label
from .context.rule_context import RuleContext, RuleResult, as_percent, finding_of


def custom_findings(scope: RuleContext, custom: CustomRules) -> RuleResult:
    """What the custom rules find. A rule speaks of a series of its kinds where every condition holds in every run it
    has now; a feature that cannot be told, a shared GPU or faulty telemetry silences it.
    """
    found: list[FindingContext] = []
    notes: list[CodedText] = []
    if not len(custom):
        return found, notes
    for group in scope.groups:
        if not group.nodes or group.shared or scope.faulty(group):
            continue
        for own in custom.of(group.lead.owner):
            values = _met(own, group) if group.kind in own.kinds else None
            if values is None:
                continue
            if group.observed_hours < own.coverage_hours:
                seen = span(group.observed_hours * 3600)
                notes.append(
                    CodedText(
                        "custom-rule-seen-too-short",
                        f"{own.rule.id} appears to apply to {series_label(group)} ({seen} of data); "
                        f"a finding needs {own.coverage_hours:g} h.",
                        {"rule": own.rule.id, "hours": group.observed_hours, "needed_hours": own.coverage_hours},
                    )
                )
                continue
            found.append(_found(scope, own, group, values))
    return found, notes


def _met(own: CustomRule, group: Group) -> Mapping[Condition, float] | None:
    """Each condition with the value nearest to its threshold; None: one of them does not hold, or cannot be told."""
    values: dict[Condition, float] = {}
    for condition in own.conditions:
        told = [w.features.get(condition.feature) for w in group.now]
        known = [value for value in told if value is not None]
        if len(known) < len(told) or not all(condition.holds(value) for value in known):
            return None
        values[condition] = min(known) if condition.operator in RISING else max(known)
    return values


def _found(scope: RuleContext, own: CustomRule, group: Group, values: Mapping[Condition, float]) -> FindingContext:
    finding = finding_of(
        scope,
        own.rule,
        group,
        evidence=[Evidence(c.feature, value, c.value, c.unit) for c, value in values.items()],
        gpu_hours=group.gpu_hours,
        cost=None,
        values={c.feature: _words(c, value) for c, value in values.items()},
        sure=group.lead.kind.confidence,
        after="",
    )
    return FindingContext(finding, group, group.nodes)


def _words(condition: Condition, value: float) -> str | None:
    if condition.unit == "ratio":
        return as_percent(value)
    bare = condition.unit in ("count", "correlation", "0 or 1")
    return figure(value) if bare else f"{figure(value)} {condition.unit}"
