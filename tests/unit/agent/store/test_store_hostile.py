"""Files that are not what they seem: removed under the writer, pipes, read by strangers, with views of their own."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.agent.model import Node, Tick
from skuwise.agent.store.reading.bounds import Meter, bounds_of
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import StoreError

START = 1_700_000_000.0


def tick(number: int) -> Tick:
    return Tick(ts=START + number, interval_seconds=1.0, host={"cpu_util": 0.5})


def fill(path: Path, ticks: int = 3) -> None:
    with Writer.open(path) as writer:
        node = writer.for_node(Node("n"), START)
        for number in range(ticks):
            node.add_tick(tick(number))


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_database_is_not_readable_by_everybody(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Writer.open(path) as writer:
            writer.for_node(Node("n"), START)
            writer.commit()
            modes = [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]
    finally:
        os.umask(before)
    assert modes == [0o640 & ~umask] * 3


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_taken_away_is_said_not_written_on(path: Path, replaced: bool) -> None:
    with pytest.raises(StoreError, match="removed or replaced"), Writer.open(path, commit_every=1) as writer:
        node = writer.for_node(Node("n"), START)
        node.add_tick(tick(1))
        path.rename(path.with_name("taken.db"))
        if replaced:
            path.write_bytes(b"somebody else's")
        node.add_tick(tick(2))
    if replaced:
        assert path.read_bytes() == b"somebody else's"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_is_no_file_is_refused_at_once(path: Path, make) -> None:
    make(path)
    for attempt in (open_reader, Writer.open):
        with pytest.raises(StoreError, match="not an SQLite database"):
            attempt(path)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT 'n' || x AS node FROM n"
MANY = " CROSS JOIN ".join(f"tick AS t{i}" for i in range(9))


@pytest.mark.parametrize(
    "view", [ENDLESS, "SELECT * FROM nodes", "SELECT other.x AS node FROM other"], ids=["endless", "circle", "missing"]
)
def test_views_that_are_not_ours_are_never_asked(path: Path, view: str) -> None:
    fill(path, 12)
    change(path, f"DROP VIEW nodes; CREATE VIEW nodes AS {view}; CREATE VIEW own AS SELECT 1 AS node")
    with open_reader(path) as reader:
        assert reader.fetch("SELECT node FROM nodes") == [("n",)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (ENDLESS + " LIMIT 3", "not authorized"),
        ("SELECT printf('%.*c', 900000, 'x')", "not authorized to use function"),
        (f"SELECT t0.ts FROM {MANY}", "more rows than its size"),
        (f"SELECT sum(t0.ts) FROM {MANY}", "longer than 0 s"),
        ("SELECT node FROM nodes", "too big"),
    ],
    ids=["recursion", "function", "rows", "time", "cell"],
)
def test_a_reading_costs_no_more_than_the_file_is_worth(path: Path, sql: str, said: str) -> None:
    fill(path, 12)
    change(path, "UPDATE node SET node = replace(hex(zeroblob(200000)), '0', 'n')")
    with open_reader(path) as reader, pytest.raises(StoreError, match=said):
        if "longer" in said:
            reader.meter = Meter(replace(bounds_of(0), seconds=0.0))
        reader.fetch(sql)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("DROP VIEW nodes; DROP TABLE node; CREATE VIEW node AS SELECT 1 AS id", "no table 'node'"),
        ("DROP TABLE meta", "no table 'meta'"),
        ("DROP TABLE meta; CREATE TABLE meta (key TEXT, value AS (hex(key)))", "no table 'meta'"),
        ("DROP TABLE meta; CREATE VIRTUAL TABLE meta USING fts4(key, value)", "no table 'meta'"),
    ],
    ids=["view", "missing", "computed", "virtual"],
)
def test_tables_that_are_not_ours_are_not_read(path: Path, script: str, said: str) -> None:
    fill(path)
    change(path, "PRAGMA legacy_alter_table = ON;" + script)
    with pytest.raises(StoreError, match=said):
        open_reader(path)
