"""Showback as a page, as JSON (schema ``skuwise.showback/1``) and as CSV in the columns of FOCUS 1.3 (focus.finops.org,
Cost and Usage, read in November 2026), split cost allocation. `BilledCost` is 0, so that invoices still add up; the
cost is in `EffectiveCost`. `ProviderName` and `PublisherName` are for loaders of 1.2. Other columns: ``x_``."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from ..core.advice_json import plain
from ..core.coded_text import CodedText
from ..core.formatting import NONE, bare_hours, counted, listed, percent, price_note, usd
from ..core.scalars import Record, known, records
from ..core.timestamps import minute, rfc3339
from ..show.document import Bullets, Document, Table, section
from ..show.writers.csv import csv_text
from .showback import DAY, DIGITS, OWNED, UNOWNED, Showback

VERSION = "1.3"
SCHEMA = "skuwise.showback/1"
# Of the split that docs/prices.md describes. Another split has another id.
METHOD_ID = "skuwise-gpu-hours-1"
# The rows of a node sum to its price x hours to this share of it.
TOLERANCE = 0.001
# What groups are formed by -> the column of the workloads.
BY = {"team": "owner", "workload": "series_id", "namespace": "namespace", "account": "account"}
ROWS_MAX = 40
_DESCRIPTIONS = {
    "used": "used by", "held-idle": "held idle by", "fabric-premium": "fabric premium of", "shared-pool": "shared pool",
    "unallocated": "unallocated", "drained": "drained", "unobserved": "not observed",
}  # fmt: skip
_NO_TOKEN_COST = {
    "token-cost-without-price": "the nodes have no price.",
    "token-cost-too-rare": "in no hour did the engines report tokens, and hold their GPUs alone, for 90 % of it.",
    "token-cost-not-reported": "no inference engine reports generated tokens.",
}
_PROVIDER = ("HostProviderName", "InvoiceIssuerName", "ProviderName", "PublisherName", "ServiceProviderName")
_EMPTY = ("BillingAccountName", "ChargeClass", "RegionName", "SubAccountId", "SubAccountName", "Tags")
_PRICE = ["price", "usd_per_hour", "price_basis", "price_source", "price_as_of", "price_region_assumed"]
_NODE = ["node", "cluster", "node_sku", "gpu_sku", "gpu_count", "start", "end", "hours", "fabric_usd_per_hour",
         "fabric_assumed", "fabric_used", *_PRICE]  # fmt: skip


def sums_of(rows: pd.DataFrame) -> dict[str, Any]:
    """The sums of rows, as in JSON: dollars of priced rows (None: no row has a price), GPU-hours of all rows, tokens
    (None: not reported) and the cost of the GPUs in the same hours (None: no price)."""

    def by_category(some: pd.DataFrame, column: str) -> dict[str, float]:
        sums = some.groupby("category", observed=True)[column].sum()
        return {str(category).replace("-", "_"): float(value) for category, value in sums.items()}

    priced = rows["usd"].notna()
    cost = by_category(rows[priced], "usd")
    hours = by_category(rows[rows["category"] != "fabric-premium"], "gpu_hours")
    made, token_usd = rows["tokens"].where(rows["token_usd"].notna()).sum(), known(rows["token_usd"].sum(min_count=1))
    return {
        "cost_usd": sum(cost.values()) if cost else None, "gpu_hours": sum(hours.values()),
        "unpriced_gpu_hours": float(rows.loc[~priced, "gpu_hours"].sum()), "cost_usd_by_category": cost,
        "gpu_hours_by_category": hours, "tokens": known(rows["tokens"].sum(min_count=1)), "token_cost_usd": token_usd,
        "usd_per_million_tokens": token_usd / made * 1e6 if made and token_usd is not None else None,
    }  # fmt: skip


def groups_of(showback: Showback, by: str) -> list[dict[str, Any]]:
    """Every owner, workload (all runs of a series), namespace or account with rows, as in JSON: the highest cost first,
    the group without a name last."""
    rows = showback.rows[showback.rows["category"].isin(OWNED)]
    rows = rows.merge(showback.workloads.reset_index(drop=True), on="workload")
    groups = []
    for key, part in rows.groupby(BY[by], dropna=False):
        name, sums = key if isinstance(key, str) else None, sums_of(part)
        code = "too-rare" if part["reports_tokens"].any() else "not-reported"
        code = f"token-cost-{'without-price' if sums['tokens'] else code}"
        unknown = CodedText(code, f"No cost per token: {_NO_TOKEN_COST[code]}")
        groups.append({
            "name": part["name"].iloc[0] if by == "workload" else name, "series_id": name if by == "workload" else None,
            "workloads": part["workload"].nunique(), **sums,
            "tokens_unknown": plain(unknown) if sums["usd_per_million_tokens"] is None else None,
        })  # fmt: skip

    def rank(group: dict[str, Any]) -> tuple[bool, float, float, str, str]:
        cost, hours = (round(value or 0.0, DIGITS) for value in (group["cost_usd"], group["gpu_hours"]))
        return group["name"] is None, -cost, -hours, group["name"] or "", group["series_id"] or ""

    return sorted(groups, key=rank)


def unowned_of(showback: Showback) -> dict[str, dict[str, Any]]:
    """Sums of the categories without an owner; those without rows are left out."""
    parts = {category: showback.rows[showback.rows["category"] == category] for category in UNOWNED}
    return {category: sums_of(rows) for category, rows in parts.items() if not rows.empty}


def node_checks(showback: Showback) -> pd.DataFrame:
    """The rows of every node against its price x hours, US dollars; missing without a price. `closes`: whether both are
    equal within 0.1 %."""
    whole = showback.nodes.set_index("node")["usd"].astype(float)
    rows = showback.rows.groupby("node")["usd"].sum().reindex(whole.index).fillna(0.0).where(whole.notna())
    difference = (rows - whole).round(DIGITS) + 0.0  # never -0.0
    checks = pd.DataFrame({"rows_usd": rows, "node_price_times_hours_usd": whole, "difference_usd": difference})
    return checks.assign(closes=~(difference.abs() > TOLERANCE * whole.clip(lower=1e-3)))


def focus_rows(showback: Showback, billing_account: str | None) -> Iterator[dict[str, Any]]:
    """A row for each of the showback's, under FOCUS' columns by name, then ``x_`` columns; None: unknown, or does not
    apply. `billing_account`: None: not given."""
    rows = showback.rows
    # The cost of a token is that of all nodes of a workload's day.
    made = rows.assign(tokens=rows["tokens"].where(rows["token_usd"].notna()))
    of_day = made.groupby([rows["workload"], rows["start"] // DAY])[["token_usd", "tokens"]].transform("sum")
    rates = (of_day["token_usd"] / of_day["tokens"] * 1e6).where(rows["token_usd"].notna() & (of_day["tokens"] > 0))
    nodes = {row["node"]: row for row in _values(showback.nodes)}
    workloads = {row["workload"]: row for row in _values(showback.workloads)}
    for row in _values(rows.assign(rate=rates.round(DIGITS))):
        workload = workloads.get(row["workload"], dict.fromkeys(showback.workloads.columns))
        yield _focus_row(row, nodes[row["node"]], workload, billing_account)


def _values(table: pd.DataFrame) -> list[Record]:
    table = table.astype(object)
    return records(table.where(table.notna(), None))


def _focus_row(row: Record, node: Record, workload: Record, account: str | None) -> dict[str, Any]:
    category, priced, price = row["category"], node["price"] is not None, node["usd_per_hour"]
    tagged = ("team", "namespace", "account", "kind", "series_id")
    tags = {f"skuwise/{name.removesuffix('_id')}": workload[name] for name in tagged if workload[name]}
    first = datetime.fromtimestamp(row["start"], UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    # A binding term is a commitment; its discount is unknown, and so is the price before it.
    binding = node["price_basis"] in ("reserved", "committed")
    at_list = node["list_usd_per_hour"]
    if at_list is not None:
        at_list = row["usd"] if at_list == price else round(at_list * row["node_hours"], DIGITS)
    # The factor of the split: the part of the node's charge of this period, and the GPU-hours that it follows from.
    period = (row["end"] - row["start"]) / 3600
    factor = {
        "AllocatedRatio": round(row["node_hours"] / period, DIGITS) if period > 0 else 0.0, "UsageUnit": "GPU-Hours",
        "UsageQuantity": row["gpu_hours"], "x_Category": category,
    }  # fmt: skip
    sku, name = node["sku"], workload["name"]
    columns = {
        "AllocatedMethodDetails": json.dumps({"Elements": [factor]}, separators=(",", ":")),
        "AllocatedMethodId": METHOD_ID, "AllocatedResourceId": workload["workload"], "AllocatedResourceName": name,
        "AllocatedTags": json.dumps(tags, separators=(",", ":")) if tags else None, "BilledCost": 0.0,
        "BillingAccountId": account, "BillingCurrency": "USD", "BillingPeriodEnd": rfc3339(after.timestamp()),
        "BillingPeriodStart": rfc3339(first.timestamp()), "ChargeCategory": "Usage",
        "ChargeDescription": f"GPU node {node['node']}: {_DESCRIPTIONS[category]} {name or ''}".rstrip(),
        "ChargeFrequency": "Usage-Based", "ChargePeriodEnd": rfc3339(row["end"]),
        "ChargePeriodStart": rfc3339(row["start"]),
        # FOCUS: null without a SkuPriceId; x_GpuHours has them always.
        "ConsumedQuantity": row["gpu_hours"] if priced else None, "ConsumedUnit": "GPU-Hours" if priced else None,
        "ContractedCost": None if binding else row["usd"], "ContractedUnitPrice": None if binding else price,
        "EffectiveCost": row["usd"], "ListCost": at_list, "ListUnitPrice": node["list_usd_per_hour"],
        "PricingCategory": None if not priced else "Committed" if binding else "Standard",
        "PricingQuantity": row["node_hours"], "PricingUnit": "Hours", "RegionId": node["region"],
        "ResourceId": node["node"], "ResourceName": node["node"],
        "ResourceType": sku.rpartition("/")[2] if sku else None, "ServiceCategory": "Compute",
        "ServiceName": "GPU nodes", "ServiceSubcategory": "Virtual Machines", "SkuId": sku, "SkuPriceId": node["price"],
        "x_Account": workload["account"], "x_Category": category, "x_Cluster": node["cluster"],
        "x_FabricAssumed": node["fabric_assumed"] if category == "fabric-premium" else None,
        "x_FabricUsed": node["fabric_used"] if category in ("used", "fabric-premium") else None,
        "x_GpuCount": node["gpu_count"], "x_GpuHours": row["gpu_hours"], "x_GpuSku": node["gpu_sku"],
        "x_Namespace": workload["namespace"], "x_PriceAsOf": node["price_as_of"], "x_PriceBasis": node["price_basis"],
        "x_PriceRegionAssumed": node["price_region_assumed"], "x_PriceSource": node["price_source"],
        "x_Team": workload["team"], "x_TokenCost": row["token_usd"], "x_Tokens": row["tokens"],
        "x_UsdPerMillionTokens": row["rate"], "x_Workload": name, "x_WorkloadId": workload["workload"],
        "x_WorkloadKind": workload["kind"],
    }  # fmt: skip
    columns |= dict.fromkeys(_PROVIDER, node["provider"]) | dict.fromkeys(_EMPTY)
    return dict(sorted(columns.items()))


def showback_csv(showback: Showback, billing_account: str | None) -> str:
    """Rows under FOCUS' columns; unknown values are empty."""
    rows = list(focus_rows(showback, billing_account))
    flags = ({name: str(value).lower() for name, value in row.items() if isinstance(value, bool)} for row in rows)
    return csv_text(tuple(rows[0]), ({**row, **flag} for row, flag in zip(rows, flags, strict=True)))


def showback_json(showback: Showback, by: str, billing_account: str | None) -> dict[str, Any]:
    """Showback as plain values: sums by `by`, the nodes with their checks, and every row. RFC 3339 UTC, US dollars,
    null for unknown values."""
    checks = node_checks(showback).drop(columns="closes")
    nodes = [
        {**node, "start": rfc3339(node["start"]), "end": rfc3339(node["end"])}
        for node in _values(showback.nodes[_NODE].join(checks, on="node"))
    ]
    unpriced = list(showback.nodes.loc[showback.nodes["usd"].isna(), "node"])
    whole = {name: known(value) for name, value in checks.sum(min_count=1).items()}
    return plain({
        "schema": SCHEMA, "focus_version": VERSION, "generated_at": rfc3339(showback.generated_at),
        "window": {"start": rfc3339(showback.start), "end": rfc3339(showback.end)}, "source": dict(showback.source),
        "by": by, "groups": groups_of(showback, by),
        "unowned": {category.replace("-", "_"): sums for category, sums in unowned_of(showback).items()},
        "total": sums_of(showback.rows), "reconciliation": {**whole, "unpriced_nodes": unpriced},
        "nodes": nodes, "rows": list(focus_rows(showback, billing_account)), "notes": showback.notes,
    })  # fmt: skip


def showback_document(showback: Showback, by: str) -> Document:
    """A row for each group of `by` and for each category without an owner, and the check. Without any price the columns
    are GPU-hours."""
    groups, whole, nodes = groups_of(showback, by), sums_of(showback.rows), showback.nodes
    prices = list(nodes["known_price"].dropna())
    unit, words = ("cost_usd", usd) if prices else ("gpu_hours", bare_hours)
    parts = [category.replace("-", "_") for category in (OWNED if prices else OWNED[:2])]
    heads = [by.capitalize(), "Used", "Held idle", *(["Fabric"] if prices else []), "Total", "Share"]
    heads += ["GPU-hours", "$/M tokens"] if prices else []

    def cells(name: str, sums: dict[str, Any], *, owned: bool = True) -> tuple[str, ...]:
        of, amount, rate = sums[f"{unit}_by_category"], sums[unit], sums["usd_per_million_tokens"]
        row = [words(of[part]) if owned and part in of else NONE for part in parts]
        share = amount / whole[unit] if amount is not None and whole[unit] else None
        row += [NONE if amount is None else words(amount)]
        row += [NONE if share is None else "<1 %" if 0 < share < 0.005 else percent(share)]
        row += [bare_hours(sums["gpu_hours"]), NONE if rate is None else f"{rate:,.3g}"] if prices else []
        return (name, *row)

    same, rows = Counter(group["name"] for group in groups), []
    for group in groups[:ROWS_MAX]:
        series = f" ({group['series_id'][:6]})" if group["series_id"] and same[group["name"]] > 1 else ""
        rows.append(cells("(none)" if group["name"] is None else f"{group['name']}{series}", group))
    unowned = unowned_of(showback).items()
    rows += [cells(f"({_DESCRIPTIONS[of]})", sums, owned=False) for of, sums in unowned]
    rows.append(cells("Total", whole))
    left = len(groups) - ROWS_MAX
    table = Table(
        tuple(heads), tuple(rows), right=tuple(range(1, len(heads))),
        more=f"{left:,} more with --format csv or json." if left > 0 else "",
    )  # fmt: skip
    notes = [note.text for note in showback.notes]
    nameless = set(showback.workloads.loc[showback.workloads["team"].isna(), "owner"].dropna())
    if by == "team" and nameless:
        owners = listed([group["name"] for group in groups if group["name"] in nameless])
        notes.insert(
            0,
            f"No team is known for work of {owners}, so it is listed by namespace, account or user. Name the "
            "teams in a file (--teams FILE).",
        )
    title, basis = f"GPU cost by {by}", f", {price_note(prices)}" if prices else ""
    # Hours before the first node was seen have no cost: the requested window may begin long before.
    window = f"{minute(nodes['start'].min())} to {minute(nodes['end'].max())}, {counted(len(nodes), 'node')}{basis}"
    return Document(
        title=title, heading=title, window=window, summary="", tiles=(), sections=(
            section("Cost by category" if prices else "GPU-hours by category", table),
            section("Reconciliation", _check_words(showback)),
            *((section("Notes", Bullets(tuple(notes))),) if notes else ()),
        ),
    )  # fmt: skip


def _check_words(showback: Showback) -> str:
    priced, checks = showback.nodes["usd"].notna(), node_checks(showback)
    if not priced.any():
        return "No node has a price, so there is no cost to reconcile."
    rows, whole, difference = checks[["rows_usd", "node_price_times_hours_usd", "difference_usd"]].sum()
    words = "difference below $0.01" if abs(difference) < 0.01 else f"difference {usd(abs(difference))}"
    left_out = "" if priced.all() else f" {counted(int((~priced).sum()), 'node')} without a price not included."
    return f"Rows {usd(rows)}, node price x hours {usd(whole)}: {words}.{left_out}"
