# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
# pyright: reportOperatorIssue=false
"""The ledger: states from events and time, clocks that jump, fleets, and advice that heeds what was decided."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Advice, Decision, Fleet, Interval, Summary
from skuwise.advisor.core.worth import counted_recommendations, selected
from skuwise.advisor.state import ledger
from skuwise.advisor.state.file import State
from skuwise.advisor.state.fleets import StateBeside, file_stem, fleets_in, is_same, note_fleet, state_of
from skuwise.advisor.state.ledger import EXPIRES_AFTER_SECONDS, LedgerEvent, decision_from
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.ledger_builders import decide, entry_of, keep, kept, propose, recommendation
from skuwise.tests.support.moves_builders import advice_of, founding
from skuwise.tests.support.plan_builders import planner

NOW = 1_790_000_000.0
DAY = 86400.0
MOVE, OTHER = recommendation(), recommendation("r-other0000000", action="release")
HOSTILE = "\x1b[31m'; DROP TABLE decisions; --\u202e<b>|=1+1\nnext"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    keep(tmp_path / "state.db", entry_of(MOVE, LedgerEvent("proposed", NOW, "skuwise"), at=NOW))
    return tmp_path / "state.db"


def events(*acts: str) -> list[LedgerEvent]:
    return [LedgerEvent(act, NOW, "skuwise") for act in acts]


SNOOZED = LedgerEvent("snoozed", NOW, "ann", until=NOW + 7 * DAY)


@pytest.mark.parametrize(
    ("events", "after_days", "state"),
    [
        ([], 0, "proposed"), ([], 29.9, "proposed"), ([], 30, "expired"), (events("accepted"), 300, "accepted"),
        (events("dismissed"), 300, "dismissed"), ([SNOOZED], 6.9, "snoozed"), ([SNOOZED], 7, "proposed"),
        ([SNOOZED], 31, "expired"), (events("dismissed", "accepted"), 1, "accepted"),
        (events("accepted", "proposed"), 1, "accepted"), (events("accepted", "reopened"), 1, "proposed"),
        (events("dismissed", "reopened"), 31, "expired"),
        # What telemetry shows is a state like a decision.
        (events("proposed", "done"), 300, "done"), (events("accepted", "done", "measured"), 300, "done"),
        (events("done", "regressed"), 29, "regressed"), (events("done", "regressed"), 31, "expired"),
        (events("done", "regressed", "accepted"), 300, "accepted"), (events("done", "proposed"), 1, "proposed"),
        (events("done", "proposed"), 31, "expired"), (events("accepted", "measured"), 300, "accepted"),
    ],
)  # fmt: skip
def test_the_last_decision_holds_and_a_snooze_until_its_end(events, after_days, state) -> None:
    assert decision_from(events, NOW, NOW + after_days * DAY).state == state


def test_a_recommendation_is_kept_without_what_belongs_to_one_advice(path: Path) -> None:
    endless = Interval(1.0, 2.0, float("inf"))
    given = replace(
        MOVE, draws=np.ones(3), claims=("w-1",), decision=Decision("accepted", NOW), time_ratio=endless,
        yardstick=replace(MOVE.yardstick, usd_per_month=np.float64(5.0), off_hours=(1, 6)), text="n\u00e4me \udcff",
    )  # fmt: skip
    assert propose(path, given, OTHER, now=NOW + 1) == 1
    reported = kept(path)[MOVE.id].recommendation
    assert reported == replace(given, decision=None, time_ratio=None)
    assert (reported.draws, reported.claims, reported.needs) == (None, (), None)


jumps = pytest.mark.parametrize("jump", [DAY, -DAY, 3 * DAY, -30 * DAY])


@jumps
def test_what_was_decided_by_a_wrong_clock_holds(path: Path, jump: float) -> None:
    decide(path, MOVE.id, "dismissed", NOW + jump, why="so")
    decide(path, MOVE.id, "accepted", NOW)
    assert {kept(path)[MOVE.id].decision(at).state for at in (NOW, NOW + jump)} == {"accepted"}
    assert [e.act for e in kept(path)[MOVE.id].events] == ["proposed", "dismissed", "accepted"]


@jumps
def test_what_is_proposed_by_a_wrong_clock_expires_in_its_time(path: Path, jump: float) -> None:
    propose(path, MOVE, OTHER, now=NOW + jump, end=NOW)
    # The clock is right again, and OTHER is not advised any more: the next run pulls in what was dated ahead.
    hour_later = NOW + 3600.0
    propose(path, MOVE, now=hour_later)
    assert kept(path)[MOVE.id].decision(hour_later).state == "proposed"
    late = hour_later + EXPIRES_AFTER_SECONDS + DAY  # a day is the doubt that a clock has for nothing
    propose(path, MOVE, now=late)
    assert [kept(path)[id_].decision(late).state for id_ in (MOVE.id, OTHER.id)] == ["proposed", "expired"]
    assert [e.act for e in kept(path)[OTHER.id].events] == ["proposed", "expired"]
    assert all(e.first_proposed <= e.last_proposed <= late for e in kept(path).values())


@pytest.mark.parametrize("jump", [0.0, DAY, -DAY, -30 * DAY])
def test_what_was_mailed_is_told_again_after_the_cooldown_whatever_the_clock(path: Path, jump: float) -> None:
    week = NOW - NOW % (7 * DAY)

    def mailed(recipient: str, since: float, before: float = float("inf")) -> bool:
        with State(path).reading() as db:
            return ledger.mailed_since(db, recipient, since, before) == {MOVE.id}

    with State(path).writing() as db:
        ledger.note_mailed(db, "a", [MOVE.id], NOW + jump, week_end=week)
        ledger.note_mailed(db, "b", [MOVE.id], NOW)
    for weeks, is_known in ((0, False), (1, True), (3, True), (5, False)):
        end = week + weeks * 7 * DAY
        assert mailed("a", end - 28 * DAY, end) == is_known
    assert mailed("b", NOW) and mailed("b", NOW, NOW + 1) and not mailed("b", NOW + 1) and not mailed("c", 0.0)
    # What regressed since is sent again, in whatever order the clock puts the two.
    decide(path, MOVE.id, "regressed", NOW - 60 * DAY)
    assert not mailed("a", 0.0)


def decided(decisions: Mapping[str, Decision]) -> Advice:
    return planner(founding(), decisions=decisions).reasoned.advice


def test_a_decision_counts_until_it_is_taken_back(tmp_path: Path) -> None:
    demo, open_advice = replace(EU, simulated=True), decided({})
    beside = StateBeside(print, folder=tmp_path).of(demo)
    beside.note(replace(open_advice, fleet=demo), NOW)
    best = selected(open_advice).shown[0]
    assert best.counts

    def surfaces(*words: str) -> tuple[Summary, list[str]]:
        """After a decision: the sums, and what is shown (everywhere, see render/test_one_list.py)."""
        if words:
            assert main(["ledger", *words[:1], best.id, *words[1:], "--state", str(beside.state.path)]) == 0
        advice = decided(ledger.decisions_of(beside.entries(), time.time()))
        shown = [r.id for r in selected(advice).shown]
        cash = sum(r.saving_usd_per_month.p50 for r in counted_recommendations(advice.recommendations))
        assert advice.summary.recoverable_usd_per_month == pytest.approx(cash)
        return advice.summary, shown

    before = surfaces()
    assert surfaces("accept") == before  # what was accepted counts until it is done
    summary, shown = surfaces("dismiss", "--why", "a standby")
    assert shown == [id_ for id_ in before[1] if id_ != best.id]
    assert summary.recoverable_usd_per_month < before[0].recoverable_usd_per_month
    other = replace(demo, members={"GPU-other": "n0"})  # another demo: its clusters and nodes have the same names
    assert StateBeside(print, folder=tmp_path).of(other).entries() == ()
    assert surfaces("reopen") == before


def test_advice_is_noted_and_its_decisions_come_back(tmp_path: Path) -> None:
    said: list[str] = []
    beside = StateBeside(said.append, State(tmp_path / "deep" / "state.db"))
    assert beside.entries() == ()
    beside.note(replace(advice_of(founding()), recommendations=()), NOW)
    assert not said and not beside.state.path.exists()
    advice = advice_of(founding())
    count = len(advice.recommendations)
    for new in (count, 0):
        beside.note(advice, NOW)
        assert f"{count} recommendations recorded in" in said[-1] and f"({new} new)" in said[-1]
    decide(beside.state.path, (first := advice.recommendations[0].id), "snoozed", NOW, until=NOW + DAY)
    assert {key: d.state for key, d in ledger.decisions_of(beside.entries(), NOW + 1).items()} == {first: "snoozed"}
    assert ledger.decisions_of(beside.entries(), NOW + DAY) == {}


def test_a_ledger_that_cannot_be_read_is_done_without_unless_it_was_named(tmp_path: Path) -> None:
    said: list[str] = []
    damaged = tmp_path / f"{file_stem(EU)}.db"
    damaged.write_text("no database " * 99)
    beside = StateBeside(said.append, folder=tmp_path).of(EU)
    assert beside.state.path.name == f"{file_stem(EU)}-2.db" and "ignored" in said[0] and damaged.name in said[0]
    beside = StateBeside(said.append, State(damaged), tmp_path, EU)  # it was damaged since it was found
    assert beside.entries() == () and "no ledger" in said[1]
    beside.note(replace(advice_of(founding()), fleet=EU), NOW)
    assert "not recorded in the ledger" in said[2] and len(said) == 3
    for call in (lambda: StateBeside(said.append, State(damaged)).entries(), lambda: named(damaged).of(EU)):
        with pytest.raises(StoreError, match="not a database"):
            call()


def named(path: Path) -> StateBeside:
    return StateBeside(lambda _: None, State(path))


def test_text_from_outside_is_kept_and_does_no_harm(tmp_path: Path, capsys) -> None:
    advice = advice_of(founding())
    odd = tuple(replace(r, text=HOSTILE) for r in advice.recommendations)
    path = tmp_path / "state.db"
    named(path).note(replace(advice, recommendations=odd), NOW)
    typed = f"{HOSTILE}\udcff"
    assert main(["ledger", "dismiss", odd[0].id, "--why", typed, "--by", typed, "--state", str(path)]) == 0
    assert main(["ledger", "list", "--all", "--state", str(path)]) == 0
    printed = capsys.readouterr()
    assert not {"\x1b", "\u202e", "\udcff"} & set(printed.out + printed.err)
    assert "DROP TABLE" in printed.out
    assert main(["ledger", "list", "--all", "--format", "json", "--state", str(path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["recommendations"]) == len(odd)


def test_the_command_lists_and_decides(path: Path, capsys) -> None:
    place = ("--ledger", str(path))  # the older name of the option
    assert main(["ledger", "snooze", MOVE.id[:6], "--until", "2999-01-01", "--by", "ann", *place]) == 0
    assert f"{MOVE.id} (move-sku, chat) is snoozed until 2999-01-01 00:00 UTC." in capsys.readouterr().err
    assert main(["ledger", "list", *place]) == 0
    out = capsys.readouterr().out
    assert "snoozed until 2999-01-01" in out and ("$1,234" in out or "$1,235" in out)
    assert main(["ledger", "accept", MOVE.id, "--by", "bob", *place]) == 0
    assert main(["ledger", "dismiss", MOVE.id, "--why", "gone", *place]) == 0
    capsys.readouterr()
    assert main(["ledger", "list", "--format", "json", "--status", "dismissed", *place]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["recommendations"]
    assert listed["state"] == "dismissed"
    assert [e["act"] for e in listed["history"]] == ["proposed", "snoozed", "accepted", "dismissed"]
    assert main(["ledger", "list", "--state", str(path.with_name("none.db"))]) == 3
    assert "No state file at" in capsys.readouterr().err
    assert listed["history"][-1]["why"] == "gone" and listed["history"][1]["until"] == "2999-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["accept", "r-nothing"], "No match for 'r-nothing' in the ledger"), (["accept", "r-0"], "No match for"),
        (["accept", "r-0123456789ac"], "Did you mean r-0123456789ab?"), (["accept", ""], "No match for"),
        (["snooze", MOVE.id, "--until", "2020-01-01"], "is in the past"),
        (["snooze", MOVE.id, "--until", "9999-12-31T23:59:59-23:59"], "Invalid time"),
        (["snooze", MOVE.id, "--until", "soon"], "Invalid time 'soon'"),
        (["dismiss", MOVE.id, "--why", "  "], "The reason is empty. Set --why"),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_is_refused_in_one_sentence(path: Path, capsys, arguments, said) -> None:
    assert main(["ledger", *arguments, "--state", str(path)]) == 2
    printed = capsys.readouterr().err
    assert said in printed and len(printed.splitlines()) == 1
    assert [e.act for e in kept(path)[MOVE.id].events] == ["proposed"]


EU = Fleet(
    "eu", False, (), frozenset({"eu"}), {f"GPU-{n}": f"n{n // 8}" for n in range(32)},
    frozenset({"n0", "n1", "n2", "n3"}), frozenset({"a.db"}), "", {}, NOW - 14 * DAY, NOW,
)  # fmt: skip
NAMELESS = replace(EU, clusters=frozenset(), name="n0")
US = replace(EU, clusters=frozenset({"us"}), members={f"GPU-us-{n}": "n0" for n in range(32)})


@pytest.mark.parametrize(
    ("fleet", "recorded", "same"),
    [
        (EU, EU, True),
        (replace(EU, members={"GPU-new": "n9"}), EU, True),  # all nodes replaced, the cluster's name stays
        (EU, US, False),
        (replace(US, members={**US.members, "GPU-3": "n0"}), EU, False),  # one GPU moved from there
        (replace(EU, clusters=frozenset({"eu-1"})), EU, True),  # renamed
        (replace(NAMELESS, members={"GPU-3": "n0", "GPU-new": "n9"}), NAMELESS, True),
        (replace(NAMELESS, members={"GPU-new": "n0"}), NAMELESS, False),  # nodes of the same name
        (NAMELESS, EU, True),  # the same GPUs, through exporters without a cluster
        (replace(EU, simulated=True), EU, False),
        (replace(EU, simulated=True, members={"GPU-new": "n0"}), replace(EU, simulated=True), False),
        (replace(NAMELESS, members={"GPU-new": "n0"}, labels={"cluster": "x"}), NAMELESS, False),
    ],
)
def test_a_fleet_is_recognized_by_its_cluster_or_its_gpus(fleet: Fleet, recorded: Fleet, same: bool) -> None:
    assert is_same(fleet, recorded) == same


def note(path: Path, fleet: Fleet) -> Fleet:
    with State(path).writing() as db:
        note_fleet(db, fleet)
        (recorded,) = fleets_in(db)
    return recorded


def test_what_is_known_of_a_fleet_only_grows(tmp_path: Path) -> None:
    hostile = replace(EU, name="\x1b[31m'; DROP TABLE fleets; --", match=('a="\x1b"',))
    recorded = note(tmp_path / "state.db", hostile)
    assert recorded.members == EU.members and recorded.match == hostile.match and recorded.clusters == {"eu"}
    recorded = note(tmp_path / "state.db", replace(hostile, members={"GPU-new": "n9"}, end=NOW - DAY))
    assert recorded.members == {**EU.members, "GPU-new": "n9"} and (recorded.start, recorded.end) == (NOW, NOW)


def test_of_several_that_share_gpus_the_one_with_most_is_taken(tmp_path: Path) -> None:
    few, many = (replace(NAMELESS, members={f"GPU-{n}": "n0" for n in range(start, 32)}) for start in (30, 8))
    for fleet in (few, many):
        note(tmp_path / f"{file_stem(fleet)}.db", fleet)
    assert state_of(tmp_path, NAMELESS, print) == State(tmp_path / f"{file_stem(many)}.db")
    part = replace(NAMELESS, match=('rack="1"',))  # what was asked for is part of who it is
    assert state_of(tmp_path, part, print).path.name == f"{file_stem(part)}.db"
    # One that cannot be read for now may be this fleet's.
    (tmp_path / "locked.db").mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        state_of(tmp_path, US, print)
