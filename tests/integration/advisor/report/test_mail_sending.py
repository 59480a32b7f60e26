"""The carriers against a real SMTP server and a real HTTP server, on loopback."""

import json
import socket
from collections.abc import Iterator, Mapping
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path

import pytest
from skuwise.advisor.notify.routes import ReportSettings
from skuwise.advisor.notify.sending import Carrier, SmtpCarrier, Tally, WebhookCarrier
from skuwise.advisor.state.deliveries import FIRST_PAUSE_SECONDS, Channel
from skuwise.tests.support.delivery_builders import Post
from skuwise.tests.support.mail_server import PASSWORD, USER, MailServer, mail_server
from skuwise.tests.support.webhook_receiver import Receiver, webhook_receiver


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    with mail_server(tmp_path_factory.mktemp("mail")) as running:
        yield running


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with webhook_receiver() as receiver:
        yield receiver


class Desk(Post):
    def __init__(self, folder: Path, server: MailServer, **changes: object) -> None:
        super().__init__(folder)
        self.password = PASSWORD
        self.set(server, **changes)

    def set(self, server: MailServer, **changes: object) -> None:
        given = {
            "sender": Address("GPU report", addr_spec="gpus@example.org"), "smtp_host": "127.0.0.1",
            "smtp_port": server.port, "smtp_username": USER, "smtp_ca_file": str(server.ca_file),
            "smtp_timeout_seconds": 30.0, **changes,
        }  # fmt: skip
        self.settings = ReportSettings(**given)  # type: ignore[arg-type]

    def mail(self, team: str, *to: str, text: str = "all of it\n.\nand a dot\n") -> None:
        message = EmailMessage(policy=SMTP)
        message["Subject"], message["Message-ID"] = "GPU report", f"<{team}@x>"
        message.set_content(text)
        self.queue(team, *to, content=message.as_bytes())

    def send(self, carriers: Mapping[Channel, Carrier] | None = None, most_seconds: float | None = None) -> Tally:
        return super().send(carriers or {"mail": SmtpCarrier(self.settings, self.password)}, most_seconds)


def test_mails_arrive_encrypted_from_who_we_say_we_are(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server)
    desk.mail("search", "a@example.org", "b@example.org")
    assert desk.send().sent == 2
    first, second = server.received
    assert (first.sender, first.to, first.encrypted, first.user, second.to) == (
        "gpus@example.org", ("a@example.org",), True, USER, ("b@example.org",),
    )  # fmt: skip
    assert first.hello == (socket.gethostname() if "." in socket.gethostname() else "[127.0.0.1]")
    assert first.message["Message-ID"] == "<search@x>"
    assert first.message.get_content().splitlines() == ["all of it", ".", "and a dot"]
    assert PASSWORD.encode() not in desk.state.path.read_bytes()


def test_a_hundred_mails_need_three_connections(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server)
    desk.mail("search", *(f"{n}@example.org" for n in range(101)), text="a line\n" * 20)
    assert (desk.send().sent, desk.slept, server.behaviour.connections) == (101, [], 3)


def test_tls_from_the_start(tmp_path: Path) -> None:
    with mail_server(tmp_path, security="tls") as server:
        desk = Desk(tmp_path, server, smtp_security="tls")
        desk.mail("search", "a@example.org")
        assert desk.send().sent == 1 and server.received[0].encrypted


def test_what_keeps_us_from_a_server_leaves_all_to_the_next_run(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server, smtp_ca_file="")
    desk.mail("search", "a@example.org")
    assert "certificate that is not accepted" in str(desk.send().down[0])
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # without a listener
        desk.set(server, smtp_port=held.getsockname()[1])
        assert "cannot be reached: Connection refused" in str(desk.send().down[0])
    desk.set(server)
    desk.password = "wrong-one"
    down = str(desk.send().down[0])
    desk.password = PASSWORD
    assert "does not accept our password (535)" in down and "wrong-one" not in down
    with mail_server(tmp_path, security="none", auth=False) as plain:
        desk.set(plain)
        assert "offers no STARTTLS" in str(desk.send().down[0]) and plain.received == []
    assert server.received == [] and desk.rows("attempts") == [(0,)]
    desk.set(server)
    server.behaviour.mail = "550 we know no such sender"
    desk.mail("ads", "b@example.org")
    tally = desk.send()
    assert "refuses the sender (550" in str(tally.down[0]) and (tally.waiting, tally.refused) == (2, ())
    server.behaviour.mail = None
    desk.live(FIRST_PAUSE_SECONDS)
    assert desk.send().sent == 2


def test_recipients_are_answered_one_by_one(tmp_path: Path, server: MailServer) -> None:
    answers = {"no@example.org": "550 no such \x1b[31muser", "grey@example.org": "451 come back later"}
    server.behaviour.rcpt = answers.get
    desk = Desk(tmp_path, server)
    desk.mail("search", "ok@example.org", "no@example.org", "grey@example.org", "fine@example.org")
    tally = desk.send()
    assert (tally.sent, tally.waiting) == (2, 1)
    assert "no@example.org): 550 no such" in tally.refused[0] and "\x1b" not in tally.refused[0]
    server.behaviour.rcpt = lambda _: None
    assert desk.send().waiting == 1  # not before its time
    desk.live(FIRST_PAUSE_SECONDS)
    assert desk.send().sent == 1
    assert [mail.to for mail in server.received] == [("ok@example.org",), ("fine@example.org",), ("grey@example.org",)]


@pytest.mark.parametrize(("dropped", "sent", "tries"), [({2}, 4, 5), ({1, 2, 3, 4, 5}, 0, 3)])
def test_a_dropped_connection_costs_the_others_nothing_unless_all_are(tmp_path, server, dropped, sent, tries) -> None:
    desk = Desk(tmp_path, server)
    desk.mail("search", *(f"{n}@example.org" for n in range(5)))
    server.behaviour.drop_in_data = dropped
    tally = desk.send()
    assert (tally.sent, tally.waiting, sum(n for (n,) in desk.rows("attempts"))) == (sent, 5 - sent, tries)  # type: ignore[misc]
    assert [("breaks every connection" in str(error)) for error in tally.down] == [True] * (sent == 0)
    server.behaviour.drop_in_data = set()
    desk.live(FIRST_PAUSE_SECONDS)
    assert desk.send().waiting == 0 and len(server.received) == 5


def test_a_server_that_never_answers_is_not_waited_for(tmp_path: Path, server: MailServer) -> None:
    server.behaviour.stall_at = "RCPT"
    desk = Desk(tmp_path, server, smtp_timeout_seconds=0.3)
    desk.mail("search", "a@example.org")
    tally = desk.send()
    assert (tally.sent, tally.waiting) == (0, 1)
    # On a slow machine the connection may take longer than that already; the message is the same.
    assert "no answer in time" in f"{tally.down}{desk.said}"


@pytest.mark.parametrize(
    ("status", "sent", "waiting"), [(200, 1, 0), (429, 0, 1), (500, 0, 1), (302, 0, 0), (404, 0, 0)]
)
def test_what_a_webhook_answers_decides(tmp_path: Path, hook: Receiver, status: int, sent: int, waiting: int) -> None:
    post = Post(tmp_path)
    post.queue("", "webhook", channel="webhook", content=json.dumps({"text": "*GPU report*"}).encode())
    hook.status = status
    tally = post.send({"webhook": WebhookCarrier({"": f"{hook.url}/services/T0/SECRET"}, timeout_seconds=30)})
    assert (tally.sent, tally.waiting, len(tally.refused)) == (sent, waiting, 1 - sent - waiting)
    ((path, body, _),) = hook.posted
    assert path == "/services/T0/SECRET" and body == {"text": "*GPU report*"}
    assert b"SECRET" not in post.state.path.read_bytes() and "SECRET" not in "".join([*post.said, *tally.refused])


def test_a_webhook_that_hangs_holds_nobody_up_and_has_a_message_twice_at_most(tmp_path: Path, hook: Receiver) -> None:
    post = Post(tmp_path)
    post.queue("", "webhook", channel="webhook", content=b"{}")
    post.queue("search", "a@x")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # without a listener: nothing went out
        away = WebhookCarrier({"": f"http://127.0.0.1:{held.getsockname()[1]}/"}, timeout_seconds=30)
        assert post.send({"webhook": away, "mail": post.carrier}).sent == 1
    assert post.rows("state, unsure, reply")[0] == ("due", 0, "not reached: ConnectionError")
    hook.hang = True
    carrier = WebhookCarrier({"": f"{hook.url}/SECRET"}, timeout_seconds=0.3)
    for waiting, state, unsure in ((1, "due", 1), (0, "failed", 2), (0, "failed", 2)):
        post.live(2 * FIRST_PAUSE_SECONDS)
        tally = post.send({"webhook": carrier})
        assert (tally.waiting, post.rows("state, unsure")[0]) == (waiting, (state, unsure))
    assert len(hook.posted) == 2 and "it may have arrived; last: no answer in time" in str(post.rows("reply")[0])
