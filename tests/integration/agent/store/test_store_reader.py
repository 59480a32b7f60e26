"""Reading a live, a stopped and a copied database, and never writing."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from skuwise.agent.model import Gpu, Node, Tick
from skuwise.agent.store.file.database import SCHEMA_VERSION
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import NothingToDo, StoreError, UsageError

T0 = 1_790_000_000.0
VIEWS = [
    "absences",
    "agent_stats",
    "events",
    "fabric_hours",
    "fabric_minutes",
    "fabric_samples",
    "gpu_hours",
    "gpu_minutes",
    "gpu_samples",
    "gpus",
    "host_hours",
    "host_minutes",
    "host_samples",
    "nodes",
    "serving_hours",
    "serving_samples",
    "slurm_jobs",
    "workload_gpus",
    "workloads",
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.db"


def begin(path: Path) -> Writer:
    writer = Writer.open(path)
    node = writer.for_node(Node("n1"), T0)
    node.set_gpus([Gpu("GPU-0", 0, "H100")], T0)
    node.add_tick(Tick(T0 + 1, 1.0, {"GPU-0": {"sm_active": 0.5}}))
    writer.commit()
    return writer


def count(path: Path) -> int:
    with open_reader(path) as reader:
        return int(str(reader.query("SELECT count(*) FROM gpu_samples")[0][0]))


_COUNT = """
import sys
from pathlib import Path
from skuwise.agent.store.reading.reader import open_reader
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.file_modes import bound_by_modes

with bound_by_modes():
    try:
        with open_reader(Path(sys.argv[1])) as reader:
            print(reader.query("SELECT count(*) FROM gpu_samples")[0][0])
    except SkuwiseError as error:
        print(f"{type(error).__name__}: {error}")
"""


def count_elsewhere(path: Path) -> str:
    """What another process counts, bound by the modes of files and folders; or its error and sentence."""
    done = subprocess.run([sys.executable, "-c", _COUNT, str(path)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr


def test_the_contract_is_the_views(path: Path) -> None:
    begin(path).close()
    with open_reader(path) as reader:
        assert list(reader.views()) == VIEWS
        assert reader.version == SCHEMA_VERSION
        assert reader.columns("gpu_samples")[:5] == ("ts", "interval_seconds", "node", "gpu_uuid", "gpu_index")
        assert reader.query("SELECT sm_active FROM gpu_samples WHERE gpu_uuid = :u", {"u": "GPU-0"}) == [(0.5,)]
        with pytest.raises(StoreError, match="no view"):
            reader.columns("gpu; DROP TABLE gpu")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        reader.query("SELECT * FROM nodes")


def test_the_truth_of_a_simulation_may_be_asked_for(path: Path) -> None:
    with begin(path) as writer:
        writer.put_truth([("w1", "training", "compute", "none")])
    with open_reader(path) as reader:
        assert "truth" in reader.views()
        assert reader.query("SELECT kind FROM truth") == [("training",)]


def test_a_live_database_is_read_while_it_is_written(path: Path) -> None:
    writer = begin(path)
    node = writer.for_node(Node("n1"), T0)
    reader = open_reader(path)
    for second in range(2, 40):
        node.add_tick(Tick(T0 + second, 1.0, {"GPU-0": {"sm_active": 0.5}}))
        writer.commit()
        assert reader.query("SELECT count(*) FROM gpu_samples") == [(second,)]
    writer.close()
    assert reader.query("SELECT count(*) FROM gpu_samples") == [(39,)]
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
    for sql in (
        "DELETE FROM nodes",
        "PRAGMA query_only = 0",
        "ATTACH 'x.db' AS x",
        "SELECT * FROM gpu_sample",
        "SELECT sql FROM sqlite_master WHERE name IN (SELECT gpu_uuid FROM gpu)",
        "SELECT 1; SELECT 2",
        "nonsense",
    ):
        with pytest.raises((StoreError, sqlite3.Error)):
            reader.query(sql)
    assert reader.query("SELECT value FROM json_each('[1]')") == [(1,)]
    reader.close()


def test_a_stopped_database_in_a_read_only_folder(tmp_path: Path, path: Path) -> None:
    begin(path).close()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert count_elsewhere(path) == "1"
        assert [p.name for p in tmp_path.iterdir()] == ["node.db"]
    finally:
        tmp_path.chmod(0o755)


def test_a_live_database_of_another_user(tmp_path: Path, path: Path) -> None:
    writer = begin(path)
    for file in tmp_path.iterdir():
        file.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert count_elsewhere(path) == "1"
    finally:
        tmp_path.chmod(0o755)
    writer.close()


def test_a_log_that_nobody_may_recover_is_not_ignored(tmp_path: Path, path: Path) -> None:
    writer = begin(path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", copy / f"node.db{suffix}")
    writer.close()
    copy.chmod(0o555)
    try:
        answer = count_elsewhere(copy / "node.db")
    finally:
        copy.chmod(0o755)
    # Either the log's rows are there, or it is said that they cannot be read; never a count without them.
    assert answer == "1" or answer.startswith("StoreError")
    assert count(copy / "node.db") == 1


def test_no_file_no_bytes_no_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_reader(tmp_path / "missing.db")
    with pytest.raises(UsageError, match="folder"):
        open_reader(tmp_path)
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(NothingToDo, match="nothing yet"):
        open_reader(empty)
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="not an SQLite database"):
        open_reader(garbage)
    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE a (b)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="not one of skuwise's"):
        open_reader(foreign)


def test_a_newer_minor_is_read(path: Path) -> None:
    begin(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 7}")
    connection.close()
    assert count(path) == 1


def test_a_damaged_database(path: Path) -> None:
    begin(path).close()
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * 3996
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        open_reader(path)
