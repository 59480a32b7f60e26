"""A site's own prices (``--prices FILE``) and figures of its energy (there under ``energy:``, and ``[energy]`` in
skuwise.toml). Nothing is assumed for them. docs/prices.md has examples."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from ..base.sanitize import quoted, suggest
from ..base.typed import Day, Positive, Strict, Text, convert, place, wrong
from ..base.yaml_loader import read
from .types import USD_PER_KWH_MAX, PowerPrice, Price

ENERGY_SECTION = "energy"
ENERGY_FIGURES = ("usd_per_kwh", "pue", "co2_grams_per_kwh")
BINDING = ("reserved", "owned", "committed")  # the money is spent in any case, up to a day
HOURS = 24
F = TypeVar("F", bound=float)
_Usd = Annotated[float, Meta(gt=0, le=USD_PER_KWH_MAX)]
# The site's energy over its machines': 1 without cooling, 3 the worst published halls (Uptime Institute's surveys of
# data centers have means from 1.5 to 2.5).
_Pue = Annotated[float, Meta(ge=1, le=3)]
_Grams = Annotated[float, Meta(gt=0, le=2500)]  # lignite has about 1,200; beyond twice that it is per MJ of fuel


@dataclass(frozen=True, slots=True)
class SiteFigure:
    """A figure: one value, or 24 by the hour of the day (UTC, from 00:00 on). `as_of`: ISO date."""

    values: tuple[float, ...]
    source: str
    as_of: str

    def at(self, hour: int) -> float:
        """The value at an hour of the day, UTC, 0 to 23."""
        return self.values[hour % len(self.values)]


@dataclass(frozen=True, slots=True)
class SiteEnergy:
    """A site's energy figures. None: not given; then there are no dollars or no carbon, and without `pue` both are of
    the GPUs' energy alone."""

    usd_per_kwh: SiteFigure | None = None
    pue: SiteFigure | None = None
    co2_grams_per_kwh: SiteFigure | None = None

    def over(self, other: SiteEnergy) -> SiteEnergy:
        """Each figure of this one, else the other's."""
        return SiteEnergy(*(getattr(self, name) or getattr(other, name) for name in ENERGY_FIGURES))


@dataclass(frozen=True, slots=True)
class TeamPrices:
    """The content of a price file. `power` empty: the price of electricity is unknown."""

    prices: tuple[Price, ...] = ()
    power: tuple[PowerPrice, ...] = ()
    energy: SiteEnergy = field(default_factory=SiteEnergy)


class _Figure(Strict, Generic[F], frozen=True):
    source: Text
    as_of: Day
    value: F | None = None
    by_hour_utc: Annotated[tuple[F, ...], Meta(min_length=HOURS, max_length=HOURS)] | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.by_hour_utc is None):
            raise ValueError("give either 'value' or 'by_hour_utc'", "Keep one of the two.")


class _Energy(Strict, frozen=True):
    usd_per_kwh: _Figure[_Usd] | None = None
    pue: _Figure[_Pue] | None = None
    co2_grams_per_kwh: _Figure[_Grams] | None = None


class _Price(Strict, frozen=True):
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


class _File(Strict, frozen=True):
    prices: tuple[_Price, ...] = ()
    power: tuple[PowerPrice, ...] = ()
    energy: _Energy = _Energy()


def load_prices(path: Path, known_skus: Collection[str] | None = None, *, today: date | None = None) -> TeamPrices:
    """The prices of one file. Raises RulesError with file, key and remedy.

    `known_skus`: names that a node may have (None: any). `today`: a commitment that ended before it is refused, because
    another price has applied since (None: not checked).
    """
    top = read(path, _File)
    prices: dict[str, Price] = {}
    for number, entry in enumerate(top.prices, 1):
        at, until = place("prices", str(number)), entry.committed_until
        if known_skus is not None and entry.sku not in known_skus:
            near = suggest(entry.sku, known_skus) or "'skuwise skus list' names them all."
            raise wrong(path, at, f"unknown node SKU {quoted(entry.sku)}", near)
        if until is not None and today is not None and until < today:
            sentence = f"the commitment to {entry.sku} ended on {until}, before today ({today})"
            raise wrong(path, at, sentence, "Give what is paid now, or remove the price.")
        id_ = f"{entry.sku}@{entry.region}:{entry.basis}"
        if id_ in prices:
            raise wrong(path, at, f"{quoted(id_)} has a price already", "Keep one.")
        prices[id_] = Price(
            id_, entry.sku, entry.region, entry.usd_per_hour, entry.basis, entry.source, entry.as_of,
            until and until.isoformat(),
        )  # fmt: skip
    if len({price.region for price in top.power}) < len(top.power):
        raise wrong(path, "power", "a region has two power prices", "Keep one.")
    energy = SiteEnergy(*(_site_figure(getattr(top.energy, name)) for name in ENERGY_FIGURES))
    if not prices and not top.power and energy == SiteEnergy():
        raise wrong(path, "", "no price is given", "List at least one under 'prices', 'power' or 'energy'.")
    return TeamPrices(tuple(prices.values()), top.power, energy)


def stated_energy(key: str, value: object, where: str) -> SiteFigure | None:
    """A figure of ``[energy]`` in skuwise.toml, with the same checks. `where`: the setting, in errors."""
    # TOML has a type of dates; in YAML they are text here.
    kind: Any = next(field.type for field in msgspec.structs.fields(_Energy) if field.name == key)
    return _site_figure(convert(where, msgspec.to_builtins(value), kind))


def _site_figure(figure: _Figure[Any] | None) -> SiteFigure | None:
    if figure is None:
        return None
    return SiteFigure(figure.by_hour_utc or (figure.value or 0.0,), figure.source, figure.as_of)
