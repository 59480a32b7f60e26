"""Latency limits of services by class (``latency_classes.yaml``), and the services that a site assigns to a class.

Names match exactly (a team's is that of a pod's or job's label); one match is enough, and the first matching service
applies. Classes are ordered from strict to lenient, a site's own before those that ship. docs/rules.md has an example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..base.sanitize import quoted, suggest
from ..base.typed import Name, Slug, Strict, Text, convert, place, wrong
from ..base.yaml_loader import read_layers
from .labels import Owner, WorkingKind
from .teams import Owners

FILE = "latency_classes.yaml"
# The keys of a class's limits: what is limited, at which percentile of it, in seconds.
LIMITS: Mapping[str, tuple[str, float]] = {
    "first_token_p90_seconds": ("first_token", 0.90),
    "output_token_p90_seconds": ("output_token", 0.90),
    "first_token_p99_seconds": ("first_token", 0.99),
}
# Limits are within the bins of latencies (agent/statistics/latency_bins.py), below the last edge.
Seconds = Annotated[float, Meta(ge=0.005, le=20)]


class LatencyClass(Strict, frozen=True, kw_only=True):
    """A class and its limits; None: no limit. `says`: for people, after a comma; `origin`: shipped or site."""

    name: str
    first_token_p90_seconds: Seconds | None = None
    output_token_p90_seconds: Seconds | None = None
    first_token_p99_seconds: Seconds | None = None
    says: Annotated[Text, Meta(max_length=200)]
    reason: Text
    source: Text
    origin: str

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


class ServiceClass(Strict, frozen=True, kw_only=True):
    """A site's class of some services. `label`: the class by name."""

    id: str
    label: Text = msgspec.field(name="class")
    match: Services
    reason: Text


@dataclass(frozen=True, slots=True)
class LatencyClasses:
    """`classes` by name, the strictest first; `services` of the site, in order; `kinds`: kind -> class by name."""

    classes: Mapping[str, LatencyClass]
    services: tuple[ServiceClass, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    def set_for(self, owner: Owner, name: str, series_id: str) -> ServiceClass | None:
        """The class that a site assigns to a workload; None: none."""
        for service in self.services:
            match = service.match
            if match.rank(owner) is not None or name in match.name or series_id in match.series:
                return service
        return None


class _File(Strict, frozen=True):
    classes: Mapping[Slug, dict[str, Any]] = {}
    services: Annotated[Mapping[Name, dict[str, Any]], Meta(max_length=1000)] = {}
    kinds: Mapping[WorkingKind, Text] = {}


def load_latency_classes(rules_dir: Path | None = None) -> LatencyClasses:
    """The classes that ship, with a site's own before them. Raises RulesError with file and key."""
    classes: dict[str, LatencyClass] = {}
    services: list[ServiceClass] = []
    kinds: dict[str, str] = {}
    for origin, file, table in read_layers(rules_dir, FILE, _File):
        new: dict[str, LatencyClass] = {}
        for name, entry in table.classes.items():
            says = classes[name].says if name in classes else "set by the site"
            entry = {"says": says, "source": f"{origin} rules ({file})", **entry}  # noqa: PLW2901 - with its defaults
            new[name] = convert(file, entry, LatencyClass, "classes", name, name=name, origin=origin)
        # A changed class keeps its position, which is its strictness.
        classes = {**{name: new[name] for name in new if name not in classes}, **classes, **new}
        services += (
            convert(file, entry, ServiceClass, "services", id_, id=id_) for id_, entry in table.services.items()
        )
        kinds.update(table.kinds.items())
        assigned = {place("kinds", kind): name for kind, name in table.kinds.items()}
        assigned |= {place("services", service.id): service.label for service in services}
        for at, name in assigned.items():
            if name not in classes:
                near = suggest(name, classes) or f"Known are {', '.join(classes)}."
                raise wrong(file, at, f"unknown class {quoted(name)}", near)
    return LatencyClasses(classes, tuple(services), kinds)
