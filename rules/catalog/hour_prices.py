"""Dollars per hour in one line: ``gpu_hour_usd`` and ``node_hour_usd`` of the settings, and the flag
``--gpu-hour-usd SKU=PRICE``. A price file (`price_files`) holds more.

Node names are checked against the catalog. GPUs may have any name, also such as the catalog lacks: their price is for
the GPUs with that name in telemetry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from ..base.errors import UsageError
from ..base.sanitize import clean, suggest
from .gpu_files import normalise
from .loader import Catalog
from .price_files import SiteEnergy

GPU_HOUR = "gpu_hour_usd"
NODE_HOUR = "node_hour_usd"
GPU_FLAG = "--gpu-hour-usd"
USD_PER_GPU_HOUR_MAX = 1000.0  # ten times any GPU-hour sold: above it the price is per month, or in another currency
SOURCE = "your setting"
_NAME_SHOWN = 60
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class StatedPrice:
    """One price as written. `where`: the setting or flag, for errors."""

    name: str
    usd: object
    where: str


@dataclass(frozen=True, slots=True)
class StatedPrices:
    """Unchecked prices of settings and flags; flags override settings, SKU by SKU. `energy`: the section ``[energy]``,
    checked."""

    gpu: Sequence[StatedPrice] = ()
    node: Sequence[StatedPrice] = ()
    gpu_flags: Sequence[StatedPrice] = ()
    energy: SiteEnergy = field(default_factory=SiteEnergy)


@dataclass(frozen=True)
class HourPrices:
    """US dollars per GPU-hour by the catalog's name of the GPU, else the name as written; per node-hour by node SKU.
    `as_of`: the day they were read (ISO)."""

    gpu: Mapping[str, float] = field(default_factory=dict)
    node: Mapping[str, float] = field(default_factory=dict)
    as_of: str = ""

    def of_gpu(self, *names: str | None) -> float | None:
        """US dollars per hour of a GPU by the first of its names that has a price, in any case and spacing."""
        by_name = {normalise(name): usd for name, usd in self.gpu.items()}
        return next((by_name[key] for name in names if (key := normalise(name or "")) in by_name), None)


def flag_line(gpus: Iterable[str], usd: str) -> str:
    """The flags that set the prices of these GPUs, for a shell."""
    return " ".join(f"{GPU_FLAG} " + (f'"{gpu}={usd}"' if " " in gpu else f"{gpu}={usd}") for gpu in gpus)


def parse_flags(texts: Iterable[str]) -> tuple[StatedPrice, ...]:
    """``SKU=PRICE`` as given to the flag. Raises UsageError."""
    prices = []
    for text in texts:
        name, _, usd = text.rpartition("=")
        if not name.strip():
            message = f"Invalid {GPU_FLAG} {clean(text)[:_NAME_SHOWN]!r}: expected SKU=PRICE."
            raise UsageError(message, f"Write {GPU_FLAG} H100-SXM5=2.10, in US dollars per GPU-hour.")
        prices.append(StatedPrice(name.strip(), usd, GPU_FLAG))
    return tuple(prices)


def resolve_prices(stated: StatedPrices, catalog: Catalog, today: date) -> HourPrices:
    """The prices by the catalog's names. Raises UsageError for an unknown node, a repeated SKU and an invalid price."""
    nodes: dict[str, float] = {}
    for price in stated.node:
        sku = catalog.node(price.name)
        if sku is None:
            near = suggest(price.name, catalog.nodes) or "Run 'skuwise skus list' for the names."
            raise UsageError(f"Unknown node SKU {clean(price.name)[:_NAME_SHOWN]!r} in {price.where}.", near)
        nodes[sku.name] = _usd(price, sku.gpu_count)
    return HourPrices(_by_gpu(stated.gpu, catalog) | _by_gpu(stated.gpu_flags, catalog), nodes, today.isoformat())


def _by_gpu(stated: Sequence[StatedPrice], catalog: Catalog) -> dict[str, float]:
    prices: dict[str, float] = {}
    written: dict[str, str] = {}
    for price in stated:
        sku = catalog.gpu_asked(price.name)
        name = sku.name if sku is not None else " ".join(clean(price.name).split())
        key = normalise(name)
        if not key:
            raise UsageError(f"Invalid GPU name {name[:_NAME_SHOWN]!r} in {price.where}.", "Write a GPU's name.")
        if key in written:
            alias = f" (as {clean(written[key])} and {clean(price.name)})" if written[key] != price.name else ""
            raise UsageError(f"{price.where} has two prices of {name[:_NAME_SHOWN]}{alias}.", "Keep one.")
        written[key] = price.name
        prices[name] = _usd(price)
    return prices


def _usd(price: StatedPrice, gpus: int = 1) -> float:
    """The price as a number: above 0, and at most what `gpus` GPUs may cost per hour."""
    most = USD_PER_GPU_HOUR_MAX * gpus
    text = "" if isinstance(price.usd, bool) else clean(price.usd).strip()
    usd = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < usd <= most:
        name, usd_text = (clean(part)[:_NAME_SHOWN] for part in (price.name, price.usd))
        remedy = f"Write US dollars per hour as a number, for example 2.10, and at most {most:,.0f}."
        raise UsageError(f"Invalid price of {name} in {price.where}: {usd_text!r}.", remedy)
    return usd
