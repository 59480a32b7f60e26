"""``skuwise rules list``: every rule with its thresholds, their reasons and origins, in the shape of the files."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path

import msgspec
import yaml

from ..base.errors import EXIT_DONE
from ..base.output import write_json, write_lines
from ..policy.custom import CustomRule, load_custom_rules
from ..policy.exceptions import RuleException, load_exceptions
from ..policy.kind_priors import load_kind_priors
from ..policy.latency_classes import LatencyClasses, load_latency_classes
from ..policy.thresholds import Threshold, WasteRule, fill, load_thresholds, load_waste_rules

EXAMPLES = ("skuwise rules list",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("yaml", "json"), default="yaml", help="output format (default: yaml)")
    parser.add_argument(
        "--rules", type=Path, metavar="DIR", help="folder of site rules, which override the built-in ones"
    )


def run(options: argparse.Namespace) -> int:
    rules = load_waste_rules(options.rules)
    custom = load_custom_rules(options.rules)
    exceptions = load_exceptions(options.rules, known_rules=(*rules, *custom.ids))
    of_teams = [(rule, team.name) for team, own in custom.teams for rule in own.values()]
    document = {
        "waste": [_rule(rule) for rule in rules.values()],
        "custom": [_custom(rule, team) for rule, team in (*((one, None) for one in custom.site.values()), *of_teams)],
        "exceptions": [_exception(one) for one in exceptions.every],
        **{
            name: _thresholds(load_thresholds(f"{name}.yaml", options.rules))
            for name in ("kinds", "bottlenecks", "rest", "reporting", "watch")
        },
        "kind_priors": [
            {"id": one.name, "of": one.of, "names": sorted(one.names), "words": one.words_told,
             "hours_min": one.hours_min, "log_odds": one.log_odds, "says": one.says, "reason": one.reason,
             "origin": one.origin}
            for one in load_kind_priors(options.rules).every
        ],
        "latency_classes": _latency(load_latency_classes(options.rules)),
    }  # fmt: skip
    if options.format == "json":
        write_json({"schema": "skuwise.rules/1", **document})
    else:
        plain = msgspec.to_builtins(document)
        write_lines(yaml.safe_dump(plain, sort_keys=False, width=110).rstrip())
    return EXIT_DONE


def _latency(latency: LatencyClasses) -> dict[str, object]:
    return {
        "classes": [
            {"class": class_.name, **class_.limits, "says": class_.says, "reason": class_.reason,
             "source": class_.source,
             "origin": class_.origin}
            for class_ in latency.classes.values()
        ],
        "services": [{"id": s.id, "class": s.label, "reason": s.reason} for s in latency.services],
        "kinds": latency.kinds,
    }  # fmt: skip


def _rule(rule: WasteRule) -> dict[str, object]:
    return {
        "id": rule.id,
        "severity": rule.severity,
        "resolution": rule.resolution,
        "thresholds": _thresholds(rule.thresholds),
        "text": rule.text,
        "would_change_if": _filled(rule.would_change_if, rule),
        "exceptions": _filled(rule.exceptions, rule),
        "teams": [
            {"team": team.name, "severity": own.severity, "thresholds": _thresholds(own.thresholds, rule.thresholds)}
            for team, own in rule.teams
        ],
    }


def _custom(custom: CustomRule, team: str | None) -> dict[str, object]:
    return {
        "id": custom.rule.id,
        "severity": custom.rule.severity,
        "team": team,
        "kinds": custom.kinds,
        "when": [asdict(condition) for condition in custom.conditions],
        "thresholds": _thresholds(custom.rule.thresholds),
        "coverage_hours": custom.coverage_hours,
        "text": custom.rule.text,
        "would_change_if": custom.rule.would_change_if,
    }


def _exception(one: RuleException) -> dict[str, object]:
    return {
        "id": one.id,
        "rules": one.rules,
        "origin": one.origin,
        "team": one.team.name if one.team else None,
        "match": {part.name: sorted(getattr(one.match, part.name)) for part in fields(one.match)},
        "until": one.until,
        "reason": one.reason,
        "source": one.source,
    }


def _filled(sentences: Iterable[str], rule: WasteRule) -> list[str]:
    """Sentences with the rule's own thresholds in place."""
    values = {name: threshold.value for name, threshold in rule.thresholds.items()}
    return [fill(sentence, values) for sentence in sentences]


def _thresholds(thresholds: Mapping[str, Threshold], base: Mapping[str, Threshold] | None = None) -> dict[str, object]:
    """The thresholds, or those that differ from a `base`."""
    return {name: asdict(one) for name, one in thresholds.items() if base is None or one != base[name]}
