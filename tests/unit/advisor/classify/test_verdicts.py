"""Verdicts on small frames whose answer is known, and on bad ones; waiting for a network or for launches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.verdict_types import BottleneckVerdict
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, START, TRAINING, FrameBuilder, alone, at_work
from skuwise.tests.support.moves_builders import advice_of
from skuwise.tests.support.rulebooks import rulebook


def test_training_and_compute() -> None:
    verdict = alone(TRAINING, hours=96)
    assert (verdict.kind.label, verdict.bottleneck.label) == ("training", "compute")
    assert verdict.gpu_hours == pytest.approx(2 * 96) and verdict.cost_usd is None
    assert sum(verdict.bottleneck.time_shares.values()) == pytest.approx(1)
    assert any("Step of 8 s repeats" in sentence.text for sentence in verdict.kind.evidence)


def test_decode_follows_the_day_and_is_bound_by_memory() -> None:
    verdict = alone(DECODE, hours=120, wave="tensor_active")
    assert (verdict.kind.label, verdict.bottleneck.label) == ("online-inference", "hbm-bandwidth")
    assert verdict.features["diurnal_share"] > 0.8 and verdict.features["mem_flat"] == 1.0


@pytest.mark.parametrize(("moved", "kind"), [(0.0, "hand-made"), (1e6, "hand-made"), (0.0, "sqlite")])
def test_nvlink_counters_of_a_server_that_never_moved_tell_nothing(moved: float, kind: str) -> None:
    b = FrameBuilder(hours=48)
    for n, uuid in enumerate(b.node(gpus=2)):
        b.use({**DECODE, "nvlink_tx_bytes_per_second": moved * n, "nvlink_rx_bytes_per_second": moved * n}, uuid=uuid)
    (node,) = judge(replace(b.frame(), source={"kind": kind}), rulebook()).nodes
    assert (node.nvlink_util_p995 is None) == (moved == 0 and kind != "sqlite")


def test_a_counter_stuck_at_zero_is_no_kind_of_work_and_is_named() -> None:
    b = FrameBuilder(hours=48)
    stuck, busy = b.node(gpus=2, sku=None, name_of_gpu="NVIDIA GB10")
    for row in b.gpus:
        row["power_limit_watts"] = None
    b.use({"gpu_util": 0.0, "power_watts": 52.0}, uuid=stuck)
    b.use({"gpu_util": 0.7, "power_watts": 54.0}, uuid=busy)
    b.work("w", [("n1", stuck)])
    given = b.judged()
    (kind,) = (w.kind for w in given.workloads)
    assert (kind.label, [reason.code for reason in kind.evidence]) == ("unknown", ["zero-not-confirmed"])
    assert [n.nodes for n in advice_of(given).not_judged if n.reason.code == "zero-not-confirmed"] == [("n1",)]


def test_free_gpus_are_bare_and_held_ones_idle_workloads() -> None:
    b = FrameBuilder(hours=48)
    free, held = b.node(gpus=2)
    b.use(FREE, uuid=free)
    b.use(HELD, uuid=held)
    b.work("left", [("n1", held)])
    verdicts = b.judged()
    (workload,) = verdicts.workloads
    assert (workload.kind.label, workload.bottleneck.label) == ("idle", "idle")
    (bare,) = verdicts.bare
    assert bare.gpu_uuid == free and bare.idle_hours == pytest.approx(48) and bare.idle_power_watts == pytest.approx(70)
    assert bare.telemetry_fault is None


def test_an_unknown_gpu_limits_the_advice_and_says_so() -> None:
    verdicts = at_work(TRAINING, name="NVIDIA X9000").judged()
    verdict = verdicts.workloads[0]
    assert verdict.gpu_sku is None and "X9000" in verdict.coverage.missing["sku"]
    assert any("X9000" in note.text for note in verdicts.notes)


def test_without_profiling_counters_nothing_is_invented() -> None:
    names = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active")
    b = at_work({name: value for name, value in TRAINING.items() if name not in names})
    b.absences.append(
        {"node": "n1", "gpu_uuid": "GPU-n1-0", "scope": "gpu", "metric": "tensor_active", "reason": "not-supported",
         "detail": "This GPU has no GPM.", "since": START}
    )  # fmt: skip
    verdict = b.judged().workloads[0]
    assert verdict.coverage.missing["tensor_active"] == "This GPU has no GPM."
    assert "no reason recorded" in verdict.coverage.missing["dram_active"] and verdict.bottleneck.label == "unknown"
    assert any("This GPU has no GPM." in sentence.text for sentence in verdict.bottleneck.evidence)
    assert "hbm_of_sustained" not in verdict.features


def test_an_empty_frame_has_nodes_without_hours() -> None:
    b = FrameBuilder(hours=4)
    b.node()
    verdicts = b.judged()
    assert verdicts.workloads == () and verdicts.bare == () and verdicts.occupancy["class"].tolist() == ["unobserved"]
    assert float(verdicts.occupancy["gpu_hours"].sum()) == pytest.approx(4)


@pytest.mark.parametrize(("hours", "ready"), [(12, False), (31, True)])
def test_below_the_floor_no_waste_is_judged(hours: int, ready: bool) -> None:
    assert at_work(TRAINING, hours=hours).judged().waste_ready == {"w": ready}


# The bottleneck's questions, one by one: what differs from training, and the answer.
LINKS = ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second")
QUIET = dict.fromkeys(LINKS, 0.0)
LOW = {"tensor_active": 0.2, "dram_active": 0.15}
CASES: list[tuple[str, Mapping[str, float]]] = [
    ("compute", {}),
    ("hbm-bandwidth", {"tensor_active": 0.2, "dram_active": 0.7}),
    ("mixed", {"tensor_active": 0.45, "dram_active": 0.45}),
    ("throttled", {"throttled_fraction": 0.5, "sm_clock_hertz": 1.4e9}),
    ("nvlink", {**LOW, LINKS[0]: 400e9, "tensor_nvlink_correlation": -0.7}),
    ("pcie", {**LOW, **QUIET, "sm_active": 0.3, "pcie_rx_bytes_per_second": 55e9}),
    ("host-input", {**LOW, **dict.fromkeys(LINKS, 1e9), "gpu_util": 0.4, "sm_active": 0.35, "dram_active": 0.1}),
    ("straggler", {**QUIET, "gpu_util": 1.0, "sm_active": 0.95, "tensor_active": 0.0, "dram_active": 0.02}),
    ("latency", {**LOW, **QUIET, "gpu_util": 0.95, "sm_active": 0.3, "sm_occupancy": 0.1, "tensor_active": 0.05}),
]


@pytest.mark.parametrize(("label", "changes"), CASES, ids=[label for label, _ in CASES])
def test_each_question_has_its_answer(label: str, changes: Mapping[str, float]) -> None:
    # A job of Slurm is on the nodes that it names: one, so that no port between nodes matters.
    verdict = alone({**TRAINING, **changes}, work={"scheduler": "slurm"})
    assert verdict.bottleneck.label == label and verdict.bottleneck.time_shares[label] == pytest.approx(1)
    assert verdict.bottleneck.evidence and 0 < verdict.bottleneck.confidence <= 0.99


def test_idle_hours_of_a_busy_service_are_not_its_bottleneck() -> None:
    b = at_work(FREE, end=30)
    b.use(DECODE, start=30)
    verdict = b.judged().workloads[0]
    assert verdict.bottleneck.label == "hbm-bandwidth"
    assert verdict.bottleneck.time_shares["idle"] == pytest.approx(30 / 48, abs=0.001)
    assert verdict.phases[-1].bottleneck == "hbm-bandwidth"


def test_a_silent_fabric_is_readable_and_bounded_from_above_and_one_that_is_down_is_not() -> None:
    b = FrameBuilder(hours=48)
    b.port(0.0)
    b.port(0.9, device="eth0", role="storage")
    b.port(None, "n2", active=0.0)
    for node in ("n1", "n2"):
        b.node(node)
        b.use(DECODE, node, f"GPU-{node}-0")
    fabric, down = (node.fabric for node in b.judged().nodes)
    assert fabric is not None and fabric.readable and fabric.last_active_ts is None
    assert fabric.util_p995 == pytest.approx(0.0005) and fabric.hours == pytest.approx(48)
    assert fabric.ports_compute == ("mlx5_0/1",)
    assert down is not None and (down.readable, down.util_p995) == (False, None)
    assert "was ACTIVE only" in (down.reason or "")


NODES = ("n0", "n1")
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


def port(carries: float, rate: float | None, layer: str) -> dict[str, object]:
    """What the rows of a port of every node say. `rate`: line rate, bytes per second; None: unknown."""
    return {"link_layer": layer, "line_rate_bytes_per_second": rate, "tx_bytes_per_second_mean": carries,
            "rx_bytes_per_second_mean": 0.9 * carries, "util_mean": rate and carries / rate}  # fmt: skip


def ib(share: float, number: int = 0) -> dict[str, object]:
    return port(share * 400 * GBIT, 400 * GBIT, "InfiniBand") | {"device": f"mlx5_{number}", "role": "compute"}


def eth(carries: float, rate: float | None = 100 * GBIT) -> dict[str, object]:
    return port(carries, rate, "Ethernet") | {"device": "eth0", "role": "unknown"}


def label(
    ports: Sequence[dict], values: Mapping[str, float], *, nodes: int = 2, sku: str | None = WITH_RDMA,
    gpu: str = "NVIDIA H100 80GB HBM3", pods: bool = False, absent: Sequence[str] = (),
) -> BottleneckVerdict:  # fmt: skip
    """The verdict on a job over `nodes`, seen a minute at a time. `absent`: reasons why there is no fabric's data."""
    b = FrameBuilder(hours=2)
    held = {node: [(node, uuid) for uuid in b.node(node, 8, None, gpu)] for node in NODES[:nodes]}
    for row in b.nodes:
        row["node_sku"] = sku
    if "H100" not in gpu:
        for row in b.gpus:
            row["nvlink_bytes_per_second"] = None
    for node, holding in held.items():
        for _, uuid in holding:
            b.use(values, node, uuid, gpu_util_n=60.0)
        for columns in ports:
            b.port(None, node)
            b.fabric_rows[-b.hours :] = [row | columns for row in b.fabric_rows[-b.hours :]]
        for reason in absent:
            b.absences.append({"node": node, "scope": "source", "device": "infiniband", "metric": "*",
                               "reason": reason, "since": START})  # fmt: skip
        if pods:
            part = "master" if node == NODES[0] else "worker"
            b.work(f"pod-{node}", holding, name=f"job-{part}", series=part, scheduler="kubernetes", namespace="ml")
        else:
            b.work("w", holding, scheduler="slurm")
    first, *others = (w.bottleneck for w in b.judged().workloads)
    assert all(limit.label == first.label for limit in others)
    return first


ALL = {**THIN, **NVLINK, **PCIE}


@pytest.mark.parametrize("pods", [False, True])
@pytest.mark.parametrize(
    ("ports", "sku"),
    [
        *(([*(ib(share, n) for n in range(8)), eth(3e6)], WITH_RDMA) for share in (0.2, 0.4, 0.68, 0.95)),
        # TCP does not fill a fast port, and clouds do not show a virtual NIC's speed.
        *(([eth(carries, rate)], WITHOUT) for carries, rate in (
            (6e9, 100 * GBIT), (2.6e9, 100 * GBIT), (0.9e9, 10 * GBIT), (3e9, None), (6e9, 400 * GBIT))),
    ],
)  # fmt: skip
def test_a_job_whose_network_is_busy_waits_for_it(ports, sku: str, pods: bool) -> None:
    assert label(ports, ALL, sku=sku, pods=pods).label == "network"


@pytest.mark.parametrize("pods", [False, True])
def test_launches_are_named_where_every_link_was_seen_and_quiet(pods: bool) -> None:
    quiet = label([*(ib(0.004, n) for n in range(8)), eth(3e6)], ALL, pods=pods)
    assert quiet.label == "latency" and any("nearly silent" in sentence.text for sentence in quiet.evidence)
    assert all(label([slow], ALL, sku=WITHOUT, pods=pods).label == "latency" for slow in (eth(2e7), eth(6e6, None)))
    assert label([eth(2e7)], ALL, sku=None, absent=["no-fabric"], pods=pods).label == "latency"
    failed = ["no-fabric", "collector-failed"]
    assert label([eth(2e7)], ALL, sku=None, absent=failed, pods=pods).label == "unknown"


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
def test_what_was_not_seen_is_named(ports, values: Mapping[str, float], sku: str | None, says: str) -> None:
    verdict = label(ports, values, sku=sku)
    assert verdict.label == "unknown" and any(says in sentence.text for sentence in verdict.evidence)


def test_between_quiet_and_busy_nothing_is_named() -> None:
    """Pipeline parallelism over two nodes of 8 H100 carries 0.0054 of the line rate on two of eight ports."""
    for share in (0.0054, 0.12):
        assert label([*(ib(share, n) for n in range(8)), eth(3e6)], ALL).label == "unknown"
