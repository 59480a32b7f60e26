"""All that telemetry is judged by, as values: the catalog, the rules, the models, the prices, and who is excused.

Nothing here reads a file: `advise.load_rulebook` does, once a run, and what judges and weighs is given the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..rules.catalog.hour_prices import HourPrices
from ..rules.catalog.loader import Catalog
from ..rules.catalog.node_files import ANY_REGION
from ..rules.catalog.price_files import SiteEnergy, TeamPrices
from ..rules.catalog.types import PowerPrice
from ..rules.models.published import RestingPowers, ServedModels
from ..rules.models.weights import KindModel, MoveModel
from ..rules.policy.custom import CustomRules
from ..rules.policy.exceptions import Exceptions
from ..rules.policy.kind_priors import KindPriors
from ..rules.policy.latency_classes import LatencyClasses
from ..rules.policy.thresholds import SITE, RestRules, Threshold, WasteRule

MIN_SAVING, MIN_SAVING_SHARE = "min_saving_usd_per_month", "min_saving_share_of_spend"


@dataclass(frozen=True)
class Rulebook:
    """What ships, with a site's own files over it. `own`: the team's prices; empty where it named no file. `hourly`: by
    the hour, from its settings and flags; `energy`: what the site says of power, PUE and carbon. `kinds`,
    `bottlenecks`: thresholds of the verdicts; `reporting`: of what lists and mails show. `kind_priors`: what names
    and owners say of kinds. `latency_classes`: how long those who ask a service may wait. `kind_model`: what shapes
    say. `resting_power`: what GPUs draw at rest; `rest`: what rest is; `move_model`: what predictions of moves were
    worth; `served_models`: what names of language models tell."""

    catalog: Catalog
    rules: Mapping[str, WasteRule]
    custom: CustomRules
    exceptions: Exceptions
    kinds: Mapping[str, Threshold]
    bottlenecks: Mapping[str, Threshold]
    kind_priors: KindPriors
    latency_classes: LatencyClasses
    kind_model: KindModel
    resting_power: RestingPowers
    rest: RestRules
    move_model: MoveModel
    served_models: ServedModels = field(default_factory=ServedModels)
    reporting: Mapping[str, Threshold] = field(default_factory=dict)
    own: TeamPrices = field(default_factory=TeamPrices)
    hourly: HourPrices = field(default_factory=HourPrices)
    energy: SiteEnergy = field(default_factory=SiteEnergy)

    @property
    def power(self) -> tuple[PowerPrice, ...]:
        """Prices of electricity by region: the team's, and where none of them is for all regions the site's own, if
        that does not change by the hour."""
        site = self.energy.usd_per_kwh
        if site is None or len(site.values) != 1 or any(one.region == ANY_REGION for one in self.own.power):
            return tuple(self.own.power)
        return (*self.own.power, PowerPrice(ANY_REGION, site.values[0], site.source, site.as_of))

    def with_min_saving(self, usd: float, source: str) -> Rulebook:
        """The same with `usd` as the minimum gain, whatever the fleet spends."""
        told = {
            MIN_SAVING: Threshold(usd, "usd-per-month", "window", "set for this run", source, SITE),
            MIN_SAVING_SHARE: Threshold(math.inf, "ratio", "window", "set for this run", source, SITE),
        }
        return replace(self, reporting={**self.reporting, **told})

    @property
    def floor_hours(self) -> float:
        """Observed hours of a GPU below which no rule gives a verdict."""
        floors = (rule.thresholds.get("coverage_hours") for rule in self.rules.values())
        return min(floor.value for floor in floors if floor is not None)
