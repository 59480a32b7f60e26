"""Showback in the columns of FOCUS, the FinOps Open Cost and Usage Specification, version 1.3.

Rows are the split of a node's charge (the origin charge) by who held its GPUs, in the columns for split cost allocation
that 1.3 brought (`AllocatedMethodId` and its kin). Whoever does not invoice a charge leaves `BilledCost` at 0, so that
data sets can be merged and invoices still add up; the cost stands in `EffectiveCost`. `ProviderName` and
`PublisherName` are 1.2's and deprecated in 1.3; loaders of 1.2 want them. Columns of our own begin with ``x_``.
Source: focus.finops.org, specification 1.2 and 1.3, columns of the data set Cost and Usage, read in November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...rules.catalog.types import Price
from ..core.scalars import Record, records
from ..core.timestamps import rfc3339
from .showback import DAY, DIGITS, Showback, ShowbackNode, ShowbackWorkload

VERSION = "1.3"
# What the split is by; docs/prices.md describes it. Another way of splitting has another id.
METHOD_ID = "skuwise-gpu-hours-1"
TAG_PREFIX = "skuwise/"
_WORDS = {
    "used": "used by", "held-idle": "held idle by", "fabric-premium": "fabric premium of", "shared-pool": "shared pool",
    "unallocated": "unallocated", "drained": "drained", "unobserved": "not observed",
}  # fmt: skip


def focus_rows(showback: Showback, billing_account: str | None) -> Iterator[dict[str, Any]]:
    """A row for each of the showback's, under FOCUS' columns in the order of their names, then ours; None: not known,
    or it does not apply. `billing_account`: whose account is charged, which telemetry cannot tell; None: not given."""
    nodes = {node.node: node for node in showback.nodes}
    rows = showback.rows
    # What a token costs is told of all nodes of a workload's day.
    made = rows.assign(tokens=rows["tokens"].where(rows["token_usd"].notna()))
    of_day = made.groupby([rows["workload"], rows["start"] // DAY])[["token_usd", "tokens"]].transform("sum")
    rates = (of_day["token_usd"] / of_day["tokens"] * 1e6).where(rows["token_usd"].notna() & (of_day["tokens"] > 0))
    for row in records(rows.assign(rate=rates.round(DIGITS))):
        about = {key: None if value is None or value != value else value for key, value in row.items()}  # noqa: PLR0124
        workload = showback.workloads.get(about["workload"] or "")
        yield _row(about, nodes[row["node"]], workload, billing_account)


def price_cells(price: Price | None) -> dict[str, Any]:
    """What is told of a node's price; None: not known."""
    named = {"price": "id", "price_basis": "basis", "price_source": "source", "price_as_of": "as_of"}
    named |= {"usd_per_hour": "usd_per_hour", "price_region_assumed": "region_assumed"}
    return {key: getattr(price, name, None) for key, name in named.items()}


def _row(row: Record, node: ShowbackNode, workload: ShowbackWorkload | None, account: str | None) -> dict[str, Any]:
    def held_by(name: str) -> str | None:
        return getattr(workload, name, None)

    told = price_cells(node.price)
    price = node.price
    first = datetime.fromtimestamp(row["start"], UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    # What binds for a term is a commitment; what it takes off is unknown, and so is the price before it.
    binding = price is not None and price.basis in ("reserved", "committed")
    paid = told["usd_per_hour"]
    sku = node.node_sku or (price.sku if price is not None else None)
    at_list = None
    if node.list_usd_per_hour is not None:
        same = node.list_usd_per_hour == paid
        at_list = row["usd"] if same else round(node.list_usd_per_hour * row["node_hours"], DIGITS)
    # The factor of the split: the part of the node's charge of this period, and the GPU-hours that it follows from.
    period = (row["end"] - row["start"]) / 3600
    factor = {
        "AllocatedRatio": round(row["node_hours"] / period, DIGITS) if period > 0 else 0.0, "UsageUnit": "GPU-Hours",
        "UsageQuantity": row["gpu_hours"], "x_Category": row["category"],
    }  # fmt: skip
    held = " ".join(filter(None, (_WORDS[row["category"]], held_by("name"))))
    tags = {name: held_by(name) for name in ("team", "namespace", "account", "kind")} | {"series": held_by("series_id")}
    tags = {f"{TAG_PREFIX}{key}": value for key, value in tags.items() if value}
    return {
        "AllocatedMethodDetails": json.dumps({"Elements": [factor]}, separators=(",", ":")),
        "AllocatedMethodId": METHOD_ID, "AllocatedResourceId": held_by("id"),
        "AllocatedResourceName": held_by("name"),
        "AllocatedTags": json.dumps(tags, separators=(",", ":")) if workload is not None else None, "BilledCost": 0.0,
        "BillingAccountId": account, "BillingAccountName": None, "BillingCurrency": "USD",
        "BillingPeriodEnd": rfc3339(after.timestamp()), "BillingPeriodStart": rfc3339(first.timestamp()),
        "ChargeCategory": "Usage", "ChargeClass": None,
        "ChargeDescription": f"GPU node {node.node}: {held}",
        "ChargeFrequency": "Usage-Based", "ChargePeriodEnd": rfc3339(row["end"]),
        "ChargePeriodStart": rfc3339(row["start"]),
        # FOCUS: null without a SkuPriceId; x_GpuHours has them always.
        "ConsumedQuantity": row["gpu_hours"] if price is not None else None,
        "ConsumedUnit": "GPU-Hours" if price is not None else None,
        "ContractedCost": None if binding else row["usd"], "ContractedUnitPrice": None if binding else paid,
        "EffectiveCost": row["usd"], "HostProviderName": node.provider, "InvoiceIssuerName": node.provider,
        "ListCost": at_list, "ListUnitPrice": node.list_usd_per_hour,
        "PricingCategory": None if price is None else "Committed" if binding else "Standard",
        "PricingQuantity": row["node_hours"], "PricingUnit": "Hours", "ProviderName": node.provider,
        "PublisherName": node.provider, "RegionId": node.region, "RegionName": None, "ResourceId": node.node,
        "ResourceName": node.node, "ResourceType": sku.rpartition("/")[2] if sku else None,
        "ServiceCategory": "Compute", "ServiceName": "GPU nodes", "ServiceProviderName": node.provider,
        "ServiceSubcategory": "Virtual Machines", "SkuId": sku, "SkuPriceId": told["price"],
        "SubAccountId": None, "SubAccountName": None, "Tags": None,
        "x_Account": held_by("account"), "x_Category": row["category"], "x_Cluster": node.cluster,
        "x_FabricAssumed": node.fabric_assumed if row["category"] == "fabric-premium" else None,
        "x_FabricUsed": node.fabric_used if workload and row["category"] in ("used", "fabric-premium") else None,
        "x_GpuCount": node.gpu_count, "x_GpuHours": row["gpu_hours"], "x_GpuSku": node.gpu_sku,
        "x_Namespace": held_by("namespace"), "x_PriceAsOf": told["price_as_of"],
        "x_PriceBasis": told["price_basis"],
        "x_PriceRegionAssumed": told["price_region_assumed"],
        "x_PriceSource": told["price_source"], "x_Team": held_by("team"),
        "x_TokenCost": row["token_usd"], "x_Tokens": row["tokens"], "x_UsdPerMillionTokens": row["rate"],
        "x_Workload": held_by("name"), "x_WorkloadId": held_by("id"), "x_WorkloadKind": held_by("kind"),
    }  # fmt: skip
