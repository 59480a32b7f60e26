"""The state file: what it is opened as, what is refused, and that what failed half way leaves nothing."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.state.file import DamagedStateError, State, from_json, load_state_settings, state_folder, to_json
from skuwise.rules.base.errors import SkuwiseError, StoreError, UsageError


def put(state: State, recipient: str) -> None:
    with state.writing() as db:
        db.execute("INSERT INTO told (recipient, recommendation, at, decision) VALUES (?, 'r-1', 1.0, 0)", [recipient])


def recipients(state: State) -> list[str]:
    with state.reading() as db:
        return [row["recipient"] for row in db.table("told").rows_where(order_by="seq")]


def of_version(version: int) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version = {version}")

    return spoil


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(tmp_path / "deep" / "fleet.db", busy_seconds=0.05)
    put(made, "ann")
    return made


def test_a_file_is_begun_by_the_first_write_for_its_owner_alone(tmp_path: Path) -> None:
    state, empty = State(tmp_path / "new" / "fleet.db"), State(tmp_path / "empty.db")
    empty.path.touch()
    for first in (state, empty):
        assert recipients(first) == [] and not state.path.exists()
    for first in (empty, state):
        put(first, "ann")
        of_version(1007)(first.path)  # a minor version only adds
        assert recipients(first) == ["ann"]
    assert [path.stat().st_mode & 0o777 for path in (state.path, state.path.parent)] == [0o600, 0o700]


def test_what_fails_half_way_leaves_nothing(state: State) -> None:
    with pytest.raises(KeyError), state.writing() as db:
        db.execute("DELETE FROM told")
        raise KeyError
    with pytest.raises(StoreError, match="FOREIGN KEY"), state.writing() as db:
        db.execute("DELETE FROM told")
        db.execute("INSERT INTO decisions (recommendation, act, at, by) VALUES ('r-none', 'done', 1.0, 'ann')")
    assert recipients(state) == ["ann"]


def test_a_reader_goes_on_while_another_process_writes(state: State) -> None:
    with closing(sqlite3.connect(state.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM told")
        assert recipients(state) == ["ann"]
        with pytest.raises(StoreError, match="locked") as refused:
            put(state, "bob")
        assert refused.value.remedy.startswith("Try again")
    put(state, "bob")
    assert recipients(state) == ["ann", "bob"]


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE mine (a)")


@pytest.mark.parametrize(
    ("spoil", "kind", "words", "remedy"),
    [
        (of_version(2003), StoreError, "has version 2.3; this skuwise reads 1.x", "that wrote it"),
        (of_version(3), StoreError, "has version 0.3; this skuwise reads 1.x", "that wrote it"),
        (foreign, DamagedStateError, "is a database, but no state file; it was not changed", "--state"),
        (lambda path: path.write_text("hello " * 999), DamagedStateError, "not a database", "--state"),
        (lambda path: path.write_bytes(path.read_bytes()[:9000]), DamagedStateError, "malformed", ".recover"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), DamagedStateError, "cannot be", "--state"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_untouched(state: State, spoil, kind, words, remedy) -> None:
    with closing(sqlite3.connect(state.path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")  # all of it is in the one file
    spoil(state.path)
    before = state.path.read_bytes()
    for call in (lambda: recipients(state), lambda: put(state, "bob")):
        with pytest.raises(kind, match=words) as refused:
            call()
        assert remedy in refused.value.remedy and state.path.name in refused.value.message
    assert state.path.read_bytes() == before


def test_a_read_only_file_is_read_and_its_write_refused(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = State._connect
    with monkeypatch.context() as patch, pytest.raises(StoreError, match="cannot be written") as refused:
        patch.setattr(State, "_connect", lambda self, _: connect(self, "ro"))  # root too may not write
        put(state, "bob")
    assert "permissions" in refused.value.remedy and "--state" in refused.value.remedy
    monkeypatch.setattr(os, "access", lambda *_: False)  # and no log can be made in its folder
    beside = {path.name for path in state.path.parent.iterdir()}
    assert recipients(state) == ["ann"] and {path.name for path in state.path.parent.iterdir()} == beside


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    for call in (lambda: recipients(State(tmp_path)), lambda: put(State(tmp_path / "a.db" / "b"), "ann")):
        with pytest.raises(StoreError, match="cannot be"):
            call()


def test_one_sender_at_a_time_and_a_watch_beside_it(state: State) -> None:
    refused = pytest.raises(SkuwiseError, match=r"Another sender already uses .*fleet\.db")
    with state.alone("Another sender"):
        with refused, state.alone("Another sender"):
            pass
        with state.alone("Another watch", lock="watch"):
            put(state, "bob")
    with state.alone("Another sender"):
        assert recipients(state) == ["ann", "bob"]


@dataclass(frozen=True, slots=True)
class Kept:
    name: str
    value: float | None
    pair: tuple[int, int] = (1, 2)


def test_a_value_comes_back_as_it_was_but_for_what_is_no_number() -> None:
    for value in (Kept("n1", 0.5), Kept("n\udcff", None, (3, 4)), Kept("\\udcff", None)):
        assert from_json(Kept, to_json(value)) == value
    assert from_json(Kept, to_json(Kept("n1", float("nan")))) == Kept("n1", None)
    assert from_json(Kept, to_json(Kept("n1", np.float32(0.5), (np.int64(3), 4)))) == Kept("n1", 0.5, (3, 4))  # type: ignore[arg-type]
    for text in ("", "[]", '{"name": 3}', '{"name": "n1"}'):
        with pytest.raises(sqlite3.DataError, match="not a Kept"):
            from_json(Kept, text)


def test_where_it_lies_follows_the_environment(tmp_path: Path) -> None:
    assert state_folder({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/skuwise")
    assert state_folder({"XDG_STATE_HOME": "s", "HOME": "/h"}) == Path("/h/.local/state/skuwise")
    assert state_folder({}) is None
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "SKUWISE_STATE_FILE": "/x.db", "SKUWISE_STATE_KEEP_CARDS": "90d"}
    settings = load_state_settings(environ)
    assert (settings.file, settings.keep_cards_seconds) == (Path("/x.db"), 90 * 86400.0)
    with pytest.raises(UsageError, match="folder"):
        load_state_settings({**environ, "SKUWISE_STATE_FOLDER": "/x"})
