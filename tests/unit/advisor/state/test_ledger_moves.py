# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
"""One move in the ledger, from proposed to done, measured, and undone; and what came of measured moves."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Advice, Configuration, Interval, NodeStanding, SavingsBaseline
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.frame import Window
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.recommend.moves import BY_ACTION
from skuwise.advisor.recommend.predict.calibration import NO_SITE, Site, site_factor
from skuwise.advisor.recommend.prediction import Prediction
from skuwise.advisor.recommend.progress import Measure, MoveState, Observation, PredictionSnapshot
from skuwise.advisor.state import ledger
from skuwise.advisor.state.file import State
from skuwise.advisor.state.fleets import StateBeside
from skuwise.advisor.state.ledger import LedgerEntry, LedgerEvent, Realised
from skuwise.advisor.state.outcomes import followed, ledger_events, realised, site_of
from skuwise.tests.support.ledger_builders import DAY, decide, entry_of, ground, kept, recommendation
from skuwise.tests.support.moves_builders import END, IB, PLAIN, START, catalog, node, usage, verdicts, workload
from skuwise.tests.support.rulebooks import rulebook

MOVED = END + 3 * DAY  # the service went to nodes without the fabric then
SAVING = 2 * (98.32 - 88.488) * 730  # two nodes, list prices, a month


def fleet(days: float, back: float = math.inf, kept: bool = False, beside: StateBeside | None = None) -> Advice:
    """Advice over the 14 days up to `days` after END: a service on n1 and n2 (InfiniBand), on p1 and p2 (without) from
    MOVED to `back`. `kept`: the nodes that it left stay, and go on reporting."""
    start, end = START + days * DAY, END + days * DAY
    runs, nodes = [], []
    for names, sku, spans in (
        (("n1", "n2"), IB, ((start, min(MOVED, end)), (back, end))), (("p1", "p2"), PLAIN, ((MOVED, min(back, end)),)),
    ):  # fmt: skip
        live = [(max(a, start), b) for a, b in spans if b > max(a, start)]
        runs += [
            workload("chat", (name,), id=f"w-{name}-{a:.0f}", start=a, end=b, node_sku=sku)
            for name in names for a, b in live
        ]  # fmt: skip
        if live or (kept and sku == IB):
            last = end if kept or not live else live[-1][1]
            first = start if sku == IB else live[0][0]
            hours = (last - first) / 3600
            seen = {"first_seen": first, "last_seen": last, "hours_observed": hours, "span_hours": (end - first) / 3600}
            nodes += [node(name, sku, **seen, **({} if sku == IB else {"fabric": None})) for name in names]
    given_ = verdicts(nodes, runs, uses=[usage(w, u_n=0.2) for w in runs if w.end - w.start >= 3600])
    return reason_on(
        replace(given_, window=Window(start, end)), rulebook(catalog()), end, 1,
        decisions=ledger.decisions_of(beside.entries() if beside else (), end),
        source={"kind": "sqlite", "databases": ["fleet.db"]},
    ).advice  # fmt: skip


def seen(runs, nodes=(), source="fleet.db") -> Observation:
    about = IB, "H100-SXM5", 8, "eastus", 98.32, (END - START) / 3600, START
    stands = {name: NodeStanding(name, *about, last) for name, last in nodes}
    return Observation(START, END, source, tuple(runs), stands, frozenset(), frozenset())


L40S = Configuration("L40S", "azure/other", 16)
RATIO = Interval(0.8, 1.0, 1.25)


def moved_run(**features: float) -> WorkloadVerdict:
    return workload("chat", ("p1",), start=END - 4 * DAY, gpu_sku="L40S", node_sku="azure/other", features=features)


@pytest.fixture(scope="module")
def first() -> Advice:
    return fleet(0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def beside(path: Path, first: Advice) -> StateBeside:
    made = StateBeside(print, State(path))
    made.note(first, END)
    return made


def the_move(advice: Advice):
    return next(r for r in advice.recommendations if r.action == "move-sku" and r.target.node_sku == PLAIN)


def test_a_move_is_followed_from_proposed_to_done_and_its_saving_measured(path, beside, first, capsys) -> None:
    move = the_move(first)
    decide(path, move.id, "accepted", END + 10)
    (waiting,) = followed(beside.entries(), END + 11)
    assert (waiting.decision(END + 11).state, waiting.last("accepted").at) == ("accepted", END + 10)
    assert waiting.realised is None

    beside.note(fleet(3.5, beside=beside), END + 3.5 * DAY)  # half a day there is too little
    assert kept(path)[move.id].decision(END + 3.5 * DAY).state == "accepted"

    beside.note(fleet(4.5, beside=beside), END + 4.5 * DAY)
    entry = kept(path)[move.id]
    why = entry.last("done").why
    assert entry.decision(END + 5 * DAY).state == "done" and "has run only on" in why and "Unasked" not in why
    assert "n1 and n2 stopped reporting recently" in entry.realised.saving_missing
    assert f"\n{move.id} is done: It has run only on {PLAIN}" in capsys.readouterr().out

    advice = fleet(7, beside=beside)
    assert not advice.recommendations  # not the old nodes and not the move itself
    beside.note(advice, END + 7 * DAY)
    (entry,) = followed(beside.entries(), END + 7 * DAY)
    measured, saving = entry.realised, pytest.approx(SAVING, rel=1e-3)
    assert (entry.decision(END + 7 * DAY).state, measured.since) == ("done", MOVED)
    assert measured.saving_usd_per_month == saving == measured.predicted_saving_usd_per_month.p50
    assert entry.snapshot.saving_usd_per_month == measured.predicted_saving_usd_per_month
    assert (measured.time_ratio, measured.time_missing) == (None, "no token counts from the server")
    assert measured.usd_per_month_before - measured.usd_per_month_after == saving
    assert measured.gpu_hours_per_month_after == pytest.approx(16 * 730)

    capsys.readouterr()
    assert main(["ledger", "show", move.id[:8], "--ledger", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "Saving: $14,355/month (predicted: $14,355)." in shown and "$143,547 to $129,192 a month" in shown
    assert "list prices read September 2026" in shown and "accepted by ann" in shown
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
    (entry,) = followed(beside.entries(), now)
    assert (entry.realised.saving_usd_per_month, entry.realised.saving_missing) == (None, "it was reverted")
    advice = fleet(10, back=back, beside=beside)
    again = next(r for r in advice.recommendations if r.id == move.id)  # the same id, though the series ran on both
    assert (again.decision.state, again.set_aside, again.counts) == ("regressed", False, True)
    decide(path, move.id, "accepted", now + 60)
    accepted = kept(path)[move.id]
    assert (accepted.decision(now + 61).state, accepted.realised) == ("accepted", None)


def test_a_saving_that_never_came_regresses_after_a_week_and_tells_why(path, beside, first) -> None:
    id_ = the_move(first).id
    # A second pass reports it once; at last the nodes were given back after all.
    states = {4.5: "done", 9: "done", 10.5: "regressed", 11: "regressed", 14: "done"}
    for days, state in states.items():
        beside.note(fleet(days, kept=days < 14), END + days * DAY)
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
    snapshot, now_blocked = kept(path)[move.id].snapshot, replace(move, blocked_by=(CodedText("not-now", "Not now."),))
    beside.note(replace(first, recommendations=(now_blocked,)), END + 60)
    entry = kept(path)[move.id]
    assert (len(entry.recommendation.blocked_by), entry.snapshot) == (1, snapshot)


def test_few_moves_change_predictions_little_and_many_more() -> None:
    predicted = Interval(1 / 1.2276, 1.0, 1.2276)  # sigma 0.16
    case = (predicted, 1.2, 1.0)
    single, many = site_factor([case])[0], site_factor([case] * 10)[0]
    assert (math.log(single, 1.2), math.log(many, 1.2)) == pytest.approx((0.26, 0.78), abs=0.01)
    # What the factor in the prediction took up already is not taken for the model's.
    assert site_factor([(predicted, 1.0, 1.2)])[0] == pytest.approx(single) and site_factor([]) == (1.0, 0)
    prediction, refused = Prediction(0.8, 0.12, "training, across generations"), CodedText("said", "no")
    site = Site(1.05, 3, (1000.0, 930.0), 2)
    assert NO_SITE.applied(prediction) is prediction and site.applied(refused) == refused
    basis = "training, across generations, times 1.05 from 3 moves measured here"
    assert site.applied(prediction) == Prediction(pytest.approx(0.84), 0.12, basis)
    (note,) = Site(1.0, 0, (1000.0, 930.0), 2).notes
    assert note.text.startswith("2 moves completed here saved $930/month, 93 % of the predicted $1,000/month.")


def test_measured_moves_of_the_ledger_become_the_site_unless_the_load_changed() -> None:
    saving = Interval(80.0, 100.0, 120.0)
    usual = ground(target=L40S, time_ratio=RATIO)

    def site(load: float = 1.1, ground=usual) -> Site:
        measured = Realised(START, END, 300.0, saving, RATIO, 500.0, 410.0, 90.0, None, 1.0, 1.0, 1.2, None, load)
        done = LedgerEvent("done", END, "skuwise", realised=measured)
        return site_of([entry_of(recommendation(), done, snapshot=ground)], END)

    assert (site().cases, site().saved) == (1, (100.0, 90.0)) and site().factor > 1.03
    same_gpu = replace(usual, target=replace(usual.source, node_sku=PLAIN))
    assert site(load=1.5).cases == site(ground=same_gpu).cases == 0


MONTH = 98.32 * 730


def state_of(action: str, usual: PredictionSnapshot, now: Observation, proposed: bool = False) -> MoveState | None:
    return BY_ACTION[action].progress(usual, now, proposed)


FELL = START + 4 * DAY
FEWER = [workload("chat", ("n1",)), workload("chat", ("n2",), id="w-2", end=FELL)]
BACK = workload("chat", ("n3",), id="w-3", start=END - 2 * DAY)


@pytest.mark.parametrize(
    ("runs", "place", "since"),
    [
        (FEWER, "target", FELL),
        ([*FEWER, BACK], "source", END - 2 * DAY),
        ([workload("chat", ("p1",), node_sku=PLAIN)], None, None),  # on other hardware its count says nothing
    ],
)
def test_fewer_gpus_are_seen_by_their_count_and_measured_by_the_nodes_that_are_gone(runs, place, since) -> None:
    usual, now = ground(), seen(runs, (("n1", END), ("n2", FELL)))
    stand = state_of("reduce-gpus", usual, now)
    assert (stand and stand.place, stand and stand.since) == (place, since)
    if place == "target":
        assert stand.hours == pytest.approx((END - FELL) / 3600)
        reported = realised("reduce-gpus", usual, stand, now)
        assert reported.saving_usd_per_month == reported.usd_per_month_after == pytest.approx(MONTH)


def test_a_job_is_measured_over_a_week_by_the_time_it_held_its_nodes() -> None:
    nights = [
        workload("train", ("n1",), kind="training", id=f"w-{n}", series_id="s-chat", node_sku=PLAIN,
                 start=START + n * DAY, end=START + n * DAY + 6 * 3600)
        for n in range(4, 15)
    ]  # fmt: skip
    usual = ground(serving=False, target=Configuration("H100-SXM5", PLAIN, 8), yardstick=SavingsBaseline(MONTH / 4))
    usual = replace(usual, usd_per_hour={IB: 90.0})  # the price of the proposal, not today's

    def reported(since: float):
        return realised("move-sku", usual, MoveState("target", since, 60.0, ""), seen(nights, (("n1", END),)))

    assert reported(FELL).usd_per_month_after == pytest.approx(90.0 * 730 / 4, rel=0.02)
    assert reported(END - 5 * DAY).saving_missing == "a job needs at least a week of data"


FREED = {
    "series_id": None, "target": Configuration(None, None, 0), "source": Configuration("H100-SXM5", IB, 8),
    "yardstick": SavingsBaseline(MONTH, nodes=("n1",)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("last_seen", "runs", "place", "left"),
    [
        (END - 4 * DAY, (), "target", 0.0),  # gone for good
        (END - 2 * DAY, (), "source", None),  # silent, and perhaps back tomorrow
        (END, (), "source", MONTH),
        (END, ("batch",), "target", MONTH),  # put to use: no cash came back
    ],
)
def test_a_node_is_given_back_when_it_is_gone_or_put_to_use(last_seen, runs, place, left) -> None:
    usual, now = ground(**FREED), seen([workload(n, ("n1",), start=END - 5 * DAY) for n in runs], (("n1", last_seen),))
    stand = state_of("release", usual, now)
    reported = realised("release", usual, stand, now)
    assert (stand.place, reported.usd_per_month_after) == (place, None if left is None else pytest.approx(left))
    assert left is not None or "stopped reporting recently" in reported.saving_missing


@pytest.mark.parametrize(
    ("proposed_on", "fleet", "nodes", "source", "done"),
    [
        ("fleet.db", 0, 0, "fleet.db", True), ("fleet.db", 0, 0, "other.db", False),
        ("fleet.db, n1.db", 0, 0, "fleet.db", False), ("fleet.db, n1.db", 0, 0, "n1.db, fleet.db", True),
        # What a part of the same fleet does not show is not gone either.
        ("fleet.db", 10, 3, "fleet.db, more.db", False), ("fleet.db", 10, 9, "fleet.db, more.db", True),
    ],
)  # fmt: skip
def test_what_another_source_does_not_show_is_not_gone(proposed_on, fleet, nodes, source, done) -> None:
    entry = entry_of(
        recommendation(action="release"), LedgerEvent("accepted", START, "ann"), snapshot=ground(**FREED, fleet=fleet),
        source=proposed_on,
    )  # fmt: skip
    now = seen([], [(f"m{n}", END) for n in range(nodes)], source=source)
    assert [e.act for _, e in ledger_events([entry], now, END)] == ["done"] * done


def test_a_pool_is_packed_when_as_many_nodes_are_empty_as_were_to_be() -> None:
    h100 = Configuration("H100-SXM5", IB, 24)
    pool = ground(
        series_id=None, source=h100, target=replace(h100, gpu_count=16),
        yardstick=SavingsBaseline(3 * MONTH, nodes=("n1", "n2", "n3")),
    )  # fmt: skip
    nodes = (("n1", END), ("n2", END), ("n3", END))
    runs = [workload(f"app{n}", (f"n{n}",), end=END if n < 3 else END - 2 * DAY) for n in (1, 2, 3)]
    stand = state_of("consolidate", pool, seen(runs, nodes))
    assert (stand.place, stand.since) == ("target", END - 2 * DAY)
    reported = realised("consolidate", pool, stand, seen(runs, nodes))
    assert reported.saving_usd_per_month == pytest.approx(0.0)
    assert reported.confounders == ("1 of n1, n2 and n3 is still present.",)
    gone = (*nodes[:2], ("n3", END - 4 * DAY))
    assert realised("consolidate", pool, stand, seen(runs[:2], gone)).saving_usd_per_month == pytest.approx(MONTH)
    busy = [replace(run, end=END) for run in runs]
    assert state_of("consolidate", pool, seen(busy, nodes)).place == "source"


CLOCKED = SavingsBaseline(500.0, clock_share=0.8, usd_per_kwh=0.1)
RESTED = SavingsBaseline(500.0, usd_per_kwh=0.1, rest_watts=72.0)


@pytest.mark.parametrize(
    ("action", "other", "yardstick", "before", "after", "saves", "undone"),
    [
        # Seen by the clock and measured by the power: 100 W less at $0.10 a kWh.
        ("lower-clock", "power-cap", CLOCKED, {"clock_ratio": 0.95, "watts": 600.0},
         {"clock_ratio": 0.76, "power_watts": 500.0}, 0.1 * 16 * 730 * 0.1, {"clock_ratio": 0.94}),
        ("rest-clocks", "rest-clocks", RESTED, {"rest_watts": 120.0}, {"rest_watts": 74.0}, 500.0 * (1 - 74 / 120),
         {"rest_watts": 119.0}),
    ],
)  # fmt: skip
def test_clocks_are_seen_and_measured_by_the_power(action, other, yardstick, before, after, saves, undone) -> None:
    usual = ground(yardstick=yardstick, before=Measure(16.0, 16 * 730.0, **before))
    run = workload("chat", ("n1", "n2"), features=after)
    stand = state_of(action, usual, seen([run]))
    assert stand.place == "target"
    reported = realised(action, usual, replace(stand, since=START), seen([run]))
    assert reported.saving_usd_per_month == pytest.approx(saves)
    assert state_of(other, usual, seen([replace(run, features=undone)])).place == "source"
    assert state_of(action, usual, seen([replace(run, features={})])) is None
    assert state_of(action, replace(usual, before=None), seen([run])) is None


def test_time_is_measured_by_the_tokens_of_a_service_and_the_steps_of_a_job() -> None:
    before = Measure(8.0, 5840.0, busy=0.5, busy_seconds_per_token=0.002, tokens_per_second=2000.0, period_seconds=4.0)
    service = ground(target=L40S, time_ratio=RATIO, before=before, yardstick=SavingsBaseline())
    run = moved_run(engine_active=0.6, generated_tokens=2000.0 * 4 * DAY)
    stand = MoveState("target", END - 4 * DAY, 96.0, "")
    reported = realised("move-sku", service, stand, seen([run]))
    assert (reported.time_ratio, reported.load_ratio) == pytest.approx((1.2, 1.0)) and not reported.confounders
    busier = moved_run(engine_active=0.6, generated_tokens=3000.0 * 4 * DAY)
    (mixed,) = realised("move-sku", service, stand, seen([busier])).confounders
    assert "Load is x1.50 of the load before" in mixed
    job = replace(service, serving=False)
    steps = realised("move-sku", job, stand, seen([moved_run(period_seconds=5.0, period_share=0.9)]))
    assert steps.time_ratio == pytest.approx(1.25)
    blurred = realised("move-sku", job, stand, seen([moved_run(period_seconds=5.0, period_share=0.2)]))
    assert (blurred.time_ratio, blurred.time_missing) == (None, "no steps detected in its load")


def test_a_move_that_is_far_slower_than_predicted_regresses() -> None:
    before = Measure(8.0, 5840.0, busy=0.5, busy_seconds_per_token=0.002, tokens_per_second=2000.0)
    usual = ground(target=L40S, time_ratio=RATIO, before=before, yardstick=SavingsBaseline(), saving_usd_per_month=None)
    entry = entry_of(recommendation(), LedgerEvent("accepted", START, "ann"), snapshot=usual)

    def after(g: float, entry: LedgerEntry) -> list[LedgerEvent]:
        run = moved_run(engine_active=g, generated_tokens=2000.0 * 4 * DAY)
        return [e for _, e in ledger_events([entry], seen([run]), END)]

    (done,) = after(0.5, entry)
    assert done.act == "done"
    since = replace(done, realised=replace(done.realised, until=END - DAY))
    entry = replace(entry, events=(*entry.events, since))
    (slow,) = after(0.8, entry)  # x1.60, and 1.25 was the 90th percentile
    assert (slow.act, slow.why[:30]) == ("regressed", "Time for the same work: x1.60,")
    assert after(0.65, entry) == []  # x1.30: past it by less than a tenth
