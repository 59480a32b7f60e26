"""Latency limits of services by class (``latency_classes.yaml``), and the services that a site assigns to a class.

Names match exactly (a team's is that of a pod's or job's label); one match is enough, and the first matching service
applies. Classes are ordered from strict to lenient, a site's own before those that ship. docs/rules.md has an example.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ..base.typed import Name, Slug, Strict, Text, check_known, place
from ..base.yaml_loader import read_layers
from .labels import Owner, WorkingKind
from .teams import Owners

# The keys of a class's limits: what is limited, at which percentile of it, in seconds.
LIMITS: Mapping[str, tuple[str, float]] = {
    "first_token_p90_seconds": ("first_token", 0.90),
    "output_token_p90_seconds": ("output_token", 0.90),
    "first_token_p99_seconds": ("first_token", 0.99),
}
# Limits are within the bins of latencies (agent/statistics/latency_bins.py), below the last edge.
Seconds = Annotated[float, Meta(ge=0.005, le=20)]


class LatencyClass(Strict, frozen=True, kw_only=True):
    """A class's limits; None: no limit. `says`: for people, after a comma."""

    first_token_p90_seconds: Seconds | None = None
    output_token_p90_seconds: Seconds | None = None
    first_token_p99_seconds: Seconds | None = None
    says: Text = "set by the site"
    reason: Text
    source: Text = "the site's rules"

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits that it sets, in seconds, by the keys of `LIMITS`."""
        return {key: value for key in LIMITS if (value := getattr(self, key)) is not None}


class Services(Owners, frozen=True):
    """Services by owner, name or series."""

    name: frozenset[Text] = frozenset()
    series: frozenset[Text] = frozenset()

    def __post_init__(self) -> None:
        if not self:
            raise ValueError("it names no service", "Name the service: an owner, name or series.")


class ServiceClass(Strict, frozen=True):
    """A site's class of some services. `label`: the class by name."""

    match: Services
    reason: Text
    label: Text = msgspec.field(name="class")


class LatencyClasses(Strict, frozen=True):
    """`classes` by name, the strictest first; `services` of the site by id; `kinds`: kind -> class by name."""

    classes: Mapping[Slug, LatencyClass] = {}
    services: Mapping[Name, ServiceClass] = {}
    kinds: Mapping[WorkingKind, Text] = {}

    def set_for(self, owner: Owner, name: str, series_id: str) -> tuple[str, ServiceClass] | None:
        """The entry by which a site assigns a workload to a class, with its id; None: none."""
        for id_, service in self.services.items():
            match = service.match
            if match.rank(owner) is not None or name in match.name or series_id in match.series:
                return id_, service
        return None


def load_latency_classes(rules_dir: Path | None = None) -> LatencyClasses:
    """The classes that ship, with a site's own before them. Raises RulesError with file and key."""
    below = LatencyClasses()
    for _, file, table in read_layers(rules_dir, "latency_classes.yaml", LatencyClasses):
        # A changed class keeps its position, which is its strictness.
        new = {name: class_ for name, class_ in table.classes.items() if name not in below.classes}
        classes = {**new, **below.classes, **table.classes}
        check_known(file, "kinds", "class", table.kinds.values(), classes)
        for id_, service in table.services.items():
            check_known(file, place("services", id_), "class", [service.label], classes)
        below = LatencyClasses(classes, {**below.services, **table.services}, {**below.kinds, **table.kinds})
    return below
