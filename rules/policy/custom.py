"""Custom rules (``custom/*.yaml`` of a site or a team): conditions on named features (``features.yaml``) that must all
hold. A condition is one feature, one operator of `OPERATORS` and one number; nothing is evaluated. docs/rules.md has an
example."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from ..base.sanitize import quoted, suggest
from ..base.typed import Number, Slug, Strict, Text, place, wrong
from ..base.yaml_loader import Faults, packaged_rules, read, read_folders
from .labels import KindLabel
from .teams import Layer, OwnerLike, Team, every_layer, team_of
from .thresholds import BOUNDS, Severity, Threshold, WasteRule, check_gaps

PREFIX = "custom/"
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "above": operator.gt, "at-least": operator.ge, "below": operator.lt, "at-most": operator.le
}  # fmt: skip
RISING = ("above", "at-least")
# Unknown kinds and work that never ran are included only where a rule names them.
KINDS_UNLESS_NAMED = tuple(kind for kind in get_args(KindLabel) if kind not in ("idle", "unknown"))
# What every finding about a workload fills into its texts.
FILLED = frozenset({
    "workload", "kind", "gpu_count", "gpu_sku", "node_sku", "nodes", "node", "node_count", "hours", "gpu_hours",
})  # fmt: skip
COVERAGE_HOURS = 30.0  # as the rules that ship (rules/waste)


class Feature(Strict, frozen=True):
    """A figure of one workload over the whole window."""

    unit: Literal[
        "ratio", "hours", "seconds", "count", "correlation", "watts", "0 or 1", "count per day", "ticks per second"
    ]  # fmt: skip
    meaning: Text


class _Features(Strict, frozen=True):
    features: Mapping[str, Feature]


class Condition(Strict, frozen=True):
    """A feature compared with a number, in the feature's unit; `operator` is one of `OPERATORS`."""

    feature: Text
    operator: Literal["above", "at-least", "below", "at-most"]
    value: Number
    unit: Text = ""

    def holds(self, value: float) -> bool:
        return OPERATORS[self.operator](value, self.value)


class _Rule(Strict, frozen=True):
    id: Slug
    severity: Severity
    reason: Text
    when: Annotated[tuple[Condition, ...], Meta(min_length=1, max_length=20)]
    text: Text
    would_change_if: tuple[Text, ...] = ()
    kinds: tuple[KindLabel, ...] = KINDS_UNLESS_NAMED
    coverage_hours: Annotated[float, Meta(gt=0, le=24 * 90)] = COVERAGE_HOURS


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A custom rule. `rule` has its id (``custom/NAME``), severity and texts; `conditions` must all hold."""

    rule: WasteRule
    kinds: tuple[str, ...]
    conditions: tuple[Condition, ...]
    coverage_hours: float


@dataclass(frozen=True, slots=True)
class CustomRules:
    """A site's custom rules by id, and those that each team adds or replaces for its workloads."""

    site: Mapping[str, CustomRule]
    teams: tuple[tuple[Team, Mapping[str, CustomRule]], ...] = ()

    def of(self, owner: OwnerLike) -> tuple[CustomRule, ...]:
        """The rules for workloads of this owner."""
        team = team_of([team for team, _ in self.teams], owner)
        of_team = next((rules for other, rules in self.teams if other is team), {})
        return tuple({**self.site, **of_team}.values())

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.site).union(*(rules for _, rules in self.teams))

    def __len__(self) -> int:
        return len(self.site) + sum(len(rules) for _, rules in self.teams)


@cache
def load_features() -> Mapping[str, Feature]:
    """The features by name, read once: files of the package do not change while a program runs."""
    return read(packaged_rules().joinpath("features.yaml"), _Features).features


def load_custom_rules(rules_dir: Path | None = None) -> CustomRules:
    """The custom rules of a site's folder and of its teams; none ship. Raises RulesError with file and key."""
    site: dict[str, CustomRule] = {}
    teams: list[tuple[Team, Mapping[str, CustomRule]]] = []
    faults = Faults()
    for layer in every_layer(rules_dir, faults):
        with faults:
            rules = read_folders([layer.folder.joinpath("custom")], _Rule, partial(_custom_rule, layer))
            if layer.team is None:
                site |= rules
            elif rules:
                teams.append((layer.team, rules))
    faults.raise_all()
    return CustomRules(site, tuple(teams))


def _custom_rule(layer: Layer, file: object, entry: _Rule) -> Mapping[str, CustomRule]:
    conditions = tuple(_condition(file, place("when", str(n)), given) for n, given in enumerate(entry.when, 1))
    check_gaps(file, entry.text, entry.would_change_if, {c.feature for c in conditions} | FILLED)
    thresholds = {
        f"{c.feature} {c.operator}": Threshold(c.value, c.unit, "window", entry.reason, str(file), layer.origin)  # type: ignore[arg-type]
        for c in conditions
    }
    if len(thresholds) < len(conditions):
        raise wrong(file, "when", "a feature has the same operator twice", "Keep one of them.")
    id_ = f"{PREFIX}{entry.id}"
    rule = WasteRule(id_, entry.severity, "window", thresholds, entry.text, entry.would_change_if)
    return {id_: CustomRule(rule, entry.kinds or KINDS_UNLESS_NAMED, conditions, entry.coverage_hours)}


def _condition(file: object, at: str, given: Condition) -> Condition:
    """With the feature's unit. Raises RulesError for an unknown feature, another unit or an impossible value."""
    features, name = load_features(), given.feature
    if name not in features:
        near = suggest(name, features) or "'skuwise rules features' names them all."
        raise wrong(file, at, f"unknown feature {quoted(name)}", near)
    unit = features[name].unit
    if given.unit not in ("", unit):
        sentence = f"the unit of {quoted(name)} is {unit}, not {quoted(given.unit)}"
        raise wrong(file, at, sentence, "Convert the value.")
    low, high = BOUNDS.get(unit, (0.0, 1e18))
    if not low <= given.value <= high:
        raise wrong(file, at, f"{given.value:g} is no {unit}: it is from {low:g} to {high:g}")
    return msgspec.structs.replace(given, unit=unit)
