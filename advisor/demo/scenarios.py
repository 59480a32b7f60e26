"""The scenarios of `skuwise simulate`: which nodes there are and what runs on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...rules.base.errors import UsageError
from .fleet_builder import Builder, whole
from .fleet_plan import FleetPlan
from .seeded_rng import stream
from .skus import (
    A10G_1,
    A10G_4,
    A100_ETHERNET,
    A100_IB,
    A100_PCIE,
    B200_EFA,
    H100_ETHERNET,
    H100_IB,
    H200_IB,
    L4_1,
    L4_4,
    L40S_4,
    L40S_EFA,
    L40S_PCIE,
    T4_1,
    T4_4,
)

Layout = Callable[[Builder], None]

SCENARIOS: Mapping[str, str] = {
    "founding": "online serving on 8xH100 InfiniBand nodes whose fabric is silent",
    "small": "the most common kinds together on 13 H100, H200, A100 and L40S nodes: shown by skuwise demo",
    "fleet": "58 nodes of all node types: training, fine-tuning, serving, batch inference and idle GPUs",
}
_SMALL_NODES = (A10G_1, A10G_1, A10G_1, T4_1, T4_1, L4_1, L4_1, A100_PCIE, A100_PCIE)


def plan(scenario: str, builder: Builder, layouts: Mapping[str, Layout]) -> FleetPlan:
    """The fleet of a scenario. Raises UsageError for a name that `layouts` lacks."""
    layout = layouts.get(scenario)
    if layout is None:
        raise UsageError(f"Unknown scenario {scenario!r}.", f"Choose one of: {', '.join(layouts)}.")
    layout(builder)
    return builder.fleet()


def _founding(b: Builder) -> None:
    b.service(b.nodes("serve", count(b, "founding", 2, 4), H100_IB), replicas_per_node=count(b, "replicas", 1, 2))


def _small(b: Builder) -> None:
    # Azure, eastus: a service on the fabric beside training that lacks it, so that the two could swap.
    b.service(b.nodes("h100-ib-serve", 2, H100_IB), replicas_per_node=count(b, "replicas", 1, 2))
    b.pretraining(b.nodes("h100-ib-train", 2, H100_IB), "compute")
    b.pretraining(b.nodes("h100-eth-train", 2, H100_ETHERNET, tcp_port_counted=True), "network")
    (tune,) = b.nodes("h100-eth-tune", 1, H100_ETHERNET)
    b.tuning(tune, (0, 1, 2, 3))
    b.held(tune, (4, 5, 6, 7))
    b.service(b.nodes("h200-ib-serve", 1, H200_IB))
    b.pretraining(b.nodes("a100-ib-train", 2, A100_IB), "network")
    b.bare(b.nodes("a100-ib-spare", 1, A100_IB))
    b.pretraining(b.nodes("l40s-train", 1, L40S_PCIE), "pcie")
    b.service(b.nodes("l40s-serve", 1, L40S_EFA), over_provisioned=True)


def _fleet(b: Builder) -> None:
    _small(b)
    for sku, count_, width in ((H200_IB, 4, 2), (B200_EFA, 4, 4), (H100_IB, 4, 2)):
        for _ in range(count_ // width):
            b.pretraining(b.nodes(_prefix(sku), width, sku), "compute")
    for sku in (A100_ETHERNET, H100_ETHERNET, A100_ETHERNET, L40S_PCIE):
        b.pretraining(b.nodes(_prefix(sku), 2, sku, tcp_port_counted=True), "network")
    for sku in (A100_ETHERNET, H100_ETHERNET, L40S_4, A10G_4):
        (node,) = b.nodes(_prefix(sku), 1, sku)
        b.tuning(node, whole(node))
    for sku in (H200_IB, H100_ETHERNET, A100_IB, L40S_EFA):
        b.service(b.nodes(_prefix(sku), 2, sku))
    for sku in (L4_4, L4_4, T4_4):
        (node,) = b.nodes(_prefix(sku), 1, sku)
        b.service([node], replicas_per_node=len(node.gpus), over_provisioned=True)
    (node,) = b.nodes(_prefix(L40S_4), 1, L40S_4)
    b.held(node, (0, 1))
    for sku in _SMALL_NODES:
        (node,) = b.nodes(_prefix(sku), 1, sku)
        b.tuning(node, (0,))
    b.bare(b.nodes(_prefix(L4_1), 1, L4_1))


def _prefix(sku: str) -> str:
    provider, _, name = sku.partition("/")
    return f"{provider}-{name.lower().replace('standard_', '').replace('_', '-').replace('.', '-')}"


def count(b: Builder, what: str, least: int, most: int) -> int:
    """A number of things that the scenario draws from the seed."""
    return int(stream(b.seed, "layout", what).integers(least, most + 1))


LAYOUTS: Mapping[str, Layout] = {"founding": _founding, "small": _small, "fleet": _fleet}
