"""Why a finding's thresholds are what they are, and how its dollars and those of a recommendation are calculated."""

from __future__ import annotations

from collections.abc import Iterator

from ....rules.catalog.loader import Catalog
from ....rules.policy.thresholds import WasteRule
from ...core import formatting as words
from ...core.advice_types import Advice, Configuration, Finding, Recommendation
from ...moves.base.workload_groups import HOURS_PER_MONTH

# A product that differs by more from what was claimed is not how it was calculated.
_SAME = 0.005


def threshold_rows(rule: WasteRule) -> list[tuple[str, str, str, str]]:
    """Name, value with its unit, whose it is, and the reason with its source."""
    return [
        (name, f"{words.figure(t.value)} {t.unit}", t.origin, f"{t.reason} Source: {t.source}.")
        for name, t in rule.thresholds.items()
    ]


def finding_arithmetic(advice: Advice, finding: Finding, catalog: Catalog) -> Iterator[str]:
    """How a finding's cost comes about, where hours times a price is all there is to it."""
    price = next((p for p in advice.prices if p.id == finding.price), None)
    cost = finding.cost_usd
    if price is None or cost is None:
        return
    told = {e.metric: e.value for e in finding.evidence}
    premium, node = told.get("fabric_premium"), catalog.node(price.sku)
    if isinstance(premium, float):
        hours = cost / premium if premium else 0.0
        yield (
            f"{hours:,.1f} node-hours observed x {words.usd(premium)} a node-hour for the fabric = "
            f"{words.usd(cost)} in the window."
        )
    elif node is not None:
        reckoned = finding.gpu_hours * price.usd_per_hour / node.gpu_count
        if abs(reckoned - cost) <= _SAME * abs(cost):
            yield (
                f"{words.hours(finding.gpu_hours)} x {words.usd(price.usd_per_hour)} a node-hour / {node.gpu_count} "
                f"GPUs a node = {words.usd(cost)} in the window."
            )


def recommendation_arithmetic(advice: Advice, r: Recommendation, catalog: Catalog) -> Iterator[str]:
    """What both sides cost a month at their prices, and the interval of what is saved."""
    for what, side in (("Now", r.source), ("Then", r.target)):
        told = _month(advice, side, r.prices, catalog)
        if told:
            yield f"{what}: {told}"
    saving = r.saving_usd_per_month
    if saving is not None:
        yield (
            f"Savings a month: {words.usd(saving.p50)} (median; 10th percentile {words.usd(saving.p10)}, 90th "
            f"percentile {words.usd(saving.p90)}). The baseline is the same SKU at its right-sized count."
        )


def _month(advice: Advice, side: Configuration, prices: tuple[str, ...], catalog: Catalog) -> str:
    node = catalog.node(side.node_sku) if side.node_sku else None
    price = next((p for p in advice.prices if p.id in prices and p.sku == side.node_sku), None)
    if side.gpu_count == 0 or node is None or price is None:
        return ""
    nodes = -(-side.gpu_count // node.gpu_count)
    month = nodes * price.usd_per_hour * HOURS_PER_MONTH
    return (
        f"{nodes} x {node.name} for {side.gpu_count} GPUs x {words.usd(price.usd_per_hour)} a node-hour x "
        f"{HOURS_PER_MONTH:.0f} h = {words.usd(month)} a month where it runs all the time."
    )
