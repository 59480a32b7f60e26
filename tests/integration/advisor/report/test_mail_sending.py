"""The carriers against a real SMTP server and a real HTTP server, on loopback."""

import socket
from collections.abc import Iterator
from email.headerregistry import Address
from pathlib import Path

import pytest
from skuwise.advisor.notify.delivery import Carrier, Tally
from skuwise.advisor.notify.letter import Letter
from skuwise.advisor.notify.mime import Envelope, compose, message_id
from skuwise.advisor.notify.settings import ReportSettings
from skuwise.advisor.notify.smtp import SmtpCarrier
from skuwise.advisor.notify.webhook import WebhookCarrier, payload
from skuwise.advisor.state.outbox_rows import FIRST_PAUSE_SECONDS
from skuwise.advisor.state.parcel import Parcel
from skuwise.tests.support.mail_server import PASSWORD, USER, MailServer, mail_server
from skuwise.tests.support.outbox_builders import NOW, WEEK, Post
from skuwise.tests.support.webhook_receiver import Receiver, webhook_receiver

SENDER = Address("GPU report", addr_spec="gpus@example.org")
LETTER = Letter("GPU report", "<p>all</p>", "all of it\n.\nand a dot\n")


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


class Desk(Post):
    """An outbox and the way to one server."""

    def __init__(self, folder: Path, server: MailServer, **changes: object) -> None:
        super().__init__(folder)
        given = {
            "sender": SENDER, "smtp_host": "127.0.0.1", "smtp_port": server.port, "smtp_username": USER,
            "smtp_ca_file": str(server.ca_file), "smtp_timeout_seconds": 30.0, **changes,
        }  # fmt: skip
        self.settings = ReportSettings(**given)  # type: ignore[arg-type]
        self.password = PASSWORD

    def mail(self, team: str, *to: str) -> None:
        id_ = message_id(WEEK, team, SENDER)
        content = compose(LETTER, Envelope(SENDER, to, "mailto:ops@example.org"), message_id=id_, date=self.at)
        self.queue(team, *to, content=content)

    def send(self, carriers: dict[str, Carrier] | None = None) -> Tally:
        return super().send(carriers or {"mail": SmtpCarrier(self.settings, self.password)})

    def tries(self) -> object:
        return self.rows("SELECT count(*) FROM attempts")[0][0]


def test_mails_arrive_encrypted_from_who_we_say_we_are(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server)
    desk.mail("search", "a@example.org", "b@example.org")
    desk.mail("ads", "c@example.org")
    assert desk.send().sent == 3
    first, second = server.received
    assert (first.sender, first.to, first.encrypted, first.user) == (
        "gpus@example.org", ("a@example.org", "b@example.org"), True, USER,
    )  # fmt: skip
    assert first.hello == (socket.gethostname() if "." in socket.gethostname() else "[127.0.0.1]")
    assert second.to == ("c@example.org",) and first.message["Message-ID"] == message_id(WEEK, "search", SENDER)
    assert first.message.get_content_type() == "multipart/alternative"
    text = first.message.get_body(("plain",))
    assert text is not None and text.get_content().splitlines() == ["all of it", ".", "and a dot"]
    assert PASSWORD.encode() not in desk.outbox.path.read_bytes()


def test_what_keeps_us_from_a_server_leaves_all_in_the_outbox(tmp_path: Path, server: MailServer) -> None:
    desk = Desk(tmp_path, server)
    desk.mail("search", "a@example.org")
    desk.settings = Desk(tmp_path, server, smtp_ca_file="").settings
    assert "certificate that is not accepted" in str(desk.send().down[0])
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody listens there
        desk.settings = Desk(tmp_path, server, smtp_port=held.getsockname()[1]).settings
        assert "cannot be reached: Connection refused" in str(desk.send().down[0])
    desk.settings = Desk(tmp_path, server).settings
    desk.password = "wrong-one"
    down = str(desk.send().down[0])
    desk.password = PASSWORD
    assert "does not accept our password (535)" in down and "wrong-one" not in down
    with mail_server(tmp_path, security="none", auth=False) as plain:
        desk.settings = Desk(tmp_path, plain).settings
        assert "offers no STARTTLS" in str(desk.send().down[0]) and plain.received == []
    assert server.received == [] and desk.tries() == 0
    desk.settings = Desk(tmp_path, server).settings
    assert desk.send().sent == 1


def test_recipients_are_answered_one_by_one(tmp_path: Path, server: MailServer) -> None:
    answers = {"no@example.org": "550 no such \x1b[31muser", "grey@example.org": "451 come back later"}
    server.behaviour.rcpt = answers.get
    desk = Desk(tmp_path, server)
    desk.mail("search", "ok@example.org", "no@example.org", "grey@example.org")
    tally = desk.send()
    assert (tally.sent, tally.waiting) == (1, 1)
    assert "no@example.org): 550 no such" in tally.refused[0] and "\x1b" not in tally.refused[0]
    server.behaviour.rcpt = lambda _: None
    assert desk.send().waiting == 1  # not before its time
    desk.at += FIRST_PAUSE_SECONDS
    assert desk.send().sent == 1
    assert [one.to for one in server.received] == [("ok@example.org",), ("grey@example.org",)]


@pytest.mark.parametrize(("dropped", "sent", "tries"), [({2}, 4, 5), ({1, 2, 3, 4, 5}, 0, 3)])
def test_a_connection_that_is_dropped_costs_the_others_nothing_unless_all_are(
    tmp_path: Path, server: MailServer, dropped: set[int], sent: int, tries: int
) -> None:
    desk = Desk(tmp_path, server)
    for number in range(5):
        desk.mail(f"team-{number}", f"team-{number}@example.org")
    server.behaviour.drop_in_data = dropped
    tally = desk.send()
    assert (tally.sent, tally.waiting, desk.tries()) == (sent, 5 - sent, tries)
    assert [("breaks every connection" in str(one)) for one in tally.down] == [True] * (sent == 0)
    server.behaviour.drop_in_data = set()
    desk.at += FIRST_PAUSE_SECONDS
    assert desk.send().waiting == 0 and len(server.received) == 5


def test_a_server_that_never_answers_is_not_waited_for(tmp_path: Path, server: MailServer) -> None:
    server.behaviour.stall_at = "RCPT"
    desk = Desk(tmp_path, server, smtp_timeout_seconds=0.3)
    desk.mail("search", "a@example.org")
    tally = desk.send()
    assert (tally.sent, tally.waiting) == (0, 1)
    # On a slow machine the connection may take longer than that already; it is the same to whoever reads it.
    assert "no answer in time" in f"{tally.down}{desk.said}"


@pytest.mark.parametrize(
    ("status", "sent", "waiting"), [(200, 1, 0), (429, 0, 1), (500, 0, 1), (302, 0, 0), (404, 0, 0)]
)
def test_what_a_webhook_answers_decides(
    tmp_path: Path, server: MailServer, hook: Receiver, status: int, sent: int, waiting: int
) -> None:
    desk = Desk(tmp_path, server)
    desk.outbox.queue(Parcel(WEEK, "", "webhook", "<id>", "s", payload(LETTER), ("webhook",)), NOW)
    hook.status = status
    carrier = WebhookCarrier({"": f"{hook.url}/services/T0/SECRET"}, timeout_seconds=30)
    tally = desk.send(carriers={"webhook": carrier})
    assert (tally.sent, tally.waiting, len(tally.refused)) == (sent, waiting, 1 - sent - waiting)
    ((path, body, _),) = hook.posted
    assert path == "/services/T0/SECRET" and body["text"].startswith("*GPU report*")
    assert b"SECRET" not in desk.outbox.path.read_bytes() and "SECRET" not in "".join([*desk.said, *tally.refused])
