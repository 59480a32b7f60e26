"""What an export says of GPU nodes: hours, list against effective price by SKU and region, and what is unexplained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ...rules.catalog.loader import Catalog
from ...rules.catalog.node_files import ANY_REGION
from ...rules.catalog.types import NodeSku, Price
from ..core.timestamps import day
from .billing_exports import Charge, plain_name

# Below an hour in all, a price per hour is one row's rounding.
HOURS_MIN = 1.0
# An effective price this near the list price is the list price: exports round each row.
LIST_TOLERANCE = 0.01
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
# Providers as exports spell them, by how the catalog does.
_PROVIDERS = {
    "aws": ("amazonwebservices", "awsinc", "amazonwebservicesinc"),
    "azure": ("microsoft", "microsoftazure", "microsoftcorporation"),
    "gcp": ("googlecloud", "google", "googlecloudplatform"),
    "oci": ("oracle", "oraclecloud", "oraclecloudinfrastructure"),
}  # fmt: skip
# A word shorter than this names no instance type: too many words are as short.
WORD_MIN = 6


@dataclass
class BillLine:
    """Charges of one node SKU in one region. Costs are US dollars; `committed_hours`, `spot_hours` are part of `hours`,
    and `committed` is of `effective` what these hours cost.

    `listed_hours`: the hours whose list price was told. `resources`: what was charged, by name. `ends`: the first day
    on which one of its commitments ends; None: not told. Against the nodes that were observed over the same time:
    `observed_hours` of its kind, `explained` dollars of it by these at its own price, `nodes` of its kind, and `named`,
    those of them that the export names.
    """

    sku: str
    region: str
    hours: float = 0.0
    effective: float = 0.0
    listed: float = 0.0
    listed_hours: float = 0.0
    committed: float = 0.0
    committed_hours: float = 0.0
    spot_hours: float = 0.0
    resources: set[str] = field(default_factory=set)
    ends: str | None = None
    observed_hours: float = 0.0
    explained: float = 0.0
    nodes: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    @property
    def usd_per_hour(self) -> float | None:
        """What a node-hour really cost; None: too few hours, or nothing was paid for them."""
        return _rate(self.effective, self.hours)

    @property
    def list_usd_per_hour(self) -> float | None:
        """None too where the list says that it costs nothing: that is no list price."""
        return _rate(self.listed, self.listed_hours)

    @property
    def committed_usd_per_hour(self) -> float | None:
        """What a node-hour costs that a commitment covers; None: too few are."""
        return self.committed / self.committed_hours if self.committed_hours >= HOURS_MIN else None

    @property
    def basis(self) -> str:
        """``committed`` or ``reserved`` where commitments cover most of its hours, ``list`` at list price, else
        ``negotiated``."""
        if self.committed_hours > self.hours / 2:
            return "committed" if self.ends else "reserved"
        price, listed = self.usd_per_hour, self.list_usd_per_hour
        same = price is not None and listed is not None and abs(price / listed - 1) <= LIST_TOLERANCE
        return "list" if same else "negotiated"


def _rate(usd: float, hours: float) -> float | None:
    """None too where so little was paid for so many hours that an hour costs nothing a float can hold."""
    rate = usd / hours if hours >= HOURS_MIN else 0.0
    return rate if rate > 0 else None


@dataclass
class Bill:
    """An export, summed up. `start`, `end`: of its charges, Unix seconds. `other`: effective cost by service of what
    is no GPU node; `unused`: of commitments that nothing used; `uncounted`: of GPU nodes not charged by the hour."""

    lines: dict[tuple[str, str], BillLine] = field(default_factory=dict)
    billed: float = 0.0
    effective: float = 0.0
    other: dict[str, float] = field(default_factory=dict)
    unused: float = 0.0
    uncounted: float = 0.0
    start: float = float("inf")
    end: float = float("-inf")

    def price(self, line: BillLine, source: str) -> Price | None:
        """A line as a price of a team's price file; None where it gives none."""
        usd, basis = round(line.usd_per_hour or 0.0, 4), line.basis
        if usd <= 0:  # a price file takes none that is nothing
            return None
        name, until = f"{line.sku}@{line.region}:{basis}", line.ends if basis == "committed" else None
        return Price(name, line.sku, line.region, usd, basis, source, day(self.end - 1), until)


def sum_up(charges: Iterable[Charge], catalog: Catalog) -> Bill:
    """Every charge in its place. Memory grows with SKUs, services and names of GPU nodes, not with rows."""
    bill, types = Bill(), InstanceTypes(catalog)
    for charge in charges:
        bill.billed += charge.billed
        bill.effective += charge.effective
        # A purchase that is spread over other rows is dated by the term of its commitment, years beyond the export.
        spread = charge.effective == 0 and charge.billed != 0 and charge.hours is None
        bill.start, bill.end = min(bill.start, charge.start), max(bill.end, charge.start if spread else charge.end)
        if charge.commitment == "unused":
            bill.unused += charge.effective
            continue
        node = types.named(charge.telling, charge.provider)
        if node is None:
            bill.other[charge.what] = bill.other.get(charge.what, 0.0) + charge.effective
            continue
        if charge.hours is None:
            bill.uncounted += charge.effective
            continue
        region = charge.region or ANY_REGION
        line = bill.lines.setdefault((node.name, region), BillLine(node.name, region))
        line.hours += charge.hours
        line.effective += charge.effective
        if charge.listed is not None:
            line.listed += charge.listed
            line.listed_hours += charge.hours
        if charge.commitment == "used":
            line.committed += charge.effective
            line.committed_hours += charge.hours
            line.ends = min(line.ends or charge.ends, charge.ends) if charge.ends else line.ends
        if charge.spot:
            line.spot_hours += charge.hours
        if charge.resource:
            line.resources.add(charge.resource)
    return bill


class InstanceTypes:
    """Which node of the catalog a row's cells name. What two providers call alike is named by neither, unless the row
    says whose it is; a seller that the catalog does not know may sell any of them."""

    def __init__(self, catalog: Catalog) -> None:
        self._by_key: dict[str, list[NodeSku]] = {}
        for node in catalog.nodes.values():
            for key in {plain_name(node.instance_type), plain_name(node.instance_type.removeprefix("Standard_"))}:
                self._by_key.setdefault(key, []).append(node)
        names = {node.provider for node in catalog.nodes.values()}
        self._providers = {plain_name(said): name for name in names for said in (name, *_PROVIDERS.get(name, ()))}
        # A type called like a GPU (a bare H100) is told by a cell of its own alone: as a word it may be any GPU.
        self._whole = {key for key in self._by_key if len(key) < WORD_MIN or catalog.gpu_asked(key) is not None}
        # Nearly all rows of an export repeat the cells of others.
        self.named = lru_cache(maxsize=10_000)(self._named)

    def _named(self, telling: tuple[str, ...], provider: str = "") -> NodeSku | None:
        """The first node that a cell names, whole or as one of its words. `provider`: as exports say it."""
        seller = self._providers.get(plain_name(provider), "")
        for cell in telling:
            words = [word for word in _TOKEN.findall(cell) if plain_name(word) not in self._whole]
            for word in (cell, *words):
                sold = [n for n in self._by_key.get(plain_name(word), []) if seller in ("", n.provider)]
                if len(sold) == 1:
                    return sold[0]
        return None


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node as telemetry shows it over the export's time. `hours`: for which it was there."""

    node: str
    node_sku: str | None
    region: str | None
    hours: float


def compare_bill(bill: Bill, observed: Sequence[ObservedNode]) -> tuple[list[BillLine], list[ObservedNode]]:
    """Each line with the observed nodes of its SKU and region, the dearest first, and the nodes without a charge."""
    lines = sorted(bill.lines.values(), key=lambda one: (-one.effective, one.sku, one.region))
    for line in lines:
        nodes = [n for n in observed if n.node_sku == line.sku and line.region in (n.region, ANY_REGION)]
        line.observed_hours, charged = sum(n.hours for n in nodes), {_host(resource) for resource in line.resources}
        line.explained = line.effective * min(line.observed_hours / line.hours, 1.0) if line.hours > 0 else 0.0
        line.nodes = tuple(n.node for n in nodes)
        line.named = tuple(name for name in line.nodes if _host(name) in charged)
    charged = {name for line in lines for name in line.nodes}
    return lines, [n for n in observed if n.node not in charged]


def _host(name: str) -> str:
    return name.partition(".")[0].lower()
