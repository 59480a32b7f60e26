"""``skuwise rules list``, ``check`` and ``features``: what verdicts rest on, and whether a site's files are right."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from .base.errors import EXIT_DONE, RulesError, UsageError
from .base.sanitize import clean
from .base.templates import fill
from .base.text_table import columns
from .base.yaml_loader import rules_root
from .catalog.gpu_files import GpuLibrary, load_gpus
from .catalog.hour_prices import GPU_FLAG, StatedPrices, parse_flags, resolve_prices
from .catalog.loader import load_catalog
from .catalog.premiums import load_premiums
from .catalog.price_files import load_prices
from .catalog.providers import load_providers
from .models.resting_power import load_resting_power
from .policy.custom import CustomRule, CustomRules, load_custom_rules
from .policy.exceptions import Exceptions, RuleException, load_exceptions
from .policy.features import FEATURES
from .policy.teams import load_teams
from .policy.thresholds import Threshold, WasteRule, load_bottleneck_thresholds, load_kind_thresholds, load_waste_rules


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``skuwise rules``."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every threshold with its unit, resolution, reason and origin")
    listing.add_argument("--format", choices=("table", "json"), default="table")
    listing.add_argument("--rules", type=Path, metavar="DIR", help="a site's own rules, over those that ship")
    listing.set_defaults(run=_list)
    check = actions.add_parser("check", help="check the rules that ship, or a site's own folder over them")
    check.add_argument("rules", type=Path, nargs="?", metavar="DIR", help="a site's own rules")
    check.add_argument("--prices", type=Path, metavar="FILE", help="a team's prices, to be checked as well")
    check.add_argument(
        GPU_FLAG, action="append", default=[], metavar="SKU=PRICE", dest="gpu_hour_usd",
        help="US dollars per GPU-hour of a GPU, to be checked as well; repeatable",
    )  # fmt: skip
    check.set_defaults(run=_check)
    features = actions.add_parser("features", help="the features that a custom rule may ask for, with their units")
    features.set_defaults(run=_features)


def _list(options: argparse.Namespace) -> int:
    rules = load_waste_rules(options.rules)
    custom = load_custom_rules(options.rules)
    exceptions = load_exceptions(options.rules, known_rules=(*rules, *custom.ids))
    groups = {
        "kinds": load_kind_thresholds(options.rules),
        "bottlenecks": load_bottleneck_thresholds(options.rules),
    }
    if options.format == "json":
        document = {
            "schema": "skuwise.rules/1",
            "waste": [_rule_json(rule) for rule in rules.values()],
            "custom": [_custom_json(rule, team) for rule, team in _every(custom)],
            "exceptions": [_exception_json(one) for one in exceptions.every],
            **{name: _thresholds_json(thresholds) for name, thresholds in groups.items()},
        }
        _out(json.dumps(document, indent=2, allow_nan=False))
        return EXIT_DONE
    for rule in rules.values():
        _print_rule(rule)
    for rule, team in _every(custom):
        _print_custom(rule, team)
    _out("exceptions:")
    for one in exceptions.every:
        _print_exception(one)
    _out("")
    for name, thresholds in groups.items():
        _out(f"{name}:")
        _print_thresholds(thresholds)
        _out("")
    return EXIT_DONE


def _check(options: argparse.Namespace) -> int:
    rules_root(options.rules)
    parts: dict[str, Callable[[], int]] = {
        "gpus": lambda: len(load_gpus(options.rules).gpus),
        "nodes": lambda: len(load_catalog(options.rules).nodes),
        "premiums": lambda: len(load_premiums(options.rules)),
        "providers": lambda: len(load_providers(options.rules)),
        "power at rest": lambda: len(load_resting_power().gpus),
        "teams": lambda: len(load_teams(options.rules)),
        "waste rules": lambda: len(load_waste_rules(options.rules)),
        "custom rules": lambda: len(load_custom_rules(options.rules)),
        "exceptions": lambda: len(_exceptions(options.rules).every),
        "thresholds of kinds": lambda: len(load_kind_thresholds(options.rules)),
        "thresholds of bottlenecks": lambda: len(load_bottleneck_thresholds(options.rules)),
    }
    if options.prices is not None:
        parts["prices"] = lambda: _price_count(options.prices, options.rules)
    if options.gpu_hour_usd:
        said = StatedPrices(gpu_flags=parse_flags(options.gpu_hour_usd))
        parts["prices by the GPU-hour"] = lambda: len(
            resolve_prices(said, load_catalog(options.rules), datetime.now(UTC).date()).gpu
        )
    wrong = 0
    for name, load in parts.items():
        try:
            _out(f"{name}: {load()}, right")
        except (RulesError, UsageError) as error:
            wrong += 1
            _out(f"{name}: {error}")
    if wrong:
        parts_wrong = "1 part" if wrong == 1 else f"{wrong} parts"
        raise RulesError(f"{parts_wrong} of the rules cannot be used.", "Correct the lines named above.")
    _print_limits(load_gpus(options.rules))
    return EXIT_DONE


def _features(_: argparse.Namespace) -> int:
    _out(columns(("feature", "unit", "meaning"), [(name, *about) for name, about in FEATURES.items()]))
    return EXIT_DONE


def _exceptions(rules_dir: Path | None) -> Exceptions:
    """The exceptions, checked beside rules that may be wrong themselves: those are told of once, where they stand."""
    custom = CustomRules({})
    with suppress(RulesError):
        custom = load_custom_rules(rules_dir)
    return load_exceptions(rules_dir, known_rules=(*load_waste_rules(), *custom.ids))


def _every(custom: CustomRules) -> list[tuple[CustomRule, str | None]]:
    """Every custom rule with the team whose it is (None: the site's)."""
    own = [(rule, team.name) for team, rules in custom.teams for rule in rules.values()]
    return [*((rule, None) for rule in custom.site.values()), *own]


def _price_count(prices: Path, rules_dir: Path | None) -> int:
    told = load_prices(prices, load_catalog(rules_dir).nodes, today=datetime.now(UTC).date())
    return len(told.prices) + len(told.power)


def _print_limits(library: GpuLibrary) -> None:
    for name, facts in library.facts.items():
        if facts.tensor_basis == "back-solved":
            _out(f"  note: {name}: clock and rate were computed from one another, so they do not check one another")
        for check, reason in facts.unchecked.items():
            _out(f"  note: {name}: {check} is not checked: {reason}")
    unsure = [name for name, gpu in library.gpus.items() if gpu.source.grade == "C"]
    if unsure:
        _out(f"  note: grade C, figures from memory or by formula: {', '.join(unsure)}")


def _print_rule(rule: WasteRule) -> None:
    _out(f"{rule.id}: severity {rule.severity}, rests on data by the {rule.resolution}")
    _print_thresholds(rule.thresholds)
    _print_sentences("never flagged", _filled(rule.exceptions, rule))
    _print_sentences("would change if", _filled(rule.would_change_if, rule))
    for team, own in rule.teams:
        _out(f"  for team {team.name}: severity {own.severity}")
        _print_thresholds(_changed(own, rule), indent="    ")
    _out("")


def _print_custom(custom: CustomRule, team: str | None) -> None:
    rule = custom.rule
    whose = f", for team {team}" if team else ""
    _out(f"{rule.id}: severity {rule.severity}, from {custom.coverage_hours:g} h of data on{whose}")
    _out(f"  of {', '.join(custom.kinds)}, where all of these hold:")
    _print_thresholds(rule.thresholds, equals="")
    _print_sentences("would change if", rule.would_change_if)
    _out("")


def _print_exception(one: RuleException) -> None:
    until = f" until {one.until}" if one.until else ""
    _out(f"  {one.id} ({one.origin}{until}): silences {', '.join(one.rules)}")
    _out(f"      fits {_fitting(one)}")
    _wrapped(f"{one.reason} Source: {one.source}.", "      ")


def _fitting(one: RuleException) -> str:
    match = one.match
    parts = [*match.owners.parts, ("name", match.names), ("node", match.nodes), ("command", match.command)]
    said = [f"{part} {', '.join(sorted(names))}" for part, names in parts if names]
    if said:
        return "; ".join(said)
    return f"all work of team {one.team.name}" if one.team else "nothing until a site says whose work it is"


def _changed(own: WasteRule, base: WasteRule) -> Mapping[str, Threshold]:
    return {name: one for name, one in own.thresholds.items() if one != base.thresholds[name]}


def _print_thresholds(thresholds: Mapping[str, Threshold], indent: str = "  ", equals: str = "= ") -> None:
    for name, threshold in thresholds.items():
        about = f"{threshold.unit}, by the {threshold.resolution}, {threshold.origin}"
        _out(f"{indent}{name} {equals}{threshold.value:g} ({about})")
        _wrapped(f"{threshold.reason} Source: {threshold.source}.", f"{indent}    ")


def _print_sentences(title: str, sentences: Sequence[str]) -> None:
    if sentences:
        _out(f"  {title}:")
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
    match = one.match
    return {
        "id": one.id,
        "rules": list(one.rules),
        "origin": one.origin,
        "team": one.team.name if one.team else None,
        "match": {
            **{part: sorted(names) for part, names in match.owners.parts},
            "name": sorted(match.names),
            "node": sorted(match.nodes),
            "command": sorted(match.command),
        },
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
    _out(textwrap.fill(text, width=110, initial_indent=indent, subsequent_indent=indent))


def _out(text: str) -> None:
    """Print lines; what stands in a rules file has no effect on the terminal."""
    sys.stdout.write("\n".join(clean(line) for line in text.split("\n")) + "\n")
