"""Waste rules (``waste/*.yaml``), files of thresholds, and custom rules (``custom/*.yaml``). See docs/rules.md.

Rules hold numbers and sentences, never expressions. A site's file replaces single thresholds, the severity or the texts
of what ships, and adds no threshold; a team's does so over its site's, for the team's own workloads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Name, Number, Slug, Strict, Text, check_known, convert, place, wrong
from ..base.yaml_loader import SHIPPED, packaged_rules, read, read_folders, read_layers
from .labels import WORKING_KINDS, KindLabel, Owner
from .teams import Layer, Team, every_layer, of_team

Severity = Literal["low", "medium", "high"]
Resolution = Literal["sample", "second", "minute", "hour", "window"]
Unit = Literal[
    "ratio", "hours", "minutes", "seconds", "count", "correlation", "bytes", "watts", "usd-per-month",
    "bytes-per-second",
]  # fmt: skip
Entries = Mapping[Name, dict[str, Any]]
BOUNDS = {"ratio": (0.0, 100.0), "correlation": (-1.0, 1.0), "0 or 1": (0.0, 1.0)}  # by unit; else from 0
_GAP = re.compile(r"\{([a-z][a-z0-9_]*)\}")
# What every finding about a workload fills into its texts, and what waste rules fill in beside their thresholds.
FILLED = frozenset({
    "workload", "kind", "gpu_count", "gpu_sku", "node_sku", "nodes", "node", "node_count", "hours", "gpu_hours",
})  # fmt: skip
PLACEHOLDERS = FILLED | {
    "gpus", "cost", "price", "since", "last_active", "fabric", "line_rate", "util", "engine", "sm", "dram", "power",
    "idle_power", "power_words", "held_by", "whose", "mem_used", "u_max", "u_label", "count_needed", "confidence",
    "span", "share", "lost", "link", "limit", "cause", "bottleneck", "cheaper_sku", "mem_gb", "traffic",
}  # fmt: skip
PREFIX = "custom/"
RISING = ("above", "at-least")
COVERAGE_HOURS = 30.0  # as the rules that ship (rules/waste)


class Threshold(Strict, frozen=True):
    """A number and its reason. `resolution`: the rows that it applies to; `source`: who measured or proposed it;
    `origin`: ``shipped``, ``site`` or ``team NAME``."""

    value: Number
    unit: Unit
    resolution: Resolution
    reason: Text
    source: Text
    origin: str = SHIPPED


@dataclass(frozen=True, slots=True)
class WasteRule:
    """A kind of waste. `text` and `would_change_if` are templates for `fill`. `resolution`: the finest data that its
    verdict needs; `exceptions`: sentences about what it never flags; `teams`: as each team that changes it has it."""

    id: str
    severity: str
    resolution: str
    thresholds: Mapping[str, Threshold]
    text: str
    would_change_if: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    about: str = "workloads"
    teams: tuple[tuple[Team, WasteRule], ...] = ()

    def value(self, threshold: str) -> float:
        """The number of one threshold, in its unit."""
        return self.thresholds[threshold].value

    def of(self, owner: Owner) -> WasteRule:
        """The rule for workloads of this owner: their team's, else this one."""
        return of_team(self.teams, owner, self)


class Levels(SimpleNamespace):
    """The numbers of a file of thresholds by name, each in the unit of its name, shares 0 to 1."""


class _Rule(Strict, frozen=True):
    id: Text
    severity: Severity | None = None
    resolution: Resolution | None = None
    about: Literal["workloads", "nodes"] | None = None  # no team can set a rule about nodes, which teams share
    thresholds: Entries = {}  # noqa: RUF012 - frozen
    text: Text | None = None
    would_change_if: tuple[Text, ...] = ()
    exceptions: tuple[Text, ...] = ()


class Feature(Strict, frozen=True):
    """A figure of one workload over the whole window."""

    unit: Text
    meaning: Text


class Condition(Strict, frozen=True):
    """A feature compared with a number, in the feature's unit."""

    feature: Text
    operator: Literal["above", "at-least", "below", "at-most"]
    value: Number
    unit: Text = ""

    def holds(self, value: float) -> bool:
        is_above, is_below = value > self.value, value < self.value
        return {"above": is_above, "at-least": not is_below, "below": is_below, "at-most": not is_above}[self.operator]


class _Custom(Strict, frozen=True):
    id: Slug
    severity: Severity
    reason: Text
    when: Annotated[tuple[Condition, ...], Meta(min_length=1, max_length=20)]
    text: Text
    would_change_if: tuple[Text, ...] = ()
    # Unknown kinds and work that never ran are included only where a rule names them.
    kinds: Annotated[tuple[KindLabel, ...], Meta(min_length=1)] = WORKING_KINDS
    coverage_hours: Annotated[float, Meta(gt=0, le=24 * 90)] = COVERAGE_HOURS


@dataclass(frozen=True, slots=True)
class CustomRule(WasteRule):
    """A custom rule: its id is ``custom/NAME``; `conditions` must all hold in work of these `kinds`."""

    kinds: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    coverage_hours: float = COVERAGE_HOURS


@dataclass(frozen=True, slots=True)
class CustomRules:
    """A site's custom rules by id, and those that each team adds or replaces for its workloads."""

    site: Mapping[str, CustomRule]
    teams: tuple[tuple[Team, Mapping[str, CustomRule]], ...] = ()

    def of(self, owner: Owner) -> tuple[CustomRule, ...]:
        return tuple({**self.site, **of_team(self.teams, owner, {})}.values())

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.site).union(*(rules for _, rules in self.teams))


def gaps(template: str) -> list[str]:
    """The names of the placeholders (``{name}``) of a template."""
    return _GAP.findall(template)


def fill(template: str, values: Mapping[str, object]) -> str:
    """The template with each placeholder replaced once, so that a name from outside cannot reach another value; a
    missing value reads "unknown". The renderer escapes for its output (HTML, CSV, a terminal)."""

    def text_of(match: re.Match[str]) -> str:
        value = values.get(match[1])
        return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    return _GAP.sub(text_of, template)


def load_waste_rules(rules_dir: Path | None = None) -> Mapping[str, WasteRule]:
    """Every waste rule by its id, with those of a site and its teams. Raises RulesError."""
    rules: dict[str, WasteRule] = {}
    for layer in every_layer(rules_dir):
        changed = read_folders([layer.folder / "waste"], _Rule, partial(_waste_rule, layer, dict(rules)))
        for id_, rule in changed.items():
            if layer.team is not None:
                rule = replace(rules[id_], teams=(*rules[id_].teams, (layer.team, replace(rule, teams=()))))  # noqa: PLW2901
            rules[id_] = rule
    return rules


def load_thresholds(name: str, rules_dir: Path | None = None) -> Mapping[str, Threshold]:
    """The thresholds of a file that ships, with a site's file of the same name over it. Raises RulesError."""
    thresholds: dict[str, Threshold] = {}
    for origin, file, table in read_layers(rules_dir, name, dict[Literal["thresholds"], Entries]):
        thresholds = _thresholds(file, table.get("thresholds", {}), thresholds, origin)
    return thresholds


def load_levels(name: str, rules_dir: Path | None = None) -> Levels:
    """The numbers of such a file."""
    return Levels(**{key: threshold.value for key, threshold in load_thresholds(name, rules_dir).items()})


def _waste_rule(layer: Layer, base: Mapping[str, WasteRule], file: object, entry: _Rule) -> Mapping[str, WasteRule]:
    check_known(file, "id", "rule", [entry.id] if base else (), base)
    old = base.get(entry.id)
    if old is not None and old.about == "nodes" and layer.team is not None:
        raise wrong(file, "id", "findings are about nodes, which teams share", "Set it in the site's own waste/.")
    thresholds = _thresholds(file, entry.thresholds, old.thresholds if old else {}, layer.origin)
    _check_texts(file, entry, PLACEHOLDERS | thresholds.keys())
    given: dict[str, Any] = {key: value for key in _Rule.__struct_fields__ if (value := getattr(entry, key))}
    given["thresholds"] = thresholds
    return {entry.id: replace(old, **given) if old is not None else WasteRule(**given)}


def _check_texts(file: object, rule: _Rule | _Custom, names: Collection[str]) -> None:
    for key, texts in (("text", (rule.text or "",)), ("would_change_if", rule.would_change_if)):
        check_known(file, key, "placeholder", gaps(" ".join(texts)), sorted(names))


def _thresholds(file: object, entries: Entries, base: Mapping[str, Threshold], origin: str) -> dict[str, Threshold]:
    """Named thresholds over those of `base`: only its names, and missing keys are as there."""
    thresholds = dict(base)
    check_known(file, "thresholds", "threshold", entries if origin != SHIPPED else (), base)
    for name, entry in entries.items():
        at, old, defaults = place("thresholds", name), base.get(name), {}
        if old is not None:
            defaults = {"unit": old.unit, "resolution": old.resolution, "reason": f"set by this {origin}"}
            defaults["source"] = f"{origin} rules ({file}), in place of {old.value:g}"
        new = convert(file, defaults | entry, Threshold, "thresholds", name, origin=origin)
        for key in ("unit", "resolution"):
            was, now = getattr(old or new, key), getattr(new, key)
            if now != was:
                raise wrong(file, at, f"the {key} is {was} and cannot become {now}", "Convert the value.")
        _check_bounds(file, at, new.value, new.unit)
        thresholds[name] = new
    for name, least in thresholds.items() if entries else ():
        other = f"{name.removesuffix('_min')}_max"
        most = thresholds.get(other, least) if name.endswith("_min") else least
        if most.unit == least.unit and least.value > most.value:
            sentence = f"{name} is {least.value:g}, above {other} of {most.value:g}"
            raise wrong(file, "thresholds", sentence, "Lower the one, or raise the other.")
    return thresholds


def _check_bounds(file: object, at: str, value: float, unit: str) -> None:
    low, high = BOUNDS.get(unit, (0.0, 1e18))
    if not low <= value <= high:
        raise wrong(file, at, f"{value:g} is impossible for unit {unit}: it is from {low:g} to {high:g}")


# The features by name, read once: files of the package do not change while a program runs.
load_features = cache(partial(read, packaged_rules() / "features.yaml", dict[Name, Feature]))


def load_custom_rules(rules_dir: Path | None = None) -> CustomRules:
    """The custom rules of a site's folder and of its teams; none ship. Raises RulesError with file and key."""
    site: dict[str, CustomRule] = {}
    teams: list[tuple[Team, Mapping[str, CustomRule]]] = []
    for layer in every_layer(rules_dir):
        rules = read_folders([layer.folder / "custom"], _Custom, partial(_custom_rule, layer))
        if layer.team is None:
            site |= rules
        elif rules:
            teams.append((layer.team, rules))
    return CustomRules(site, tuple(teams))


def _custom_rule(layer: Layer, file: object, entry: _Custom) -> Mapping[str, CustomRule]:
    conditions: list[Condition] = []
    thresholds: dict[str, Threshold] = {}
    for number, given in enumerate(entry.when, 1):
        at, name, features = place("when", str(number)), given.feature, load_features()
        check_known(file, at, "feature", [name], features, otherwise="See 'skuwise rules features'.")
        unit = features[name].unit
        if given.unit not in ("", unit):
            sentence = f"the unit of {quoted(name)} is {unit}, not {quoted(given.unit)}"
            raise wrong(file, at, sentence, "Convert the value.")
        _check_bounds(file, at, given.value, unit)
        key = f"{name} {given.operator}"
        if key in thresholds:
            raise wrong(file, at, "a feature has the same operator twice", "Keep one of them.")
        thresholds[key] = Threshold(given.value, unit, "window", entry.reason, str(file), layer.origin)  # type: ignore[arg-type]
        conditions.append(msgspec.structs.replace(given, unit=unit))
    _check_texts(file, entry, {condition.feature for condition in conditions} | FILLED)
    rule = CustomRule(
        f"{PREFIX}{entry.id}", entry.severity, "window", thresholds, entry.text, entry.would_change_if,
        kinds=entry.kinds, conditions=tuple(conditions), coverage_hours=entry.coverage_hours,
    )  # fmt: skip
    return {rule.id: rule}
