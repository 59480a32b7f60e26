"""A file of incidents that somebody else could write to: its place, its form and its cells."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.incidents.store import IncidentStore
from skuwise.rules.base.errors import StoreError
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
        ("ALTER TABLE incidents ADD COLUMN mine AS (zeroblob(1000000000))", "incidents is not a plain table"),
        ("DROP TABLE events", "no table events"),
        ("PRAGMA user_version = 2000", "written by a newer skuwise"),
        ("PRAGMA application_id = 7", "not an incidents file; it was not changed"),
    ],
)
def test_a_form_that_is_none_of_ours_is_refused(store: IncidentStore, sql: str, said: str) -> None:
    with closing(sqlite3.connect(store.path)) as db:
        db.executescript(sql)
    refused(store, said)


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


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("incidents.state", "'gone'"),
        ("incidents.opened_at", "9e999"),
        ("incidents.gpu_hours", "-1.0"),
        ("incidents.acknowledged_by", "CAST(x'ff' AS TEXT)"),
        ("incidents.sighting", "'{}'"),
        ("incidents.sighting", f"'{'[' * 100_000}'"),
        ("incidents.sighting", "json_set(sighting, '$.since', 1e300)"),
        ("incidents.sighting", "replace(hex(zeroblob(4000000)), '00', 'x')"),
        ("events.kind", "'shouted'"),
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
