"""What the GPUs of a reading cost an hour."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..classify.types import NodeFacts
from ..core.recent import Recent, RecentNode
from ..moves.base.price_book import PriceBook
from ..rulebook import Rulebook


def priced(recent: Recent, rules: Rulebook) -> Recent:
    """The reading with the price of a GPU-hour of each node, its id, and where and when the price is from."""
    book = PriceBook(rules.catalog, tuple(rules.own.prices), rules.power, rules.hourly)
    skus: dict[str, Counter[str]] = {}
    for gpu in recent.gpus:
        if gpu.sku is not None:
            skus.setdefault(gpu.node, Counter())[gpu.sku] += 1
    return replace(recent, nodes=tuple(_priced(node, skus.get(node.node, Counter()), book) for node in recent.nodes))


def _priced(node: RecentNode, skus: Counter[str], book: PriceBook) -> RecentNode:
    if not node.gpus_expected:
        return node
    facts = NodeFacts(
        node=node.node, cluster=node.cluster, provider=node.provider, region=node.region, node_sku=node.sku,
        node_sku_source=node.sku_source, gpu_sku=next(iter(skus)) if len(skus) == 1 else None,
        gpu_count=node.gpus_expected, first_seen=0.0, last_seen=node.last_seen or 0.0, hours_observed=0.0, fabric=None,
    )  # fmt: skip
    price, usd = book.of(facts), book.per_gpu_hour(facts)
    if price is None or usd is None:
        return node
    where = "region assumed, " if price.region_assumed else ""
    source = f"{price.source} ({where}{price.basis}, {price.as_of})"
    return replace(node, usd_per_gpu_hour=usd, price_id=price.id, price_source=source)
