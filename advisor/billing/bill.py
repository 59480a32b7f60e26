"""Sums up a billing export: hours, list and effective price of GPU nodes by SKU and region, and all other charges."""

import csv
import gzip
import io
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...agent.base.safe_text import clean_text
from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ...rules.base.sanitize import clean
from ...rules.catalog.loader import ANY_REGION, Catalog
from ...rules.catalog.types import NodeSku
from ..core.formatting import NONE, usd
from ..core.timestamps import day, rfc3339
from ..show.document import Document, Figures, Table, section

# More unreadable rows than this share mean another kind of file.
UNREADABLE_MAX = 0.01
_HOURS = {"hours": 1.0, "hour": 1.0, "hrs": 1.0, "hr": 1.0, "h": 1.0, "minutes": 1 / 60, "seconds": 1 / 3600}
_UNIT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)?\s*([a-z]+)", re.ASCII)
_REGION = re.compile(r"([A-Za-z0-9][A-Za-z0-9 ._-]{0,63})?", re.ASCII)
_CELL_MAX = 1 << 20
_NAME_MAX = 300  # characters of a cell that may name an instance type
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
WORD_MIN = 6  # a shorter word names no instance type: too many words are as short
# Names of sellers in exports -> providers of the catalog.
_SELLERS = {"amazon": "aws", "microsoft": "azure", "google": "gcp", "oracle": "oci"}
HOURS_MIN = 1.0  # below an hour in all, a price per hour is one row's rounding
# Exports round each row, so an effective price this near the list price is the list price.
LIST_TOLERANCE = 0.01
_LISTED_MAX = 7  # charges listed by name
# Required columns, as the documents of the exports spell them.
_REQUIRED = {
    "a FOCUS export": (
        "BilledCost", "EffectiveCost", "BillingCurrency", "ChargeCategory", "ChargePeriodStart", "ChargePeriodEnd",
    ),
    "an AWS cost and usage report": (
        "lineItem/LineItemType", "lineItem/UnblendedCost", "lineItem/UsageStartDate", "lineItem/UsageEndDate",
        "lineItem/UsageAmount",
    ),
}  # fmt: skip
# Columns that may name an instance type, the surest first.
_TYPES = (
    "xskuinstancetype", "skupricedetails", "xskudetails", "xusagetype", "skumeter", "xskumetername", "resourcetype",
    "skuid", "chargedescription", "productinstancetype", "lineitemusagetype",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Charge:
    """One row. US dollars: `billed` on the invoice, `effective` with upfront payments spread over what they cover,
    `listed` at list price (None: no value). `hours`: of use; None: not counted in hours.

    `commitment`: "used", "unused" or "" (none); `type_cells`: cells that may name the instance type; `provider`: empty
    where missing; `ends`: the day on which its commitment ends.
    """

    region: str
    start: float
    end: float
    billed: float
    effective: float
    listed: float | None
    hours: float | None
    commitment: str
    type_cells: tuple[str, ...]
    service: str
    provider: str = ""
    ends: str | None = None


@dataclass
class Export:
    """One file, read once. `skipped`: rows that cannot be read; `first_skipped`: number of the first of them."""

    path: Path
    dialect: str = ""
    rows: int = 0
    skipped: int = 0
    first_skipped: int = 0

    def charges(self) -> Iterator[Charge]:
        """Yields every charge in the file's order; one row is in memory at a time.

        Raises UsageError for an unknown or damaged export, and for a currency other than US dollars.
        """
        lines = self._lines()
        names = [plain_name(cell) for cell in next(lines, [])]
        missing = {kind: [c for c in needed if plain_name(c) not in names] for kind, needed in _REQUIRED.items()}
        self.dialect = min(missing, key=lambda kind: len(missing[kind]) / len(_REQUIRED[kind]))
        if lacking := ", ".join(missing[self.dialect]):
            what = f"{self.path} is neither a FOCUS export nor an AWS cost and usage report."
            raise UsageError(what, f"Columns missing for {self.dialect}: {lacking}.")
        for number, cells in enumerate(lines, start=2):
            row = dict(zip(names, map(str.strip, cells), strict=False))
            currency = (row.get("billingcurrency") or row.get("lineitemcurrencycode") or "USD").upper()
            if currency != "USD":
                what = f"{self.path}, row {number}: unsupported currency {currency[:8]!r}."
                raise UsageError(what, "Export it in USD.")
            if not row:
                continue
            self.rows += 1
            try:
                yield _charge(row)
            except (ValueError, KeyError):  # a short row lacks its last cells
                self.skipped += 1
                self.first_skipped = self.first_skipped or number
        if self.skipped > max(UNREADABLE_MAX * self.rows, 1):
            what = f"{self.path}: {self.skipped} of {self.rows} rows cannot be read"
            remedy = "Use RFC 3339 times, and a point as decimal separator."
            raise UsageError(f"{what}, starting with row {self.first_skipped}.", remedy)

    def _lines(self) -> Iterator[list[str]]:
        csv.field_size_limit(_CELL_MAX)
        try:
            with open_stream(self.path) as raw:
                plain = gzip.GzipFile(fileobj=raw) if self.path.name.endswith(".gz") else raw
                with io.TextIOWrapper(plain, encoding="utf-8-sig", errors="replace", newline="") as file:  # type: ignore[type-var]
                    yield from csv.reader(file)
        except (OSError, EOFError, csv.Error, zlib.error) as error:
            remedy = "Use an export as CSV, plain or gzip."
            raise UsageError(
                f"{self.path} cannot be read: {getattr(error, 'strerror', '') or error}.", remedy
            ) from error


def plain_name(name: str) -> str:
    """Letters and digits of a name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _charge(row: Mapping[str, str]) -> Charge:
    def first(*names: str) -> str:
        return next((cell for name in names if (cell := row.get(name, ""))), "")

    kind = row.get("lineitemlineitemtype")
    if kind is None:
        billed, effective = _number(row["billedcost"]), _number(row["effectivecost"])
        status = row.get("commitmentdiscountstatus", "").lower()
        status, ends = status if status in ("used", "unused") else "", ""
        usage = row["chargecategory"].lower() == "usage" and status != "unused"
    else:
        billed = _number(row["lineitemunblendedcost"])
        effective, status, ends = _aws_effective(row, kind, billed)
        usage = status == "used" or kind == "Usage"
    region = first("regionid", "productregioncode", "productregion")
    listed = first("listcost", "pricingpublicondemandcost")
    if not _REGION.fullmatch(region):
        raise ValueError(region)
    return Charge(
        region=region,
        start=_moment(first("chargeperiodstart", "lineitemusagestartdate")),
        end=_moment(first("chargeperiodend", "lineitemusageenddate")), billed=billed, effective=effective,
        listed=_number(listed) if listed else None, hours=_hours(row) if usage else None, commitment=status,
        type_cells=tuple(row[name][:_NAME_MAX] for name in _TYPES if row.get(name)),
        service=clean_text(first("servicename", "servicecategory", "lineitemproductcode"), 60) or "no service named",
        provider=clean_text("aws" if kind is not None else first("serviceprovidername", "providername"), 60),
        ends=date.fromisoformat(ends[:10]).isoformat() if ends else None,
    )  # fmt: skip


def _aws_effective(row: Mapping[str, str], kind: str, billed: float) -> tuple[float, str, str]:
    """Effective cost, status and end of the commitment: in other columns for each kind of row. Negations cancel what
    savings plans cover; upfront fees are spread over the rows that they cover."""
    match kind:
        case "SavingsPlanCoveredUsage":
            cost = _number(row["savingsplansavingsplaneffectivecost"])
            return cost, "used", row.get("savingsplanendtime", "")
        case "DiscountedUsage":
            return _number(row["reservationeffectivecost"]), "used", row.get("reservationendtime", "")
        case "SavingsPlanRecurringFee":
            total, used = (row.get(f"savingsplan{name}") for name in ("totalcommitmenttodate", "usedcommitment"))
            return _number(total or "0") - _number(used or "0"), "unused", ""
        case "RIFee":
            parts = ("reservationunusedamortizedupfrontfeeforbillingperiod", "reservationunusedrecurringfee")
            return sum(_number(row.get(part) or "0") for part in parts), "unused", ""
        case "SavingsPlanNegation" | "SavingsPlanUpfrontFee":
            return 0.0, "", ""
        case _:
            return 0.0 if kind == "Fee" and row.get("reservationreservationarn") else billed, "", ""


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or abs(value) > 1e12:
        raise ValueError(text)
    return value


def _moment(text: str) -> float:
    """Unix seconds. Exports write ``2026-10-01T00:00Z`` and ``2026-10-01 00:00:00``, in UTC."""
    moment = datetime.fromisoformat(text.removesuffix("UTC").strip())
    ts = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    rfc3339(ts)  # an offset may carry it out of the years that can be written
    return ts


def _hours(row: Mapping[str, str]) -> float | None:
    units = {"consumedquantity": "consumedunit", "pricingquantity": "pricingunit", "lineitemusageamount": "pricingunit"}
    for quantity, unit in units.items():
        match = _UNIT.fullmatch(row.get(unit, "").lower())
        if match and match[2] in _HOURS and row.get(quantity):
            return _number(row[quantity]) * float(match[1] or 1) * _HOURS[match[2]]
    return None


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
        return [(cost / hours or None) if hours >= HOURS_MIN and cost > 0 else None for cost, hours in sums]

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
        node, is_unused = node_of(charge.type_cells, charge.provider), charge.commitment == "unused"
        if node is not None and charge.hours is not None and not is_unused:
            key = (node.name, charge.region or ANY_REGION)
            bill.lines.setdefault(key, BillLine(*key)).add(charge, charge.hours)
            continue
        what = charge.service if node is None else "GPU nodes that are not charged by the hour"
        bill.other["commitments that nothing used" if is_unused else what] += charge.effective
    return bill


def node_finder(catalog: Catalog) -> Callable[[tuple[str, ...], str], NodeSku | None]:
    """A function from a row's cells and provider to the node that the first cell names, whole or as one of its words.
    Where the provider is one of the catalog, only its nodes count; else a name that several share finds no node."""
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
    nodes, rates = [], ("list_usd_per_hour", "effective_usd_per_hour", "committed_usd_per_hour")
    for line in bill.by_cost:
        values = {"sku": line.sku, "region": line.region, "node_hours": line.hours, "basis": line.basis}
        values |= {"committed_hours": line.committed_hours, "effective_usd": line.effective}
        nodes.append(values | dict(zip(rates, line.rates, strict=True)))
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
