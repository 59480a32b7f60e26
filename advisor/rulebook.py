"""The catalog, rules, models and prices of one run, as values; `advise.load_rulebook` reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..rules.catalog.loader import ANY_REGION, Catalog
from ..rules.catalog.price_files import HourPrices, SiteEnergy, TeamPrices
from ..rules.catalog.types import PowerPrice
from ..rules.models import KindModel, MoveModel, RestingPowers, ServedModels
from ..rules.policy.kind_priors import KindPriors
from ..rules.policy.latency_classes import LatencyClasses
from ..rules.policy.teams import Exceptions
from ..rules.policy.thresholds import CustomRules, Levels, WasteRule


@dataclass(frozen=True)
class Rulebook:
    """The shipped rules, overridden by a site's own files."""

    catalog: Catalog
    rules: Mapping[str, WasteRule]
    custom: CustomRules
    exceptions: Exceptions
    kinds: Levels  # of kind verdicts
    bottlenecks: Levels
    kind_priors: KindPriors
    latency_classes: LatencyClasses
    kind_model: KindModel
    resting_power: RestingPowers
    rest: Levels
    move_model: MoveModel
    served_models: ServedModels = field(default_factory=ServedModels)
    reporting: Levels = field(default_factory=Levels)  # of lists and mails
    team: TeamPrices = field(default_factory=TeamPrices)
    hourly: HourPrices = field(default_factory=HourPrices)  # of settings and flags
    energy: SiteEnergy = field(default_factory=SiteEnergy)
    min_saving_usd: float | None = None  # a month, of this run, whatever the fleet spends; None: as `reporting` says

    @property
    def power(self) -> tuple[PowerPrice, ...]:
        """Electricity prices by region: the team's, completed by a constant price of the site for all regions."""
        site = self.energy.usd_per_kwh
        if site is None or site.value is None or any(price.region == ANY_REGION for price in self.team.power):
            return tuple(self.team.power)
        return (*self.team.power, PowerPrice(ANY_REGION, site.value, site.source, site.as_of))

    @property
    def floor_hours(self) -> float:
        """Observed hours of a GPU below which no rule gives a verdict."""
        floors = (rule.thresholds.get("coverage_hours") for rule in self.rules.values())
        return min(floor.value for floor in floors if floor is not None)
