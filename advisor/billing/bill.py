"""Sums up a billing export: hours, list and effective price of GPU nodes by SKU and region, and unexplained charges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...rules.base.sanitize import clean
from ...rules.catalog.loader import Catalog
from ...rules.catalog.node_files import ANY_REGION
from ...rules.catalog.types import NodeSku
from ..core import formatting as words
from ..core.timestamps import day, rfc3339
from ..show.document import Bullets, Document, Figures, Table, section
from .exports import Charge, Export, plain_name

SCHEMA = "skuwise.prices/1"
# Below an hour in all, a price per hour is one row's rounding.
HOURS_MIN = 1.0
# Exports round each row, so an effective price this near the list price is the list price.
LIST_TOLERANCE = 0.01
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
# A word shorter than this names no instance type: too many words are as short.
WORD_MIN = 6
_SERVICES = 5  # listed by name
# Names of sellers in exports -> providers of the catalog.
_SELLERS = {"amazon": "aws", "microsoft": "azure", "google": "gcp", "oracle": "oci"}


@dataclass
class BillLine:
    """Charges of one node SKU in one region. Costs are US dollars; `committed_hours`, `spot_hours` are part of `hours`,
    `committed` is the part of `effective` for the committed hours.

    `listed_hours`: hours with a list price. `ends`: the first day on which one of its commitments ends; None: unknown.
    Set by `compare_bill`: `observed_hours` and `nodes` of this SKU, `explained` dollars, and `named`, the nodes that
    the export names.
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
    def rates(self) -> tuple[float | None, float | None, float | None]:
        """List, effective and committed price of a node-hour; None: too few hours, or a cost of zero."""
        return (
            _rate(self.listed, self.listed_hours), _rate(self.effective, self.hours),
            _rate(self.committed, self.committed_hours),
        )  # fmt: skip

    @property
    def basis(self) -> str:
        """``committed`` or ``reserved`` where commitments cover most hours, ``list`` at list price, else
        ``negotiated``."""
        if self.committed_hours > self.hours / 2:
            return "committed" if self.ends else "reserved"
        listed, price, _ = self.rates
        return "list" if price and listed and abs(price / listed - 1) <= LIST_TOLERANCE else "negotiated"


def _rate(usd: float, hours: float) -> float | None:
    rate = usd / hours if hours >= HOURS_MIN else 0.0
    return rate if rate > 0 else None


@dataclass
class Bill:
    """Sums of an export. `start`, `end`: of its charges, Unix seconds. `other`: effective cost by service of everything
    but GPU nodes; `unused`: of unused commitments; `uncounted`: of GPU nodes that are not charged by the hour."""

    lines: dict[tuple[str, str], BillLine] = field(default_factory=dict)
    billed: float = 0.0
    effective: float = 0.0
    other: dict[str, float] = field(default_factory=dict)
    unused: float = 0.0
    uncounted: float = 0.0
    start: float = float("inf")
    end: float = float("-inf")


def sum_up(charges: Iterable[Charge], catalog: Catalog) -> Bill:
    """Sums of all charges. Memory grows with SKUs, services and names of GPU nodes, not with rows."""
    bill, node_of = Bill(), node_finder(catalog)
    for charge in charges:
        bill.billed += charge.billed
        bill.effective += charge.effective
        # A purchase that is spread over other rows is dated by the term of its commitment, years beyond the export.
        spread = charge.effective == 0 and charge.billed != 0 and charge.hours is None
        bill.start, bill.end = min(bill.start, charge.start), max(bill.end, charge.start if spread else charge.end)
        node = None if charge.commitment == "unused" else node_of(charge.type_cells, charge.provider)
        if charge.commitment == "unused":
            bill.unused += charge.effective
        elif node is None:
            bill.other[charge.service] = bill.other.get(charge.service, 0.0) + charge.effective
        elif charge.hours is None:
            bill.uncounted += charge.effective
        else:
            region = charge.region or ANY_REGION
            line = bill.lines.setdefault((node.name, region), BillLine(node.name, region))
            _add(line, charge, charge.hours)
    return bill


def _add(line: BillLine, charge: Charge, hours: float) -> None:
    line.hours += hours
    line.effective += charge.effective
    line.spot_hours += hours if charge.spot else 0.0
    if charge.listed is not None:
        line.listed += charge.listed
        line.listed_hours += hours
    if charge.commitment == "used":
        line.committed += charge.effective
        line.committed_hours += hours
        line.ends = min(filter(None, (line.ends, charge.ends)), default=None)
    if charge.resource:
        line.resources.add(charge.resource)


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
    # A type called like a GPU (a bare H100) is found in a cell of its own alone: as a word it may be any GPU.
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


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node in telemetry over the export's time, with the `hours` for which it was there."""

    node: str
    node_sku: str | None
    region: str | None
    hours: float


def compare_bill(bill: Bill, observed: Sequence[ObservedNode]) -> list[str]:
    """Set the observed nodes of each line's SKU and region. Returns the nodes without a charge."""
    charged: set[str] = set()
    for line in bill.lines.values():
        nodes = [n for n in observed if n.node_sku == line.sku and line.region in (n.region, ANY_REGION)]
        line.observed_hours, hosts = sum(n.hours for n in nodes), {_host(resource) for resource in line.resources}
        line.explained = line.effective * min(line.observed_hours / line.hours, 1.0) if line.hours > 0 else 0.0
        line.nodes = tuple(n.node for n in nodes)
        line.named = tuple(name for name in line.nodes if _host(name) in hosts)
        charged |= set(line.nodes)
    return [n.node for n in observed if n.node not in charged]


def _host(name: str) -> str:
    return name.partition(".")[0].lower()


def remainder(bill: Bill, compared: bool) -> list[tuple[str, float]]:
    """Charges without an explanation, by reason, US dollars. With the explained ones they sum to the effective cost;
    without a comparison every GPU node counts as explained."""
    lines = _by_cost(bill) if compared else []
    rest = [(f"{x.sku} in {x.region}: more hours than were observed", x.effective - x.explained) for x in lines]
    rest += [("commitments that nothing used", bill.unused)]
    rest += [("GPU nodes that are not charged by the hour", bill.uncounted)]
    named = sorted(bill.other.items(), key=lambda service: (-abs(service[1]), service[0]))
    rest += named[:_SERVICES]
    rest.append((f"{max(len(named) - _SERVICES, 0)} other services", sum(usd for _, usd in named[_SERVICES:])))
    return [(reason, usd) for reason, usd in rest if abs(usd) > 0.005]


def price_entries(bill: Bill, export: Export) -> list[dict[str, Any]]:
    """Entries of a price file; lines without a price are left out."""
    last, entries = day(bill.end - 1), []
    source = clean(f"{export.dialect.partition(' ')[2]} {export.path.name}, {day(bill.start)} to {last}")
    for line in _by_cost(bill):
        usd = round(line.rates[1] or 0.0, 4)
        if usd > 0:  # a price file takes no zero
            until = {"committed_until": line.ends} if line.basis == "committed" else {}
            price = {"sku": line.sku, "region": line.region, "usd_per_hour": usd, "basis": line.basis}
            entries.append({**price, **until, "source": source, "as_of": last})
    return entries


def _by_cost(bill: Bill) -> list[BillLine]:
    return sorted(bill.lines.values(), key=lambda line: (-line.effective, line.sku, line.region))


def bill_json(bill: Bill, export: Export, missing: Sequence[str], compared: bool) -> dict[str, Any]:
    """Schema ``skuwise.prices/1``: RFC 3339 UTC, US dollars, null for unknown values. `missing`: nodes without a
    charge; `compared`: whether charges were compared with observed nodes."""
    nodes = []
    for line in _by_cost(bill):
        listed, effective, committed = line.rates
        nodes.append({
            "sku": line.sku, "region": line.region, "node_hours": line.hours, "list_usd_per_hour": listed,
            "effective_usd_per_hour": effective, "committed_usd_per_hour": committed, "basis": line.basis,
            "committed_hours": line.committed_hours, "spot_hours": line.spot_hours, "effective_usd": line.effective,
            "observed_node_hours": line.observed_hours if compared else None,
            "explained_usd": line.explained if compared else None, "observed": line.nodes, "named": line.named,
        })  # fmt: skip
    about = {"file": str(export.path), "kind": export.dialect, "rows": export.rows, "unreadable": export.skipped}
    return {
        "schema": SCHEMA, "export": about, "window": {"start": rfc3339(bill.start), "end": rfc3339(bill.end)},
        "billed_usd": bill.billed, "effective_usd": bill.effective, "nodes": nodes,
        "unexplained": [{"what": reason, "usd": usd} for reason, usd in remainder(bill, compared)],
        "observed_without_charge": list(missing),
    }  # fmt: skip


def bill_document(bill: Bill, export: Export, missing: Sequence[str], compared: bool) -> Document:
    """The page: a row for each SKU and region, charges without an explanation, and notes. Arguments as of
    `bill_json`."""
    heads = ["Node", "Region", "Node-hours", "List", "Effective", "Committed", "Basis", "Cost"]
    rows, notes = [], []
    for line in _by_cost(bill):
        rates = [words.NONE if rate is None else words.usd(rate, "/h") for rate in line.rates]
        row = (line.sku, line.region, f"{line.hours:,.0f}", *rates, line.basis, words.usd(line.effective))
        rows.append((*row, f"{line.observed_hours:,.0f}", words.usd(line.explained)) if compared else row)
    if compared:
        heads += ["Observed", "Explained"]
        named, nodes = (sum(len(getattr(line, name)) for line in bill.lines.values()) for name in ("named", "nodes"))
        notes.append(f"The export names {named} of {nodes} observed nodes.")
    if missing:
        notes.append(f"Observed without a charge: {words.listed(missing)}.")
    if export.skipped:
        notes.append(f"{export.skipped} rows could not be read, starting with row {export.first_skipped}.")
    rest = Figures(tuple((reason, words.usd(usd)) for reason, usd in remainder(bill, compared)))
    title, days = f"{export.path}, {export.dialect}", f"{day(bill.start)} to {day(bill.end - 1)} UTC"
    costs = f"{words.usd(bill.effective)} effective, {words.usd(bill.billed)} billed"
    return Document(
        title=title, heading=title, window=f"{days}, {export.rows:,} rows: {costs}", summary="", tiles=(), sections=(
            section("GPU nodes", Table(tuple(heads), tuple(rows), right=(2, 3, 4, 5, 7, 8, 9))),
            section("Unexplained" if compared else "Not of priced GPU nodes", rest),
            *([section("Notes", Bullets(tuple(notes)))] if notes else []),
        ),
    )  # fmt: skip
