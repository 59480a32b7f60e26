"""Verdicts on small frames whose answer is known, and on bad ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.verdicts.judge import Verdicts, judge
from skuwise.agent.metrics import BIN_EDGES
from skuwise.rules.catalog.loader import Catalog, load_catalog
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, HOUR, START, TRAINING, FrameBuilder, bins_at
from skuwise.tests.support.rulebooks import rulebook


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def _one(
    catalog: Catalog,
    values: Mapping[str, float],
    *,
    hours: int = 96,
    gpus: int = 2,
    work: object = None,
    **extra: object,
) -> WorkloadVerdict:
    return _judged(catalog, values, hours=hours, gpus=gpus, work=work, **extra).workloads[0]


def _judged(
    catalog: Catalog,
    values: Mapping[str, float],
    *,
    hours: int = 96,
    gpus: int = 2,
    work: object = None,
    **extra: object,
) -> Verdicts:
    b = FrameBuilder(hours=hours)
    uuids = b.node(gpus=gpus)
    for uuid in uuids:
        b.use(values, uuid=uuid, **extra)  # type: ignore[arg-type]
    b.work("w", [("n1", uuid) for uuid in uuids], **(work if isinstance(work, dict) else {}))
    return judge(b.frame(), rulebook(catalog))


def test_training_and_compute(catalog: Catalog) -> None:
    verdict = _one(catalog, TRAINING)
    assert (verdict.kind.label, verdict.bottleneck.label) == ("training", "compute")
    assert verdict.gpu_hours == pytest.approx(2 * 96)
    assert verdict.cost_usd is None
    assert sum(verdict.bottleneck.time_shares.values()) == pytest.approx(1)
    assert any("Step of 8 s repeats" in sentence.text for sentence in verdict.kind.evidence)


def test_decode_follows_the_day_and_is_bound_by_memory(catalog: Catalog) -> None:
    verdict = _one(catalog, DECODE, hours=120, wave="tensor_active")
    assert (verdict.kind.label, verdict.bottleneck.label) == ("online-inference", "hbm-bandwidth")
    assert verdict.features["diurnal_share"] > 0.8
    assert verdict.features["mem_flat"] == 1.0


def test_fine_tuning_by_command_and_by_length(catalog: Catalog) -> None:
    named = _one(catalog, TRAINING, hours=12, work={"command": "torchrun sft.py --lora"})
    assert named.kind.label == "fine-tuning"
    ended = _one(catalog, TRAINING, hours=30, work={"end": 11})
    assert ended.kind.label == "fine-tuning"


def test_contradictory_evidence_abstains_and_names_alternatives(catalog: Catalog) -> None:
    busy = {**FREE, "gpu_util": 0.9, "sm_active": 0.6, "tensor_active": 0.3, "dram_active": 0.3, "power_watts": 400.0}
    verdict = _one(catalog, busy, hours=2, gpus=1)
    assert verdict.kind.label == "unknown"
    assert verdict.kind.alternatives
    assert verdict.kind.confidence < 0.6


def test_free_gpus_are_bare_and_held_ones_idle_workloads(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    free, held = b.node(gpus=2)
    b.use(FREE, uuid=free)
    b.use(HELD, uuid=held)
    b.work("left", [("n1", held)])
    verdicts = judge(b.frame(), rulebook(catalog))
    (workload,) = verdicts.workloads
    assert (workload.kind.label, workload.bottleneck.label) == ("idle", "idle")
    assert any(sentence.code == "stood-idle-and-held" for sentence in workload.kind.evidence)
    (bare,) = verdicts.bare
    assert bare.gpu_uuid == free
    assert bare.idle_hours == pytest.approx(48)
    assert bare.idle_power_watts == pytest.approx(70)
    assert bare.telemetry_fault is None
    classes = verdicts.occupancy.groupby("class")["gpu_hours"].sum()
    assert classes["allocated_idle"] == pytest.approx(48)
    assert classes["unallocated"] == pytest.approx(48)


def test_power_without_activity_is_a_telemetry_fault_and_never_idle(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    (uuid,) = b.node()
    b.use({**FREE, "power_watts": 500.0})
    b.work("w", [("n1", uuid)])
    verdict = judge(b.frame(), rulebook(catalog)).workloads[0]
    assert verdict.kind.label != "idle"
    assert verdict.bottleneck.label == "unknown"
    assert verdict.kind.evidence[0].code == "telemetry-faulty"
    bare = FrameBuilder(hours=48)
    bare.node()
    bare.use({**FREE, "power_watts": 500.0})
    (gpu,) = judge(bare.frame(), rulebook(catalog)).bare
    assert gpu.idle_hours == 0
    assert gpu.telemetry_fault is not None


def test_an_unknown_gpu_limits_the_advice_and_says_so(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    (uuid,) = b.node(sku=None, name_of_gpu="NVIDIA X9000")
    b.use(TRAINING)
    b.work("w", [("n1", uuid)])
    verdicts = judge(b.frame(), rulebook(catalog))
    verdict = verdicts.workloads[0]
    assert verdict.gpu_sku is None
    assert "X9000" in verdict.coverage.missing["sku"]
    assert verdict.bottleneck.label == "unknown"
    assert "tensor_of_sustained" not in verdict.features
    assert any("X9000" in note.text for note in verdicts.notes)


def test_without_profiling_counters_nothing_is_invented(catalog: Catalog) -> None:
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
    verdict = judge(b.frame(), rulebook(catalog)).workloads[0]
    assert verdict.coverage.missing["tensor_active"] == "This GPU has no GPM."
    assert "no reason recorded" in verdict.coverage.missing["dram_active"]
    assert verdict.bottleneck.label == "unknown"
    assert any("This GPU has no GPM." in sentence.text for sentence in verdict.bottleneck.evidence)
    assert "hbm_of_sustained" not in verdict.features


def test_an_empty_frame_has_nodes_without_hours(catalog: Catalog) -> None:
    b = FrameBuilder(hours=4)
    b.node()
    verdicts = judge(b.frame(), rulebook(catalog))
    assert verdicts.workloads == ()
    assert verdicts.bare == ()
    assert verdicts.occupancy["class"].tolist() == ["unobserved"]
    assert float(verdicts.occupancy["gpu_hours"].sum()) == pytest.approx(4)


def test_below_the_floor_no_waste_and_the_text_says_from_when(catalog: Catalog) -> None:
    verdicts = _judged(catalog, TRAINING, hours=12)
    assert verdicts.waste_ready == {"w": False}
    assert any("30 h, reached at 20" in sentence.text for sentence in verdicts.workloads[0].kind.evidence)
    assert _judged(catalog, TRAINING, hours=31).waste_ready == {"w": True}


# The bottleneck's questions, one by one: what differs from training, and the answer.
CASES: list[tuple[str, Mapping[str, float]]] = [
    ("compute", {}),
    ("hbm-bandwidth", {"tensor_active": 0.2, "dram_active": 0.7}),
    ("mixed", {"tensor_active": 0.45, "dram_active": 0.45}),
    ("throttled", {"throttled_fraction": 0.5, "sm_clock_hertz": 1.4e9}),
    (
        "nvlink",
        {"tensor_active": 0.2, "dram_active": 0.15, "nvlink_tx_bytes_per_second": 400e9,
         "tensor_nvlink_correlation": -0.7},
    ),
    (
        "pcie",
        {"tensor_active": 0.2, "dram_active": 0.15, "sm_active": 0.3, "pcie_rx_bytes_per_second": 55e9,
         "nvlink_tx_bytes_per_second": 0.0, "nvlink_rx_bytes_per_second": 0.0},
    ),
    (
        "host-input",
        {"gpu_util": 0.4, "sm_active": 0.35, "tensor_active": 0.2, "dram_active": 0.1,
         "nvlink_tx_bytes_per_second": 1e9, "nvlink_rx_bytes_per_second": 1e9},
    ),
    (
        "straggler",
        {"gpu_util": 1.0, "sm_active": 0.95, "tensor_active": 0.0, "dram_active": 0.02,
         "nvlink_tx_bytes_per_second": 0.0, "nvlink_rx_bytes_per_second": 0.0},
    ),
    (
        "latency",
        {"gpu_util": 0.95, "sm_active": 0.3, "sm_occupancy": 0.1, "tensor_active": 0.05, "dram_active": 0.15,
         "nvlink_tx_bytes_per_second": 0.0, "nvlink_rx_bytes_per_second": 0.0},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("label", "changes"), CASES, ids=[label for label, _ in CASES])
def test_each_question_has_its_answer(catalog: Catalog, label: str, changes: Mapping[str, float]) -> None:
    # A job of Slurm is on the nodes that it names: one, so that no port between nodes matters.
    verdict = _one(catalog, {**TRAINING, **changes}, hours=36, work={"scheduler": "slurm"})
    assert verdict.bottleneck.label == label
    assert verdict.bottleneck.time_shares[label] == pytest.approx(1)
    assert verdict.bottleneck.evidence
    assert 0 < verdict.bottleneck.confidence <= 0.99


def _network(catalog: Catalog, bins: np.ndarray, correlation: float) -> Verdicts:
    b = FrameBuilder(hours=36)
    gpus = [(n, u) for n in ("n1", "n2") for u in b.node(n, 1)]
    slow = {**TRAINING, "tensor_active": 0.2, "dram_active": 0.1, "tensor_fabric_correlation": correlation}
    for node, uuid in gpus:
        b.use(slow, node, uuid)
        b.port(0.5, node, bins=bins)
    b.work("w", gpus)
    return judge(b.frame(), rulebook(catalog))


def test_the_network_binds_where_it_is_busy_and_compute_falls_meanwhile(catalog: Catalog) -> None:
    half = np.zeros(len(BIN_EDGES))
    half[0], half[-3] = 1800.0, 1800.0
    verdict = _network(catalog, half, -0.8).workloads[0]
    assert verdict.bottleneck.label == "network"
    assert verdict.kind.label == "training"
    assert any("correlation -0.80" in sentence.text for sentence in verdict.bottleneck.evidence)
    overlapped = _network(catalog, half, 0.4).workloads[0]
    assert overlapped.bottleneck.label != "network"


def test_idle_hours_of_a_busy_service_are_not_its_bottleneck(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    (uuid,) = b.node()
    b.use(FREE, end=30)
    b.use(DECODE, start=30)
    b.work("w", [("n1", uuid)])
    verdict = judge(b.frame(), rulebook(catalog)).workloads[0]
    assert verdict.bottleneck.label == "hbm-bandwidth"
    assert verdict.bottleneck.time_shares["idle"] == pytest.approx(30 / 48, abs=0.001)
    assert verdict.phases[-1].bottleneck == "hbm-bandwidth"


def test_no_single_limit_is_called_mixed(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    (uuid,) = b.node()
    for n, label in enumerate(("compute", "hbm-bandwidth", "latency", "throttled")):
        b.use({**TRAINING, **dict(CASES)[label]}, start=12 * n, end=12 * (n + 1))
    b.work("w", [("n1", uuid)])
    verdict = judge(b.frame(), rulebook(catalog)).workloads[0]
    assert verdict.bottleneck.label == "mixed"
    assert len(verdict.bottleneck.time_shares) == 4


def _with_port(catalog: Catalog, build: FrameBuilder) -> Verdicts:
    build.node()
    build.use(DECODE)
    return judge(build.frame(), rulebook(catalog))


def test_a_silent_fabric_is_readable_and_bounded_from_above(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    b.port(0.0)
    b.port(0.9, device="eth0", role="storage")
    fabric = _with_port(catalog, b).nodes[0].fabric
    assert fabric is not None
    assert fabric.readable
    assert fabric.util_p995 == pytest.approx(0.0005)
    assert (fabric.ports_compute, fabric.ports_other) == (("mlx5_0/1",), ("eth0/1",))
    assert fabric.last_active_ts is None
    assert fabric.hours == pytest.approx(48)


def test_rare_traffic_is_seen_at_the_high_percentile(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    bins = bins_at(0.0, 3600 * 0.99)
    assert bins is not None
    bins[-2] = 36.0
    b.port(0.01, bins=bins)
    fabric = _with_port(catalog, b).nodes[0].fabric
    assert fabric is not None
    assert fabric.util_p995 == pytest.approx(1.0)
    assert fabric.last_active_ts == START + 48 * HOUR


def test_a_fabric_that_is_down_is_not_silent(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    b.port(None, active=0.0)
    fabric = _with_port(catalog, b).nodes[0].fabric
    assert fabric is not None
    assert not fabric.readable
    assert fabric.util_p995 is None
    assert "was ACTIVE only" in (fabric.reason or "")


def test_a_fabric_without_counters_or_without_known_role_is_not_judged(catalog: Catalog) -> None:
    unread = FrameBuilder(hours=4)
    unread.port(None)
    fabric = _with_port(catalog, unread).nodes[0].fabric
    assert fabric is not None
    assert not fabric.readable
    assert "No counters available" in (fabric.reason or "")
    unknown = FrameBuilder(hours=4)
    unknown.port(0.0, role="unknown")
    fabric = _with_port(catalog, unknown).nodes[0].fabric
    assert fabric is not None
    assert not fabric.readable
    assert "fabric_roles" in (fabric.reason or "")


def test_a_notebook_is_interactive(catalog: Catalog) -> None:
    b = FrameBuilder(hours=96)
    (uuid,) = b.node()
    cell = {**FREE, "gpu_util": 0.08, "sm_active": 0.05, "tensor_active": 0.02, "dram_active": 0.03,
            "power_watts": 130.0, "duty": 0.08}  # fmt: skip
    rest = {**FREE, "power_watts": 100.0, "duty": 0.0}
    # A person begins when they begin, pauses when they pause, and holds what the last cell left.
    hours = ((9, 10, 11, 14, 15, 16), (10, 11, 13, 14), (8, 9, 10, 13, 16, 17, 18), (11, 12, 15))
    at_work = [hour % 24 in hours[hour // 24] for hour in range(96)]
    each = {
        f"{name}_mean": [(cell if works else rest)[name] * (1 + hour % 7 / 50) for hour, works in enumerate(at_work)]
        for name in ("gpu_util", "sm_active", "tensor_active", "dram_active", "power_watts")
    }
    memory = [
        9e9 * (1 + hour // 24 % 3 * 0.5 + (0.1 * (hour % 5) if works else 0.0)) for hour, works in enumerate(at_work)
    ]
    each |= {f"mem_used_bytes_{column}": memory for column in ("mean", "p95", "max")}
    top = {"gpu_util_p95": [0.9 if w else 0.0 for w in at_work], "gpu_util_max": [1.0 if w else 0.0 for w in at_work]}
    b.use({**rest, "duty": 0.02}, **each, **top)  # type: ignore[arg-type]
    b.work("w", [("n1", uuid)])
    verdict = judge(b.frame(), rulebook(catalog)).workloads[0]
    assert verdict.features["active_share"] == pytest.approx(20 / 96)
    assert verdict.kind.label == "interactive"
    assert any(sentence.code == "shape-seldom-busy" for sentence in verdict.kind.evidence)
