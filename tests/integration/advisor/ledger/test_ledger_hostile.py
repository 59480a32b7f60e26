"""A ledger and an outbox that somebody else could write to: their places, their form, their cells, and a full disk."""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.state.entries import LedgerEvent
from skuwise.advisor.state.ledger import LedgerSync
from skuwise.advisor.state.ledger_file import DamagedLedgerError, Ledger
from skuwise.advisor.state.outbox import DamagedError as DamagedOutboxError
from skuwise.advisor.state.paths import one_at_a_time
from skuwise.rules.base.errors import SkuwiseError, StoreError
from skuwise.tests.support.ledger_builders import one_node_fleet, proposal
from skuwise.tests.support.outbox_builders import NOW, Post

MOVE, FLEET = proposal(), one_node_fleet(NOW)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "ledger.db", busy_seconds=0.05)
    found.propose([MOVE], NOW, fleet=FLEET)
    found.note_mailed("team a", [MOVE.id], NOW)
    return found


@pytest.fixture
def post(tmp_path: Path) -> Post:
    found = Post(tmp_path)
    for team in ("ads", "search"):
        found.queue(team, f"{team}@example.org")
    return found


def test_a_lock_that_is_a_link_costs_its_target_nothing(tmp_path: Path, post: Post) -> None:
    target = tmp_path / "precious"
    target.write_text("all that I have")
    (tmp_path / "outbox.db.lock").symlink_to(target)
    with pytest.raises(StoreError, match=r"its lock file outbox\.db\.lock is a link"), post.outbox.sending():
        pass
    home = tmp_path / "state" / "ledgers"
    home.mkdir(parents=True)
    (home / ".lock").symlink_to(target)
    with pytest.raises(StoreError, match="is a link"), one_at_a_time(home):
        pass
    assert target.read_text() == "all that I have"


def test_no_link_in_an_open_folder_is_followed(tmp_path: Path, ledger: Ledger) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "ledger.db").symlink_to(ledger.path)
    for call in (Ledger(folder / "ledger.db").entries, lambda: Ledger(folder / "ledger.db").propose([MOVE], NOW)):
        with pytest.raises(StoreError, match="a link that another user may have made"):
            call()
    # In one's own folder it is one's own link.
    (tmp_path / "mine.db").symlink_to(ledger.path)
    assert len(Ledger(tmp_path / "mine.db").entries()) == 1


def test_what_a_killed_process_left_half_written_is_undone(tmp_path: Path, ledger: Ledger) -> None:
    killed = tmp_path / "killed.db"
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.execute("CREATE TABLE more (a)")
        db.executemany("INSERT INTO more VALUES (?)", [("x" * 3000,)] * 50)
        shutil.copy(ledger.path, killed)
        shutil.copy(f"{ledger.path}-journal", f"{killed}-journal")
    (entry,) = Ledger(killed).entries()
    assert entry.proposal == MOVE
    with closing(sqlite3.connect(killed)) as db:
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'more'").fetchall()


FORMS = [
    ("CREATE TRIGGER mine AFTER INSERT ON {t} BEGIN DELETE FROM {t}; END", "trigger mine"),
    ("CREATE INDEX mine ON {t}(abs({c}))", "mine is not a plain index"),
    ("CREATE VIEW mine AS SELECT 1", "view mine"),
    ("ALTER TABLE {t} ADD COLUMN mine TEXT CHECK (length(mine) > 5)", "{t} is not a plain table"),
    ("DROP TABLE {t}", "no table {t}"),
    ("CREATE VIRTUAL TABLE mine USING fts5(a)", "mine is not a plain table"),
]


@pytest.mark.parametrize(("sql", "said"), FORMS)
def test_a_form_that_is_none_of_ours_is_refused_by_its_name(ledger: Ledger, post: Post, sql: str, said: str) -> None:
    for path, table, column, calls in (
        (
            ledger.path, "events", "act",
            (ledger.entries, lambda: ledger.propose([MOVE], NOW),
             lambda: ledger.add(MOVE.id, LedgerEvent("done", 1, "a"))),
        ),
        (post.outbox.path, "deliveries", "state", (post.outbox.waiting, post.send)),
    ):  # fmt: skip
        with closing(sqlite3.connect(path)) as db:
            db.executescript(sql.format(t=table, c=column))
        before = path.read_bytes()
        for call in calls:
            with pytest.raises(
                (DamagedLedgerError, DamagedOutboxError), match=said.format(t=table, c=column)
            ) as refused:
                call()
            assert refused.value.remedy
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("events.figures", '\'{"realised":{"since":1e300}}\''), ("events.figures", '\'{"realised":{"since":1e999}}\''),
        ("events.figures", f"'{'[' * 100_000}'"), ("events.figures", "''"), ("events.figures", "'[]'"),
        ("events.figures", "'{\"realised\": 3}'"), ("events.figures", "'{\"realised\": {}}'"),
        ("events.figures", f"'{{\"x\":{'9' * 5000}}}'"), ("events.recommendation", "NULL"),
        ("recommendations.blocked", "7"), ("mailed.at", "'x'"), ("fleets.last_seen", "-9e999"),
        ("fleet_members.node", "x'00'"),
    ],
)  # fmt: skip
def test_a_cell_of_the_ledger_that_we_never_wrote_is_told_by_every_command(
    ledger: Ledger, capsys: pytest.CaptureFixture[str], column: str, value: str
) -> None:
    table, name = column.split(".")
    with closing(sqlite3.connect(ledger.path)) as db, db:
        db.execute("DROP TRIGGER events_are_not_changed")
        db.execute("CREATE TABLE copy AS SELECT * FROM events")  # NOT NULL is what the file says, not what it holds
        if value == "NULL":
            db.execute("DROP TABLE events")
            db.execute("ALTER TABLE copy RENAME TO events")
        else:
            db.execute("DROP TABLE copy")
        db.execute(f"UPDATE {table} SET {name} = {value}")
    for arguments in (["list"], ["list", "--format", "json"], ["show", MOVE.id], ["accept", MOVE.id]):
        status = main(["ledger", *arguments, "--ledger", str(ledger.path)])
        told = capsys.readouterr().err
        assert status == (0 if table == "mailed" else 1) and "unexpected" not in told
    with pytest.raises(DamagedLedgerError):
        ledger.mailed_since(
            "team a", 0.0
        ) if table == "mailed" else ledger.fleets() if "fleet" in table else ledger.entries()


def _full(path: Path, limit: int, tell: multiprocessing.Queue[object]) -> None:
    """In a process of its own: files that may not grow beyond `limit` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        Ledger(path).propose([replace(MOVE, id=f"r-{n}", text="x" * 2000) for n in range(99)], NOW)
        tell.put("")
    except SkuwiseError as error:
        tell.put(str(error))


def test_on_a_full_disk_the_ledger_stays_as_it_was(ledger: Ledger) -> None:
    before = ledger.entries()
    spawn = multiprocessing.get_context("spawn")
    tell = spawn.Queue()
    child = spawn.Process(target=_full, args=(ledger.path, ledger.path.stat().st_size, tell))
    child.start()
    assert "Check the disk" in tell.get(timeout=60)
    child.join(60)
    assert ledger.entries() == before


def _advise(home: Path, who: str, tell: multiprocessing.Queue[object]) -> None:
    said: list[str] = []
    try:
        for n in range(6):
            beside = LedgerSync(None, False, said.append, home).of(FLEET)
            ledger = beside.written()
            ledger.propose([MOVE, replace(MOVE, id=f"r-{who}-{n}")], NOW + n, fleet=FLEET)
            beside.decisions(NOW)
            ledger.add(MOVE.id, LedgerEvent("accepted", NOW + n, who))
    except SkuwiseError as error:
        said.append(str(error))
    tell.put(said)


def test_several_advisors_begin_one_ledger_and_lose_nothing(tmp_path: Path) -> None:
    home, spawn = tmp_path / "state" / "ledgers", multiprocessing.get_context("spawn")
    tell = spawn.Queue()
    names = ("ann", "bob", "eve")
    children = [spawn.Process(target=_advise, args=(home, who, tell)) for who in names]
    for child in children:
        child.start()
    assert [tell.get(timeout=120) for _ in children] == [[], [], []]
    for child in children:
        child.join(60)
    (path,) = home.glob("*.db")
    entries = {entry.proposal.id: entry for entry in Ledger(path).entries()}
    assert len(entries) == 1 + 3 * 6
    assert all([e.act for e in entry.events].count("proposed") == 1 for entry in entries.values())
    assert [sum(e.by == who for e in entries[MOVE.id].events) for who in names] == [6, 6, 6]
