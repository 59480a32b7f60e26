"""Prices, what workloads cost, where every dollar went, and when a freed node is cash.

People rent nodes whole: dollars are claimed only where whole nodes fall free and nothing binds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from ...rules import interconnect
from ...rules.catalog import NodeSku, PowerPrice, Price
from ...rules.catalog_loader import Catalog
from ...rules.interconnect import Premium
from ...rules.node_files import ANY_REGION
from ..model import FabricUse, NodeStanding, Realisation, Reconciliation, WorkloadVerdict
from ..verdicts.facts import NodeFacts, Verdicts

# Bases that bind nobody: a node on these is given back from one hour to the next.
UNBOUND = ("list", "negotiated")
FREE = "capacity-freed"
# Kind of fabric in the catalog -> the link layer that its ports report.
_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet", "efa": "EFA"}
FABRIC_REMEDY = "Run node_exporter with --collector.infiniband, or the agent."


@dataclass(frozen=True)
class PriceBook:
    """A team's prices first, the catalog's list prices second. None: unknown, and then no dollar is stated."""

    catalog: Catalog
    team: Sequence[Price] = field(default_factory=tuple)
    electricity: Sequence[PowerPrice] = field(default_factory=tuple)

    def price(self, node_sku: str | None, region: str | None) -> Price | None:
        """The price of one node per hour in a region; a team's price without a region holds everywhere."""
        if node_sku is None:
            return None
        own = [p for p in self.team if p.sku == node_sku and p.region in (region, ANY_REGION)]
        exact = [p for p in own if p.region == region] or own
        if exact:
            return min(exact, key=lambda p: (p.usd_per_hour, p.id))
        return self.catalog.price(node_sku, region)

    def power(self, region: str | None) -> PowerPrice | None:
        """What the team pays for electricity in a region; None: it did not say, and then energy is no money."""
        by_region = {one.region: one for one in self.electricity}
        return by_region.get(region or ANY_REGION) or by_region.get(ANY_REGION)

    def of(self, node: NodeFacts) -> Price | None:
        return self.price(node.node_sku, node.region)

    def power_of(self, node: NodeFacts) -> PowerPrice | None:
        """What the team pays for a node's electricity; None: not told, or it is in the node's price (rented)."""
        price = self.of(node)
        return self.power(node.region) if price is None or price.basis == "owned" else None

    def for_sale(self, provider: str, region: str) -> tuple[NodeSku, ...]:
        """What the provider sells in the region, and what the team has a price for, by name."""
        known = {n.name: n for n in self.catalog.candidates(provider, region)}
        for price in self.team:
            node = self.catalog.node(price.sku)
            if node is not None and node.provider == provider and self.price(node.name, region) is not None:
                known.setdefault(node.name, node)
        return tuple(known[name] for name in sorted(known))

    def per_gpu_hour(self, node: NodeFacts) -> float | None:
        """A node's price shared by the GPUs it shows."""
        price = self.of(node)
        return price.usd_per_hour / node.gpu_count if price and node.gpu_count else None


def fabric_premium(book: PriceBook, node: NodeFacts) -> Premium | None:
    """What a node's fabric adds to its price; None: no price is known, or there is no such fabric."""
    sku = book.catalog.node(node.node_sku) if node.node_sku else None
    return interconnect.fabric_premium(book.catalog, book.price, sku, node.region) if sku else None


def fabric_uses(nodes: Sequence[NodeFacts], book: PriceBook) -> tuple[FabricUse, ...]:
    """What the compute fabrics carried against what they cost, by node: of nodes that show a port, and of those that
    have a fabric by their SKU and show none."""
    uses = []
    for node in sorted(nodes, key=lambda n: n.node):
        fabric, premium = node.fabric, fabric_premium(book, node)
        if fabric is None and fabric_unobserved(book, node):
            sku = book.catalog.node(node.node_sku) if node.node_sku else None
            uses.append(
                FabricUse(
                    node=node.node, node_sku=node.node_sku, kind=_LAYERS.get(sku.fabric.kind) if sku else None,
                    hours=0.0, util_p995=None, util_max=None,
                    cost_usd=premium.usd_per_hour * node.span_hours if premium else None,
                    assumed=premium is not None and premium.assumed,
                    unseen=f"The fabric was not observed. {FABRIC_REMEDY}",
                )
            )  # fmt: skip
        if fabric is not None:
            uses.append(
                FabricUse(
                    node=node.node, node_sku=node.node_sku, kind=fabric.link_layer, hours=fabric.hours,
                    util_p995=fabric.util_p995 if fabric.readable else None,
                    util_max=fabric.util_max if fabric.readable else None,
                    cost_usd=premium.usd_per_hour * node.span_hours if premium else None,
                    assumed=premium is not None and premium.assumed,
                    unseen=None if fabric.readable else fabric.reason,
                )
            )  # fmt: skip
    return tuple(uses)


def fabric_unobserved(book: PriceBook, node: NodeFacts) -> bool:
    """Whether a node has an RDMA fabric by its SKU and no port of it was observed."""
    sku = book.catalog.node(node.node_sku) if node.node_sku else None
    return node.fabric is None and sku is not None and bool(sku.fabric.rdma)


def standings(
    nodes: Sequence[NodeFacts], book: PriceBook, judged: Mapping[str, tuple[str, ...]]
) -> tuple[NodeStanding, ...]:
    """The nodes as the ledger holds moves against them, each with today's price. `judged`: their judged GPUs."""
    return tuple(
        NodeStanding(
            node=node.node, node_sku=node.node_sku, gpu_sku=node.gpu_sku, gpu_count=node.gpu_count,
            region=node.region, usd_per_hour=price.usd_per_hour if (price := book.of(node)) else None,
            hours_observed=node.hours_observed, first_seen=node.first_seen, last_seen=node.last_seen,
            judged=judged.get(node.node, ()),
        )
        for node in nodes
    )  # fmt: skip


def nvlink_premium(book: PriceBook, node: NodeFacts) -> Premium | None:
    """What a node's NVLink adds to its price; None: no price is known, or there is no NVLink."""
    sku = book.catalog.node(node.node_sku) if node.node_sku else None
    return interconnect.nvlink_premium(book.catalog, book.price, sku, node.region) if sku else None


def with_costs(verdicts: Verdicts, book: PriceBook) -> tuple[WorkloadVerdict, ...]:
    """The workloads with `cost_usd`: the hours that were theirs alone, idle ones too, at their nodes' prices.

    None where a node has no price, and where all its GPUs were shared (what two hold belongs to neither).
    """
    rates = {n.node: book.per_gpu_hour(n) for n in verdicts.nodes}
    rows = verdicts.occupancy
    own = rows[rows["class"].isin(("workload", "allocated_idle")) & rows["workload_id"].notna()]
    costs: dict[str, float] = {}
    for key, hours in own.groupby(["workload_id", "node"])["gpu_hours"].sum().items():
        workload, node = (str(part) for part in key)  # type: ignore[attr-defined]
        rate = rates.get(node)
        costs[workload] = costs.get(workload, 0.0) + (math.nan if rate is None else rate * float(hours))

    def cost(w: WorkloadVerdict) -> float | None:
        value = costs.get(w.id)
        return value if value is not None and math.isfinite(value) else None

    return tuple(replace(w, cost_usd=cost(w)) for w in verdicts.workloads)


def reconcile(verdicts: Verdicts, book: PriceBook) -> tuple[Reconciliation, tuple[str, ...]]:
    """Where every dollar of the priced nodes went, and a note on the nodes that have no price.

    `total` is node price x hours, reckoned apart from the parts, which sum to it.
    """
    rows = verdicts.occupancy
    parts: dict[str, float] = dict.fromkeys(
        ("workload", "shared", "allocated_idle", "unallocated", "drained", "unobserved"), 0.0
    )
    total = 0.0
    unpriced: list[str] = []
    for node in verdicts.nodes:
        price, rate = book.of(node), book.per_gpu_hour(node)
        if price is None or rate is None:
            unpriced.append(node.node)
            continue
        total += price.usd_per_hour * node.span_hours
        for label, hours in rows[rows["node"] == node.node].groupby("class")["gpu_hours"].sum().items():
            parts[str(label)] += float(hours) * rate
    notes = (_unpriced_note(unpriced, len(verdicts.nodes)),) if unpriced else ()
    if len(unpriced) == len(verdicts.nodes):
        return Reconciliation(None, None, None, None, None, None, None), notes
    return Reconciliation(
        parts["workload"], parts["shared"], parts["allocated_idle"], parts["unallocated"], parts["drained"],
        parts["unobserved"], total,
    ), notes  # fmt: skip


def realisation(price: Price | None, whole_nodes: int, at: float) -> tuple[Realisation, str | None]:
    """How a freed node comes back: cash now, cash at a date (ISO), or capacity for other work."""
    if price is None or whole_nodes <= 0 or price.basis == "owned":
        return FREE, None
    if price.committed_until:
        until = _date(price.committed_until)
        if until is None:
            return FREE, None
        if until > datetime.fromtimestamp(at, UTC).date():
            return "cash-at", until.isoformat()
        return "cash-now", None
    # A reservation without a date binds for a time nobody told us.
    return ("cash-now", None) if price.basis in UNBOUND else (FREE, None)


def unique(prices: Iterable[Price | None]) -> tuple[Price, ...]:
    """The prices that were used, once each, by id."""
    return tuple(sorted({p.id: p for p in prices if p is not None}.values(), key=lambda p: p.id))


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None


def _unpriced_note(nodes: list[str], of: int) -> str:
    shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    what = "No node has a known price" if len(nodes) == of else f"{len(nodes)} of {of} nodes have no known price"
    return (
        f"{what} ({shown}): their hours are in no dollar figure. Set provider, region and node_sku in the agent's "
        "settings, or give a price file with --prices."
    )
