# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false
"""A plan in the ledger: what telemetry tells of its steps and nodes, where it stands, and what it has saved."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skuwise.__main__ import main
from skuwise.advisor.ledger.entries import LedgerEntry, LedgerEvent, Proposal
from skuwise.advisor.ledger.file.plan_rows import followed
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.plans.follow import plan_events
from skuwise.advisor.ledger.plans.records import KeptPlan, PlanEvent
from skuwise.advisor.ledger.plans.standing import PlanStanding, standing_of
from skuwise.advisor.ledger.plans.words import first_words, heading, plan_dict, step_mention
from skuwise.advisor.mail.letter import Letter
from skuwise.advisor.report.by_team import plan_of, split_by_team
from skuwise.advisor.report.letters import letter_of
from skuwise.advisor.views.document.report_content import story_of
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support import report_fixtures
from skuwise.tests.support.kept_plans import DAY, FLEET, MOVE, node, plan, run, step, window
from skuwise.tests.support.moves_builders import END, IB, PLAIN, START
from skuwise.tests.support.seeds import examples

ALL = {"n1": END, "n2": END, "n3": END, "n4": END}
MOVED = END + DAY


def entry(*acts: LedgerEvent) -> LedgerEntry:
    proposal = Proposal(MOVE, "move-sku", "etl", "a", "b", 10.0, 0.0, "cash-now", "low", False, "t", "fleet.db")
    return LedgerEntry(proposal, END, END, acts)


def after(kept: KeptPlan, *windows, done=()) -> KeptPlan:
    """The plan with what each window tells, one after the other."""
    for seen in windows:
        kept = replace(kept, events=(*kept.events, *plan_events(kept, seen, seen.end, done)))
    return kept


def later(days: float, runs=(), gone=(), more=None):
    """A window that ends `days` later. `gone`: node -> when it was last seen."""
    end = END + days * DAY
    nodes = dict.fromkeys(ALL, end) | dict(gone) | (more or {})
    return window([run("web", "n1", end=end), *runs], nodes, end)


def stands(kept: KeptPlan, days: float = 10, *entries: LedgerEntry) -> PlanStanding:
    return standing_of(kept, entries or (entry(),), END + days * DAY)


def states(standing: PlanStanding) -> dict[int | str, str]:
    return {s.step.number: s.state for s in standing.steps} | {n.node.node: n.state for n in standing.nodes}


CHAT_AT_N2 = run("chat", "n2")
ETL = run("etl", "n3", end=END + 40 * DAY)


def chat_at_n1(days: float):
    return [run("chat", "n2", end=MOVED), run("chat", "n1", MOVED, END + days * DAY)]


# ---- steps and nodes


def test_a_plan_begins_with_steps_that_wait_and_a_node_that_is_empty() -> None:
    kept = after(plan(), window([CHAT_AT_N2, run("etl", "n3")], ALL))
    assert states(stands(kept)) == {1: "pending", 2: "waiting", "n2": "in-use", "n3": "in-use", "n4": "empty"}
    assert heading(stands(kept)).endswith("0 of 2 steps done, 0 of 3 nodes returned, $0 of $3,000/month realized")
    assert stands(kept).steps[1].waits_for == (1,)


def test_replicas_that_left_for_a_day_are_a_step_done_and_the_next_step_is_possible() -> None:
    short = after(plan(), later(1.5, [*chat_at_n1(1.5), ETL]))
    assert states(stands(short))[1] == "pending"
    kept = after(short, later(2.5, [*chat_at_n1(2.5), ETL]))
    told = stands(kept)
    assert states(told) == {1: "done", 2: "pending", "n2": "empty", "n3": "in-use", "n4": "empty"}
    (n2,) = [n for n in told.nodes if n.node.node == "n2"]
    assert told.steps[0].since == MOVED and n2.since == MOVED
    assert n2.paid_usd_per_month == 1000.0  # idle, and still paid
    assert told.realised_usd_per_month == 0.0
    # The same telemetry tells nothing new.
    assert not plan_events(kept, later(2.5, [*chat_at_n1(2.5), ETL]), END + 3 * DAY)


def test_a_node_is_returned_once_nothing_came_from_it_for_three_days_and_its_price_is_realized() -> None:
    kept = after(plan(), later(2.5, [*chat_at_n1(2.5), ETL]))
    silent = after(kept, later(4, [*chat_at_n1(4), ETL], gone={"n2": END + 2.5 * DAY}))
    assert states(stands(silent))["n2"] == "silent"
    kept = after(silent, later(6, [*chat_at_n1(6), ETL], gone={"n2": END + 2.5 * DAY}))
    told = stands(kept)
    assert states(told)["n2"] == "returned" and told.realised_usd_per_month == 1000.0
    assert (told.steps[0].planned_usd_per_month, told.steps[0].realised_usd_per_month) == (1000.0, 1000.0)
    (cash,) = told.cash
    assert (cash.nodes_planned, cash.nodes_returned, cash.predicted.p10) == (3, 1, 2000.0)


def test_a_step_whose_replicas_are_back_regresses_and_is_done_again_once_they_leave() -> None:
    done = after(plan(), later(2.5, [*chat_at_n1(2.5), ETL]))
    back = END + 3 * DAY
    again = [run("chat", "n2", end=MOVED), run("chat", "n1", MOVED, back), run("chat", "n2", back, END + 5 * DAY), ETL]
    kept = after(done, later(5, again))
    told = stands(kept)
    assert states(told) == {1: "regressed", 2: "waiting", "n2": "in-use", "n3": "in-use", "n4": "empty"}
    assert "n2 is in use again" in told.steps[0].why
    gone = END + 6 * DAY
    away = [run("chat", "n2", back, gone), run("chat", "n1", gone, END + 8 * DAY), ETL]
    assert states(stands(after(kept, later(8, away))))[1] == "done"


def test_a_node_that_others_fill_again_regresses_unless_it_was_to_be_capacity() -> None:
    done = [later(2.5, [*chat_at_n1(2.5), ETL])]
    others = later(5, [*chat_at_n1(5), ETL, run("batch", "n2", END + 3 * DAY, END + 5 * DAY)])
    told = stands(after(plan(), *done, others))
    assert (states(told)[1], states(told)["n2"]) == ("regressed", "in-use")
    assert "runs batch" in told.steps[0].why
    owned = plan(nodes=(node("n2", 1, realisation="capacity-freed"), node("n3", 2), node("n4", None)))
    told = stands(after(owned, *done, others))
    assert (states(told)[1], states(told)["n2"], told.returned) == ("done", "reused", 1)


def test_a_step_waits_for_the_node_that_others_hold() -> None:
    others = [*chat_at_n1(4), ETL, run("batch", "n2", START, END + 4 * DAY)]
    told = stands(after(plan(), later(4, others)))
    assert (states(told)[1], states(told)["n2"], told.steps[0].why) == ("pending", "in-use", "n2 runs batch")


def test_replicas_that_stay_on_a_node_are_none_of_the_step() -> None:
    kept = plan(steps=(step(1, parts={"leaves": {"n2": 1}, "frees": ()}),), nodes=(node("n4", None),))
    two = [run("chat", "n2", gpus=("a",)), run("chat", "n2", START + 1, gpus=("b",))]
    assert states(stands(after(kept, window(two, ALL))))[1] == "pending"
    one = [replace(two[0], end=END + 3 * DAY), replace(two[1], end=MOVED), run("chat", "n1", MOVED, END + 3 * DAY)]
    assert states(stands(after(kept, later(3, one))))[1] == "done"


def test_a_step_without_its_series_is_obsolete_and_open_again_when_it_is_back() -> None:
    kept = after(plan(), later(5, [ETL, run("chat", "n2", end=END)]))
    assert states(stands(kept))[1] == "obsolete"
    kept = after(kept, later(7, [ETL, run("chat", "n2", END + 6 * DAY, END + 7 * DAY)]))
    assert states(stands(kept))[1] == "pending"


@pytest.mark.parametrize(
    ("acts", "state", "why"),
    [
        ((), "pending", "not accepted yet"),
        ((LedgerEvent("accepted", END, "ann"),), "pending", "accepted by ann"),
        ((LedgerEvent("snoozed", END, "ann", END + 60 * DAY),), "pending", "snoozed by ann until"),
        ((LedgerEvent("dismissed", END, "ann", None, "no"),), "obsolete", "dismissed by ann: no"),
        ((LedgerEvent("done", END, "skuwise"),), "done", ""),
        ((LedgerEvent("done", END, "skuwise"), LedgerEvent("regressed", END, "skuwise", None, "w")), "regressed", "w"),
    ],
)
def test_a_recommended_step_is_where_its_recommendation_is(acts, state: str, why: str) -> None:
    told = stands(
        plan(steps=(replace(plan().steps[1], parts=replace(plan().steps[1].parts, after=())),)), 1, entry(*acts)
    )
    assert told.steps[0].state == state and why in (told.steps[0].why or "")
    assert step_mention(told, MOVE).startswith("step 1 of 1" if told.steps[0].step.number == 1 else "step 2 of 1")
    expired = standing_of(plan(), (entry(),), END + 31 * DAY)
    assert expired.steps[1].state == "obsolete"
    assert standing_of(plan(), (), END).steps[1].why == "its recommendation is not in the ledger"


def test_a_recommended_step_regresses_where_its_node_fills_again_once_it_was_done() -> None:
    done = entry(LedgerEvent("done", END, "skuwise"))
    left = [*chat_at_n1(3), run("etl", "n3", end=END)]
    free = after(plan(), later(3, left))
    assert states(stands(free, 10, done))[2] == "done"
    back = later(5, [*chat_at_n1(5), run("etl", "n3", END + 4 * DAY, END + 5 * DAY)])
    kept = after(free, back, done={MOVE})
    assert states(stands(kept, 10, done))[2] == "regressed"
    kept = after(kept, later(9, [*chat_at_n1(9), run("etl", "n3", END + 4 * DAY, END + 5 * DAY)]), done={MOVE})
    assert states(stands(kept, 10, done))[2] == "done"
    # A pause of two days of a step that nobody carried out.
    assert first_words(plan_events(free, back, back.end)) == []


def test_an_agent_that_was_down_frees_nothing_and_its_return_is_no_relapse() -> None:
    begun = after(plan(), window([CHAT_AT_N2, run("etl", "n3")], ALL))
    at = END + 1.3 * DAY
    two = [run("chat", "n2"), run("chat", "n1", START + 1, at), run("etl", "n3")]
    silent = window([run("web", "n1", end=at), *two], {"n1": at, "n2": END, "n3": END, "n4": at}, at)
    kept = after(begun, silent, done={MOVE})
    assert states(stands(kept, 2)) == {1: "pending", 2: "waiting", "n2": "silent", "n3": "silent", "n4": "empty"}
    back = later(2, [run("chat", "n2", end=END + 2 * DAY), run("etl", "n3", end=END + 2 * DAY)])
    assert first_words(plan_events(kept, back, back.end, {MOVE})) == []


# ---- what is not shown, and what took its place


def test_a_short_window_that_lacks_a_node_returns_none_and_ends_no_step() -> None:
    kept = after(plan(), window([CHAT_AT_N2, ETL], ALL))
    end = END + DAY
    short = window([run("web", "n1", end=end)], {"n1": end, "n4": end}, end, start=end - DAY / 4)
    assert states(stands(after(kept, short), 1)) == states(stands(kept, 1))
    assert states(stands(after(plan(), short), 1))["n2"] == "silent"
    # What a longer window told stays so.
    gone = after(kept, later(6, [*chat_at_n1(6), ETL], gone={"n2": END + DAY}))
    assert states(stands(gone))["n2"] == "returned"
    end = END + 7 * DAY
    short = window([run("web", "n1", end=end)], dict.fromkeys(("n1", "n3", "n4"), end), end, start=end - DAY / 4)
    assert states(stands(after(gone, short)))["n2"] == "returned"


@pytest.mark.parametrize("source", ["other/n1.db", "a.db"])
def test_what_lies_in_databases_that_are_not_read_is_not_gone(source: str) -> None:
    rent = step(3, "rent", series=None, name="", parts={"leaves": {}, "frees": (), "rents": ("new 1",)})
    nodes = (node("n2", 1), node("n3", 2), node("n4", None), node("new 1", 3, "rent"))
    whole = plan(steps=(*plan().steps, rent), nodes=nodes, source="a.db, b.db")
    new = {"p1": (PLAIN, MOVED)}
    first = replace(later(2, [run("chat", "n2", end=END + 2 * DAY), ETL], more=new), source="b.db, a.db")
    kept = after(whole, first)
    part = replace(window([run("web", "n1", end=END + 8 * DAY)], {"n1": END + 8 * DAY}, END + 8 * DAY), source=source)
    assert not plan_events(kept, part, part.end)
    all_of_it = replace(part, source="a.db, b.db, c.db")
    assert states(stands(after(kept, all_of_it))) == {
        1: "obsolete", 2: "waiting", 3: "regressed", "n2": "returned", "n3": "returned", "n4": "returned",
        "new 1": "missing",
    }  # fmt: skip


def test_nodes_under_new_names_replace_those_that_are_gone_and_save_nothing() -> None:
    kept = after(plan(), window([CHAT_AT_N2, run("etl", "n3")], ALL))
    away, end = END + 3 * DAY, END + 8 * DAY
    pool = dict.fromkeys(("m2", "m3", "m4"), (IB, away))
    runs = [run("chat", "n2", end=away), run("chat", "m2", away, end), run("etl", "m3", away, end)]
    gone = dict.fromkeys(("n2", "n3", "n4"), away)
    told = stands(kept := after(kept, later(8, runs, gone=gone, more=pool)), 8)
    assert (told.returned, told.replaced, told.realised_usd_per_month) == (0, 3, 0.0)
    assert states(told)[1] == "pending" and told.steps[0].why == "replaced by new nodes: n2"
    assert "0 of 3 nodes returned, 3 replaced, $0 of" in heading(told)
    # The pool shrinks by one: one of the three is returned after all.
    less = later(12, [*runs, run("chat", "m2", away, END + 12 * DAY)], gone=gone | {"m4": end}, more={
        "m2": (IB, away), "m3": (IB, away)})  # fmt: skip
    told = stands(after(kept, less), 12)
    assert (told.returned, told.replaced, told.realised_usd_per_month) == (1, 2, 1000.0)


def test_a_new_node_of_another_type_or_one_that_was_to_be_rented_replaces_none() -> None:
    gone = {"n4": END}
    told = stands(after(plan(), later(5, [*chat_at_n1(5), ETL], gone=gone, more={"p1": (PLAIN, MOVED)})))
    assert states(told)["n4"] == "returned" and told.replaced == 0
    rent = step(3, "rent", series=None, name="", parts={"leaves": {}, "frees": (), "rents": ("new 1",)})
    nodes = (node("n2", 1), node("n3", 2), node("n4", None), node("new 1", 3, "rent", node_sku=IB))
    rents = plan(steps=(*plan().steps, rent), nodes=nodes)
    told = stands(after(rents, later(5, [*chat_at_n1(5), ETL], gone=gone, more={"m1": (IB, MOVED)})))
    assert (states(told)["n4"], states(told)["new 1"]) == ("returned", "rented")


def test_nodes_to_rent_are_recognized_by_their_type_and_cost() -> None:
    rents = (node("new 1", 1, "rent", usd_per_month=300.0), node("new 2", 1, "rent", usd_per_month=300.0))
    there = node("old", None, "there", node_sku=PLAIN, usd_per_month=None)
    first = step(1, "rent", series=None, name="", what="Rent 2 nodes", parts={
        "leaves": {}, "frees": (), "rents": ("new 1", "new 2")})  # fmt: skip
    kept = plan(steps=(first,), nodes=(*rents, there, node("n4", None)))
    assert stands(kept).planned_usd_per_month == 400.0
    one = {"old": (PLAIN, START), "p1": (PLAIN, MOVED)}
    told = stands(after(kept, later(3, more=one)))
    assert states(told) == {1: "pending", "new 1": "rented", "new 2": "missing", "n4": "empty"}
    assert told.realised_usd_per_month == -300.0 and "1 of 2 nodes rented" in told.steps[0].why
    both = after(after(kept, later(3, more=one)), later(4, more=one | {"p2": (PLAIN, MOVED)}))
    assert states(stands(both))[1] == "done"
    assert states(stands(after(both, later(9, more=one))))[1] == "regressed"
    # One that left before the other came: the step never was complete.
    left = stands(after(kept, later(3, more=one), later(9, more={"old": (PLAIN, START)})))
    assert left.steps[0].state == "pending" and left.steps[0].why == "0 of 2 nodes rented"


def test_nodes_that_were_empty_are_given_up_once_they_are_returned() -> None:
    first = step(1, "give-up", series=None, name="", what="Return 1 node", parts={"leaves": {}, "frees": ("n4",)})
    kept = after(plan(steps=(first,), nodes=(node("n4", 1),)), later(1))
    assert states(stands(kept)) == {1: "pending", "n4": "empty"}
    assert stands(kept).steps[0].why == "0 of 1 node returned"
    kept = after(kept, later(5, gone={"n4": END}))
    assert states(stands(kept)) == {1: "done", "n4": "returned"}
    kept = after(kept, later(8, [run("batch", "n4", END + 6 * DAY, END + 8 * DAY)]))
    assert states(stands(kept)) == {1: "regressed", "n4": "in-use"}


def test_cash_of_a_later_date_is_no_cash_yet() -> None:
    kept = plan(nodes=(node("n2", 1), node("n4", None, realisation="cash-at", available_from="2099-01-01")))
    told = stands(after(kept, later(9, [*chat_at_n1(9), ETL], gone={"n2": END, "n4": END})))
    assert [(c.date, c.planned_usd_per_month, c.realised_usd_per_month) for c in told.cash] == [
        (None, 1000.0, 1000.0), ("2099-01-01", 2000.0, 2000.0),
    ]  # fmt: skip
    assert (told.realised_usd_per_month, told.planned_usd_per_month) == (1000.0, 2000.0)


def test_nodes_without_a_price_are_no_zero() -> None:
    kept = plan(nodes=(node("n2", 1, usd_per_month=None),))
    told = stands(after(kept, later(9, gone={"n2": END})))
    assert told.realised_usd_per_month is None and told.unpriced == 1
    assert "/month" not in heading(told)
    assert plan_dict(told, None)["realised_usd_per_month"] is None


# ---- windows that tell nothing


def test_an_older_window_or_one_of_a_part_of_the_fleet_tells_nothing() -> None:
    kept = plan(seen_until=END + 5 * DAY, nodes_today=9)
    assert not plan_events(kept, later(4), END + 4 * DAY)
    assert not plan_events(kept, later(6), END + 6 * DAY)  # 2 of 6 other nodes
    assert plan_events(replace(kept, nodes_today=4), later(6), END + 6 * DAY)


def test_a_plan_that_a_clock_dated_in_the_future_is_followed_all_the_same() -> None:
    ahead = plan(kept_at=END + 900 * DAY, generated_at=END + 900 * DAY, seen_until=END + 900 * DAY)
    kept = after(ahead, later(6, [*chat_at_n1(6), ETL], gone={"n4": END}))
    told = stands(kept, 6)
    assert states(told)["n4"] == "returned" and states(told)[1] == "done"


names = st.sampled_from(["n1", "n2", "n3", "n4", "p1", "\x1b[31m", "x" * 300])


@given(
    st.lists(
        st.tuples(st.sampled_from(["chat", "etl", "batch"]), names, st.floats(-9, 9), st.floats(0, 9)), max_size=6
    ),
    st.dictionaries(names, st.floats(-20, 9), max_size=6),
    st.floats(0, 9),
)
@settings(max_examples=examples(60))
def test_any_telemetry_leaves_a_plan_that_can_be_told(runs, nodes, days) -> None:
    end = END + days * DAY
    seen = window(
        [run(name, on, END + a * DAY, min(END + (a + b) * DAY, end)) for name, on, a, b in runs if END + a * DAY < end],
        {name: min(END + last * DAY, end) for name, last in nodes.items()}, end,
    )  # fmt: skip
    kept = plan(nodes_today=3)
    told = stands(after(kept, seen))
    assert not plan_events(after(kept, seen), seen, end)
    assert len(told.steps) == 2 and heading(told) and json.dumps(plan_dict(told, None), allow_nan=False)
    assert 0 <= told.realised_usd_per_month <= told.planned_usd_per_month


# ---- the file


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "ledger.db")
    found.propose([entry().proposal], END, fleet=FLEET)
    return found


def test_a_plan_comes_back_as_it_was_kept_and_a_new_one_takes_its_place(ledger: Ledger) -> None:
    first = plan(name="autumn")
    assert ledger.keep_plan(first, PlanEvent("kept", END, "ann"), {MOVE: LedgerEvent("accepted", END, "ann")}) is None
    assert ledger.plans() == (first,)
    assert ledger.entries()[0].decision(END).state == "accepted"
    second = plan(kept_at=END - 900 * DAY)  # by a clock that went back
    before = ledger.keep_plan(second, PlanEvent("kept", second.kept_at, "bob"), {})
    assert before.id == first.id
    old, new = ledger.plans()
    assert (old.id, old.state, new.id, new.state) == (first.id, "superseded", second.id, "followed")
    other = replace(plan(fleet="other"), events=())
    ledger.keep_plan(other, PlanEvent("kept", END, "eve"), {})
    assert followed(ledger.plans(), first.fleet).id == second.id
    assert followed(ledger.plans(), "other").id == other.id
    ledger.end_plan(second.id, PlanEvent("dropped", END, "bob", "enough"))
    assert followed(ledger.plans(), first.fleet) is None


def test_what_happened_is_noted_once(ledger: Ledger) -> None:
    kept = plan()
    ledger.keep_plan(kept, PlanEvent("kept", END, "ann"), {})
    seen = later(6, [*chat_at_n1(6), ETL], gone={"n4": END})
    ledger.note_plan(kept.fleet, lambda p: plan_events(p, seen, seen.end))
    told = ledger.note_plan(kept.fleet, lambda p: plan_events(p, seen, seen.end))
    assert states(stands(told))["n4"] == "returned"
    assert [e.act for e in ledger.plans()[0].events] == [e.act for e in after(kept, seen).events]
    assert ledger.note_plan("other", lambda p: plan_events(p, seen, seen.end)) is None
    # Events of a plan are none of a recommendation.
    assert [e.act for e in ledger.entries()[0].events] == ["proposed"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE plan_nodes SET usd_per_month = 1 WHERE node = 'n2'", "DELETE FROM plan_steps WHERE number = 1",
        "UPDATE plans SET goal = 'nodes'", "INSERT INTO plan_nodes SELECT plan, 'n9', role, pool, node_sku, gpus, "
        "usd_per_month, realisation, available_from, step, drains FROM plan_nodes LIMIT 1",
    ],
)  # fmt: skip
def test_a_plan_that_was_changed_is_refused_and_the_recommendations_are_not(
    ledger: Ledger, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.keep_plan(plan(), PlanEvent("kept", END, "ann"), {})
    with closing(sqlite3.connect(ledger.path)) as db, db:
        db.execute(change)
    with pytest.raises(StoreError, match="changed after it was kept"):
        ledger.plans()
    assert main(["ledger", "plan", "--ledger", str(ledger.path)]) == 1
    assert main(["ledger", "show", MOVE, "--ledger", str(ledger.path)]) == 0
    assert "was changed after it was kept" in capsys.readouterr().err
    new = plan(name="new")
    ledger.keep_plan(new, PlanEvent("kept", END, "ann"), {})
    assert [p.id for p in ledger.plans()] == [new.id]


def test_the_history_of_a_plan_cannot_be_changed(ledger: Ledger) -> None:
    ledger.keep_plan(plan(), PlanEvent("kept", END, "ann"), {})
    with closing(sqlite3.connect(ledger.path)) as db, pytest.raises(sqlite3.IntegrityError, match="only ever added"):
        db.execute("DELETE FROM events")


def test_a_ledger_of_the_version_before_has_no_plan_and_gets_one(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path)) as db:
        for table in ("plans", "plan_steps", "plan_nodes"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version = 1003")
    assert ledger.plans() == ()
    ledger.keep_plan(plan(), PlanEvent("kept", END, "ann"), {})
    assert len(ledger.plans()) == 1


# ---- the command


def command(ledger: Ledger, *arguments: str) -> int:
    return main(["ledger", "plan", "--ledger", str(ledger.path), *arguments])


def test_the_command_shows_a_plan_drops_it_and_lists_it_afterwards(
    ledger: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert command(ledger) == 3
    assert "--keep" in capsys.readouterr().err
    hostile = "\x1b[31mred\n"
    kept = plan(steps=(replace(plan().steps[0], what=hostile, name=hostile), plan().steps[1]), name=hostile)
    ledger.keep_plan(kept, PlanEvent("kept", END, "ann"), {MOVE: LedgerEvent("accepted", END, "ann")})
    assert command(ledger) == 0
    shown = capsys.readouterr().out
    assert "0 of 2 steps done" in shown and "\x1b" not in shown and "after step 1" in shown
    assert command(ledger, "--format", "json") == 0
    (told,) = json.loads(capsys.readouterr().out)["plans"]
    assert told["steps"][1]["waits_for"] == [1] and told["state"] == "followed"
    assert command(ledger, "--drop") == 2
    assert command(ledger, kept.id[:6], "--drop", "--why", "enough", "--by", "bob") == 0
    assert command(ledger) == 3 and kept.id in capsys.readouterr().err
    assert command(ledger, kept.id, "--drop", "--why", "again") == 2
    assert command(ledger, kept.id) == 0
    assert "dropped by bob" in capsys.readouterr().out
    assert command(ledger, "p-ffffffff") == 2


def test_all_lists_earlier_plans(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        ledger.keep_plan(plan(name=name), PlanEvent("kept", END, "ann"), {})
    assert command(ledger, "--all") == 0
    shown = capsys.readouterr().out
    assert "Earlier plans" in shown and "superseded" in shown and "replaced by p-" in shown
    assert command(ledger, "--all", "--format", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["plans"]) == 2


def test_a_plan_that_was_changed_leaves_those_of_other_fleets_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "skuwise" / "ledgers"
    folder.mkdir(parents=True)
    kept = {name: plan(name=name) for name in ("a", "b")}
    for name, one in kept.items():
        ledger = Ledger(folder / f"{name}.db")
        ledger.propose([entry().proposal], END, fleet=FLEET)
        ledger.keep_plan(one, PlanEvent("kept", END, "ann"), {})

    def change(name: str) -> None:
        with closing(sqlite3.connect(folder / f"{name}.db")) as db, db:
            db.execute("UPDATE plans SET goal = 'nodes'")

    change("b")
    assert main(["ledger", "plan", "--format", "json"]) == 0
    told = capsys.readouterr()
    assert [p["id"] for p in json.loads(told.out)["plans"]] == [kept["a"].id]
    assert "left out: " in told.err and kept["b"].id in told.err
    change("a")
    assert main(["ledger", "plan"]) == 1


# ---- the mail


def test_the_mail_tells_where_the_plan_stands_and_each_team_its_own_steps() -> None:
    advice = report_fixtures.fleet(teams=2)
    one, other = (next(w for w in advice.workloads if w.owner.namespace == f"team-00{t}") for t in (0, 1))
    steps = (
        step(1, series=one.series_id, name=one.name, what="Move 1 replica of first"),
        step(2, series=other.series_id, name=other.name, what="Move 1 replica of second", parts={"after": (1,)}),
    )
    idle = PlanEvent("empty", END, "skuwise", None, None, "n4", END - 3 * DAY, END)
    back = PlanEvent("regressed", END, "skuwise", "n2 is in use again", 1, None, END - DAY, END)
    told = standing_of(plan(steps=steps, events=(idle, back)), (), END)

    def mail(team: str | None) -> Letter:
        parts = split_by_team(advice, lambda w: w.owner.namespace)
        mine = told if team is None else plan_of(told, parts, team)
        return letter_of(story_of(advice if team is None else parts[team], None, team=team, plan=mine))

    text = mail(None).text
    assert "0 of 2 steps done, 1 regressed, 0 of 3 nodes returned" in text
    assert "Move 1 replica of first" in text and "after step 1" not in text
    assert "still costs" in " ".join(text.split()) and "ledger plan" in text
    assert "1 step waits" in " ".join(text.split())
    assert "Move 1 replica of second" not in mail("team-000").text and "first" in mail("team-000").text
    assert "0 of 1 step done, 0 of 1 node returned" in mail("team-001").text
    parts = split_by_team(advice, lambda w: w.owner.namespace, teams=["empty"])
    assert plan_of(told, parts, "empty") is None and plan_of(None, parts, "empty") is None
    assert "Plan of" not in letter_of(story_of(advice, None)).text
