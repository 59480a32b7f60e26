"""Verdicts on small frames whose answer is known, and on bad ones."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, START, TRAINING, FrameBuilder
from skuwise.tests.support.judged_alone import alone
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
    given = judge(b.frame(), rulebook())
    (kind,) = (w.kind for w in given.workloads)
    assert (kind.label, [one.code for one in kind.evidence]) == ("unknown", ["zero-not-confirmed"])
    assert [n.fields["nodes"] for n in advice_of(given).notes if n.code == "held-idle-not-judged"] == ["n1"]


def test_free_gpus_are_bare_and_held_ones_idle_workloads() -> None:
    b = FrameBuilder(hours=48)
    free, held = b.node(gpus=2)
    b.use(FREE, uuid=free)
    b.use(HELD, uuid=held)
    b.work("left", [("n1", held)])
    verdicts = judge(b.frame(), rulebook())
    (workload,) = verdicts.workloads
    assert (workload.kind.label, workload.bottleneck.label) == ("idle", "idle")
    assert any(sentence.code == "stood-idle-and-held" for sentence in workload.kind.evidence)
    (bare,) = verdicts.bare
    assert bare.gpu_uuid == free and bare.idle_hours == pytest.approx(48) and bare.idle_power_watts == pytest.approx(70)
    assert bare.telemetry_fault is None
    classes = verdicts.occupancy.groupby("class")["gpu_hours"].sum()
    assert classes["allocated_idle"] == pytest.approx(48) and classes["unallocated"] == pytest.approx(48)


def test_an_unknown_gpu_limits_the_advice_and_says_so() -> None:
    b = FrameBuilder(hours=48)
    (uuid,) = b.node(sku=None, name_of_gpu="NVIDIA X9000")
    b.use(TRAINING)
    b.work("w", [("n1", uuid)])
    verdicts = judge(b.frame(), rulebook())
    verdict = verdicts.workloads[0]
    assert verdict.gpu_sku is None and "X9000" in verdict.coverage.missing["sku"]
    assert verdict.bottleneck.label == "compute"  # activity is a share of what any GPU has
    assert "tensor_of_sustained" not in verdict.features and any("X9000" in note.text for note in verdicts.notes)


def test_without_profiling_counters_nothing_is_invented() -> None:
    names = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active")
    values = {name: value for name, value in TRAINING.items() if name not in names}
    b = FrameBuilder(hours=48)
    (uuid,) = b.node()
    b.use(values)
    b.work("w", [("n1", uuid)])
    b.absences.append(
        {"node": "n1", "gpu_uuid": uuid, "scope": "gpu", "metric": "tensor_active", "reason": "not-supported",
         "detail": "This GPU has no GPM.", "since": START}
    )  # fmt: skip
    verdict = judge(b.frame(), rulebook()).workloads[0]
    assert verdict.coverage.missing["tensor_active"] == "This GPU has no GPM."
    assert "no reason recorded" in verdict.coverage.missing["dram_active"] and verdict.bottleneck.label == "unknown"
    assert any("This GPU has no GPM." in sentence.text for sentence in verdict.bottleneck.evidence)
    assert "hbm_of_sustained" not in verdict.features


def test_an_empty_frame_has_nodes_without_hours() -> None:
    b = FrameBuilder(hours=4)
    b.node()
    verdicts = judge(b.frame(), rulebook())
    assert verdicts.workloads == () and verdicts.bare == () and verdicts.occupancy["class"].tolist() == ["unobserved"]
    assert float(verdicts.occupancy["gpu_hours"].sum()) == pytest.approx(4)


@pytest.mark.parametrize(("hours", "ready"), [(12, False), (31, True)])
def test_below_the_floor_no_waste_and_the_text_says_from_when(hours: int, ready: bool) -> None:
    b = FrameBuilder(hours=hours)
    b.node()
    b.use(TRAINING)
    b.work("w", [("n1", "GPU-n1-0")])
    verdicts = judge(b.frame(), rulebook())
    assert verdicts.waste_ready == {"w": ready}
    told = [one.text for one in verdicts.workloads[0].kind.evidence]
    assert any("30 h, reached at 20" in text for text in told) is not ready


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
    b = FrameBuilder(hours=48)
    (uuid,) = b.node()
    b.use(FREE, end=30)
    b.use(DECODE, start=30)
    b.work("w", [("n1", uuid)])
    verdict = judge(b.frame(), rulebook()).workloads[0]
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
    fabric, down = (node.fabric for node in judge(b.frame(), rulebook()).nodes)
    assert fabric is not None and fabric.readable and fabric.last_active_ts is None
    assert fabric.util_p995 == pytest.approx(0.0005) and fabric.hours == pytest.approx(48)
    assert fabric.ports_compute == ("mlx5_0/1",)
    assert down is not None and (down.readable, down.util_p995) == (False, None)
    assert "was ACTIVE only" in (down.reason or "")
