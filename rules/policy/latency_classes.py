"""Reads ``latency_classes.yaml``: how long those who ask a service may wait, and which services a site has set it for.

```yaml
classes:
  reads-along:                       # one of a site's own, or another figure for one that ships
    first_token_p90_seconds: 0.3
    output_token_p90_seconds: 0.08
    says: somebody reads the answer as it comes
    reason: agreed with the product team
services:
  chat:
    class: interactive
    match: {namespace: [chat], name: [chat-api], series: [s-0123456789abcdef], team: [assist]}
    reason: people type and read along
kinds:
  online-inference: documents        # where nothing else tells
```

Matching is by exact names (a team is what a pod's or job's label names); one that fits is enough, and the first entry
that fits is the one. The classes are asked the strictest first, as they stand in the file, a site's own before those
that ship.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypedDict

from msgspec import Meta

from ..base.sanitize import quoted, suggest
from ..base.typed import Name, Slug, Text, joined, place, wrong
from ..base.yaml_loader import read_layers
from .labels import WorkingKind
from .teams import OwnerLike, Owners
from .thresholds import SHIPPED, SITE

FILE = "latency_classes.yaml"
# The keys of a class's limits: what is limited, at which percentile of it, in seconds.
LIMITS: Mapping[str, tuple[str, float]] = {
    "first_token_p90_seconds": ("first_token", 0.90),
    "output_token_p90_seconds": ("output_token", 0.90),
    "first_token_p99_seconds": ("first_token", 0.99),
}
# Limits lie within the bins that latencies are counted in (agent/statistics/latency_bins.py), short of the last edge.
Seconds = Annotated[float, Meta(ge=0.005, le=20)]


@dataclass(frozen=True, slots=True)
class LatencyClass:
    """`limits`: by the keys of `LIMITS`, in seconds; what is not in it is not limited. `says`: for people, after a
    comma; `reason`: why the limits are these; `origin`: skuwise or the site."""

    name: str
    limits: Mapping[str, float]
    says: str
    reason: str
    source: str
    origin: str = SHIPPED


@dataclass(frozen=True, slots=True)
class Services(Owners):
    """Which services: by who owns them, by name, or by series."""

    name: frozenset[Text] = frozenset()
    series: frozenset[Text] = frozenset()

    def __post_init__(self) -> None:
        if not self:
            raise ValueError("it names no service", "Name the service: an owner, name or series.")


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """A site's word on some services: their class by name."""

    id: str
    label: str
    reason: str
    match: Services

    def fits(self, owner: OwnerLike, name: str, series_id: str) -> bool:
        return self.match.fits(owner) or name in self.match.name or series_id in self.match.series


@dataclass(frozen=True, slots=True)
class LatencyClasses:
    """`classes` by name, the strictest first; `services`: a site's word, in order; `kinds`: kind -> class by name."""

    classes: Mapping[str, LatencyClass]
    services: tuple[ServiceClass, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    def set_for(self, owner: OwnerLike, name: str, series_id: str) -> ServiceClass | None:
        """What a site said of a workload; None: nothing."""
        return next((service for service in self.services if service.fits(owner, name, series_id)), None)


@dataclass(frozen=True, slots=True)
class _Class:
    reason: Text
    first_token_p90_seconds: Seconds | None = None
    output_token_p90_seconds: Seconds | None = None
    first_token_p99_seconds: Seconds | None = None
    says: Annotated[Text, Meta(max_length=200)] | None = None
    source: Text | None = None


_Service = TypedDict("_Service", {"class": Text, "match": Services, "reason": Text})


@dataclass(frozen=True, slots=True)
class _File:
    classes: Mapping[Slug, _Class] = field(default_factory=dict)
    services: Annotated[Mapping[Name, _Service], Meta(max_length=1000)] = field(default_factory=dict)
    kinds: Mapping[WorkingKind, Text] = field(default_factory=dict)


def load_latency_classes(rules_dir: Path | None = None) -> LatencyClasses:
    """The classes that ship, with a site's own before them. Raises RulesError with file and key."""
    found: dict[str, LatencyClass] = {}
    services: tuple[ServiceClass, ...] = ()
    kinds: dict[str, str] = {}
    for origin, (file, top) in zip((SHIPPED, SITE), read_layers(rules_dir, FILE, _File), strict=False):
        own: dict[str, LatencyClass] = {}
        for name, told in top.classes.items():
            limits = {key: value for key in LIMITS if (value := getattr(told, key)) is not None}
            says = told.says or (found[name].says if name in found else "set by the site")
            source = told.source or f"{origin} rules ({file})"
            own[name] = LatencyClass(name, limits, joined(says), joined(told.reason), joined(source), origin)
        # A figure of one that ships changes it where it stands: its place says how strict it is.
        found = {name: one for name, one in own.items() if name not in found} | found | own
        said = {place("services", name): one["class"] for name, one in top.services.items()}
        for at, name in (said | {place("kinds", kind): name for kind, name in top.kinds.items()}).items():
            if name not in found:
                near = suggest(name, found) or f"Known are {', '.join(found)}."
                raise wrong(file, at, f"unknown class {quoted(name)}", near)
        told_of = (
            ServiceClass(n, one["class"], joined(one["reason"]), one["match"]) for n, one in top.services.items()
        )
        services = (*told_of, *services)
        kinds.update(top.kinds.items())
    return LatencyClasses(found, services, kinds)
