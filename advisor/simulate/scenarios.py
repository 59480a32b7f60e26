"""The scenarios: which nodes there are and what runs on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...rules.errors import UsageError
from .build import Builder
from .noise import stream
from .plan import Fleet

H100_IB = "azure/Standard_ND96isr_H100_v5"
H100_ETHERNET = "azure/Standard_ND96is_H100_v5"  # the same host, region and GPUs without the fabric
H200_IB = "azure/Standard_ND96isr_H200_v5"
A100_IB = "azure/Standard_ND96amsr_A100_v4"
L40S_PCIE = "crusoe/l40s-48gb.8x"
L40S_EFA = "aws/g6e.48xlarge"
NODE_SKUS = (H100_IB, H100_ETHERNET, H200_IB, A100_IB, L40S_PCIE, L40S_EFA)

SCENARIOS: Mapping[str, str] = {
    "training": "multi-node training over InfiniBand, bound by compute, with checkpoints, stalls and restarts",
    "fine-tuning": "jobs of hours on one node, one after the other: NVLink busy, no traffic between nodes",
    "decode": "online serving with daily load on preallocated memory, bound by HBM bandwidth",
    "idle": "GPUs that nobody used, and GPUs held by a process after its job",
    "founding": "online serving on 8xH100 InfiniBand nodes whose fabric is silent",
    "fleet": "every kind on H100, H200, A100 and L40S nodes, with and without a fabric",
}


def plan(scenario: str, builder: Builder) -> Fleet:
    """The fleet of a scenario. Raises UsageError for a name that is not in SCENARIOS."""
    layout = _LAYOUTS.get(scenario)
    if layout is None:
        raise UsageError(f"There is no scenario {scenario!r}.", f"Choose one of: {', '.join(SCENARIOS)}.")
    layout(builder)
    return builder.fleet()


def _training(b: Builder) -> None:
    b.pretraining(b.nodes("train", _count(b, "training", 2, 3), H100_IB), "compute")


def _tuning(b: Builder) -> None:
    (node,) = b.nodes("tune", 1, H100_ETHERNET)
    b.tuning(node, tuple(range(8)))


def _decode(b: Builder) -> None:
    b.service(b.nodes("serve", 1, H200_IB))


def _idle(b: Builder) -> None:
    b.bare(b.nodes("spare", 1, A100_IB))
    (node,) = b.nodes("left", 1, H100_ETHERNET)
    b.held(node, tuple(range(8)))


def _founding(b: Builder) -> None:
    b.service(b.nodes("serve", _count(b, "founding", 2, 4), H100_IB), replicas_per_node=_count(b, "replicas", 1, 2))


def _fleet(b: Builder) -> None:
    # Azure, eastus: a service on the fabric beside training that lacks it, so that the two could swap.
    b.service(b.nodes("h100-ib-serve", 2, H100_IB), replicas_per_node=_count(b, "replicas", 1, 2))
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


def _count(b: Builder, what: str, least: int, most: int) -> int:
    return int(stream(b.seed, "layout", what).integers(least, most + 1))


_LAYOUTS: Mapping[str, Callable[[Builder], None]] = {
    "training": _training,
    "fine-tuning": _tuning,
    "decode": _decode,
    "idle": _idle,
    "founding": _founding,
    "fleet": _fleet,
}
