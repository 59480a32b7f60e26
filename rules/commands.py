"""``skuwise rules``: list, check and explain the rules that ship and a site's over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from .base.click_commands import FILE, FOLDER, Group, examples, format_option
from .base.errors import RulesError, UsageError
from .base.output import columns, write_json, write_lines

if TYPE_CHECKING:
    from .policy.teams import Exceptions
    from .policy.thresholds import CustomRule, Threshold, WasteRule

SCHEMA = "skuwise.rules/1"
THRESHOLDS = {
    "kinds": "kind thresholds", "bottlenecks": "bottleneck thresholds", "rest": "thresholds of rest",
    "reporting": "thresholds of reporting", "watch": "thresholds of the watch",
}  # fmt: skip
T = TypeVar("T")


@click.group("rules", cls=Group)
def rules() -> None:
    """List or check the rules and thresholds."""


@rules.command("list", epilog=examples("skuwise rules list"))
@format_option("yaml", "json")
@click.option("--rules", "folder", type=FOLDER, help="folder of site rules, which override the built-in ones")
def list_rules(form: str, folder: Path | None) -> None:
    """List every threshold with its unit, resolution, reason and origin."""
    import msgspec
    import yaml

    from .policy.kind_priors import load_kind_priors
    from .policy.latency_classes import load_latency_classes
    from .policy.teams import load_exceptions
    from .policy.thresholds import load_custom_rules, load_thresholds, load_waste_rules

    waste, custom = load_waste_rules(folder), load_custom_rules(folder)
    latency = load_latency_classes(folder)
    of_teams = [(rule, team.name) for team, rules in custom.teams for rule in rules.values()]
    document = {
        "waste": [_waste_rule(rule) for rule in waste.values()],
        "custom": [_custom_rule(rule, team) for rule, team in (*((r, None) for r in custom.site.values()), *of_teams)],
        "exceptions": [
            msgspec.structs.asdict(e)
            | {"team": e.team and e.team.name, "match": msgspec.to_builtins(e.match, order="deterministic")}
            for e in load_exceptions(folder, known_rules=(*waste, *custom.ids)).every
        ],
        **{name: load_thresholds(f"{name}.yaml", folder) for name in THRESHOLDS},
        "kind_priors": [
            {"id": p.name, "of": p.of, "names": sorted(name.lower() for name in p.names), "words": p.words,
             "hours_min": p.hours_min, "log_odds": p.log_odds, "says": p.says, "reason": p.reason, "origin": p.origin}
            for p in load_kind_priors(folder).every
        ],
        "latency_classes": {
            "classes": [
                {"class": c.name, **c.limits, "says": c.says, "reason": c.reason, "source": c.source,
                 "origin": c.origin}
                for c in latency.classes.values()
            ],
            "services": [{"id": s.id, "class": s.label, "reason": s.reason} for s in latency.services],
            "kinds": latency.kinds,
        },
    }  # fmt: skip
    plain = msgspec.to_builtins(document)
    if form == "json":
        write_json({"schema": SCHEMA, **plain})
    else:
        write_lines(yaml.safe_dump(plain, sort_keys=False, width=110).rstrip())


@rules.command("check", epilog=examples("skuwise rules check", "skuwise rules check my-rules --prices prices.yaml"))
@click.argument("folder", metavar="DIR", type=FOLDER, required=False)
@click.option("--prices", type=FILE, help="price file to check as well")
@click.option(
    "--gpu-hour-usd", "gpu_prices", multiple=True, metavar="SKU=PRICE",
    help="price in US dollars per GPU-hour to check as well; repeatable",
)  # fmt: skip
def check(folder: Path | None, prices: Path | None, gpu_prices: tuple[str, ...]) -> None:
    """Check the built-in rules, or a folder of site rules.

    DIR: folder of site rules (default: check the built-in ones).
    """
    from .base.yaml_loader import rules_root
    from .catalog.gpu_files import load_gpus
    from .catalog.loader import load_catalog, load_nodes, load_premiums, load_providers
    from .catalog.price_files import StatedPrices, load_prices, parse_flags, resolve_prices
    from .models import load_resting_power, load_served_models
    from .policy.kind_priors import load_kind_priors
    from .policy.latency_classes import load_latency_classes
    from .policy.teams import load_exceptions
    from .policy.thresholds import CustomRules, load_custom_rules, load_thresholds, load_waste_rules

    root, today = rules_root(folder), datetime.now(UTC).date()

    def exceptions() -> Exceptions:
        custom = _valid(lambda: load_custom_rules(root), CustomRules({}))
        return load_exceptions(root, known_rules=(*load_waste_rules(), *custom.ids))

    def price_file(file: Path) -> Sized:
        priced = load_prices(file, load_catalog(root).nodes, today=today)
        return (*priced.prices, *priced.power)

    parts: dict[str, Callable[[], Sized]] = {
        "gpus": lambda: load_gpus(root).gpus,
        "nodes": lambda: load_nodes(root, _valid(lambda: load_gpus(root).gpus, None)),
        "premiums": lambda: load_premiums(root),
        "providers": lambda: load_providers(root),
        "idle power": lambda: load_resting_power().gpus,
        "served models": lambda: load_served_models().models,
        "waste rules": lambda: load_waste_rules(root),
        "custom rules": lambda: load_custom_rules(root).ids,
        "exceptions": lambda: exceptions().every,
        "kind priors": lambda: load_kind_priors(root).every,
        "latency classes": lambda: load_latency_classes(root).classes,
        **{what: partial(load_thresholds, f"{name}.yaml", root) for name, what in THRESHOLDS.items()},
    }
    if prices is not None:
        parts["prices"] = partial(price_file, prices)
    if gpu_prices:
        stated = StatedPrices(gpu_flags=parse_flags(gpu_prices))
        parts["prices per GPU-hour"] = lambda: resolve_prices(stated, load_catalog(root), today).gpu
    wrong = 0
    printed: set[str] = set()
    for name, load in parts.items():
        try:
            write_lines(f"{name}: {len(load())}, valid")
        except UsageError as error:
            wrong += 1
            # Several parts may need the same file: its errors are printed once.
            for fault in (error, *(error.others if isinstance(error, RulesError) else ())):
                if str(fault) not in printed:
                    write_lines(f"{name}: {fault}")
                printed.add(str(fault))
    if wrong:
        parts_wrong = "1 part" if wrong == 1 else f"{wrong} parts"
        raise RulesError(f"{parts_wrong} of the rules cannot be used.", "Fix the lines above.")
    unsure = [name for name, gpu in load_gpus(root).gpus.items() if gpu.source.grade == "C"]
    if unsure:
        write_lines(f"  note: grade C, figures from memory or by formula: {', '.join(unsure)}")


@rules.command("features", epilog=examples("skuwise rules features"))
def features() -> None:
    """List the features for custom rules, with their units."""
    from .policy.thresholds import load_features

    rows = [(name, feature.unit, feature.meaning) for name, feature in load_features().items()]
    write_lines(columns(("feature", "unit", "meaning"), rows))


def _waste_rule(rule: WasteRule) -> dict[str, object]:
    from .policy.thresholds import fill

    values = {name: threshold.value for name, threshold in rule.thresholds.items()}

    def filled(sentences: Iterable[str]) -> list[str]:
        return [fill(sentence, values) for sentence in sentences]

    def changed(thresholds: Mapping[str, Threshold]) -> Mapping[str, Threshold]:
        return {name: threshold for name, threshold in thresholds.items() if threshold != rule.thresholds[name]}

    return {
        **{name: getattr(rule, name) for name in ("id", "severity", "resolution", "thresholds", "text")},
        "would_change_if": filled(rule.would_change_if),
        "exceptions": filled(rule.exceptions),
        "teams": [
            {"team": team.name, "severity": of_team.severity, "thresholds": changed(of_team.thresholds)}
            for team, of_team in rule.teams
        ],
    }


def _custom_rule(custom: CustomRule, team: str | None) -> dict[str, object]:
    rule = custom.rule
    return {
        "id": rule.id, "severity": rule.severity, "team": team, "kinds": custom.kinds, "when": custom.conditions,
        "thresholds": rule.thresholds, "coverage_hours": custom.coverage_hours, "text": rule.text,
        "would_change_if": rule.would_change_if,
    }  # fmt: skip


def _valid(load: Callable[[], T], otherwise: T) -> T:
    """What a loader gives, or `otherwise` where its files are invalid, which another part reports."""
    with suppress(RulesError):
        return load()
    return otherwise
