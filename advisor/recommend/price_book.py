"""What a node costs, and what a saving on it may be reckoned with.

First a team's price file, then its settings (dollars per node-hour, per GPU-hour), then the list price of the node's
region, then that of the provider's reference region, which is assumed and says so. Where the region is assumed a saving
takes the node at the lowest price it has in any region (or at one that binds), and what it would move to at the
highest: a label that is lost never raises a claim. Where nothing but a node's shape names the provider, the machine may
as well be owned: without a region that the provider has, no list price is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...agent.jobs.identity import MARKED
from ...rules.catalog.hour_prices import GPU_HOUR, NODE_HOUR, SOURCE, HourPrices
from ...rules.catalog.loader import Catalog
from ...rules.catalog.node_files import ANY_REGION
from ...rules.catalog.types import NodeSku, PowerPrice, Price
from ..classify.types import NodeFacts

# Bases that bind nobody: a node on these is given back from one hour to the next.
UNBOUND = ("list", "negotiated")
_BY_GPU = f"{SOURCE}, {GPU_HOUR}"


@dataclass(frozen=True)
class PriceBook:
    """A team's prices first, the catalog's list prices last. None: unknown, and then no dollar is stated."""

    catalog: Catalog
    team: Sequence[Price] = field(default_factory=tuple)
    electricity: Sequence[PowerPrice] = field(default_factory=tuple)
    hourly: HourPrices = field(default_factory=HourPrices)

    def sku_of(self, node: NodeFacts) -> NodeSku | None:
        return self.catalog.node(node.node_sku) if node.node_sku else None

    def price(self, node_sku: str | None, region: str | None) -> Price | None:
        """The price of one node per hour in exactly this region; a price without a region holds everywhere."""
        if node_sku is None:
            return None
        own = [p for p in self.team if p.sku == node_sku and p.region in (region, ANY_REGION)]
        exact = [p for p in own if p.region == region] or own
        if exact:
            return min(exact, key=_cheapest)
        return self._by_hour(self.catalog.node(node_sku)) or self.catalog.price(node_sku, region)

    def power(self, region: str | None) -> PowerPrice | None:
        """What the team pays for electricity in a region; None: it did not say, and then energy is no money."""
        by_region = {one.region: one for one in self.electricity}
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
        own = [p for p in self.team if p.sku == sku.name]
        if here := [p for p in own if p.region == node.region]:
            return min(here, key=_cheapest)
        named = self.catalog.providers.get(sku.provider)
        reference = named.reference_region if named is not None else None
        known = min(own, key=lambda p: (p.region != ANY_REGION, p.region != reference, _cheapest(p)), default=None)
        listed = None if guessed else self.catalog.reference_price(sku)
        return _assumed(known or self._by_hour(sku, owned=guessed) or listed)

    def saving_price(self, node: NodeFacts) -> Price | None:
        """What giving a node back saves per hour: what it costs, and where its region is assumed no more than what it
        costs in any."""
        sku = self.sku_of(node)
        if sku is None or _guessed(node, sku):
            return self.of(node)
        if node.region is not None and (exact := self.price(sku.name, node.region)) is not None:
            return exact
        every = [self._by_hour(sku), *(self.price(sku.name, region) for region in self._regions(sku))]

        def least_claim(price: Price) -> tuple[int, int, float, str]:
            """What binds for good first, then what binds longest, then the lowest."""
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
        found = [self.price(other.name, region) for region in sorted(regions)]
        if None in found:
            return None
        if ANY_REGION in regions:  # it may stand anywhere
            found += [self.price(other.name, region) for region in self._regions(other)]
        return _assumed(max((p for p in found if p is not None), key=_cheapest, default=None))

    def twin(self, node: NodeFacts, target: str) -> Price | None:
        """What another node costs in the region that `of` tells, to see what sets the two apart. None: it is not sold
        there, or a price by the GPU-hour tells nothing of the difference."""
        price = self.of(node)
        region = price.region if price is not None and price.region_assumed else node.region
        found = self.price(target, region)
        if found is None or found.source == _BY_GPU:
            return None
        return _assumed(found) if region != node.region else found

    def power_of(self, node: NodeFacts) -> PowerPrice | None:
        """What the team pays for a node's electricity; None: not told, or it is in the node's price (rented)."""
        price = self.of(node)
        return self.power(node.region) if price is None or price.basis == "owned" else None

    def for_sale(self, node: NodeFacts) -> tuple[NodeSku, ...]:
        """What the node's provider sells where the node stands, and what the team has a price for, by name."""
        listed = {p.sku for p in self.team} | set(self.hourly.node)
        return tuple(
            sku
            for name, sku in sorted(self.catalog.nodes.items())
            if sku.provider == node.provider
            and (sku.prices or name in listed or sku.gpu in self.hourly.gpu)
            and self.beside(node, name) is not None
        )

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

    def _regions(self, sku: NodeSku) -> Iterator[str]:
        """Where a node has a price of its own, from the team or the list."""
        yield from dict.fromkeys((*(p.region for p in self.team if p.sku == sku.name), *(p.region for p in sku.prices)))


def _guessed(node: NodeFacts, sku: NodeSku) -> bool:
    """Whether the node's shape alone names its provider: neither firmware nor a region does."""
    by_shape = node.node_sku_source == "shape" and sku.provider not in MARKED
    return by_shape and all(price.region != node.region for price in sku.prices)


def _assumed(price: Price | None) -> Price | None:
    """The price of a region that is not known to be the node's."""
    if price is None or price.region == ANY_REGION:
        return price
    return replace(price, id=f"{price.id}:region-assumed", region_assumed=True)


def _cheapest(price: Price) -> tuple[float, str]:
    return price.usd_per_hour, price.id
