"""What an interconnect costs on its own: from a pair of nodes with and without it, else from a prior that says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .loader import Catalog
from .types import NodeSku, Price

# The priors where no pair tells (rules/premiums.yaml, with the pairs behind them).
FABRIC_PRIOR = "fabric-added"
NVLINK_PRIORS = {"nvswitch": "nvswitch", "nvlink-bridge": "nvlink-bridge"}

# The price of a node (by its name) in a region; None: unknown.
PriceOf = Callable[[str, str | None], Price | None]


@dataclass(frozen=True, slots=True)
class Premium:
    """What a node's fabric (or its NVLink) adds to its price, US dollars per node-hour. `share`: of the node's price.

    `twin` is the price of the node without it; None: no pair was found, and a prior stands in (`assumed`), `prior` in
    the catalog's premiums.
    """

    usd_per_hour: float
    share: float
    assumed: bool
    twin: Price | None
    price: Price
    prior: str | None = None


def fabric_premium(catalog: Catalog, price_of: PriceOf, sku: NodeSku, region: str | None) -> Premium | None:
    """From the pair with and without the fabric at the same provider and region, else the prior.

    None: no price is known, or the node has no fabric to speak of.
    """
    price = price_of(sku.name, region)
    if price is None:
        return None
    twins = [price_of(twin.name, region) for twin in twins_without_fabric(catalog, sku)]
    known = [t for t in twins if t is not None and t.basis == price.basis]
    if known:
        return _over(price, min(known, key=lambda t: (t.usd_per_hour, t.id)))
    return _assumed(catalog, price, FABRIC_PRIOR) if sku.fabric.rdma else None


def nvlink_premium(catalog: Catalog, price_of: PriceOf, sku: NodeSku, region: str | None) -> Premium | None:
    """What NVLink adds: over PCIe cards of the same name at the same provider and region, which are a slower part as
    well where the form differs; else the prior. None: no price, or the catalog knows of no NVLink there."""
    price = price_of(sku.name, region)
    if price is None or sku.intra_node_link not in NVLINK_PRIORS:
        return None
    family = sku.gpu.partition("-")[0]
    cards = [
        twin
        for n in catalog.nodes.values()
        if n.provider == sku.provider and n.intra_node_link == "pcie" and n.gpu.partition("-")[0] == family
        and n.gpu_count == sku.gpu_count and n.fabric.rdma == sku.fabric.rdma
        and (twin := price_of(n.name, region)) is not None and twin.basis == price.basis
    ]  # fmt: skip
    if cards:
        return _over(price, min(cards, key=lambda t: (t.usd_per_hour, t.id)))
    return _assumed(catalog, price, NVLINK_PRIORS[sku.intra_node_link])


def twins_without_fabric(catalog: Catalog, sku: NodeSku) -> tuple[NodeSku, ...]:
    """The same node without an RDMA fabric; where it has none itself, the same node with a slower network."""
    return tuple(t for t in catalog.fabric_twins(sku) if t.fabric.rdma is False and _is_less(t, sku))


def _is_less(twin: NodeSku, sku: NodeSku) -> bool:
    here, there = sku.fabric.bytes_per_second, twin.fabric.bytes_per_second
    return bool(sku.fabric.rdma) or (here is not None and there is not None and there < here)


def _over(price: Price, twin: Price) -> Premium:
    usd = max(price.usd_per_hour - twin.usd_per_hour, 0.0)
    return Premium(usd, usd / price.usd_per_hour, False, twin, price)


def _assumed(catalog: Catalog, price: Price, prior: str) -> Premium:
    likely = catalog.premiums[prior].likely
    share = likely / (1 + likely)
    return Premium(price.usd_per_hour * share, share, True, None, price, prior)
