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

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.typed_fields import Fields
from ..base.yaml_loader import read_table
from .site_energy import SECTION, USD_PER_KWH_MAX, SiteEnergy, read_site_energy
from .types import PowerPrice, Price

BASES = ("list", "reserved", "owned", "committed", "negotiated")
BINDING = ("reserved", "owned", "committed")  # money that is spent whatever runs, up to a day


@dataclass(frozen=True, slots=True)
class TeamPrices:
    """What one file says, in its order. `power` empty: what electricity costs is not known. `energy`: of the site."""

    prices: tuple[Price, ...] = ()
    power: tuple[PowerPrice, ...] = ()
    energy: SiteEnergy = field(default_factory=SiteEnergy)


def load_prices(path: Path, known_skus: Collection[str] | None = None, *, today: date | None = None) -> TeamPrices:
    """The prices of one file. Raises RulesError with file, line and remedy.

    `known_skus`: names a node may have; others are refused (None: any). `today`: a commitment that ended before it is
    refused, for what is paid since then is another price (None: not checked).
    """
    top = Fields(str(path), read_table(path), path.name)
    prices: dict[str, Price] = {}
    for fields in top.tables("prices"):
        price = _price(fields, known_skus, today)
        if price.id in prices:
            raise fields.fault(
                "sku", f"{quoted(price.sku)} in {quoted(price.region)} has a {price.basis} price already", "Keep one."
            )
        prices[price.id] = price
    power: dict[str, PowerPrice] = {}
    for fields in top.tables("power"):
        one = _power(fields)
        if one.region in power:
            raise fields.fault("region", f"{quoted(one.region)} has a power price already", "Keep one.")
        power[one.region] = one
    site = top.table_or_none(SECTION)
    energy = SiteEnergy() if site is None else read_site_energy(site)
    top.done()
    if not prices and not power and energy == SiteEnergy():
        raise top.fault(None, "no price is given", "List at least one under 'prices', 'power' or 'energy'.")
    return TeamPrices(tuple(prices.values()), tuple(power.values()), energy)


def _price(fields: Fields, known_skus: Collection[str] | None, today: date | None) -> Price:
    sku = fields.text("sku")
    if known_skus is not None and sku not in known_skus:
        near = suggest(sku, known_skus) or "'skuwise skus list' names them all."
        raise fields.fault("sku", f"unknown node SKU {quoted(sku)}", near)
    region = fields.text("region")
    basis = fields.text("basis", BASES)
    until = fields.date_or_none("committed_until")
    if basis == "committed" and until is None:
        raise fields.fault(None, "'committed_until' is missing", "A commitment needs the day it ends.")
    if until is not None and basis not in BINDING:
        raise fields.fault(
            "committed_until",
            f"a {basis} price binds nobody, so it has no 'committed_until'",
            f"Remove it, or make the basis one of {', '.join(BINDING)}.",
        )
    if until is not None and today is not None and until < today.isoformat():
        raise fields.fault(
            "committed_until",
            f"the commitment to {sku} ended on {until}, before today ({today.isoformat()})",
            "Give what is paid now, or remove the price.",
        )
    return Price(
        id=f"{sku}@{region}:{basis}",
        sku=sku,
        region=region,
        usd_per_hour=fields.number("usd_per_hour", above=0),
        basis=basis,
        source=fields.text("source"),
        as_of=fields.date("as_of"),
        committed_until=until,
    )


def _power(fields: Fields) -> PowerPrice:
    return PowerPrice(
        region=fields.text("region"),
        usd_per_kwh=fields.number("usd_per_kwh", above=0, maximum=USD_PER_KWH_MAX),
        source=fields.text("source"),
        as_of=fields.date("as_of"),
    )
