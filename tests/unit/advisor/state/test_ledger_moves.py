# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false
"""One move in the ledger, from proposed to done, measured, and undone; and what came of measured moves."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Advice, Interval
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.recommend.predict.calibration import NO_SITE, Site, site_factor
from skuwise.advisor.recommend.prediction import Prediction
from skuwise.advisor.state import ledger
from skuwise.advisor.state.file import State
from skuwise.advisor.state.fleets import StateBeside
from skuwise.advisor.state.ledger import LedgerEvent, Realised
from skuwise.advisor.state.outcomes import move_outcomes, site_of
from skuwise.tests.support.ledger_builders import (
    DAY,
    L40S,
    MOVED,
    RATIO,
    SAVING,
    decide,
    entry_of,
    fleet,
    ground,
    kept,
    recommendation,
)
from skuwise.tests.support.moves_builders import END, PLAIN, START


@pytest.fixture(scope="module")
def first() -> Advice:
    return fleet(0)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def beside(path: Path, said: list[str], first: Advice) -> StateBeside:
    made = StateBeside(said.append, State(path))
    made.note(first, END)
    return made


def the_move(advice: Advice):
    return next(r for r in advice.recommendations if r.action == "move-sku" and r.target.node_sku == PLAIN)


def test_a_move_is_followed_from_proposed_to_done_and_its_saving_measured(path, beside, first, said, capsys) -> None:
    move = the_move(first)
    decide(path, move.id, "accepted", END + 10)
    (waiting,) = move_outcomes(beside.entries(), END + 11)
    assert (waiting.state, waiting.accepted_at, waiting.done_at) == ("accepted", END + 10, None)
    assert waiting.reason_missing == "not done yet"

    beside.note(fleet(3.5, beside=beside), END + 3.5 * DAY)  # half a day there is too little
    assert kept(path)[move.id].decision(END + 3.5 * DAY).state == "accepted"

    beside.note(fleet(4.5, beside=beside), END + 4.5 * DAY)
    entry = kept(path)[move.id]
    why = entry.last("done").why
    assert entry.decision(END + 5 * DAY).state == "done" and "has run only on" in why and "Unasked" not in why
    assert "n1 and n2 stopped reporting recently" in entry.realised.saving_missing
    assert any(line.startswith(f"{move.id} is done: It has run only on {PLAIN}") for line in said)

    advice = fleet(7, beside=beside)
    assert not advice.recommendations  # neither the old nodes nor the move itself
    beside.note(advice, END + 7 * DAY)
    (outcome,) = move_outcomes(beside.entries(), END + 7 * DAY)
    assert (outcome.state, outcome.accepted_at, outcome.done_at) == ("done", END + 10, MOVED)
    saving = pytest.approx(SAVING, rel=1e-3)
    assert outcome.predicted_saving_usd_per_month.p50 == saving
    assert outcome.realised_saving_usd_per_month == pytest.approx(outcome.predicted_saving_usd_per_month.p50)
    assert (outcome.realised_time_ratio, outcome.reason_missing) == (None, "no token counts from the server")
    measured = kept(path)[move.id].realised
    assert measured.usd_per_month_before - measured.usd_per_month_after == saving
    assert measured.gpu_hours_per_month_after == pytest.approx(16 * 730)

    capsys.readouterr()
    assert main(["ledger", "show", move.id[:8], "--ledger", str(path)]) == 0
    shown = capsys.readouterr().out
    for part in (
        "$14,355/month saved ($143,547 to $129,192 a month)",
        "list prices read September 2026",
        "accepted by ann",
    ):
        assert part in shown
    assert main(["ledger", "list", "--status", "done", "--format", "json", "--ledger", str(path)]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["recommendations"]
    assert listed["realised"]["saving_usd_per_month"] == saving == listed["predicted"]["saving_usd_per_month"]["p50"]


def test_a_move_that_is_undone_regresses_is_open_again_and_is_told_again(path, beside, first) -> None:
    move = the_move(first)
    decide(path, move.id, "accepted", END + 10)
    beside.note(fleet(7), END + 7 * DAY)
    with State(path).writing() as db:
        ledger.note_mailed(db, "team-a", [move.id, "r-other"], END + 7 * DAY)
    back, now = END + 8 * DAY, END + 9.5 * DAY
    for days, state, mailed in ((8.5, "done", {move.id, "r-other"}), (9.5, "regressed", {"r-other"})):
        beside.note(fleet(days, back=back), END + days * DAY)  # half a day may be an experiment
        assert kept(path)[move.id].decision(END + days * DAY).state == state
        with State(path).reading() as db:
            assert ledger.mailed_since(db, "team-a", END) == mailed
    assert "It has run on its original nodes since" in kept(path)[move.id].decision(now).why
    (outcome,) = move_outcomes(beside.entries(), now)
    assert (outcome.state, outcome.realised_saving_usd_per_month, outcome.reason_missing) == (
        "regressed", None, "it was reverted",
    )  # fmt: skip
    advice = fleet(10, back=back, beside=beside)
    again = next(r for r in advice.recommendations if r.id == move.id)  # the same id, though the series ran on both
    assert (again.decision.state, again.set_aside, again.counts) == ("regressed", False, True)
    decide(path, move.id, "accepted", now + 60)
    assert kept(path)[move.id].decision(now + 61).state == "accepted"


def test_a_saving_that_never_came_regresses_after_a_week_and_tells_why(path, beside, first) -> None:
    id_ = the_move(first).id
    # A second look tells it once; at last the nodes were given back after all.
    looks = (
        (4.5, True, "done"), (9, True, "done"), (10.5, True, "regressed"), (11, True, "regressed"), (14, False, "done"),
    )  # fmt: skip
    for days, kept_nodes, state in looks:
        beside.note(fleet(days, kept=kept_nodes), END + days * DAY)
        entry = kept(path)[id_]
        assert entry.decision(END + days * DAY).state == state
        if days == 4.5:  # both pairs are paid for now: the two nodes that it left were to go
            assert entry.realised.saving_usd_per_month == pytest.approx(-2 * 88.488 * 730, rel=1e-3)
            assert entry.realised.confounders == ("n1 and n2 are still present after the move, and counted.",)
        if days == 11:
            assert [e.act for e in entry.events] == ["proposed", "done", "regressed"]
            assert "predicted. n1 and n2 are still present" in entry.events[-1].why


def test_what_is_blocked_keeps_nothing_and_takes_nothing(path, beside, first) -> None:
    blocked = next(r for r in first.recommendations if r.blocked_by)
    assert kept(path)[blocked.id].snapshot is None
    move = the_move(first)
    snapshot = kept(path)[move.id].snapshot
    beside.note(
        replace(first, recommendations=(replace(move, blocked_by=(CodedText("not-now", "Not now."),)),)), END + 60
    )
    entry = kept(path)[move.id]
    assert (len(entry.recommendation.blocked_by), entry.snapshot) == (1, snapshot)


def test_few_moves_change_predictions_little_and_many_more() -> None:
    predicted = Interval(1 / 1.2276, 1.0, 1.2276)  # sigma 0.16
    case = (predicted, 1.2, 1.0)
    one, many = site_factor([case])[0], site_factor([case] * 10)[0]
    assert math.log(one) / math.log(1.2) == pytest.approx(0.26, abs=0.01)
    assert math.log(many) / math.log(1.2) == pytest.approx(0.78, abs=0.01) and site_factor([]) == (1.0, 0)
    # What the factor in the prediction took up already is not taken for the model's.
    assert site_factor([(predicted, 1.0, 1.2)])[0] == pytest.approx(one)


def test_a_site_is_applied_to_predictions_told_and_off_without_moves() -> None:
    predicted, refused = Prediction(0.8, 0.12, "training, across generations"), CodedText("said", "no")
    site = Site(1.05, 3, (1000.0, 930.0), 2)
    assert NO_SITE.applied(predicted) is predicted and site.applied(refused) == refused
    basis = "training, across generations, times 1.05 from 3 moves measured here"
    assert site.applied(predicted) == Prediction(pytest.approx(0.84), 0.12, basis)
    assert [note.text for note in Site(1.0, 0, (1000.0, 930.0), 2).notes] == [
        "2 moves completed here saved $930/month, 93 % of the predicted $1,000/month. Predictions are not scaled by "
        "this."
    ]


def test_measured_moves_of_the_ledger_become_the_site_unless_the_load_changed() -> None:
    realised = Realised(
        START, END, 300.0, Interval(80.0, 100.0, 120.0), RATIO, 500.0, 410.0, 90.0, None, 1.0, 1.0, 1.2, None, 1.1
    )
    own = ground(target=L40S, time_ratio=RATIO)

    def site(measured: Realised, ground=own) -> Site:
        done = LedgerEvent("done", END, "skuwise", realised=measured)
        return site_of([entry_of(recommendation(), done, snapshot=ground)], END)

    assert (site(realised).cases, site(realised).saved) == (1, (100.0, 90.0)) and site(realised).factor > 1.03
    assert site(replace(realised, load_ratio=1.5)).cases == 0
    assert site(realised, replace(own, target=replace(own.source, node_sku=PLAIN))).cases == 0  # the same GPU
