"""Thresholds and texts of the rules, as frozen values: ``waste/*.yaml``, ``kinds.yaml``, ``bottlenecks.yaml``,
``reporting.yaml``.

Rules hold numbers and sentences, never expressions: what is compared with what is code in the advisor. A site's file
of the same name (``--rules DIR``) replaces single thresholds, the severity or the texts; it cannot invent a threshold.
A team's file (``DIR/teams/NAME/waste``) does the same over its site's, for the team's own workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.templates import check_template
from ..base.typed_fields import Fields
from ..base.yaml_loader import layers, packaged_rules, read_table, rules_root, yaml_files
from .owners import OwnerLike
from .teams import Team, load_teams, team_of

SEVERITIES = ("low", "medium", "high")
RESOLUTIONS = ("sample", "second", "minute", "hour", "window")
UNITS = (
    "ratio",
    "hours",
    "minutes",
    "seconds",
    "count",
    "correlation",
    "bytes",
    "watts",
    "usd-per-month",
    "bytes-per-second",
)
# What a finding is about. Nodes and their telemetry are nobody's workload: no team can set a rule about them apart.
NODES = "nodes"
ABOUT = ("workloads", NODES)
SHIPPED = "shipped"
SITE = "site"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number and why it is that number.

    `unit` is one of `UNITS`; `resolution` is the row the number is meant for: one sample or second, a minute's or an
    hour's rollup, or the whole window. `source` says who measured or proposed it, `origin` whose file it stands in:
    ``shipped``, ``site`` or ``team NAME``.
    """

    value: float
    unit: str
    resolution: str
    reason: str
    source: str
    origin: str = SHIPPED


@dataclass(frozen=True, slots=True)
class WasteRule:
    """One kind of waste. `text` is a template for `templates.fill`; so is each of `would_change_if`.

    `resolution` is the finest data its verdict rests on; `exceptions` are sentences about what it never flags. `about`:
    one of `ABOUT`. `teams`: the same rule as each team that changes it has it.
    """

    id: str
    severity: str
    resolution: str
    thresholds: Mapping[str, Threshold]
    text: str
    would_change_if: tuple[str, ...]
    exceptions: tuple[str, ...]
    about: str = ABOUT[0]
    teams: tuple[tuple[Team, WasteRule], ...] = ()

    def value(self, threshold: str) -> float:
        """The number of one threshold, in its unit."""
        return self.thresholds[threshold].value

    def of(self, owner: OwnerLike) -> WasteRule:
        """The rule as it holds for workloads of this owner: their team's, else this one."""
        team = team_of([team for team, _ in self.teams], owner) if self.teams else None
        return next((rule for own, rule in self.teams if own is team), self)


def load_waste_rules(rules_dir: Path | None = None) -> Mapping[str, WasteRule]:
    """Every waste rule by its id; `rules_dir` is a site's folder laid out like ours."""
    rules = _waste_layer(packaged_rules(), {}, SHIPPED)
    site = rules_root(rules_dir)
    if site is not None:
        rules = rules | _waste_layer(site, rules, SITE)
    for team in load_teams(site):
        for rule_id, rule in _waste_layer(team.folder, rules, f"team {team.name}").items():
            rules[rule_id] = replace(rules[rule_id], teams=(*rules[rule_id].teams, (team, replace(rule, teams=()))))
    return MappingProxyType(rules)


def _waste_layer(layer: Traversable | Path, base: Mapping[str, WasteRule], origin: str) -> dict[str, WasteRule]:
    """The rules that one folder defines (`base` empty) or changes."""
    rules: dict[str, WasteRule] = {}
    files: dict[str, str] = {}
    for file in yaml_files(layer.joinpath("waste")):
        fields = Fields(str(file), read_table(file), "this rule")
        rule_id = fields.text("id")
        fields.where = f"rule {quoted(rule_id)}"
        if base and rule_id not in base:
            raise fields.fault("id", f"unknown rule {quoted(rule_id)}", suggest(rule_id, base) or "It cannot be new.")
        if base and base[rule_id].about == NODES and origin != SITE:
            raise fields.fault("id", "findings are about nodes, which teams share,", "Set it in the site's own waste/.")
        if rule_id in rules:
            raise fields.fault("id", f"{files[rule_id]} sets rule {quoted(rule_id)} already", "Keep one file a rule.")
        rules[rule_id], files[rule_id] = _waste_rule(fields, rule_id, base.get(rule_id), origin), str(file)
    return rules


def load_kind_thresholds(rules_dir: Path | None = None) -> Mapping[str, Threshold]:
    """The thresholds by which a workload's kind is told."""
    return load_threshold_file("kinds.yaml", rules_dir)


def load_bottleneck_thresholds(rules_dir: Path | None = None) -> Mapping[str, Threshold]:
    """The thresholds by which a sample's bottleneck is told."""
    return load_threshold_file("bottlenecks.yaml", rules_dir)


def load_reporting_thresholds(rules_dir: Path | None = None) -> Mapping[str, Threshold]:
    """The thresholds by which lists and mails show a recommendation."""
    return load_threshold_file("reporting.yaml", rules_dir)


def _waste_rule(fields: Fields, rule_id: str, base: WasteRule | None, origin: str) -> WasteRule:
    thresholds = _thresholds(fields.table_or_none("thresholds"), base.thresholds if base else None, origin)
    severity = fields.text_or_none("severity", SEVERITIES) if base else fields.text("severity", SEVERITIES)
    resolution = fields.text_or_none("resolution", RESOLUTIONS) if base else fields.text("resolution", RESOLUTIONS)
    text = fields.text_or_none("text") if base else fields.text("text")
    about = fields.text_or_none("about", (base.about,) if base else ABOUT) or ABOUT[0]
    changes, exceptions = fields.texts("would_change_if"), fields.texts("exceptions")
    fields.done()
    for key, template in [("text", text or ""), *(("would_change_if", change) for change in changes)]:
        unknown = check_template(template, thresholds)
        if unknown is not None:
            raise fields.fault(key, f"unknown placeholder {{{unknown}}} in {quoted(key)}", suggest(unknown, thresholds))
    if base is None:
        return WasteRule(
            rule_id, severity or "", resolution or "", thresholds, (text or "").strip(), changes, exceptions, about
        )
    return replace(
        base,
        severity=severity or base.severity,
        resolution=resolution or base.resolution,
        thresholds=thresholds,
        text=" ".join((text or base.text).split()),
        would_change_if=changes or base.would_change_if,
        exceptions=exceptions or base.exceptions,
    )


def load_threshold_file(name: str, rules_dir: Path | None) -> Mapping[str, Threshold]:
    """The thresholds of one of our files, with a site's file of the same name over it. Raises RulesError."""
    found: Mapping[str, Threshold] | None = None
    for layer in layers(rules_dir):
        file: Traversable | Path = layer.joinpath(name)
        if found is not None and not file.is_file():
            continue
        fields = Fields(str(file), read_table(file), name)
        found = _thresholds(fields.subtable("thresholds"), found, SHIPPED if found is None else SITE)
        fields.done()
    assert found is not None
    return found


def _thresholds(table: Fields | None, base: Mapping[str, Threshold] | None, origin: str) -> Mapping[str, Threshold]:
    """Named thresholds; over a `base`, only names it has, and what is not given stays as it is there."""
    result: dict[str, Threshold] = dict(base or {})
    for name, fields in table.entries(lambda name: f"threshold {quoted(name)}") if table else ():
        old = result.get(name)
        if base is not None and old is None:
            assert table is not None
            raise table.fault(
                name, f"unknown threshold {quoted(name)}", suggest(name, base) or f"Known are {', '.join(base)}."
            )
        value = fields.number("value")
        if old is None:
            result[name] = Threshold(
                value,
                fields.text("unit", UNITS),
                fields.text("resolution", RESOLUTIONS),
                " ".join(fields.text("reason").split()),
                " ".join(fields.text("source").split()),
            )
        else:
            unit = fields.text_or_none("unit", UNITS)
            if unit not in (None, old.unit):
                raise fields.fault("unit", f"the unit is {old.unit} and cannot become {unit}", "Convert the value.")
            fields.text_or_none("resolution", (old.resolution,))
            reason = fields.text_or_none("reason") or f"set by this {origin}"
            line = fields.table.lines.get("value", fields.table.line)
            told = fields.text_or_none("source") or f"{origin} rules ({fields.file}:{line}), in place of {old.value:g}"
            result[name] = replace(
                old, value=value, reason=" ".join(reason.split()), source=" ".join(told.split()), origin=origin
            )
        fields.done()
        new = result[name]
        bounds = {"ratio": (0.0, 100.0), "correlation": (-1.0, 1.0)}.get(new.unit, (0.0, float("inf")))
        if not bounds[0] <= new.value <= bounds[1]:
            raise fields.fault("value", f"'value' {new.value:g} is impossible for unit {new.unit}", "Correct it.")
    if table is not None:
        _check_order(table, result)
    return MappingProxyType(result)


def _check_order(table: Fields, thresholds: Mapping[str, Threshold]) -> None:
    """A lower bound above its upper bound lets nothing through: the two contradict one another."""
    for name, low in thresholds.items():
        high = thresholds.get(f"{name.removesuffix('_min')}_max") if name.endswith("_min") else None
        if high is None or high.unit != low.unit or low.value <= high.value:
            continue
        other = f"{name.removesuffix('_min')}_max"
        key = name if name in table.table else other
        raise table.fault(
            key, f"{name} is {low.value:g}, above {other} of {high.value:g}", "Lower the one, or raise the other."
        )
