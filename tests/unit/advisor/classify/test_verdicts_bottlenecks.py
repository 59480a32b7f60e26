"""What holds a workload back, where the answer is known: late ranks, coarse samples, unmeasured SKUs, bad input."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.classify.features.assumed_efficiency import assumed
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import DECODE, FREE, HOUR, TRAINING, FrameBuilder
from skuwise.tests.support.judged_alone import alone
from skuwise.tests.support.rulebooks import rulebook

# The same work: in turns with polling, and spread evenly over the step.
POLLS = {
    **TRAINING, "sm_active": 0.93, "tensor_active": 0.3, "dram_active": 0.15, "gpu_util": 1.0,
    "nvlink_tx_bytes_per_second": 5e9, "nvlink_rx_bytes_per_second": 5e9, "tensor_nvlink_correlation": -0.1,
}  # fmt: skip
TURNS = {"tensor_active_p95": 0.7, "dram_active_p95": 0.35}
QUIET = {"nvlink_tx_bytes_per_second": 0.0, "nvlink_rx_bytes_per_second": 0.0}


def _ranks(others: Mapping[str, float], late: Mapping[str, float], extra: Mapping[str, Any],
           *, gpus: int = 8, late_ones: tuple[int, ...] = (5,), samples: float = HOUR) -> WorkloadVerdict:  # fmt: skip
    b = FrameBuilder(hours=36)
    uuids = b.node(gpus=gpus)
    for n, uuid in enumerate(uuids):
        if n in late_ones:
            b.use(late, uuid=uuid, gpu_util_n=samples)
        else:
            b.use(others, uuid=uuid, gpu_util_n=samples, **extra)
    b.work("w", [("n1", uuid) for uuid in uuids])
    return judge(b.frame(), rulebook()).workloads[0]


def test_the_rank_that_waits_least_is_the_suspect() -> None:
    verdict = _ranks(POLLS, POLLS, TURNS)
    assert verdict.bottleneck.label == "straggler"
    assert verdict.bottleneck.time_shares["straggler"] == pytest.approx(7 / 8)
    (said,) = [s for s in verdict.bottleneck.evidence if s.code == "suspect-waits-least"]
    assert "GPU 5 of n1 (GPU-n1-5)" in said.text
    assert "It waits 0 % of the time, the other GPUs 57 %" in said.text


def test_a_slow_clock_shows_the_late_rank_even_in_coarse_samples() -> None:
    """Tensor activity x clock, the work done, is alike: at half the clock the pipe is twice as busy."""
    slow = {**POLLS, "sm_clock_hertz": 0.9e9, "tensor_active": 0.6, "throttled_fraction": 1.0}
    fast = {**POLLS, "sm_clock_hertz": 1.8e9}
    verdict = _ranks(fast, slow, {}, samples=60.0)
    assert verdict.bottleneck.label == "straggler"
    assert any("SM clock of the suspect: 50 % of the other GPUs' clock" in s.text for s in verdict.bottleneck.evidence)
    assert verdict.bottleneck.confidence < 0.8


@pytest.mark.parametrize(
    ("late_ones", "late"),
    [
        ((), POLLS),  # all wait alike: a collective
        ((1, 2, 3, 5), POLLS),  # half of them: uneven work
        ((5,), {**POLLS, "tensor_active": 0.6}),  # it does twice the work: replicas, not ranks of a step
    ],
)
def test_nobody_is_suspected_without_one_late_rank(late_ones: tuple[int, ...], late: Mapping[str, float]) -> None:
    verdict = _ranks(POLLS, late, TURNS, late_ones=late_ones)
    assert verdict.bottleneck.label != "straggler"
    assert not any("suspect" in s.code for s in verdict.bottleneck.evidence)


WAITS = {**TRAINING, **QUIET, "gpu_util": 0.95, "sm_active": 0.7, "tensor_active": 0.2, "dram_active": 0.15}


@pytest.mark.parametrize("correlation", [float("nan"), -0.9])
def test_coarse_samples_are_judged_by_levels_not_by_their_correlation(correlation: float) -> None:
    over = alone(WAITS, gpu_util_n=60.0, port=0.55, tensor_fabric_correlation=correlation)
    assert over.bottleneck.label == "network"
    assert any("60 s" in s.text for s in over.bottleneck.evidence)
    under = alone(WAITS, gpu_util_n=60.0, port=0.1, tensor_fabric_correlation=correlation)
    assert under.bottleneck.label != "network"
    inside = {**WAITS, "nvlink_tx_bytes_per_second": 200e9, "nvlink_rx_bytes_per_second": 200e9}
    assert alone(inside, gpu_util_n=60.0, tensor_nvlink_correlation=correlation).bottleneck.label == "nvlink"


def test_coarse_samples_name_alternatives_where_no_level_leads() -> None:
    both = {**WAITS, "tensor_active": 0.4, "nvlink_tx_bytes_per_second": 190e9, "nvlink_rx_bytes_per_second": 190e9}
    verdict = alone(both, gpu_util_n=60.0)
    assert verdict.bottleneck.label == "unknown"
    assert any(s.code == "compute-or-link" for s in verdict.bottleneck.evidence)
    polls = {**POLLS, "tensor_active": 0.37}
    doubted = alone(polls, gpu_util_n=60.0).bottleneck
    assert doubted.label == "compute"
    assert any(s.code == "compute-or-rank" for s in doubted.evidence)
    assert alone(polls, gpu_util_n=60.0, gpus=1).bottleneck.label == "compute"


def test_a_gpu_nobody_measured_has_a_label_and_no_use_for_money() -> None:
    values = {**TRAINING, **QUIET, "sm_clock_hertz": 2.5e9}
    verdict = alone(values, gpus=1, name="NVIDIA L20")
    assert verdict.bottleneck.label == "compute"
    assert any(s.code == "efficiency-assumed" for s in verdict.bottleneck.evidence)
    assert verdict.bottleneck.confidence <= 0.8
    assert "tensor_of_sustained" not in verdict.features
    assert "u_c" in verdict.coverage.missing


def test_what_is_assumed_is_the_middle_of_what_was_measured() -> None:
    found = assumed(load_catalog().gpus.values())
    measured = [sku.achieved.bf16_gemm for sku in load_catalog().gpus.values() if sku.achieved.bf16_gemm]
    assert found.compute == pytest.approx(float(np.median(measured)))
    assert np.isnan(assumed(()).memory)


def test_training_whose_engine_rests_waits_for_its_host() -> None:
    """No busy cores, no period: demand cannot be what a training job lacks."""
    resting = {**TRAINING, **QUIET, "gpu_util": 0.3, "sm_active": 0.25, "tensor_active": 0.22, "dram_active": 0.1}
    rests = {name: value for name, value in resting.items() if not name.startswith("period")}
    work = {"command": "torchrun train.py", "scheduler": "slurm", "framework": "torchrun"}
    assert alone(rests, work=work).bottleneck.label == "host-input"
    serves = {"command": "vllm serve m", "framework": "vllm"}
    by_day = alone(rests, work=serves, wave="gpu_util")
    assert (by_day.kind.label, by_day.bottleneck.label == "host-input") == ("online-inference", False)


def test_a_service_that_rests_lacks_requests_however_busy_the_cores() -> None:
    resting = {**DECODE, **QUIET, "gpu_util": 0.3, "sm_active": 0.25, "dram_active": 0.2}
    b = FrameBuilder(hours=36)
    (uuid,) = b.node()
    b.use(resting)
    for row in b.gpu_rows:
        b.host_rows.append({"node": "n1", "ts": row["ts"], "interval_seconds": HOUR, "observed_seconds": HOUR,
                            "cpu_util_mean": 0.9, "io_wait_mean": 0.0})  # fmt: skip
    b.work("w", [("n1", uuid)], command="vllm serve m", framework="vllm")
    assert judge(b.frame(), rulebook()).workloads[0].bottleneck.label == "hbm-bandwidth"
    b.workloads[0] |= {"command": "python batch_infer.py --input shards/", "framework": None, "name": "batch-score"}
    assert judge(b.frame(), rulebook()).workloads[0].bottleneck.label == "host-input"


def test_a_small_card_at_its_rated_power_is_not_throttled() -> None:
    """An L4 draws its 72 W and runs below the specification's clock all day: that is the card, not a fault."""
    full = {**TRAINING, **QUIET, "power_watts": 69.0, "sm_clock_hertz": 1.75e9, "throttled_fraction": 0.6,
            "tensor_active": 0.7}  # fmt: skip
    assert alone(full, gpus=1, name="NVIDIA L4").bottleneck.label == "compute"
    held = {**full, "power_watts": 45.0}
    assert alone(held, gpus=1, name="NVIDIA L4").bottleneck.label == "throttled"


def test_low_occupancy_alone_is_no_launch_bound_work() -> None:
    """Large matrix products fill the SMs with few warps."""
    few = {**TRAINING, **QUIET, "tensor_active": 0.28, "sm_active": 0.9, "sm_occupancy": 0.2, "sm_clock_hertz": 1.83e9}
    assert alone(few, gpus=1).bottleneck.label != "latency"
    assert alone({**few, "sm_active": 0.3}, gpus=1).bottleneck.label == "latency"


def test_a_full_cache_is_an_overlay_not_a_label() -> None:
    b = FrameBuilder(hours=36)
    (uuid,) = b.node()
    b.use(DECODE)
    b.work("w", [("n1", uuid)])
    told = pd.DataFrame(
        {"node": "n1", "workload_id": ["w", "w", "other"], "engine": "vllm", "kv_percent": [50.0, 96.0, 99.0],
         "samples": [900.0, 100.0, 1.0], "preemptions": [0.0, 12.0, 5.0], "seconds": [9000.0, 1000.0, 10.0]}
    )  # fmt: skip
    verdict = judge(dataclasses.replace(b.frame(), serving=told), rulebook()).workloads[0].bottleneck
    assert verdict.label == "hbm-bandwidth"
    assert [s.text for s in verdict.evidence if s.code in ("kv-cache-full", "kv-cache-preempted")] == [
        "KV cache 96 % full (95th percentile, 3 h): limited by GPU memory capacity (hbm-capacity).",
        "12 requests preempted from the KV cache in 3 h: limited by GPU memory capacity (hbm-capacity).",
    ]
    roomy = told.assign(kv_percent=[50.0, 60.0, 99.0], preemptions=np.nan)
    plain = judge(dataclasses.replace(b.frame(), serving=roomy), rulebook()).workloads[0].bottleneck
    assert not any("hbm-capacity" in s.text for s in plain.evidence)


# Bad input: what is taken away or wrong, and the labels that may still be given.
@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ({k: v for k, v in TRAINING.items() if k not in ("sm_active", "sm_occupancy")}, {"compute"}),
        ({k: v for k, v in TRAINING.items() if "nvlink" not in k}, {"compute"}),
        ({k: TRAINING[k] for k in ("gpu_util", "mem_used_bytes")}, {"unknown"}),
        ({k: v * 1.4 for k, v in TRAINING.items()}, {"compute", "unknown"}),  # MIG above 100 %
        (dict.fromkeys(TRAINING, float("nan")), {"unknown"}),
        ({**FREE, "power_watts": 500.0}, {"unknown"}),  # contradicts itself: a fault, never idle
    ],
)  # fmt: skip
@pytest.mark.parametrize("samples", [HOUR, float("nan")])
def test_bad_input_neither_crashes_nor_invents(values: Mapping[str, float], allowed: set[str], samples: float) -> None:
    verdict = alone(values, gpu_util_n=samples)
    assert verdict.bottleneck.label in allowed
    assert verdict.bottleneck.evidence
    assert 0 <= verdict.bottleneck.confidence <= 0.99
