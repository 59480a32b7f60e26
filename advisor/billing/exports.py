"""Reads billing exports row by row: FOCUS 1.x (CSV), and AWS' cost and usage report (CSV, 1.0 and 2.0).

Columns are matched by letters and digits alone, so ``lineItem/UnblendedCost`` equals ``line_item_unblended_cost``.
Sources: the FOCUS specification, versions 1.0 to 1.2 (focus.finops.org), and AWS' dictionaries of both reports.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from ...agent.base.safe_text import clean_text
from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ..core.timestamps import rfc3339

# More unreadable rows than this share mean another kind of file.
UNREADABLE_MAX = 0.01
_HOURS = {"hours": 1.0, "hour": 1.0, "hrs": 1.0, "hr": 1.0, "h": 1.0, "minutes": 1 / 60, "seconds": 1 / 3600}
_UNIT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)?\s*([a-z]+)", re.ASCII)
_REGION = re.compile(r"([A-Za-z0-9][A-Za-z0-9 ._-]{0,63})?", re.ASCII)
_CELL_MAX = 1 << 20
_NAME_MAX = 300  # characters of a cell that may name an instance type
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
        if missing[self.dialect]:
            raise UsageError(
                f"{self.path} is neither a FOCUS export nor an AWS cost and usage report.",
                f"Columns missing for {self.dialect}: {', '.join(missing[self.dialect])}.",
            )
        for number, cells in enumerate(lines, start=2):
            row = dict(zip(names, map(str.strip, cells), strict=False))
            currency = (row.get("billingcurrency") or row.get("lineitemcurrencycode") or "USD").upper()
            if currency != "USD":
                what = f"{self.path}, row {number}: unsupported currency {currency[:8]!r}."
                raise UsageError(what, "Export it in USD.")
            try:
                charge = _charge(row) if row else None
            except (ValueError, KeyError):  # a short row lacks its last cells
                charge, self.skipped = None, self.skipped + 1
                self.first_skipped = self.first_skipped or number
            self.rows += bool(row)
            if charge is not None:
                yield charge
        if self.skipped > max(UNREADABLE_MAX * self.rows, 1):
            raise UsageError(
                f"{self.path}: {self.skipped} of {self.rows} rows cannot be read, starting with row "
                f"{self.first_skipped}.",
                "Use RFC 3339 times, and a point as decimal separator.",
            )

    def _lines(self) -> Iterator[list[str]]:
        csv.field_size_limit(_CELL_MAX)
        try:
            with open_stream(self.path) as raw:
                plain = gzip.GzipFile(fileobj=raw) if self.path.name.endswith(".gz") else raw
                with io.TextIOWrapper(plain, encoding="utf-8-sig", errors="replace", newline="") as file:  # type: ignore[type-var]
                    yield from csv.reader(file)
        except OSError as error:
            remedy = "Use an export as CSV, plain or gzip."
            raise UsageError(f"{self.path} cannot be read: {error.strerror or error}.", remedy) from error
        except (EOFError, csv.Error, zlib.error) as error:
            raise UsageError(f"{self.path} is damaged: {error}.", "Export it again.") from error


def plain_name(name: str) -> str:
    """Letters and digits of a name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _charge(row: Mapping[str, str]) -> Charge:
    """A row of either export: their columns have different names. Raises ValueError or KeyError for a bad cell."""

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
    region, listed = (
        first("regionid", "productregioncode", "productregion"),
        first("listcost", "pricingpublicondemandcost"),
    )
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
    """A finite number. Raises ValueError, also for an empty cell."""
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
    """Hours of use from the first quantity in a unit of time; None: the row is not counted in time."""
    pairs = (
        ("consumedquantity", "consumedunit"),
        ("pricingquantity", "pricingunit"),
        ("lineitemusageamount", "pricingunit"),
    )
    for quantity, unit in pairs:
        match = _UNIT.fullmatch(row.get(unit, "").lower())
        if match and match[2] in _HOURS and row.get(quantity):
            return _number(row[quantity]) * float(match[1] or 1) * _HOURS[match[2]]
    return None
