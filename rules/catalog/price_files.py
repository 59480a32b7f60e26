"""Reads a team's own prices (``--prices FILE``): what they really pay, which no catalog knows.

```yaml
prices:
  - sku: azure/Standard_ND96isr_H100_v5
    region: eastus                 # global: wherever the node stands
    usd_per_hour: 61.20            # the whole node
    basis: committed               # list, reserved, owned, committed or negotiated
    committed_until: 2027-06-30    # only where money is spent whatever happens
    source: contract 4711
    as_of: 2026-11-01
power:                             # optional: without it, energy is counted and no money
  - region: eastus
    usd_per_kwh: 0.085
    source: utility bill, October
    as_of: 2026-11-01
energy:                            # optional: price of power, PUE and carbon of the site (`site_energy`)
  pue: {value: 1.25, source: facility meter, as_of: 2026-10-01}
```
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..base.sanitize import quoted, suggest
from ..base.typed import Day, Number, Positive, Text, convert, place, wrong
from ..base.yaml_loader import read
from .types import USD_PER_KWH_MAX, PowerPrice, Price

HOURS = 24
# What each may be. All that a site draws over what its machines draw: 1 is a site without cooling, 3 the worst halls
# that were published (Uptime Institute's surveys of data centers have means from 1.5 to 2.5). Lignite comes to some
# 1,200 g: beyond twice that it is grams per MJ of fuel. 0 would tell of free power, or of power without carbon.
_LEAST: Mapping[str, float] = {"usd_per_kwh": 1e-9, "pue": 1.0, "co2_grams_per_kwh": 1e-9}
_MOST: Mapping[str, float] = {"usd_per_kwh": USD_PER_KWH_MAX, "pue": 3.0, "co2_grams_per_kwh": 2500.0}
ENERGY_FIGURES = tuple(_MOST)
ENERGY_SECTION = "energy"


@dataclass(frozen=True, slots=True)
class SiteFigure:
    """One figure: one value, or 24 by the hour of the day (UTC, from 00:00 on). `as_of`: ISO date."""

    values: tuple[float, ...]
    source: str
    as_of: str

    def at(self, hour: int) -> float:
        """The figure at an hour of the day, UTC, 0 to 23."""
        return self.values[hour % HOURS] if len(self.values) == HOURS else self.values[0]


@dataclass(frozen=True, slots=True)
class SiteEnergy:
    """What a site says. None: it did not say, and then no dollar, or no carbon, is told; without `pue` both are of the
    GPUs' energy alone."""

    usd_per_kwh: SiteFigure | None = None
    pue: SiteFigure | None = None
    co2_grams_per_kwh: SiteFigure | None = None

    def over(self, other: SiteEnergy) -> SiteEnergy:
        """Each figure of this one, else the other's."""
        return SiteEnergy(
            self.usd_per_kwh or other.usd_per_kwh, self.pue or other.pue,
            self.co2_grams_per_kwh or other.co2_grams_per_kwh,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StatedFigure:
    """A figure as files have it."""

    source: Text
    as_of: Day
    value: Number | None = None
    by_hour_utc: Annotated[tuple[Number, ...], Meta(min_length=HOURS, max_length=HOURS)] | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.by_hour_utc is None):
            raise ValueError("give either 'value' or 'by_hour_utc'", "Keep one of the two.")


@dataclass(frozen=True, slots=True)
class StatedEnergy:
    """The figures as files have them."""

    usd_per_kwh: StatedFigure | None = None
    pue: StatedFigure | None = None
    co2_grams_per_kwh: StatedFigure | None = None


def site_energy(file: object, said: StatedEnergy) -> SiteEnergy:
    """The figures of one file. Raises RulesError for one that cannot be."""
    told = {field.name: getattr(said, field.name) for field in fields(said)}
    return SiteEnergy(**{
        name: None if one is None else _figure(file, name, one, ENERGY_SECTION, name) for name, one in told.items()
    })  # fmt: skip


def stated_energy(key: str, value: object, where: str) -> SiteFigure:
    """One figure of ``[energy]`` in skuwise.toml, by the same checks. `where`: the setting, in errors."""
    # TOML has dates of its own, YAML's are text here.
    return _figure(where, key, convert(where, msgspec.to_builtins(value), StatedFigure))


def _figure(file: object, name: str, said: StatedFigure, *at: str) -> SiteFigure:
    values = said.by_hour_utc or (said.value or 0.0,)
    for value in values:
        if not _LEAST[name] <= value <= _MOST[name]:
            bounds = f"from 1 to {_MOST[name]:g}" if name == "pue" else f"above 0 and at most {_MOST[name]:g}"
            remedy = "Leave out the figure if it is unknown."
            raise wrong(file, place(*at), f"{value:g} is no {name}: it is {bounds}", remedy)
    return SiteFigure(values, said.source, said.as_of)


BINDING = ("reserved", "owned", "committed")  # money that is spent whatever runs, up to a day


@dataclass(frozen=True, slots=True)
class TeamPrices:
    """What one file says, in its order. `power` empty: what electricity costs is not known. `energy`: of the site."""

    prices: tuple[Price, ...] = ()
    power: tuple[PowerPrice, ...] = ()
    energy: SiteEnergy = field(default_factory=SiteEnergy)


@dataclass(frozen=True, slots=True)
class _Price:
    sku: Text
    region: Text
    usd_per_hour: Positive
    basis: Literal["list", "reserved", "owned", "committed", "negotiated"]
    source: Text
    as_of: Day
    committed_until: date | None = None

    def __post_init__(self) -> None:
        if self.basis == "committed" and self.committed_until is None:
            raise ValueError("'committed_until' is missing", "A commitment needs the day it ends.")
        if self.committed_until is not None and self.basis not in BINDING:
            remedy = f"Remove it, or make the basis one of {', '.join(BINDING)}."
            raise ValueError(f"a {self.basis} price is no commitment, so it has no 'committed_until'", remedy)


@dataclass(frozen=True, slots=True)
class _File:
    prices: tuple[_Price, ...] = ()
    power: tuple[PowerPrice, ...] = ()
    energy: StatedEnergy = field(default_factory=StatedEnergy)


def load_prices(path: Path, known_skus: Collection[str] | None = None, *, today: date | None = None) -> TeamPrices:
    """The prices of one file. Raises RulesError with file, key and remedy.

    `known_skus`: names a node may have; others are refused (None: any). `today`: a commitment that ended before it is
    refused, for what is paid since then is another price (None: not checked).
    """
    top = read(path, _File)
    prices: dict[str, Price] = {}
    for number, one in enumerate(top.prices, 1):
        at = place("prices", str(number))
        if known_skus is not None and one.sku not in known_skus:
            near = suggest(one.sku, known_skus) or "'skuwise skus list' names them all."
            raise wrong(path, at, f"unknown node SKU {quoted(one.sku)}", near)
        until = one.committed_until
        if until is not None and today is not None and until < today:
            sentence = f"the commitment to {one.sku} ended on {until}, before today ({today})"
            raise wrong(path, at, sentence, "Give what is paid now, or remove the price.")
        named = f"{one.sku}@{one.region}:{one.basis}"
        if named in prices:
            raise wrong(path, at, f"{quoted(named)} has a price already", "Keep one.")
        prices[named] = Price(
            named, one.sku, one.region, one.usd_per_hour, one.basis, one.source, one.as_of,
            None if until is None else until.isoformat(),
        )  # fmt: skip
    if len({one.region for one in top.power}) < len(top.power):
        raise wrong(path, "power", "a region has two power prices", "Keep one.")
    energy = site_energy(path, top.energy)
    if not prices and not top.power and energy == SiteEnergy():
        raise wrong(path, "", "no price is given", "List at least one under 'prices', 'power' or 'energy'.")
    return TeamPrices(tuple(prices.values()), top.power, energy)
