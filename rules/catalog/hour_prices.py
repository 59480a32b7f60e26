"""A team's dollars per hour, said in one line: ``gpu_hour_usd`` and ``node_hour_usd`` of the settings, and the flag
``--gpu-hour-usd SKU=PRICE``. Whoever knows more writes a price file (`price_files`).

Names are checked against the catalog, and GPUs may be called as drivers and people call them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType

from ..base.errors import UsageError
from ..base.sanitize import clean
from ..base.suggestions import suggest
from .loader import Catalog
from .site_energy import SiteEnergy

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
    """US dollars per GPU-hour by GPU name, and per node-hour by node SKU. `as_of`: the day they were read (ISO)."""

    gpu: Mapping[str, float] = field(default_factory=dict)
    node: Mapping[str, float] = field(default_factory=dict)
    as_of: str = ""


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
    """The prices by the catalog's names. Raises UsageError for an unknown or repeated SKU, and for a price that cannot
    be."""
    gpus = _by_gpu(said.gpu, catalog) | _by_gpu(said.gpu_flags, catalog)
    nodes: dict[str, float] = {}
    for one in said.node:
        sku = catalog.node(one.name)
        if sku is None:
            raise _unknown(one, "node", suggest(one.name, catalog.nodes))
        nodes[sku.name] = _usd(one, sku.gpu_count)
    return HourPrices(MappingProxyType(gpus), MappingProxyType(nodes), today.isoformat())


def _by_gpu(said: Sequence[StatedPrice], catalog: Catalog) -> dict[str, float]:
    found: dict[str, tuple[float, StatedPrice]] = {}
    for one in said:
        sku = catalog.gpu_asked(one.name)
        if sku is None:
            raise _unknown(one, "GPU", suggest(one.name, catalog.gpus))
        if sku.name in found:
            first = found[sku.name][1].name
            alias = f" (as {clean(first)} and {clean(one.name)})" if first != one.name else ""
            raise UsageError(f"{one.where} has two prices of {sku.name}{alias}.", "Keep one.")
        found[sku.name] = (_usd(one), one)
    return {name: usd for name, (usd, _) in found.items()}


def _unknown(one: StatedPrice, kind: str, near: str) -> UsageError:
    return UsageError(
        f"Unknown {kind} SKU {clean(one.name)[:_NAME_SHOWN]!r} in {one.where}.",
        near or "Run 'skuwise skus list' for the names.",
    )


def _usd(one: StatedPrice, gpus: int = 1) -> float:
    """The price as a number: positive, finite, and not above what `gpus` GPUs may cost an hour."""
    what = f"Invalid price of {clean(one.name)[:_NAME_SHOWN]} in {one.where}: {clean(one.usd)[:_NAME_SHOWN]!r}."
    remedy = "Write US dollars per hour as a number, for example 2.10."
    is_number = isinstance(one.usd, (int, float, str)) and not isinstance(one.usd, bool)
    is_number = is_number and (not isinstance(one.usd, str) or _NUMBER.fullmatch(one.usd.strip()) is not None)
    try:
        usd = float(one.usd) if is_number else math.nan  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        usd = math.nan
    most = USD_PER_GPU_HOUR_MAX * gpus
    if not math.isfinite(usd) or usd <= 0:
        raise UsageError(what, remedy)
    if usd > most:
        raise UsageError(what, f"Use at most {most:,.0f} US dollars per hour: is it a price per month?")
    return usd
