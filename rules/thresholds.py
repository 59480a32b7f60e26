"""Thresholds and texts of the rules, as frozen values: ``waste/*.yaml``, ``kinds.yaml``, ``bottlenecks.yaml``.

Rules hold numbers and sentences, never expressions: what is compared with what is code in the advisor. A site's file
of the same name (``--rules DIR``) replaces single thresholds, the severity or the texts; it cannot invent a threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

from .fields import Fields, suggest
from .loader import layers, read_table, yaml_files
from .templates import check_template

SEVERITIES = ("low", "medium", "high")
RESOLUTIONS = ("sample", "second", "minute", "hour", "window")
UNITS = ("ratio", "hours", "minutes", "seconds", "count", "correlation", "bytes", "watts")


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number and why it is that number.

    `unit` is one of `UNITS`; `resolution` is the row the number is meant for: one sample or second, a minute's or an
    hour's rollup, or the whole window. `source` says who measured or proposed it.
    """

    value: float
    unit: str
    resolution: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class WasteRule:
    """One kind of waste. `text` is a template for `templates.fill`; so is each of `would_change_if`.

    `resolution` is the finest data its verdict rests on; `exceptions` are sentences about what it never flags.
    """

    id: str
    severity: str
    resolution: str
    thresholds: Mapping[str, Threshold]
    text: str
    would_change_if: tuple[str, ...]
    exceptions: tuple[str, ...]

    def value(self, threshold: str) -> float:
        """The number of one threshold, in its unit."""
        return self.thresholds[threshold].value


def load_waste_rules(rules_dir: Path | None = None) -> Mapping[str, WasteRule]:
    """Every waste rule by its id; `rules_dir` is a site's folder laid out like ours."""
    rules: dict[str, WasteRule] = {}
    for site, layer in enumerate(layers(rules_dir)):
        for file in yaml_files(layer.joinpath("waste")):
            fields = Fields(str(file), read_table(file), "this rule")
            rule_id = fields.text("id")
            fields.where = f"rule {rule_id!r}"
            if site and rule_id not in rules:
                raise fields.fault("id", f"unknown rule {rule_id!r}", suggest(rule_id, rules) or "It cannot be new.")
            if not site and rule_id in rules:
                raise fields.fault("id", f"rule {rule_id!r} is already defined", "Give it another id.")
            rules[rule_id] = _waste_rule(fields, rule_id, rules.get(rule_id))
    return MappingProxyType(rules)


def load_kind_thresholds(rules_dir: Path | None = None) -> Mapping[str, Threshold]:
    """The thresholds by which a workload's kind is told."""
    return _threshold_file("kinds.yaml", rules_dir)


def load_bottleneck_thresholds(rules_dir: Path | None = None) -> Mapping[str, Threshold]:
    """The thresholds by which a sample's bottleneck is told."""
    return _threshold_file("bottlenecks.yaml", rules_dir)


def _waste_rule(fields: Fields, rule_id: str, base: WasteRule | None) -> WasteRule:
    thresholds = _thresholds(fields.table_or_none("thresholds"), base.thresholds if base else None)
    severity = fields.text_or_none("severity", SEVERITIES) if base else fields.text("severity", SEVERITIES)
    resolution = fields.text_or_none("resolution", RESOLUTIONS) if base else fields.text("resolution", RESOLUTIONS)
    text = fields.text_or_none("text") if base else fields.text("text")
    changes, exceptions = fields.texts("would_change_if"), fields.texts("exceptions")
    fields.done()
    for key, template in [("text", text or ""), *(("would_change_if", change) for change in changes)]:
        unknown = check_template(template, thresholds)
        if unknown is not None:
            raise fields.fault(key, f"unknown placeholder {{{unknown}}} in {key!r}", suggest(unknown, thresholds))
    if base is None:
        return WasteRule(
            rule_id, severity or "", resolution or "", thresholds, (text or "").strip(), changes, exceptions
        )
    return replace(
        base,
        severity=severity or base.severity,
        resolution=resolution or base.resolution,
        thresholds=thresholds,
        text=(text or base.text).strip(),
        would_change_if=changes or base.would_change_if,
        exceptions=exceptions or base.exceptions,
    )


def _threshold_file(name: str, rules_dir: Path | None) -> Mapping[str, Threshold]:
    found: Mapping[str, Threshold] | None = None
    for layer in layers(rules_dir):
        file: Traversable | Path = layer.joinpath(name)
        if found is not None and not file.is_file():
            continue
        fields = Fields(str(file), read_table(file), name)
        found = _thresholds(fields.subtable("thresholds"), found)
        fields.done()
    assert found is not None
    return found


def _thresholds(table: Fields | None, base: Mapping[str, Threshold] | None) -> Mapping[str, Threshold]:
    """Named thresholds; over a `base`, only names it has, and what is not given stays as it is there."""
    result: dict[str, Threshold] = dict(base or {})
    for name, fields in table.entries(lambda name: f"threshold {name!r}") if table else ():
        old = result.get(name)
        if base is not None and old is None:
            assert table is not None
            raise table.fault(
                name, f"unknown threshold {name!r}", suggest(name, base) or f"Known are {', '.join(base)}."
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
            reason = fields.text_or_none("reason") or "set by this site"
            source = fields.text_or_none("source") or f"site rules ({fields.file}), in place of {old.value:g}"
            result[name] = replace(old, value=value, reason=" ".join(reason.split()), source=" ".join(source.split()))
        fields.done()
        new = result[name]
        bounds = {"ratio": (0.0, 100.0), "correlation": (-1.0, 1.0)}.get(new.unit, (0.0, float("inf")))
        if not bounds[0] <= new.value <= bounds[1]:
            raise fields.fault("value", f"'value' {new.value:g} is impossible for unit {new.unit}", "Correct it.")
    return MappingProxyType(result)
