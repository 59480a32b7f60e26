"""Everything that telemetry is judged by, read once: the catalog, the rules, the prices, and who is excused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ..rules.catalog.hour_prices import HourPrices, StatedPrices, resolve_prices
from ..rules.catalog.loader import Catalog, load_catalog
from ..rules.catalog.price_files import TeamPrices, load_prices
from ..rules.policy.custom import CustomRules, load_custom_rules
from ..rules.policy.exceptions import Exceptions, load_exceptions
from ..rules.policy.thresholds import (
    Threshold,
    WasteRule,
    load_bottleneck_thresholds,
    load_kind_thresholds,
    load_waste_rules,
)


@dataclass(frozen=True)
class Rulebook:
    """What ships, with a site's own files over it. `own`: the team's prices; empty where it named no file. `hourly`: by
    the hour, from its settings and flags."""

    catalog: Catalog
    rules: Mapping[str, WasteRule]
    custom: CustomRules
    exceptions: Exceptions
    kinds: Mapping[str, Threshold]
    bottlenecks: Mapping[str, Threshold]
    own: TeamPrices
    hourly: HourPrices = field(default_factory=HourPrices)


def load_rulebook(
    rules_dir: Path | None, prices: Path | None, now: float, hourly: StatedPrices | None = None
) -> Rulebook:
    """Read it. `now`: Unix seconds; a price of a later day is refused. `hourly`: prices by the hour as somebody wrote
    them. Raises RulesError with file, line and remedy, and UsageError for a price by the hour that cannot be."""
    catalog = load_catalog(rules_dir)
    today = datetime.fromtimestamp(now, UTC).date()
    own = load_prices(prices, catalog.nodes.keys(), today=today) if prices is not None else TeamPrices()
    rules, custom = load_waste_rules(rules_dir), load_custom_rules(rules_dir)
    return Rulebook(
        catalog, rules, custom, load_exceptions(rules_dir, known_rules=(*rules, *custom.ids)),
        load_kind_thresholds(rules_dir), load_bottleneck_thresholds(rules_dir), own,
        resolve_prices(hourly or StatedPrices(), catalog, today),
    )  # fmt: skip
