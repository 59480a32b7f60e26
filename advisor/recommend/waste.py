"""The one call that asks every waste rule, a site's own with them; what an exception sets aside; what is wasted."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ...rules.policy.teams import Exceptions, RuleException
from ...rules.policy.thresholds import RISING, Condition, CustomRule, CustomRules, WasteRule
from ..core.advice_types import Action, Finding, NotJudged, RuleVerdicts
from ..core.coded_text import CodedText, coded
from ..core.formatting import figure, listed
from ..core.timestamps import day
from .fleet import SIZING_RULE, Fleet, Found, Unjudged, Waste, as_percent
from .groups import Group
from .rule import LIMIT_SHARE, Rule, Verdict, WorkloadRule, seen_too_short
from .rules import RULES

# GPU-hours without use count whole, and links that carried nothing by what they add to the price.
UNUSED: tuple[Waste, ...] = ("unused", "surplus")
_LINKS: tuple[Waste, ...] = ("fabric", "nvlink")
_BY_ID: Mapping[str, Rule] = {rule.id: rule for rule in RULES}


def waste_of(rule_id: str) -> Waste:
    """What findings of a rule are of the money; those of rules of one's own claim none."""
    return _BY_ID[rule_id].waste if rule_id in _BY_ID else "none"


def fact_of(rule_id: str) -> str:
    """What findings of a rule say of their resource, for a title; of rules of one's own, their id."""
    return _BY_ID[rule_id].fact if rule_id in _BY_ID else rule_id


class _OwnRule(WorkloadRule):
    """A site's or a team's rule: every condition must hold in every run. It claims no money and has no answer."""

    answered_by: ClassVar[Mapping[Action, int]] = {}

    def __init__(self, rule_id: str, custom: CustomRules) -> None:
        self.id = self.fact = rule_id  # type: ignore[misc]
        self._custom = custom

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in fleet.groups if any(group.kind in rule.kinds for rule in self._of(group)))

    def _of(self, group: Group) -> list[CustomRule]:
        """The rule, as the group's team has it; empty: the team has none."""
        return [custom_rule for custom_rule in self._custom.of(group.lead.owner) if custom_rule.id == self.id]

    def limits(self, fleet: Fleet, group: Group | None = None) -> WasteRule:
        return self._of(group)[0] if group is not None else super().limits(fleet)

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:  # noqa: ARG002
        (custom_rule,) = self._of(group)
        values: dict[Condition, float] = {}  # the value nearest to the threshold
        for condition in custom_rule.conditions:
            measured = [w.features[condition.feature] for w in group.now if condition.feature in w.features]
            if not all(condition.holds(value) for value in measured):
                return None
            if len(measured) == len(group.now):
                values[condition] = min(measured) if condition.operator in RISING else max(measured)
        if len(values) < len(custom_rule.conditions):
            return coded("feature-not-measured", "what the rule asks for was not measured in every run")
        if group.observed_hours < custom_rule.coverage_hours:
            return seen_too_short(custom_rule.coverage_hours)

        def words(unit: str, value: float) -> str | None:
            bare = unit in ("count", "correlation", "0 or 1")
            return as_percent(value) if unit == "ratio" else figure(value) if bare else f"{figure(value)} {unit}"

        return self.found(
            fleet, group,
            evidence=[(c.feature, value, c.value, c.unit) for c, value in values.items()],
            gpu_hours=group.gpu_hours,
            values={c.feature: words(c.unit, value) for c, value in values.items()},
            sure=group.lead.kind.confidence, after="",
        )  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What the rules said of a fleet. `notes`: what an exception silenced; `not_judged`: of whom no rule gave a
    verdict, by rule and reason."""

    waste: tuple[Found, ...]
    notes: tuple[CodedText, ...]
    judged: tuple[RuleVerdicts, ...]
    not_judged: tuple[NotJudged, ...]


def find_waste(fleet: Fleet, exceptions: Exceptions, custom: CustomRules) -> Asked:
    """All that the rules say. A rule fires on numbers it can show; a telemetry fault, too little data or an unknown
    kind leave it without a verdict, and what an exception silences counts as clean: the site decided it."""
    own_rules = (_OwnRule(rule_id, custom) for rule_id in sorted(custom.ids))
    founds: list[Found] = []
    judged: list[RuleVerdicts] = []
    silenced: dict[tuple[str, RuleException], list[str]] = {}
    not_judged: dict[tuple[Rule, CodedText], list[Unjudged]] = {}
    released: set[str] = set()
    for rule in (*RULES, *own_rules):
        counts = [0, 0, 0]  # found, clean, not judged
        for result in rule.find(fleet):
            if isinstance(result, Found):
                result = _contradicted(fleet, rule, result) or result  # noqa: PLW2901
            place, subjects = 1, 1
            if isinstance(result, Unjudged):
                place, subjects = 2, len(result.nodes) if rule.judges_nodes else 1
                not_judged.setdefault((rule, result.reason), []).append(result)
            elif isinstance(result, Found):
                # One finding may be about several nodes or workloads.
                subjects = len(result.nodes) if rule.judges_nodes else len(result.faulty) or 1
                series = result.group.series_id if result.group is not None else ""
                if rule.id == "held-idle":
                    released.add(series)
                # Of GPUs to be released altogether none are too many.
                if rule.id != SIZING_RULE or series not in released:
                    own_group = [result.group] if result.group is not None else []
                    concerned = fleet.groups_on(result.nodes) if rule.judges_nodes else own_group
                    why = next((group.excused[rule.id] for group in concerned if rule.id in group.excused), None)
                    why = why or exceptions.of_nodes(rule.id, {n.node for n in result.nodes}, day(fleet.at))
                    if why is None:
                        place = 0
                        founds.append(result)
                    else:
                        silenced.setdefault((rule.id, why), []).append(result.label)
            counts[place] += subjects
        judged.append(RuleVerdicts(rule.id, *counts))
    notes = []
    for (rule_id, why), names in silenced.items():
        text = f"{rule_id} skips {listed(names)}. Exception {why.id} ({why.origin}): {why.reason}"
        fields = {"rule": rule_id, "exception": why.id, "origin": why.origin, "reason": why.reason}
        notes.append(CodedText("silenced-by-exception", text, fields))
    together = tuple(_together(rule, reason, those) for (rule, reason), those in not_judged.items())
    return Asked(tuple(founds), tuple(notes), tuple(judged), together)


def _together(rule: Rule, reason: CodedText, those: Sequence[Unjudged]) -> NotJudged:
    usd_per_months = [unjudged.usd_per_month for unjudged in those if unjudged.usd_per_month is not None]
    groups = [unjudged.group for unjudged in those if unjudged.group is not None and not rule.judges_nodes]
    whole = {n.node: n.gpu_count for u in those if u.group is None or rule.judges_nodes for n in u.nodes}
    return NotJudged(
        rule=rule.id,
        reason=reason,
        nodes=tuple(sorted({node.node for unjudged in those for node in unjudged.nodes})),
        workloads=tuple(sorted({group.lead.id for group in groups})),
        gpu_count=len({gpu for group in groups for gpu in group.gpus}) + sum(whole.values()),
        usd_per_month=sum(usd_per_months) if usd_per_months else None,
    )


def _contradicted(fleet: Fleet, rule: Rule, waste: Found) -> Unjudged | None:
    """That a workload's own data contradict a finding, so there is no verdict; None: nothing does. A rule judges by
    thresholds, a verdict by shapes, shares of time and engines' words."""
    asked = [waste.group] if waste.group is not None else []
    # What its own GPUs carried is no matter of who else is there.
    if rule.asks_neighbours and all(e.metric != "nvlink_util_mean" for e in waste.finding.evidence):
        nodes = {n.node for n in waste.nodes}
        # Of several nodes of a group, evidence does not show which carried the load.
        others = (g for g in fleet.groups_on(waste.nodes) if g is not waste.group)
        asked += [g for g in others if g.nodes and {n.node for n in g.nodes} <= nodes]
    for group in asked:
        codes = {e.code for w in group.now for e in (*w.kind.evidence, *w.bottleneck.evidence)}
        code, limit = min(codes & rule.contradicted_by, default=None), rule.contradicting_limit
        if code is None and limit is not None and group.busy_share(limit) >= LIMIT_SHARE:
            code = f"limited-by-{limit}"
        if (code := code or rule.refuted(fleet, group, waste.finding)) is not None:
            text = "data of work there contradict the finding ({evidence})"
            return Unjudged(coded("finding-contradicted", text, evidence=code), waste.nodes, waste.group)
    return None


def excused(groups: Sequence[Group], exceptions: Exceptions, at: float) -> tuple[Group, ...]:
    """The groups with the exceptions that fit them: one of a group's runs is enough. `at`: Unix seconds."""
    rules = sorted({rule for rule_exception in exceptions.every for rule in rule_exception.rules})
    today, texts = day(at), []
    for group in groups:
        whys = (
            (rule, exceptions.of_workload(rule, w.owner, w.name, w.command, today))
            for rule in rules
            for w in reversed(group.workloads)  # the first that fits stands
        )
        reasons = {rule: why for rule, why in whys if why is not None}
        texts.append(replace(group, excused=reasons, kept={waste_of(rule): why for rule, why in reasons.items()}))
    return tuple(texts)


def wasted(findings: Iterable[tuple[Finding, str | None]]) -> float:
    """US dollars of the window that bought nothing, each once. `findings`: with the series each is about. Unused
    GPU-hours count whole; fabric, NVLink and tier count for the rest of them, a tier only beyond its links."""
    every = [(f, series, waste_of(f.rule), f.cost_usd or 0.0) for f, series in findings]
    total = sum((cost for _, _, waste, cost in every if waste in UNUSED), 0.0)
    surplus: dict[str | None, float] = defaultdict(float)
    links: dict[str, dict[str, float]] = defaultdict(dict)  # node -> rule -> what its link adds to a GPU-hour
    for f, series, waste, cost in every:
        surplus[series] += f.gpu_hours if waste in UNUSED else 0.0
        for node in f.nodes if waste in _LINKS and f.gpu_hours > 0 else ():
            links[node][f.rule] = cost / f.gpu_hours
    for f, series, waste, cost in every:
        if waste in (*_LINKS, "tier") and series is not None and f.gpu_hours > 0:
            by_links = max(sum(links[n].values()) for n in f.nodes) if waste == "tier" else 0.0
            total += max(cost - f.gpu_hours * by_links, 0.0) * (1 - min(surplus[series] / f.gpu_hours, 1.0))
    return total


def slowed_usd(findings: Iterable[Finding]) -> float:
    """US dollars of the window paid while work waited; of each workload the largest loss, for hours may overlap."""
    losses: dict[str, float] = defaultdict(float)
    for f in (f for f in findings if waste_of(f.rule) == "slowed"):
        losses[f.workload or f.id] = max(losses[f.workload or f.id], f.cost_usd or 0.0)
    return sum(losses.values())
