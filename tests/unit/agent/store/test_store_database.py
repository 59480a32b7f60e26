"""A database is born, one of another version is set aside, and a foreign file is not touched."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.agent.model import Node, ServingSample, Tick
from skuwise.agent.store.database import APPLICATION_ID, SCHEMA_VERSION, kind_of, set_database_aside
from skuwise.agent.store.disk_errors import MARK_SUFFIX, mark_damaged
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.slurm_rows import known_jobs
from skuwise.agent.store.snapshot import take_snapshot
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.stored_rows import put_ticks, rows

NOW = 1_790_000_000.0


def pragma(path: Path, name: str) -> object:
    return rows(path, f"PRAGMA {name}")[0][0]


def make(path: Path, version: int | None = None, ticks: int = 1) -> None:
    with Writer.open(path) as writer:
        put_ticks(writer.for_node(Node("n1"), NOW), (Tick(NOW + number, 1.0) for number in range(1, ticks + 1)))
    if version is not None:
        change(path, f"PRAGMA user_version = {version}")


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def test_a_new_or_empty_file_becomes_a_database(path: Path) -> None:
    path.with_name("empty.db").touch()
    for file in (path, path.with_name("empty.db")):
        make(file)
        values = [pragma(file, name) for name in ("application_id", "user_version", "journal_mode", "auto_vacuum")]
        assert (values, kind_of(file)) == ([APPLICATION_ID, SCHEMA_VERSION, "wal", 2], "ours")


@pytest.mark.parametrize(
    "create",
    [
        lambda path: path.write_bytes(b"\x7fELF" * 1000),
        lambda path: path.write_bytes(b"\x7fELF"),
        lambda path: change(path, "CREATE TABLE node (id INTEGER)"),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
    ],
    ids=["garbage", "short", "foreign", "pipe", "device"],
)
def test_what_is_not_ours_is_refused_at_once_and_left_as_it_is(path: Path, create) -> None:
    create(path)
    before = path.read_bytes() if path.is_file() else b""
    for attempt in (open_reader, Writer.open):
        with pytest.raises(StoreError, match=r"not an SQLite database.*untouched") as caught:
            attempt(path)
        assert caught.value.remedy
    assert not path.is_file() or path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("where", [slice(100, 4096), slice(4096, None), slice(0, 4096), None], ids=str)
def test_a_damaged_or_marked_database_is_set_aside_and_a_new_one_begun(path: Path, where: slice | None) -> None:
    make(path)
    content = bytearray(path.read_bytes())
    if where is None:
        mark_damaged(path, "met while it was written")
    else:
        content[where] = b"\xff" * len(content[where])
        path.write_bytes(content)
    if where == slice(0, 4096):  # without its header it is known by its log
        path.with_name("node.db-wal").touch()
    with Writer.open(path, now=lambda: NOW) as writer:
        assert writer.set_aside is not None and ".recover" in writer.set_aside.remedy
        kept = writer.set_aside.kept_as
        writer.for_node(Node("n1"), NOW + 50)
    assert (kept.name, kept.read_bytes()) == ("node.db.damaged-20260921T141320Z", content)
    assert pragma(path, "integrity_check") == "ok"
    assert rows(path, "SELECT reason, since FROM absences") == [("damaged-database-set-aside", NOW + 50)]
    assert not path.with_name(path.name + MARK_SUFFIX).exists()


@pytest.mark.parametrize(("version", "which"), [(2001, "newer"), (1006, "older"), (7, "older")])
def test_another_version_is_refused_by_readers_and_set_aside_by_the_agent(path: Path, version: int, which: str) -> None:
    make(path, version)
    for refuse in (open_reader, known_jobs, lambda path: take_snapshot(path, path.with_name("copy.db"), now=NOW)):
        with pytest.raises(StoreError, match=rf"skuwise .schema {version // 1000}\.{version % 1000}"):
            refuse(path)
    with Writer.open(path, now=lambda: NOW) as writer:
        assert writer.set_aside is not None
        kept = writer.set_aside.kept_as
        writer.for_node(Node("n1"), NOW + 50)
    assert kept.name == f"node.db.{which}-{version}-20260921T141320Z"
    assert pragma(kept, "user_version") == version and pragma(path, "user_version") == SCHEMA_VERSION
    assert [rows(file, "SELECT count(*) FROM tick") for file in (kept, path)] == [[(1,)], [(0,)]]
    noted = (f"{which}-database-set-aside", NOW + 50, NOW + 50)
    assert rows(path, "SELECT reason, since, until FROM absences") == [noted]


def test_a_newer_minor_is_written_as_it_is(path: Path) -> None:
    make(path, SCHEMA_VERSION + 1)
    change(path, "ALTER TABLE node ADD COLUMN added TEXT; UPDATE node SET added = 'kept'")
    with Writer.open(path) as writer:
        writer.for_node(Node("n1", cluster="c2"), NOW + 9)
    assert pragma(path, "user_version") == SCHEMA_VERSION + 1
    assert rows(path, "SELECT cluster, added FROM node") == [("c2", "kept")]


def test_a_file_of_the_minor_before_is_read_as_it_is_and_the_agent_adds_what_it_lacks(path: Path) -> None:
    with Writer.open(path) as writer:
        writer.for_node(Node("n1"), NOW).add_serving(ServingSample(NOW, 1.0, "e", "vllm", {"requests_waiting": 2}))
    views = "SELECT name, sql FROM sqlite_master WHERE type = 'view' ORDER BY name"
    shipped, query = rows(path, views), "SELECT requests_waiting, requests_per_second FROM serving_samples"
    added = ",\n    s.requests_per_second * 1e-03 AS requests_per_second"
    older = str(dict(shipped)["serving_samples"]).replace(added, "")
    drop = "DROP VIEW serving_samples; ALTER TABLE serving_sample DROP COLUMN requests_per_second"
    change(path, f"{drop}; {older}; PRAGMA user_version = 1007")
    copy = take_snapshot(path, path.with_name("copy.db"), rollups_only=True, now=NOW)
    with open_reader(path) as reader:
        assert (pragma(path, "user_version"), pragma(copy, "user_version")) == (1007, 1007)
        assert reader.fetch(query) == [(2.0, None)]
        with Writer.open(path) as writer:
            more = ServingSample(NOW + 1, 1.0, "e", "vllm", {"requests_per_second": 1.5})
            writer.for_node(Node("n1"), NOW + 1).add_serving(more)
            assert writer.set_aside is None
        assert len(reader.fetch(query)) == 2
    assert (pragma(path, "user_version"), rows(path, views)) == (SCHEMA_VERSION, shipped)
    assert rows(path, query) == [(2.0, None), (None, 1.5)]


def test_what_is_set_aside_never_replaces_a_file(path: Path) -> None:
    kept = []
    for content in ("one", "two"):
        path.write_text(content)
        path.with_name("node.db-wal").write_text(f"{content} log")
        kept.append(set_database_aside(path, "a test", "broken", NOW).kept_as)
    assert [p.read_text() for p in kept] == ["one", "two"] and not path.exists()
    assert [p.with_name(p.name + "-wal").read_text() for p in kept] == ["one log", "two log"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_database_is_not_readable_by_everybody(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Writer.open(path) as writer:
            writer.for_node(Node("n1"), NOW)
            writer.commit()
            modes = [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]
    finally:
        os.umask(before)
    assert modes == [0o640 & ~umask] * 3


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_taken_away_is_said_not_written_on(path: Path, replaced: bool) -> None:
    with pytest.raises(StoreError, match="removed or replaced"), Writer.open(path) as writer:
        node = writer.for_node(Node("n1"), NOW)
        node.add_tick(Tick(NOW + 1, 1.0))
        path.rename(path.with_name("taken.db"))
        if replaced:
            path.write_bytes(b"somebody else's")
        node.add_tick(Tick(NOW + 2, 1.0))
    assert path.exists() is replaced and (not replaced or path.read_bytes() == b"somebody else's")


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT 'n' || x AS node FROM n"
MANY = " CROSS JOIN ".join(f"tick AS t{i}" for i in range(9))


@pytest.mark.parametrize(
    "view", [ENDLESS, "SELECT * FROM nodes", "SELECT other.x AS node FROM other"], ids=["endless", "circle", "missing"]
)
def test_views_that_are_not_ours_are_never_asked(path: Path, view: str) -> None:
    make(path, ticks=12)
    change(path, f"DROP VIEW nodes; CREATE VIEW nodes AS {view}; CREATE VIEW own AS SELECT 1 AS node")
    with open_reader(path) as reader:
        assert reader.fetch("SELECT node FROM nodes") == [("n1",)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (ENDLESS + " LIMIT 3", "not authorized"),
        ("SELECT printf('%.*c', 900000, 'x')", "not authorized to use function"),
        (f"SELECT t0.ts FROM {MANY}", "more rows than its size"),
        (f"SELECT sum(t0.ts) FROM {MANY}", "takes too long"),
        ("SELECT node FROM nodes", "too big"),
    ],
    ids=["recursion", "function", "rows", "time", "cell"],
)
def test_a_reading_costs_no_more_than_the_file_is_worth(path: Path, sql: str, said: str) -> None:
    make(path, ticks=12)
    change(path, "UPDATE node SET node = replace(hex(zeroblob(200000)), '0', 'n')")
    with open_reader(path) as reader, pytest.raises(StoreError, match=said):
        if "long" in said:
            reader.seconds_left = 0.0
        reader.fetch(sql)


@pytest.mark.parametrize(
    "instead",
    [
        "CREATE VIEW meta AS SELECT 1 AS key",
        "",
        "CREATE TABLE meta (key TEXT, value AS (hex(key)))",
        "CREATE VIRTUAL TABLE meta USING fts4(key, value)",
    ],
    ids=["view", "missing", "computed", "virtual"],
)
def test_tables_that_are_not_ours_are_not_read(path: Path, instead: str) -> None:
    make(path)
    change(path, f"DROP TABLE meta; {instead}")
    with pytest.raises(StoreError, match="no table 'meta'"):
        open_reader(path)
