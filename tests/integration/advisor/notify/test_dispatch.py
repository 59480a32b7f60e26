"""A pass of notifying against a real SMTP server and a real webhook receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from skuwise.advisor.mail.carriers import carriers_of
from skuwise.advisor.mail.delivery import send_waiting
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.mail.parcel import Parcel
from skuwise.advisor.mail.routes import Routes
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.advisor.notify.desk import desk_of
from skuwise.advisor.notify.dispatch import DRY_RUN, dispatch
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.incident_fixtures import HOSTILE, HOUR, NOW, MemoryStore, ended, incident
from skuwise.tests.support.mail_server import MailServer, mail_server
from skuwise.tests.support.notify_desk import OPS, A, B, Bench
from skuwise.tests.support.webhook_receiver import Receiver, webhook_receiver


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    with mail_server(tmp_path_factory.mktemp("mail")) as server:
        yield server


@pytest.fixture
def server(running: MailServer) -> MailServer:
    running.received.clear()
    running.behaviour.__init__()
    return running


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with webhook_receiver() as receiver:
        yield receiver


def subjects(server: MailServer, address: str) -> list[str]:
    return [str(one.message["Subject"]) for one in server.received if address in one.to]


def mail(server: MailServer, number: int = -1) -> EmailMessage:
    return server.received[number].message


def test_an_incident_is_told_reminded_and_ended_once_in_one_thread(
    tmp_path: Path, server: MailServer, hook: Receiver
) -> None:
    bench, store = Bench(tmp_path, server, hook.url), MemoryStore()
    one = store.add(incident(1), "opened")
    told = dispatch(store, bench.desk())
    assert (told.queued, told.sent, told.waiting, told.failed) == (2, 2, 0, False)
    assert subjects(server, A) == ["[skuwise] 8 H100-SXM5 held idle for 2.1 h on gpu-009 (alice, job 4711): $51 so far"]
    opening = mail(server)["Message-ID"]
    assert mail(server)["In-Reply-To"] is None and mail(server)["Auto-Submitted"] == "auto-generated"
    ((path, body, _),) = hook.posted
    assert path == "/services/T0/SECRET" and "Acknowledge: skuwise incidents acknowledge i-00000001" in body["text"]
    assert store.untold() == ()
    # Nothing new: nobody hears anything.
    assert dispatch(store, bench.desk()).queued == 0
    bench.at += 24 * HOUR
    store.add(replace(one, reminders=1, last_seen_at=bench.at), "reminded", at=bench.at)
    assert dispatch(store, bench.desk()).sent == 2
    assert mail(server)["In-Reply-To"] == opening and mail(server)["References"] == opening
    bench.at += HOUR
    store.add(ended(replace(one, reminders=1), bench.at), "resolved", at=bench.at)
    assert dispatch(store, bench.desk()).sent == 2
    assert mail(server)["In-Reply-To"] == opening
    assert [words.split(":")[0] for words in subjects(server, A)][1:] == ["[skuwise] Reminder", "[skuwise] Resolved"]
    assert len({one.message["Message-ID"] for one in server.received}) == 3
    assert len(hook.posted) == 3 and subjects(server, B) == subjects(server, OPS) == []


def test_thousands_of_incidents_are_one_digest_a_recipient(
    tmp_path: Path, server: MailServer, hook: Receiver, record_property: Callable[[str, object], None]
) -> None:
    bench, store = Bench(tmp_path, server, hook.url), MemoryStore()
    for n in range(3000):
        store.add(incident(n, user=("alice", "bob", "carol")[n % 3], cost=float(n)), "opened")
    assert dispatch(store, bench.desk()).sent == 4
    assert [len(subjects(server, one)) for one in (A, B, OPS)] == [1, 1, 1] and len(hook.posted) == 1
    assert all("1,000 incidents (1,000 new)" in str(one.message["Subject"]) for one in server.received)
    largest = max(len(one.content) for one in server.received)
    record_property("mail_bytes", largest)
    assert largest < 100_000 and len(hook.posted[0][1]["text"]) <= 3000
    assert store.untold() == () and dispatch(store, bench.desk()).queued == 0


def test_quiet_hours_let_high_severity_through_and_the_rest_is_one_digest_in_the_morning(
    tmp_path: Path, server: MailServer
) -> None:
    bench = Bench(tmp_path, server, quiet_hours=(22, 7), time_zone=ZoneInfo("UTC"))  # NOW is 06:00 UTC
    store = MemoryStore()
    store.add(incident(1), "opened")
    store.add(incident(2, severity="high"), "opened")
    night = store.add(incident(3), "opened")
    told = dispatch(store, bench.desk())
    assert (told.queued, told.quiet) == (1, 2)
    store.add(ended(night, NOW + 600), "resolved", at=NOW + 600)
    assert dispatch(store, bench.desk()).queued == 0
    bench.at += HOUR
    assert dispatch(store, bench.desk()).queued == 1
    first, second = subjects(server, A)
    assert "job 4712" in first and second.startswith("[skuwise] 2 incidents (1 new, 1 ended)")
    assert dispatch(store, bench.desk()).queued == 0 and store.untold() == ()


def test_whoever_never_read_of_the_beginning_does_not_read_of_the_end_nor_of_what_is_old(
    tmp_path: Path, server: MailServer
) -> None:
    bench, store = Bench(tmp_path, server), MemoryStore()
    one = store.add(incident(1), "opened")
    dispatch(store, bench.desk())
    teams = tuple(replace(team, to=(*team.to, "new@example.org")) for team in bench.routes.teams)
    bench.routes = Routes(bench.routes.administrators, teams, bench.routes.matchers)
    assert dispatch(store, bench.desk()).queued == 0
    store.add(ended(one), "resolved")
    dispatch(store, bench.desk())
    assert len(subjects(server, A)) == 2 and subjects(server, "new@example.org") == []


def test_while_a_server_is_down_one_message_waits_and_the_rest_is_one_digest_after_it(
    tmp_path: Path, server: MailServer
) -> None:
    bench, store = Bench(tmp_path, server), MemoryStore()
    server.behaviour.rcpt = lambda _: "451 later"
    for n in range(5):
        store.add(incident(n), "opened")
        told = dispatch(store, bench.desk())
        assert told.waiting == 1 and not told.failed
    server.behaviour.rcpt = lambda _: None
    bench.at += 4 * HOUR
    assert dispatch(store, bench.desk()).sent == 1
    assert dispatch(store, bench.desk()).sent == 1
    first, second = subjects(server, A)
    assert "job 4710" in first and second.startswith("[skuwise] 4 incidents (4 new)")
    assert store.untold() == ()


def test_while_the_report_sends_nothing_is_lost(tmp_path: Path, server: MailServer) -> None:
    bench, store = Bench(tmp_path, server), MemoryStore()
    store.add(incident(1), "opened")
    with bench.outbox.sending():
        told = dispatch(store, bench.desk())
    assert told.failed and "Another skuwise sends" in str(told.faults[0]) and len(store.untold()) == 1
    assert dispatch(store, bench.desk()).sent == 1


def test_report_and_watch_share_an_outbox_without_harm(tmp_path: Path, server: MailServer, hook: Receiver) -> None:
    bench, store = Bench(tmp_path, server, hook.url), MemoryStore()
    with bench.outbox.sending():
        bench.outbox.queue(Parcel("2026-11-16", "search", "mail", "<w@x>", "week", b"Subject: w\r\n\r\nw", (A,)), NOW)
    server.behaviour.rcpt = lambda _: "451 later"
    store.add(incident(1), "opened")
    dispatch(store, bench.desk())
    # The watch leaves the report's mails to the report.
    assert bench.rows("SELECT week, attempts FROM audit WHERE channel = 'mail' ORDER BY week")[0] == ("2026-11-16", 0)
    server.behaviour.rcpt = lambda _: None
    bench.at += HOUR
    desk = bench.desk()
    with bench.outbox.sending():
        tally = send_waiting(
            bench.outbox, carriers_of(desk.report, desk.teams, {}), clock=bench.now, sleep=bench.sleep,
            mails_per_minute=60, say=bench.lines.append,
        )  # fmt: skip
    assert (tally.sent, tally.waiting) == (2, 0)
    assert bench.outbox.known("2026-11-16") == {("search", "mail", A)}
    assert not bench.outbox.is_queued("2026-11-16", "digest")
    assert dispatch(store, bench.desk()).queued == 0 and len(subjects(server, A)) == 2


def test_a_pass_begins_no_mail_after_half_of_the_time_to_the_next(tmp_path: Path, server: MailServer) -> None:
    bench, store = Bench(tmp_path, server, every_seconds=120.0), MemoryStore()
    bench.report = replace(bench.report, mails_per_minute=1)
    for n, user in enumerate(("alice", "bob", "carol")):
        store.add(incident(n, user=user), "opened")
    told = dispatch(store, bench.desk())
    assert (told.queued, told.sent, told.waiting, told.failed) == (3, 2, 1, False)
    assert bench.at == NOW + 60.0
    assert dispatch(store, bench.desk()).sent == 1


def test_a_secret_that_cannot_be_read_holds_up_its_own_channel_alone(
    tmp_path: Path, server: MailServer, hook: Receiver
) -> None:
    bench, store = Bench(tmp_path, server, hook.url), MemoryStore()
    (tmp_path / "hook").chmod(0o644)
    store.add(incident(1), "opened")
    told = dispatch(store, bench.desk())
    assert told.failed and "readable by other users" in str(told.faults[0])
    assert (told.sent, told.waiting) == (1, 1) and len(subjects(server, A)) == 1
    (tmp_path / "hook").chmod(0o600)
    bench.at += HOUR
    told = dispatch(store, bench.desk())
    assert (told.sent, told.failed, len(hook.posted)) == (1, False, 1)


def test_a_dry_run_prints_each_event_once_and_a_real_run_sends_all_that_is_open(
    tmp_path: Path, server: MailServer, hook: Receiver
) -> None:
    bench, store = Bench(tmp_path, server, hook.url, send=False), MemoryStore()
    one = store.add(incident(1), "opened")
    store.add(incident(2, user="carol"), "opened")
    assert not dispatch(store, bench.desk()).failed
    assert [line.split(":")[0] for line in bench.lines] == [
        f"would be sent to search ({A})", "would be sent to search (webhook)",
        f"would be sent to the administrators ({OPS})", "Dry run, nothing was sent. To send",
    ]  # fmt: skip
    # Neither the next pass nor another process repeats it.
    bench.lines.clear()
    dispatch(store, bench.desk())
    assert bench.lines == [] and server.received == [] == hook.posted
    # What began and ended meanwhile is nobody's business any more.
    store.add(ended(one), "resolved")
    dispatch(store, bench.desk())
    assert [event.incident_id for event, _ in store.untold()] == ["i-00000002"]
    bench.watch["send"] = True
    assert dispatch(store, bench.desk()).sent == 1
    assert len(subjects(server, OPS)) == 1 and subjects(server, A) == []
    assert DRY_RUN in store.queued["i-00000002", 0]


def test_hostile_names_arrive_as_words(tmp_path: Path, server: MailServer, hook: Receiver) -> None:
    bench, store = Bench(tmp_path, server, hook.url), MemoryStore()
    store.add(incident(1, node=HOSTILE, name=HOSTILE), "opened")
    assert dispatch(store, bench.desk()).sent == 2
    assert mail(server)["Bcc"] is None and mail(server)["To"] == A
    assert "<" not in hook.posted[0][1]["text"]
    assert not any("\x1b" in line or "\u202e" in line for line in bench.lines)


def test_without_recipients_a_pass_says_so(tmp_path: Path, server: MailServer) -> None:
    bench, store = Bench(tmp_path, server), MemoryStore()
    bench.routes = Routes()
    store.add(incident(1), "opened")
    told = dispatch(store, bench.desk())
    assert told.failed and "No recipients configured" in str(told.faults[0]) and len(store.untold()) == 1


def test_an_incident_without_a_recipient_is_named_and_holds_nothing_up(tmp_path: Path, server: MailServer) -> None:
    bench, store = Bench(tmp_path, server), MemoryStore()
    bench.routes = Routes((), bench.routes.teams, bench.routes.matchers)
    store.add(incident(1), "opened")
    store.add(incident(2, user="carol"), "opened")
    assert dispatch(store, bench.desk()).sent == 1
    assert "No recipient for 1 incident: set administrators in [report]." in bench.lines and store.untold() == ()


def test_a_dry_run_leaves_alertmanager_alone(tmp_path: Path, server: MailServer, hook: Receiver) -> None:
    bench, store = Bench(tmp_path, server, send=False, alertmanager_url=hook.url), MemoryStore()
    store.add(incident(1), "opened")
    assert not dispatch(store, bench.desk()).failed
    assert hook.posted == [] and f"would update 1 alert in {hook.url}" in bench.lines


def test_a_desk_is_made_of_the_settings(tmp_path: Path, server: MailServer) -> None:
    bench = Bench(tmp_path, server)
    routes = tmp_path / "teams.toml"
    routes.write_text(f'administrators = ["{OPS}"]\n[teams.search]\nuser = ["alice"]\nto = ["{A}"]\n')
    environ = {
        "SKUWISE_REPORT_TEAMS": str(routes), "SKUWISE_REPORT_OUTBOX": str(tmp_path / "own.db"),
        "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }  # fmt: skip
    desk = desk_of(environ, bench.desk().watch, bench.desk().clocks, print)
    assert desk.outbox.path == Outbox(tmp_path / "own.db").path and desk.report == replace(
        ReportSettings(), teams=routes, outbox=tmp_path / "own.db"
    )
    assert [one.key for one in desk.recipients(incident(1))] == [f"mail:{A}"]
    with pytest.raises(SkuwiseError, match="not encrypted"):
        desk_of(environ, replace(desk.watch, alertmanager_url="http://am.example.org"), desk.clocks, print)
