"""Reading a live, a stopped and a copied database, and never writing."""

import os
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from skuwise.agent.model import Absence, Event, EventKind, Gpu, Limits, Node, Tick, Workload
from skuwise.agent.store.database import SCHEMA_VERSION
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.retention import RetentionJob
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.snapshot import take_snapshot
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import NothingToDo, StoreError, UsageError
from skuwise.tests.support.stored_rows import GPU, HOUR, PORTS, put_ticks, rows

T0 = 1_790_000_000.0


def begin(path: Path) -> Writer:
    writer = Writer.open(path)
    node = writer.for_node(Node("n1"), T0)
    node.set_gpus([Gpu("GPU-0", 0, "H100")], T0)
    node.add_tick(Tick(T0 + 1, 1.0, {"GPU-0": {"sm_active": 0.5}}))
    writer.commit()
    return writer


def test_a_live_database_is_read_while_it_is_written(path: Path) -> None:
    writer = begin(path)
    node = writer.for_node(Node("n1"), T0)
    with open_reader(path) as reader:
        assert reader.version == SCHEMA_VERSION
        assert reader.fetch("SELECT sm_active FROM gpu_samples WHERE gpu_uuid = :u", {"u": "GPU-0"}) == [(0.5,)]
        for second in range(2, 40):
            node.add_tick(Tick(T0 + second, 1.0, {"GPU-0": {"sm_active": 0.5}}))
            writer.commit()
            assert reader.fetch("SELECT count(*) FROM gpu_samples") == [(second,)]
        writer.close()
        assert reader.fetch("SELECT count(*) FROM gpu_samples") == [(39,)]
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        reader.fetch("SELECT * FROM nodes")


def test_a_reader_cannot_write_and_a_stopped_or_copied_database_stays_as_it_is(path: Path) -> None:
    begin(path).close()
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    for file in (path, copy):
        before = (file.read_bytes(), file.stat().st_mtime_ns)
        with open_reader(file) as reader:
            assert reader.fetch("SELECT count(*) FROM gpu_samples") == [(1,)]
            with pytest.raises(sqlite3.OperationalError):
                reader.execute("DELETE FROM node")
            for sql in ("DELETE FROM nodes", "PRAGMA query_only = 0", "ATTACH 'x.db' AS x", "SELECT 1; SELECT 2"):
                with pytest.raises((StoreError, sqlite3.Error)):
                    reader.fetch(sql)
        assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    empty, damaged = tmp_path / "empty.db", tmp_path / "damaged.db"
    empty.touch()
    begin(damaged).close()
    damaged.write_bytes(damaged.read_bytes()[:100] + b"\xff" * 3996)
    for path, error, why in (
        (tmp_path / "missing.db", UsageError, "does not exist"),
        (tmp_path, StoreError, "directory"),
        (empty, NothingToDo, "nothing yet"),
        (damaged, StoreError, "damaged"),
    ):
        with pytest.raises(error, match=why):
            open_reader(path)


def begin_snapshot(path: Path) -> Writer:
    """A live database with an hour and a half of samples, of which the hour is rolled up."""
    writer = Writer.open(path)
    node = writer.for_node(Node("gpu/0-1"), HOUR)
    node.set_gpus([GPU], HOUR)
    node.set_ports(PORTS[:1], HOUR)
    node.put_workload_use(Workload("w", "s", "train", "slurm"), "GPU-0", HOUR, HOUR + 5400, "allocation")
    node.note(Absence("source", "store", "*", "test"), HOUR + 5)
    rates = {PORTS[0].key: {"tx_bytes_per_second": 1e9, "rx_bytes_per_second": 1e9}}
    ticks = (
        Tick(HOUR + i, 5.0, {"GPU-0": {"sm_active": 0.25, "power_watts": 300.0}}, rates, {PORTS[0].key: "ACTIVE"}, {})
        for i in range(5, 5400, 5)
    )
    put_ticks(node, ticks)
    RollupJob(path).run(HOUR + 3700)
    return writer


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("rollups_only", [True, False])
def test_a_copy_of_a_live_or_stopped_database_is_whole_and_has_no_log(
    tmp_path: Path, live: bool, rollups_only: bool
) -> None:
    db, out = tmp_path / "node.db", tmp_path / "out"
    out.mkdir()
    writer = begin_snapshot(db)
    if not live:
        writer.close()
    before = os.umask(0o077)
    try:
        written = take_snapshot(db, out / "copy.db", rollups_only=rollups_only, now=HOUR + 5400)
    finally:
        os.umask(before)
    assert [p.name for p in out.iterdir()] == ["copy.db"]
    assert stat.S_IMODE(written.stat().st_mode) == 0o640
    assert rows(written, "PRAGMA integrity_check") == [("ok",)]
    assert rows(written, "PRAGMA journal_mode") == [("delete",)]
    assert rows(written, "PRAGMA user_version") == rows(db, "PRAGMA user_version")
    for view in ("nodes", "gpus", "workloads", "workload_gpus", "absences"):
        assert rows(written, f"SELECT * FROM {view}") == rows(db, f"SELECT * FROM {view}")
    query = "SELECT ts, observed_seconds, sm_active_mean, sm_active_bins FROM gpu_hours ORDER BY ts"
    hours, live_hours = rows(written, query), rows(db, query)
    assert hours[: len(live_hours)] == live_hours
    (samples,) = rows(written, "SELECT count(*) FROM gpu_samples")[0]
    if rollups_only:
        assert samples == 0
        assert [round(hour[1]) for hour in hours] == [3600, 1795]
        assert rows(written, "SELECT count(*) FROM fabric_minutes") == [(90,)]
    else:
        assert samples == 1079
    if live:
        writer.close()


def test_a_folder_takes_the_nodes_name_and_an_older_copy_is_replaced(tmp_path: Path) -> None:
    db, out = tmp_path / "node.db", tmp_path / "out"
    out.mkdir()
    begin_snapshot(db).close()
    (out / ".gpu_0-1.db.1.partial").touch()
    os.utime(out / ".gpu_0-1.db.1.partial", (0, 0))
    for _ in range(2):
        assert take_snapshot(db, out, rollups_only=True, now=HOUR + 5400) == out / "gpu_0-1.db"
    assert [p.name for p in out.iterdir()] == ["gpu_0-1.db"]


def test_what_is_wrong_is_said_and_the_target_stays_as_it_was(tmp_path: Path) -> None:
    db = tmp_path / "node.db"
    begin_snapshot(db).close()
    foreign = tmp_path / "notes.txt"
    foreign.write_text("mine")
    (tmp_path / "empty.db").touch()
    for source, target, words in (
        (db, db, "the database itself"),
        (db, foreign, "left untouched"),
        (db, tmp_path / "none" / "x.db", "does not exist"),
        (tmp_path / "missing.db", tmp_path / "x.db", "does not exist"),
        (tmp_path / "empty.db", tmp_path / "x.db", "holds nothing"),
    ):
        with pytest.raises((UsageError, NothingToDo), match=words):
            take_snapshot(source, target)
    content = bytearray(db.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    (tmp_path / "damaged.db").write_bytes(content)
    for rollups_only in (True, False):
        with pytest.raises(StoreError, match="damaged"):
            take_snapshot(tmp_path / "damaged.db", tmp_path / "x.db", rollups_only=rollups_only)
    assert foreign.read_text() == "mine"
    left = {p.name for p in tmp_path.iterdir() if not p.name.endswith(("-shm", "-wal"))}
    assert left == {"damaged.db", "empty.db", "node.db", "notes.txt"}


T = 1_800_000_000.0  # a full hour


def xid(ts: float, code: int | None = 79, uuid: str | None = "GPU-a", kind: EventKind = "xid", count: int = 1) -> Event:
    return Event(ts, uuid, kind, code, "what it means", count, ts)


def kept(path: Path, *events: Event) -> list[tuple[object, ...]]:
    with Writer.open(path) as writer:
        node = writer.for_node(Node("n"), events[-1].ts)
        for event in events:
            node.add_event(event)
    return rows(path, "SELECT ts, last_ts, count, gpu_uuid, kind, code FROM events ORDER BY ts")


def test_an_event_is_a_row_and_its_repetition_within_a_minute_a_count(tmp_path: Path) -> None:
    stored = kept(tmp_path / "a.db", xid(T), xid(T + 30), xid(T + 80), xid(T + 200), xid(T + 200, 31))
    assert [row[:3] + row[5:] for row in stored] == [(T, T + 80, 3, 79), *((T + 200, T + 200, 1, n) for n in (79, 31))]
    assert rows(tmp_path / "a.db", "SELECT DISTINCT node, detail FROM events") == [("n", "what it means")]


def test_events_go_with_the_hours_and_beyond_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    old, new = [xid(T + 120 * n) for n in range(50)], [xid(T + 20 * 86400 + 120 * n) for n in range(50)]
    kept(path, *old, *new)
    now = T + 20 * 86400 + 7200
    RetentionJob(path, Limits(hours_seconds=5 * 86400.0), sleep=lambda _: None).run(now)
    assert rows(path, "SELECT count(*), min(ts) FROM events") == [(50, T + 20 * 86400)]
    # What was seen within the last day stays: the writer may still count in it.
    RetentionJob(path, Limits(max_events=10), sleep=lambda _: None).run(now)
    assert rows(path, "SELECT count(*) FROM events") == [(50,)]
    kept(path, xid(now + 86400))
    RetentionJob(path, Limits(max_events=10), sleep=lambda _: None).run(now + 86400)
    assert rows(path, "SELECT count(*) FROM events") == [(10,)]
