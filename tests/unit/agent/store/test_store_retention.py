"""What is too old or too much goes, in short steps; what was seen stays true; a reader cannot fill the disk."""

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from skuwise.agent.model import Absence, AgentStats, Gpu, Limits, Node, Tick, Workload
from skuwise.agent.store.database import checkpoint, log_bytes
from skuwise.agent.store.node_writer import NodeWriter
from skuwise.agent.store.retention import RetentionJob
from skuwise.agent.store.retention import main as prune
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.stored_rows import HOUR, PORTS, put_ticks, rows

DAY = 86400.0
T0, PORT = float(HOUR), PORTS[0]


def tick(ts: float, level: float = 0.5, seconds: float = 60.0) -> Tick:
    rates = {"tx_bytes_per_second": 1e9, "rx_bytes_per_second": 1e9}
    gpu = {"sm_active": level, "power_watts": 300.0, "mem_used_bytes": 1e10 * level}
    return Tick(ts, seconds, {"GPU-0": gpu}, {PORT.key: rates}, {PORT.key: "ACTIVE"}, {"cpu_util": level})


def job(path: Path, limits: Limits | None = None, **options: Any) -> RetentionJob:
    return RetentionJob(path, limits or Limits(), sleep=lambda _: None, **options)


def test_ages_are_kept_and_nothing_else_is_touched(path: Path, node: NodeWriter) -> None:
    days = 6
    put_ticks(node, (tick(T0 + 600 * i, seconds=600.0) for i in range(1, days * 144 + 1)))
    now = T0 + days * DAY + 10
    RollupJob(path).run(now)
    whole = now - 10 - 3600
    before = {
        name: rows(path, f"SELECT * FROM {name}s WHERE ts > ?", (whole - keep,))
        for name, keep in (("gpu_sample", 2 * DAY), ("fabric_sample", 2 * DAY), ("gpu_minute", 4 * DAY))
    }
    hours = rows(path, "SELECT * FROM gpu_hours ORDER BY ts")
    done = job(path, Limits(minutes_seconds=4 * DAY)).run(now)
    assert (done["tick"], done["unfinished"]) == ((days - 2) * 144 - 6, 0)  # by the last hour that is whole
    for name, kept in before.items():
        assert rows(path, f"SELECT * FROM {name}s") == kept
    assert rows(path, "SELECT * FROM gpu_hours ORDER BY ts") == hours
    orphans = "FROM gpu_sample s LEFT JOIN tick t ON t.id = s.id / 4096 WHERE t.id IS NULL"
    assert rows(path, f"SELECT count(*) {orphans}") == [(0,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    pages, free = rows(path, "PRAGMA page_count")[0][0], rows(path, "PRAGMA freelist_count")[0][0]
    assert done["page"] > 10
    assert free <= pages / 32 + 1
    assert job(path, Limits(minutes_seconds=4 * DAY)).run(now) == {}
    job(path, Limits(minutes_seconds=4 * DAY, hours_seconds=5 * DAY)).run(now)
    assert rows(path, "SELECT min(ts) FROM gpu_hours") == [(T0 + DAY,)]


def test_samples_that_are_not_rolled_up_wait_but_not_for_ever(path: Path, node: NodeWriter) -> None:
    put_ticks(node, (tick(T0 + 600 * i, seconds=600.0) for i in range(1, 1000)))
    limits = Limits(raw_seconds=DAY)
    assert job(path, limits).run(T0 + 1.9 * DAY)["tick"] == 0
    assert job(path, limits).run(T0 + 2.5 * DAY)["tick"] > 0
    assert rows(path, "SELECT min(ts) FROM tick") == [(T0 + 0.5 * DAY + 600,)]


def test_the_size_holds_and_says_what_it_cost(path: Path, writer: Writer, node: NodeWriter) -> None:
    limits = Limits(max_bytes=900_000)
    rng = random.Random(3)
    most = 0
    for hour in range(12):
        put_ticks(node, (tick(T0 + 3600 * hour + i, rng.random(), 5.0) for i in range(5, 3601, 5)))
        RollupJob(path).run(T0 + 3600 * (hour + 1) + 5)
        result = job(path, limits).run(T0 + 3600 * (hour + 1) + 6)
        assert not result["unfinished"]
        checkpoint(path)
        most = max(most, path.stat().st_size)
    assert 400_000 < most <= limits.max_bytes
    (first,) = rows(path, "SELECT min(ts) FROM tick")[0]
    assert T0 + 2 * 3600 < first <= T0 + 11 * 3600
    assert rows(path, "SELECT count(*) FROM gpu_hours") == [(11,)]
    ((reason, since, until, remedy),) = rows(path, "SELECT reason, since, until, remedy FROM absences")
    assert (reason, since) == ("size-limit", T0 + 5)
    assert first - 120 < until < first + 1
    assert "max_size" in remedy
    # The note's id is its own: the writer goes on counting from above.
    node.note(Absence("source", "store", "*", "other"), T0)
    writer.close()
    assert rows(path, "SELECT reason FROM absences ORDER BY reason") == [("other",), ("size-limit",)]
    with Writer.open(path) as again:
        again.for_node(Node("n1"), T0 + 90_000).note(Absence("source", "store", "*", "third"), T0)
    assert rows(path, "SELECT count(*) FROM absences") == [(3,)]


def test_a_run_ends_in_time_and_the_next_goes_on(path: Path, writer: Writer, node: NodeWriter) -> None:
    put_ticks(node, (tick(T0 + i, seconds=1.0) for i in range(1, 4_001)))
    RollupJob(path).run(T0 + 6_000)
    node.set_node(Node("n1"), T0 + 4 * DAY)
    writer.commit()
    moments = iter(range(10_000))
    first = job(path, monotonic=lambda: float(next(moments))).run(T0 + 4 * DAY)
    assert first["unfinished"] and 0 < first["tick"] < 3600
    second = job(path).run(T0 + 5 * DAY)
    assert not second["unfinished"]
    assert rows(path, "SELECT count(*) FROM gpu_sample WHERE id / 4096 <= 3600") == [(0,)]


def test_small_tables_have_limits_of_their_own(path: Path, writer: Writer, node: NodeWriter) -> None:
    limits = Limits(max_uses=50, max_absences=40)
    for i in range(100):
        job_i = Workload(f"w{i}", "s", "train", "slurm")
        node.put_workload_use(job_i, "GPU-0", T0 + 60 * i, T0 + 60 * i + 30, "allocation")
        node.note(Absence("gpu", "GPU-0", "*", "counter-reset"), T0 + 60 * i)
        node.add_agent_stats(AgentStats(T0 + 60 * i, 0.1, 1, 0.001, 0.0, 0))
    node.set_absences([Absence("gpu", "GPU-0", "*", "gpu-lost")], T0)
    node.set_gpus([Gpu("GPU-0", 0, "H100", power_limit_watts=1.0)], T0 + 7000)
    writer.commit()
    now = T0 + 3 * DAY
    put_ticks(node, [tick(now)])
    job(path, limits).run(now)
    assert rows(path, "SELECT count(*), min(ts_start) FROM workload_gpus") == [(50, T0 + 60 * 50)]
    assert rows(path, "SELECT count(*) FROM workloads") == [(100,)]
    (kept,) = rows(path, "SELECT count(*) FROM absences")[0]
    assert kept <= 41
    assert rows(path, "SELECT since FROM absences WHERE until IS NULL") == [(T0,)]
    node.set_node(Node("n1"), T0 + 801 * DAY)
    writer.commit()
    job(path, limits).run(T0 + 801 * DAY)
    assert rows(path, "SELECT count(*) FROM agent_stats") == [(0,)]
    assert rows(path, "SELECT count(*) FROM workloads") == [(0,)]
    assert rows(path, "SELECT power_limit_watts FROM gpus") == [(1.0,)]
    assert rows(path, "SELECT reason FROM absences") == [("gpu-lost",)]


def test_the_log_of_a_long_reader_stops_growing_and_what_waits_is_written_later(path: Path) -> None:
    writer = Writer.open(path, max_log_bytes=400_000, hold_ticks=50)
    node = writer.for_node(Node("n1"), T0)
    writer.commit()
    checkpoint(path)
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM tick").fetchall()
    sent = 0
    while writer.fault is None and sent < 5000:
        sent += 1
        node.add_tick(tick(T0 + sent, seconds=1.0))
    assert writer.fault is not None and writer.fault.reason == "log-held" and "End the program" in writer.fault.remedy
    for _ in range(200):
        sent += 1
        node.add_tick(tick(T0 + sent, seconds=1.0))
    assert log_bytes(path) < 600_000
    assert checkpoint(path)
    lost = writer.lost_ticks
    assert 0 < lost <= 200
    reader.execute("COMMIT")
    reader.close()
    assert not checkpoint(path, kept_bytes=200_000) and log_bytes(path) == 0
    for _ in range(300):
        sent += 1
        node.add_tick(tick(T0 + sent, seconds=1.0))
    assert writer.commit()
    assert writer.fault is None
    assert rows(path, "SELECT count(*) FROM tick") == [(sent - writer.lost_ticks,)]
    writer.close()


def test_the_child_process_prunes_and_says_what_is_wrong(
    path: Path, node: NodeWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    put_ticks(node, (tick(T0 + i, seconds=1.0) for i in range(1, 100)))
    assert prune(str(path)) == 0
    foreign = path.with_name("foreign.db")
    foreign.write_text("mine")
    assert prune(str(foreign)) == 1
    assert "foreign.db" in capsys.readouterr().err
    assert foreign.read_text() == "mine"
    assert prune(str(path.with_name("none.db"))) == 1
    with pytest.raises(StoreError):
        job(path.with_name("none.db")).run(T0)
