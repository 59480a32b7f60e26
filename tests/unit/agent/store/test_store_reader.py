"""Reading a live, a stopped and a copied database, and never writing."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from skuwise.agent.model import Gpu, Node, Tick
from skuwise.agent.store.file.database import SCHEMA_VERSION
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import NothingToDo, StoreError, UsageError

T0 = 1_790_000_000.0


def begin(path: Path) -> Writer:
    writer = Writer.open(path)
    node = writer.for_node(Node("n1"), T0)
    node.set_gpus([Gpu("GPU-0", 0, "H100")], T0)
    node.add_tick(Tick(T0 + 1, 1.0, {"GPU-0": {"sm_active": 0.5}}))
    writer.commit()
    return writer


def count(path: Path) -> int:
    with open_reader(path) as reader:
        return int(str(reader.fetch("SELECT count(*) FROM gpu_samples")[0][0]))


def test_the_contract_is_the_views(path: Path) -> None:
    begin(path).close()
    with open_reader(path) as reader:
        assert reader.version == SCHEMA_VERSION
        assert reader.fetch("SELECT sm_active FROM gpu_samples WHERE gpu_uuid = :u", {"u": "GPU-0"}) == [(0.5,)]
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        reader.fetch("SELECT * FROM nodes")


def test_a_live_database_is_read_while_it_is_written(path: Path) -> None:
    writer = begin(path)
    node = writer.for_node(Node("n1"), T0)
    reader = open_reader(path)
    for second in range(2, 40):
        node.add_tick(Tick(T0 + second, 1.0, {"GPU-0": {"sm_active": 0.5}}))
        writer.commit()
        assert reader.fetch("SELECT count(*) FROM gpu_samples") == [(second,)]
    writer.close()
    assert reader.fetch("SELECT count(*) FROM gpu_samples") == [(39,)]
    reader.close()


def test_a_stopped_and_a_copied_database_stay_as_they_are(path: Path) -> None:
    begin(path).close()
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    for file in (path, copy):
        before = (file.read_bytes(), file.stat().st_mtime_ns)
        assert count(file) == 1
        assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_a_reader_cannot_write(path: Path) -> None:
    begin(path).close()
    reader = open_reader(path)
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("DELETE FROM node")
    for sql in ("DELETE FROM nodes", "PRAGMA query_only = 0", "ATTACH 'x.db' AS x", "SELECT 1; SELECT 2", "nonsense"):
        with pytest.raises((StoreError, sqlite3.Error)):
            reader.fetch(sql)
    reader.close()


def test_no_file_no_bytes_no_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_reader(tmp_path / "missing.db")
    with pytest.raises(StoreError, match="directory"):
        open_reader(tmp_path)
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(NothingToDo, match="nothing yet"):
        open_reader(empty)


def test_a_damaged_database(path: Path) -> None:
    begin(path).close()
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * 3996
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        open_reader(path)
