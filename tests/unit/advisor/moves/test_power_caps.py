"""Power caps: what is predicted, what is refused, and how far it holds on measured runs that were left out."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

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
from skuwise.advisor.moves.predict.power_curve import clock_at, drawn_at, under_cap
from skuwise.benchmarks.evaluation import evaluate, power_caps
from skuwise.benchmarks.fit import power_model
from skuwise.benchmarks.fit.power_caps import TABLE, Table, read_caps
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.power_model import load_power_model, read_power_model
from skuwise.rules.models.resting_power import load_resting_power

CATALOG = load_catalog()
MODEL = load_power_model()
RESTING = load_resting_power()
A40, H100 = CATALOG.gpus["A40"], CATALOG.gpus["H100-SXM5"]
BUSY = Draw(270.0, 82.0, 300.0)
LINE = {
    "gpu": "A40", "dataset": "squad", "network": "bert", "batch_size": "32", "power_limit_watts": "300",
    "seconds_per_epoch": "900", "average_power_watts": "265",
}  # fmt: skip


def table(folder: Path, *lines: dict[str, str]) -> Path:
    file = folder / "caps.csv"
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(LINE))
        writer.writeheader()
        writer.writerows(lines)
    return file


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


def test_the_measured_knee_of_a_run_is_met(lines):
    run = [c for c in lines if c.full.run == ("A40", "squad", "bert_base_uncased", 32)]
    least = min(run, key=lambda c: c.joules).under.limit_watts
    turn = knee(A40, power_caps.draw_of(run[0]), MODEL)
    assert turn is not None
    assert abs(turn - least) <= 25


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


def test_a_gpu_that_waits_for_its_host_loses_little_under_a_cap_that_its_bursts_meet():
    waits, works = moved(Draw(120.0, 82.0, 300.0), 125.0), weigh_cap(A40, BUSY, 125.0, MODEL)
    assert waits.loss < 0.05
    assert waits.watts_after < 120
    assert works.loss > 0.5


def test_architectures_without_runs_are_told_of_with_wider_intervals():
    here, there = moved(BUSY, 250.0), moved(Draw(650.0, 80.0, 700.0), 500.0, H100)
    assert here.shown
    assert not there.shown
    assert "none on Hopper" in there.prediction.basis
    alike = weigh_cap(replace(A40, architecture="Hopper"), BUSY, 250.0, MODEL)
    assert alike.prediction.sigma > here.prediction.sigma
    assert alike.joules_sigma > here.joules_sigma


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


def test_the_clock_and_its_power_are_each_others_reverse():
    drawn = np.linspace(0.2, 1.0, 9)
    back = [drawn_at(MODEL.curve, float(clock)) for clock in clock_at(MODEL.curve, drawn)]
    assert back == pytest.approx(drawn.tolist())


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


def test_every_line_of_the_table_is_read_and_its_gpus_are_in_the_catalog(lines):
    assert len(lines) == 877
    assert {c.gpu for c in lines} == {"A40", "P100-PCIe-16GB", "Quadro-RTX-6000", "V100-SXM2-32GB"}
    assert all(c.under.limit_watts < c.full.limit_watts for c in lines)


def test_what_cannot_be_used_is_counted_with_its_reason(tmp_path):
    odd = [
        {"gpu": "X9000"}, {"power_limit_watts": "0"}, {"seconds_per_epoch": ""}, {"average_power_watts": "nan"},
        {"batch_size": "many"}, {"power_limit_watts": "301"}, {"power_limit_watts": "inf"},
    ]  # fmt: skip
    found, refused = read_caps(
        table(tmp_path, LINE, LINE, {**LINE, "network": "other"}, *({**LINE, **one} for one in odd)), CATALOG, RESTING
    )
    assert not found
    assert refused == {
        "unknown GPU X9000": 1, "a value that is missing, zero or negative": 4, "a value that is no number": 1,
        "a limit above the rated power of A40": 1, "a limit that its run has already": 1,
        "a run under one limit alone": 2,
    }  # fmt: skip


def test_a_file_that_is_no_such_table_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "t.csv").write_text("gpu,network\nA40,bert\n")
    with pytest.raises(UsageError, match="has no column dataset"):
        read_caps(tmp_path / "t.csv", CATALOG, RESTING)
    with pytest.raises(UsageError, match="cannot be read"):
        read_caps(tmp_path / "missing.csv", CATALOG, RESTING)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_caps(tmp_path / "b.csv", CATALOG, RESTING)


def test_the_model_that_ships_is_the_one_of_the_table(lines, tmp_path):
    fitted = power_model.calibrate(lines)
    file = tmp_path / "power_model.yaml"
    file.write_text(power_model.text_of(fitted, power_model.date(2026, 11, 23)))
    again = read_power_model(file)
    for name in ("follows", "clock_exponent", "clocked", "bursts", "overlap", "drawn_of_cap"):
        assert getattr(again.curve, name) == pytest.approx(getattr(MODEL.curve, name), rel=0.02, abs=0.01), name
    assert [s.lines for _, s in again.classes] == pytest.approx([s.lines for _, s in MODEL.classes], abs=3)
    assert again.architectures == MODEL.architectures


@pytest.mark.parametrize("by", ["network", "gpu"])
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


@pytest.mark.parametrize("by", ["network", "gpu"])
def test_no_recommended_cap_took_more_energy_on_a_measured_run(lines, by):
    found = power_caps.proposals_held_out(lines, lambda c: getattr(c, by))
    assert len(found) > 50
    assert not [p for p in found if p.raises]


def test_rest_that_is_told_a_fifth_too_low_leads_to_no_cap_that_took_more_energy(lines):
    low = [replace(c, rest_watts=0.8 * c.rest_watts) for c in lines]
    assert not [p for p in power_caps.proposals(low, MODEL) if p.raises]


def test_a_prediction_uses_nothing_of_the_capped_run(lines):
    one = lines[50]
    other = replace(one, under=replace(one.under, seconds=7 * one.under.seconds, watts=one.under.watts / 3))
    (here,), (there,) = (power_caps.predict_lines([c], MODEL) for c in (one, other))
    assert (here.time, here.joules) == (there.time, there.joules)
    assert np.array_equal(Table.of([one]).watts, Table.of([other]).watts)


def test_the_old_formula_is_worse_where_a_cap_bites(lines):
    old, silent = power_caps.before(lines)
    new = [t for t in power_caps.held_out(lines, lambda c: c.gpu) if power_caps.bites(t)]
    assert silent > 100
    assert np.percentile([t.time_error for t in old if power_caps.bites(t)], 90) > 2 * np.percentile(
        [t.time_error for t in new], 90
    )


def test_a_table_of_ones_own_is_scored_as_shipped_and_unknown_gpus_are_counted(tmp_path, capsys):
    file = table(
        tmp_path, LINE, {**LINE, "power_limit_watts": "200", "seconds_per_epoch": "1000", "average_power_watts": "190"},
        {**LINE, "gpu": "X9000\x1b[31m"},
    )  # fmt: skip
    assert evaluate.main(["--power-caps", str(file), "--wrong"]) == 0
    out = capsys.readouterr().out
    assert "as shipped" in out
    assert "refused 1: unknown GPU X9000" in out
    assert "\x1b" not in out
    assert "A40 squad bert 32, 265 W under 200 W" in out


def test_a_table_with_nothing_to_predict_says_so(tmp_path, capsys):
    assert power_caps.main(["--power-caps", str(table(tmp_path, LINE))]) == 0
    assert "nothing to predict" in capsys.readouterr().out
    assert power_caps.main(["--power-caps", str(tmp_path / "missing.csv")]) == 2
    assert "cannot be read" in capsys.readouterr().err
