"""``skuwise rules check``: whether the rules that ship, or a site's own over them, are right."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ..base.errors import EXIT_DONE, RulesError, UsageError
from ..base.output import write_lines
from ..base.yaml_loader import rules_root
from ..catalog.gpu_files import GpuLibrary, load_gpus
from ..catalog.hour_prices import GPU_FLAG, StatedPrices, parse_flags, resolve_prices
from ..catalog.loader import load_catalog
from ..catalog.premiums import load_premiums
from ..catalog.price_files import load_prices
from ..catalog.providers import load_providers
from ..models.resting_power import load_resting_power
from ..models.served_models import load_served_models
from ..policy.custom import CustomRules, load_custom_rules
from ..policy.exceptions import Exceptions, load_exceptions
from ..policy.kind_priors import load_kind_priors
from ..policy.latency_classes import load_latency_classes
from ..policy.teams import load_teams
from ..policy.thresholds import (
    load_bottleneck_thresholds,
    load_kind_thresholds,
    load_reporting_thresholds,
    load_threshold_file,
    load_waste_rules,
)

EXAMPLES = ("skuwise rules check", "skuwise rules check my-rules --prices prices.yaml")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rules", type=Path, nargs="?", metavar="DIR", help="folder of site rules (default: check the built-in ones)"
    )
    parser.add_argument("--prices", type=Path, metavar="FILE", help="price file to check as well")
    parser.add_argument(
        GPU_FLAG, action="append", default=[], metavar="SKU=PRICE", dest="gpu_hour_usd",
        help="price in US dollars per GPU-hour to check as well; repeatable",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    rules_root(options.rules)
    parts: dict[str, Callable[[], int]] = {
        "gpus": lambda: len(load_gpus(options.rules).gpus),
        "nodes": lambda: len(load_catalog(options.rules).nodes),
        "premiums": lambda: len(load_premiums(options.rules)),
        "providers": lambda: len(load_providers(options.rules)),
        "idle power": lambda: len(load_resting_power().gpus),
        "served models": lambda: len(load_served_models().by_name),
        "teams": lambda: len(load_teams(options.rules)),
        "waste rules": lambda: len(load_waste_rules(options.rules)),
        "custom rules": lambda: len(load_custom_rules(options.rules)),
        "exceptions": lambda: len(_exceptions(options.rules).every),
        "kind priors": lambda: len(load_kind_priors(options.rules).every),
        "latency classes": lambda: len(load_latency_classes(options.rules).classes),
        "kind thresholds": lambda: len(load_kind_thresholds(options.rules)),
        "thresholds of rest": lambda: len(load_threshold_file("rest.yaml", options.rules)),
        "bottleneck thresholds": lambda: len(load_bottleneck_thresholds(options.rules)),
        "thresholds of reporting": lambda: len(load_reporting_thresholds(options.rules)),
    }
    if options.prices is not None:
        parts["prices"] = lambda: _price_count(options.prices, options.rules)
    if options.gpu_hour_usd:
        said = StatedPrices(gpu_flags=parse_flags(options.gpu_hour_usd))
        parts["prices per GPU-hour"] = lambda: len(
            resolve_prices(said, load_catalog(options.rules), datetime.now(UTC).date()).gpu
        )
    wrong = 0
    for name, load in parts.items():
        try:
            write_lines(f"{name}: {load()}, valid")
        except (RulesError, UsageError) as error:
            wrong += 1
            write_lines(f"{name}: {error}")
    if wrong:
        parts_wrong = "1 part" if wrong == 1 else f"{wrong} parts"
        raise RulesError(f"{parts_wrong} of the rules cannot be used.", "Fix the lines above.")
    _print_limits(load_gpus(options.rules))
    return EXIT_DONE


def _exceptions(rules_dir: Path | None) -> Exceptions:
    """The exceptions, checked beside rules that may be wrong themselves: those are told of once, where they stand."""
    custom = CustomRules({})
    with suppress(RulesError):
        custom = load_custom_rules(rules_dir)
    return load_exceptions(rules_dir, known_rules=(*load_waste_rules(), *custom.ids))


def _price_count(prices: Path, rules_dir: Path | None) -> int:
    told = load_prices(prices, load_catalog(rules_dir).nodes, today=datetime.now(UTC).date())
    return len(told.prices) + len(told.power)


def _print_limits(library: GpuLibrary) -> None:
    for name, facts in library.facts.items():
        if facts.tensor_basis == "back-solved":
            why = "clock and rate were computed from one another, so they do not check one another"
            write_lines(f"  note: {name}: {why}")
        for check, reason in facts.unchecked.items():
            write_lines(f"  note: {name}: {check} is not checked: {reason}")
    unsure = [name for name, gpu in library.gpus.items() if gpu.source.grade == "C"]
    if unsure:
        write_lines(f"  note: grade C, figures from memory or by formula: {', '.join(unsure)}")
