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

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.typed import Day, Positive, Text, place, wrong
from ..base.yaml_loader import read
from .site_energy import SiteEnergy, StatedEnergy, site_energy
from .types import PowerPrice, Price

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
