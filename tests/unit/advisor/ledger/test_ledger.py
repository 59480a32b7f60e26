# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
"""The ledger: states from events and time, a file that only grows, and advice that heeds what was decided."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.advice_json import to_dict
from skuwise.advisor.core.advice_types import Advice, Decision, Fleet
from skuwise.advisor.pipeline import AdviseOptions, advise_on
from skuwise.advisor.render import render
from skuwise.advisor.state.entries import LedgerEvent, decision_from
from skuwise.advisor.state.fleets import KnownFleet, file_stem, is_same
from skuwise.advisor.state.ledger import LedgerSync, proposals
from skuwise.advisor.state.ledger_file import Ledger
from skuwise.advisor.state.paths import ledger_of
from skuwise.advisor.views.document.page_options import PageOptions
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.ledger_builders import proposal
from skuwise.tests.support.moves_builders import advice_of, catalog, founding
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.schemas import validate

NOW = 1_790_000_000.0
DAY = 86400.0
MOVE = proposal()
HOSTILE = "\x1b[31m'; DROP TABLE events; --\u202e<b>|=1+1\nnext\udcff"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.db", busy_seconds=0.05)
    assert made.propose([MOVE], NOW) == 1
    return made


def told(*acts: str) -> list[LedgerEvent]:
    return [LedgerEvent(act, NOW, "skuwise") for act in acts]


@pytest.mark.parametrize(
    ("events", "after_days", "state"),
    [
        ([], 0, "proposed"), ([], 29.9, "proposed"), ([], 30, "expired"),
        ([LedgerEvent("accepted", NOW, "ann")], 300, "accepted"),
        ([LedgerEvent("dismissed", NOW, "ann", why="no")], 300, "dismissed"),
        ([LedgerEvent("snoozed", NOW, "ann", until=NOW + 7 * DAY)], 6.9, "snoozed"),
        ([LedgerEvent("snoozed", NOW, "ann", until=NOW + 7 * DAY)], 7, "proposed"),
        ([LedgerEvent("snoozed", NOW, "ann", until=NOW + 7 * DAY)], 31, "expired"),
        ([LedgerEvent("dismissed", NOW, "ann"), LedgerEvent("accepted", NOW + 1, "bob")], 1, "accepted"),
        ([LedgerEvent("accepted", NOW, "ann"), LedgerEvent("proposed", NOW + 1, "skuwise")], 1, "accepted"),
        # What telemetry tells is a state like a decision.
        (told("proposed", "done"), 300, "done"), (told("accepted", "done", "measured"), 300, "done"),
        (told("done", "regressed"), 29, "regressed"), (told("done", "regressed"), 31, "expired"),
        (told("done", "regressed", "accepted"), 300, "accepted"), (told("done", "proposed"), 1, "proposed"),
        (told("done", "proposed"), 31, "expired"), (told("accepted", "measured"), 300, "accepted"),
    ],
)  # fmt: skip
def test_the_last_decision_holds_and_a_snooze_until_its_end(events, after_days, state) -> None:
    assert decision_from(events, NOW, NOW + after_days * DAY).state == state


def test_events_can_only_be_added(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path)) as db:
        for sql in ("UPDATE events SET why = 'x'", "DELETE FROM events"):
            with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
                db.execute(sql)


def of_version(version: int) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version = {version}")

    return spoil


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE mine (a)")


@pytest.mark.parametrize(
    ("spoil", "said", "remedy"),
    [
        (of_version(2003), "has version 2.3; this skuwise reads 1.x", "that wrote it"),
        (of_version(3), "has version 0.3; this skuwise reads 1.x", "that wrote it"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 8192),
            "is damaged or not a database",
            "recover",
        ),
        (foreign, "is a database, but not a ledger; it was not changed", "--ledger"),
        (lambda path: path.write_text("hello " * 999), "is damaged or not a database", "--ledger"),
    ],
)
def test_a_file_that_is_no_ledger_of_ours_is_refused_untouched(ledger: Ledger, spoil, said, remedy) -> None:
    spoil(ledger.path)
    before = ledger.path.read_bytes()
    calls = (
        ledger.entries,
        lambda: ledger.propose([MOVE], NOW),
        lambda: ledger.add(MOVE.id, LedgerEvent("accepted", 1, "a")),
    )
    for call in calls:
        with pytest.raises(StoreError, match=said) as refused:
            call()
        assert remedy in refused.value.remedy
    assert ledger.path.read_bytes() == before


def test_a_ledger_that_another_process_holds_is_told(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="is locked by another process") as refused:
            ledger.add(MOVE.id, LedgerEvent("accepted", NOW, "ann"))
    assert refused.value.remedy.startswith("Try again")


def test_what_was_mailed_is_told_again_after_the_cooldown(ledger: Ledger) -> None:
    assert ledger.mailed_since("a", 0.0) == frozenset()
    ledger.note_mailed("a", [MOVE.id], 5.0)
    assert ledger.mailed_since("a", 5.0) == ledger.mailed_since("a", 5.0, before=5.1) == {MOVE.id}
    assert ledger.mailed_since("a", 0.0, before=5.0) == frozenset()
    assert ledger.mailed_since("a", 5.1) == ledger.mailed_since("b", 0.0) == frozenset()


def decided(decisions: Mapping[str, Decision]) -> Advice:
    return advise_on(
        founding(), rulebook(catalog()), AdviseOptions(NOW, decisions), np.random.default_rng(1),
        source={"kind": "sqlite", "databases": ["fleet.db"]},
    )  # fmt: skip


@pytest.fixture(scope="module")
def open_advice() -> Advice:
    return decided({})


@pytest.mark.parametrize("state", ["dismissed", "snoozed"])
def test_what_was_set_aside_is_marked_and_not_counted(state, open_advice: Advice) -> None:
    assert open_advice.summary.recoverable_usd_per_month > 0
    counted = {r.id for r in open_advice.recommendations if r.realisation == "cash-now" and not r.blocked_by}
    why = Decision(state, NOW, "ann", NOW + DAY if state == "snoozed" else None, "a warm standby")
    advice = decided(dict.fromkeys(counted, why))
    assert advice.summary.recoverable_usd_per_month == 0
    assert {r.id for r in advice.recommendations} == {r.id for r in open_advice.recommendations}
    assert {r.id for r in advice.recommendations if r.set_aside} == counted
    for form in ("table", "markdown", "csv", "json"):
        told = render(advice, form, page=PageOptions(whole=True))
        assert state in told and "a warm standby" in told
    assert f"{len(counted)} {state}" in render(advice, "table")
    document = to_dict(advice)
    validate(json.loads(render(advice, "json")), "advice")
    assert {r["id"] for r in document["recommendations"] if r["decision"]} == counted


def test_advice_is_noted_and_its_decisions_come_back(tmp_path: Path) -> None:
    said: list[str] = []
    beside = LedgerSync(tmp_path / "deep" / "ledger.db", False, said.append)
    assert beside.decisions(NOW) == {}
    advice = advice_of(founding())
    beside.note(advice, NOW)
    assert f"{len(advice.recommendations)} recommendations recorded in" in said[0]
    first = advice.recommendations[0].id
    Ledger(beside.path).add(first, LedgerEvent("snoozed", NOW, "ann", NOW + DAY))
    assert {key: d.state for key, d in beside.decisions(NOW + 1).items()} == {first: "snoozed"}
    assert beside.decisions(NOW + DAY) == {}
    beside.note(advice, NOW + 2)
    assert "(0 new)" in said[-1] and len(Ledger(beside.path).entries()) == len(advice.recommendations)


def test_text_from_outside_is_kept_and_does_no_harm(tmp_path: Path, capsys) -> None:
    advice = advice_of(founding())
    odd = tuple(replace(r, text=HOSTILE) for r in advice.recommendations)
    path = tmp_path / "ledger.db"
    Ledger(path).propose(proposals(replace(advice, recommendations=odd)), NOW)
    assert main(["ledger", "dismiss", odd[0].id, "--why", HOSTILE, "--by", HOSTILE, "--ledger", str(path)]) == 0
    assert main(["ledger", "list", "--all", "--ledger", str(path)]) == 0
    told = capsys.readouterr()
    assert not {"\x1b", "\u202e", "\udcff"} & set(told.out + told.err)
    assert "DROP TABLE" in told.out
    assert main(["ledger", "list", "--all", "--format", "json", "--ledger", str(path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["recommendations"]) == len(odd)


@pytest.fixture
def path(ledger: Ledger) -> str:
    return str(ledger.path)


def test_the_command_lists_and_decides(path: str, capsys) -> None:
    assert main(["ledger", "snooze", MOVE.id[:6], "--until", "2999-01-01", "--by", "ann", "--ledger", path]) == 0
    assert f"{MOVE.id} (move-sku, chat) is snoozed until 2999-01-01 00:00 UTC." in capsys.readouterr().err
    assert main(["ledger", "list", "--ledger", path]) == 0
    out = capsys.readouterr().out
    assert "snoozed until 2999-01-01" in out
    assert "$1,234" in out or "$1,235" in out
    assert main(["ledger", "accept", MOVE.id, "--by", "bob", "--ledger", path]) == 0
    assert main(["ledger", "dismiss", MOVE.id, "--why", "gone", "--ledger", path]) == 0
    capsys.readouterr()
    assert main(["ledger", "list", "--format", "json", "--ledger", path]) == 0
    (told,) = json.loads(capsys.readouterr().out)["recommendations"]
    assert told["state"] == "dismissed"
    assert [e["act"] for e in told["history"]] == ["proposed", "snoozed", "accepted", "dismissed"]
    assert told["history"][-1]["why"] == "gone" and told["history"][1]["until"] == "2999-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["accept", "r-nothing"], 2, "No match for 'r-nothing' in the ledger"),
        (["accept", "r-0123456789ac"], 2, "Did you mean r-0123456789ab?"),
        (["accept", "r-0"], 2, "No match for"),
        (["accept", ""], 2, "No match for"),
        (["snooze", MOVE.id, "--until", "2020-01-01"], 2, "is in the past"),
        (["snooze", MOVE.id, "--until", "9999-12-31T23:59:59-23:59"], 2, "Invalid time"),
        (["snooze", MOVE.id, "--until", "soon"], 2, "Invalid time 'soon'"),
        (["dismiss", MOVE.id, "--why", "  "], 2, "The reason is empty. Set --why"),
    ],
)
def test_what_cannot_be_decided_is_refused_in_one_sentence(path, capsys, arguments, status, said) -> None:
    assert main(["ledger", *arguments, "--ledger", path]) == status
    told = capsys.readouterr().err
    assert said in told and len(told.splitlines()) == 1
    assert [e.act for e in Ledger(Path(path)).entries()[0].events] == ["proposed"]


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
        (NAMELESS, EU, True),  # the same GPUs, through exporters that tell no cluster
        (replace(EU, simulated=True), EU, False),
        (replace(EU, simulated=True, members={"GPU-new": "n0"}), replace(EU, simulated=True), False),
        (replace(NAMELESS, members={"GPU-new": "n0"}, labels={"cluster": "x"}), NAMELESS, False),
    ],
)
def test_a_fleet_is_recognized_by_its_cluster_or_its_gpus(fleet: Fleet, recorded: Fleet, same: bool) -> None:
    r = recorded
    known = KnownFleet(r.name, r.simulated, r.match, r.clusters, r.members, r.server, r.labels, r.end)
    assert is_same(fleet, known) == same


def test_what_is_recorded_is_read_back_and_only_grows(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    hostile = replace(EU, name="\x1b[31m'; DROP TABLE fleets; --", match=('a="\udcff"',))
    ledger.begin(hostile)
    (told,) = ledger.fleets()
    assert told.members == EU.members and told.match == hostile.match and told.clusters == {"eu"}
    ledger.propose((), NOW, fleet=replace(hostile, members={"GPU-new": "n9"}, end=NOW - DAY))
    (told,) = ledger.fleets()
    assert told.members == {**EU.members, "GPU-new": "n9"} and told.last_seen == NOW


def test_of_several_that_share_gpus_the_one_with_most_is_taken(tmp_path: Path) -> None:
    home = tmp_path / "ledgers"
    few, many = (replace(NAMELESS, members={f"GPU-{n}": "n0" for n in range(start, 32)}) for start in (30, 8))
    for fleet in (few, many):
        path = home / f"{file_stem(fleet)}.db"
        Ledger(path).begin(fleet)
    assert ledger_of(home, NAMELESS) == (home / f"{file_stem(many)}.db", ())
    part = replace(NAMELESS, match=('rack="1"',))
    assert ledger_of(home, part)[0].name == f"{file_stem(part)}.db"  # what was asked for is part of who it is
