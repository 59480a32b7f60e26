"""A site's own prices and energy, from settings, the flag ``--gpu-hour-usd`` and ``--prices FILE``. Nothing is assumed
for them. docs/prices.md has examples.

Node names are checked against the catalog. A price of a GPU, also of one that the catalog lacks, is for the GPUs with
that name in telemetry.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from ..base.errors import UsageError
from ..base.sanitize import clean, quoted
from ..base.typed import Positive, Sourced, Strict, Text, check_known, convert, place, wrong
from ..base.yaml_loader import read
from .gpu_files import normalise
from .loader import Catalog
from .types import USD_PER_KWH_MAX, PowerPrice, Price

GPU_HOUR = "gpu_hour_usd"
NODE_HOUR = "node_hour_usd"
GPU_FLAG = "--gpu-hour-usd"
USD_PER_GPU_HOUR_MAX = 1000.0  # ten times any GPU-hour sold: above it the price is per month, or in another currency
SOURCE = "your setting"
ENERGY_SECTION = "energy"
HOURS = 24
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}")
F = TypeVar("F", bound=float)
_Usd = Annotated[float, Meta(gt=0, le=USD_PER_KWH_MAX)]
# The site's energy over its machines': 1 without cooling, 3 the worst published halls (Uptime Institute's surveys of
# data centers have means from 1.5 to 2.5).
_Pue = Annotated[float, Meta(ge=1, le=3)]
_Grams = Annotated[float, Meta(gt=0, le=2500)]  # lignite has about 1,200; beyond twice that it is per MJ of fuel


class SiteFigure(Sourced, Generic[F], frozen=True):
    """A figure: one value, or 24 by the hour of the day (UTC, from 00:00 on). `as_of`: the day it was read."""

    value: F | None = None
    by_hour_utc: Annotated[tuple[F, ...], Meta(min_length=HOURS, max_length=HOURS)] | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.by_hour_utc is None):
            raise ValueError("give either 'value' or 'by_hour_utc'", "Keep one of the two.")

    def at(self, hour: int) -> float:
        """The value at an hour of the day, UTC, 0 to 23."""
        return self.by_hour_utc[hour] if self.by_hour_utc else self.value or 0.0


class SiteEnergy(Strict, frozen=True):
    """A site's energy figures. None: not given; then there are no dollars or no carbon, and without `pue` both are of
    the GPUs' energy alone."""

    usd_per_kwh: SiteFigure[_Usd] | None = None
    pue: SiteFigure[_Pue] | None = None
    co2_grams_per_kwh: SiteFigure[_Grams] | None = None

    def over(self, other: SiteEnergy) -> SiteEnergy:
        """Each figure of this one, else the other's."""
        return SiteEnergy(*(getattr(self, name) or getattr(other, name) for name in self.__struct_fields__))


@dataclass(frozen=True, slots=True)
class TeamPrices:
    """The content of a price file. `power` empty: the price of electricity is unknown."""

    prices: tuple[Price, ...] = ()
    power: tuple[PowerPrice, ...] = ()
    energy: SiteEnergy = field(default_factory=SiteEnergy)


class StatedPrice(NamedTuple):
    """One unchecked price as written. `where`: the setting or flag, for errors."""

    name: str
    usd: object
    where: str


@dataclass(frozen=True, slots=True)
class StatedPrices:
    """Prices of settings and flags, which override settings SKU by SKU. `energy`: the section ``[energy]``, checked."""

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


class _Price(Sourced, frozen=True):
    sku: Text
    region: Text
    usd_per_hour: Positive
    basis: Literal["list", "reserved", "owned", "committed", "negotiated"]
    committed_until: date | None = None

    def __post_init__(self) -> None:
        if self.basis == "committed" and self.committed_until is None:
            raise ValueError("'committed_until' is missing", "A commitment needs the day it ends.")


class _File(Strict, frozen=True):
    prices: tuple[_Price, ...] = ()
    power: tuple[PowerPrice, ...] = ()
    energy: SiteEnergy = SiteEnergy()


def load_prices(path: Path, known_skus: Collection[str] | None = None, *, today: date | None = None) -> TeamPrices:
    """The prices of one file. `known_skus`: names that a node may have (None: any). `today`: a commitment that ended
    before it is refused, because another price has applied since (None: not checked). Raises RulesError."""
    top = read(path, _File)
    prices: dict[str, Price] = {}
    for number, entry in enumerate(top.prices, 1):
        at, until = place("prices", str(number)), entry.committed_until
        if known_skus is not None:
            check_known(path, at, "node SKU", [entry.sku], known_skus, otherwise="See 'skuwise skus list'.")
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
    if top == _File():
        raise wrong(path, "", "no price is given", "List at least one under 'prices', 'power' or 'energy'.")
    return TeamPrices(tuple(prices.values()), top.power, top.energy)


def stated_energy(key: str, value: object, where: str) -> SiteFigure[float]:
    """A figure of ``[energy]`` in skuwise.toml, with the same checks. `where`: the setting, in errors."""
    # TOML has a type of dates; in YAML they are text here.
    kind: Any = next(field.type for field in msgspec.structs.fields(SiteEnergy) if field.name == key)
    return convert(where, msgspec.to_builtins(value), kind)


def flag_line(gpus: Iterable[str], usd: str) -> str:
    """The flags that set the prices of these GPUs, for a shell."""
    return " ".join(f"{GPU_FLAG} " + (f'"{gpu}={usd}"' if " " in gpu else f"{gpu}={usd}") for gpu in gpus)


def parse_flags(texts: Sequence[str]) -> tuple[StatedPrice, ...]:
    """``SKU=PRICE`` as given to the flag. Raises UsageError."""
    parts = [(text, *text.rpartition("=")) for text in texts]
    for text, name, _, _ in parts:
        if not name.strip():
            remedy = f"Write {GPU_FLAG} H100-SXM5=2.10, in US dollars per GPU-hour."
            raise UsageError(f"Invalid {GPU_FLAG} {quoted(text)}: expected SKU=PRICE.", remedy)
    return tuple(StatedPrice(name.strip(), usd, GPU_FLAG) for _, name, _, usd in parts)


def resolve_prices(stated: StatedPrices, catalog: Catalog, today: date) -> HourPrices:
    """The prices by the catalog's names. Raises UsageError for an unknown node, a repeated SKU and an invalid price."""
    nodes: dict[str, float] = {}
    for price in stated.node:
        check_known(price.where, "", "node SKU", [price.name], catalog.nodes, otherwise="See 'skuwise skus list'.")
        nodes[price.name] = _usd(price, catalog.nodes[price.name].gpu_count)
    return HourPrices(_by_gpu(stated.gpu, catalog) | _by_gpu(stated.gpu_flags, catalog), nodes, today.isoformat())


def _by_gpu(stated: Sequence[StatedPrice], catalog: Catalog) -> dict[str, float]:
    prices: dict[str, float] = {}
    keys: set[str] = set()
    for price in stated:
        sku = catalog.gpu_asked(price.name)
        name = sku.name if sku is not None else " ".join(clean(price.name).split())
        key = normalise(name)
        if not key or key in keys:
            what, remedy = ("two prices of", "Keep one.") if key else ("an invalid GPU name,", "Write a GPU's name.")
            raise UsageError(f"{price.where} has {what} {quoted(name)}.", remedy)
        keys.add(key)
        prices[name] = _usd(price)
    return prices


def _usd(price: StatedPrice, gpus: int = 1) -> float:
    most = USD_PER_GPU_HOUR_MAX * gpus
    text = "" if isinstance(price.usd, bool) else clean(price.usd).strip()
    usd = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < usd <= most:
        remedy = f"Write US dollars per hour as a number, for example 2.10, and at most {most:,.0f}."
        shown = f"{quoted(price.name)} in {price.where}: {quoted(clean(price.usd))}"
        raise UsageError(f"Invalid price of {shown}.", remedy)
    return usd
