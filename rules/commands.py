"""``skuwise rules``: list and check the rules that ship and a site's over them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from .base.click_commands import FILE, FOLDER, Group, examples, format_option
from .base.errors import RulesError, UsageError
from .base.output import columns, write_json, write_lines

SCHEMA = "skuwise.rules/1"
THRESHOLDS = ("kinds", "bottlenecks", "rest", "reporting", "watch")


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

    from .policy import kind_priors, latency_classes, teams, thresholds

    waste, custom = thresholds.load_waste_rules(folder), thresholds.load_custom_rules(folder)
    latency, shipped = (latency_classes.load_latency_classes(of) for of in (folder, None))
    of_teams = [(rule, team.name) for team, of_team in custom.teams for rule in of_team.values()]
    document = {
        "waste": [_waste_rule(rule, thresholds.fill) for rule in waste.values()],
        "custom": [
            {"id": rule.id, "severity": rule.severity, "team": team, "kinds": rule.kinds, "when": rule.conditions,
             "thresholds": rule.thresholds, "coverage_hours": rule.coverage_hours, "text": rule.text,
             "would_change_if": rule.would_change_if}
            for rule, team in (*((rule, None) for rule in custom.site.values()), *of_teams)
        ],
        "exceptions": [
            msgspec.structs.asdict(e)
            | {"team": e.team and e.team.name, "match": msgspec.to_builtins(e.match, order="deterministic")}
            for e in teams.load_exceptions(folder, known_rules=(*waste, *custom.ids)).every
        ],
        **{name: thresholds.load_thresholds(f"{name}.yaml", folder) for name in THRESHOLDS},
        "kind_priors": _entries("id", *(kind_priors.load_kind_priors(of).priors for of in (folder, None))),
        "latency_classes": {
            "classes": _entries("class", latency.classes, shipped.classes),
            "services": [{"id": id_, "class": s.label, "reason": s.reason} for id_, s in latency.services.items()],
            "kinds": latency.kinds,
        },
    }  # fmt: skip
    plain = msgspec.to_builtins(document)
    if form == "json":
        write_json({"schema": SCHEMA, **plain})
    else:
        write_lines(yaml.safe_dump(plain, sort_keys=False, width=110).rstrip())


def _entries(key: str, entries: Mapping[str, Any], shipped: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {key: name}
        | {field: value for field in entry.__struct_fields__ if (value := getattr(entry, field)) is not None}
        | {"origin": "shipped" if entry == shipped.get(name) else "site"}
        for name, entry in entries.items()
    ]


def _waste_rule(rule: Any, fill: Callable[..., str]) -> dict[str, object]:  # noqa: ANN401 - imported where it is used
    values = {name: threshold.value for name, threshold in rule.thresholds.items()}
    teams = []
    for team, changed in rule.teams:
        thresholds = {name: t for name, t in changed.thresholds.items() if t != rule.thresholds[name]}
        teams.append({"team": team.name, "severity": changed.severity, "thresholds": thresholds})
    return {
        **{name: getattr(rule, name) for name in ("id", "severity", "resolution", "thresholds", "text")},
        **{name: [fill(text, values) for text in getattr(rule, name)] for name in ("would_change_if", "exceptions")},
        "teams": teams,
    }


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
    from . import models
    from .base.yaml_loader import rules_root
    from .catalog import gpu_files, loader, price_files
    from .policy import kind_priors, latency_classes, teams, thresholds

    root, today = rules_root(folder), datetime.now(UTC).date()
    valid: dict[str, Any] = {}
    parts: dict[str, Callable[[], Any]] = {
        "gpus": lambda: gpu_files.load_gpus(root)[0],
        "nodes": lambda: loader.load_nodes(root, valid.get("gpus")),
        "premiums": lambda: loader.load_premiums(root),
        "providers": lambda: loader.load_providers(root),
        "idle power": lambda: models.load_resting_power().gpus,
        "served models": lambda: models.load_served_models().models,
        "waste rules": lambda: thresholds.load_waste_rules(root),
        "custom rules": lambda: thresholds.load_custom_rules(root).ids,
        "exceptions": lambda: (
            teams.load_exceptions(
                root, known_rules=(*thresholds.load_waste_rules(), *valid.get("custom rules", ()))
            ).every
        ),
        "kind priors": lambda: kind_priors.load_kind_priors(root).priors,
        "latency classes": lambda: latency_classes.load_latency_classes(root).classes,
        **{f"{name} thresholds": partial(thresholds.load_thresholds, f"{name}.yaml", root) for name in THRESHOLDS},
    }
    if prices is not None:
        parts["prices"] = lambda: (
            (priced := price_files.load_prices(prices, valid.get("nodes"), today=today)).prices + priced.power
        )
    if gpu_prices:
        stated = price_files.StatedPrices(gpu_flags=price_files.parse_flags(gpu_prices))
        parts["prices per GPU-hour"] = lambda: price_files.resolve_prices(stated, loader.load_catalog(root), today).gpu
    printed: set[str] = set()
    for name, load in parts.items():
        try:
            valid[name] = load()
            write_lines(f"{name}: {len(valid[name])}, valid")
        except UsageError as error:
            if str(error) not in printed:  # several parts may need the same file
                write_lines(f"{name}: {error}")
            printed.add(str(error))
    if wrong := len(parts) - len(valid):
        parts_wrong = "1 part" if wrong == 1 else f"{wrong} parts"
        raise RulesError(f"{parts_wrong} of the rules cannot be used.", "Fix the lines above.")
    unsure = [name for name, gpu in valid["gpus"].items() if gpu.source.grade == "C"]
    if unsure:
        write_lines(f"  note: grade C, figures from memory or by formula: {', '.join(unsure)}")


@rules.command("features", epilog=examples("skuwise rules features"))
def features() -> None:
    """List the features for custom rules, with their units."""
    from .policy.thresholds import load_features

    rows = [(name, feature.unit, feature.meaning) for name, feature in load_features().items()]
    write_lines(columns(("feature", "unit", "meaning"), rows))
