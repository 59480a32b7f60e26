"""The price of an interconnect: from a pair of nodes with and without it, else from an assumed prior."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .loader import Catalog
from .types import NodeSku, Price

# The priors where there is no pair (rules/premiums.yaml).
FABRIC_PRIOR = "fabric-added"
NVLINK_PRIORS = {"nvswitch": "nvswitch", "nvlink-bridge": "nvlink-bridge"}

# The price of a node (by its name) in a region; None: unknown.
PriceOf = Callable[[str, str | None], Price | None]


@dataclass(frozen=True, slots=True)
class Premium:
    """The part of a node's price for its fabric (or NVLink), US dollars per node-hour, and as a share of the price.

    `twin`: price of the node without it; None: `assumed` by the catalog's prior named `prior`.
    """

    usd_per_hour: float
    share: float
    assumed: bool
    twin: Price | None
    price: Price
    prior: str | None = None


def fabric_premium(catalog: Catalog, price_of: PriceOf, sku: NodeSku, region: str | None) -> Premium | None:
    """From the pair with and without the fabric at the same provider and region, else the prior.

    None: the price is unknown, or the node has no RDMA fabric.
    """
    prior = FABRIC_PRIOR if sku.fabric.rdma else None
    return _premium(catalog, price_of, sku, region, twins=twins_without_fabric(catalog, sku), prior=prior)


def nvlink_premium(catalog: Catalog, price_of: PriceOf, sku: NodeSku, region: str | None) -> Premium | None:
    """From PCIe cards of the same GPU name at the same provider and region (a slower part where the form differs), else
    the prior. None: no price, or the catalog has no NVLink there."""
    if sku.intra_node_link not in NVLINK_PRIORS:
        return None
    family = sku.gpu.partition("-")[0]
    cards = (
        node
        for node in catalog.nodes.values()
        if node.provider == sku.provider
        and node.intra_node_link == "pcie"
        and node.gpu.partition("-")[0] == family
        and (node.gpu_count, node.fabric.rdma) == (sku.gpu_count, sku.fabric.rdma)
    )
    return _premium(catalog, price_of, sku, region, twins=cards, prior=NVLINK_PRIORS[sku.intra_node_link])


def twins_without_fabric(catalog: Catalog, sku: NodeSku) -> tuple[NodeSku, ...]:
    """The same node without an RDMA fabric; where it has none itself, the same node with a slower network."""
    here = sku.fabric.bytes_per_second or 0.0
    twins = (twin for twin in catalog.fabric_twins(sku) if twin.fabric.rdma is False)
    return tuple(twin for twin in twins if sku.fabric.rdma or (twin.fabric.bytes_per_second or here) < here)


def _premium(
    catalog: Catalog,
    price_of: PriceOf,
    sku: NodeSku,
    region: str | None,
    *,
    twins: Iterable[NodeSku],
    prior: str | None,
) -> Premium | None:
    price = price_of(sku.name, region)
    if price is None:
        return None
    prices = (price_of(twin.name, region) for twin in twins)
    comparable = [twin for twin in prices if twin is not None and twin.basis == price.basis]
    if comparable:
        cheapest = min(comparable, key=lambda twin: (twin.usd_per_hour, twin.id))
        usd = max(price.usd_per_hour - cheapest.usd_per_hour, 0.0)
        return Premium(usd, usd / price.usd_per_hour, False, cheapest, price)
    if prior is None:
        return None
    likely = catalog.premiums[prior].likely
    share = likely / (1 + likely)
    return Premium(price.usd_per_hour * share, share, True, None, price, prior)
