# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Predicted times of moves, and the latency that a service may not lose."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Action, Configuration, Interval, Recommendation
from skuwise.advisor.core.verdict_types import Latency, LatencyFigures
from skuwise.advisor.pipeline import fleet_of
from skuwise.advisor.recommend.fleet import Baseline, Fleet, baseline_for
from skuwise.advisor.recommend.latency import held_to_class
from skuwise.advisor.recommend.move import SAME_SPEED, recommend
from skuwise.advisor.recommend.prediction import Link, Prediction, Refusal, demand, predict
from skuwise.rules.models.move_model import load_move_model
from skuwise.rules.policy.latency_classes import load_latency_classes
from skuwise.tests.support.moves_builders import END, advice_of, catalog, node, usage, use_of, verdicts, workload
from skuwise.tests.support.rulebooks import rulebook

# Typical profiles. On a slower memory the same decode work shows a higher use: it waits there longer.
MODEL = load_move_model()
DECODE = {"u_m": 0.75, "u_c": 0.15, "g": 0.95}
DECODE_A100 = {"u_m": 0.85, "u_c": 0.25, "g": 0.97}
DECODE_L40S = {"u_m": 0.97, "u_c": 0.20, "g": 0.99}
PREFILL = {"u_m": 0.30, "u_c": 0.70, "g": 0.97}
PREFILL_A100 = {"u_m": 0.30, "u_c": 0.85, "g": 0.97}
PREFILL_L40S = {"u_m": 0.30, "u_c": 0.95, "g": 0.99}
TRAINING = {"u_m": 0.50, "u_c": 0.75, "g": 0.97}


def speedup(source, target, profile, phase):
    found = predict(catalog().gpu(source), catalog().gpu(target), use_of(**profile), phase, MODEL)
    assert isinstance(found, Prediction), found
    return 1 / found.median


@pytest.mark.parametrize(
    ("source", "target", "profile", "phase", "published", "tolerance"),
    [
        ("H100-SXM5", "H200-SXM", DECODE, "serving", 1.28, 0.10),
        ("H100-SXM5", "H200-SXM", PREFILL, "serving", 1.05, 0.10),
        ("H100-SXM5", "H200-SXM", TRAINING, "training", 1.09, 0.10),
        ("A100-SXM4-80GB", "H100-SXM5", DECODE_A100, "serving", 1.76, 0.15),
        ("A100-SXM4-80GB", "H100-SXM5", PREFILL_A100, "serving", 2.38, 0.15),
        ("A100-SXM4-80GB", "H100-SXM5", TRAINING, "training", 2.16, 0.15),
        ("H200-SXM", "B200-SXM", TRAINING, "training", 1.55, 0.15),
        ("L40S", "H100-SXM5", DECODE_L40S, "serving", 4.4, 0.30),
        ("L40S", "H100-SXM5", PREFILL_L40S, "serving", 3.5, 0.30),
    ],
)
def test_published_medians_are_met(source, target, profile, phase, published, tolerance):
    assert speedup(source, target, profile, phase) == pytest.approx(published, rel=tolerance)


def test_a_target_nobody_measured_is_refused():
    found = predict(catalog().gpu("H100-SXM5"), catalog().gpu("H100-NVL"), use_of(**DECODE), "serving", MODEL)
    assert isinstance(found, Refusal)
    assert "H100-NVL" in found.reason.text


def test_unmeasured_use_is_refused_rather_than_taken_for_zero():
    use = use_of(u_c=float("nan"), u_m=0.7, g=0.9)
    assert isinstance(predict(catalog().gpu("H100-SXM5"), catalog().gpu("H200-SXM"), use, "serving", MODEL), Refusal)


def test_nvlink_work_is_refused_where_the_target_has_none():
    use = use_of(u_c=0.4, u_m=0.5, u_n=0.4, g=0.9)
    found = predict(catalog().gpu("H100-SXM5"), catalog().gpu("L40S"), use, "serving", MODEL)
    assert isinstance(found, Refusal)
    assert "NVLink" in found.reason.text


def test_a_faster_network_helps_only_what_waits_for_it():
    h100 = catalog().gpu("H100-SXM5")
    links = (Link(1e9), Link(10e9))
    waits = predict(h100, h100, use_of(u_c=0.2, u_m=0.2, u_i=0.8, g=0.95), "training", MODEL, network=links)
    calm = predict(h100, h100, use_of(u_c=0.7, u_m=0.4, u_i=0.0, g=0.95), "training", MODEL, network=links)
    assert isinstance(waits, Prediction)
    assert isinstance(calm, Prediction)
    assert waits.median < 0.6
    assert calm.median == 1.0


def test_missing_host_time_is_not_sped_up_for_jobs():
    busy = speedup("A100-SXM4-80GB", "H100-SXM5", {**TRAINING, "g": 0.97}, "training")
    starved = speedup("A100-SXM4-80GB", "H100-SXM5", {"u_m": 0.25, "u_c": 0.375, "g": 0.5}, "training")
    assert 1 < starved < busy


def test_demand_is_a_soft_maximum_and_never_above_one():
    assert demand(use_of(u_c=0.3, u_m=0.6, g=0.9))[0] == pytest.approx(0.6, abs=0.05)
    assert demand(use_of(u_c=1.0, u_m=1.0, g=1.0))[0] == 1.0


@pytest.mark.parametrize(("median", "risk"), [(0.7, "very-low"), (0.95, "low"), (1.0, "medium"), (1.3, "high")])
def test_risk_is_the_chance_of_a_tenth_slower(median, risk):
    assert Prediction(median, 0.1 if median == 0.95 else 0.12, "").risk == risk


@pytest.mark.parametrize(("exposed", "refused"), [(True, True), (False, False)])
def test_communication_that_nothing_hides_and_a_slower_network_are_refused(exposed, refused):
    use = use_of(u_c=0.5, u_m=0.2, u_i=0.15, g=0.95)
    use = replace(use, exposed_network=np.array([exposed]))
    h100 = catalog().gpu("H100-SXM5")
    found = predict(h100, h100, use, "training", MODEL, network=(Link(50e9), Link(12.5e9)))
    assert isinstance(found, Refusal) == refused
    faster = predict(h100, h100, use, "training", MODEL, network=(Link(12.5e9), Link(50e9)))
    assert isinstance(faster, Prediction)
    assert faster.median < 1


CLASSES = load_latency_classes().classes
DECODE_LATENCY = {
    "power_watts": 400.0,
    "power_over_idle": 4.0,
    "tensor_of_sustained_p95": 0.1,
    "mem_flat": 1.0,
    "cpu": 0.1,
}
SLOWER = Interval(1.0, 1.05, 1.1)


def latency(label: str | None = "interactive", first: float | None = 0.06, token: float | None = 0.03) -> Latency:
    """Measured at p90; the 99th percentile is twice that."""
    told = (None if p90 is None else LatencyFigures(5000.0, p90 / 2, p90, p90, 2 * p90) for p90 in (first, token))
    return Latency(label, "measured", dict(CLASSES[label].limits) if label else {}, *told, busy_hours=8.0)


def weighed(told: Latency | None, *, kind: str = "online-inference", u_m: float = 0.3) -> tuple[Fleet, Baseline]:
    """A service of two replicas of 8 GPUs each at this load, as the moves see it."""
    nodes = [node("n1"), node("n2")]
    works = [
        workload("chat", (n.node,), id=f"w-{n.node}", kind=kind, latency=told, features=DECODE_LATENCY) for n in nodes
    ]
    given = verdicts(nodes, works, uses=[usage(w, u_m=u_m, u_c=0.05) for w in works])
    fleet = fleet_of(given, rulebook(catalog()), END, np.random.default_rng(1))
    return fleet, baseline_for(fleet, fleet.groups[0])


def proposed(action: Action, time: Interval | None, gpus: int = 16, **parts: Any) -> Recommendation:
    one = Configuration("H100-SXM5", None, 16)
    return recommend(
        action, "s-chat", text="Do it.", source=one, target=Configuration("H100-SXM5", None, gpus), risk="low",
        claims=("place:s-chat",), would_change_if=(), time_ratio=time, **parts,
    )  # fmt: skip


def held(action: Action, time: Interval | None, told: Latency | None, gpus: int = 16, **parts: Any) -> Recommendation:
    return held_to_class(proposed(action, time, gpus, **parts), weighed(told)[1])


@pytest.mark.parametrize("action", ["lower-clock", "power-cap", "mig-slice", "move-sku"])
def test_a_move_that_breaks_a_limit_is_blocked_with_both_figures(action: Action) -> None:
    way = held(action, SLOWER, latency(token=0.047))
    (why,) = way.blocked_by
    assert why.code == "latency-class-broken"
    assert why.fields["predicted_seconds"] == pytest.approx(0.047 * 1.1)
    assert (why.fields["limit_seconds"], why.fields["class"]) == (0.05, "interactive")
    assert why.fields["measure"] == "output_token"
    assert "52 ms" in why.text and "50 ms" in why.text and "47 ms now" in why.text
    assert why.text in way.text
    assert way.risk == "low"


def test_the_outer_limit_is_held_at_the_99th_percentile() -> None:
    (why,) = held("lower-clock", SLOWER, latency("waited-for", first=0.95)).blocked_by
    assert (why.fields["percentile"], why.fields["limit_seconds"]) == (0.99, 2.0)
    assert why.fields["predicted_seconds"] == pytest.approx(2 * 0.95 * 1.1)


@pytest.mark.parametrize("told", [None, latency(None, 9.0), latency("batch", 9.0, 9.0)])
def test_where_nobody_waits_or_no_class_is_kept_nothing_is_held_against_a_move(told: Latency | None) -> None:
    before = proposed("lower-clock", SLOWER)
    assert held("lower-clock", SLOWER, told) == before


@pytest.mark.parametrize("told", [latency(first=None, token=None), latency(token=None), latency("waited-for", None)])
def test_where_it_cannot_be_predicted_the_risk_is_a_step_higher_and_what_to_measure_is_said(told: Latency) -> None:
    way = held("lower-clock", SLOWER, told)
    assert (way.blocked_by, way.risk) == ((), "medium")
    assert "histogram" in way.text
    assert way.would_change_if[-1].code == "latency-not-measured"
    faster = Interval(0.5, 0.6, 0.9)
    assert held("move-sku", faster, told) == proposed("move-sku", faster)


def test_fewer_gpus_make_requests_wait() -> None:
    _, base = weighed(latency())
    assert base.demand == pytest.approx(0.3, rel=0.05)
    way = held_to_class(proposed("reduce-gpus", SAME_SPEED.interval, 8), base)
    (why, *_) = way.blocked_by
    # Twice the load on each: 0.7 / 0.4 of the time.
    assert why.fields["queue_factor"] == pytest.approx(1.75, rel=0.1)
    assert why.fields["time_ratio"] == 1.0
    roomy = held_to_class(proposed("reduce-gpus", SAME_SPEED.interval, 8), weighed(latency(first=0.03, token=0.02))[1])
    assert roomy.blocked_by == () and "is met" in roomy.text
    assert held_to_class(proposed("reduce-gpus", SAME_SPEED.interval, 4), base).blocked_by[0].code == (
        "latency-without-end"
    )


def test_advice_blocks_the_lower_clock_of_a_chat_service_that_has_no_room() -> None:
    tight = workload(features=DECODE_LATENCY, latency=latency(first=0.06, token=0.0499))
    given = verdicts([node()], [tight], uses=[usage(tight, u_m=0.85, u_c=0.05, g=0.95)])
    (way,) = [r for r in advice_of(given).recommendations if r.action == "lower-clock"]
    assert [why.fields["measure"] for why in way.blocked_by] == ["output_token"]
    assert way.counts is False
    roomy = workload(features=DECODE_LATENCY, latency=latency(first=0.03, token=0.02))
    given = verdicts([node()], [roomy], uses=[usage(roomy, u_m=0.85, u_c=0.05, g=0.95)])
    (way,) = [r for r in advice_of(given).recommendations if r.action == "lower-clock"]
    assert way.blocked_by == ()
