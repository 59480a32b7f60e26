"""A database is born, grows in whole steps, and nobody else's file is touched."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.agent.model import Node, Tick
from skuwise.agent.store.file.codec import MEASURES
from skuwise.agent.store.file.integrity import check_whole, mark_of
from skuwise.agent.store.file.migrations import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    Migration,
    migrations,
    open_for_writing,
    read_header,
    set_database_aside,
    split_statements,
)
from skuwise.agent.store.reading import queries
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.snapshot import take_snapshot
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import StoreError

NOW = 1_790_000_000.0


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


def make(path: Path, version: int | None = None) -> None:
    with Writer.open(path) as writer:
        writer.for_node(Node("n1"), NOW).add_tick(Tick(NOW + 1, 1.0))
    if version is not None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("empty_file", [True, False])
def test_a_new_or_empty_file_becomes_a_database(tmp_path: Path, empty_file: bool) -> None:
    path = tmp_path / "new.db"
    if empty_file:
        path.touch()
    make(path)
    assert pragma(path, "application_id") == APPLICATION_ID
    assert pragma(path, "user_version") == SCHEMA_VERSION
    assert pragma(path, "journal_mode") == "wal"
    assert pragma(path, "auto_vacuum") == 2
    assert read_header(path).ours


def test_a_new_database_is_never_born_in_a_file_that_somebody_laid_ready(tmp_path: Path) -> None:
    path, theirs = tmp_path / "new.db", tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / f".new.db.new-{os.getpid()}-{threading.get_native_id()}").hardlink_to(theirs)
    make(path)
    assert theirs.read_text() == "theirs" and not path.samefile(theirs)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new.db", "theirs"]


@pytest.mark.parametrize("kind", ["garbage", "short", "foreign"])
def test_what_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "other.db"
    if kind == "foreign":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE node (id INTEGER)")
            connection.commit()
    else:
        path.write_bytes(b"\x7fELF" * (1000 if kind == "garbage" else 1))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="untouched") as caught:
        Writer.open(path)
    assert caught.value.remedy
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["other.db"]


@pytest.mark.parametrize("where", [slice(100, 4096), slice(4096, None), slice(12288, None)], ids=str)
def test_a_damaged_database_is_set_aside_and_a_new_one_begun(tmp_path: Path, where: slice) -> None:
    path = tmp_path / "node.db"
    make(path)
    content = bytearray(path.read_bytes())
    content[where] = b"\xff" * len(content[where])
    path.write_bytes(content)
    with Writer.open(path, now=lambda: NOW) as writer:
        assert writer.set_aside is not None
        kept = writer.set_aside.kept_as
        writer.for_node(Node("n1"), NOW + 50)
    assert kept.name == "node.db.damaged-20260921T141320Z"
    assert kept.read_bytes() == content
    assert ".recover" in writer.set_aside.remedy
    assert pragma(path, "integrity_check") == "ok"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT reason, since FROM absences").fetchall() == [
            ("damaged-database-set-aside", NOW + 50)
        ]


def test_a_database_whose_header_is_gone_is_known_by_its_log(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with Writer.open(path) as writer:
        writer.for_node(Node("n1"), NOW).add_tick(Tick(NOW + 1, 1.0))
        writer.commit()
        log = path.with_name("node.db-wal").read_bytes()
    path.write_bytes(bytes(4096))
    path.with_name("node.db-wal").write_bytes(log)
    with Writer.open(path) as writer:
        assert writer.set_aside is not None
        assert writer.set_aside.kept_as.with_name(writer.set_aside.kept_as.name + "-wal").read_bytes() == log


def test_damage_that_only_a_look_at_the_whole_file_finds_is_marked_and_then_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with Writer.open(path) as writer:
        writer.for_node(Node("n1"), NOW).put_ticks(Tick(NOW + i, 1.0) for i in range(20_000))
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8192] = b"\xff" * 8192
    path.write_bytes(content)
    writer = Writer.open(path)
    assert writer.set_aside is None
    with pytest.raises(StoreError, match="damaged"):
        check_whole(path)
    with pytest.raises(StoreError, match="Start the agent again"):
        writer.close()
    with Writer.open(path) as writer:
        assert writer.set_aside is not None
        assert writer.set_aside.reason == "damaged-database-set-aside"
    check_whole(path)
    assert not mark_of(path).exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        Writer.open(tmp_path / "missing" / "node.db")
    assert "folder" in caught.value.remedy


def test_a_newer_major_is_set_aside_and_a_new_file_begun(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    make(path, 2001)
    with Writer.open(path, now=lambda: NOW) as writer:
        assert writer.set_aside is not None
        kept = writer.set_aside.kept_as
        writer.for_node(Node("n1"), NOW + 50)
    assert kept.name == "node.db.newer-2001-20260921T141320Z"
    assert pragma(kept, "user_version") == 2001
    with closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("SELECT count(*) FROM tick").fetchone() == (1,)
    assert pragma(path, "user_version") == SCHEMA_VERSION
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM tick").fetchone() == (0,)
        assert connection.execute("SELECT reason, since, until FROM absences").fetchall() == [
            ("newer-database-set-aside", NOW + 50, NOW + 50)
        ]


def test_a_newer_minor_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    make(path, SCHEMA_VERSION + 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE node ADD COLUMN added TEXT")
        connection.execute("UPDATE node SET added = 'kept'")
        connection.commit()
    with Writer.open(path) as writer:
        writer.for_node(Node("n1", cluster="c2"), NOW + 9)
    assert pragma(path, "user_version") == SCHEMA_VERSION + 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT cluster, added FROM node").fetchall() == [("c2", "kept")]


def test_what_is_set_aside_never_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    kept = []
    for content in ("one", "two"):
        path.write_text(content)
        path.with_name("a.db-wal").write_text(f"{content} log")
        kept.append(set_database_aside(path, "a test", "broken", NOW).kept_as)
    assert [p.read_text() for p in kept] == ["one", "two"]
    assert [p.with_name(p.name + "-wal").read_text() for p in kept] == ["one log", "two log"]
    assert not path.exists()


def test_a_failing_step_leaves_the_version_before_it(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    good = Migration(SCHEMA_VERSION + 1, "good", "CREATE TABLE added (a);")
    bad = Migration(
        SCHEMA_VERSION + 2, "bad", "CREATE TABLE half (a);\nINSERT INTO half VALUES (1);\nINSERT INTO no VALUES (1);"
    )
    open_for_writing(path, lambda: NOW)[0].close()
    with pytest.raises(StoreError):
        open_for_writing(path, lambda: NOW, (*migrations(), good, bad))
    assert pragma(path, "user_version") == SCHEMA_VERSION + 1
    with closing(sqlite3.connect(path)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "added" in names
    assert "half" not in names
    repaired = Migration(SCHEMA_VERSION + 2, "bad", "CREATE TABLE half (a);")
    connection, aside = open_for_writing(path, lambda: NOW, (*migrations(), good, repaired))
    connection.close()
    assert aside is None
    assert pragma(path, "user_version") == SCHEMA_VERSION + 2


def test_a_creation_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with pytest.raises(StoreError):
        open_for_writing(path, lambda: NOW, (Migration(1000, "bad", "CREATE TABLE x (a); SELECT nonsense;"),))
    assert pragma(path, "user_version") == 0
    make(path)
    assert pragma(path, "user_version") == SCHEMA_VERSION


def test_scripts_are_split_where_statements_end() -> None:
    script = "-- a; comment\nCREATE TABLE a (x TEXT DEFAULT ';'); -- end\n\nCREATE VIEW b AS\n  SELECT 1;\nSELECT 2"
    parts = [part.strip() for part in split_statements(script)]
    assert [part.split()[0] for part in parts] == ["CREATE", "CREATE", "SELECT"]
    assert len(list(split_statements(migrations()[0].sql))) > 20


def make_1001(path: Path, seed: int) -> None:
    """A file as schema 1.1 left it: two hours of rollups with values that differ in every way rollups can."""
    connection, _ = open_for_writing(path, lambda: NOW, migrations()[:2])
    connection.execute("INSERT INTO node (id, node, first_seen, last_seen) VALUES (1, 'n1', ?, ?)", (NOW, NOW))
    connection.execute(
        "INSERT INTO gpu (id, node_id, gpu_uuid, gpu_index, name, valid_from) VALUES (1, 1, 'GPU-0', 0, 'x', 0)"
    )
    connection.execute(
        "INSERT INTO port (id, node_id, device, port, role, link_layer, valid_from) VALUES (2, 1, 'p', 1, '', '', 0)"
    )
    rng = random.Random(seed)
    for table, seconds in (("minute", 60), ("hour", 3600)):
        for kind, device in (("gpu", 1), ("fabric", 2), ("host", 1)):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({kind}_{table})").fetchall()]
            for number in range(1, 4):
                values: dict[str, object] = {names[0]: NOW // 3600 * 3600 + number * seconds, names[1]: device}
                for name in names[2:]:
                    measure, _, what = name.rpartition("_")
                    if name.endswith("_bins"):
                        values[name] = json.dumps([rng.choice((0, 0, 12, 7.5)) for _ in range(28)])
                    elif what in ("mean", "max", "p95", "n"):
                        missing = rng.random() < 0.2 if what == "mean" else values[f"{measure}_mean"] is None
                        count = 0 if missing else rng.choice((seconds, seconds, 6))
                        values[name] = count if what == "n" else None if missing else rng.randrange(10**6)
                    else:
                        values[name] = rng.choice((None, 0, 500)) if name != "observed_seconds" else seconds * 10 - 7
                marks = ", ".join("?" * len(values))
                connection.execute(
                    f"INSERT INTO {kind}_{table} ({', '.join(values)}) VALUES ({marks})", list(values.values())
                )
    connection.close()


@pytest.mark.parametrize("view", [f"{kind}_{period}s" for kind in MEASURES for period in ("minute", "hour")])
def test_rollups_of_schema_1_1_are_converted_in_place(tmp_path: Path, view: str, seed_of: Callable[[int], int]) -> None:
    path = tmp_path / "node.db"
    make_1001(path, seed_of(7))
    told: list[list[sqlite3.Row]] = []
    for _ in range(2):
        with closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            told.append(connection.execute(f"SELECT * FROM {view} ORDER BY ts").fetchall())
        open_for_writing(path, lambda: NOW)[0].close()
    assert pragma(path, "user_version") == SCHEMA_VERSION
    before, after = told
    assert len(before) == len(after) == 3
    kind = view.partition("_")[0]
    measures = {measure.name: measure for measure in MEASURES[kind]}
    for old, new in zip(before, after, strict=True):
        assert set(old.keys()) <= set(new.keys())
        for name in old.keys():  # noqa: SIM118 - a row is no mapping
            measure, _, what = name.rpartition("_")
            if old[name] is None:
                assert new[name] is None, name
            elif name.endswith("_bins"):
                assert json.loads(new[name]) == json.loads(old[name])
            elif measure in measures and what in ("mean", "max", "p95"):
                steps = 0.51 if what == "mean" else measures[measure].spread + 0.51
                assert new[name] == pytest.approx(old[name], rel=0, abs=steps / measures[measure].steps), name
            elif isinstance(old[name], str):
                assert new[name] == old[name], name
            else:
                assert new[name] == pytest.approx(old[name], rel=0, abs=0.0051), name


def test_a_file_of_schema_1_1_is_read_as_it_is_and_its_snapshot_is_of_today(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    make_1001(path, 7)
    with open_reader(path) as reader:
        spans = [reader.fetch(sql)[0] for sql in queries.data_spans(reader.version)]
        begin = reader.fetch(queries.minutes_begin(reader.version))
        assert reader.version == 1001
    copy = take_snapshot(path, tmp_path / "copy.db", rollups_only=True, now=NOW)
    assert pragma(path, "user_version") == 1001
    with open_reader(copy) as reader:
        assert reader.version == SCHEMA_VERSION
        assert [reader.fetch(sql)[0] for sql in queries.data_spans(reader.version)] == spans
        assert reader.fetch(queries.minutes_begin(reader.version)) == begin
        assert spans[0] == (NOW // 3600 * 3600, NOW // 3600 * 3600 + 3 * 3600)
