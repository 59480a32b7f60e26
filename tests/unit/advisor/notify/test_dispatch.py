"""A pass of notifying: who is told what, once, and what waits for the next one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from skuwise.advisor.notify import dispatch as dispatching
from skuwise.advisor.notify.delivery import Clocks
from skuwise.advisor.notify.desk import Desk, Recipient
from skuwise.advisor.notify.dispatch import DRY_RUN, Batch, Told, Untold, batches_of, key_of, waits
from skuwise.advisor.notify.routes import Routes, TeamRoute
from skuwise.advisor.notify.settings import ReportSettings
from skuwise.advisor.state.outbox import Outbox
from skuwise.advisor.state.parcel import Reply
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.agent.model import Instant
from skuwise.tests.support.incident_builders import HOUR, MORNING, FilledStore, ended, event, incident
from skuwise.tests.support.notify_desk import OPS, A, B, Bench

Begin = Callable[..., tuple[Bench, FilledStore]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    def made(**watch: Any) -> tuple[Bench, FilledStore]:
        bench = Bench(tmp_path, **watch)
        carriers = {"mail": bench.carrier, "webhook": bench.carrier}
        monkeypatch.setattr(dispatching, "available_carriers", lambda *_: (carriers, ()))
        return bench, FilledStore(tmp_path / "incidents.db")

    return made


def passed(store: FilledStore, bench: Bench) -> Told:
    return dispatching.dispatch(store, bench.desk())


def test_an_incident_is_told_reminded_and_ended_once_in_one_thread(begin: Begin) -> None:
    bench, store = begin()
    one = store.add(incident(1), "opened")
    told = passed(store, bench)
    assert (told.queued, told.sent, told.waiting, told.failed) == (2, 2, 0, False)
    subject = "[skuwise] 8 H100-SXM5 held idle for 2.1 h on gpu-009 (alice, job 4711): $51 so far"
    assert bench.carrier.subjects(A) == [o.subject for o in bench.carrier.taken if o.channel == "webhook"] == [subject]
    assert store.untold() == ()
    # Nothing new: nobody hears anything.
    assert passed(store, bench).queued == 0
    bench.at += 24 * HOUR
    store.add(replace(one, reminders=1, last_seen_at=bench.at), "reminded", at=bench.at)
    assert passed(store, bench).sent == 2
    bench.at += HOUR
    store.add(ended(replace(one, reminders=1), bench.at), "resolved", at=bench.at)
    assert passed(store, bench).sent == 2
    opening, *later = bench.carrier.of(A)
    assert opening["In-Reply-To"] is None and opening["Auto-Submitted"] == "auto-generated"
    assert [mail["In-Reply-To"] for mail in later] == [opening["Message-ID"]] * 2
    assert [mail["Subject"].split(":")[0] for mail in later] == ["[skuwise] Reminder", "[skuwise] Resolved"]
    assert bench.carrier.of(B) == bench.carrier.of(OPS) == []


def test_quiet_hours_let_high_severity_through_and_the_rest_is_one_digest_in_the_morning(begin: Begin) -> None:
    bench, store = begin(quiet_hours=(22, 7), time_zone=ZoneInfo("UTC"))  # MORNING is 06:00 UTC
    store.add(incident(1), "opened")
    store.add(incident(2, severity="high"), "opened")
    night = store.add(incident(3), "opened")
    told = passed(store, bench)
    assert (told.queued, told.quiet) == (2, 2)
    store.add(ended(night, MORNING + 600), "resolved", at=MORNING + 600)
    assert passed(store, bench).queued == 0
    bench.at += HOUR
    assert passed(store, bench).queued == 2
    first, second = bench.carrier.subjects(A)
    assert "job 4712" in first and second.startswith("[skuwise] 2 incidents (1 new, 1 ended)")
    assert passed(store, bench).queued == 0 and store.untold() == ()


def test_while_a_server_is_down_one_message_waits_and_the_rest_is_one_digest_after_it(begin: Begin) -> None:
    bench, store = begin()
    bench.carrier.answer = lambda to: Reply("later", "451 later") if to == A else None
    for n in range(5):
        store.add(incident(n), "opened")
        told = passed(store, bench)
        assert told.waiting == 1 and not told.failed
    bench.carrier.answer = lambda _: None
    bench.at += 4 * HOUR
    assert passed(store, bench).sent == 1
    assert passed(store, bench).sent == 1
    first, second = bench.carrier.subjects(A)
    assert "job 4710" in first and second.startswith("[skuwise] 4 incidents (4 new)")
    assert store.untold() == ()


def test_what_a_killed_pass_had_queued_is_not_queued_again(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, store = begin()
    one = store.add(incident(1), "opened")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store, "note_queued", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        passed(store, bench)
    assert store.told(event(one)) == frozenset()
    assert passed(store, bench).sent == 2 and bench.rows("SELECT count(*) FROM mails") == [(2,)]
    assert store.told(event(one)) == {f"mail:{A}", "webhook:search"} and store.untold() == ()


def test_a_dry_run_prints_each_event_once_and_a_real_run_sends_all_that_is_open(begin: Begin) -> None:
    bench, store = begin(send=False, alertmanager_url="http://127.0.0.1:1")
    one = store.add(incident(1), "opened")
    other = store.add(incident(2, user="carol"), "opened")
    assert not passed(store, bench).failed
    assert [line.split(":")[0] for line in bench.lines] == [
        f"would be sent to search ({A})", "would be sent to search (webhook)",
        f"would be sent to the administrators ({OPS})", "would update 2 alerts in http",
        "Dry run, nothing was sent. To send",
    ]  # fmt: skip
    # Neither the next pass nor another process repeats it.
    bench.lines.clear()
    passed(store, bench)
    assert bench.lines == [] and bench.carrier.taken == []
    # What began and ended meanwhile is nobody's business any more.
    store.add(ended(one), "resolved")
    passed(store, bench)
    assert [event.incident_id for event, _ in store.untold()] == [other.id]
    bench.watch |= {"send": True, "alertmanager_url": ""}
    assert passed(store, bench).sent == 1 and len(bench.carrier.of(OPS)) == 1 and bench.carrier.of(A) == []
    assert DRY_RUN in store.told(event(other))


def test_without_recipients_a_pass_says_so(begin: Begin) -> None:
    bench, store = begin()
    bench.routes = Routes((), bench.routes.teams, bench.routes.matchers)
    store.add(incident(1, user="bob"), "opened")
    store.add(incident(2, user="carol"), "opened")
    assert passed(store, bench).sent == 1
    assert "No recipient for 1 incident: set administrators in [report]." in bench.lines and store.untold() == ()
    bench.routes = Routes()
    store.add(incident(3), "opened")
    told = passed(store, bench)
    assert told.failed and "No recipients configured" in str(told.faults[0]) and len(store.untold()) == 1


SEARCH = Recipient("search", "mail", "a@example.org")
HOOK = Recipient("search", "webhook", "webhook")


def made(
    untold: Untold, *to: Recipient, told: dict[str, set[str]] | None = None, knows: bool = False
) -> tuple[tuple[Batch, ...], frozenset[str]]:
    return batches_of(untold, lambda _: to, told or {}, lambda _, __: knows, lambda _: False)


def kinds(batches: Sequence[Batch]) -> list[list[str]]:
    return [[item.kind for item in one.items] for one in batches]


def test_addresses_of_a_team_share_a_mail_unless_one_has_it_already() -> None:
    one = incident(1)
    other = replace(SEARCH, address="b@example.org")
    batches, _ = made([(event(one), one)], SEARCH, other)
    assert [batch.recipients for batch in batches] == [(SEARCH, other)]
    batches, _ = made([(event(one), one)], SEARCH, other, told={key_of(event(one)): {SEARCH.key}})
    assert [batch.recipients for batch in batches] == [(other,)]


def test_what_began_and_ended_unseen_is_one_line_and_an_end_without_a_beginning_is_none() -> None:
    over = ended(incident(1))
    both = [(event(over), over), (event(over, "resolved"), over)]
    assert kinds(made(both, SEARCH)[0]) == [["over"]] and made(both[1:], SEARCH, knows=False)[0] == ()
    assert kinds(made(both[1:], SEARCH, knows=True)[0]) == [["resolved"]]
    # Somebody who had the beginning reads of its end.
    had = made(both, SEARCH, told={key_of(both[0][0]): {SEARCH.key}}, knows=True)
    assert kinds(had[0]) == [["resolved"]]


def test_what_came_back_is_not_reported_as_resolved_and_several_events_are_one_item() -> None:
    one = incident(1)
    came_back = [(event(one), one), (event(one, "resolved"), one), (event(one, "reminded"), one)]
    batches, _ = made(came_back, SEARCH)
    assert kinds(batches) == [["opened"]] and len(batches[0].events) == 3
    assert kinds(made(came_back[1:], SEARCH, knows=True)[0]) == [["reminded"]]
    assert made(came_back[1:2], SEARCH, knows=True)[0] == ()


def desk(routes: Routes) -> Desk:
    report = ReportSettings(administrators=("ops@example.org",), webhook_url_file="/hook")
    clocks = Clocks(lambda: Instant(MORNING, 0.0), lambda _: None)
    return Desk(routes, report, WatchSettings(), Outbox(None), clocks, print)  # type: ignore[arg-type] - never opened


def test_incidents_follow_the_routes_of_the_report_and_platform_matters_reach_the_administrators_too() -> None:
    teams = (TeamRoute("search", ("a@example.org",)), TeamRoute("infra", ("b@example.org",)))
    routes = Routes((), teams, {("user", "alice"): "search", ("node", "gpu-*"): "infra"})
    at = desk(routes)
    assert [one.key for one in at.recipients(incident(1))] == ["mail:a@example.org"]
    assert at.team_of(incident(1, user="bob")) == "infra"  # by its node
    nobody = incident(1, user="bob", node="cpu-1")
    assert [one.key for one in at.recipients(nobody)] == ["mail:ops@example.org", "webhook:"]
    silent = incident(1, kind="telemetry-dead", code="node-silent", workload=False)
    assert [one.key for one in at.recipients(silent)] == ["mail:b@example.org", "mail:ops@example.org", "webhook:"]
    slow = incident(1, kind="fault-clock", code="clock-stuck-low")
    assert [one.team for one in at.recipients(slow)] == ["search", "", ""]
    assert desk(Routes(("boss@example.org",))).fleet.to == ("boss@example.org",)


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
    assert [waits(incident(severity=one), settings, at) for one in ("low", "high")] == [quiet, False]
