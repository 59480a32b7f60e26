"""`skuwise report` as an administrator runs it, on a simulated fleet and a real mail server."""

from __future__ import annotations

import csv
import email
import os
import re
import sqlite3
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from email.policy import default as default_policy
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import parse_moment, rfc3339
from skuwise.advisor.demo import simulate
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.sync import LedgerSync
from skuwise.advisor.mail.routes import Routes
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.advisor.render.formats.csv import cell
from skuwise.advisor.report.run import ReportJob
from skuwise.advisor.report.weeks import Week
from skuwise.advisor.telemetry.source import Databases
from skuwise.tests.support.mail_server import PASSWORD, USER, MailServer, Received, mail_server
from skuwise.tests.support.rulebooks import rulebook

MONDAY, NEXT = "2026-03-02", "2026-03-09"
TEAMS = """
administrators = ["platform@example.org"]
[teams.serving]
sku = ["H100*"]
to = ["serving@example.org", "lead@example.org"]
[teams."=no/<b>body"]
user = ["nobody"]
to = ["nobody@example.org"]
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "founding.db"
    simulate("founding", path, days=2, seed=4, until=parse_moment(NEXT), minutes_seconds=3600)
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MailServer]:
    with mail_server(tmp_path) as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes the administrator's settings; gives the outbox's file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    password, teams = tmp_path / "password", tmp_path / "teams.toml"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    teams.write_text(TEAMS)

    def write(server: MailServer | None = None, **settings: object) -> Path:
        given: dict[str, object] = {"db": [str(fleet)], "teams": str(teams), **settings}
        if server is not None:
            given |= {
                "from": "GPU report <gpus@example.org>", "smtp_host": "127.0.0.1", "smtp_port": server.port,
                "smtp_username": USER, "smtp_password_file": str(password), "smtp_ca_file": str(server.ca_file),
            }  # fmt: skip
        file = tmp_path / "config/skuwise/skuwise.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{k} = {str(v).lower() if isinstance(v, bool) else repr(v)}" for k, v in given.items()]
        file.write_text("\n".join(["[report]", *lines, ""]))
        return tmp_path / "state/skuwise/outbox.db"

    return write


def report(*arguments: str) -> int:
    return main(["report", "--week", MONDAY, *arguments])


def states(outbox: Path) -> set[tuple[str, str, str]]:
    with closing(sqlite3.connect(outbox)) as connection:
        return set(connection.execute("SELECT team, recipient, state FROM audit"))


@pytest.mark.slow
def test_a_preview_writes_each_teams_mail_and_page(
    tmp_path: Path, fleet: Path, site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    outbox = site()
    folder = tmp_path / "preview"
    assert report("--db", str(fleet), "--preview", str(folder)) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(files) == sorted(folder.iterdir())
    index = files.pop()
    assert index.name == "index.csv" and [row["mail"] for row in csv.DictReader(index.read_text().splitlines())] == [
        file.name for file in files[::2]
    ]
    assert [file.suffix for file in files] == [".eml", ".html"] * 3 and files[0] == folder / "fleet.eml"
    assert not outbox.exists() and not outbox.with_name("ledgers").exists()
    mails = [email.message_from_bytes(file.read_bytes(), policy=default_policy) for file in files[::2]]
    assert [mail["To"] for mail in mails] == [
        "platform@example.org", "serving@example.org, lead@example.org", "nobody@example.org",
    ]  # fmt: skip
    assert "$" in mails[0]["Subject"] and mails[0]["List-Unsubscribe"].startswith("<mailto:platform@example.org")
    assert "cid:" not in files[1].read_text() and "data:image/png" in files[1].read_text()
    assert files[1].stat().st_size > files[5].stat().st_size
    # A team's name from the routes is text in HTML, and no formula in a list.
    assert "=no/&lt;b&gt;body" in files[5].read_text() and not any("no/<b>body" in f.read_text() for f in files[1::2])
    lists = {str(part.get_filename()): part.get_content() for part in mails[0].iter_attachments()}
    assert any("'=no/<b>body" in str(text) for name, text in lists.items() if name.endswith("-teams.csv"))


HOSTILE_TEAMS = (
    "../../escape", "/etc/passwd", "a/b", "CON", "con", "nul.txt", "-rf", ".hidden", "..", "Ops", "ops", "OPS", "index",
    "fleet", "caf\u00e9", "cafe\u0301", "\U0001f680", "x" * 100, "=cmd|x", "a;=1",
)  # fmt: skip


@pytest.mark.slow
def test_teams_of_any_name_have_a_file_each_and_nothing_planted_is_written_through(
    tmp_path: Path, site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Links and pipes that lie in the folder beforehand are replaced; the index says which file is whose."""
    site()
    teams = tmp_path / "hostile.toml"
    team = '[teams."{0}"]\nuser = ["user-{1}"]\nto = ["n@example.org"]\n'
    teams.write_text("".join(team.format(name, number) for number, name in enumerate(HOSTILE_TEAMS)))
    folder, victim = tmp_path / "deep" / "preview", tmp_path / "victim"
    folder.mkdir(parents=True)
    victim.write_text("mine")
    for name in ("fleet.eml", "ops.html", "index.csv"):
        (folder / name).symlink_to(victim)
    (folder / "ops.eml").symlink_to("/dev/full")
    os.mkfifo(folder / "fleet.html")  # nobody reads it: what opens it waits for ever
    assert report("--preview", str(folder), "--teams", str(teams)) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert victim.read_text() == "mine"
    assert sorted(written) == sorted(folder.iterdir())
    here = {"config", "deep", "hostile.toml", "password", "teams.toml", "victim"}
    assert {path.name for path in tmp_path.iterdir()} == here
    assert all(path.is_file() and not path.is_symlink() for path in written)
    assert len({unicodedata.normalize("NFKC", path.name).casefold() for path in written}) == len(written)
    rows = list(csv.DictReader((folder / "index.csv").read_text(encoding="utf-8").splitlines()))
    assert sorted(row["team"] for row in rows) == sorted(["", *(str(cell(name)) for name in HOSTILE_TEAMS)])
    assert {row[kind] for row in rows for kind in ("mail", "page")} | {"index.csv"} == {path.name for path in written}


@pytest.mark.slow
def test_only_one_team_and_no_mail_where_there_is_nothing_to_tell(
    tmp_path: Path, site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    site(no_data="none")
    assert report("--preview", str(tmp_path / "preview")) == 0
    assert sorted(file.stem for file in (tmp_path / "preview").glob("*.eml")) == ["fleet", "serving"]
    assert report("--preview", str(tmp_path / "one"), "--only", "serving") == 0
    assert [file.stem for file in (tmp_path / "one").glob("*.eml")] == ["serving"]
    capsys.readouterr()
    assert report("--preview", str(tmp_path / "one"), "--only", "servng") == 2
    assert "Did you mean serving" in capsys.readouterr().err


@pytest.mark.slow
def test_nothing_is_sent_before_the_administrator_says_so(
    server: MailServer, site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    outbox = site(server)
    assert report("--send") == 0
    said = capsys.readouterr().err
    assert "would be sent to serving@example.org, lead@example.org" in said and "send = true" in said
    assert server.received == [] and not outbox.exists()


def spoken(received: Received) -> str:
    """The mail as text, without the moment at which it was written: two of the same run may have a minute between."""
    body = received.message.get_body(("plain",))
    assert body is not None
    text, moments = re.subn(r"(?<=Written by skuwise, )\S+ \S+ UTC", "MOMENT", body.get_content())
    assert moments == 1
    return text


@pytest.mark.slow
def test_every_team_receives_one_mail_however_often_the_report_is_run(
    tmp_path: Path, server: MailServer, site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    outbox = site(server, send=True)
    server.behaviour.rcpt = lambda address: "550 no such user" if address.startswith("lead") else None
    assert report("--send") == 1
    said = capsys.readouterr().err
    assert "Refused for good: serving (mail, lead@example.org): 550 no such user" in said
    assert "reading the week" in said and PASSWORD not in said
    assert report("--send") == 0
    assert "reading the week" not in capsys.readouterr().err  # what is done costs nothing
    assert [one.to for one in server.received] == [
        ("platform@example.org",), ("serving@example.org",), ("nobody@example.org",),
    ]  # fmt: skip
    assert states(outbox) == {
        ("", "platform@example.org", "sent"), ("serving", "serving@example.org", "sent"),
        ("serving", "lead@example.org", "refused"), ("=no/<b>body", "nobody@example.org", "sent"),
    }  # fmt: skip
    assert all(PASSWORD.encode() not in file.read_bytes() for file in outbox.parent.rglob("*") if file.is_file())
    # What was told can be decided on, and is known to have been told.
    (own,) = (outbox.parent / "ledgers").glob("*.db")
    ledger = Ledger(own)
    told = ledger.mailed_since("team serving", 0.0)
    assert told and told <= {entry.proposal.id for entry in ledger.entries()}
    # The routes change: who is new to them is told, nobody else.
    routes = tmp_path / "teams.toml"
    routes.write_text(TEAMS.replace('"lead@example.org"', '"lead@example.org", "new@example.org"'))
    assert report("--send") == 0
    assert server.received[-1].to == ("new@example.org",) and len(server.received) == 4
    assert spoken(server.received[-1]) == spoken(server.received[1])  # what the others of the team were told


def test_a_server_that_is_down_is_an_error_and_the_next_run_sends(
    server: MailServer, site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    site(server, send=True)
    server.behaviour.mail = "550 not you"
    assert report("--send", "--only", "serving") == 1
    said = capsys.readouterr().err
    assert "2 waiting in the outbox: the next run of the same command tries again once 5 min have passed." in said
    server.behaviour.mail = None
    outbox = site(server, send=True)
    with closing(sqlite3.connect(outbox)) as connection, connection:
        connection.execute("UPDATE deliveries SET next_at = 0")  # as if the pause were over
    assert report("--send", "--only", "serving") == 0
    assert [one.to for one in server.received] == [("serving@example.org", "lead@example.org")]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--week", "2999-01-01", "--send"], 2, "is to come"),
        (["--week", "yesterday", "--send"], 2, "Invalid time"),
        (["--week", "2001-01-01", "--preview", "p"], 3, ""),
        (["--teams", "none.toml", "--send"], 2, "cannot be read"),
        (["--send", "--preview", "p"], 2, "not allowed"),
        ([], 2, "required"),
    ],
)
def test_what_cannot_be_reported_is_refused(
    tmp_path: Path, site: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], status: int, said: str,
) -> None:  # fmt: skip
    site(send=True)
    monkeypatch.chdir(tmp_path)
    try:
        found = main(["report", *arguments])
    except SystemExit as ended:
        found = ended.code
    assert found == status
    told = capsys.readouterr().err
    assert said in told and "unexpected" not in told


def test_a_week_that_is_not_over_is_said_and_not_sent(
    tmp_path: Path, fleet: Path, site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    site(send=True)
    today = rfc3339(time.time())
    assert main(["report", "--week", today, "--send"]) == 2
    assert "An incomplete week is not sent" in capsys.readouterr().err
    # Telemetry begins a day before this week, so that the week before is known in part only.
    now, said = parse_moment("2026-03-08T12:00:00Z"), []
    job = ReportJob(
        ReportSettings(), Routes(), Databases((fleet,)), rulebook(), LedgerSync(None, False, said.append),
        Week(parse_moment("2026-03-08")), now, None, said.append,
    )  # fmt: skip
    (report,) = job.reports(job.teams)
    assert "week is not over: this report ends at 2026-03-08 12:00 UTC" in " ".join(report.letter.text.split())
    assert "the data of the week before is incomplete: nothing to compare with" in said


def test_sending_needs_a_server_a_sender_and_somebody(
    site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    site(send=True)
    assert report("--send") == 2
    assert "report.from is not set" in capsys.readouterr().err
