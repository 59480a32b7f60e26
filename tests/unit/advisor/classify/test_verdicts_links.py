"""Work that waits for its network looks like work that waits for launches: which of the two, and what must be seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.verdict_types import BottleneckVerdict
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

CATALOG = load_catalog()
GBIT = 1e9 / 8
# At a minute's mean a collective's kernels and small kernels are the same to every counter of the GPU.
_OTHER = ("correlation", "period", "nvlink", "pcie")
THIN = {
    **{name: value for name, value in TRAINING.items() if not any(word in name for word in _OTHER)},
    "gpu_util": 0.97, "sm_active": 0.2, "sm_occupancy": 0.1, "tensor_active": 0.05, "dram_active": 0.08,
}  # fmt: skip
NVLINK = {"nvlink_tx_bytes_per_second": 4e9, "nvlink_rx_bytes_per_second": 4e9}
PCIE = {"pcie_tx_bytes_per_second": 1e8, "pcie_rx_bytes_per_second": 2e8}
WITH_RDMA, WITHOUT = "azure/Standard_ND96isr_H100_v5", "azure/Standard_ND96is_H100_v5"


@dataclass(frozen=True)
class Port:
    """A port of every node. `rate`: line rate, bytes per second; None: unknown. `carries`: bytes per second."""

    device: str
    layer: str
    rate: float | None
    carries: float
    role: str = "unknown"


def ib(share: float, number: int = 0) -> Port:
    return Port(f"mlx5_{number}", "InfiniBand", 400 * GBIT, share * 400 * GBIT, "compute")


def eth(carries: float, rate: float | None = 100 * GBIT, role: str = "unknown") -> Port:
    return Port("eth0", "Ethernet", rate, carries, role)


def label(
    ports: Sequence[Port], values: Mapping[str, float], *, nodes: int = 2, gpus: int = 8, sku: str | None = WITH_RDMA,
    gpu: str = "NVIDIA H100 80GB HBM3", pods: bool = False, free: int = 0, scheduler: str = "slurm",
    skip: frozenset[tuple[str, str]] = frozenset(), no_fabric: bool = False, failed: bool = False,
) -> BottleneckVerdict:  # fmt: skip
    """The verdict on a job over `nodes`, seen a minute at a time; `skip`: (node, device) that nobody read, after which
    its pods may differ and one that is called launch-bound counts."""
    b = FrameBuilder(hours=2)
    held: dict[str, list[tuple[str, str]]] = {}
    for n in range(nodes):
        node = f"n{n}"
        uuids = b.node(node, gpus=gpus + free, sku=None, name_of_gpu=gpu)
        b.nodes[-1]["node_sku"] = sku
        if "H100" not in gpu:
            for row in b.gpus:
                row["nvlink_bytes_per_second"] = None
        for uuid in uuids[:gpus]:
            b.use(values, node, uuid)
            held.setdefault(node, []).append((node, uuid))
        for port in ports:
            if (node, port.device) not in skip:
                rows(b, node, port)
        b.absences += [
            {"node": node, "scope": "source", "device": "infiniband", "metric": "*", "reason": reason, "since": START}
            for reason, holds in (("no-fabric", no_fabric), ("collector-failed", failed)) if holds
        ]  # fmt: skip
    for row in b.gpu_rows:
        row["gpu_util_n"] = 60.0
    if pods:
        for number, (node, own) in enumerate(held.items()):
            part = "master" if number == 0 else "worker"
            b.work(f"pod-{node}", own, name=f"job-{part}", series=part, scheduler="kubernetes", namespace="research")
    else:
        b.work("w", [one for own in held.values() for one in own], scheduler=scheduler)
    found = judge(b.frame(), rulebook(CATALOG)).workloads
    assert skip or len({w.bottleneck.label for w in found}) == 1
    return max((w.bottleneck for w in found), key=lambda one: one.label == "latency")


def rows(b: FrameBuilder, node: str, port: Port) -> None:
    for n in range(b.hours):
        use = {} if port.rate is None else {"util_mean": port.carries / port.rate}
        b.fabric_rows.append(
            {"node": node, "device": port.device, "port": 1.0, "role": port.role, "link_layer": port.layer,
             "ts": START + (n + 1) * HOUR, "interval_seconds": HOUR, "observed_seconds": HOUR, "active_fraction": 1.0,
             "line_rate_bytes_per_second": port.rate, "tx_bytes_per_second_mean": port.carries,
             "rx_bytes_per_second_mean": 0.9 * port.carries, **use}
        )  # fmt: skip


ALL = {**THIN, **NVLINK, **PCIE}


@pytest.mark.parametrize("pods", [False, True])
@pytest.mark.parametrize(
    ("ports", "sku"),
    [
        *(([*(ib(share, n) for n in range(8)), eth(3e6)], WITH_RDMA) for share in (0.2, 0.4, 0.68, 0.95)),
        # TCP does not fill a fast port, and clouds do not tell a virtual NIC's speed.
        *(([eth(carries, rate)], WITHOUT) for carries, rate in (
            (6e9, 100 * GBIT), (2.6e9, 100 * GBIT), (0.9e9, 10 * GBIT), (3e9, None), (6e9, 400 * GBIT))),
    ],
)  # fmt: skip
def test_a_job_whose_network_is_busy_waits_for_it(ports: list[Port], sku: str, pods: bool) -> None:
    assert label(ports, ALL, sku=sku, pods=pods).label == "network"


@pytest.mark.parametrize("pods", [False, True])
def test_launches_are_named_where_every_link_was_seen_and_quiet(pods: bool) -> None:
    quiet = label([*(ib(0.004, n) for n in range(8)), eth(3e6)], ALL, pods=pods)
    assert quiet.label == "latency" and any("nearly silent" in sentence.text for sentence in quiet.evidence)
    assert label([eth(2e7)], ALL, sku=WITHOUT, pods=pods).label == "latency"
    assert label([eth(6e6, None)], ALL, sku=WITHOUT, pods=pods).label == "latency"
    assert label([eth(2e7)], ALL, sku=None, no_fabric=True, pods=pods).label == "latency"
    assert label([eth(2e7)], ALL, sku=None, no_fabric=True, failed=True, pods=pods).label == "unknown"


@pytest.mark.parametrize(
    ("values", "more", "named"),
    [({**THIN, **NVLINK}, {}, "latency"), ({**THIN, **PCIE}, {}, "unknown"),
     ({**THIN, **PCIE}, {"gpu": "NVIDIA L40S", "sku": None}, "latency"),
     (THIN, {"gpu": "NVIDIA L40S", "sku": None}, "unknown")],
)  # fmt: skip
def test_a_job_known_to_be_on_one_node_needs_the_links_within(values, more: dict, named: str) -> None:
    assert label([], values, nodes=1, **more).label == named


@pytest.mark.parametrize(
    ("ports", "values", "sku", "says"),
    [
        ([], ALL, WITH_RDMA, "--collector.infiniband"),
        ([eth(3e6)], ALL, WITH_RDMA, "--collector.infiniband"),
        ([eth(3e6)], ALL, None, "--collector.infiniband"),
        ([ib(0.0)], ALL, WITH_RDMA, "--collector.netdev"),
        ([ib(0.0), eth(3e6)], ALL, WITH_RDMA, "counters do not move"),
        ([ib(0.004)], ALL, WITH_RDMA, "--collector.netdev"),  # what TCP carries beside it is not seen
        ([ib(0.004), eth(3e6)], {**THIN, **PCIE}, WITH_RDMA, "DCGM_FI_PROF_NVLINK_RX_BYTES"),
    ],
)
def test_what_was_not_seen_is_named(ports: list[Port], values: Mapping[str, float], sku: str | None, says: str) -> None:
    verdict = label(ports, values, sku=sku)
    assert verdict.label == "unknown" and any(says in sentence.text for sentence in verdict.evidence)


def test_between_quiet_and_busy_nothing_is_named() -> None:
    """Pipeline parallelism over two nodes of 8 H100 carries 0.0054 of the line rate on two of eight ports."""
    for share in (0.0054, 0.12):
        assert label([*(ib(share, n) for n in range(8)), eth(3e6)], ALL).label == "unknown"
