"""Power caps: what is predicted, what is refused, and how far it holds on measured runs that were left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.moves.base.prediction import Refusal
from skuwise.advisor.moves.predict.clock_model import (
    REST_MARGIN,
    ClockMove,
    Draw,
    best_cap,
    cap_range,
    knee,
    predict_cap,
    weigh_cap,
)
from skuwise.advisor.moves.predict.power_curve import under_cap
from skuwise.benchmarks.evaluation import power_caps
from skuwise.benchmarks.fit.power_caps import TABLE, read_caps
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.power_model import load_power_model
from skuwise.rules.models.resting_power import load_resting_power

CATALOG = load_catalog()
MODEL = load_power_model()
RESTING = load_resting_power()
A40, H100 = CATALOG.gpus["A40"], CATALOG.gpus["H100-SXM5"]
BUSY = Draw(270.0, 82.0, 300.0)


@pytest.fixture(scope="module")
def lines():
    found, _ = read_caps(TABLE, CATALOG, RESTING)
    return found


def moved(draw: Draw, cap: float, sku=A40) -> ClockMove:
    found = predict_cap(sku, draw, cap, MODEL)
    assert isinstance(found, ClockMove)
    return found


def refusal(sku, draw: Draw, cap: float) -> str:
    found = predict_cap(sku, draw, cap, MODEL)
    assert isinstance(found, Refusal)
    return found.reason.code


def test_a_lower_cap_costs_more_time_and_saves_energy_until_the_knee():
    caps = (275.0, 250.0, 225.0, 200.0)
    found = [moved(BUSY, cap) for cap in caps]
    assert [m.loss for m in found] == sorted(m.loss for m in found)
    assert [m.joules_ratio for m in found] == sorted((m.joules_ratio for m in found), reverse=True)
    assert all(m.watts_after <= cap for m, cap in zip(found, caps, strict=True))
    turn = knee(A40, BUSY, MODEL)
    assert turn is not None
    assert weigh_cap(A40, BUSY, turn - 40, MODEL).joules_ratio > weigh_cap(A40, BUSY, turn, MODEL).joules_ratio


@pytest.mark.parametrize(
    ("sku", "draw", "cap", "code"),
    [
        (A40, BUSY, 310.0, "cap-outside-range"),
        (A40, BUSY, 90.0, "cap-outside-range"),
        (H100, Draw(650.0, 80.0, 700.0), 199.0, "cap-outside-range"),
        (H100, Draw(650.0, 80.0, 700.0), 220.0, "cap-too-low"),
        (A40, BUSY, 120.0, "cap-below-knee"),
        (A40, Draw(120.0, 82.0, 300.0), 280.0, "cap-without-effect"),
        (A40, BUSY, float("nan"), "cap-outside-range"),
    ],
)
def test_caps_that_cannot_be_told_of_or_do_no_good_are_refused(sku, draw, cap, code):
    assert refusal(sku, draw, cap) == code


def test_the_range_is_the_drivers_where_it_is_known_and_a_measured_share_elsewhere():
    assert cap_range(A40, MODEL) == (100.0, 300.0)
    b200 = CATALOG.gpus["B200-SXM"]
    assert b200.min_limit_watts is None
    assert cap_range(b200, MODEL) == (MODEL.lowest_cap_share * b200.tdp_watts, b200.tdp_watts)


def test_what_is_proposed_saves_at_the_ninetieth_percentile_also_at_more_rest():
    found = best_cap(A40, BUSY, MODEL, most_loss=0.1, most_loss_p90=0.2)
    assert not isinstance(found, Refusal)
    move, cap = found
    assert move.saves
    assert move.loss <= 0.1
    assert move.prediction.interval.p90 <= 1.2
    assert weigh_cap(A40, replace(BUSY, rest_watts=REST_MARGIN * 82), cap, MODEL).saves
    assert isinstance(best_cap(A40, BUSY, MODEL, most_loss=0.0, most_loss_p90=0.0), Refusal)
    assert isinstance(best_cap(A40, Draw(84.0, 82.0, 300.0), MODEL, most_loss=0.1, most_loss_p90=0.2), Refusal)


def test_a_cap_at_the_limit_changes_nothing_and_nothing_is_ever_out_of_bounds():
    rng = np.random.default_rng(1)
    rest = rng.uniform(20, 100, 500)
    limit = rest + rng.uniform(50, 900, 500)
    watts = rng.uniform(0.5 * rest, limit)
    same = under_cap(MODEL.curve, watts=watts, rest_watts=rest, limit_watts=limit, cap_watts=limit)
    assert same.time == pytest.approx(1.0)
    capped = under_cap(
        MODEL.curve, watts=watts, rest_watts=rest, limit_watts=limit, cap_watts=limit * rng.uniform(0.3, 1, 500)
    )
    assert np.all(capped.time >= 1 - 1e-12)
    assert np.all(np.isfinite(capped.joules))
    assert np.all(capped.joules > 0)
    assert np.all((capped.clock > 0) & (capped.clock <= 1))


@pytest.mark.parametrize("by", ["gpu"])
def test_predictions_hold_on_what_was_left_out(lines, by):
    told = power_caps.held_out(lines, lambda c: getattr(c, by))
    time, joules = [t.time_error for t in told], [t.joules_error for t in told]
    assert np.median(time) <= 0.06
    assert np.percentile(time, 90) <= 0.18
    assert np.median(joules) <= 0.06
    assert np.percentile(joules, 90) <= 0.18
    inside = np.mean([t.time_between[0] <= t.capped.time <= t.time_between[1] for t in told])
    assert 0.76 <= inside <= 0.86
    energy = np.mean([t.joules_between[0] <= t.capped.joules <= t.joules_between[1] for t in told])
    assert 0.76 <= energy <= 0.86
