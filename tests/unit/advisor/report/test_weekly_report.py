"""`skuwise report` in process, on weeks made by hand and with carriers in memory."""

from __future__ import annotations

import csv
import email
from collections.abc import Callable
from email.policy import default as default_policy
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli import report as command
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.mail.parcel import Reply
from skuwise.advisor.report import run, send
from skuwise.advisor.report.weeks import WEEK_SECONDS, reported_week, week_of
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.notify_desk import FakeCarrier
from skuwise.tests.support.report_fixtures import END, fleet

MONDAY = "2026-11-09"
TEAMS = """
administrators = ["platform@example.org"]
[teams.first]
namespace = ["team-000"]
to = ["first@example.org", "lead@example.org"]
[teams."=no/<b>body"]
user = ["nobody"]
to = ["nobody@example.org"]
"""


@pytest.fixture
def carrier() -> FakeCarrier:
    return FakeCarrier()


@pytest.fixture(autouse=True)
def site(tmp_path: Path, carrier: FakeCarrier, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the administrator's settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(command, "_source", lambda *_: None)
    monkeypatch.setattr(command.time, "time", lambda: END + 6 * 3600.0)
    monkeypatch.setattr(send, "carriers_of", lambda *_: {"mail": carrier})
    monkeypatch.setattr(run, "read_and_advise", lambda *_, until, **__: (None, fleet(2, 2, end=until)))
    (tmp_path / "teams.toml").write_text(TEAMS)

    def write(**settings: object) -> None:
        given = {"teams": str(tmp_path / "teams.toml"), **settings}
        file = tmp_path / "config/skuwise/skuwise.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{key} = {str(one).lower() if isinstance(one, bool) else repr(one)}" for key, one in given.items()]
        file.write_text("\n".join(["[report]", *lines, ""]))

    write()
    return write


def report(*arguments: str) -> int:
    return main(["report", "--week", MONDAY, "--no-ledger", *arguments])


def test_a_preview_writes_each_teams_mail_and_page(tmp_path: Path, capsys) -> None:
    folder, victim = tmp_path / "deep" / "preview", tmp_path / "victim"
    folder.mkdir(parents=True)
    victim.write_text("mine")
    (folder / "fleet.eml").symlink_to(victim)
    assert report("--preview", str(folder)) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(files) == sorted(folder.iterdir()) and victim.read_text() == "mine"
    index = files.pop()
    assert [row["mail"] for row in csv.DictReader(index.read_text().splitlines())] == [one.name for one in files[::2]]
    assert [file.suffix for file in files] == [".eml", ".html"] * 3 and files[0] == folder / "fleet.eml"
    mails = [email.message_from_bytes(file.read_bytes(), policy=default_policy) for file in files[::2]]
    assert [mail["To"] for mail in mails] == [
        "platform@example.org", "first@example.org, lead@example.org", "nobody@example.org",
    ]  # fmt: skip
    assert "$" in mails[0]["Subject"] and mails[0]["List-Unsubscribe"].startswith("<mailto:platform@example.org")
    assert "cid:" not in files[1].read_text() and "data:image/png" in files[1].read_text()
    # A team's name from the routes is text in HTML, and no formula in a list.
    assert "=no/&lt;b&gt;body" in files[5].read_text() and not any("no/<b>body" in f.read_text() for f in files[1::2])
    lists = {str(part.get_filename()): part.get_content() for part in mails[0].iter_attachments()}
    assert any("'=no/<b>body" in str(text) for name, text in lists.items() if name.endswith("-teams.csv"))


def test_only_one_team_and_no_mail_where_there_is_nothing_to_tell(tmp_path: Path, site, capsys) -> None:
    site(no_data="none")
    assert report("--preview", str(tmp_path / "preview")) == 0
    assert sorted(file.stem for file in (tmp_path / "preview").glob("*.eml")) == ["first", "fleet"]
    assert report("--preview", str(tmp_path / "one"), "--only", "first") == 0
    assert [file.stem for file in (tmp_path / "one").glob("*.eml")] == ["first"]
    assert report("--preview", str(tmp_path / "one"), "--only", "frst") == 2
    assert "Did you mean first" in capsys.readouterr().err


def test_nothing_is_sent_before_the_administrator_says_so(tmp_path: Path, carrier: FakeCarrier, capsys) -> None:
    assert report("--send") == 0
    said = capsys.readouterr().err
    assert "would be sent to first@example.org, lead@example.org" in said and "send = true" in said
    assert carrier.taken == [] and not (tmp_path / "state").exists()


def test_every_team_receives_one_mail_however_often_the_report_is_run(
    tmp_path: Path, carrier: FakeCarrier, site, capsys
) -> None:
    site(send=True)
    carrier.answer = lambda to: Reply("refused", "550 no such user") if to.startswith("lead") else None
    assert report("--send") == 1
    said = capsys.readouterr().err
    assert "Refused for good: first (mail, lead@example.org): 550 no such user" in said and "reading the week" in said
    assert report("--send") == 0
    assert "reading the week" not in capsys.readouterr().err  # what is done costs nothing
    got = [one.recipients for one in carrier.taken]
    assert got == [("platform@example.org",), ("first@example.org",), ("nobody@example.org",)]
    # The routes change: who is new to them is told, nobody else.
    (tmp_path / "teams.toml").write_text(TEAMS.replace('"lead@example.org"', '"lead@example.org", "new@example.org"'))
    assert report("--send") == 0
    assert carrier.taken[-1].recipients == ("new@example.org",) and len(carrier.taken) == 4


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--week", "2999-01-01", "--send"], 2, "is to come"), (["--week", "yesterday", "--send"], 2, "Invalid time"),
        (["--teams", "none.toml", "--send"], 2, "cannot be read"),
        (["--week", "2026-11-17", "--send"], 2, "An incomplete week is not sent"),
    ],
)  # fmt: skip
def test_what_cannot_be_reported_is_refused(site, capsys, arguments: list[str], status: int, said: str) -> None:
    site(send=True)
    assert main(["report", *arguments]) == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("moment", "monday"),
    [
        ("2026-11-16T00:00:00Z", "2026-11-16"),
        ("2026-11-15T23:59:59Z", "2026-11-09"),
        ("2026-11-16T01:00:00+02:00", "2026-11-09"),
        ("2026-11-22", "2026-11-16"),
        ("2024-12-31", "2024-12-30"),
    ],
)
def test_a_week_goes_from_monday_to_monday(moment: str, monday: str) -> None:
    week = week_of(parse_moment(moment))
    assert (week.name, week.start) == (monday, parse_moment(monday))
    assert week.end == week.start + WEEK_SECONDS


def test_the_last_week_that_is_over_is_reported() -> None:
    monday = parse_moment("2026-11-16")
    assert reported_week(None, monday).name == "2026-11-09"
    assert reported_week(None, monday - 1).name == "2026-11-02"
    assert reported_week(monday + 86400, monday + 2 * 86400).name == "2026-11-16"
    with pytest.raises(UsageError, match="is to come"):
        reported_week(monday + WEEK_SECONDS, monday + 86400)
