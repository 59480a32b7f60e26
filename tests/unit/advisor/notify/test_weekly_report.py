# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false, reportOptionalOperand=false
"""`skuwise report` in process, on weeks made by hand and with carriers in memory; advice split by team."""

import csv
import email
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from email.policy import default as default_policy
from pathlib import Path
from types import SimpleNamespace

import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli import report as command
from skuwise.advisor.cli.options import SourceOptions
from skuwise.advisor.core import fleet_identity
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.notify import report as run
from skuwise.advisor.state.deliveries import Reply
from skuwise.rules.base.errors import SkuwiseError, UsageError
from skuwise.tests.support.delivery_builders import FakeCarrier
from skuwise.tests.support.ledger_builders import moved
from skuwise.tests.support.report_fixtures import END, IDENTITY, by_namespace, fleet
from skuwise.tests.support.stored_rows import rows

MONDAY, NOW = "2026-11-09", END + 6 * 3600.0
TEAMS = """
administrators = ["platform@example.org"]
[teams.first]
namespace = ["team-000"]
to = ["first@example.org", "lead@example.org"]
[teams."=no/<b>body"]
user = ["nobody"]
to = ["nobody@example.org"]
"""
PLATFORM, FIRST, LEAD, NOBODY = (f"{name}@example.org" for name in ("platform", "first", "lead", "nobody"))


@pytest.fixture
def carrier() -> FakeCarrier:
    return FakeCarrier()


@pytest.fixture
def source() -> SimpleNamespace:
    """Telemetry that ends with the clock. `newest_at`: another end of it."""
    source = SimpleNamespace(read=lambda *_, **__: None, newest_at=NOW)
    source.newest = lambda _: source.newest_at
    return source


@pytest.fixture(autouse=True)
def site(
    tmp_path: Path, carrier: FakeCarrier, source: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Sets the administrator's settings."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(SourceOptions, "or_settings", lambda chosen: chosen)
    monkeypatch.setattr(SourceOptions, "open", lambda *_: source)
    monkeypatch.setattr(fleet_identity, "fleet_of", lambda _: IDENTITY)
    monkeypatch.setattr(command.time, "time", lambda: NOW)
    monkeypatch.setattr(run, "carriers_of", lambda *_: ({"mail": carrier}, ()))

    def read(*_: object, until: float, **__: object) -> tuple[None, SimpleNamespace]:
        return None, SimpleNamespace(advice=replace(fleet(2, 2, end=until), fleet=IDENTITY))

    monkeypatch.setattr(run, "read_and_reason", read)
    (tmp_path / "teams.toml").write_text(TEAMS)

    def write(**settings: str) -> None:
        for key, value in {"teams": str(tmp_path / "teams.toml"), **settings}.items():
            monkeypatch.setenv(f"SKUWISE_REPORT_{key.upper()}", value)

    write()
    return write


def report(*arguments: str) -> int:
    return main(["report", "--week", MONDAY, *arguments])


def test_a_preview_writes_each_teams_mail_and_page(tmp_path: Path, capsys) -> None:
    folder, victim = tmp_path / "preview", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("mine")
    (folder / "fleet.eml").symlink_to(victim)
    assert report("--preview", str(folder), "--no-ledger") == 0
    *files, index = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert {*files, index} == set(folder.iterdir()) and victim.read_text() == "mine"
    assert [row["mail"] for row in csv.DictReader(index.read_text().splitlines())] == [file.name for file in files[::2]]
    assert [file.suffix for file in files] == [".eml", ".html"] * 3 and files[0] == folder / "fleet.eml"
    mails = [email.message_from_bytes(file.read_bytes(), policy=default_policy) for file in files[::2]]
    assert [mail["To"] for mail in mails] == [PLATFORM, f"{FIRST}, {LEAD}", NOBODY]
    assert "$" in mails[0]["Subject"] and mails[0]["List-Unsubscribe"].startswith("<mailto:platform@example.org")
    # A team's name from the routes is text in HTML, and no formula in a list.
    assert "=no/&lt;b&gt;body" in files[5].read_text() and not any("no/<b>body" in f.read_text() for f in files[1::2])
    lists = [part.get_content() for part in mails[0].iter_attachments() if "-teams.csv" in (part.get_filename() or "")]
    assert lists and "'=no/<b>body" in str(lists[0])


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


def test_every_recipient_has_one_mail_however_often_the_report_is_run(
    tmp_path: Path, carrier: FakeCarrier, site, capsys
) -> None:
    site(send="yes")
    carrier.answer = lambda to: Reply("refused", "550 no such user") if to == LEAD else None
    assert report("--send", "--no-ledger") == 1
    said = capsys.readouterr().err
    assert f"Refused for good: first (mail, {LEAD}): 550 no such user" in said and "reading the week" in said
    assert report("--send", "--no-ledger") == 0
    assert "reading the week" not in capsys.readouterr().err  # what is done costs nothing
    assert [entry.recipient for entry in carrier.taken] == [PLATFORM, FIRST, NOBODY]
    # The routes change: only new recipients get a mail.
    (tmp_path / "teams.toml").write_text(TEAMS.replace('"lead@example.org"', '"lead@example.org", "new@example.org"'))
    assert report("--send") == 0
    assert carrier.taken[-1].recipient == "new@example.org" and len(carrier.taken) == 4
    (state,) = (tmp_path / "state/skuwise").glob("*.db")
    batches = rows(state, "SELECT batch, team, recipient, state FROM deliveries WHERE state != 'sent'")
    assert batches == [("report-2026-11-09", "first", LEAD, "failed")]


def test_a_recommendation_is_told_at_length_once_within_the_cooldown(tmp_path: Path, site, monkeypatch) -> None:
    site(send="yes", cooldown="14d")
    assert report("--send") == 0
    (state,) = (tmp_path / "state/skuwise").glob("*.db")
    noted = rows(state, "SELECT DISTINCT recommendation FROM told WHERE recipient = 'team first'")
    first = {id_ for (id_,) in noted}
    reported: dict[str | None, frozenset[str]] = {}
    story_of = run.story_of
    monkeypatch.setattr(
        run, "story_of", lambda *a, **k: reported.update({k.get("team"): k["reported"]}) or story_of(*a, **k)
    )
    monkeypatch.setattr(command.time, "time", lambda: NOW + 3 * run.WEEK_SECONDS)
    for week, is_told in (("2026-11-16", True), ("2026-11-23", False)):
        assert main(["report", "--send", "--week", week]) == 0
        assert first and (first <= reported["first"] if is_told else not first & reported["first"])


def test_a_week_that_telemetry_has_not_reached_is_not_sent_yet(
    carrier: FakeCarrier, site, source: SimpleNamespace, capsys
) -> None:
    site(send="yes")
    source.newest_at = END - 2 * 86400.0
    assert main(["report", "--send"]) == 1 and carrier.taken == []
    assert "The telemetry of the week of 2026-11-09 is incomplete" in capsys.readouterr().err
    source.newest_at = NOW
    assert main(["report", "--send"]) == 0 and len(carrier.taken) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--week", "2999-01-01"], "is to come"), (["--week", "yesterday"], "Invalid time"),
        (["--teams", "none.toml"], "cannot be read"), (["--week", "2026-11-17"], "An incomplete week is not sent"),
        (["--teams", "/dev/null"], "No recipients configured"),
    ],
)  # fmt: skip
def test_what_cannot_be_reported_is_refused(site, capsys, arguments: list[str], said: str) -> None:
    site(send="yes")
    assert main(["report", "--send", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "now", "monday"),
    [
        ("2026-11-16T00:00:00Z", "2026-12-01", "2026-11-16"), ("2026-11-15T23:59:59Z", "2026-12-01", "2026-11-09"),
        ("2026-11-16T01:00:00+02:00", "2026-12-01", "2026-11-09"), ("2024-12-31", "2026-12-01", "2024-12-30"),
        ("2026-11-17", "2026-11-18", "2026-11-16"), (None, "2026-11-16", "2026-11-09"),
        (None, "2026-11-15T23:59:59Z", "2026-11-02"), ("2026-11-23", "2026-11-17", None),
    ],
)  # fmt: skip
def test_a_week_goes_from_monday_to_monday(asked: str | None, now: str, monday: str | None) -> None:
    moment = None if asked is None else parse_moment(asked)
    if monday is None:
        with pytest.raises(UsageError, match="is to come"):
            run.reported_week(moment, parse_moment(now))
        return
    week = run.reported_week(moment, parse_moment(now))
    assert (week.name, week.start, week.end) == (monday, parse_moment(monday), parse_moment(monday) + run.WEEK_SECONDS)


# Days of the newest data before the week's end: half a week is not reported as a whole; after five weeks no clock is.
@pytest.mark.parametrize(("days", "is_over"), [(-1, True), (0.05, True), (0.1, False), (6, False), (36, True)])
def test_the_week_is_over_by_the_telemetry_too(days: float, is_over: bool) -> None:
    week = run.reported_week(None, NOW)
    with nullcontext() if is_over else pytest.raises(SkuwiseError, match="is incomplete"):
        run.check_over(week, week.end - days * 86400.0)


def test_every_workload_finding_and_recommendation_is_of_one_team_and_once() -> None:
    advice = fleet(4, 3)
    parts = run.split_by_team(advice, by_namespace, teams=("team-000", "nobody-here"))
    for name in ("workloads", "findings", "recommendations", "fabrics"):
        together = [entry for part in parts.values() for entry in getattr(part, name)]
        assert sorted(map(repr, together)) == sorted(map(repr, getattr(advice, name)))
    assert set(parts) == {"nobody-here", *(f"team-{n:03}" for n in range(4))} and parts["nobody-here"].workloads == ()
    sums = [part.summary for part in parts.values() if part.workloads]  # they add up to what workloads held alone
    assert sum(s.cost_usd for s in sums) == pytest.approx(sum(w.cost_usd for w in advice.workloads))
    for name in ("wasted_usd", "recoverable_usd_per_month"):
        assert sum(getattr(s, name) for s in sums) == pytest.approx(getattr(advice.summary, name))


def test_what_is_of_no_workload_is_its_nodes_teams_where_they_are_one_teams() -> None:
    advice = fleet(1, 1)
    bare = replace(advice.findings[0], id="f-bare", rule="idle", workload=None, nodes=("a-1", "a-2"))
    across = replace(bare, id="f-across", nodes=("a-1", "b-1"))
    advice = replace(
        advice, findings=(bare, across),
        recommendations=(replace(advice.recommendations[0], workload=None, findings=("f-bare",)),),
    )  # fmt: skip
    parts = run.split_by_team(advice, by_namespace, lambda node: node[0])
    assert [f.id for f in parts["a"].findings] == ["f-bare"]
    assert [f.id for f in parts[None].findings] == ["f-across"] and len(parts["a"].recommendations) == 1


def test_moves_go_to_the_team_of_the_move_or_of_the_one_such_name() -> None:
    advice = fleet(2, 2)
    by_id = moved(advice.recommendations[0].id, "anything")
    gone, unknown = moved("r-gone", "chat-1-0"), moved("r-nobody", "forgotten")
    by_team = run.moves_by_team((by_id, gone, unknown), run.split_by_team(advice, by_namespace))
    assert by_team == {"team-000": (by_id,), "team-001": (gone,), None: (unknown,)}
