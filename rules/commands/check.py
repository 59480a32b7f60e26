"""``skuwise rules check``: whether the rules that ship, or a site's own over them, are right."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sized
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from ..base.errors import EXIT_DONE, RulesError, UsageError
from ..base.output import write_lines
from ..base.yaml_loader import rules_root
from ..catalog.gpu_files import GpuLibrary, load_gpus
from ..catalog.hour_prices import GPU_FLAG, StatedPrices, parse_flags, resolve_prices
from ..catalog.loader import load_catalog
from ..catalog.node_files import load_nodes, load_premiums, load_providers
from ..catalog.price_files import load_prices
from ..models.published import load_resting_power, load_served_models
from ..policy.custom import CustomRules, load_custom_rules
from ..policy.exceptions import Exceptions, load_exceptions
from ..policy.kind_priors import load_kind_priors
from ..policy.latency_classes import load_latency_classes
from ..policy.teams import load_teams
from ..policy.thresholds import load_rest_rules, load_thresholds, load_waste_rules, load_watch_rules

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
    root = rules_root(options.rules)
    parts: dict[str, Callable[[], Sized]] = {
        "gpus": lambda: load_gpus(root).gpus,
        "nodes": lambda: load_nodes(root, _gpus(root)),
        "premiums": lambda: load_premiums(root),
        "providers": lambda: load_providers(root),
        "idle power": lambda: load_resting_power().gpus,
        "served models": lambda: load_served_models().by_name,
        "teams": lambda: load_teams(root),
        "waste rules": lambda: load_waste_rules(root),
        "custom rules": lambda: load_custom_rules(root),
        "exceptions": lambda: _exceptions(root).every,
        "kind priors": lambda: load_kind_priors(root).every,
        "latency classes": lambda: load_latency_classes(root).classes,
        "kind thresholds": lambda: load_thresholds("kinds.yaml", root),
        "thresholds of rest": lambda: fields(load_rest_rules(root)),
        "thresholds of the watch": lambda: fields(load_watch_rules(root)),
        "bottleneck thresholds": lambda: load_thresholds("bottlenecks.yaml", root),
        "thresholds of reporting": lambda: load_thresholds("reporting.yaml", root),
    }
    if options.prices is not None:
        parts["prices"] = lambda: _prices(options.prices, root)
    if options.gpu_hour_usd:
        said = StatedPrices(gpu_flags=parse_flags(options.gpu_hour_usd))
        parts["prices per GPU-hour"] = lambda: resolve_prices(said, load_catalog(root), datetime.now(UTC).date()).gpu
    wrong = 0
    told: set[str] = set()
    for name, load in parts.items():
        try:
            write_lines(f"{name}: {len(load())}, valid")
        except UsageError as error:
            wrong += 1
            # A file that several parts need is told of once, and every other file that is wrong as well.
            for other in (error, *(error.others if isinstance(error, RulesError) else ())):
                if str(other) not in told:
                    write_lines(f"{name}: {other}")
                told.add(str(other))
    if wrong:
        parts_wrong = "1 part" if wrong == 1 else f"{wrong} parts"
        raise RulesError(f"{parts_wrong} of the rules cannot be used.", "Fix the lines above.")
    _print_limits(load_gpus(root))
    return EXIT_DONE


def _gpus(root: Path | None) -> Collection[str] | None:
    """The GPUs that nodes may have; None where their own files are wrong, which is told of there."""
    with suppress(RulesError):
        return load_gpus(root).gpus
    return None


def _exceptions(root: Path | None) -> Exceptions:
    """The exceptions, checked beside rules that may be wrong themselves: those are told of once, where they stand."""
    custom = CustomRules({})
    with suppress(RulesError):
        custom = load_custom_rules(root)
    return load_exceptions(root, known_rules=(*load_waste_rules(), *custom.ids))


def _prices(prices: Path, root: Path | None) -> Sized:
    told = load_prices(prices, load_catalog(root).nodes, today=datetime.now(UTC).date())
    return (*told.prices, *told.power)


def _print_limits(library: GpuLibrary) -> None:
    for name, entry in library.entries.items():
        if entry.tensor.basis == "back-solved":
            why = "clock and rate were computed from one another, so they do not check one another"
            write_lines(f"  note: {name}: {why}")
        for check, reason in entry.unchecked.items():
            write_lines(f"  note: {name}: {check} is not checked: {reason}")
    unsure = [name for name, gpu in library.gpus.items() if gpu.source.grade == "C"]
    if unsure:
        write_lines(f"  note: grade C, figures from memory or by formula: {', '.join(unsure)}")
