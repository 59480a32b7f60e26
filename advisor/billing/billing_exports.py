"""Reads exports of charges row by row: FOCUS 1.x (CSV), and AWS' cost and usage report (CSV, 1.0 and 2.0).

Columns are known by their letters and digits alone, so that ``lineItem/UnblendedCost`` and ``line_item_unblended_cost``
are one. Sources of the names: the FOCUS specification, versions 1.0 to 1.2 (focus.finops.org), and AWS' dictionaries of
both reports.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ...agent.base.safe_text import clean_text
from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ..core.timestamps import rfc3339

# Rows that cannot be read are counted; where there are more than one in a hundred, the file is something else.
UNREADABLE_MAX = 0.01
_HOURS = {"hours": 1.0, "hour": 1.0, "hrs": 1.0, "hr": 1.0, "h": 1.0, "minutes": 1 / 60, "seconds": 1 / 3600}
_UNIT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)?\s*([a-z]+)", re.ASCII)
_REGION = re.compile(r"([A-Za-z0-9][A-Za-z0-9 ._-]{0,63})?", re.ASCII)
_CELL_MAX = 1 << 20
_TELLING = 300  # of a cell that may name an instance type, so many characters are looked at
NO_SERVICE = "no service named"
Row = Mapping[str, str]  # by the letters and digits of the columns' names


@dataclass(frozen=True, slots=True)
class Charge:
    """One row. US dollars: `billed` on the invoice, `effective` with upfront payments spread over what they cover, and
    `listed` at list price (None: not told). `hours`: of use; None: not counted in hours.

    `telling`: cells that may name what was rented; `what`: the service, in words; `provider`: whose charge it is, as
    it says (empty: it does not); `ends`: when its commitment ends.
    """

    resource: str
    region: str
    start: float
    end: float
    billed: float
    effective: float
    listed: float | None
    hours: float | None
    commitment: Literal["none", "used", "unused"]
    spot: bool
    telling: tuple[str, ...]
    what: str
    provider: str = ""
    ends: str | None = None


@dataclass
class Export:
    """One file, read once. `skipped`: rows that could not be read, `first_skipped` the first of them."""

    path: Path
    dialect: str = ""
    rows: int = 0
    skipped: int = 0
    first_skipped: int = 0

    def charges(self) -> Iterator[Charge]:
        """Every charge, in the file's order; never more than a row in memory.

        Raises UsageError where it is no export that we know, is damaged, or holds another currency than US dollars.
        """
        csv.field_size_limit(_CELL_MAX)
        try:
            with open_stream(self.path) as raw:
                plain = gzip.GzipFile(fileobj=raw) if self.path.name.endswith(".gz") else raw
                with io.TextIOWrapper(plain, encoding="utf-8-sig", errors="replace", newline="") as file:  # type: ignore[type-var]
                    rows = csv.reader(file)
                    names = [plain_name(cell) for cell in next(rows, [])]
                    self.dialect, read = _dialect(self.path, set(names))
                    for number, row in enumerate(rows, start=2):
                        if row:
                            yield from self._charge(number, dict(zip(names, row, strict=False)), read)
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be read: {error.strerror or error}.", "Use an export as CSV, plain or gzip."
            ) from error
        except (EOFError, csv.Error, zlib.error) as error:
            raise UsageError(f"{self.path} is damaged: {error}.", "Export it again.") from error
        if self.skipped > max(UNREADABLE_MAX * self.rows, 1):
            raise UsageError(
                f"{self.path}: {self.skipped} of {self.rows} rows cannot be read, starting with row "
                f"{self.first_skipped}.",
                "Use RFC 3339 times, and a point as decimal separator.",
            )

    def _charge(self, number: int, cells: Row, read: Callable[[Row], Charge]) -> Iterator[Charge]:
        self.rows += 1
        currency = (cells.get("billingcurrency") or cells.get("lineitemcurrencycode") or "USD").strip().upper()
        if currency != "USD":
            raise UsageError(f"{self.path}, row {number}: unsupported currency {currency[:8]!r}.", "Export it in USD.")
        try:
            yield read(cells)
        except (ValueError, KeyError):  # a short row lacks its last cells
            self.skipped += 1
            self.first_skipped = self.first_skipped or number


def plain_name(name: str) -> str:
    """Its letters and digits, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _dialect(path: Path, names: set[str]) -> tuple[str, Callable[[Row], Charge]]:
    """Which of the exports a header is of, and what reads its rows. Raises UsageError, with the columns that are
    missing."""
    lacking = {name: [c for c in needed if plain_name(c) not in names] for name, (needed, _) in _DIALECTS.items()}
    nearest = min(lacking, key=lambda name: len(lacking[name]) / len(_DIALECTS[name][0]))
    needed, read = _DIALECTS[nearest]
    missing = ", ".join(lacking[nearest][:6])
    if not missing:
        return nearest, read
    if len(lacking[nearest]) == len(needed):
        raise UsageError(
            f"{path} is neither a FOCUS export nor an AWS cost and usage report.", f"FOCUS has the columns {missing}."
        )
    raise UsageError(
        f"Columns missing from {path}, which looks like {nearest}: {missing}.", "Export it with these columns."
    )


def _focus(row: Row) -> Charge:
    """FOCUS: `EffectiveCost` holds amortised commitments, so a purchase that others are charged for is 0 there."""
    status = row.get("commitmentdiscountstatus", "").strip().lower()
    usage = row["chargecategory"].strip().lower() == "usage" and status != "unused"
    hours = _hours(row, ("consumedquantity", "consumedunit"), ("pricingquantity", "pricingunit")) if usage else None
    return Charge(
        resource=_name(row.get("resourceid", "")), region=_region(row.get("regionid", "")),
        start=_moment(row["chargeperiodstart"]), end=_moment(row["chargeperiodend"]),
        billed=_number(row["billedcost"]), effective=_number(row["effectivecost"]),
        listed=_number(row["listcost"]) if row.get("listcost", "").strip() else None, hours=hours,
        commitment="unused" if status == "unused" else "used" if status == "used" else "none",
        spot=row.get("pricingcategory", "").strip().lower() == "dynamic",
        telling=_telling(row, "xskuinstancetype", "skupricedetails", "xskudetails", "xusagetype", "skumeter",
                         "xskumetername", "resourcetype", "skuid", "chargedescription"),
        what=clean_text(row.get("servicename", "") or row.get("servicecategory", ""), 60) or NO_SERVICE,
        provider=clean_text(row.get("serviceprovidername", "") or row.get("providername", ""), 60),
    )  # fmt: skip


def _aws(row: Row) -> Charge:
    """AWS: what a row really costs stands in another column for each kind of row; negations cancel what plans cover."""
    kind = row["lineitemlineitemtype"].strip()
    effective = billed = _number(row["lineitemunblendedcost"])
    status, ends = "none", ""
    match kind:
        case "SavingsPlanCoveredUsage":
            effective, status = _number(row["savingsplansavingsplaneffectivecost"]), "used"
            ends = row.get("savingsplanendtime", "")
        case "DiscountedUsage":
            effective, status = _number(row["reservationeffectivecost"]), "used"
            ends = row.get("reservationendtime", "")
        case "SavingsPlanRecurringFee":
            used = _number(row.get("savingsplanusedcommitment") or "0")
            effective, status = _number(row.get("savingsplantotalcommitmenttodate") or "0") - used, "unused"
        case "RIFee":
            parts = ("reservationunusedamortizedupfrontfeeforbillingperiod", "reservationunusedrecurringfee")
            effective, status = sum(_number(row.get(part) or "0") for part in parts), "unused"
        case "SavingsPlanNegation" | "SavingsPlanUpfrontFee":
            effective = 0.0
        case "Fee" if row.get("reservationreservationarn", "").strip():
            effective = 0.0  # an upfront fee is spread over the rows that it covers, and over what is unused
        case _:
            pass
    listed = row.get("pricingpublicondemandcost", "").strip()
    return Charge(
        resource=_name(row.get("lineitemresourceid", "")),
        region=_region(row.get("productregioncode", "") or row.get("productregion", "")),
        start=_moment(row["lineitemusagestartdate"]), end=_moment(row["lineitemusageenddate"]), billed=billed,
        effective=effective, listed=_number(listed) if listed else None,
        hours=_hours(row, ("lineitemusageamount", "pricingunit")) if status == "used" or kind == "Usage" else None,
        commitment=status, spot="SpotUsage" in row.get("lineitemusagetype", ""),
        telling=_telling(row, "productinstancetype", "lineitemusagetype"),
        what=clean_text(row.get("lineitemproductcode", ""), 60) or NO_SERVICE, provider="aws", ends=_day(ends),
    )  # fmt: skip


# Name -> the columns without which it cannot be read, as its documents spell them, and what reads a row.
_DIALECTS: Mapping[str, tuple[tuple[str, ...], Callable[[Row], Charge]]] = {
    "a FOCUS export": (
        ("BilledCost", "EffectiveCost", "BillingCurrency", "ChargeCategory", "ChargePeriodStart", "ChargePeriodEnd"),
        _focus,
    ),
    "an AWS cost and usage report": (
        ("lineItem/LineItemType", "lineItem/UnblendedCost", "lineItem/UsageStartDate", "lineItem/UsageEndDate",
         "lineItem/UsageAmount"),
        _aws,
    ),
}  # fmt: skip


def _number(text: str) -> float:
    """A number that can be added up. Raises ValueError; an empty cell is one that should hold something."""
    value = float(text)
    if not math.isfinite(value) or abs(value) > 1e12:
        raise ValueError(text)
    return value


@lru_cache(maxsize=4096)  # a row has two, and all rows of a day the same
def _moment(text: str) -> float:
    """Unix seconds. Exports write ``2026-10-01T00:00Z`` and ``2026-10-01 00:00:00``, in UTC."""
    moment = datetime.fromisoformat(text.strip().removesuffix("UTC").strip())
    ts = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    rfc3339(ts)  # an offset may carry it out of the years that can be written
    return ts


def _day(text: str) -> str | None:
    """The day of a moment; None: there is none in it."""
    try:
        return date.fromisoformat(text.strip()[:10]).isoformat()
    except ValueError:
        return None


def _hours(row: Row, *pairs: tuple[str, str]) -> float | None:
    """Hours of use from the first pair of quantity and unit that says so; None: it is not counted in time."""
    for quantity, unit in pairs:
        match = _UNIT.fullmatch(row.get(unit, "").strip().lower())
        if match and match[2] in _HOURS and row.get(quantity, "").strip():
            return _number(row[quantity]) * float(match[1] or 1) * _HOURS[match[2]]
    return None


def _region(text: str) -> str:
    if not _REGION.fullmatch(text.strip()):
        raise ValueError(text)
    return text.strip()


def _telling(row: Row, *names: str) -> tuple[str, ...]:
    return tuple(cell[:_TELLING] for name in names if (cell := row.get(name, "").strip()))


def _name(text: str) -> str:
    """The last part of a resource's path: Azure's ids end in the machine's name, AWS' in the instance's id."""
    return clean_text(text.strip().rstrip("/").rpartition("/")[2], _TELLING)
