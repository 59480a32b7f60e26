# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false, reportOptionalOperand=false
"""`skuwise report` in process, on weeks made by hand and with carriers in memory."""

import csv
import email
import io
import re
from collections.abc import Callable
from dataclasses import replace
from email.policy import default as default_policy
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import matplotlib.image
import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli import report as command
from skuwise.advisor.core.advice_types import Reconciliation
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.notify import report as run
from skuwise.advisor.notify.by_team import outcomes_of, split_by_team
from skuwise.advisor.notify.report_letters import SUBJECT_MAX, letter_of
from skuwise.advisor.notify.weeks import WEEK_SECONDS, reported_week, week_of
from skuwise.advisor.state.parcel import Reply
from skuwise.advisor.views.aggregates import DRAINED, NO_WORKLOAD, NOT_OBSERVED, holdings, hours_by_kind
from skuwise.advisor.views.document.report_content import story_of
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.golden_files import golden
from skuwise.tests.support.notify_desk import FakeCarrier
from skuwise.tests.support.report_fixtures import END, WEEK, by_namespace, fleet, outcome, unpriced

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
    monkeypatch.setattr(run, "carriers_of", lambda *_: {"mail": carrier})
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
        ("2026-11-16T00:00:00Z", "2026-11-16"), ("2026-11-15T23:59:59Z", "2026-11-09"),
        ("2026-11-16T01:00:00+02:00", "2026-11-09"), ("2026-11-22", "2026-11-16"), ("2024-12-31", "2024-12-30"),
    ],
)  # fmt: skip
def test_a_week_goes_from_monday_to_monday(moment: str, monday: str) -> None:
    week = week_of(parse_moment(moment))
    assert (week.name, week.start) == (monday, parse_moment(monday)) and week.end == week.start + WEEK_SECONDS


def test_the_last_week_that_is_over_is_reported() -> None:
    monday = parse_moment("2026-11-16")
    assert reported_week(None, monday).name == "2026-11-09"
    assert reported_week(None, monday - 1).name == "2026-11-02"
    assert reported_week(monday + 86400, monday + 2 * 86400).name == "2026-11-16"
    with pytest.raises(UsageError, match="is to come"):
        reported_week(monday + WEEK_SECONDS, monday + 86400)


def test_every_workload_finding_and_way_out_is_somebodys_and_once():
    advice = fleet(4, 3)
    shared = split_by_team(advice, by_namespace, teams=("team-000", "nobody-here"))
    for name in ("workloads", "findings", "recommendations", "fabrics"):
        together = [one for part in shared.values() for one in getattr(part, name)]
        assert sorted(map(repr, together)) == sorted(map(repr, getattr(advice, name)))
    assert shared["nobody-here"].workloads == ()
    assert set(shared) == {"nobody-here", *(f"team-{n:03}" for n in range(4))}
    parts = [part for part in shared.values() if part.workloads]  # their money adds up to what workloads held alone
    assert sum(p.summary.cost_usd for p in parts) == pytest.approx(sum(w.cost_usd for w in advice.workloads))
    assert sum(p.summary.wasted_usd for p in parts) == pytest.approx(advice.summary.wasted_usd)
    assert sum(p.summary.recoverable_usd_per_month for p in parts) == pytest.approx(
        advice.summary.recoverable_usd_per_month
    )


def test_what_is_of_no_workload_is_its_nodes_teams_where_they_are_one_teams():
    advice = fleet(1, 1)
    bare = replace(advice.findings[0], id="f-bare", rule="idle", workload=None, nodes=("a-1", "a-2"))
    across = replace(bare, id="f-across", nodes=("a-1", "b-1"))
    advice = replace(
        advice, findings=(bare, across),
        recommendations=(replace(advice.recommendations[0], workload=None, findings=("f-bare",)),),
    )  # fmt: skip
    shared = split_by_team(advice, by_namespace, lambda node: node[0])
    assert [f.id for f in shared["a"].findings] == ["f-bare"]
    assert [f.id for f in shared[None].findings] == ["f-across"] and len(shared["a"].recommendations) == 1


def test_outcomes_go_to_the_team_of_the_move_or_of_the_one_such_name():
    advice = fleet(2, 2)
    shared = split_by_team(advice, by_namespace)
    known = outcome(advice.recommendations[0].id, "anything")
    gone = outcome("r-gone", "chat-1-0")
    nobodys = outcome("r-nobody", "forgotten")
    every = (known, gone, nobodys)
    assert outcomes_of(every, shared, "team-000") == (known,)
    assert outcomes_of(every, shared, "team-001") == (gone,) and outcomes_of(every, shared, None) == (nobodys,)
