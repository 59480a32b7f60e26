"""The outbox and its carriers against a real SMTP server and a real HTTP server, on loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from email.headerregistry import Address
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from skuwise.advisor.mail.delivery import Carrier, Tally, send_waiting
from skuwise.advisor.mail.letter import Attachment, Image, Letter
from skuwise.advisor.mail.mime import Envelope, compose, message_id
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.mail.parcel import Channel, Parcel
from skuwise.advisor.mail.patience import FIRST_PAUSE_SECONDS, GIVE_UP_SECONDS
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.advisor.mail.smtp import SmtpCarrier
from skuwise.advisor.mail.webhook import WebhookCarrier, payload
from skuwise.agent.model import Instant
from skuwise.rules.base.errors import SkuwiseError, StoreError
from skuwise.tests.support.mail_server import PASSWORD, USER, MailServer, mail_server

NOW = 1_795_400_000.0
WEEK = "2026-11-16"
SENDER = Address("GPU report", addr_spec="gpus@example.org")
LETTER = Letter(
    "GPU report", "<p>all <img src='cid:chart'></p>", "all of it\n.\nand a dot\n", (Image("chart", b"\x89PNG", "c"),),
    (Attachment("list.csv", "text/csv", b"a,b\n"),),
)  # fmt: skip


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
def nobody() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class Desk:
    """An outbox and the way to one server. `at`: the clock."""

    def __init__(self, folder: Path, server: MailServer, **changes: object) -> None:
        self.outbox = Outbox(folder / "outbox.db")
        self.at = NOW
        self.slept: list[float] = []
        self.said: list[str] = []
        given = {
            "sender": SENDER, "smtp_host": "127.0.0.1", "smtp_port": server.port, "smtp_username": USER,
            "smtp_ca_file": str(server.ca_file), "smtp_timeout_seconds": 30.0, **changes,
        }  # fmt: skip
        self.settings = ReportSettings(**given)  # type: ignore[arg-type]

    def queue(self, team: str, *to: str, week: str = WEEK) -> int:
        id_ = message_id(week, team, SENDER)
        content = compose(LETTER, Envelope(SENDER, to, "mailto:ops@example.org"), message_id=id_, date=self.at)
        return self.outbox.queue(Parcel(week, team, "mail", id_, LETTER.subject, content, to), self.at)

    def send(self, password: str = PASSWORD, carriers: dict[str, Carrier] | None = None) -> Tally:
        with self.outbox.sending():
            return send_waiting(
                self.outbox, carriers or {"mail": SmtpCarrier(self.settings, password)},  # type: ignore[arg-type]
                clock=lambda: Instant(self.at, self.at - NOW), sleep=self.slept.append, mails_per_minute=30,
                say=self.said.append,
            )  # fmt: skip

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        with contextlib.closing(sqlite3.connect(self.outbox.path)) as connection:
            return connection.execute(sql).fetchall()

    def audit(self) -> list[tuple[object, ...]]:
        return self.rows("SELECT team, recipient, state, reply FROM audit ORDER BY team, recipient")


def test_mails_arrive_once_encrypted_and_are_written_down(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server)
    assert desk.queue("search", "a@example.org", "b@example.org") == 2
    assert desk.queue("ads", "c@example.org") == 1
    assert b"all of it" in desk.outbox.path.read_bytes()
    tally = desk.send()
    assert (tally.sent, tally.waiting, tally.refused, tally.down) == (3, 0, (), ())
    first, second = server.received
    assert (first.sender, first.to, first.encrypted, first.user) == (
        "gpus@example.org", ("a@example.org", "b@example.org"), True, USER,
    )  # fmt: skip
    assert first.hello == (socket.gethostname() if "." in socket.gethostname() else "[127.0.0.1]")
    assert second.to == ("c@example.org",)
    assert first.message["Message-ID"] == message_id(WEEK, "search", SENDER)
    text = first.message.get_body(("plain",))
    assert text is not None and text.get_content().splitlines() == ["all of it", ".", "and a dot"]
    assert desk.slept == [2.0]  # 30 a minute
    assert [row[:3] for row in desk.audit()] == [
        ("ads", "c@example.org", "sent"), ("search", "a@example.org", "sent"), ("search", "b@example.org", "sent"),
    ]  # fmt: skip
    assert b"all of it" not in desk.outbox.path.read_bytes()
    # The same week again: nobody is written to but who is new.
    assert desk.queue("search", "a@example.org", "b@example.org") == 0
    assert desk.queue("search", "a@example.org", "new@example.org") == 1
    assert desk.send().sent == 1
    assert [server.copies(f"{name}@example.org") for name in ("a", "b", "c", "new")] == [1, 1, 1, 1]
    # No secret is kept or told.
    assert PASSWORD.encode() not in desk.outbox.path.read_bytes()
    assert desk.outbox.path.stat().st_mode & 0o077 == 0


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # of the test's server
@pytest.mark.parametrize("security", ["tls", "none"])
def test_tls_from_the_start_and_none_on_loopback(tmp_path: Path, security: str) -> None:
    with mail_server(tmp_path, security=security, auth=security == "tls") as server:
        changes = {} if security == "tls" else {"smtp_username": ""}
        desk = Desk(tmp_path, server, smtp_security=security, **changes)
        desk.queue("", "a@example.org")
        assert desk.send().sent == 1
        assert server.received[0].encrypted == (security == "tls")


def test_a_certificate_of_nobody_we_know_and_a_wrong_password_leave_all_in_the_outbox(
    tmp_path: Path, server: MailServer
) -> None:
    desk = Desk(tmp_path, server)
    desk.queue("search", "a@example.org")
    desk.settings = Desk(tmp_path, server, smtp_ca_file="").settings
    assert "certificate that is not accepted" in str(desk.send().down[0])
    desk.settings = Desk(tmp_path, server).settings
    down = str(desk.send(password="wrong-one").down[0])
    assert "does not accept our password (535)" in down and "wrong-one" not in down
    assert server.received == [] and desk.rows("SELECT count(*) FROM attempts") == [(0,)]
    assert desk.send().sent == 1


def test_a_server_without_starttls_is_not_spoken_to_in_clear(tmp_path: Path) -> None:
    with mail_server(tmp_path, security="none", auth=False) as server:
        desk = Desk(tmp_path, server)
        desk.queue("", "a@example.org")
        assert "offers no STARTTLS" in str(desk.send().down[0])
        assert server.received == []


def test_refused_recipients_are_given_up_with_the_reason_and_greylisted_ones_are_tried_again(
    tmp_path: Path, server: MailServer
) -> None:
    answers = {"no@example.org": "550 no such \x1b[31muser", "grey@example.org": "451 come back later"}
    server.behaviour.rcpt = answers.get
    desk = Desk(tmp_path, server)
    desk.queue("search", "ok@example.org", "no@example.org", "grey@example.org")
    tally = desk.send()
    assert (tally.sent, tally.waiting) == (1, 1)
    assert "no@example.org): 550 no such" in tally.refused[0] and "\x1b" not in tally.refused[0]
    # Not before its time, then to the one who waits alone.
    server.behaviour.rcpt = lambda _: None
    assert desk.send().waiting == 1
    desk.at += FIRST_PAUSE_SECONDS
    assert desk.send().sent == 1
    assert [one.to for one in server.received] == [("ok@example.org",), ("grey@example.org",)]
    assert {(row[1], row[2]) for row in desk.audit()} == {
        ("ok@example.org", "sent"), ("no@example.org", "refused"), ("grey@example.org", "sent"),
    }  # fmt: skip


def test_pauses_grow_and_five_days_are_enough(tmp_path: Path, server: MailServer) -> None:
    server.behaviour.rcpt = lambda _: "452 mailbox full"
    desk = Desk(tmp_path, server)
    desk.queue("search", "full@example.org")
    pauses = []
    while desk.at - NOW <= GIVE_UP_SECONDS:
        tally = desk.send()
        assert (tally.waiting, tally.refused) == (1, ())
        ((next_at,),) = desk.rows("SELECT next_at FROM deliveries")
        assert isinstance(next_at, float)
        pauses.append(next_at - desk.at)
        desk.at = next_at
    assert pauses[:7] == [300.0, 600.0, 1200.0, 2400.0, 4800.0, 9600.0, 14400.0] and max(pauses) == 14400.0
    assert "given up after five days; last: 452 mailbox full" in desk.send().refused[0]
    assert desk.outbox.waiting() == 0


@pytest.mark.parametrize("answer", ["451 not now", "554 looks like spam"])
def test_what_the_server_says_to_the_content_counts(tmp_path: Path, server: MailServer, answer: str) -> None:
    server.behaviour.before_data = lambda _: answer
    desk = Desk(tmp_path, server)
    desk.queue("search", "a@example.org")
    tally = desk.send()
    assert (tally.waiting, len(tally.refused)) == ((1, 0) if answer[0] == "4" else (0, 1))
    assert answer in str(desk.audit()[0][3])


def test_a_sender_who_is_refused_costs_no_recipient_his_mail(tmp_path: Path, server: MailServer) -> None:
    server.behaviour.mail = "550 who are you"
    desk = Desk(tmp_path, server)
    for team in ("ads", "search"):
        desk.queue(team, f"{team}@example.org")
    tally = desk.send()
    assert "refuses our sender (550 who are you)" in str(tally.down[0])
    assert (tally.waiting, tally.refused) == (2, ())
    assert desk.rows("SELECT count(*) FROM attempts") == [(1,)]


def test_a_connection_that_is_dropped_in_a_mail_costs_the_others_nothing(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server)
    teams = [f"team-{number}" for number in range(6)]
    for team in teams:
        desk.queue(team, f"{team}@example.org")
    server.behaviour.drop_in_data = {2}
    tally = desk.send()
    assert (tally.sent, tally.waiting, tally.down) == (5, 1, ())
    desk.at += FIRST_PAUSE_SECONDS
    assert desk.send().sent == 1
    assert [server.copies(f"{team}@example.org") for team in teams] == [1] * 6


def test_a_server_that_breaks_every_connection_is_not_asked_for_each_mail(tmp_path: Path, server: MailServer) -> None:
    server.behaviour.drop_in_data = set(range(1, 6))
    desk = Desk(tmp_path, server)
    for number in range(5):
        desk.queue(f"team-{number}", "a@example.org")
    tally = desk.send()
    assert (tally.sent, tally.waiting) == (0, 5) and "breaks every connection" in str(tally.down[0])
    assert desk.rows("SELECT count(*) FROM attempts") == [(3,)]
    assert "closed by the server" in str(desk.rows("SELECT reply FROM attempts")[0])


def test_a_server_that_stalls_is_not_waited_for(tmp_path: Path, server: MailServer) -> None:
    server.behaviour.stall_at = "RCPT"
    desk = Desk(tmp_path, server, smtp_timeout_seconds=0.3)
    desk.queue("search", "a@example.org")
    tally = desk.send()
    assert (tally.sent, tally.waiting) == (0, 1)
    # On a slow machine the connection may take longer than that already; it is the same to whoever reads it.
    assert "no answer in time" in f"{tally.down}{desk.said}"


def test_a_server_is_waited_for_longer_before_it_accepts(tmp_path: Path, server: MailServer) -> None:
    # An answer that comes late is one: whoever does not wait for it sends twice.
    server.behaviour.accept_after_seconds = 0.5
    desk = Desk(tmp_path, server, smtp_timeout_seconds=0.4)
    desk.queue("search", "a@example.org")
    first = desk.send()
    assert first.sent == 1 or "no answer in time" in f"{first.down}{desk.said}"  # a slow machine's connection
    assert server.copies("a@example.org") == first.sent
    # Yet not without an end.
    server.behaviour.accept_after_seconds = 3600.0
    desk.queue("ads", "b@example.org")
    tally = desk.send(carriers={"mail": SmtpCarrier(Desk(tmp_path, server).settings, PASSWORD, accept_seconds=0.3)})
    assert (tally.sent, tally.waiting) == (0, 2 - first.sent) and "no answer in time" in desk.said[-1]


def test_a_server_that_never_ends_its_answer_is_cut_off(tmp_path: Path, server: MailServer) -> None:
    server.behaviour.drip_at = "RCPT"
    desk = Desk(tmp_path, server, smtp_timeout_seconds=0.2)
    desk.queue("search", "a@example.org")
    tally = desk.send()  # each line comes in time: only the limit for the mail as a whole ends it
    server.behaviour.over = True
    assert (tally.sent, tally.waiting) == (0, 1)


def test_a_server_that_never_ends_its_greeting_is_cut_off_and_no_word_of_it_acts(
    tmp_path: Path, server: MailServer
) -> None:
    with talker(b"220-wait\r\n", forever=True) as dripping:
        desk = Desk(tmp_path, server, smtp_port=dripping, smtp_timeout_seconds=0.1)
        desk.queue("search", "a@example.org")
        tally = desk.send()
    assert tally.waiting == 1 and "no answer in time" in str(tally.down[0])
    with talker(b"554-\x1b[2J\xff" + b"no" * 2000 + b"\r\n554 no\r\n") as rude:
        desk.settings = Desk(tmp_path, server, smtp_port=rude).settings
        (down,) = desk.send().down
    assert "turns us away (554 " in str(down) and str(down).isprintable() and len(str(down)) < 500


@contextlib.contextmanager
def talker(says: bytes, *, forever: bool = False) -> Iterator[int]:
    """A port on which `says` is said, over and over again with `forever`, to one caller."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            caller = listening.accept()[0]
            with caller, contextlib.suppress(OSError):
                caller.sendall(says)
                while forever and not over.wait(0.02):
                    caller.sendall(says)
                over.wait()

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            over.set()
            # Where nobody called, we do: the thread waits for a caller.
            with contextlib.suppress(OSError):
                socket.create_connection(listening.getsockname()).close()
            thread.join()


def test_a_server_that_is_down_all_day_loses_nothing(tmp_path: Path, server: MailServer, nobody: int) -> None:
    desk = Desk(tmp_path, server)
    desk.queue("search", "a@example.org")
    desk.settings = Desk(tmp_path, server, smtp_port=nobody).settings
    for _ in range(3):
        tally = desk.send()
        assert tally.waiting == 1 and "cannot be reached: Connection refused" in str(tally.down[0])
        desk.at += 8 * 3600
    desk.settings = Desk(tmp_path, server).settings
    assert desk.send().sent == 1


def test_one_sender_at_a_time(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server)
    with desk.outbox.sending(), pytest.raises(SkuwiseError, match="Another skuwise sends"):
        desk.send()
    assert desk.send().sent == 0


@pytest.mark.parametrize("case", ["foreign", "newer", "text", "folder"])
def test_a_file_that_is_no_outbox_is_left_untouched(tmp_path: Path, case: str) -> None:
    path = tmp_path / "outbox.db"
    if case == "text":
        path.write_text("minutes of the meeting " * 100)
    elif case == "folder":
        path.mkdir()
    else:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE mine (x)")
            if case == "newer":
                connection.execute(f"PRAGMA application_id = {0x736B756F}")
                connection.execute("PRAGMA user_version = 2000")
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError, match="outbox"):
        Outbox(path).waiting()
    assert (path.read_bytes() if path.is_file() else b"") == before


# Webhooks


class Hook:
    """A webhook that answers what it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.posted: list[tuple[str, dict[str, object]]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.posted.append((self.path, json.loads(body)))
                self.send_response(hook.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/services/T0/SECRET"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_webhook_is_told_once_and_its_address_is_nowhere(tmp_path: Path, server: MailServer, hook: Hook) -> None:
    desk = Desk(tmp_path, server)
    letter = Letter("50 % & <!channel>", "", "a <b> ```\n" * 1000)
    for team in ("ads", "gone"):
        desk.outbox.queue(Parcel(WEEK, team, "webhook", "<id>", "s", payload(letter), ("webhook",)), NOW)

    def send() -> Tally:
        return desk.send(carriers={"webhook": WebhookCarrier({"ads": hook.url}, timeout_seconds=30)})

    hook.status = 503
    tally = send()
    assert (tally.sent, tally.waiting) == (0, 1) and "no webhook is set any more" in tally.refused[0]
    hook.status, desk.at = 200, desk.at + FIRST_PAUSE_SECONDS
    assert (send().sent, send().sent) == (1, 0)
    (path, _), (_, body) = hook.posted
    text = str(body["text"])
    assert path == "/services/T0/SECRET"
    assert text.startswith("*50 % &amp; &lt;!channel&gt;*\n```\na &lt;b&gt; '''") and text.count("```") == 2
    assert len(text) < 6000 and "..." in text
    assert b"SECRET" not in desk.outbox.path.read_bytes() and "SECRET" not in "".join(desk.said)


@pytest.mark.parametrize(("status", "waiting"), [(429, 1), (500, 1), (302, 0), (404, 0)])
def test_what_a_webhook_answers_decides(
    tmp_path: Path, server: MailServer, hook: Hook, status: int, waiting: int
) -> None:
    desk = Desk(tmp_path, server)
    desk.outbox.queue(Parcel(WEEK, "", "webhook", "<id>", "s", payload(LETTER), ("webhook",)), NOW)
    hook.status = status
    tally = desk.send(carriers={"webhook": WebhookCarrier({"": hook.url}, timeout_seconds=30)})
    assert (tally.waiting, len(tally.refused)) == (waiting, 1 - waiting)


def test_a_webhook_that_cannot_be_reached_is_tried_again(tmp_path: Path, server: MailServer, nobody: int) -> None:
    desk = Desk(tmp_path, server)
    desk.outbox.queue(Parcel(WEEK, "", "webhook", "<id>", "s", payload(LETTER), ("webhook",)), NOW)
    carrier = WebhookCarrier({"": f"http://127.0.0.1:{nobody}/SECRET"}, timeout_seconds=30)
    assert desk.send(carriers={"webhook": carrier}).waiting == 1
    assert "not reached: ConnectionError" in desk.said[0] and "SECRET" not in desk.said[0]


@pytest.mark.parametrize("head", [b"HTTP/1.1 500 no\r\nContent-Length: 9\r\n\r\n", b"HTTP/1.1 200 ok\r\nX: y\r\n"])
def test_a_webhook_that_never_ends_its_answer_holds_up_no_mail(tmp_path: Path, server: MailServer, head: bytes) -> None:
    desk = Desk(tmp_path, server)
    desk.outbox.queue(Parcel(WEEK, "", "webhook", "<id>", "s", payload(LETTER), ("webhook",)), NOW)
    desk.queue("search", "a@example.org")
    with talker(head, forever=b"200" in head) as port:
        hooks = WebhookCarrier({"": f"http://127.0.0.1:{port}/SECRET"}, timeout_seconds=0.1)
        tally = desk.send(carriers={"webhook": hooks, "mail": SmtpCarrier(desk.settings, PASSWORD)})
    assert (tally.sent, tally.waiting) == (1, 1)
    assert "not reached" in desk.said[0] and "SECRET" not in "".join(desk.said)


def test_what_is_not_due_any_more_when_it_is_loaded_is_not_sent(tmp_path: Path, server: MailServer, hook: Hook) -> None:
    desk = Desk(tmp_path, server)
    desk.outbox.queue(Parcel(WEEK, "", "webhook", "<id>", "s", payload(LETTER), ("webhook",)), NOW)
    carriers: dict[Channel, Carrier] = {"webhook": WebhookCarrier({"": hook.url}, timeout_seconds=30)}
    hook.status = 429
    assert desk.send(carriers={"webhook": carriers["webhook"]}).waiting == 1
    hook.posted.clear()
    due = FIRST_PAUSE_SECONDS
    times = iter([Instant(NOW + due, due), *[Instant(NOW + due - 60, due - 60)] * 2])  # set back between the two
    tally = send_waiting(
        desk.outbox, carriers, clock=lambda: next(times), sleep=desk.slept.append, mails_per_minute=30,
        say=desk.said.append,
    )  # fmt: skip
    assert (tally.sent, tally.waiting, hook.posted) == (0, 1, [])


def test_an_outbox_knows_what_a_mail_is_about_for_a_while(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server)
    desk.queue("search", "a@example.org")
    assert desk.outbox.about(["i-1/0"]) == {}
    parcel = Parcel(
        "watch-1", "search", "mail", "<one@example.org>", "s", b"\r\n", ("a@example.org",), ("i-1/0", "i-2/0")
    )
    assert desk.outbox.queue(parcel, NOW) == 1 and desk.outbox.queue(parcel, NOW) == 0
    found = desk.outbox.about(["i-1/0", "i-2/0", "i-3/0"])
    assert set(found) == {"i-1/0", "i-2/0"} and found["i-1/0"][0].message_id == "<one@example.org>"
    assert desk.outbox.waiting_for("watch-") == {("search", "mail", "a@example.org")}
    assert desk.outbox.known(WEEK) == {("search", "mail", "a@example.org")}
    # What it is about is forgotten after a while; that it was sent is not.
    assert desk.outbox.queue(replace(parcel, week="watch-2", about=("i-4/0",)), NOW + 100 * 86400.0) == 1
    assert set(desk.outbox.about(["i-1/0", "i-4/0"])) == {"i-4/0"}
