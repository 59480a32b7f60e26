"""A copy is whole or not there, readable without its log, and tells the advisor what the live file tells."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from skuwise.agent.model import Absence, FabricPort, Gpu, Node, Tick, Workload
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.agent.store.snapshot import take_snapshot
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import NothingToDo, StoreError, UsageError
from skuwise.tests.support.stored_rows import rows

HOUR = 1_790_002_800
GPU = Gpu("GPU-0", 0, "H100", mem_total_bytes=80 << 30)
PORT = FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)


def begin(path: Path) -> Writer:
    """A live database with an hour and a half of samples, of which the hour is rolled up."""
    writer = Writer.open(path)
    node = writer.for_node(Node("gpu/0-1"), HOUR)
    node.set_gpus([GPU], HOUR)
    node.set_ports([PORT], HOUR)
    node.put_workload_use(Workload("w", "s", "train", "slurm"), "GPU-0", HOUR, HOUR + 5400, "allocation")
    node.note(Absence("source", "store", "*", "test"), HOUR + 5)
    rates = {PORT.key: {"tx_bytes_per_second": 1e9, "rx_bytes_per_second": 1e9}}
    ticks = (
        Tick(HOUR + i, 5.0, {"GPU-0": {"sm_active": 0.25, "power_watts": 300.0}}, rates, {PORT.key: "ACTIVE"}, {})
        for i in range(5, 5400, 5)
    )
    node.put_ticks(ticks)
    RollupJob(path).run(HOUR + 3700)
    return writer


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("rollups_only", [True, False])
def test_a_copy_of_a_live_or_stopped_database_is_whole_and_has_no_log(
    tmp_path: Path, live: bool, rollups_only: bool
) -> None:
    db, out = tmp_path / "node.db", tmp_path / "out"
    out.mkdir()
    writer = begin(db)
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
    hours = rows(written, "SELECT ts, observed_seconds, sm_active_mean, sm_active_bins FROM gpu_hours ORDER BY ts")
    live_hours = rows(db, "SELECT ts, observed_seconds, sm_active_mean, sm_active_bins FROM gpu_hours ORDER BY ts")
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
    begin(db).close()
    (out / ".gpu_0-1.db.1.partial").touch()
    os.utime(out / ".gpu_0-1.db.1.partial", (0, 0))
    for _ in range(2):
        assert take_snapshot(db, out, rollups_only=True, now=HOUR + 5400) == out / "gpu_0-1.db"
    assert [p.name for p in out.iterdir()] == ["gpu_0-1.db"]


def test_what_is_wrong_is_said_and_the_target_stays_as_it_was(tmp_path: Path) -> None:
    db = tmp_path / "node.db"
    begin(db).close()
    foreign = tmp_path / "notes.txt"
    foreign.write_text("mine")
    (tmp_path / "empty.db").touch()
    for target, words in (
        (db, "the database itself"),
        (foreign, "left untouched"),
        (tmp_path / "none" / "x.db", "does not exist"),
    ):
        with pytest.raises(UsageError, match=words):
            take_snapshot(db, target)
    with pytest.raises(UsageError, match="does not exist"):
        take_snapshot(tmp_path / "missing.db", tmp_path / "x.db")
    with pytest.raises(NothingToDo):
        take_snapshot(tmp_path / "empty.db", tmp_path / "x.db")
    content = bytearray(db.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    (tmp_path / "damaged.db").write_bytes(content)
    for rollups_only in (True, False):
        with pytest.raises(StoreError, match="damaged"):
            take_snapshot(tmp_path / "damaged.db", tmp_path / "x.db", rollups_only=rollups_only)
    assert foreign.read_text() == "mine"
    left = {p.name for p in tmp_path.iterdir() if not p.name.endswith(("-shm", "-wal"))}
    assert left == {"damaged.db", "empty.db", "node.db", "notes.txt"}
