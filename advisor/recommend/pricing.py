"""What nodes and workloads cost, where every dollar went, and the price that a saving may use.

First a team's price file, then its settings (dollars per node-hour, per GPU-hour), then the list price of the node's
region, then that of the provider's reference region, marked as assumed. Where the region is assumed, a saving takes the
node's lowest price in any region (or one that binds) and the target's highest: a lost label never raises a claim. Where
only a node's shape names the provider, it may be owned: no list price without a region of the provider.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property

from ...agent.jobs.identity import MARKED
from ...rules.catalog import loader as interconnect
from ...rules.catalog.gpu_files import normalise
from ...rules.catalog.loader import ANY_REGION, Catalog, Premium, PriceOf
from ...rules.catalog.price_files import GPU_HOUR, NODE_HOUR, SOURCE, HourPrices, flag_line
from ...rules.catalog.types import NodeSku, PowerPrice, Price
from ..classify.types import NodeFacts, Verdicts
from ..core.advice_types import FabricUse, NodeStanding, Realisation, Reconciliation
from ..core.coded_text import CodedText
from ..core.formatting import counted, listed
from ..core.scalars import known
from ..core.verdict_types import WorkloadVerdict

# Bases without a commitment: a node on these is returned from one hour to the next.
UNBOUND = ("list", "negotiated")
_BY_GPU = f"{SOURCE}, {GPU_HOUR}"
# Kind of fabric in the catalog -> the link layer that its ports report.
_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet", "efa": "EFA"}
FABRIC_REMEDY = "Run node_exporter with --collector.infiniband, or the agent."


@dataclass(frozen=True)
class PriceBook:
    """A team's prices first, the catalog's list prices last. None: unknown, and then no dollar is stated."""

    catalog: Catalog
    team: Sequence[Price] = field(default_factory=tuple)
    electricity: Sequence[PowerPrice] = field(default_factory=tuple)
    hourly: HourPrices = field(default_factory=HourPrices)

    @cached_property
    def _of_sku(self) -> Mapping[str, Sequence[Price]]:
        """The team's prices by node SKU: `skuwise prices update` writes 2,000, which took 12 ms a node to search."""
        by_sku: dict[str, list[Price]] = {}
        for price in self.team:
            by_sku.setdefault(price.sku, []).append(price)
        return by_sku

    def sku_of(self, node: NodeFacts) -> NodeSku | None:
        return self.catalog.node(node.node_sku) if node.node_sku else None

    def price(self, node_sku: str | None, region: str | None) -> Price | None:
        """The price of one node per hour in exactly this region; a price without a region holds everywhere."""
        if node_sku is None:
            return None
        prices = [p for p in self._of_sku.get(node_sku, ()) if p.region in (region, ANY_REGION)]
        if exact := [p for p in prices if p.region == region] or prices:
            return min(exact, key=_cheapest)
        return self._by_hour(self.catalog.node(node_sku)) or self.catalog.price(node_sku, region)

    def power(self, region: str | None) -> PowerPrice | None:
        """What the team pays for electricity in a region; None: it did not say, and then energy is no money."""
        by_region = {power_price.region: power_price for power_price in self.electricity}
        return by_region.get(region or ANY_REGION) or by_region.get(ANY_REGION)

    def of(self, node: NodeFacts) -> Price | None:
        """What a node costs per hour."""
        sku = self.sku_of(node)
        guessed = sku is not None and _guessed(node, sku)
        if sku is None or (node.region is not None and not guessed):
            exact = self.price(node.node_sku, node.region)
            usd = self.hourly.of_gpu(node.gpu_sku, node.gpu_name) if sku is None and exact is None else None
            if usd is not None and node.gpu_count:  # a node that the catalog does not know, by the GPUs it shows
                name = node.node_sku or f"{node.gpu_count} x {node.gpu_sku or node.gpu_name}"
                return self._said(name, usd * node.gpu_count, node.provider, f"gpu-hour-{node.gpu_count}")
            if exact is not None or sku is None:
                return exact
        prices = self._of_sku.get(sku.name, ())
        if here := [p for p in prices if p.region == node.region]:
            return min(here, key=_cheapest)
        named = self.catalog.providers.get(sku.provider)
        reference = named.reference_region if named is not None else None
        price = min(prices, key=lambda p: (p.region != ANY_REGION, p.region != reference, _cheapest(p)), default=None)
        listed = None if guessed else self.catalog.reference_price(sku)
        return _assumed(price or self._by_hour(sku, owned=guessed) or listed)

    def saving_price(self, node: NodeFacts) -> Price | None:
        """What giving a node back saves per hour: what it costs, where its region is assumed what it costs at least."""
        sku = self.sku_of(node)
        if sku is None or _guessed(node, sku):
            return self.of(node)
        if node.region is not None and (exact := self.price(sku.name, node.region)) is not None:
            return exact
        every = [self._by_hour(sku), *(self.price(sku.name, region) for region in self._regions(sku))]

        def least_claim(price: Price) -> tuple[int, int, float, str]:
            until = int((price.committed_until or "0").replace("-", ""))
            rank = 1 if until else 2 if price.basis in UNBOUND else 0
            return (rank, -until, *_cheapest(price))

        return _assumed(min((p for p in every if p is not None), key=least_claim, default=None))

    def beside(self, node: NodeFacts, target: str | None) -> Price | None:
        """What another node would cost where this one stands; None: it is not known to be sold there."""
        sku = self.sku_of(node)
        other = self.catalog.node(target) if target else None
        regions: set[str] = set(self._regions(sku)) if sku is not None else set()
        placed = node.region is not None and not regions.isdisjoint((node.region, ANY_REGION))
        if sku is None or other is None or placed:
            return self.price(target, node.region)
        regions = regions or {ANY_REGION}
        prices = [self.price(other.name, region) for region in sorted(regions)]
        if None in prices:
            return None
        if ANY_REGION in regions:  # it may stand anywhere
            prices += [self.price(other.name, region) for region in self._regions(other)]
        return _assumed(max((p for p in prices if p is not None), key=_cheapest, default=None))

    def twin(self, node: NodeFacts, target: str) -> Price | None:
        """What another node costs in the region of `of`; None: it is not sold there, or priced by the GPU-hour."""
        price = self.of(node)
        region = price.region if price is not None and price.region_assumed else node.region
        rate = self.price(target, region)
        if rate is None or rate.source == _BY_GPU:
            return None
        return _assumed(rate) if region != node.region else rate

    def power_of(self, node: NodeFacts) -> PowerPrice | None:
        """What the team pays for a node's electricity; None: unknown, or it is in the node's price (rented)."""
        price = self.of(node)
        return self.power(node.region) if price is None or price.basis == "owned" else None

    def for_sale(self, node: NodeFacts) -> tuple[NodeSku, ...]:
        """What the node's provider sells where the node stands, and what the team has a price for, by name."""
        listed = self._of_sku.keys() | self.hourly.node.keys()
        sold = (sku for _, sku in sorted(self.catalog.nodes.items()) if sku.provider == node.provider)
        priced = (s for s in sold if s.prices or s.name in listed or s.gpu in self.hourly.gpu)
        return tuple(sku for sku in priced if self.beside(node, sku.name) is not None)

    def per_gpu_hour(self, node: NodeFacts) -> float | None:
        """A node's price shared by the GPUs it shows."""
        price = self.of(node)
        return price.usd_per_hour / node.gpu_count if price and node.gpu_count else None

    def _by_hour(self, sku: NodeSku | None, *, owned: bool = False) -> Price | None:
        """A node's price by the settings: its own, else its GPUs'. `owned`: whether it may be a team's own."""
        if sku is None:
            return None
        if sku.name in self.hourly.node:
            return self._said(sku.name, self.hourly.node[sku.name], sku.provider, "node-hour")
        usd, provider = self.hourly.gpu.get(sku.gpu), None if owned else sku.provider
        return self._said(sku.name, usd * sku.gpu_count, provider, "gpu-hour") if usd is not None else None

    def _said(self, name: str, usd: float, provider: str | None, by: str) -> Price:
        """A price by the settings. `by`: what it is of, at the end of its id."""
        basis = "negotiated" if self.catalog.rented(provider) else "owned"
        source = f"{SOURCE}, {NODE_HOUR}" if by == "node-hour" else _BY_GPU
        id_ = f"{name}@{ANY_REGION}:{basis}-by-{by}"
        return Price(id_, name, ANY_REGION, usd, basis, source, self.hourly.as_of)

    def _regions(self, sku: NodeSku) -> dict[str, None]:
        return dict.fromkeys(p.region for p in (*self._of_sku.get(sku.name, ()), *sku.prices))


def _guessed(node: NodeFacts, sku: NodeSku) -> bool:
    by_shape = node.node_sku_source == "shape" and sku.provider not in MARKED
    return by_shape and all(price.region != node.region for price in sku.prices)


def _assumed(price: Price | None) -> Price | None:
    if price is None or price.region == ANY_REGION:
        return price
    return replace(price, id=f"{price.id}:region-assumed", region_assumed=True)


def _cheapest(price: Price) -> tuple[float, str]:
    return price.usd_per_hour, price.id


def fabric_premium(book: PriceBook, node: NodeFacts) -> Premium | None:
    """What a node's fabric adds to its price; None: no price is known, or there is no such fabric."""
    sku = book.sku_of(node)
    return interconnect.fabric_premium(book.catalog, _prices_at(book, node), sku, node.region) if sku else None


def nvlink_premium(book: PriceBook, node: NodeFacts) -> Premium | None:
    """What a node's NVLink adds to its price; None: no price is known, or there is no NVLink."""
    sku = book.sku_of(node)
    return interconnect.nvlink_premium(book.catalog, _prices_at(book, node), sku, node.region) if sku else None


def _prices_at(book: PriceBook, node: NodeFacts) -> PriceOf:
    return lambda name, _: book.of(node) if name == node.node_sku else book.twin(node, name)


def has_fabric(book: PriceBook, node: NodeFacts) -> bool:
    """Whether a node shows ports of a compute fabric, or should: by its SKU. Plain Ethernet is none."""
    sku = book.sku_of(node)
    rdma = sku.fabric.rdma if sku is not None else None
    return bool(rdma) if node.fabric is None else bool(node.fabric.ports_compute) or rdma is not False


def fabric_uses(nodes: Sequence[NodeFacts], book: PriceBook) -> tuple[FabricUse, ...]:
    """What the compute fabrics carried against what they cost, by node: of all that show a port, or should."""
    uses = []
    for node in sorted((n for n in nodes if has_fabric(book, n)), key=lambda n: n.node):
        fabric, sku, premium = node.fabric, book.sku_of(node), fabric_premium(book, node)
        use = FabricUse(
            node=node.node, node_sku=node.node_sku, kind=_LAYERS.get(sku.fabric.kind) if sku else None, hours=0.0,
            util_p995=None, util_max=None, cost_usd=premium.usd_per_hour * node.span_hours if premium else None,
            assumed=premium is not None and premium.assumed, unseen=f"No fabric data. {FABRIC_REMEDY}",
        )  # fmt: skip
        if fabric is not None and fabric.readable:
            use = replace(use, util_p995=fabric.util_p995, util_max=fabric.util_max, unseen=None)
        elif fabric is not None:
            use = replace(use, unseen=fabric.reason, unseen_code=fabric.code)
        uses.append(use if fabric is None else replace(use, kind=fabric.link_layer, hours=fabric.hours))
    return tuple(uses)


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


def with_costs(verdicts: Verdicts, book: PriceBook) -> tuple[WorkloadVerdict, ...]:
    """The workloads with `cost_usd`: all their hours at their nodes' prices; of shared GPUs a part. None: no price."""
    rates = {n.node: math.nan if (rate := book.per_gpu_hour(n)) is None else rate for n in verdicts.nodes}
    rows = verdicts.occupancy
    held = rows[rows["class"].isin(("workload", "allocated_idle"))]
    usd = held["gpu_hours"].astype(float) * held["node"].map(rates).astype(float)
    costs = usd.groupby(held["workload_id"]).sum(skipna=False).to_dict()

    def cost(w: WorkloadVerdict) -> float | None:
        if not w.shared:
            return known(costs.get(w.id))
        return known(w.gpu_hours * sum(rates.get(node, math.nan) for node in w.nodes) / len(w.nodes))

    return tuple(replace(w, cost_usd=cost(w)) for w in verdicts.workloads)


def reconcile(verdicts: Verdicts, book: PriceBook) -> Reconciliation:
    """Where every dollar of the priced nodes went; `total`: computed independently of the parts. None: no price."""
    rates = {n.node: book.per_gpu_hour(n) for n in verdicts.nodes}
    if not (priced := [n for n in verdicts.nodes if rates[n.node] is not None]):
        return Reconciliation(*[None] * 7)
    rows = verdicts.occupancy
    usd = (rows["gpu_hours"] * rows["node"].map(rates).astype(float)).groupby(rows["class"]).sum()
    total = sum(price.usd_per_hour * n.span_hours for n in priced if (price := book.of(n)) is not None)
    labels = ("workload", "shared", "allocated_idle", "unallocated", "drained", "unobserved")
    return Reconciliation(*(float(usd.get(label, 0.0)) for label in labels), total=total)


def cash_of(price: Price | None, whole_nodes: float, at: float) -> tuple[Realisation, str | None] | None:
    """How freed nodes become cash, and the date (ISO) if later; None: they are capacity. `at`: Unix seconds."""
    if price is None or whole_nodes <= 0 or price.basis == "owned":
        return None
    if not price.committed_until:
        # A reservation without a date binds for an unknown time.
        return ("cash-now", None) if price.basis in UNBOUND else None
    until = date.fromisoformat(price.committed_until[:10])
    later = until > datetime.fromtimestamp(at, UTC).date()
    return ("cash-at", until.isoformat()) if later else ("cash-now", None)


def prices_named(book: PriceBook, nodes: Sequence[NodeFacts], targets: Iterable[str | None]) -> list[Price | None]:
    """Every price that costs and savings of these nodes may rest on, and those of what they would move to."""
    # Nodes alike share their prices: once each, not once a node.
    places = {(n.node_sku, n.region, n.provider, n.gpu_sku, n.gpu_count): n for n in nodes}.values()
    wanted = sorted({t for t in targets if t is not None})
    prices = [price for n in places for price in (book.of(n), book.saving_price(n))]
    return prices + [book.beside(n, t) for n in places for t in wanted]


def price_notes(nodes: Sequence[NodeFacts], book: PriceBook) -> tuple[CodedText, ...]:
    """A line each: nodes without a price, nodes whose region is assumed, prices of nothing here."""
    unpriced = [n for n in nodes if book.per_gpu_hour(n) is None]
    notes = [_unpriced(unpriced, len(nodes))] if unpriced else []
    if assumed := [(n, p) for n in nodes if (p := book.of(n)) is not None and p.region_assumed]:
        regions = listed(sorted({f"{n.provider or p.sku.partition('/')[0]} {p.region}" for n, p in assumed}))
        unknown = sum(1 for n, _ in assumed if n.region is None)
        why = "No region" if unknown == len(assumed) else "No region with a price"
        text = (
            f"{why} for {counted(len(assumed), 'node')} ({listed(sorted({p.sku for _, p in assumed}))}). Costs use the "
            f"price of {regions} (region assumed); savings use the lowest price of any region. Allow the node label "
            "topology.kubernetes.io/region in kube-state-metrics, or set prices with --prices."
        )
        notes.append(CodedText("region-assumed", text, {"nodes": len(assumed), "without_region": unknown}))
    reported = {normalise(n.gpu_name or "") for n in nodes}
    names = [name for name in book.hourly.gpu if book.catalog.gpu(name) is None and normalise(name) not in reported]
    if names:
        text = f"Price not used: no GPU here is called {listed(names)}, and the catalog has no such name."
        notes.append(CodedText("price-not-used", text, {"gpus": ", ".join(names)}))
    return tuple(notes)


def _unpriced(nodes: Sequence[NodeFacts], of: int) -> CodedText:
    counts = Counter(n.gpu_sku or n.gpu_name or "" for n in nodes)
    skus = [sku for sku, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])) if sku]
    fields = {"nodes": len(nodes), "of": of, "gpus": ", ".join(skus)}
    whole = len(nodes) == of
    what = f"No price for {len(nodes)}{'' if whole else f' of {of}'} {'node' if of == 1 else 'nodes'}"
    out = "" if whole else ", not included in dollar amounts"
    if not skus:
        text = f"{what} ({listed([n.node for n in nodes])}){out}: no GPU observed, or GPUs of several models. "
        text += "Set provider, region and node_sku in the agent's configuration, or use a price file (--prices)."
        return CodedText("prices-and-skus-missing", text, fields)
    models = listed(skus) + (f"; {counts['']} without a GPU, or with several models" if counts[""] else "")
    shown = skus[:3]  # in one line that people copy
    table = ", ".join(f'"{sku}" = YOUR_PRICE' for sku in shown)
    settings = f"Set {GPU_HOUR} = {{ {table} }} under [prices] in skuwise.toml"
    return CodedText("prices-missing", f"{what} ({models}){out}. {settings}, or {flag_line(shown, 'PRICE')}.", fields)
