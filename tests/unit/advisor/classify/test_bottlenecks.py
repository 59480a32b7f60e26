"""What holds a workload back, where the answer is known; the evidence, and labels that do not flicker."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.classify.bottlenecks.bottlenecks import Courses, courses, latched, settled
from skuwise.advisor.classify.bottlenecks.evidence import signatures
from skuwise.advisor.classify.features.course import PieceRows, RowTables
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.column_rows import columns_of
from skuwise.advisor.core.segments import Segments
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.tests.support.frame_builder import DECODE, FREE, HOUR, TRAINING, FrameBuilder, alone, at_work
from skuwise.tests.support.rulebooks import rulebook

# The same work: in turns with polling, and spread evenly over the step.
POLLS = {
    **TRAINING, "sm_active": 0.93, "tensor_active": 0.3, "dram_active": 0.15, "gpu_util": 1.0,
    "nvlink_tx_bytes_per_second": 5e9, "nvlink_rx_bytes_per_second": 5e9, "tensor_nvlink_correlation": -0.1,
}  # fmt: skip
TURNS = {"tensor_active_p95": 0.7, "dram_active_p95": 0.35}
QUIET = {"nvlink_tx_bytes_per_second": 0.0, "nvlink_rx_bytes_per_second": 0.0}


def _ranks(others: Mapping[str, float], late: Mapping[str, float], extra: Mapping[str, Any],
           *, late_ones: tuple[int, ...] = (5,), samples: float = HOUR) -> WorkloadVerdict:  # fmt: skip
    b = FrameBuilder(hours=36)
    uuids = b.node(gpus=8)
    for n, uuid in enumerate(uuids):
        b.use(late if n in late_ones else others, uuid=uuid, gpu_util_n=samples, **({} if n in late_ones else extra))
    b.work("w", [("n1", uuid) for uuid in uuids])
    return b.judged().workloads[0]


def test_the_rank_that_waits_least_is_the_suspect() -> None:
    verdict = _ranks(POLLS, POLLS, TURNS)
    assert verdict.bottleneck.label == "straggler"
    assert verdict.bottleneck.time_shares["straggler"] == pytest.approx(7 / 8)
    (said,) = [s for s in verdict.bottleneck.evidence if s.code == "suspect-waits-least"]
    assert "GPU 5 of n1 (GPU-n1-5)" in said.text and "It waits 0 % of the time, the other GPUs 57 %" in said.text


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
    assert verdict.bottleneck.label != "straggler" and not any("suspect" in s.code for s in verdict.bottleneck.evidence)


WAITS = {**TRAINING, **QUIET, "gpu_util": 0.95, "sm_active": 0.7, "tensor_active": 0.2, "dram_active": 0.15}


@pytest.mark.parametrize("correlation", [float("nan"), -0.9])
def test_coarse_samples_are_judged_by_levels_not_by_their_correlation(correlation: float) -> None:
    over, under = (
        alone(WAITS, gpu_util_n=60.0, port=use, tensor_fabric_correlation=correlation).bottleneck for use in (0.55, 0.1)
    )
    assert over.label == "network" != under.label and any("60 s" in s.text for s in over.evidence)
    inside = {**WAITS, "nvlink_tx_bytes_per_second": 200e9, "nvlink_rx_bytes_per_second": 200e9}
    assert alone(inside, gpu_util_n=60.0, tensor_nvlink_correlation=correlation).bottleneck.label == "nvlink"


def test_coarse_samples_name_nothing_where_no_level_leads() -> None:
    both = {**WAITS, "tensor_active": 0.4, "nvlink_tx_bytes_per_second": 190e9, "nvlink_rx_bytes_per_second": 190e9}
    assert alone(both, gpu_util_n=60.0).bottleneck.label == "unknown"
    polls = {**POLLS, "tensor_active": 0.37}
    assert {alone(polls, gpu_util_n=60.0, gpus=n).bottleneck.label for n in (1, 2)} == {"compute"}


def test_a_service_that_rests_lacks_requests_however_busy_the_cores() -> None:
    resting = {**DECODE, **QUIET, "gpu_util": 0.3, "sm_active": 0.25, "dram_active": 0.2}
    batch = {"command": "python batch_infer.py --input shards/", "framework": None, "name": "batch-score"}
    for work, label in ((SERVES, "hbm-bandwidth"), (batch, "host-input")):
        b = at_work(resting, hours=36, work=work)
        for row in b.gpu_rows:
            b.host_rows.append({"node": "n1", "ts": row["ts"], "interval_seconds": HOUR, "observed_seconds": HOUR,
                                "cpu_util_mean": 0.9, "io_wait_mean": 0.0})  # fmt: skip
        assert b.judged().workloads[0].bottleneck.label == label


def a10g(tensor: float, dram: float, watts: float, sm: float = 0.92) -> Mapping[str, float]:
    return {"gpu_util": 1.0, "sm_active": sm, "tensor_active": tensor, "dram_active": dram, "power_watts": watts}


RESTS = {name: value for name, value in {**TRAINING, **QUIET}.items() if not name.startswith("period")} | {
    "gpu_util": 0.3, "sm_active": 0.25, "tensor_active": 0.22, "dram_active": 0.1,
}  # fmt: skip
# As an exporter without profiling shows it.
USE_ALONE = {name: RESTS[name] for name in ("gpu_util", "mem_used_bytes", "power_watts")}
CARD = {**TRAINING, **QUIET} | {"sm_clock_hertz": 1.75e9, "throttled_fraction": 0.6, "tensor_active": 0.7}
FEW_WARPS = {**TRAINING, **QUIET} | {"tensor_active": 0.28, "sm_occupancy": 0.2, "sm_clock_hertz": 1.83e9}
# Tensor parallelism of a 3.4B model over 8 H100 (atharvanihalani/gpu-telemetry-exploration).
SMALL = {"gpu_util": 0.99, "sm_active": 0.45, "tensor_active": 0.11, "dram_active": 0.32, "power_watts": 418.0,
         "nvlink_tx_bytes_per_second": 50e9, "nvlink_rx_bytes_per_second": 50e9}  # fmt: skip
SERVES = {"command": "vllm serve m", "framework": "vllm"}


@pytest.mark.parametrize(
    ("name", "label", "values"),
    [
        # An L4 draws its 72 W and runs below the specification's clock all day: that is the card, not a fault.
        ("NVIDIA L4", "compute", CARD | {"power_watts": 69.0}),
        ("NVIDIA L4", "throttled", CARD | {"power_watts": 45.0}),
        # Large matrix products fill the SMs with few warps.
        ("H100-SXM5", "latency", FEW_WARPS | {"sm_active": 0.3}),
        ("H100-SXM5", "unknown", FEW_WARPS | {"sm_active": 0.9}),
        # The counter of a GPU with half the tensor rate reads 0.5 at the peak (vLLM at 47 to 55 of 70 TFLOPS), unless
        # kernels show more than that, or more than their SMs could do.
        ("NVIDIA A10G", "compute", a10g(0.39, 0.42, 250.0)),
        ("NVIDIA A10G", "hbm-bandwidth", a10g(0.2, 0.6, 250.0)),
        ("NVIDIA A10G", "mixed", a10g(0.55, 0.45, 250.0)),
        ("NVIDIA A10G", "latency", a10g(0.2, 0.1, 100.0, sm=0.35)),
        # Power at the limit says compute where the counters are between two levels, not where memory is saturated.
        ("NVIDIA A10G", "mixed", a10g(0.34, 0.5, 250.0)),
        ("NVIDIA A10G", "compute", a10g(0.34, 0.5, 295.0)),
        ("H100-SXM5", "hbm-bandwidth", {**DECODE, "power_watts": 690.0}),
        # A share of a tiny busy share is none.
        ("H100-SXM5", "unknown", {**DECODE, "gpu_util": 0.06, "sm_active": 0.05, "dram_active": 0.05}),
    ],
)
def test_labels_of_one_gpu(name: str, label: str, values: Mapping[str, float]) -> None:
    assert alone(values, gpus=1, name=name, work=SERVES).bottleneck.label == label


@pytest.mark.parametrize("name", ["NVIDIA L20", "NVIDIA X9000"])
def test_a_gpu_nobody_measured_has_a_label_and_no_use_for_money(name: str) -> None:
    verdict = alone({**TRAINING, **QUIET, "sm_clock_hertz": 2.5e9}, gpus=1, name=name)
    assert verdict.bottleneck.label == "compute"
    assert any(s.code == "efficiency-assumed" for s in verdict.bottleneck.evidence)
    assert verdict.bottleneck.confidence <= 0.8 and "tensor_of_sustained" not in verdict.features


def test_nvlink_is_named_for_collectives_of_small_tensors_and_doubted() -> None:
    bottleneck_verdict = alone(SMALL, gpus=8).bottleneck
    assert (bottleneck_verdict.label, bottleneck_verdict.confidence <= 0.8) == ("nvlink", True)
    assert any(s.code == "waits-in-collectives" for s in bottleneck_verdict.evidence)
    little = {**SMALL, "nvlink_tx_bytes_per_second": 2e9, "nvlink_rx_bytes_per_second": 2e9}
    assert alone(little, gpus=8, work={"scheduler": "slurm"}).bottleneck.label == "latency"


@pytest.mark.parametrize(
    ("values", "label"),
    [
        (RESTS, "host-input"),  # no busy cores and no period: demand cannot be what a training job lacks
        ({**USE_ALONE, "sm_active": 0.25}, "host-input"),
        ({**USE_ALONE, "pcie_tx_bytes_per_second": 1e8, "pcie_rx_bytes_per_second": 1e8}, "host-input"),
        (USE_ALONE, "unknown"),
    ],
)
def test_training_waits_for_its_host_where_more_than_gpu_use_shows_it(values: Mapping[str, float], label: str) -> None:
    job = {"command": "torchrun train.py", "scheduler": "slurm", "framework": "torchrun"}
    bottleneck_verdict = alone(values, gpus=1, work=job).bottleneck
    missing = any(s.code == "missing-activity" for s in bottleneck_verdict.evidence)
    assert bottleneck_verdict.label == label and missing == (values is USE_ALONE)
    assert alone(values, wave="gpu_util", work=SERVES).bottleneck.label != "host-input"


def test_a_full_cache_is_an_overlay_not_a_label() -> None:
    frame = at_work(DECODE, hours=36).frame()
    reply = pd.DataFrame(
        {"node": "n1", "workload_id": ["w", "w", "other"], "engine": "vllm", "kv_percent": [50.0, 96.0, 99.0],
         "samples": [900.0, 100.0, 1.0], "preemptions": [0.0, 12.0, 5.0], "seconds": [9000.0, 1000.0, 10.0]}
    )  # fmt: skip
    verdict = judge(dataclasses.replace(frame, serving=reply), rulebook()).workloads[0].bottleneck
    assert verdict.label == "hbm-bandwidth"
    assert [s.text for s in verdict.evidence if s.code in ("kv-cache-full", "kv-cache-preempted")] == [
        "KV cache 96 % full (95th percentile, 3 h): limited by GPU memory capacity (hbm-capacity).",
        "12 requests preempted from the KV cache in 3 h: limited by GPU memory capacity (hbm-capacity).",
    ]
    roomy = reply.assign(kv_percent=[50.0, 60.0, 99.0], preemptions=np.nan)
    plain = judge(dataclasses.replace(frame, serving=roomy), rulebook()).workloads[0].bottleneck
    assert not any("hbm-capacity" in s.text for s in plain.evidence)


# Bad input: what is taken away or wrong, and the labels that may still be given.
@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ({k: v for k, v in TRAINING.items() if k not in ("sm_active", "sm_occupancy")}, {"compute"}),
        ({k: v for k, v in TRAINING.items() if "nvlink" not in k}, {"compute"}),
        ({k: v * 1.4 for k, v in TRAINING.items()}, {"compute", "unknown"}),  # MIG above 100 %
        (dict.fromkeys(TRAINING, float("nan")), {"unknown"}),
        ({**FREE, "power_watts": 500.0}, {"unknown"}),  # contradicts itself: a fault, never idle
    ],
)  # fmt: skip
@pytest.mark.parametrize("samples", [HOUR, float("nan")])
def test_bad_input_neither_crashes_nor_invents(values: Mapping[str, float], allowed: set[str], samples: float) -> None:
    verdict = alone(values, gpu_util_n=samples)
    assert verdict.bottleneck.label in allowed and verdict.bottleneck.evidence
    assert 0 <= verdict.bottleneck.confidence <= 0.99


CALM = {
    "c": 0.5, "g": 0.9, "disk_write": 1e6, "disk_write_max": 2e6, "n_share": math.nan, "u_n": math.nan,
    "i_share": math.nan, "i": math.nan, "nvlink_bytes": math.nan, "wire_bytes": math.nan, "waits": 0.0,
    "coarse": False, "several": False, "waiting": False, "lost": math.nan,
}  # fmt: skip
# 500 MB/s at its highest and 50 MB/s in the mean: a tenth of the hour at least.
BURST = {**CALM, "disk_write": 5e7, "disk_write_max": 5e8}


def table(rows, at):
    tables = RowTables({}, columns_of(pd.DataFrame(rows)), np.zeros(len(rows), dtype=np.intp))
    return PieceRows(tables, Segments.of_lengths([len(at)]), np.array(at, dtype=np.intp), np.full(len(at), HOUR))


def told(*rows, trains=True):
    (said,) = signatures(table(rows, range(len(rows))), np.array([trains]))
    return {reason.code: dict(reason.fields) for reason in said}


def test_checkpoints_cost_what_is_done_less_in_hours_with_them():
    said = told(*[CALM] * 6, *[{**BURST, "c": 0.45}] * 6)
    bursts = {"bytes_per_second": 5e8, "bytes_per_hour": 5e7 * HOUR, "seconds_per_hour": 360, "share": 0.5}
    assert said["checkpoint-bursts"] == pytest.approx(bursts)
    assert said["checkpoint-cost"] == pytest.approx({"less": 0.1, "seconds": 360, "of_all": 0.05})


@pytest.mark.parametrize(("engine", "most"), [(0.95, 180.0), (0.5, 360.0)])
def test_without_hours_to_compare_checkpoints_cost_no_more_than_the_engine_rests_or_the_host_writes(engine, most):
    said = told(*[{**BURST, "g": engine}] * 6)
    assert said["checkpoint-cost-at-most"]["seconds"] == pytest.approx(most) and "checkpoint-cost" not in said


TALKS = {**CALM, "several": True, "n_share": 0.2, "u_n": 0.1, "nvlink_bytes": 4e10}
POLLING = {**CALM, "several": True, "waits": 0.3}
LATE = {**CALM, "several": True}
WAITING = {**LATE, "waiting": True}


@pytest.mark.parametrize(
    ("rows", "code", "fields"),
    [
        # A host that writes all along, or whose writing is not known.
        ([{**BURST, "disk_write": 4e8}] * 6, None, {}),
        ([{**BURST, "disk_write": math.nan, "disk_write_max": math.nan}] * 6, None, {}),
        ([TALKS] * 4, "communication-nvlink", {"share": 0.2, "bytes_per_second": 4e10}),
        ([{**TALKS, "n_share": 0.0, "u_n": 0.25}] * 4, "communication-nvlink",
         {"share": 0.25, "bytes_per_second": 4e10}),
        ([{**TALKS, "n_share": 0.1}] * 4, None, {}),
        # Polling shows where samples are short enough.
        ([POLLING] * 4, "collectives-spin", {"share": 0.3}),
        ([{**POLLING, "coarse": True}] * 4, None, {}),
        ([{**POLLING, "waits": 0.05}] * 4, None, {}),
        ([LATE] * 2 + [{**WAITING, "lost": 0.4}] * 6, "ranks-wait-and-lose", {"share": 0.75, "lost": 0.4}),
        ([LATE] * 2 + [WAITING] * 6, "ranks-wait", {"share": 0.75}),
        ([LATE] * 8, None, {}),
    ],
)  # fmt: skip
def test_writing_communication_and_waits_are_told_with_their_shares(rows, code, fields):
    assert told(*rows) == ({code: pytest.approx(fields)} if code else {})
    assert not told(*[BURST] * 6, trains=False)


def _course(length: int) -> Courses:
    return Courses(np.arange(length), np.arange(length) == 0, np.full(length, 60.0))


def test_an_answer_holds_between_the_two_levels() -> None:
    level = np.array([0.3, 0.55, 0.45, 0.45, 0.3, 0.45])
    answers = latched(level >= 0.5, level >= 0.4, _course(6))
    assert answers.tolist() == [False, True, True, True, False, False]


def test_a_course_ends_with_the_gpu_and_at_a_hole() -> None:
    rows = {"gpu_uuid": [*"aabbb"], "ts": [120.0, 60.0, 180.0, 60.0, 600.0], "node": "n1"}
    along = courses(pd.DataFrame({**rows, "interval_seconds": 60.0, "observed_seconds": 60.0}))
    assert along.order.tolist() == [1, 0, 3, 2, 4] and along.starts.tolist() == [True, False, True, True, True]
    level = np.array([0.45, 0.55, 0.45, 0.55, 0.45])  # rows as in the table: only the second minute of a is carried
    assert latched(level >= 0.5, level >= 0.4, along).tolist() == [True, True, False, True, False]


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (["compute"] * 5 + ["latency"] * 2 + ["compute"] * 5, ["compute"] * 12),
        (["compute"] * 5 + ["latency"] * 6, ["compute"] * 5 + ["latency"] * 6),
        # Idle minutes stay idle and lend their label to nothing.
        (["compute"] * 5 + ["idle", "latency"], ["compute"] * 5 + ["idle", "latency"]),
    ],
)
def test_a_label_of_some_minutes_is_part_of_what_was_before(labels: list[str], kept: list[str]) -> None:
    array = np.array(labels, dtype=object)
    assert settled(array, _course(len(labels)), hold_seconds=300, loose=array == "idle").tolist() == kept
