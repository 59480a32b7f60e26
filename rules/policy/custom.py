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

A condition is data: one feature of `features`, one operator of `OPERATORS`, one number. Nothing is evaluated.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta

from ..base.sanitize import quoted, suggest
from ..base.typed import Number, Slug, Text, joined, place, wrong
from ..base.yaml_loader import all_of, each, packaged_rules, read, rules_root, yaml_files
from .labels import KindLabel
from .teams import OwnerLike, Team, load_teams, team_of
from .thresholds import SITE, Severity, Threshold, WasteRule, check_template


@dataclass(frozen=True, slots=True)
class Feature:
    """A figure of one workload over the whole window."""

    unit: Literal[
        "ratio", "hours", "seconds", "count", "correlation", "watts", "0 or 1", "count per day", "ticks per second"
    ]  # fmt: skip
    meaning: Text


@dataclass(frozen=True, slots=True)
class _File:
    features: Mapping[str, Feature]


@cache
def load_features() -> Mapping[str, Feature]:
    """The features by name, read once: files of the package do not change under a running program."""
    return read(packaged_rules().joinpath("features.yaml"), _File).features


PREFIX = "custom/"
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "above": operator.gt, "at-least": operator.ge, "below": operator.lt, "at-most": operator.le
}  # fmt: skip
RISING = ("above", "at-least")
# A kind that nobody could tell, and work that never ran, are asked about only where a rule names them.
KINDS_UNLESS_NAMED = tuple(kind for kind in get_args(KindLabel) if kind not in ("idle", "unknown"))
# What is known of every finding about a workload; what a shipped rule fills beside that is its own.
FILLED = frozenset({
    "workload", "kind", "gpu_count", "gpu_sku", "node_sku", "nodes", "node", "node_count", "hours", "gpu_hours",
})  # fmt: skip
COVERAGE_HOURS = 30.0  # as the rules that ship (rules/waste)
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
class _Condition:
    feature: Text
    operator: Literal["above", "at-least", "below", "at-most"]
    value: Number
    unit: Text | None = None


@dataclass(frozen=True, slots=True)
class _Rule:
    id: Slug
    severity: Severity
    reason: Text
    when: Annotated[tuple[_Condition, ...], Meta(min_length=1, max_length=20)]
    text: Text
    would_change_if: tuple[Text, ...] = ()
    kinds: tuple[KindLabel, ...] = ()
    coverage_hours: Annotated[float, Meta(gt=0, le=24 * 90)] = COVERAGE_HOURS


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
    """The custom rules of a site's folder and of its teams; none ship. Raises RulesError with file and key."""
    root = rules_root(rules_dir)
    if root is None:
        return CustomRules({})
    site: dict[str, CustomRule] = {}
    teams: list[tuple[Team, Mapping[str, CustomRule]]] = []

    def of_team(team: Team) -> None:
        teams.append((team, _folder(team.folder, f"team {team.name}")))

    all_of(lambda: site.update(_folder(root, SITE)), lambda: each(load_teams(root), of_team))
    return CustomRules(site, tuple((team, rules) for team, rules in teams if rules))


def _folder(root: Path, origin: str) -> Mapping[str, CustomRule]:
    rules: dict[str, CustomRule] = {}
    files: dict[str, object] = {}

    def read_one(file: Traversable | Path) -> None:
        one = _custom_rule(file, read(file, _Rule), origin)
        if one.rule.id in rules:
            raise wrong(file, "id", f"{files[one.rule.id]} has the same id", "Give it another id.")
        rules[one.rule.id], files[one.rule.id] = one, file

    each(yaml_files(root / "custom"), read_one)
    return rules


def _custom_rule(file: object, told: _Rule, origin: str) -> CustomRule:
    conditions: dict[tuple[str, bool], Condition] = {}
    for number, one in enumerate(told.when, 1):
        condition = _condition(file, place("when", str(number)), one)
        rises = condition.operator in RISING
        other = conditions.get((condition.feature, not rises))
        if (condition.feature, rises) in conditions:
            raise wrong(file, "when", f"{quoted(condition.feature)} is bounded twice from the same side", "Keep one.")
        if other is not None and not _meet(condition, other):
            said = (f"{c.operator} {c.value:g}" for c in (other, condition))
            raise wrong(file, "when", f"no {quoted(condition.feature)} is both {' and '.join(said)}", "Correct one.")
        conditions[condition.feature, rises] = condition
    names = {c.feature for c in conditions.values()} | FILLED
    for key, template in [("text", told.text), *(("would_change_if", change) for change in told.would_change_if)]:
        unknown = check_template(template, (), names)
        if unknown is not None:
            near = suggest(unknown, sorted(names)) or f"Known here are {', '.join(sorted(names))}."
            raise wrong(file, key, f"unknown placeholder {{{unknown}}}", near)
    thresholds = {
        f"{c.feature} {c.operator}": Threshold(c.value, c.unit, "window", joined(told.reason), str(file), origin)
        for c in conditions.values()
    }
    rule = WasteRule(
        f"{PREFIX}{told.id}", told.severity, "window", thresholds, told.text.strip(), told.would_change_if, ()
    )
    return CustomRule(rule, told.kinds or KINDS_UNLESS_NAMED, tuple(conditions.values()), told.coverage_hours)


def _meet(a: Condition, b: Condition) -> bool:
    """Whether some number satisfies both, of which one bounds from below and one from above."""
    low, high = (a, b) if a.operator in RISING else (b, a)
    return low.value < high.value or (
        low.value == high.value and (low.operator, high.operator) == ("at-least", "at-most")
    )


def _condition(file: object, at: str, told: _Condition) -> Condition:
    features = load_features()
    if told.feature not in features:
        near = suggest(told.feature, features) or "'skuwise rules features' names them all."
        raise wrong(file, at, f"unknown feature {quoted(told.feature)}", near)
    unit = features[told.feature].unit
    if told.unit not in (None, unit):
        raise wrong(file, at, f"the unit of {quoted(told.feature)} is {unit}, not {told.unit}", "Convert the value.")
    low, high = _BOUNDS.get(unit, (0.0, 1e18))
    if not low <= told.value <= high:
        raise wrong(file, at, f"{told.value:g} is no {unit}: it is from {low:g} to {high:g}")
    return Condition(told.feature, told.operator, told.value, unit)
