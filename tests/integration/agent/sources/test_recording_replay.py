"""A recording, replayed through the agent's loop and the real store, fills the views as the node itself did.

The recording is made here, from the NVML stub and fixture trees: it stands for no real hardware. Run as a script, this
file is the process that samples that node (the stub is chosen by the environment a process starts with).
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.agent.model import Node
from skuwise.agent.sampler import Sampled, Sampler, run_loop
from skuwise.agent.sources.fabric.infiniband import InfinibandSource
from skuwise.agent.sources.host import HostSource
from skuwise.agent.sources.nvidia.gpm import GpmSource
from skuwise.agent.sources.nvidia.nvlink import NvlinkSource
from skuwise.agent.sources.nvidia.nvml import NvmlSource
from skuwise.agent.sources.nvidia.nvml_session import NvmlSession
from skuwise.agent.sources.replay.recording import RecordingClock, RecordingSource, read_recording, write_recording
from skuwise.agent.sources.replay.recording_format import Label, Made
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import SourceError
from skuwise.tests.hardware import observe
from skuwise.tests.hardware.export import export_window
from skuwise.tests.nvmlstub import StubClock, stub_env
from skuwise.tests.support.stepped_clock import SteppedClock
from skuwise.tests.support.sysfs_trees import Procfs, dgx_like, gpus_on

START, MAX_GAP = 1_780_000_000.0, 10.0
# Ticks as a busy node takes them: some late, two missed, one fault that passes and one that stays.
TIMES = (1.0, 2.0, 3.004, 4.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0)
SCENARIO = """
[gpu 0]
gpu_util = 1
sm_active = 0:0.8 5:0.2
sm_occupancy = 0.4
tensor_active = 0:0.6 5:0
dram_active = 0.5
mem_used_bytes = 40000000000
power_watts = 0:650 5:200
nvlink_links = 18
nvlink_tx_bytes_per_second = 100000000000
nvlink_rx_bytes_per_second = 90000000000
[gpu 1]
name = NVIDIA A100-SXM4-80GB
gpm = no
gpu_util = 0.3
power_watts = 90
fault.* = 0:ok 8.5:!15
"""


def keeper(writer: Writer, node: Node, sampler: Sampler, ts: float) -> Callable[[Sampled], None]:
    """Announces what the sampler finds, then keeps tick after tick with its absences."""
    survey, into = sampler.probe(), writer.for_node(node, ts)
    into.set_gpus(survey.gpus, ts)
    into.set_ports(survey.ports, ts)

    def keep(sampled: Sampled) -> None:
        into.set_absences(sampled.absences, sampled.tick.ts)
        into.add_tick(sampled.tick)

    return keep


def sample_node(folder: Path) -> None:
    """What the process does that sees the stub: sample the whole node into ``folder/node.db``."""
    stub, clock = StubClock(Path(os.environ["SKUWISE_NVML_CLOCK"])), SteppedClock(START, 500.0)
    tree, bus_ids = dgx_like(folder / "sys")
    proc = Procfs(folder / "proc")

    def go_to(seconds: float) -> None:
        stub.set(seconds)
        clock.advance(seconds - (clock.now().wall_seconds - START))
        tree.counter("mlx5_0", "port_xmit_data", int(seconds * 1e9))
        tree.counter("mlx5_1", "port_rcv_data", int(seconds * 2e9))
        tree.state("mlx5_2", "4: ACTIVE" if seconds < 6 else "1: DOWN")
        proc.cpu(user=int(seconds * 250), idle=int(seconds * 750))
        proc.memory(2**30, 2**29)
        proc.disks({"nvme0n1": (int(seconds * 2048), 0)})

    tree.disk("nvme0n1")
    go_to(0.0)
    session = NvmlSession()
    session.open(clock.now())
    assert session.fault is None
    gpu_sources = [kind(session, MAX_GAP) for kind in (NvmlSource, GpmSource, NvlinkSource)]
    fabric = InfinibandSource(folder / "sys", gpus_on(bus_ids), MAX_GAP)
    sampler = Sampler([*gpu_sources, fabric, HostSource(folder / "proc", folder / "sys", MAX_GAP)], 1.0, MAX_GAP)
    node = Node("secret-host-name", "secret-cluster", machine_id="m", boot_id="b", node_sku="test/node", gpu_count=2)
    with Writer.open(folder / "node.db", now=lambda: START) as writer:
        keep = keeper(writer, node, sampler, START)
        sampler.prime(clock.now())
        for seconds in TIMES:
            go_to(seconds)
            keep(sampler.sample(clock.now()))
    sampler.close()


@pytest.fixture(scope="module")
def node_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    environment = stub_env(folder, SCENARIO, stepped=True)
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "node.db"


@pytest.fixture(scope="module")
def recorded(node_db: Path) -> Path:
    header, ticks = export_window(
        node_db,
        START,
        START + TIMES[-1],
        label=Label("unknown", "unknown", "a scenario of the NVML stub"),
        made=Made("stub", "tests/integration/agent/sources/test_recording_replay.py", "2026-01-01T00:00:00Z"),
        interval_seconds=1.0,
        truth={},
        versions={},
    )
    path = node_db.parent / "stub.jsonl.gz"
    write_recording(path, header, ticks)
    return path


@pytest.fixture(scope="module")
def replayed_db(recorded: Path) -> Path:
    recording = read_recording(recorded)
    path = recorded.parent / "replayed.db"
    clock = RecordingClock(recording)
    sampler = Sampler([RecordingSource(recording)], recording.header.interval_seconds, MAX_GAP)
    with Writer.open(path, now=lambda: START) as writer:
        keep = keeper(writer, recording.header.node, sampler, recording.start)
        kept = run_loop(sampler, clock, keep, lambda _: None, lambda: 0, stopped=clock.over)
    assert kept == len(TIMES)
    return path


def rows(database: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def columns(database: Path, view: str, without: set[str]) -> str:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({view})")]
    assert without <= set(names)
    return ", ".join(name for name in names if name not in without)


VIEWS = {
    "gpu_samples": ({"node", "gpu_uuid"}, "ts, gpu_index", 16),
    "fabric_samples": ({"node"}, "ts, device, port", 100),
    "host_samples": ({"node"}, "ts", 10),
    "gpus": ({"node", "gpu_uuid"}, "gpu_index", 2),
}


@pytest.mark.parametrize("view", VIEWS)
def test_the_views_hold_the_same_values(node_db: Path, replayed_db: Path, view: str) -> None:
    without, order, count = VIEWS[view]
    sql = f"SELECT {columns(node_db, view, without)} FROM {view} ORDER BY {order}"
    original = rows(node_db, sql)
    assert len(original) == count
    assert rows(replayed_db, sql) == original


def test_the_scenario_is_in_the_views(replayed_db: Path) -> None:
    """The values are those of the scenario, so that the comparison above is not one of two empty tables."""
    first = rows(
        replayed_db,
        "SELECT sm_active, tensor_active, power_watts, mem_used_bytes FROM gpu_samples WHERE gpu_index = 0 ORDER BY ts",
    )
    assert first[1] == pytest.approx((0.8, 0.6, 650.0, 40e9), rel=0.01)
    assert first[-1] == pytest.approx((0.2, 0.0, 200.0, 40e9), rel=0.01)
    ib = "SELECT tx_bytes_per_second FROM fabric_samples WHERE device = 'mlx5_0' ORDER BY ts"
    assert rows(replayed_db, ib)[1][0] == pytest.approx(4e9, rel=0.01)
    down = "SELECT state, tx_bytes_per_second FROM fabric_samples WHERE device = 'mlx5_2' ORDER BY ts"
    assert rows(replayed_db, down)[-1] == ("DOWN", None)


def test_what_was_missing_is_missing_for_the_same_reasons(node_db: Path, replayed_db: Path) -> None:
    sql = """SELECT a.scope, a.metric, a.reason, g.gpu_index, a.device, a.detail LIKE '%GPU-%', a.since, a.until
             FROM absences a LEFT JOIN gpus g ON g.gpu_uuid = a.gpu_uuid
             WHERE a.until IS NULL OR a.until > a.since ORDER BY 1, 2, 3, 4, 5, 7"""
    original = rows(node_db, sql)
    assert {"gpu-lost", "port-not-active"} <= {str(row[2]) for row in original}
    assert rows(replayed_db, sql) == original


def test_a_recording_does_not_tell_whose_machine_it_was(recorded: Path, node_db: Path) -> None:
    header = read_recording(recorded).header
    true = {str(uuid) for (uuid,) in rows(node_db, "SELECT gpu_uuid FROM gpus")}
    assert header.node.node == "recorded" and header.node.machine_id is None and header.node.boot_id is None
    assert header.node.node_sku == "test/node"
    text = repr(header)
    assert not any(word in text for word in ("secret", *true))
    assert [gpu.uuid for gpu in header.gpus] == [f"GPU-00000000-0000-0000-0000-{n:012d}" for n in range(2)]


def test_a_recording_is_small(recorded: Path) -> None:
    assert recorded.stat().st_size < 10_000


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
    yield path


def test_what_cannot_be_exported_is_said(foreign: Path, node_db: Path, tmp_path: Path) -> None:
    def export(database: Path, since: float) -> None:
        label, made = Label("idle", "idle", "x"), Made("stub", "x", "2026-01-01T00:00:00Z")
        export_window(database, since, since + 5, label=label, made=made, interval_seconds=1.0, truth={}, versions={})

    for database, since, expected in (
        (foreign, START, "cannot be exported"),
        (tmp_path / "none.db", START, "cannot be exported"),
        (node_db, START - 1000, "no tick of that window"),
    ):
        with pytest.raises(SourceError, match=expected) as caught:
            export(database, since)
        assert caught.value.remedy
    assert not (tmp_path / "none.db").exists()


@pytest.mark.slow
def test_the_real_agent_is_watched_into_a_recording(tmp_path: Path) -> None:
    environment = stub_env(tmp_path, "[gpu 0]\ntensor_active = 0.25\n")
    with observe.agent(tmp_path / "node.db", 0.2, environment):
        truth = observe.run_work("idle", 1.0, python=sys.executable)
    header, ticks = export_window(
        tmp_path / "node.db",
        truth.figures["started_at"],
        truth.figures["ended_at"],
        label=Label(**truth.label),  # type: ignore[arg-type] - checked when it is written
        made=Made("stub", "this test", "2026-01-01T00:00:00Z"),
        interval_seconds=0.2,
        truth=truth.figures,
        versions=truth.versions,
    )
    write_recording(tmp_path / "idle.jsonl.gz", header, ticks)
    recording = read_recording(tmp_path / "idle.jsonl.gz")
    (gpu,) = recording.header.gpus
    assert truth.figures["started_at"] - 1e-3 <= recording.start
    assert recording.ticks[-1].ts <= truth.figures["ended_at"]
    assert {tick.gpus[gpu.uuid]["tensor_active"] for tick in recording.ticks} == {0.25}


def test_an_agent_that_does_not_start_is_said(tmp_path: Path) -> None:
    foreign = tmp_path / "node.db"
    foreign.write_bytes(b"this is no database, whatever it is called" * 100)
    with pytest.raises(SourceError, match="agent did not start"), observe.agent(foreign, 1.0):
        pytest.fail("it started")


def test_the_stub_cannot_pass_for_hardware(tmp_path: Path) -> None:
    script = Path(observe.__file__).with_name("record.py")
    done = subprocess.run(
        [sys.executable, str(script), "--out", str(tmp_path / "out")],
        env=stub_env(tmp_path, SCENARIO),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "test double" in done.stderr
    assert not (tmp_path / "out").exists()


def test_every_committed_recording_replays_and_comes_from_hardware() -> None:
    folder = Path(__file__).parents[3] / "data" / "recordings"
    listed = (folder / "README.md").read_text()
    for path in sorted(folder.glob("*.gz")):
        recording = read_recording(path)
        assert recording.header.made.method == "hardware", path.name
        assert path.name in listed
        assert path.stat().st_size < 200_000, path.name
        clock, kept = RecordingClock(recording), []
        sampler = Sampler([RecordingSource(recording)], recording.header.interval_seconds, MAX_GAP)
        run_loop(sampler, clock, kept.append, lambda _: None, lambda: 0, stopped=clock.over)
        assert [sampled.tick.gpus for sampled in kept] == [tick.gpus for tick in recording.ticks], path.name


if __name__ == "__main__":
    sample_node(Path(sys.argv[1]))
