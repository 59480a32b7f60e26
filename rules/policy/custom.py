"""Reads ``custom/*.yaml``: a site's or a team's own rules, conditions on named features that must all hold.

```yaml
id: slow-input
severity: medium
reason: below this our loaders cannot keep an H100 busy
kinds: [training, fine-tuning]
when:
  - {feature: cpu, operator: above, value: 0.8}
  - {feature: engine_active, operator: below, value: 0.6}
text: "{workload} waits for its input: CPUs {cpu} busy, GPUs at work {engine_active} of the time."
would_change_if:
  - The loader is given more cores.
```

A condition is data: one feature of `features.FEATURES`, one operator of `OPERATORS`, one number. Nothing is evaluated.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.templates import check_template
from ..base.typed_fields import Fields
from ..base.yaml_loader import read_table, rules_root, yaml_files
from .features import FEATURES
from .labels import KindLabel
from .owners import OwnerLike
from .teams import Team, load_teams, team_of
from .thresholds import SEVERITIES, SITE, Threshold, WasteRule

PREFIX = "custom/"
OPERATORS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"above": operator.gt, "at-least": operator.ge, "below": operator.lt, "at-most": operator.le}
)
RISING = ("above", "at-least")
# A kind that nobody could tell, and work that never ran, are asked about only where a rule names them.
KINDS_UNLESS_NAMED = tuple(kind for kind in get_args(KindLabel) if kind not in ("idle", "unknown"))
# What is known of every finding about a workload; what a shipped rule fills beside that is its own.
FILLED = frozenset({
    "workload", "kind", "gpu_count", "gpu_sku", "node_sku", "nodes", "node", "node_count", "hours", "gpu_hours",
})  # fmt: skip
CONDITIONS_MAX = 20
COVERAGE_HOURS = 30.0  # as the rules that ship (rules/waste)
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_BOUNDS = {"ratio": (0.0, 100.0), "correlation": (-1.0, 1.0), "0 or 1": (0.0, 1.0)}


@dataclass(frozen=True, slots=True)
class Condition:
    """One feature held against one number, in the feature's unit; `operator` is one of `OPERATORS`."""

    feature: str
    operator: str
    value: float
    unit: str

    def holds(self, value: float) -> bool:
        return OPERATORS[self.operator](value, self.value)


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A rule of one's own. `rule` has its id (``custom/NAME``), severity and texts; `conditions` must all hold."""

    rule: WasteRule
    kinds: tuple[str, ...]
    conditions: tuple[Condition, ...]
    coverage_hours: float


@dataclass(frozen=True, slots=True)
class CustomRules:
    """A site's own rules by id, and what each team adds to them or replaces for its workloads."""

    site: Mapping[str, CustomRule]
    teams: tuple[tuple[Team, Mapping[str, CustomRule]], ...] = ()

    def of(self, owner: OwnerLike) -> tuple[CustomRule, ...]:
        """The rules that hold for workloads of this owner."""
        team = team_of([team for team, _ in self.teams], owner)
        own = next((rules for one, rules in self.teams if one is team), {})
        return tuple((dict(self.site) | dict(own)).values())

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.site).union(*(rules for _, rules in self.teams))

    def __len__(self) -> int:
        return len(self.site) + sum(len(rules) for _, rules in self.teams)


def load_custom_rules(rules_dir: Path | None = None) -> CustomRules:
    """The custom rules of a site's folder and of its teams; none ship. Raises RulesError with file and line."""
    root = rules_root(rules_dir)
    if root is None:
        return CustomRules({})
    teams = tuple((team, _folder(team.folder, f"team {team.name}")) for team in load_teams(root))
    return CustomRules(_folder(root, SITE), tuple((team, rules) for team, rules in teams if rules))


def _folder(root: Path, origin: str) -> Mapping[str, CustomRule]:
    rules: dict[str, CustomRule] = {}
    files: dict[str, str] = {}
    for file in yaml_files(root / "custom"):
        fields = Fields(str(file), read_table(file), "this rule")
        one = _custom_rule(fields, origin)
        if one.rule.id in rules:
            raise fields.fault("id", f"{files[one.rule.id]} has the same id", "Give it another id.")
        rules[one.rule.id], files[one.rule.id] = one, str(file)
    return MappingProxyType(rules)


def _custom_rule(fields: Fields, origin: str) -> CustomRule:
    name = fields.text("id")
    fields.where = f"rule {quoted(name)}"
    if not _ID.fullmatch(name):
        raise fields.fault("id", "'id' must be small letters, digits and dashes", "Write it as slow-input.")
    severity, text = fields.text("severity", SEVERITIES), fields.text("text").strip()
    reason, changes = " ".join(fields.text("reason").split()), fields.texts("would_change_if")
    kinds = fields.texts("kinds")
    known = get_args(KindLabel)
    for kind in kinds:
        if kind not in known:
            near = suggest(kind, known) or f"Known are {', '.join(known)}."
            raise fields.fault("kinds", f"unknown kind {quoted(kind)}", near)
    hours = fields.number_or_none("coverage_hours", above=0, maximum=24 * 90)
    parts = tuple(fields.tables("when", f"a condition of rule {quoted(name)}"))
    fields.done()
    if not 1 <= len(parts) <= CONDITIONS_MAX:
        raise fields.fault("when", f"'when' needs 1 to {CONDITIONS_MAX} conditions", "List them.")
    conditions = _conditions(parts)
    features = {condition.feature for condition in conditions}
    for key, template in [("text", text), *(("would_change_if", change) for change in changes)]:
        unknown = check_template(template, features, FILLED)
        if unknown is not None:
            names = sorted(features | FILLED)
            near = suggest(unknown, names) or f"Known here are {', '.join(names)}."
            raise fields.fault(key, f"unknown placeholder {{{unknown}}} in {quoted(key)}", near)
    thresholds = {
        f"{c.feature} {c.operator}": Threshold(c.value, c.unit, "window", reason, fields.file, origin)
        for c in conditions
    }
    rule = WasteRule(f"{PREFIX}{name}", severity, "window", MappingProxyType(thresholds), text, changes, ())
    return CustomRule(rule, kinds or KINDS_UNLESS_NAMED, conditions, COVERAGE_HOURS if hours is None else hours)


def _conditions(parts: tuple[Fields, ...]) -> tuple[Condition, ...]:
    found: dict[tuple[str, bool], Condition] = {}
    for fields in parts:
        condition = _condition(fields)
        rises = condition.operator in RISING
        if (condition.feature, rises) in found:
            raise fields.fault(
                None, f"{quoted(condition.feature)} is bounded twice from the same side", "Keep one bound."
            )
        other = found.get((condition.feature, not rises))
        if other is not None and not _meet(condition, other):
            sentence = f"no {quoted(condition.feature)} is both {_words(other)} and {_words(condition)}"
            raise fields.fault(None, sentence, "Correct one of them.")
        found[condition.feature, rises] = condition
    return tuple(found.values())


def _meet(a: Condition, b: Condition) -> bool:
    """Whether some number satisfies both, of which one bounds from below and one from above."""
    low, high = (a, b) if a.operator in RISING else (b, a)
    return low.value < high.value or (
        low.value == high.value and (low.operator, high.operator) == ("at-least", "at-most")
    )


def _words(condition: Condition) -> str:
    return f"{condition.operator} {condition.value:g}"


def _condition(fields: Fields) -> Condition:
    feature = fields.text("feature")
    if feature not in FEATURES:
        near = suggest(feature, FEATURES) or "'skuwise rules features' names them all."
        raise fields.fault("feature", f"unknown feature {quoted(feature)}", near)
    unit = FEATURES[feature][0]
    told = fields.text_or_none("unit")
    if told not in (None, unit):
        raise fields.fault("unit", f"the unit of {quoted(feature)} is {unit}, not {told}", "Convert the value.")
    low, high = _BOUNDS.get(unit, (0.0, None))
    value = fields.number("value", minimum=low, maximum=high)
    condition = Condition(feature, fields.text("operator", tuple(OPERATORS)), value, unit)
    fields.done()
    return condition
