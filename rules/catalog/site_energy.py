"""What a site says of its energy: the price of power, its PUE, and the carbon of its grid. Nothing is assumed for it.

The same in a price file (``--prices FILE``, under ``energy:``) and in skuwise.toml (``[energy]``):

```yaml
energy:
  usd_per_kwh: {value: 0.085, source: "utility bill, October", as_of: 2026-11-01}
  pue: {value: 1.25, source: facility meter, as_of: 2026-10-01}
  co2_grams_per_kwh:                # one value, or 24 from 00:00 UTC on
    by_hour_utc: [310, 305, 300, 300, 305, 320, 340, 330, 290, 240, 200, 180,
                  170, 175, 190, 230, 290, 350, 380, 380, 370, 350, 335, 320]
    source: grid operator, mean of 2026
    as_of: 2026-11-01
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated

import msgspec
from msgspec import Meta

from ..base.typed import Day, Number, Text, convert, place, wrong
from .types import USD_PER_KWH_MAX

HOURS = 24
# What each may be. All that a site draws over what its machines draw: 1 is a site without cooling, 3 the worst halls
# that were published (Uptime Institute's surveys of data centers have means from 1.5 to 2.5). Lignite comes to some
# 1,200 g: beyond twice that it is grams per MJ of fuel. 0 would tell of free power, or of power without carbon.
_LEAST: Mapping[str, float] = {"usd_per_kwh": 1e-9, "pue": 1.0, "co2_grams_per_kwh": 1e-9}
_MOST: Mapping[str, float] = {"usd_per_kwh": USD_PER_KWH_MAX, "pue": 3.0, "co2_grams_per_kwh": 2500.0}
NAMES = tuple(_MOST)
SECTION = "energy"


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
        name: None if one is None else _figure(file, name, one, SECTION, name) for name, one in told.items()
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
