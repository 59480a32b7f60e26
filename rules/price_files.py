"""Reads a team's own prices (``--prices FILE``): what they really pay, which no catalog knows.

```yaml
prices:
  - sku: azure/Standard_ND96isr_H100_v5
    region: eastus
    usd_per_hour: 61.20            # the whole node
    basis: committed               # list, reserved, owned, committed or negotiated
    committed_until: 2027-06-30    # only where money is spent whatever happens
    source: contract 4711
    as_of: 2026-11-01
```
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from .catalog import Price
from .fields import Fields, suggest
from .loader import read_table

BASES = ("list", "reserved", "owned", "committed", "negotiated")


def load_prices(path: Path, known_skus: Collection[str] | None = None) -> tuple[Price, ...]:
    """The prices of one file, in its order. `known_skus`: names a node may have; others are refused (None: any)."""
    top = Fields(str(path), read_table(path), path.name)
    prices: dict[str, Price] = {}
    for fields in top.tables("prices"):
        price = _price(fields, known_skus)
        if price.id in prices:
            raise fields.fault(
                "sku", f"{price.sku!r} in {price.region!r} has a {price.basis} price already", "Keep one."
            )
        prices[price.id] = price
    top.done()
    if not prices:
        raise top.fault(None, "no price is given", "List at least one under 'prices'.")
    return tuple(prices.values())


def _price(fields: Fields, known_skus: Collection[str] | None) -> Price:
    sku = fields.text("sku")
    if known_skus is not None and sku not in known_skus:
        near = suggest(sku, known_skus) or "'skuwise skus list' names them all."
        raise fields.fault("sku", f"unknown node SKU {sku!r}", near)
    region = fields.text("region")
    basis = fields.text("basis", BASES)
    until = fields.date_or_none("committed_until")
    if basis == "committed" and until is None:
        raise fields.fault(None, "'committed_until' is missing", "A commitment needs the day it ends.")
    price = Price(
        id=f"{sku}@{region}:{basis}",
        sku=sku,
        region=region,
        usd_per_hour=fields.number("usd_per_hour", above=0),
        basis=basis,
        source=fields.text("source"),
        as_of=fields.date("as_of"),
        committed_until=until,
    )
    fields.done()
    return price
