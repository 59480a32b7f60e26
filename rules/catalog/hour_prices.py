"""A team's dollars per hour, said in one line: ``gpu_hour_usd`` and ``node_hour_usd`` of the settings, and the flag
``--gpu-hour-usd SKU=PRICE``. Whoever knows more writes a price file (`price_files`).

Names of nodes are checked against the catalog. GPUs may be called as drivers and people call them, also those that the
catalog lacks: such a price is of the GPUs that telemetry calls so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated

import msgspec
from msgspec import Meta

from ..base.errors import UsageError
from ..base.sanitize import clean, suggest
from .gpu_files import normalise
from .loader import Catalog
from .price_files import SiteEnergy

GPU_HOUR = "gpu_hour_usd"
NODE_HOUR = "node_hour_usd"
GPU_FLAG = "--gpu-hour-usd"
# No GPU-hour is sold for a tenth of it: what is above this is per month, or in another currency's small coin.
USD_PER_GPU_HOUR_MAX = 1000.0
SOURCE = "your setting"
_NAME_SHOWN = 60
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class StatedPrice:
    """One price as somebody wrote it. `where`: the setting or flag, for errors."""

    name: str
    usd: object
    where: str


@dataclass(frozen=True, slots=True)
class StatedPrices:
    """What settings and flags say, unchecked. Flags go over settings, SKU by SKU. `energy`: the section ``[energy]``,
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
    """The flags that give these GPUs their prices, as a shell takes them."""
    return " ".join(f"{GPU_FLAG} " + (f'"{gpu}={usd}"' if " " in gpu else f"{gpu}={usd}") for gpu in gpus)


def parse_flags(texts: Iterable[str]) -> tuple[StatedPrice, ...]:
    """``SKU=PRICE`` as given to the flag. Raises UsageError."""
    found = []
    for text in texts:
        name, equals, usd = text.rpartition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"Invalid {GPU_FLAG} {clean(text)[:_NAME_SHOWN]!r}: expected SKU=PRICE.",
                f"Write {GPU_FLAG} H100-SXM5=2.10, in US dollars per GPU-hour.",
            )
        found.append(StatedPrice(name.strip(), usd, GPU_FLAG))
    return tuple(found)


def resolve_prices(said: StatedPrices, catalog: Catalog, today: date) -> HourPrices:
    """The prices by the catalog's names. Raises UsageError for an unknown node, a repeated SKU, and for a price that
    cannot be."""
    gpus = _by_gpu(said.gpu, catalog) | _by_gpu(said.gpu_flags, catalog)
    nodes: dict[str, float] = {}
    for one in said.node:
        sku = catalog.node(one.name)
        if sku is None:
            raise UsageError(
                f"Unknown node SKU {clean(one.name)[:_NAME_SHOWN]!r} in {one.where}.",
                suggest(one.name, catalog.nodes) or "Run 'skuwise skus list' for the names.",
            )
        nodes[sku.name] = _usd(one, sku.gpu_count)
    return HourPrices(gpus, nodes, today.isoformat())


def _by_gpu(said: Sequence[StatedPrice], catalog: Catalog) -> dict[str, float]:
    found: dict[str, tuple[str, float, StatedPrice]] = {}
    for one in said:
        sku = catalog.gpu_asked(one.name)
        name = sku.name if sku is not None else " ".join(clean(one.name).split())
        key = normalise(name)
        if not key:
            raise UsageError(f"Invalid GPU name {name[:_NAME_SHOWN]!r} in {one.where}.", "Write a GPU's name.")
        if key in found:
            first = found[key][2].name
            alias = f" (as {clean(first)} and {clean(one.name)})" if first != one.name else ""
            raise UsageError(f"{one.where} has two prices of {name[:_NAME_SHOWN]}{alias}.", "Keep one.")
        found[key] = (name, _usd(one), one)
    return {name: usd for name, usd, _ in found.values()}


def _usd(one: StatedPrice, gpus: int = 1) -> float:
    """The price as a number: positive, finite, and not above what `gpus` GPUs may cost an hour."""
    most = USD_PER_GPU_HOUR_MAX * gpus
    written = one.usd.strip() if isinstance(one.usd, str) else one.usd
    try:
        if isinstance(written, str) and not _NUMBER.fullmatch(written):
            raise ValueError
        return msgspec.convert(written, Annotated[float, Meta(gt=0, le=most)], strict=False)
    except ValueError:  # msgspec's own among them
        what = f"Invalid price of {clean(one.name)[:_NAME_SHOWN]} in {one.where}: {clean(one.usd)[:_NAME_SHOWN]!r}."
        remedy = f"Write US dollars per hour as a number, for example 2.10, and at most {most:,.0f}."
        raise UsageError(what, remedy) from None
