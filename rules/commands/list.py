"""``skuwise rules list``: every threshold with its unit, resolution, reason and origin."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from ..base.errors import EXIT_DONE
from ..base.output import write_json, write_lines
from ..base.templates import fill
from ..policy.custom import CustomRule, CustomRules, load_custom_rules
from ..policy.exceptions import RuleException, load_exceptions
from ..policy.kind_priors import KindPrior, load_kind_priors
from ..policy.latency_classes import LatencyClasses, load_latency_classes
from ..policy.thresholds import Threshold, WasteRule, load_thresholds, load_waste_rules

EXAMPLES = ("skuwise rules list",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")
    parser.add_argument(
        "--rules", type=Path, metavar="DIR", help="folder of site rules, which override the built-in ones"
    )


def run(options: argparse.Namespace) -> int:
    rules = load_waste_rules(options.rules)
    custom = load_custom_rules(options.rules)
    exceptions = load_exceptions(options.rules, known_rules=(*rules, *custom.ids))
    groups = {
        "kinds": load_thresholds("kinds.yaml", options.rules),
        "bottlenecks": load_thresholds("bottlenecks.yaml", options.rules),
        "rest": load_thresholds("rest.yaml", options.rules),
        "reporting": load_thresholds("reporting.yaml", options.rules),
    }
    priors = load_kind_priors(options.rules)
    latency = load_latency_classes(options.rules)
    if options.format == "json":
        write_json({
            "schema": "skuwise.rules/1",
            "waste": [_rule_json(rule) for rule in rules.values()],
            "custom": [_custom_json(rule, team) for rule, team in _every(custom)],
            "exceptions": [_exception_json(one) for one in exceptions.every],
            **{name: _thresholds_json(thresholds) for name, thresholds in groups.items()},
            "kind_priors": [_prior_json(one) for one in priors.every],
            "latency_classes": _latency_json(latency),
        })  # fmt: skip
        return EXIT_DONE
    for rule in rules.values():
        _print_rule(rule)
    for rule, team in _every(custom):
        _print_custom(rule, team)
    write_lines("exceptions:")
    for one in exceptions.every:
        _print_exception(one)
    write_lines("")
    for name, thresholds in groups.items():
        write_lines(f"{name}:")
        _print_thresholds(thresholds)
        write_lines("")
    write_lines("priors of workload kinds, in log-odds:")
    for one in priors.every:
        weights = ", ".join(f"{kind} {weight:+g}" for kind, weight in one.log_odds.items())
        write_lines(f"  {one.name} (by {one.of}, {one.origin}): {weights}")
        _print_sentences("because", (one.reason,))
    _print_latency(latency)
    return EXIT_DONE


def _latency_json(latency: LatencyClasses) -> dict[str, object]:
    return {
        "classes": [
            {"class": one.name, **one.limits, "says": one.says, "reason": one.reason, "source": one.source,
             "origin": one.origin}
            for one in latency.classes.values()
        ],
        "services": [{"id": one.id, "class": one.label, "reason": one.reason} for one in latency.services],
        "kinds": dict(latency.kinds),
    }  # fmt: skip


def _print_latency(latency: LatencyClasses) -> None:
    write_lines("latency classes, the strictest first:")
    for one in latency.classes.values():
        limits = ", ".join(f"{key.removesuffix('_seconds')} {value:g} s" for key, value in one.limits.items())
        write_lines(f"  {one.name} ({one.origin}): {limits or 'no limit'}; {one.says}")
        _wrapped(f"{one.reason} Source: {one.source}.", "      ")
    for service in latency.services:
        write_lines(f"  services {service.id}: {service.label}, {service.reason}")
    for kind, label in latency.kinds.items():
        write_lines(f"  {kind} without other evidence: {label}")


def _prior_json(one: KindPrior) -> dict[str, object]:
    return {
        "id": one.name, "of": one.of, "names": sorted(one.names), "words": list(one.words_told),
        "hours_min": one.hours_min, "log_odds": dict(one.log_odds), "says": one.says, "reason": one.reason,
        "origin": one.origin,
    }  # fmt: skip


def _every(custom: CustomRules) -> list[tuple[CustomRule, str | None]]:
    """Every custom rule with the team whose it is (None: the site's)."""
    own = [(rule, team.name) for team, rules in custom.teams for rule in rules.values()]
    return [*((rule, None) for rule in custom.site.values()), *own]


def _print_rule(rule: WasteRule) -> None:
    write_lines(f"{rule.id}: severity {rule.severity}, evaluated per {rule.resolution}")
    _print_thresholds(rule.thresholds)
    _print_sentences("never flagged", _filled(rule.exceptions, rule))
    _print_sentences("would change if", _filled(rule.would_change_if, rule))
    for team, own in rule.teams:
        write_lines(f"  for team {team.name}: severity {own.severity}")
        _print_thresholds(_changed(own, rule), indent="    ")
    write_lines("")


def _print_custom(custom: CustomRule, team: str | None) -> None:
    rule = custom.rule
    whose = f", for team {team}" if team else ""
    write_lines(f"{rule.id}: severity {rule.severity}, from {custom.coverage_hours:g} h of data on{whose}")
    write_lines(f"  of {', '.join(custom.kinds)}, where all of these hold:")
    _print_thresholds(rule.thresholds, equals="")
    _print_sentences("would change if", rule.would_change_if)
    write_lines("")


def _print_exception(one: RuleException) -> None:
    until = f" until {one.until}" if one.until else ""
    write_lines(f"  {one.id} ({one.origin}{until}): silences {', '.join(one.rules)}")
    write_lines(f"      fits {_fitting(one)}")
    _wrapped(f"{one.reason} Source: {one.source}.", "      ")


def _match(one: RuleException) -> dict[str, list[str]]:
    return {part.name: sorted(getattr(one.match, part.name)) for part in fields(one.match)}


def _fitting(one: RuleException) -> str:
    said = [f"{part} {', '.join(names)}" for part, names in _match(one).items() if names]
    if said:
        return "; ".join(said)
    return f"all work of team {one.team.name}" if one.team else "nothing until the site sets the owners"


def _changed(own: WasteRule, base: WasteRule) -> Mapping[str, Threshold]:
    return {name: one for name, one in own.thresholds.items() if one != base.thresholds[name]}


def _print_thresholds(thresholds: Mapping[str, Threshold], indent: str = "  ", equals: str = "= ") -> None:
    for name, threshold in thresholds.items():
        about = f"{threshold.unit}, by the {threshold.resolution}, {threshold.origin}"
        write_lines(f"{indent}{name} {equals}{threshold.value:g} ({about})")
        _wrapped(f"{threshold.reason} Source: {threshold.source}.", f"{indent}    ")


def _print_sentences(title: str, sentences: Sequence[str]) -> None:
    if sentences:
        write_lines(f"  {title}:")
    for sentence in sentences:
        _wrapped(sentence, "      ")


def _rule_json(rule: WasteRule) -> dict[str, object]:
    return {
        "id": rule.id,
        "severity": rule.severity,
        "resolution": rule.resolution,
        "thresholds": _thresholds_json(rule.thresholds),
        "text": rule.text,
        "would_change_if": _filled(rule.would_change_if, rule),
        "exceptions": _filled(rule.exceptions, rule),
        "teams": [
            {"team": team.name, "severity": own.severity, "thresholds": _thresholds_json(_changed(own, rule))}
            for team, own in rule.teams
        ],
    }


def _custom_json(custom: CustomRule, team: str | None) -> dict[str, object]:
    return {
        "id": custom.rule.id,
        "severity": custom.rule.severity,
        "team": team,
        "kinds": list(custom.kinds),
        "when": [asdict(condition) for condition in custom.conditions],
        "thresholds": _thresholds_json(custom.rule.thresholds),
        "coverage_hours": custom.coverage_hours,
        "text": custom.rule.text,
        "would_change_if": list(custom.rule.would_change_if),
    }


def _exception_json(one: RuleException) -> dict[str, object]:
    return {
        "id": one.id,
        "rules": list(one.rules),
        "origin": one.origin,
        "team": one.team.name if one.team else None,
        "match": _match(one),
        "until": one.until,
        "reason": one.reason,
        "source": one.source,
    }


def _filled(sentences: Iterable[str], rule: WasteRule) -> list[str]:
    """Sentences with the rule's own thresholds in place."""
    values = {name: threshold.value for name, threshold in rule.thresholds.items()}
    return [fill(sentence, values) for sentence in sentences]


def _thresholds_json(thresholds: Mapping[str, Threshold]) -> dict[str, object]:
    return {name: asdict(threshold) for name, threshold in thresholds.items()}


def _wrapped(text: str, indent: str) -> None:
    write_lines(textwrap.fill(text, width=110, initial_indent=indent, subsequent_indent=indent))
