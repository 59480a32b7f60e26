# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalSubscript=false
"""The model behind `skus compare`: published medians, what forbids a move, and always an answer."""

import math

import pytest
from skuwise.advisor.moves.predict.sku_comparison import compare
from skuwise.advisor.moves.predict.typical_work import Question, parts_of
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.move_model import load_move_model

CATALOG = load_catalog()
MODEL = load_move_model()
REFERENCE = CATALOG.gpus[MODEL.profiles.reference]
CHAT = {"params": 70e9, "gpus": 8, "input_tokens": 1024, "output_tokens": 1024}


def asked(source, target, phase, precision="bf16", **more):
    more = {"gpus": 8, **more} if phase == "training" else more
    question = Question(phase, precision, **more)
    return compare(question, CATALOG.gpu_asked(source), CATALOG.gpu_asked(target), REFERENCE, MODEL)


def speedup(*given, **more):
    return 1 / asked(*given, **more).time_ratio.p50


@pytest.mark.parametrize(
    ("source", "target", "phase", "precision", "published"),
    [
        ("H100", "H200-SXM", "decode", "fp8", 1.28),
        ("H100", "H200-SXM", "prefill", "fp8", 1.05),
        ("H100", "H200-SXM", "training", "bf16", 1.09),
        ("A100", "H100", "decode", "fp16", 1.76),
        ("A100", "H100", "prefill", "fp16", 2.38),
        ("A100", "H100", "training", "bf16", 2.16),
        ("L40S", "H100", "decode", "fp8", 4.4),
        ("L40S", "H100", "prefill", "fp8", 3.5),
        ("H200-SXM", "B200-SXM", "training", "bf16", 1.55),
    ],
)
def test_published_medians_are_met_where_nothing_else_is_said(source, target, phase, precision, published):
    assert speedup(source, target, phase, precision) == pytest.approx(published, rel=0.12)


@pytest.mark.parametrize(("target", "low", "high"), [("H200-SXM", 1.02, 1.27), ("B200-SXM", 1.28, 2.05)])
@pytest.mark.parametrize("batch", [4, 16, 64, 128])
def test_time_per_token_at_a_batch_lies_where_most_matched_configurations_did(target, low, high, batch):
    assert low < speedup("H100", target, "decode", "fp8", batch=batch, **CHAT) < high


@pytest.mark.parametrize(
    ("gpu", "more", "milliseconds"),
    [
        # aiconfigurator's silicon samples: Llama-3.1-70B under vLLM, MiniMax-M2.5 and DeepSeek-V3 (benchmarks/fit).
        ("H200-SXM", {"params": 70e9, "gpus": 4, "batch": 16, "input_tokens": 1024, "output_tokens": 1024}, 10.9),
        ("B200-SXM", {"params": 70e9, "gpus": 2, "batch": 64, "input_tokens": 1024, "output_tokens": 1024}, 15.9),
        ("H100-SXM5", {"params": 70e9, "gpus": 8, "batch": 4, "input_tokens": 8192, "output_tokens": 1024}, 10.2),
        ("H200-SXM", {"params": 229e9, "active_params": 10e9, "gpus": 4, "batch": 16, "input_tokens": 1024,
                      "output_tokens": 1024}, 15.7),
        ("B200-SXM", {"params": 671e9, "active_params": 37e9, "gpus": 8, "batch": 32, "input_tokens": 1024,
                      "output_tokens": 1024}, 16.9),
    ],
)  # fmt: skip
def test_the_time_of_a_token_is_the_measured_one_within_a_third(gpu, more, milliseconds):
    question = Question("decode", "fp8", **more)
    parts = parts_of(question, CATALOG.gpus[gpu], REFERENCE, MODEL)
    assert parts is not None
    token = sum(parts.values()) * more["batch"] / question.generated
    assert token * 1e3 == pytest.approx(milliseconds, rel=1 / 3)


@pytest.mark.parametrize(
    ("phase", "precision", "more", "code"),
    [
        ("decode", "fp8", {"params": 5e12}, "size-not-calibrated"),
        ("decode", "fp8", {"params": 70e9, "batch": 4096, "gpus": 8}, "batch-not-calibrated"),
        ("decode", "fp64", {"params": 8e9}, "precision-not-calibrated"),
        ("fp32", None, {}, ""),
    ],
)
def test_what_lies_outside_of_the_calibration_is_said_and_widens(phase, precision, more, code):
    if not code:
        turing = asked("H100", "T4", "decode", "fp16", params=8e9)
        assert [one.code for one in turing.outside] == ["architecture-not-calibrated"]
        return
    found = asked("H100", "H200-SXM", phase, precision, **more)
    assert code in [one.code for one in found.outside]
    assert found.sigma > MODEL.groups[found.group].sigma


@pytest.mark.parametrize("phase", ["training", "prefill", "decode", "mixed"])
@pytest.mark.parametrize("precision", ["bf16", "fp8", "int8", "fp4", "fp32", "int4", "fp64"])
def test_every_pair_of_gpus_gets_an_answer(phase, precision):
    names = sorted(CATALOG.gpus)
    for a, b in zip(names, [*names[1:], names[0]], strict=True):
        ratio = asked(a, b, phase, precision, params=13e9).time_ratio
        assert 0 < ratio.p10 < ratio.p50 < ratio.p90 < math.inf


def test_what_nobody_published_is_assumed_and_widens_the_interval():
    known, unknown = asked("H100", "H200-SXM", "prefill", "fp8"), asked("H100", "H100-NVL", "prefill", "fp8")
    assert known.assumed == ()
    assert "assumed" in unknown.basis
    assert "H100-NVL" in unknown.basis
    assert unknown.sigma > known.sigma


@pytest.mark.parametrize(
    ("source", "target", "more", "reason"),
    [
        ("H100", "L40S", {"phase": "decode", "precision": "fp8", "params": 70e9, "gpus": 4}, "only PCIe"),
        ("H100", "A100", {"phase": "decode", "precision": "fp8"}, "no FP8"),
        ("H100", "T4", {"phase": "training", "precision": "bf16"}, "no BF16"),
        ("H200-SXM", "H100", {"phase": "decode", "precision": "bf16", "params": 70e9}, "GPUs needed"),
        (
            "H100",
            "B200-SXM",
            {"phase": "decode", "precision": "fp8", "params": 8e9, "batch": 128},
            "limited by its host",
        ),
        ("H100", "MI300X", {"phase": "decode", "precision": "fp8"}, "software stack"),
        ("H100", "GH200-96GB", {"phase": "decode", "precision": "fp8"}, "Arm host"),
    ],
)
def test_what_forbids_a_move_is_named(source, target, more, reason):
    assert any(reason in sentence.text for sentence in asked(source, target, **more).blocked_by)
