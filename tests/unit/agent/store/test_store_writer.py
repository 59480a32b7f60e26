"""What is handed to the writer comes back through the views, and survives a full disk."""

import dataclasses
import errno
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.agent.metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from skuwise.agent.model import Absence, Gpu, Node, Tick, Workload, WorkloadUse
from skuwise.agent.store.disk_errors import PassingError, disk_error
from skuwise.agent.store.node_writer import NodeWriter
from skuwise.agent.store.writer import Writer
from skuwise.tests.support.stored_rows import GPU, PORTS, put_ticks, rows

T0 = 1_790_000_000.25
NODE = Node("n1", cluster="c", boot_id="b1", gpu_count=2)
GPUS, PORT = (GPU, dataclasses.replace(GPU, uuid="GPU-1", index=1)), PORTS[0]


@pytest.fixture
def node(writer: Writer) -> NodeWriter:
    node_writer = writer.for_node(NODE, T0)
    node_writer.set_gpus(GPUS, T0)
    node_writer.set_ports([PORT], T0)
    return node_writer


def tick(ts: float, **values: float) -> Tick:
    return Tick(ts, 1.0, {gpu.uuid: values for gpu in GPUS}, {}, {}, {})


def test_every_metric_comes_back_within_its_quantum(
    path: Path, node: NodeWriter, seed_of: Callable[[int], int]
) -> None:
    rng = random.Random(seed_of(1))
    scale = {"ratio": 1.0, "bytes": 8e10, "bytes per second": 4e11, "hertz": 2e9, "bitmask": 511, "celsius": 90}
    ticks: list[Tick] = []
    for second in range(1, 21):
        gpu, port, host = (
            {metric.name: rng.random() * scale.get(metric.unit, 700) for metric in metrics}
            for metrics in (GPU_METRICS, FABRIC_METRICS, HOST_METRICS)
        )
        ticks.append(Tick(T0 + second, 1.0003, {"GPU-1": gpu}, {PORT.key: port}, {PORT.key: "ACTIVE"}, host))
    put_ticks(node, ticks)
    for view, metrics, sent in (
        ("gpu_samples", GPU_METRICS, [tick.gpus["GPU-1"] for tick in ticks]),
        ("fabric_samples", FABRIC_METRICS, [tick.fabric[PORT.key] for tick in ticks]),
        ("host_samples", HOST_METRICS, [tick.host for tick in ticks]),
    ):
        names = ", ".join(metric.name for metric in metrics)
        stored = rows(path, f"SELECT ts, interval_seconds, {names} FROM {view} ORDER BY ts")
        for tick, values, (ts, seconds, *kept) in zip(ticks, sent, stored, strict=True):
            assert ts == tick.ts and seconds == pytest.approx(1.0003, abs=0.0005)
            for metric, value in zip(metrics, kept, strict=True):
                assert value == pytest.approx(values[metric.name], rel=0, abs=0.501 * metric.quantum)
    assert rows(path, "SELECT DISTINCT mem_total_bytes FROM gpu_samples") == [(80 << 30,)]
    assert rows(path, "SELECT DISTINCT role, line_rate_bytes_per_second FROM fabric_samples") == [("compute", 50e9)]


def test_what_is_missing_is_null_and_a_port_that_is_down_is_absent_not_silent(path: Path, node: NodeWriter) -> None:
    put_ticks(node, [Tick(T0 + 1, 1.0, {"GPU-0": {"sm_active": 0.0}}, {}, {PORT.key: "DOWN"}, {})])
    assert rows(path, "SELECT gpu_uuid, sm_active, tensor_active FROM gpu_samples") == [("GPU-0", 0.0, None)]
    assert rows(path, "SELECT state, tx_bytes_per_second FROM fabric_samples") == [("DOWN", None)]
    assert rows(path, "SELECT * FROM host_samples") == []


def test_odd_values_and_hostile_text_do_not_stop_the_others(path: Path, writer: Writer, node: NodeWriter) -> None:
    node.add_tick(tick(T0 + 1, sm_active=float("nan"), gpu_util=0.5))
    node.add_tick(tick(T0 + 2, sm_active=0.5, pcie_tx_bytes_per_second=1e30))
    workload = Workload("w", "s", "rm -rf '; DROP TABLE node; --\udcff", "process", command='"x"\x1b[2J')
    node.set_workloads([workload], [WorkloadUse("w", "GPU-0", "process")], T0 + 2)
    node.set_absences([Absence("gpu", "GPU-0", "*", "gpu-lost", "bad\udc80text")], T0 + 2)
    assert writer.commit()
    assert rows(path, "SELECT sm_active, gpu_util, pcie_tx_bytes_per_second FROM gpu_samples WHERE gpu_index = 0") == [
        (None, 0.5, None),
        (0.5, None, None),
    ]
    assert rows(path, "SELECT name FROM workloads") == [("rm -rf '; DROP TABLE node; --?",)]
    assert rows(path, "SELECT gpu_uuid, device, detail FROM absences") == [("GPU-0", None, "bad?text")]


@pytest.mark.parametrize(
    ("interval", "ticks", "written"), [(0.2, 26, 26), (0.2, 25, 21), (1.0, 5, 5), (30.0, 3, 3)], ids=str
)
def test_what_is_told_is_written_once_a_second_or_with_each_slower_tick(
    path: Path, node: NodeWriter, interval: float, ticks: int, written: int
) -> None:
    for number in range(ticks):
        node.add_tick(dataclasses.replace(tick(T0 + number * interval, sm_active=0.5), interval_seconds=interval))
    assert rows(path, "SELECT count(*) FROM gpu_samples") == [(2 * written,)]


def test_a_changed_gpu_opens_a_new_row_and_a_tick_is_of_the_gpu_as_it_was(path: Path) -> None:
    """Ticks become rows later, together; a change of the GPUs comes in between."""
    slower = dataclasses.replace(GPUS[1], power_limit_watts=300.0)
    for start in (T0, T0 + 100):
        with Writer.open(path) as writer:
            node = writer.for_node(NODE, start)
            node.set_ports([PORT], start)
            for second, gpus in ((0.0, GPUS), (0.4, (GPUS[0], slower)), (0.6, GPUS[:1]), (0.8, (GPUS[0], slower))):
                node.set_gpus(gpus, start + second)
                node.add_tick(dataclasses.replace(tick(start + second, sm_active=0.5), interval_seconds=0.1))
            assert writer.waiting_ticks == 3
    span = f"round(valid_from - {T0}, 1), round(valid_to - {T0}, 1)"
    assert rows(path, f"SELECT gpu_uuid, power_limit_watts, {span} FROM gpus ORDER BY gpu_uuid, valid_from") == [
        ("GPU-0", 700.0, 0.0, None),
        ("GPU-1", 700.0, 0.0, 0.4), ("GPU-1", 300.0, 0.4, 0.6), ("GPU-1", 300.0, 0.8, 100.0),
        ("GPU-1", 700.0, 100.0, 100.4), ("GPU-1", 300.0, 100.4, 100.6), ("GPU-1", 300.0, 100.8, None),
    ]  # fmt: skip
    limits = "SELECT g.power_limit_watts FROM gpu_sample r JOIN gpu g ON g.id = r.id % 4096"
    stored = rows(path, f"{limits} WHERE g.gpu_uuid = 'GPU-1' ORDER BY r.id")
    assert [watts for (watts,) in stored] == [700.0, 300.0, 300.0] * 2
    assert rows(path, "SELECT count(*) FROM port") == [(1,)]
    assert rows(path, f"SELECT first_seen - {T0}, round(last_seen - {T0}, 1) FROM nodes") == [(0.0, 100.8)]


def test_absences_open_stay_and_end(path: Path, writer: Writer, node: NodeWriter) -> None:
    lost = Absence("gpu", "GPU-0", "*", "gpu-lost", "fell off the bus", "reboot")
    down = Absence("fabric", PORT.key, "*", "port-not-active")
    node.set_absences([lost], T0 + 1)
    node.set_absences([lost], T0 + 2)
    writer.commit()
    node.set_absences([lost, down], T0 + 3)
    node.set_absences([down], T0 + 4)
    writer.commit()
    query = "SELECT gpu_uuid, device, reason, since, until FROM absences ORDER BY since"
    expected = [("GPU-0", None, "gpu-lost", T0 + 1, T0 + 4), (None, PORT.key, "port-not-active", T0 + 3, None)]
    assert rows(path, query) == expected
    writer.close()
    with Writer.open(path) as again:
        other = again.for_node(NODE, T0 + 50)
        other.set_absences([Absence("fabric", PORT.key, "*", "port-not-active", "said differently")], T0 + 50)
        again.commit()
        assert rows(path, query) == expected
        other.set_absences([], T0 + 60)
    assert rows(path, query)[1][-1] == T0 + 60


def test_a_use_goes_on_until_it_is_not_seen_for_two_scans(path: Path, writer: Writer, node: NodeWriter) -> None:
    job = Workload("w1", "s1", "train", "slurm", job_id="7")
    use = WorkloadUse("w1", "GPU-0", "process", mem_used_bytes=5)
    for second, memory in ((0, 5), (10, 9), (20, 7), (45, 1), (50, 1)):
        seen = WorkloadUse(use.workload_id, use.gpu_uuid, use.basis, mem_used_bytes=memory)
        node.set_workloads([job], [seen], T0 + second)
    node.set_workloads([job], [WorkloadUse("nobody", "GPU-1", "process")], T0 + 55)
    writer.commit()
    assert rows(path, "SELECT workload_id, ts_start, ts_end, shared, mem_used_bytes FROM workload_gpus") == [
        ("w1", T0, T0 + 20, 0, 9),
        ("w1", T0 + 45, T0 + 50, 0, 1),
    ]
    assert rows(path, "SELECT first_seen, last_seen, job_id FROM workloads") == [(T0, T0 + 55, "7")]


def limit(writer: Writer, size: int) -> None:
    """Let the database grow to this many bytes: beyond it the disk counts as full."""
    writer.connection.execute(f"PRAGMA max_page_count = {size // 4096}").fetchone()


def test_a_full_disk_loses_nothing_and_is_said(path: Path, writer: Writer, node: NodeWriter) -> None:
    writer.commit()
    limit(writer, path.stat().st_size + 200_000)
    sent = 0
    while writer.fault is None or sent % 100:
        sent += 1
        node.add_tick(tick(T0 + sent, sm_active=0.5))
    assert writer.fault.reason == "disk-full" and writer.fault.remedy
    node.set_absences([writer.fault], T0 + sent)
    limit(writer, 1 << 40)
    assert writer.commit() and (writer.fault, writer.lost_ticks) == (None, 0)
    assert rows(path, "SELECT count(*), count(DISTINCT ts) FROM gpu_samples") == [(2 * sent, sent)]
    assert rows(path, "SELECT device, reason FROM absences") == [("store", "disk-full")]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_lock_of_a_minute_is_waited_for_and_nothing_is_lost(path: Path, writer: Writer, node: NodeWriter) -> None:
    node.add_tick(tick(T0, sm_active=0.5))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for second in range(1, 61):
            node.add_tick(tick(T0 + second, sm_active=0.5))
        assert writer.fault is not None and (writer.fault.reason, writer.waiting_ticks) == ("store-busy", 60)
        other.execute("COMMIT")
    for second in range(61, 66):
        node.add_tick(tick(T0 + second, sm_active=0.5))
    assert (writer.fault, writer.waiting_ticks, writer.lost_ticks) == (None, 0, 0)
    assert rows(path, "SELECT count(DISTINCT ts) FROM gpu_samples") == [(66,)]


def test_rollups_of_the_past_belong_to_the_device_as_it_was(path: Path, writer: Writer, node: NodeWriter) -> None:
    node.set_gpus([Gpu("GPU-0", 0, "H100", mem_total_bytes=1024)], T0 + 7200)
    moments = [round(T0) + 3600, round(T0) + 9000]
    node.put_rollups("gpu_hour", ["ts", "device", "observed_seconds"], [(ts, "GPU-0", 1) for ts in moments])
    assert rows(path, "SELECT mem_total_bytes FROM gpu_hours ORDER BY ts") == [(80 << 30,), (1024,)]
    with pytest.raises(ValueError, match="unknown device"):
        node.put_rollups("gpu_hour", ["ts", "device", "observed_seconds"], [(moments[0], "GPU-9", 1)])


class Disk:
    """Full whenever a database on it is opened, as long as it has an error."""

    error: OSError | None = OSError(errno.ENOSPC, "No space left on device")
    tried = 0

    def __init__(self, path: Path) -> None:
        self.path = path

    def look(self) -> None:
        self.tried += 1
        if self.error is not None:
            raise disk_error(self.path, self.error) from self.error


@pytest.fixture
def disk(path: Path) -> Disk:
    return Disk(path)


def test_a_start_on_a_full_disk_keeps_what_it_samples_until_there_is_room(disk: Disk) -> None:
    writer = Writer(disk.path, before_opening=disk.look)
    opened: list[bool] = []
    writer.when_open(lambda: opened.append(True))
    assert writer.fault is not None and writer.fault.reason == "disk-full"
    node = writer.for_node(NODE, T0)
    node.set_gpus(GPUS, T0)
    node.set_absences([writer.fault], T0)
    node.set_workloads([Workload("w", "s", "train", "process")], [WorkloadUse("w", "GPU-1", "process")], T0 + 1)
    node.note(Absence("source", "clock", "*", "suspended", "It slept."), T0 + 2)
    for second in range(1, 31):
        node.add_tick(tick(T0 + second, power_watts=100.0 + second))
    assert (disk.tried, writer.waiting_ticks, opened, writer.is_open) == (1 + 6, 30, [], False)
    disk.error = None
    node.add_tick(tick(T0 + 31, power_watts=131.0))
    assert writer.is_open and writer.fault is None and opened == [True]
    node.set_absences([], T0 + 31)
    writer.close()
    assert rows(disk.path, "SELECT count(*), min(power_watts), max(power_watts) FROM gpu_samples") == [(62, 101, 131)]
    assert rows(disk.path, f"SELECT reason, since - {T0}, until - {T0} FROM absences ORDER BY since") == [
        ("disk-full", 0, 31), ("suspended", 2, 2)
    ]  # fmt: skip
    assert rows(disk.path, "SELECT count(*) FROM workload_gpus") == [(1,)]
    assert writer.lost_ticks == 0


def test_what_waits_is_bounded_and_the_gap_is_recorded(disk: Disk) -> None:
    writer = Writer(disk.path, before_opening=disk.look, hold_ticks=50)
    node = writer.for_node(NODE, T0)
    node.set_gpus(GPUS, T0)
    jobs = [Workload(f"w{number}", "s", "train", "process") for number in range(3000)]
    node.set_workloads(jobs, [WorkloadUse("w7", "GPU-1", "process")], T0)
    for second in range(1, 2002):
        if second % 100 == 0:
            node.note(Absence("gpu", "GPU-0", "*", "counter-reset"), T0 + second)
            node.set_workloads(jobs[second:][:1000], [], T0 + second)
        node.add_tick(tick(T0 + second, sm_active=0.5))
    assert (writer.waiting_ticks, writer.lost_ticks) == (50, 1951)
    disk.error = None
    writer.close()
    assert rows(disk.path, f"SELECT count(*), min(ts) - {T0} FROM gpu_samples") == [(100, 1952)]
    lost = "SELECT since, until FROM absences WHERE reason = 'ticks-lost'"
    assert rows(disk.path, lost) == [(T0, T0 + 1951)]
    # Of the rest the newest 20,000 waited, and the last word of each, however old.
    assert rows(disk.path, "SELECT count(*) FROM absences") == [(20,)]
    assert rows(disk.path, "SELECT min(last_seen), count(*) FROM workloads") == [(T0 + 200, 2800)]
    assert rows(disk.path, "SELECT count(*) FROM gpus") == [(2,)]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.EROFS, "store-read-only"),
        (errno.EACCES, None),
        ("SQLITE_IOERR_WRITE", "disk-error"),
        ("SQLITE_PERM", None),
    ],
)
def test_what_passes_is_told_from_wrong_usage(tmp_path: Path, code: int | str, reason: str | None) -> None:
    error: OSError | sqlite3.Error = sqlite3.OperationalError("it did not work")
    if isinstance(code, int):
        error = OSError(code, "it did not work")
    else:
        error.sqlite_errorcode, error.sqlite_errorname = getattr(sqlite3, code), code  # type: ignore[union-attr]
    store_error = disk_error(tmp_path / "node.db", error)
    assert (store_error.reason if isinstance(store_error, PassingError) else None) == reason
    assert store_error.remedy
