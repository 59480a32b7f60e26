"""Sums up a billing export: hours, list and effective price of GPU nodes by SKU and region, and all other charges."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...rules.base.sanitize import clean
from ...rules.catalog.loader import ANY_REGION, Catalog
from ...rules.catalog.types import NodeSku
from ..core.formatting import NONE, usd
from ..core.timestamps import day, rfc3339
from ..show.document import Document, Figures, Table, section
from .exports import Charge, Export, plain_name

# Below an hour in all, a price per hour is one row's rounding.
HOURS_MIN = 1.0
# Exports round each row, so an effective price this near the list price is the list price.
LIST_TOLERANCE = 0.01
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
# A word shorter than this names no instance type: too many words are as short.
WORD_MIN = 6
_LISTED_MAX = 7  # charges listed by name
# Names of sellers in exports -> providers of the catalog.
_SELLERS = {"amazon": "aws", "microsoft": "azure", "google": "gcp", "oracle": "oci"}


@dataclass
class BillLine:
    """Charges of one node SKU in one region. Costs are US dollars; `committed` is the part of `effective` for
    `committed_hours`. `listed_hours`: hours with a list price. `ends`: the first day on which a commitment ends; None:
    unknown.
    """

    sku: str
    region: str
    hours: float = 0.0
    effective: float = 0.0
    listed: float = 0.0
    listed_hours: float = 0.0
    committed: float = 0.0
    committed_hours: float = 0.0
    ends: str | None = None

    def add(self, charge: Charge, hours: float) -> None:
        """Add a charge that is counted in hours."""
        self.hours += hours
        self.effective += charge.effective
        if charge.listed is not None:
            self.listed += charge.listed
            self.listed_hours += hours
        if charge.commitment == "used":
            self.committed += charge.effective
            self.committed_hours += hours
            self.ends = min(filter(None, (self.ends, charge.ends)), default=None)

    @property
    def rates(self) -> list[float | None]:
        """List, effective and committed price of a node-hour; None: too few hours, or a cost of zero."""
        sums = ((self.listed, self.listed_hours), (self.effective, self.hours), (self.committed, self.committed_hours))
        rates = [cost / hours if hours >= HOURS_MIN else 0.0 for cost, hours in sums]
        return [rate if rate > 0 else None for rate in rates]

    @property
    def basis(self) -> str:
        """``committed`` or ``reserved`` where commitments cover most hours, ``list`` at list price, else
        ``negotiated``."""
        if self.committed_hours > self.hours / 2:
            return "committed" if self.ends else "reserved"
        listed, price, _ = self.rates
        return "list" if price and listed and abs(price / listed - 1) <= LIST_TOLERANCE else "negotiated"


@dataclass
class Bill:
    """Sums of an export, US dollars. `start`, `end`: of its charges, Unix seconds. `other`: effective cost by service
    or reason of all but hours of GPU nodes; with the lines it sums to `effective`."""

    lines: dict[tuple[str, str], BillLine] = field(default_factory=dict)
    other: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    billed: float = 0.0
    effective: float = 0.0
    start: float = float("inf")
    end: float = float("-inf")

    @property
    def by_cost(self) -> list[BillLine]:
        """The lines, the highest cost first."""
        return sorted(self.lines.values(), key=lambda line: (-line.effective, line.sku, line.region))


def sum_up(charges: Iterable[Charge], catalog: Catalog) -> Bill:
    """Sums of all charges. Memory grows with SKUs and services, not with rows."""
    bill, node_of = Bill(), node_finder(catalog)
    for charge in charges:
        bill.billed += charge.billed
        bill.effective += charge.effective
        # A purchase that is spread over other rows is dated by the term of its commitment, years beyond the export.
        spread = charge.effective == 0 and charge.billed != 0 and charge.hours is None
        bill.start, bill.end = min(bill.start, charge.start), max(bill.end, charge.start if spread else charge.end)
        node = node_of(charge.type_cells, charge.provider)
        if charge.commitment == "unused":
            bill.other["commitments that nothing used"] += charge.effective
        elif node is None:
            bill.other[charge.service] += charge.effective
        elif charge.hours is None:
            bill.other["GPU nodes that are not charged by the hour"] += charge.effective
        else:
            key = (node.name, charge.region or ANY_REGION)
            bill.lines.setdefault(key, BillLine(*key)).add(charge, charge.hours)
    return bill


def node_finder(catalog: Catalog) -> Callable[[tuple[str, ...], str], NodeSku | None]:
    """A function from a row's cells and provider to the node that the first cell names, whole or as one of its words.

    Where the provider is one of the catalog, only its nodes count. A name that several providers share finds no node
    otherwise.
    """
    providers = {plain_name(node.provider): node.provider for node in catalog.nodes.values()}
    by_name: dict[str, list[NodeSku]] = {}
    for node in catalog.nodes.values():
        for name in {plain_name(node.instance_type), plain_name(node.instance_type.removeprefix("Standard_"))}:
            by_name.setdefault(name, []).append(node)
    # A type called like a GPU (a bare H100) is found only as a whole cell: as a word it may be any GPU.
    ambiguous = {name for name in by_name if len(name) < WORD_MIN or catalog.gpu_asked(name) is not None}

    @lru_cache(maxsize=10_000)  # nearly all rows of an export repeat the cells of others
    def find(cells: tuple[str, ...], provider: str) -> NodeSku | None:
        name = plain_name(provider)
        seller = providers.get(name) or next((sold for word, sold in _SELLERS.items() if word in name), "")
        for cell in cells:
            words_of = [word for word in _TOKEN.findall(cell) if plain_name(word) not in ambiguous]
            for word in (cell, *words_of):
                sold = [n for n in by_name.get(plain_name(word), []) if seller in ("", n.provider)]
                if len(sold) == 1:
                    return sold[0]
        return None

    return find


def price_entries(bill: Bill, export: Export) -> list[dict[str, Any]]:
    """Entries of a price file; lines without a price are left out."""
    last, entries = day(bill.end - 1), []
    source = clean(f"{export.dialect.partition(' ')[2]} {export.path.name}, {day(bill.start)} to {last}")
    for line in bill.by_cost:
        price = round(line.rates[1] or 0.0, 4)
        if price > 0:  # a price file takes no zero
            until = {"committed_until": line.ends} if line.basis == "committed" else {}
            entry = {"sku": line.sku, "region": line.region, "usd_per_hour": price, "basis": line.basis}
            entries.append({**entry, **until, "source": source, "as_of": last})
    return entries


def remainder(bill: Bill) -> list[tuple[str, float]]:
    """Charges that are not hours of GPU nodes, the highest first, US dollars; the last of many are added up."""
    named = sorted(bill.other.items(), key=lambda charge: (-abs(charge[1]), charge[0]))
    rest = (f"{len(named) - _LISTED_MAX} others", sum(cost for _, cost in named[_LISTED_MAX:]))
    return [(name, cost) for name, cost in (*named[:_LISTED_MAX], rest) if abs(cost) > 0.005]


def bill_json(bill: Bill, export: Export) -> dict[str, Any]:
    """Schema ``skuwise.prices/1``: RFC 3339 UTC, US dollars, null for unknown values."""
    nodes = []
    for line in bill.by_cost:
        listed, effective, committed = line.rates
        nodes.append({
            "sku": line.sku, "region": line.region, "node_hours": line.hours, "list_usd_per_hour": listed,
            "effective_usd_per_hour": effective, "committed_usd_per_hour": committed, "basis": line.basis,
            "committed_hours": line.committed_hours, "effective_usd": line.effective,
        })  # fmt: skip
    about = {"file": str(export.path), "kind": export.dialect, "rows": export.rows, "unreadable": export.skipped}
    return {
        "schema": "skuwise.prices/1", "export": about,
        "window": {"start": rfc3339(bill.start), "end": rfc3339(bill.end)}, "billed_usd": bill.billed,
        "effective_usd": bill.effective, "nodes": nodes,
        "unexplained": [{"what": name, "usd": cost} for name, cost in remainder(bill)],
    }  # fmt: skip


def bill_document(bill: Bill, export: Export) -> Document:
    """The page: a row for each SKU and region, and all other charges."""
    heads, rows = ("Node", "Region", "Node-hours", "List", "Effective", "Committed", "Basis", "Cost"), []
    for line in bill.by_cost:
        rates = (NONE if rate is None else usd(rate, "/h") for rate in line.rates)
        rows.append((line.sku, line.region, f"{line.hours:,.0f}", *rates, line.basis, usd(line.effective)))
    title = f"{export.path}, {export.dialect}"
    window = f"{day(bill.start)} to {day(bill.end - 1)} UTC, {export.rows:,} rows"
    skipped = f", {export.skipped} unreadable from row {export.first_skipped} on" if export.skipped else ""
    costs = f"{usd(bill.effective)} effective, {usd(bill.billed)} billed"
    return Document(
        title=title, heading=title, window=f"{window}{skipped}: {costs}", summary="", tiles=(), sections=(
            section("GPU nodes", Table(heads, tuple(rows), right=(2, 3, 4, 5, 7))),
            section("Other charges", Figures(tuple((name, usd(cost)) for name, cost in remainder(bill)))),
        ),
    )  # fmt: skip
