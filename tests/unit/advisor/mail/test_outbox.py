"""The outbox: what is queued is sent once, what is put off is tried again, and who waits too long is given up."""

import contextlib
import sqlite3
from email.headerregistry import Address
from pathlib import Path

import pytest
from skuwise.advisor.notify.carriers import available_carriers
from skuwise.advisor.notify.routes import TeamRoute
from skuwise.advisor.notify.settings import ReportSettings
from skuwise.advisor.state.outbox import DamagedError, Outbox
from skuwise.advisor.state.outbox_rows import GIVE_UP_SECONDS, pause_seconds
from skuwise.advisor.state.parcel import Reply
from skuwise.agent.model import Instant
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.outbox_builders import NOW, WEEK, Post


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(tmp_path)


def test_mails_are_sent_once_and_written_down(post: Post) -> None:
    assert post.queue("search", "a@example.org", "b@example.org") == 2
    assert post.queue("ads", "c@example.org") == 1 and b"all of it" in post.outbox.path.read_bytes()
    tally = post.send()
    assert (tally.sent, tally.waiting, tally.refused, tally.down) == (3, 0, (), ())
    assert [one.recipients for one in post.carrier.taken] == [("a@example.org", "b@example.org"), ("c@example.org",)]
    assert post.slept == [2.0]  # 30 a minute
    assert post.rows("SELECT team, recipient, state FROM audit ORDER BY 1, 2") == [
        ("ads", "c@example.org", "sent"), ("search", "a@example.org", "sent"), ("search", "b@example.org", "sent"),
    ]  # fmt: skip
    assert b"all of it" not in post.outbox.path.read_bytes() and post.outbox.path.stat().st_mode & 0o077 == 0
    # The same week again: nobody is written to but who is new.
    assert post.queue("search", "a@example.org", "b@example.org") == 0
    assert post.queue("search", "a@example.org", "new@example.org") == 1
    assert post.send().sent == 1 and post.carrier.taken[-1].recipients == ("new@example.org",)
    post.outbox.note_queued(WEEK, "routes", NOW)
    assert post.outbox.is_queued(WEEK, "routes") and not post.outbox.is_queued(WEEK, "others")


def test_pauses_grow_and_five_days_are_enough(post: Post) -> None:
    assert [pause_seconds(tries) for tries in range(9)] == [
        0.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0, 9600.0, 14400.0, 14400.0,
    ]  # fmt: skip
    post.carrier.answer = lambda _: Reply("later", "452 mailbox full")
    post.queue("search", "full@x")
    for _ in range(2):
        assert (post.send().waiting, post.outbox.soonest(Instant(post.at, post.at - NOW)) > 0) == (1, True)
        post.at += 600.0
    with contextlib.closing(sqlite3.connect(post.outbox.path)) as connection, connection:
        connection.execute("UPDATE deliveries SET lived_seconds = ?", [GIVE_UP_SECONDS])
    assert "given up after five days; last: 452 mailbox full" in post.send().refused[0]
    assert post.outbox.waiting() == 0


def test_a_carrier_that_is_down_costs_no_try_and_no_recipient(post: Post) -> None:
    post.carrier.down = "The mail server is away."
    for team in ("ads", "search"):
        post.queue(team, f"{team}@x")
    tally = post.send()
    assert "is away" in str(tally.down[0]) and (tally.waiting, tally.refused) == (2, ())
    assert post.rows("SELECT count(*) FROM attempts") == [(0,)]
    post.carrier.down = ""
    assert post.send().sent == 2


def test_content_that_is_not_what_was_queued_is_given_up(post: Post) -> None:
    post.queue("search", "a@x")
    with contextlib.closing(sqlite3.connect(post.outbox.path)) as connection, connection:
        connection.execute("UPDATE mails SET content = x'00'")
    tally = post.send()
    assert "is not what was queued" in tally.refused[0] and post.carrier.taken == [] and tally.waiting == 0


@pytest.mark.parametrize("case", ["foreign", "newer", "text", "folder", "trigger"])
def test_a_file_that_is_no_outbox_is_left_untouched(tmp_path: Path, case: str) -> None:
    path = tmp_path / "outbox.db"
    if case == "text":
        path.write_text("minutes of the meeting " * 100)
    elif case == "folder":
        path.mkdir()
    elif case == "trigger":
        assert Outbox(path).waiting() == 0
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TRIGGER mine AFTER INSERT ON mails BEGIN DELETE FROM mails; END")
    else:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE mine (x)")
            if case == "newer":
                connection.execute(f"PRAGMA application_id = {0x736B756F}")
                connection.execute("PRAGMA user_version = 2000")
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError, match="outbox") as raised:
        Outbox(path).waiting()
    assert isinstance(raised.value, DamagedError) == (case in ("text", "trigger"))
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_an_outbox_knows_what_a_mail_is_about_for_a_while(post: Post) -> None:
    assert post.outbox.about(["i-1/0"]) == {}
    post.queue("search", "a@x", week="watch-1", about=("i-1/0", "i-2/0"))
    found = post.outbox.about(["i-1/0", "i-2/0", "i-3/0"])
    assert set(found) == {"i-1/0", "i-2/0"} and found["i-1/0"][0].message_id == "<search@x>"
    assert post.outbox.waiting_for("watch-") == {("search", "mail", "a@x")}
    # What it is about is forgotten after a while; that it was sent is not.
    post.at += 100 * 86400.0
    assert post.queue("search", "a@x", week="watch-2", about=("i-4/0",)) == 1
    assert set(post.outbox.about(["i-1/0", "i-4/0"])) == {"i-4/0"}
    assert post.outbox.known("watch-1") == {("search", "mail", "a@x")}


def test_a_secret_that_cannot_be_read_holds_up_its_own_channel_alone(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text("https://hooks.example.org/services/T0/SECRET")
    hook.chmod(0o644)
    settings = ReportSettings(sender=Address("", addr_spec="gpus@example.org"), smtp_host="127.0.0.1")
    teams = [TeamRoute("search", ("a@example.org",), str(hook))]
    carriers, faults = available_carriers(settings, teams, {})
    assert set(carriers) == {"mail", "webhook"} and "readable by other users" in str(faults[0])
    hook.chmod(0o600)
    assert available_carriers(settings, teams, {})[1] == ()
