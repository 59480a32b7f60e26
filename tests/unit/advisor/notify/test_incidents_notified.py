"""A pass of notifying: who receives what, once, and what is left for the next pass."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from skuwise.advisor.core.incident_types import Incident
from skuwise.advisor.notify import incidents as notifying
from skuwise.advisor.notify.incidents import Events, is_held, notices_of
from skuwise.advisor.notify.routes import Recipient, Routes, TeamRoute
from skuwise.advisor.state.deliveries import Reply, Told
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.tests.support.delivery_builders import OPS, A, B, Bench
from skuwise.tests.support.incident_builders import HOUR, MORNING, ended, event, incident
from skuwise.tests.support.stored_rows import rows

Begin = Callable[..., Bench]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    def made(**watch: Any) -> Bench:
        bench = Bench(tmp_path, **watch)
        carriers = {"mail": bench.carrier, "webhook": bench.carrier}
        monkeypatch.setattr(notifying, "carriers_of", lambda *_: (carriers, ()))
        return bench

    return made


def test_an_incident_is_told_reminded_and_ended_once_in_one_thread(begin: Begin) -> None:
    bench = begin()
    stored = bench.add(incident(1), "opened")
    tally = bench.notify()
    assert (tally.sent, tally.waiting, tally.failed) == (2, 0, False)
    subject = "[skuwise] 8 H100s held but idle for 2.1 h on gpu-009 (alice, job 4711): $51 so far"
    assert bench.carrier.subjects(A) == [o.subject for o in bench.carrier.taken if o.channel == "webhook"] == [subject]
    assert bench.untold() == [] and bench.notify().sent == 0
    bench.at += 24 * HOUR
    bench.add(replace(stored, reminders=1, last_seen_at=bench.at), "reminded", at=bench.at)
    assert bench.notify().sent == 2
    bench.at += HOUR
    bench.add(ended(replace(stored, reminders=1), bench.at), "resolved", at=bench.at)
    assert bench.notify().sent == 2
    opening, *later = bench.carrier.of(A)
    assert opening["In-Reply-To"] is None and opening["Auto-Submitted"] == "auto-generated"
    assert [mail["In-Reply-To"] for mail in later] == [opening["Message-ID"]] * 2
    assert [mail["Subject"].split(":")[0] for mail in later] == ["[skuwise] Reminder", "[skuwise] Resolved"]
    assert bench.carrier.of(B) == bench.carrier.of(OPS) == []


def test_each_address_of_a_team_has_its_own_mail_and_an_address_of_two_teams_one(begin: Begin) -> None:
    bench = begin()
    bench.routes = replace(bench.routes, fleet=TeamRoute("", (A,)), teams=(TeamRoute("search", (A, B)),))
    bench.add(incident(1, kind="fault-clock", code="clock-stuck-low"), "opened")  # the administrators' too
    assert bench.notify().sent == 2
    assert [(stored.team, stored.recipient) for stored in bench.carrier.taken] == [("search", A), ("search", B)]
    (first,), (second,) = bench.carrier.of(A), bench.carrier.of(B)
    assert (first["To"], second["To"]) == (A, B) and first["Message-ID"] != second["Message-ID"]
    # New recipients of the routes do not receive what was opened before, and not its end.
    bench.routes = replace(bench.routes, teams=(TeamRoute("search", (A, B, OPS)),))
    bench.add(ended(incident(1, kind="fault-clock", code="clock-stuck-low")), "resolved")
    assert bench.notify().sent == 2 and bench.carrier.of(OPS) == []


def test_quiet_hours_let_high_severity_through_and_the_rest_is_one_digest_in_the_morning(begin: Begin) -> None:
    bench = begin(quiet_hours=(22, 7), time_zone=ZoneInfo("UTC"))  # MORNING is 06:00 UTC
    bench.add(incident(1), "opened")
    bench.add(incident(2, severity="high"), "opened")
    night = bench.add(incident(3), "opened")
    assert bench.notify().sent == 2
    bench.add(ended(night, MORNING + 600), "resolved", at=MORNING + 600)
    assert bench.notify().sent == 0
    bench.at += HOUR
    assert bench.notify().sent == 2
    first, second = bench.carrier.subjects(A)
    assert "job 4712" in first and second.startswith("[skuwise] 2 incidents (1 new, 1 ended)")
    assert bench.notify().sent == 0 and bench.untold() == []


def test_while_a_server_is_down_one_message_waits_and_the_rest_is_one_digest_after_it(begin: Begin) -> None:
    bench = begin()
    bench.carrier.answer = lambda to: Reply("later", "451 later") if to == A else None
    for n in range(5):
        bench.add(incident(n), "opened")
        tally = bench.notify()
        assert tally.waiting == 1 and not tally.failed
    bench.carrier.answer = lambda _: None
    bench.at += 4 * HOUR
    assert [bench.notify().sent for _ in range(2)] == [1, 1]
    first, second = bench.carrier.subjects(A)
    assert "job 4710" in first and second.startswith("[skuwise] 4 incidents (4 new)")
    assert bench.untold() == []


def test_a_pass_that_is_killed_before_its_commit_has_queued_nothing(begin: Begin, monkeypatch) -> None:
    bench = begin()
    bench.add(incident(1), "opened")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(notifying, "mark", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        bench.notify()
    assert len(bench.untold()) == 1 and rows(bench.state.path, "SELECT id FROM deliveries") == []
    assert bench.notify().sent == 2 and bench.untold() == []


def test_a_dry_run_prints_each_event_once_and_a_real_run_sends_all_that_is_open(begin: Begin) -> None:
    bench = begin(send=False, alertmanager_url="http://127.0.0.1:1")
    stored = bench.add(incident(1), "opened")
    bench.add(incident(2, user="carol"), "opened")
    assert not bench.notify().failed
    assert [line.split(":")[0] for line in bench.said] == [
        f"would be sent to search (mail, {A})", "would be sent to search (webhook, webhook)",
        f"would be sent to the fleet (mail, {OPS})", "would update 2 alerts in http",
        "Dry run, nothing was sent. To send",
    ]  # fmt: skip
    bench.said.clear()
    bench.notify()
    assert bench.said == [] and bench.carrier.taken == []
    # What began and ended meanwhile is not reported.
    bench.add(ended(stored), "resolved")
    bench.notify()
    assert bench.untold() == ["i-00000002/0"]
    bench.watch |= {"send": True, "alertmanager_url": ""}
    assert bench.notify().sent == 1 and len(bench.carrier.of(OPS)) == 1 and bench.carrier.of(A) == []


def test_without_recipients_a_pass_says_so(begin: Begin) -> None:
    bench = begin()
    bench.routes = replace(bench.routes, fleet=TeamRoute("", ()))
    bench.add(incident(1, user="bob"), "opened")
    bench.add(incident(2, user="carol"), "opened")
    assert bench.notify().sent == 1
    assert "No recipient for 1 incident: set administrators in [report]." in bench.said and bench.untold() == []
    bench.routes = Routes()
    bench.add(incident(3), "opened")
    tally = bench.notify()
    assert tally.failed and "No recipients configured" in str(tally.down[0]) and len(bench.untold()) == 1


SEARCH = Recipient("search", "mail", A)
ONE, OVER, BACK = incident(1), ended(incident(1)), replace(incident(1), reopenings=1)
HAD = {"i-00000001/0": (Told("mail", "search", A, "<1@x>"),)}


@pytest.mark.parametrize(
    ("kinds", "stored", "informed", "tally"),
    [
        (("opened",), ONE, {}, ["opened"]), (("opened",), ONE, HAD, []), (("reminded",), ONE, {}, ["reminded"]),
        (("opened", "resolved"), OVER, {}, ["over"]), (("opened", "resolved"), OVER, HAD, ["resolved"]),
        (("resolved",), OVER, {}, []), (("resolved",), OVER, HAD, ["resolved"]),
        # What came back is not reported as resolved, and several events are one item.
        (("opened", "resolved", "reminded"), BACK, {}, ["opened"]),
        (("resolved", "reminded"), BACK, HAD, ["reminded"]), (("resolved",), BACK, HAD, []),
    ],
)  # fmt: skip
def test_a_recipient_is_told_of_an_incident_as_it_is_now(kinds, stored: Incident, informed, tally) -> None:
    events: Events = [(event(stored, kind), stored) for kind in kinds]
    notices, held = notices_of(events, lambda _: (SEARCH,), informed, frozenset())
    assert [item.kind for items, _ in notices.values() for item in items] == tally and held == set()
    # An earlier message has yet to reach the recipient: its events wait.
    notices, held = notices_of(events, lambda _: (SEARCH,), informed, {SEARCH})
    assert notices == {} and bool(held) == bool(tally)


def test_incidents_follow_the_routes_and_administrators_have_platform_matters(begin: Begin) -> None:
    bench = begin()
    bench.routes = replace(
        bench.routes, teams=(TeamRoute("search", (A,)), TeamRoute("infra", (B,))),
        matchers={("user", "alice"): "search", ("node", "gpu-*"): "infra"},
    )  # fmt: skip
    silent = incident(1, kind="telemetry-dead", code="node-silent", workload=False)
    for stored, addresses in (
        (incident(1), [A]), (incident(1, user="bob"), [B]), (incident(1, user="bob", node="cpu-1"), [OPS]),
        (silent, [B, OPS]), (incident(1, kind="fault-clock", code="clock-stuck-low"), [A, OPS]),
    ):  # fmt: skip
        assert [to.address for to in bench.run().recipients(stored)] == addresses


@pytest.mark.parametrize(
    ("hours", "moment", "quiet"),
    [
        ((22, 7), "2026-11-24T21:59:59", False), ((22, 7), "2026-11-24T22:00:00", True),
        ((22, 7), "2026-11-25T06:59:59", True), ((22, 7), "2026-11-25T07:00:00", False),
        ((1, 5), "2026-11-25T01:00:00", True), ((23, 0), "2026-11-25T00:00:00", False),
    ],
)  # fmt: skip
def test_quiet_hours_are_local_and_hold_all_but_high_severity(hours: tuple[int, int], moment: str, quiet: bool) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    at = datetime.fromisoformat(moment).replace(tzinfo=berlin).timestamp()
    settings = WatchSettings(quiet_hours=hours, time_zone=berlin)
    assert [is_held(incident(severity=stored), settings, at) for stored in ("low", "high")] == [quiet, False]
