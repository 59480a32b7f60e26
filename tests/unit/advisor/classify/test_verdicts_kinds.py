"""Kinds on hand-made frames: what each shape speaks for, and what bad or thin data do to a verdict."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from skuwise.advisor.classify.kinds.kinds import judge_kind
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.tests.support.frame_builder import DECODE, FREE, GIB, TRAINING
from skuwise.tests.support.judged_alone import alone
from skuwise.tests.support.rulebooks import rulebook

_PROFILED = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active")
_LINKS = ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second")
_FAST = ("duty", "period_seconds", "period_strength", "sm_active_cv")


def _confident(verdict: WorkloadVerdict, label: str) -> float:
    """Confidence in a label, whether it was given or is an alternative."""
    if verdict.kind.label == label:
        return verdict.kind.confidence
    return next((a.confidence for a in verdict.kind.alternatives if a.label == label), 0.0)


def _without(values: Mapping[str, float], *names: str) -> dict[str, float]:
    return {name: value for name, value in values.items() if name not in names}


@pytest.mark.parametrize("lost", [("sm_active", "sm_occupancy"), _LINKS, (*_PROFILED, *_LINKS, *_FAST)])
@pytest.mark.parametrize(("values", "label"), [(TRAINING, "training"), (DECODE, "online-inference")])
def test_missing_metrics_never_make_another_kind(
    values: Mapping[str, float], label: str, lost: tuple[str, ...]
) -> None:
    verdict = alone(_without(values, *lost), gpus=2, hours=72)
    # By use, memory and power alone, two GPUs that work all the time are a training more often than not.
    assert verdict.kind.label in (label, "unknown") or (lost[0] in _PROFILED and verdict.kind.confidence < 0.7)
    assert _confident(verdict, label) > 0.1


def test_only_engine_and_memory_give_a_modest_verdict_or_none() -> None:
    bare = {name: DECODE[name] for name in ("gpu_util", "mem_used_bytes")}
    verdict = alone(bare, hours=30, gpus=1)
    assert verdict.kind.label != "idle"
    assert verdict.kind.confidence < 0.99
    assert set(verdict.coverage.missing) >= {"sm_active", "tensor_active", "dram_active", "power_watts"}


def test_nothing_measured_and_nothing_said_is_unknown() -> None:
    verdict = alone({"mem_used_bytes": 40 * GIB}, gpus=1)
    assert (verdict.kind.label, verdict.kind.confidence) == ("unknown", 0.0)
    assert verdict.kind.evidence[0].code == "activity-not-measured"


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_serving_that_is_lightly_loaded_is_not_idle(share: float) -> None:
    light = {name: value * share for name, value in DECODE.items()} | {
        "mem_used_bytes": 73.6 * GIB, "power_watts": 110.0, "sm_clock_hertz": 1.98e9, "duty": share,
    }  # fmt: skip
    verdict = alone(light, hours=96, gpus=1, gpu_util_p95=0.9, gpu_util_max=1.0)
    assert verdict.kind.label != "idle"
    assert _confident(verdict, "idle") == 0.0


@pytest.mark.parametrize(
    ("share", "engine", "idle"),
    [(0.0, 0.006, True), (0.2, 0.006, True), (0.3, 0.006, False), (0.6, 0.006, False), (1.0, 0.006, False),
     (1.0, 0.004, True)],  # a replica on standby that answers probes
)  # fmt: skip
def test_light_use_in_many_hours_is_not_idle(share: float, engine: float, idle: bool) -> None:
    """A mean and a percentile of an hour hide a moment's work; that it comes in many hours shows that it is used."""
    features = {
        "engine_active": engine, "hbm_utilization": 0.002, "idle_share": 0.99, "active_share": share, "hours": 72.0,
        "elapsed_hours": 72.0, "gpus": 1.0, "nodes": 1.0, "resolution_seconds": 60.0, "mem_level": 0.5,
    }  # fmt: skip
    book = rulebook()
    verdict = judge_kind((), features, book.kinds, book.kind_model)
    assert (verdict.label == "idle") is idle
    if not idle:
        assert all(other.label != "idle" for other in verdict.alternatives)


def test_what_stood_idle_is_idle_whatever_its_name_and_the_name_is_kept() -> None:
    held = {**FREE, "mem_used_bytes": 73.6 * GIB, "power_watts": 110.0, "duty": 0.0}
    verdict = alone(held, gpus=1, work={"framework": "vllm", "command": "vllm serve m"})
    assert verdict.kind.label == "idle"
    assert verdict.kind.evidence[0].code == "stood-idle-and-held"
    assert any("serving engine" in sentence.text for sentence in verdict.kind.evidence) or verdict.kind.alternatives


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("torchrun --nproc-per-node=8 pretrain.py", "training"),
        ("accelerate launch lora_finetune.py", "fine-tuning"),
        ("python3 -m sglang.launch_server", "online-inference"),
        ("python3 -m vllm.entrypoints.openai.run_batch -i in.jsonl", "batch-inference"),
        ("python embed_offline.py", "batch-inference"),
        ("jupyter-lab --no-browser", "interactive"),
    ],
)
def test_a_name_decides_where_the_shape_says_little(command: str, label: str) -> None:
    plain = {"gpu_util": 0.6, "power_watts": 300.0}
    said, unsaid = (alone(plain, hours=5, gpus=1, work={"command": c}) for c in (command, "python main.py"))
    assert _confident(said, label) > _confident(unsaid, label)
    assert said.kind.label in (label, "unknown")
