"""All waste rules, found by their modules, and the one call that asks them; findings that an exception sets aside.

A rule is one file of thresholds and texts (``rules/waste``) and one module in ``recommend/rules`` with its description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...rules.policy.custom import RISING, Condition, CustomRule, CustomRules
from ...rules.policy.exceptions import Exceptions, RuleException
from ...rules.policy.thresholds import WasteRule
from ..core.advice_types import Evidence, Finding
from ..core.coded_text import CodedText
from ..core.formatting import figure
from ..core.timestamps import day, span
from . import rules as waste
from .consistency import consistent
from .described import described_in
from .finding_context import FindingContext, Waste, listed, node_words, series_label
from .groups import Group
from .rule_context import RuleContext, RuleDescription, RuleResult, as_percent, finding_of


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


# GPU-hours without use count whole, and links that carried nothing by what they add to the price.
UNUSED: tuple[Waste, ...] = ("unused", "surplus")
_LINKS: tuple[Waste, ...] = ("fabric", "nvlink")


RULES: Mapping[str, RuleDescription] = MappingProxyType(
    {rule.id: rule for rule in described_in(waste, "RULE", RuleDescription)}
)


def waste_of(rule_id: str) -> Waste:
    """What findings of a rule are of the money; those of rules of one's own claim none."""
    described = RULES.get(rule_id)
    return described.waste if described is not None else "none"


def fact_of(rule_id: str) -> str:
    """What findings of a rule say of their resource, for a title; of rules of one's own, their id."""
    described = RULES.get(rule_id)
    return described.fact if described is not None else rule_id


def find_waste(scope: RuleContext, exceptions: Exceptions) -> tuple[tuple[FindingContext, ...], tuple[CodedText, ...]]:
    """Every finding of the window, and the notes that say where no verdict was possible and from when one will be.

    A rule fires on numbers it can show; a telemetry fault, too little data, an unknown kind or an exception silences
    it. A team's work is held against the team's thresholds.
    """
    alone = sorted(set(scope.rules) ^ set(RULES))
    if alone:
        raise LookupError(f"{', '.join(alone)}: a rule needs both a file in rules/waste and a module.")
    found: list[FindingContext] = []
    notes: list[CodedText] = []
    for described in RULES.values():
        for own, part in _by_team(scope, described):
            mine, told = described.judge(part, own)
            found += [replace(one, answered_by=described.answered_by, waste=described.waste) for one in mine]
            notes += told
    found, against = consistent(scope.verdicts, scope.groups, found)
    return _excepted(scope, found, (*notes, *against), exceptions)


def find_custom(
    scope: RuleContext, custom: CustomRules, exceptions: Exceptions
) -> tuple[tuple[FindingContext, ...], tuple[CodedText, ...]]:
    """What a site's and its teams' own rules find: beside the waste, for they claim no money and start no move."""
    return _excepted(scope, *custom_findings(scope, custom), exceptions)


def _by_team(scope: RuleContext, described: RuleDescription) -> Iterator[tuple[WasteRule, RuleContext]]:
    """The rule with the part of the work for which it holds: as the site has it, and as each team that changed it."""
    rule = scope.rules[described.id]
    if not rule.teams or described.judges_nodes:
        yield rule, scope
        return
    for own in (rule, *(one for _, one in rule.teams)):
        yield own, replace(scope, groups=[g for g in scope.groups if rule.of(g.lead.owner) is own])


def excused(groups: Sequence[Group], exceptions: Exceptions, at: float) -> tuple[Group, ...]:
    """The groups with the exceptions that fit them: one of a group's runs is enough. `at`: Unix seconds."""
    rules = {rule for one in exceptions.every for rule in one.rules}
    today = day(at)
    told = []
    for group in groups:
        found = {}
        for rule in rules:
            whys = (exceptions.of_workload(rule, w.owner, w.name, w.command, today) for w in group.workloads)
            why = next((one for one in whys if one is not None), None)
            if why is not None:
                found[rule] = why
        kept = {waste_of(rule): why for rule, why in sorted(found.items())}
        told.append(replace(group, excused=found, kept=kept) if found else group)
    return tuple(told)


def _excepted(
    scope: RuleContext, found: Iterable[FindingContext], notes: Iterable[CodedText], exceptions: Exceptions
) -> tuple[tuple[FindingContext, ...], tuple[CodedText, ...]]:
    """The findings that remain, and the notes with one more for every exception that silenced some."""
    kept: list[FindingContext] = []
    silenced: dict[tuple[str, RuleException], list[str]] = {}
    for one in found:
        why = _exception(one, scope.groups, exceptions, day(scope.at))
        if why is None:
            kept.append(one)
        else:
            of = series_label(one.group) if one.group is not None else node_words(one.nodes)
            silenced.setdefault((one.finding.rule, why), []).append(of)
    silent = [
        CodedText(
            "silenced-by-exception",
            f"{rule} skips {listed(names)}. Exception {why.id} ({why.origin}): {why.reason}",
            {"rule": rule, "exception": why.id, "origin": why.origin, "reason": why.reason},
        )
        for (rule, why), names in silenced.items()
    ]
    return tuple(kept), tuple(dict.fromkeys((*notes, *silent)))


def _exception(
    one: FindingContext, groups: Sequence[Group], exceptions: Exceptions, today: str
) -> RuleException | None:
    rule, nodes = one.finding.rule, {n.node for n in one.nodes}
    concerned = [one.group] if one.group is not None else []
    described = RULES.get(rule)
    if described is not None and described.judges_nodes:
        concerned = [g for g in groups if any(nodes.intersection(w.nodes) for w in g.workloads)]
    whys = (group.excused.get(rule) for group in concerned)
    return next((why for why in whys if why is not None), None) or exceptions.of_nodes(rule, nodes, today)


def wasted(found: Iterable[tuple[Finding, str | None]]) -> float:
    """US dollars of the window that bought nothing, each once. `found`: with the series each is about (None: none).

    GPU-hours without use count whole. What is paid too much for the others (the fabric, NVLink, a GPU of too high a
    tier) counts for the rest of them, and a tier's difference only beyond what its links add. What work loses by
    waiting is no part of it: how much of that another node or a fixed input recovers is unknown.
    """
    total = 0.0
    surplus: dict[str, float] = {}
    links: dict[str, dict[str, float]] = {}  # node -> rule -> what its link adds to a GPU-hour
    every = tuple(found)
    for f, series in every:
        if waste_of(f.rule) in UNUSED:
            total += f.cost_usd or 0.0
            if series is not None:
                surplus[series] = surplus.get(series, 0.0) + f.gpu_hours
        elif waste_of(f.rule) in _LINKS and f.gpu_hours > 0:
            for node in f.nodes:
                links.setdefault(node, {})[f.rule] = (f.cost_usd or 0.0) / f.gpu_hours
    for f, series in every:
        if waste_of(f.rule) not in (*_LINKS, "tier") or series is None or f.gpu_hours <= 0:
            continue
        cost = f.cost_usd or 0.0
        if waste_of(f.rule) == "tier":
            cost = max(cost - f.gpu_hours * max(sum(links.get(n, {}).values()) for n in f.nodes), 0.0)
        total += cost * (1 - min(surplus.get(series, 0.0) / f.gpu_hours, 1.0))
    return total


def wasted_hours(findings: Iterable[Finding]) -> float:
    """Unused GPU-hours without a price."""
    return sum(f.gpu_hours for f in findings if waste_of(f.rule) in UNUSED)
