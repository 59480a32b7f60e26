# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.moves.base.prediction import Link, Prediction, Refusal, demand, predict
from skuwise.rules.models.move_model import load_move_model
from skuwise.tests.support.moves_builders import catalog, use_of

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
