"""A file of incidents that somebody else could write to: its place, its form and its cells, and a disk that is full."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.incidents.store import DamagedIncidentsError, IncidentStore
from skuwise.advisor.incidents.transitions import Advance
from skuwise.rules.base.errors import SkuwiseError, StoreError
from skuwise.tests.support.incident_builders import NOW, opened, sighting


@pytest.fixture
def store(tmp_path: Path) -> IncidentStore:
    made = IncidentStore(tmp_path / "incidents.db")
    done = opened(sighting("a"), sighting("b"))
    made.commit(done)
    made.note_queued("x", done.events, "mail:ann", NOW)
    return made


def calls(store: IncidentStore) -> tuple[Callable[[], object], ...]:
    return (
        store.current, store.listed, store.untold, lambda: store.commit(opened(sighting("c"))),
        lambda: store.acknowledge("a", "ann", NOW), lambda: store.watching().__enter__(),
    )  # fmt: skip


def refused(store: IncidentStore, said: str) -> None:
    before = store.path.read_bytes()
    for call in calls(store):
        with pytest.raises(StoreError, match=said) as error:
            call()
        assert error.value.remedy and str(error.value).isprintable()
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("CREATE TRIGGER mine AFTER INSERT ON events BEGIN DELETE FROM events; END", "trigger mine"),
        ("CREATE INDEX mine ON events(abs(number))", "mine is not a plain index"),
        ("CREATE VIEW mine AS SELECT 1", "view mine"),
        ("ALTER TABLE incidents ADD COLUMN mine AS (zeroblob(1000000000))", "incidents is not a plain table"),
        ("DROP TABLE queued; CREATE VIEW queued AS SELECT 1 AS incident", "view queued"),
        ("DROP TABLE events", "no table events"),
        ("ALTER TABLE incidents RENAME COLUMN sighting TO mine", "incidents has no column sighting"),
        ("PRAGMA user_version = 2000", "written by a newer skuwise"),
        ("PRAGMA application_id = 7", "not an incidents file; it was not changed"),
    ],
)
def test_a_form_that_is_none_of_ours_is_refused(store: IncidentStore, sql: str, said: str) -> None:
    with closing(sqlite3.connect(store.path)) as db:
        db.executescript(sql)
    refused(store, said)


def test_what_a_newer_minor_version_adds_is_no_damage(store: IncidentStore) -> None:
    with closing(sqlite3.connect(store.path)) as db:
        db.executescript(
            "ALTER TABLE incidents ADD COLUMN colour TEXT; CREATE TABLE things (id INTEGER PRIMARY KEY); "
            "PRAGMA user_version = 1900"
        )
    store.commit(opened(sighting("c")))
    assert len(store.current()) == 3


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 4080])
def test_a_file_that_is_no_database_is_refused_and_an_empty_one_begun(tmp_path: Path, content: bytes) -> None:
    store = IncidentStore(tmp_path / "incidents.db")
    store.path.write_bytes(content)
    if content:
        refused(store, "cannot be used")
    else:
        assert store.current() == ()
        store.commit(opened(sighting()))
        assert len(store.current()) == 1


def test_pages_that_were_damaged_are_found_before_a_watch_begins(store: IncidentStore) -> None:
    store.commit(opened(*(sighting(f"w{n}") for n in range(50))))
    data = bytearray(store.path.read_bytes())
    data[3 * 4096 : 4 * 4096] = b"\x7f" * 4096
    store.path.write_bytes(data)
    with pytest.raises(DamagedIncidentsError), store.watching():
        pass


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("incidents.state", "'gone'"),
        ("incidents.opened_at", "9e999"),
        ("incidents.gpu_hours", "-1.0"),
        ("incidents.acknowledged_by", "CAST(x'ff' AS TEXT)"),
        ("incidents.acknowledged_at", "'soon'"),
        ("incidents.reminders", "1e300"),
        ("incidents.resolution_told", "7"),
        ("incidents.sighting", "'{}'"),
        ("incidents.sighting", f"'{'[' * 100_000}'"),
        ("incidents.sighting", "json_set(sighting, '$.since', 1e300)"),
        ("incidents.sighting", "json_set(sighting, '$.gpu_hours', -5)"),
        ("incidents.sighting", "json_set(sighting, '$.severity', 'deadly')"),
        ("incidents.sighting", "json_set(sighting, '$.subject.gpus', 7)"),
        ("incidents.sighting", "zeroblob(1000)"),
        ("incidents.sighting", "replace(hex(zeroblob(4000000)), '00', 'x')"),
        ("events.kind", "'shouted'"),
        ("events.at", "-5.0"),
        ("clock.lived_seconds", "-1.0"),
    ],
)
def test_a_cell_that_we_never_wrote_is_a_sentence(
    store: IncidentStore, capsys: pytest.CaptureFixture[str], column: str, value: str
) -> None:
    table, name = column.split(".")
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute(f"UPDATE {table} SET {name} = {value} WHERE rowid = 1")
    reading = {"incidents": store.listed, "events": store.untold, "clock": store.current}[table]
    with pytest.raises(StoreError) as error:
        reading()
    assert error.value.remedy and str(error.value).isprintable() and len(str(error.value)) < 400
    for arguments in (["list"], ["list", "--format", "json"], ["show", "a"], ["acknowledge", "a"]):
        status = main(["incidents", *arguments, "--state", str(store.path)])
        told = capsys.readouterr()
        assert status == (1 if table == "incidents" else 0) and "unexpected" not in told.err


def test_no_place_that_another_user_may_write_to_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(StoreError, match="writable by all users"):
        IncidentStore(folder / "incidents.db").commit(opened(sighting()))
    assert not list(folder.iterdir())
    target = tmp_path / "precious"
    target.write_text("all that I have")
    (tmp_path / "incidents.db.lock").symlink_to(target)
    with pytest.raises(StoreError, match="is a link"), IncidentStore(tmp_path / "incidents.db").watching():
        pass
    assert target.read_text() == "all that I have"


@pytest.mark.parametrize("case", ["pipe", "folder", "dangling"])
def test_what_is_no_file_is_not_opened(tmp_path: Path, case: str) -> None:
    path = tmp_path / "incidents.db"
    if case == "pipe":
        os.mkfifo(path)
    elif case == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "none")
    with pytest.raises(SkuwiseError) as error:
        IncidentStore(path).commit(opened(sighting()))
    assert error.value.remedy


def test_what_a_killed_watcher_left_half_written_is_undone_by_a_reader(tmp_path: Path, store: IncidentStore) -> None:
    killed = tmp_path / "killed.db"
    with closing(sqlite3.connect(store.path, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM incidents")
        db.execute("CREATE TABLE more (a)")
        db.executemany("INSERT INTO more VALUES (?)", [("x" * 3000,)] * 50)
        shutil.copy(store.path, killed)
        shutil.copy(f"{store.path}-journal", f"{killed}-journal")
    assert len(IncidentStore(killed).listed()) == 2


def _full(path: Path, tell: multiprocessing.Queue[str]) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        IncidentStore(path).commit(opened(*(sighting(f"w{n}") for n in range(2000))))
    except StoreError as error:
        tell.put(str(error))


def test_a_full_disk_loses_nothing_and_is_told(store: IncidentStore) -> None:
    spawn = multiprocessing.get_context("spawn")
    tell = spawn.Queue()
    child = spawn.Process(target=_full, args=(store.path, tell))
    child.start()
    assert "make room on the disk" in tell.get(timeout=60)
    child.join(60)
    assert len(store.current()) == 2
    store.commit(Advance((), opened(sighting("z")).events))
