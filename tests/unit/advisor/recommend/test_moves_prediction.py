# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""Predicted times of moves, and the latency that a service may not lose."""

import math
from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Action, Configuration, Interval, Recommendation
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import Latency, LatencyFigures
from skuwise.advisor.pipeline import fleet_of
from skuwise.advisor.recommend.fleet import Baseline, baseline_for
from skuwise.advisor.recommend.move import SAME_SPEED, held_to_class, recommend
from skuwise.advisor.recommend.predict.sku_comparison import Question, compare
from skuwise.advisor.recommend.prediction import Prediction, predict
from skuwise.rules.models import load_move_model
from skuwise.rules.policy.latency_classes import load_latency_classes
from skuwise.tests.support.moves_builders import END, advice_of, catalog, node, usage, use_of, verdicts, ways, workload
from skuwise.tests.support.rulebooks import rulebook

# Typical profiles. On a slower memory the same decode work shows a higher use: it waits there longer.
MODEL = load_move_model()
DECODE = {"u_m": 0.75, "u_c": 0.15, "g": 0.95}
TRAINING = {"u_m": 0.50, "u_c": 0.75, "g": 0.97}


def predicted(source, target, profile, phase, **more):
    return predict(catalog().gpu(source), catalog().gpu(target), use_of(**profile), phase, MODEL, **more)


REFERENCE = catalog().gpus[MODEL.profiles.reference]


def asked(source, target, phase, precision="bf16", **more):
    more = {"gpus": 8, **more} if phase == "training" else more
    question = Question(phase, precision, **more)
    return compare(question, catalog().gpu_asked(source), catalog().gpu_asked(target), REFERENCE, MODEL)


@pytest.mark.parametrize(
    ("source", "target", "profile", "precision", "published", "tolerance"),
    [
        ("H100-SXM5", "H200-SXM", DECODE, "fp8", 1.28, 0.10),
        ("H100-SXM5", "H200-SXM", {"u_m": 0.30, "u_c": 0.70, "g": 0.97}, "fp8", 1.05, 0.10),
        ("H100-SXM5", "H200-SXM", TRAINING, "bf16", 1.09, 0.10),
        ("A100-SXM4-80GB", "H100-SXM5", {"u_m": 0.85, "u_c": 0.25, "g": 0.97}, "fp16", 1.76, 0.15),
        ("A100-SXM4-80GB", "H100-SXM5", {"u_m": 0.30, "u_c": 0.85, "g": 0.97}, "fp16", 2.38, 0.15),
        ("A100-SXM4-80GB", "H100-SXM5", TRAINING, "bf16", 2.16, 0.15),
        ("H200-SXM", "B200-SXM", TRAINING, "bf16", 1.55, 0.15),
        ("L40S", "H100-SXM5", {"u_m": 0.97, "u_c": 0.20, "g": 0.99}, "fp8", 4.4, 0.30),
        ("L40S", "H100-SXM5", {"u_m": 0.30, "u_c": 0.95, "g": 0.99}, "fp8", 3.5, 0.30),
    ],
)
def test_published_medians_are_met_with_and_without_telemetry(source, target, profile, precision, published, tolerance):
    phase = "training" if profile is TRAINING else "decode" if profile["u_m"] > profile["u_c"] else "prefill"
    measured = predicted(source, target, profile, "training" if phase == "training" else "serving")
    assert 1 / measured.median == pytest.approx(published, rel=tolerance)
    assert 1 / asked(source, target, phase, precision).time_ratio.p50 == pytest.approx(published, rel=0.18)


@pytest.mark.parametrize(
    ("target", "use", "said"),
    [
        ("H100-NVL", DECODE, "H100-NVL"),  # a target not measured
        ("H200-SXM", {"u_c": float("nan"), "u_m": 0.7, "g": 0.9}, "tensor activity"),  # not taken for zero
        ("L40S", {"u_c": 0.4, "u_m": 0.5, "u_n": 0.4, "g": 0.9}, "NVLink"),
    ],
)
def test_what_was_not_measured_or_is_not_there_is_refused(target, use, said):
    result = predicted("H100-SXM5", target, use, "serving")
    assert isinstance(result, CodedText) and said in result.text


def test_a_faster_network_helps_only_what_waits_for_it():
    waits, calm = (
        predicted("H100-SXM5", "H100-SXM5", {**use, "g": 0.95}, "training", network=(1e9, 10e9)).median
        for use in ({"u_c": 0.2, "u_m": 0.2, "u_i": 0.8}, {"u_c": 0.7, "u_m": 0.4, "u_i": 0.0})
    )
    assert waits < 0.6 and calm == 1.0


def test_missing_host_time_is_not_sped_up_for_jobs():
    starved = {"u_m": 0.25, "u_c": 0.375, "g": 0.5}
    low, high = (1 / predicted("A100-SXM4-80GB", "H100-SXM5", u, "training").median for u in (starved, TRAINING))
    assert 1 < low < high


def test_risk_is_the_chance_of_a_tenth_slower():
    risks = [Prediction(*entry, "").risk for entry in ((0.7, 0.12), (0.95, 0.1), (1.0, 0.12), (1.3, 0.12))]
    assert risks == ["very-low", "low", "medium", "high"]


@pytest.mark.parametrize("exposed", [True, False])
def test_communication_that_nothing_hides_and_a_slower_network_are_refused(exposed):
    use = replace(use_of(u_c=0.5, u_m=0.2, u_i=0.15, g=0.95), exposed_network=np.array([exposed]))
    h100 = catalog().gpu("H100-SXM5")
    slower, faster = (predict(h100, h100, use, "training", MODEL, network=n) for n in ((50e9, 12.5e9), (12.5e9, 50e9)))
    assert isinstance(slower, CodedText) == exposed and faster.median < 1


@pytest.mark.parametrize(
    ("target", "precision", "more", "code", "wider"),
    [
        ("H200-SXM", "fp8", {"params": 5e12}, "size-not-calibrated", False),
        ("H200-SXM", "fp8", {"params": 70e9, "batch": 4096, "gpus": 8}, "batch-not-calibrated", False),
        ("H200-SXM", "fp64", {"params": 8e9}, "precision-not-calibrated", True),  # that rate was never published
        ("T4", "fp16", {"params": 8e9}, "architecture-not-calibrated", True),
    ],
)
def test_what_lies_outside_of_what_was_measured_is_said(target, precision, more, code, wider):
    comparison = asked("H100", target, "decode", precision, **more)
    assert code in [reason.code for reason in comparison.outside]
    assert "outside what was measured" in comparison.basis
    counted = MODEL.classes[comparison.work].sigma
    assert comparison.sigma == pytest.approx(counted * MODEL.unseen if wider else counted)


@pytest.mark.parametrize("phase", ["training", "prefill", "decode", "mixed"])
@pytest.mark.parametrize("precision", ["bf16", "fp8", "int8", "fp4", "fp32", "int4", "fp64"])
def test_every_pair_of_gpus_gets_an_answer(phase, precision):
    names = sorted(catalog().gpus)
    for a, b in zip(names, [*names[1:], names[0]], strict=True):
        ratio = asked(a, b, phase, precision, params=13e9).time_ratio
        assert 0 < ratio.p10 < ratio.p50 < ratio.p90 < math.inf


def test_what_nobody_published_is_assumed_and_widens_the_interval():
    values, unknown = (asked("H100", target, "prefill", "fp8") for target in ("H200-SXM", "H100-NVL"))
    assert values.assumed == () and "assumed" in unknown.basis and "H100-NVL" in unknown.basis
    assert unknown.sigma > values.sigma


@pytest.mark.parametrize(
    ("source", "target", "more", "reason"),
    [
        ("H100", "L40S", {"params": 70e9, "gpus": 4}, "only PCIe"),
        ("H100", "A100", {}, "no FP8"),
        ("H100", "T4", {"phase": "training", "precision": "bf16"}, "no BF16"),
        ("H200-SXM", "H100", {"precision": "bf16", "params": 70e9}, "GPUs needed"),
        ("H100", "B200-SXM", {"params": 8e9, "batch": 128}, "limited by its host"),
        ("H100", "MI300X", {}, "software stack"),
        ("H100", "GH200-96GB", {}, "Arm host"),
    ],
)
def test_what_forbids_a_move_is_named(source, target, more, reason):
    comparison = asked(source, target, **{"phase": "decode", "precision": "fp8", **more})
    assert any(reason in sentence.text for sentence in comparison.blocked_by)


CLASSES = load_latency_classes().classes
DECODE_LATENCY = {"power_watts": 400.0, "power_over_idle": 4, "tensor_of_sustained_p95": 0.1, "mem_flat": 1, "cpu": 0.1}
SLOWER = Interval(1.0, 1.05, 1.1)


def latency(label: str | None = "interactive", first: float | None = 0.06, token: float | None = 0.03) -> Latency:
    """Measured at p90; the 99th percentile is twice that."""
    answer = (None if p90 is None else LatencyFigures(5000.0, p90 / 2, p90, p90, 2 * p90) for p90 in (first, token))
    return Latency(label, "measured", dict(CLASSES[label].limits) if label else {}, *answer, busy_hours=8.0)


def weighed(answer: Latency | None) -> Baseline:
    """A service of two replicas of 8 GPUs each at this load, as the moves see it."""
    told_of = {"latency": answer, "features": DECODE_LATENCY}
    works = [workload("chat", (name,), id=f"w-{name}", **told_of) for name in ("n1", "n2")]
    given = verdicts([node("n1"), node("n2")], works, uses=[usage(w, u_m=0.3, u_c=0.05) for w in works])
    fleet = fleet_of(given, rulebook(catalog()), END, 1)
    return baseline_for(fleet, fleet.groups[0])


def proposed(action: Action, time: Interval, gpus: int = 16) -> Recommendation:
    here, there = (Configuration("H100-SXM5", None, n) for n in (16, gpus))
    return recommend(
        action, "s-chat", text="Do it.", source=here, target=there, risk="low", claims=("place:s-chat",),
        would_change_if=(), time_ratio=time,
    )  # fmt: skip


def held(action: Action, time: Interval, answer: Latency | None, gpus: int = 16) -> Recommendation:
    return held_to_class(proposed(action, time, gpus), weighed(answer))


@pytest.mark.parametrize("action", ["lower-clock", "power-cap", "mig-slice", "move-sku"])
def test_a_move_that_breaks_a_limit_is_blocked_with_both_figures(action: Action) -> None:
    recommendation = held(action, SLOWER, latency(token=0.047))
    (why,) = recommendation.blocked_by
    f = why.fields
    assert (why.code, f["class"], f["measure"]) == ("latency-class-broken", "interactive", "output_token")
    assert (f["predicted_seconds"], f["limit_seconds"]) == (pytest.approx(0.047 * 1.1), 0.05)
    assert all(said in why.text for said in ("52 ms", "50 ms", "47 ms now"))
    assert why.text in recommendation.text and recommendation.risk == "low"


def test_the_outer_limit_is_held_at_the_99th_percentile() -> None:
    (why,) = held("lower-clock", SLOWER, latency("waited-for", first=0.95)).blocked_by
    assert (why.fields["percentile"], why.fields["limit_seconds"]) == (0.99, 2.0)
    assert why.fields["predicted_seconds"] == pytest.approx(2 * 0.95 * 1.1)


@pytest.mark.parametrize("answer", [None, latency(None, 9.0), latency("batch", 9.0, 9.0)])
def test_where_nobody_waits_or_no_class_is_kept_nothing_is_held_against_a_move(answer: Latency | None) -> None:
    before = proposed("lower-clock", SLOWER)
    assert held("lower-clock", SLOWER, answer) == before


@pytest.mark.parametrize("answer", [latency(first=None, token=None), latency(token=None), latency("waited-for", None)])
def test_where_it_cannot_be_predicted_the_risk_is_a_step_higher_and_what_to_measure_is_said(answer: Latency) -> None:
    recommendation = held("lower-clock", SLOWER, answer)
    assert (recommendation.blocked_by, recommendation.risk) == ((), "medium")
    assert "histogram" in recommendation.text
    assert recommendation.would_change_if[-1].code == "latency-not-measured"
    faster = Interval(0.5, 0.6, 0.9)
    assert held("move-sku", faster, answer) == proposed("move-sku", faster)


def test_fewer_gpus_make_requests_wait() -> None:
    assert weighed(latency()).demand == pytest.approx(0.3, rel=0.05)
    f = held("reduce-gpus", SAME_SPEED.interval, latency(), 8).blocked_by[0].fields
    # Twice the load on each: 0.7 / 0.4 of the time.
    assert (f["queue_factor"], f["time_ratio"]) == (pytest.approx(1.75, rel=0.1), 1.0)
    roomy = held("reduce-gpus", SAME_SPEED.interval, latency(first=0.03, token=0.02), 8)
    assert roomy.blocked_by == () and "is met" in roomy.text
    assert held("reduce-gpus", SAME_SPEED.interval, latency(), 4).blocked_by[0].code == "latency-without-end"


@pytest.mark.parametrize(
    ("answer", "broken"), [(latency(token=0.0499), ["output_token"]), (latency(first=0.03, token=0.02), [])]
)
def test_advice_blocks_the_lower_clock_of_a_chat_service_that_has_no_room(answer: Latency, broken: list[str]) -> None:
    w = workload(features=DECODE_LATENCY, latency=answer)
    advice = advice_of(verdicts([node()], [w], uses=[usage(w, u_m=0.85, u_c=0.05, g=0.95)]))
    (recommendation,) = ways(advice, "lower-clock")
    assert [why.fields["measure"] for why in recommendation.blocked_by] == broken
    assert not (broken and recommendation.counts)
