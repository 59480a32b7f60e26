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

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.typed_fields import Fields
from ..base.yaml_loader import layers, read_table
from .labels import WORKING_KINDS
from .owners import OwnerLike, Owners, read_owners
from .thresholds import SHIPPED, SITE

FILE = "latency_classes.yaml"
# The keys of a class's limits: what is limited, at which percentile of it, in seconds.
LIMITS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "first_token_p90_seconds": ("first_token", 0.90),
        "output_token_p90_seconds": ("output_token", 0.90),
        "first_token_p99_seconds": ("first_token", 0.99),
    }
)
# Limits lie within the bins that latencies are counted in (agent/statistics/latency_bins.py), short of the last edge.
_LEAST_SECONDS, _MOST_SECONDS = 0.005, 20.0
_ENTRIES_MAX = 1000
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


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
class ServiceClass:
    """A site's word on some services: their class by name, and whose they are (empty everywhere: nobody's)."""

    id: str
    label: str
    reason: str
    owners: Owners = field(default_factory=Owners)
    names: frozenset[str] = frozenset()
    series: frozenset[str] = frozenset()

    def fits(self, owner: OwnerLike, name: str, series_id: str) -> bool:
        return self.owners.fits(owner) or name in self.names or series_id in self.series


@dataclass(frozen=True, slots=True)
class LatencyClasses:
    """`classes` by name, the strictest first; `services`: a site's word, in order; `kinds`: kind -> class by name."""

    classes: Mapping[str, LatencyClass]
    services: tuple[ServiceClass, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    def set_for(self, owner: OwnerLike, name: str, series_id: str) -> ServiceClass | None:
        """What a site said of a workload; None: nothing."""
        return next((one for one in self.services if one.fits(owner, name, series_id)), None)


def load_latency_classes(rules_dir: Path | None = None) -> LatencyClasses:
    """The classes that ship, with a site's own before them. Raises RulesError with file and line."""
    shipped: dict[str, LatencyClass] = {}
    site: dict[str, LatencyClass] = {}
    services: tuple[ServiceClass, ...] = ()
    kinds: dict[str, str] = {}
    for n, layer in enumerate(layers(rules_dir)):
        file: Traversable | Path = layer.joinpath(FILE)
        if n and not file.is_file():
            continue
        top = Fields(str(file), read_table(file), FILE)
        into, origin = (site, SITE) if n else (shipped, SHIPPED)
        _classes(top.table_or_none("classes"), into, shipped, origin)
        known = shipped | site
        services = (*_services(top.table_or_none("services"), known), *services)
        kinds |= _kinds(top.table_or_none("kinds"), known)
        top.done()
    # A figure of one that ships changes it where it stands: its place says how strict it is.
    own = {name: one for name, one in site.items() if name not in shipped}
    every = own | {name: site.get(name, one) for name, one in shipped.items()}
    return LatencyClasses(MappingProxyType(every), services, MappingProxyType(kinds))


def _classes(
    table: Fields | None, into: dict[str, LatencyClass], shipped: Mapping[str, LatencyClass], origin: str
) -> None:
    for name, fields in table.entries(lambda name: f"class {quoted(name)}") if table is not None else ():
        if table is not None and not _NAME.fullmatch(name):
            raise table.fault(name, f"{quoted(name)} must be small letters, digits and dashes", "Rename it.")
        base = shipped.get(name) if origin == SITE else None
        limits = {
            key: value for key in LIMITS
            if (value := fields.number_or_none(key, minimum=_LEAST_SECONDS, maximum=_MOST_SECONDS)) is not None
        }  # fmt: skip
        says = fields.text_or_none("says") or (base.says if base else "set by the site")
        if len(says) > 200:
            raise fields.fault("says", "'says' is longer than 200 characters", "Shorten it.")
        source = fields.text_or_none("source") or f"{origin} rules ({fields.file}:{fields.table.line})"
        says, reason, source = (" ".join(one.split()) for one in (says, fields.text("reason"), source))
        into[name] = LatencyClass(name, MappingProxyType(limits), says, reason, source, origin)
        fields.done()


def _services(table: Fields | None, known: Mapping[str, LatencyClass]) -> tuple[ServiceClass, ...]:
    found: list[ServiceClass] = []
    for name, fields in table.entries(lambda name: f"service {quoted(name)}") if table is not None else ():
        match = fields.subtable("match")
        one = ServiceClass(
            name, _known_class(fields, "class", known), " ".join(fields.text("reason").split()), read_owners(match),
            frozenset(match.texts("name")), frozenset(match.texts("series")),
        )  # fmt: skip
        match.done()
        fields.done()
        if not (one.owners or one.names or one.series):
            raise fields.fault("match", "'match' names nobody", "Say whose service it is: an owner, name or series.")
        found.append(one)
    if table is not None and len(found) > _ENTRIES_MAX:
        raise table.fault(None, f"more than {_ENTRIES_MAX} services", "Name namespaces instead of single services.")
    return tuple(found)


def _kinds(table: Fields | None, known: Mapping[str, LatencyClass]) -> dict[str, str]:
    if table is None:
        return {}
    for kind in table.table:
        if kind not in WORKING_KINDS:
            near = suggest(kind, WORKING_KINDS) or f"Known are {', '.join(WORKING_KINDS)}."
            raise table.fault(kind, f"unknown kind {quoted(kind)}", near)
    found = {kind: _known_class(table, kind, known) for kind in table.table}
    table.done()
    return found


def _known_class(fields: Fields, key: str, known: Mapping[str, LatencyClass]) -> str:
    name = fields.text(key)
    if name not in known:
        near = suggest(name, known) or f"Known are {', '.join(known)}."
        raise fields.fault(key, f"unknown class {quoted(name)}", near)
    return name
