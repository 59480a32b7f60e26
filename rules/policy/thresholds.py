"""Thresholds and texts of the rules, as frozen values: ``waste/*.yaml``, ``kinds.yaml``, ``bottlenecks.yaml``,
``reporting.yaml``.

Rules hold numbers and sentences, never expressions: what is compared with what is code in the advisor. A site's file
of the same name (``--rules DIR``) replaces single thresholds, the severity or the texts; it cannot invent a threshold.
A team's file (``DIR/teams/NAME/waste``) does the same over its site's, for the team's own workloads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from ..base.sanitize import QUOTED_MAX, quoted, suggest
from ..base.typed import Name, Number, Text, joined, place, wrong
from ..base.yaml_loader import all_of, each, packaged_rules, read, read_layers, rules_root, yaml_files
from .teams import OwnerLike, Team, load_teams, team_of

Severity = Literal["low", "medium", "high"]
Resolution = Literal["sample", "second", "minute", "hour", "window"]
Unit = Literal[
    "ratio", "hours", "minutes", "seconds", "count", "correlation", "bytes", "watts", "usd-per-month",
    "bytes-per-second",
]  # fmt: skip
# What a finding is about. Nodes and their telemetry are nobody's workload: no team can set a rule about them apart.
About = Literal["workloads", "nodes"]
SHIPPED = "shipped"
SITE = "site"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number and why it is that number.

    `unit` is one of `Unit`, `resolution` is the row the number is meant for: one sample or second, a minute's or an
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
    one of `About`. `teams`: the same rule as each team that changes it has it.
    """

    id: str
    severity: str
    resolution: str
    thresholds: Mapping[str, Threshold]
    text: str
    would_change_if: tuple[str, ...]
    exceptions: tuple[str, ...]
    about: str = "workloads"
    teams: tuple[tuple[Team, WasteRule], ...] = ()

    def value(self, threshold: str) -> float:
        """The number of one threshold, in its unit."""
        return self.thresholds[threshold].value

    def of(self, owner: OwnerLike) -> WasteRule:
        """The rule as it holds for workloads of this owner: their team's, else this one."""
        team = team_of([team for team, _ in self.teams], owner) if self.teams else None
        return next((rule for own, rule in self.teams if own is team), self)


@dataclass(frozen=True, slots=True)
class _Threshold:
    """As files have it: what changes one that ships may leave out all but the value."""

    value: Number
    unit: Unit | None = None
    resolution: Resolution | None = None
    reason: Text | None = None
    source: Text | None = None


@dataclass(frozen=True, slots=True)
class _Rule:
    id: Text
    severity: Severity | None = None
    resolution: Resolution | None = None
    about: About | None = None
    thresholds: Mapping[Name, _Threshold] = field(default_factory=dict)
    text: Text | None = None
    would_change_if: tuple[Text, ...] = ()
    exceptions: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    thresholds: Mapping[Name, _Threshold]


def load_waste_rules(rules_dir: Path | None = None) -> Mapping[str, WasteRule]:
    """Every waste rule by its id; `rules_dir` is a site's folder laid out like ours."""
    rules = _waste_layer(packaged_rules(), {}, SHIPPED)
    site = rules_root(rules_dir)

    def of_team(team: Team) -> None:
        for rule_id, rule in _waste_layer(team.folder, rules, f"team {team.name}").items():
            rules[rule_id] = replace(rules[rule_id], teams=(*rules[rule_id].teams, (team, replace(rule, teams=()))))

    if site is not None:
        all_of(lambda: rules.update(_waste_layer(site, rules, SITE)), lambda: each(load_teams(site), of_team))
    return rules


def _waste_layer(layer: Traversable | Path, base: Mapping[str, WasteRule], origin: str) -> dict[str, WasteRule]:
    """The rules that one folder defines (`base` empty) or changes."""
    rules: dict[str, WasteRule] = {}
    files: dict[str, object] = {}

    def read_one(file: Traversable | Path) -> None:
        told = read(file, _Rule)
        if base and told.id not in base:
            raise wrong(file, "id", f"unknown rule {quoted(told.id)}", suggest(told.id, base) or "It cannot be new.")
        if base and base[told.id].about == "nodes" and origin != SITE:
            raise wrong(file, "id", "findings are about nodes, which teams share", "Set it in the site's own waste/.")
        if told.id in rules:
            raise wrong(file, "id", f"{files[told.id]} sets rule {quoted(told.id)} already", "Keep one file a rule.")
        rules[told.id], files[told.id] = _waste_rule(file, told, base.get(told.id), origin), file

    each(yaml_files(layer.joinpath("waste")), read_one)
    return rules


def _waste_rule(file: object, told: _Rule, base: WasteRule | None, origin: str) -> WasteRule:
    thresholds = _thresholds(file, told.thresholds, base.thresholds if base else None, origin)
    for key, template in [("text", told.text or ""), *(("would_change_if", change) for change in told.would_change_if)]:
        unknown = check_template(template, thresholds)
        if unknown is not None:
            near = suggest(unknown, thresholds) or "Name a threshold of the rule."
            raise wrong(file, key, f"unknown placeholder {{{unknown}}}", near)
    if base is None:
        if told.severity is None or told.resolution is None or told.text is None:
            raise wrong(file, "", "a rule that ships has a severity, a resolution and a text", "Add them.")
        return WasteRule(
            told.id, told.severity, told.resolution, thresholds, told.text.strip(), told.would_change_if,
            told.exceptions, told.about or "workloads",
        )  # fmt: skip
    if told.about not in (None, base.about):
        raise wrong(file, "about", f"it is about {base.about} and cannot become another", "Remove the key.")
    return replace(
        base,
        severity=told.severity or base.severity,
        resolution=told.resolution or base.resolution,
        thresholds=thresholds,
        text=joined(told.text or base.text),
        would_change_if=told.would_change_if or base.would_change_if,
        exceptions=told.exceptions or base.exceptions,
    )


def load_thresholds(name: str, rules_dir: Path | None = None) -> Mapping[str, Threshold]:
    """The thresholds of one of our files, with a site's file of the same name over it. Raises RulesError."""
    found: Mapping[str, Threshold] | None = None
    for file, told in read_layers(rules_dir, name, _File):
        found = _thresholds(file, told.thresholds, found, SHIPPED if found is None else SITE)
    return found or {}


def _thresholds(
    file: object, told: Mapping[str, _Threshold], base: Mapping[str, Threshold] | None, origin: str
) -> Mapping[str, Threshold]:
    """Named thresholds; over a `base`, only names it has, and what is not given stays as it is there."""
    result: dict[str, Threshold] = dict(base or {})
    for name, new in told.items():
        at, old = place("thresholds", name), result.get(name)
        if base is not None and old is None:
            near = suggest(name, base) or f"Known are {', '.join(base)}."
            raise wrong(file, at, f"unknown threshold {quoted(name)}", near)
        if old is not None:
            for key, now, was in (("unit", new.unit, old.unit), ("resolution", new.resolution, old.resolution)):
                if now not in (None, was):
                    raise wrong(file, at, f"the {key} is {was} and cannot become {now}", "Convert the value.")
            reason = new.reason or f"set by this {origin}"
            source = new.source or f"{origin} rules ({file}), in place of {old.value:g}"
            unit, resolution = old.unit, old.resolution
        elif new.unit and new.resolution and new.reason and new.source:
            unit, resolution, reason, source = new.unit, new.resolution, new.reason, new.source
        else:
            raise wrong(file, at, "it lacks a unit, a resolution, a reason or a source", "Add them.")
        bounds = {"ratio": (0.0, 100.0), "correlation": (-1.0, 1.0)}.get(unit, (0.0, float("inf")))
        if not bounds[0] <= new.value <= bounds[1]:
            raise wrong(file, at, f"{new.value:g} is impossible for unit {unit}")
        result[name] = Threshold(new.value, unit, resolution, joined(reason), joined(source), origin)
    for name, low in result.items():
        other = f"{name.removesuffix('_min')}_max"
        high = result.get(other) if name.endswith("_min") else None
        # A lower bound above its upper bound lets nothing through: the two contradict one another.
        if told and high is not None and high.unit == low.unit and low.value > high.value:
            sentence = f"{name} is {low.value:g}, above {other} of {high.value:g}"
            raise wrong(file, "thresholds", sentence, "Lower the one, or raise the other.")
    return result


_GAP = re.compile(r"\{([a-z][a-z0-9_]*)\}")

# What the advisor can put into a rule's sentences, beside the rule's own thresholds. A name it cannot fill reads
# "unknown" in the sentence.
PLACEHOLDERS = frozenset(
    {
        "workload", "node", "nodes", "node_count", "gpus", "gpu_sku", "gpu_count", "node_sku", "kind", "hours",
        "gpu_hours", "cost", "price", "since", "last_active", "fabric", "line_rate", "util", "engine", "sm", "dram",
        "power", "idle_power", "power_words", "held_by", "whose", "mem_used", "u_max", "u_label", "count_needed",
        "confidence", "span", "share", "lost", "link", "limit", "cause", "bottleneck", "cheaper_sku", "mem_gb",
        "traffic",
    }
)  # fmt: skip


def check_template(
    template: str, thresholds: Collection[str], placeholders: Collection[str] = PLACEHOLDERS
) -> str | None:
    """The first placeholder that nobody will fill; None where all are known."""
    for name in gaps(template):
        if name not in placeholders and name not in thresholds:
            return str(name)[:QUOTED_MAX]
    return None


def gaps(template: str) -> list[str]:
    """The names of the gaps of a template."""
    return _GAP.findall(template)


def fill(template: str, values: Mapping[str, object]) -> str:
    """The template with each gap filled once; a missing value reads "unknown".

    What is filled in is never read again for gaps, so a name from outside cannot reach another value. Escaping for
    the output at hand (HTML, CSV, a terminal) is the renderer's.
    """

    def one(match: re.Match[str]) -> str:
        value = values.get(match.group(1))
        if value is None:
            return "unknown"
        return f"{value:g}" if isinstance(value, float) else str(value)

    return _GAP.sub(one, template)


REST_FILE = "rest.yaml"


@dataclass(frozen=True, slots=True)
class RestRules:
    """Each number in the unit of its name, ratios 0..1; `rules/rest.yaml` has the reasons and the sources."""

    work_engine_min: float
    work_dram_min: float
    trace_engine_min: float
    trace_engine_max: float
    trace_dram_min: float
    trace_dram_max: float
    trace_tensor_min: float
    noise_times: float
    kernel_min: float
    power_margin: float
    fault_power_share_min: float
    fault_minutes: float
    steady_power_ratio: float
    steady_power_watts: float
    rest_of_work_held: float
    rest_of_work: float
    unknown_rest_watts_max: float
    memory_held_min: float


def load_rest_rules(rules_dir: Path | None = None) -> RestRules:
    """The thresholds that ship, with those of a site's folder over them. Raises RulesError with file and line."""
    thresholds = load_thresholds(REST_FILE, rules_dir)
    return RestRules(**{field.name: thresholds[field.name].value for field in fields(RestRules)})


WATCH_FILE = "watch.yaml"


@dataclass(frozen=True, slots=True)
class WatchRules:
    """Each number in the unit of its name; `rules/watch.yaml` has the reasons and the sources."""

    observed_min: float
    gap_minutes: float
    fresh_minutes: float
    host_bytes_per_second_min: float
    host_times: float
    host_cpu_rise_min: float
    host_time_hours: float
    worked_minutes: float
    stall_minutes: float
    stall_times: float
    blind_stall_minutes: float
    spin_engine_min: float
    spin_tensor_share_max: float
    spin_dram_max: float
    spin_links_share_max: float
    fault_clock_share_max: float
    fault_throttled_min: float
    fault_minutes: float
    fabric_used_min: float
    fabric_silent_max: float
    fabric_minutes: float


def load_watch_rules(rules_dir: Path | None = None) -> WatchRules:
    """The thresholds that ship, with those of a site's folder over them. Raises RulesError with file and line."""
    thresholds = load_thresholds(WATCH_FILE, rules_dir)
    return WatchRules(**{field.name: thresholds[field.name].value for field in fields(WatchRules)})
