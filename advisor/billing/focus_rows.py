"""Showback in the columns of FOCUS, the FinOps Open Cost and Usage Specification, version 1.3.

Rows are the split of a node's charge (the origin charge) by who held its GPUs, in the columns for split cost allocation
that 1.3 brought (`AllocatedMethodId` and its kin). Whoever does not invoice a charge leaves `BilledCost` at 0, so that
data sets can be merged and invoices still add up; the cost stands in `EffectiveCost`. `ProviderName` and
`PublisherName` are 1.2's and deprecated in 1.3; loaders of 1.2 want them. Columns of our own begin with ``x_``.
Source: focus.finops.org, specification 1.2 and 1.3, columns of the data set Cost and Usage, read in November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from .showback import DIGITS, Showback, ShowbackNode, ShowbackRow, ShowbackWorkload

VERSION = "1.3"
# What the split is by; docs/prices.md describes it. Another way of splitting has another id.
METHOD_ID = "skuwise-gpu-hours-1"
TAG_PREFIX = "skuwise/"
Kind = Literal["text", "number", "time", "flag"]
# Column -> what it holds: FOCUS' own in the order of their names, then ours.
COLUMNS: Mapping[str, Kind] = {
    "AllocatedMethodDetails": "text", "AllocatedMethodId": "text", "AllocatedResourceId": "text",
    "AllocatedResourceName": "text", "AllocatedTags": "text", "BilledCost": "number", "BillingAccountId": "text",
    "BillingAccountName": "text", "BillingCurrency": "text", "BillingPeriodEnd": "time", "BillingPeriodStart": "time",
    "ChargeCategory": "text", "ChargeClass": "text", "ChargeDescription": "text", "ChargeFrequency": "text",
    "ChargePeriodEnd": "time", "ChargePeriodStart": "time", "ConsumedQuantity": "number", "ConsumedUnit": "text",
    "ContractedCost": "number", "ContractedUnitPrice": "number", "EffectiveCost": "number", "HostProviderName": "text",
    "InvoiceIssuerName": "text", "ListCost": "number", "ListUnitPrice": "number", "PricingCategory": "text",
    "PricingQuantity": "number", "PricingUnit": "text", "ProviderName": "text", "PublisherName": "text",
    "RegionId": "text", "RegionName": "text", "ResourceId": "text", "ResourceName": "text", "ResourceType": "text",
    "ServiceCategory": "text", "ServiceName": "text", "ServiceProviderName": "text", "ServiceSubcategory": "text",
    "SkuId": "text", "SkuPriceId": "text", "SubAccountId": "text", "SubAccountName": "text", "Tags": "text",
    "x_Account": "text", "x_Category": "text", "x_Cluster": "text", "x_FabricAssumed": "flag", "x_FabricUsed": "flag",
    "x_GpuCount": "number", "x_GpuHours": "number", "x_GpuSku": "text", "x_Namespace": "text", "x_PriceAsOf": "text",
    "x_PriceBasis": "text", "x_PriceRegionAssumed": "flag", "x_PriceSource": "text", "x_Team": "text",
    "x_TokenCost": "number", "x_Tokens": "number", "x_UsdPerMillionTokens": "number", "x_Workload": "text",
    "x_WorkloadId": "text", "x_WorkloadKind": "text",
}  # fmt: skip

Value = str | float | int | bool | datetime | None
_WORDS = {
    "used": "used by", "held-idle": "held idle by", "fabric-premium": "fabric premium of", "shared-pool": "shared pool",
    "unallocated": "unallocated", "drained": "drained", "unobserved": "not observed",
}  # fmt: skip
# Basis of a price -> FOCUS' pricing category. What binds for a term is a commitment; all else is the agreed rate.
_PRICING = {"reserved": "Committed", "committed": "Committed"}


@dataclass(frozen=True, slots=True)
class Billing:
    """What telemetry cannot tell: whose account is charged. None: not given."""

    account: str | None = None


def focus_rows(showback: Showback, billing: Billing) -> Iterator[Mapping[str, Value]]:
    """A row for each of the showback's, with a value for each of `COLUMNS`; None: not known, or it does not apply."""
    nodes = {node.node: node for node in showback.nodes}
    rates = _rates(showback)
    for row in showback.rows:
        workload = showback.workloads.get(row.workload) if row.workload is not None else None
        yield _row(row, nodes[row.node], workload, billing, rates)


# (workload, beginning of its day's period) -> US dollars per million tokens, of all its nodes.
_Rates = Mapping[tuple[str, str], float]


def _rates(showback: Showback) -> _Rates:
    made: dict[tuple[str, str], float] = {}
    cost: dict[tuple[str, str], float] = {}
    for row in showback.rows:
        if row.workload is not None and row.token_usd is not None:
            key = (row.workload, _date(row))
            made[key] = made.get(key, 0.0) + (row.tokens or 0.0)
            cost[key] = cost.get(key, 0.0) + row.token_usd
    return {key: cost[key] / tokens * 1e6 for key, tokens in made.items() if tokens > 0}


def _date(row: ShowbackRow) -> str:
    return datetime.fromtimestamp(row.start, UTC).date().isoformat()


def _row(
    row: ShowbackRow, node: ShowbackNode, workload: ShowbackWorkload | None, billing: Billing, rates: _Rates
) -> Mapping[str, Value]:
    price, owned = node.price, workload is not None
    start, end = (datetime.fromtimestamp(ts, UTC) for ts in (row.start, row.end))
    month, after = _month(start)
    binding = price is not None and price.basis in _PRICING
    usd_per_hour = price.usd_per_hour if price is not None else None
    sku = node.node_sku or (price.sku if price is not None else None)
    fabric = row.category in ("used", "fabric-premium")
    rate = rates.get((row.workload or "", _date(row))) if row.token_usd is not None else None
    return {
        "AllocatedMethodDetails": _details(row), "AllocatedMethodId": METHOD_ID,
        "AllocatedResourceId": workload.id if workload is not None else None,
        "AllocatedResourceName": workload.name if workload is not None else None,
        "AllocatedTags": _tags(workload), "BilledCost": 0.0, "BillingAccountId": billing.account,
        "BillingAccountName": None, "BillingCurrency": "USD", "BillingPeriodEnd": after, "BillingPeriodStart": month,
        "ChargeCategory": "Usage", "ChargeClass": None, "ChargeDescription": _description(row, node, workload),
        "ChargeFrequency": "Usage-Based", "ChargePeriodEnd": end, "ChargePeriodStart": start,
        # FOCUS: null without a SkuPriceId; x_GpuHours has them always.
        "ConsumedQuantity": row.gpu_hours if price is not None else None,
        "ConsumedUnit": "GPU-Hours" if price is not None else None,
        # What a commitment takes off, nobody told: the price before it is not known.
        "ContractedCost": None if binding else row.usd, "ContractedUnitPrice": None if binding else usd_per_hour,
        "EffectiveCost": row.usd, "HostProviderName": node.provider, "InvoiceIssuerName": node.provider,
        "ListCost": _times(node.list_usd_per_hour, row, usd_per_hour), "ListUnitPrice": node.list_usd_per_hour,
        "PricingCategory": _PRICING.get(price.basis, "Standard") if price is not None else None,
        "PricingQuantity": row.node_hours, "PricingUnit": "Hours", "ProviderName": node.provider,
        "PublisherName": node.provider, "RegionId": node.region, "RegionName": None, "ResourceId": node.node,
        "ResourceName": node.node, "ResourceType": sku.rpartition("/")[2] if sku else None,
        "ServiceCategory": "Compute", "ServiceName": "GPU nodes", "ServiceProviderName": node.provider,
        "ServiceSubcategory": "Virtual Machines", "SkuId": sku, "SkuPriceId": price.id if price is not None else None,
        "SubAccountId": None, "SubAccountName": None, "Tags": None,
        "x_Account": workload.account if workload is not None else None, "x_Category": row.category,
        "x_Cluster": node.cluster or None,
        "x_FabricAssumed": node.fabric_assumed if row.category == "fabric-premium" else None,
        "x_FabricUsed": node.fabric_used if fabric and owned else None, "x_GpuCount": node.gpu_count,
        "x_GpuHours": row.gpu_hours, "x_GpuSku": node.gpu_sku,
        "x_Namespace": workload.namespace if workload is not None else None,
        "x_PriceAsOf": price.as_of if price is not None else None,
        "x_PriceBasis": price.basis if price is not None else None,
        "x_PriceRegionAssumed": price.region_assumed if price is not None else None,
        "x_PriceSource": price.source if price is not None else None,
        "x_Team": workload.team if workload is not None else None, "x_TokenCost": row.token_usd, "x_Tokens": row.tokens,
        "x_UsdPerMillionTokens": round(rate, DIGITS) if rate is not None else None,
        "x_Workload": workload.name if workload is not None else None,
        "x_WorkloadId": workload.id if workload is not None else None,
        "x_WorkloadKind": workload.kind if workload is not None else None,
    }  # fmt: skip


def _times(rate: float | None, row: ShowbackRow, paid: float | None) -> float | None:
    """The row's node-hours at another price; at what is paid exactly its cost."""
    if rate is None:
        return None
    return row.usd if rate == paid else round(rate * row.node_hours, DIGITS)


def _month(at: datetime) -> tuple[datetime, datetime]:
    """The calendar month of a moment, UTC: its beginning and the next one's."""
    first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return first, first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)


def _details(row: ShowbackRow) -> str:
    """The factor of the split: the part of the node's charge of this period, and the GPU-hours that it follows from."""
    period = (row.end - row.start) / 3600
    ratio = round(row.node_hours / period, DIGITS) if period > 0 else 0.0
    factor = {"AllocatedRatio": ratio, "UsageUnit": "GPU-Hours", "UsageQuantity": row.gpu_hours}
    return json.dumps({"Elements": [{**factor, "x_Category": row.category}]}, separators=(",", ":"))


def _tags(workload: ShowbackWorkload | None) -> str | None:
    if workload is None:
        return None
    told = {
        "team": workload.team, "namespace": workload.namespace, "account": workload.account, "kind": workload.kind,
        "series": workload.series_id,
    }  # fmt: skip
    return json.dumps({f"{TAG_PREFIX}{key}": value for key, value in told.items() if value}, separators=(",", ":"))


def _description(row: ShowbackRow, node: ShowbackNode, workload: ShowbackWorkload | None) -> str:
    whose = f" {workload.name}" if workload is not None else ""
    return f"GPU node {node.node}: {_WORDS[row.category]}{whose}"
