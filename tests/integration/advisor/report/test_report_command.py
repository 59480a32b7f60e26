"""`skuwise report` as an administrator runs it, on a simulated fleet and a real mail server."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.simulate.simulator import simulate
from skuwise.tests.support.mail_server import PASSWORD, USER, MailServer, Received, mail_server

MONDAY, NEXT = "2026-03-02", "2026-03-09"
TEAMS = """
administrators = ["platform@example.org"]
[teams.serving]
sku = ["H100*"]
to = ["serving@example.org", "lead@example.org"]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MailServer]:
    with mail_server(tmp_path) as running:
        yield running


@pytest.fixture
def outbox(tmp_path: Path, server: MailServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a site, and where its outbox will be."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fleet, password, teams = tmp_path / "founding.db", tmp_path / "password", tmp_path / "teams.toml"
    simulate("founding", fleet, days=2, seed=4, until=parse_moment(NEXT), minutes_seconds=3600)
    password.write_text(PASSWORD)
    password.chmod(0o600)
    teams.write_text(TEAMS)
    file = tmp_path / "config/skuwise/skuwise.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"[report]\ndb = ['{fleet}']\nteams = '{teams}'\nsend = true\nfrom = 'GPU report <gpus@example.org>'\n"
        f"smtp_host = '127.0.0.1'\nsmtp_port = {server.port}\nsmtp_username = '{USER}'\n"
        f"smtp_password_file = '{password}'\nsmtp_ca_file = '{server.ca_file}'\n"
    )
    return tmp_path / "state/skuwise/outbox.db"


def report(*arguments: str) -> int:
    return main(["report", "--week", MONDAY, *arguments])


def spoken(received: Received) -> str:
    """The mail as text, without the moment at which it was written: two of the same run may have a minute between."""
    body = received.message.get_body(("plain",))
    assert body is not None
    text, moments = re.subn(r"(?<=Written by skuwise, )\S+ \S+ UTC", "MOMENT", body.get_content())
    assert moments == 1
    return text


@pytest.mark.slow
def test_every_team_receives_one_mail_however_often_the_report_is_run(
    tmp_path: Path, server: MailServer, outbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.behaviour.rcpt = lambda address: "550 no such user" if address.startswith("lead") else None
    assert report("--send") == 1
    said = capsys.readouterr().err
    assert "Refused for good: serving (mail, lead@example.org): 550 no such user" in said and PASSWORD not in said
    assert report("--send") == 0
    assert [one.to for one in server.received] == [("platform@example.org",), ("serving@example.org",)]
    with closing(sqlite3.connect(outbox)) as connection:
        assert set(connection.execute("SELECT team, recipient, state FROM audit")) == {
            ("", "platform@example.org", "sent"), ("serving", "serving@example.org", "sent"),
            ("serving", "lead@example.org", "refused"),
        }  # fmt: skip
    assert all(PASSWORD.encode() not in file.read_bytes() for file in outbox.parent.rglob("*") if file.is_file())
    # What was told can be decided on, and is known to have been told.
    (own,) = (outbox.parent / "ledgers").glob("*.db")
    ledger = Ledger(own)
    told = ledger.mailed_since("team serving", 0.0)
    assert told and told <= {entry.proposal.id for entry in ledger.entries()}
    # The routes change: who is new to them is told, nobody else.
    (tmp_path / "teams.toml").write_text(TEAMS.replace('"lead@example.org"', '"lead@example.org", "new@example.org"'))
    assert report("--send") == 0
    assert server.received[-1].to == ("new@example.org",) and len(server.received) == 3
    assert spoken(server.received[-1]) == spoken(server.received[1])  # what the others of the team were told
