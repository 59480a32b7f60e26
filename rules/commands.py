"""``skuwise rules list`` and ``rules check``: what the verdicts rest on, and whether a site's files are right."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from .catalog_loader import load_catalog
from .errors import EXIT_DONE, RulesError
from .gpu_files import GpuLibrary, load_gpus
from .loader import rules_root
from .premiums import load_premiums
from .templates import fill
from .thresholds import (
    Threshold,
    WasteRule,
    load_bottleneck_thresholds,
    load_kind_thresholds,
    load_waste_rules,
)


def configure(command: str, parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``skuwise rules``."""
    assert command == "rules"
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every threshold with its unit, its resolution and its reason")
    listing.add_argument("--format", choices=("table", "json"), default="table")
    listing.add_argument("--rules", type=Path, metavar="DIR", help="a site's own rules, over those that ship")
    listing.set_defaults(run=_list)
    check = actions.add_parser("check", help="check the rules that ship, or a site's own folder over them")
    check.add_argument("rules", type=Path, nargs="?", metavar="DIR", help="a site's own rules")
    check.set_defaults(run=_check)


def _list(options: argparse.Namespace) -> int:
    rules = load_waste_rules(options.rules)
    groups = {
        "kinds": load_kind_thresholds(options.rules),
        "bottlenecks": load_bottleneck_thresholds(options.rules),
    }
    if options.format == "json":
        document = {
            "schema": "skuwise.rules/1",
            "waste": [_rule_json(rule) for rule in rules.values()],
            **{name: _thresholds_json(thresholds) for name, thresholds in groups.items()},
        }
        _out(json.dumps(document, indent=2, allow_nan=False))
        return EXIT_DONE
    for rule in rules.values():
        _out(f"{rule.id}: severity {rule.severity}, rests on data by the {rule.resolution}")
        _print_thresholds(rule.thresholds)
        _print_sentences("never flagged", _filled(rule.exceptions, rule))
        _print_sentences("would change if", _filled(rule.would_change_if, rule))
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
        "waste rules": lambda: len(load_waste_rules(options.rules)),
        "thresholds of kinds": lambda: len(load_kind_thresholds(options.rules)),
        "thresholds of bottlenecks": lambda: len(load_bottleneck_thresholds(options.rules)),
    }
    wrong = 0
    for name, load in parts.items():
        try:
            _out(f"{name}: {load()}, right")
        except RulesError as error:
            wrong += 1
            _out(f"{name}: {error}")
    if wrong:
        parts_wrong = "1 part" if wrong == 1 else f"{wrong} parts"
        raise RulesError(f"{parts_wrong} of the rules cannot be used.", "Correct the lines named above.")
    _print_limits(load_gpus(options.rules))
    return EXIT_DONE


def _print_limits(library: GpuLibrary) -> None:
    for name, facts in library.facts.items():
        if facts.tensor_basis == "back-solved":
            _out(f"  note: {name}: clock and rate were computed from one another, so they do not check one another")
        for check, reason in facts.unchecked.items():
            _out(f"  note: {name}: {check} is not checked: {reason}")
    unsure = [name for name, gpu in library.gpus.items() if gpu.source.grade == "C"]
    if unsure:
        _out(f"  note: grade C, figures from memory or by formula: {', '.join(unsure)}")


def _print_thresholds(thresholds: Mapping[str, Threshold]) -> None:
    for name, threshold in thresholds.items():
        _out(f"  {name} = {threshold.value:g} ({threshold.unit}, by the {threshold.resolution})")
        _wrapped(f"{threshold.reason} Source: {threshold.source}.", "      ")


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
    sys.stdout.write(text + "\n")
