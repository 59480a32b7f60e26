"""The agent as a person runs it on a node whose every value is known; its children; its file for other users."""

import contextlib
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.agent.base.self_command import child_command
from skuwise.agent.model import Node, Tick
from skuwise.agent.service.control import ControlServer
from skuwise.agent.store.writer import Writer
from skuwise.tests.integration.agent.sources.test_nvml_truth import BUSY, first_values
from skuwise.tests.nvmlstub import read_calls, stub_env
from skuwise.tests.support.sysfs_trees import dgx_like
from skuwise.tests.unit.agent.service.test_driver import Driver, Told, opened

TRUTH = first_values(BUSY)
HOPPER = "[gpu 0-1]\n" + "".join(f"{name} = {value:.12g}\n" for name, value in TRUTH.items())
del TRUTH["nvlink_links"]


def node(folder: Path, scenario: str = HOPPER, **options: object) -> tuple[dict[str, str], list[str]]:
    _, bus_ids = dgx_like(folder / "sys")
    (folder / "sys" / "block").mkdir(exist_ok=True)
    places = "".join(f"[gpu {i}]\nbus_id = {bus_id}\n" for i, bus_id in enumerate(bus_ids[:2]))
    return stub_env(folder, scenario + places, **options), ["--path.sysfs", str(folder / "sys")]  # type: ignore[arg-type]


def skuwise(*arguments: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skuwise", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def rows(db: Path, sql: str) -> list[dict[str, object]]:
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql)]


def test_the_views_say_what_the_scenario_says(tmp_path: Path) -> None:
    env, paths = node(tmp_path)
    db = tmp_path / "node.db"
    done = skuwise(
        "agent", "run", "--db", str(db), "--interval", "0.2s", "--duration", "3s", *paths, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "2 GPUs, 10 fabric ports" in done.stderr
    samples = rows(db, "SELECT * FROM gpu_samples")
    assert len(samples) == 2 * 15
    for name, value in TRUTH.items():
        seen = [row[name] for row in samples if row[name] is not None]
        assert len(seen) >= 20, name
        assert seen == pytest.approx([value] * len(seen), rel=0.03), name
    for row in samples:
        if row["energy_joules"] is not None:
            assert row["energy_joules"] == pytest.approx(TRUTH["power_watts"] * row["interval_seconds"], rel=0.35)  # type: ignore[operator]
    total = sum(row["energy_joules"] or 0 for row in samples)  # type: ignore[misc]
    assert total == pytest.approx(2 * TRUTH["power_watts"] * 3, rel=0.12)
    ports = rows(db, "SELECT DISTINCT device, role, state, line_rate_bytes_per_second AS rate FROM fabric_samples")
    assert {(p["device"], p["role"]) for p in ports} >= {("mlx5_0", "compute"), ("mlx5_1", "compute")}
    assert {p["state"] for p in ports} == {"ACTIVE"}
    assert {p["rate"] for p in ports} == {50e9}
    assert rows(db, "SELECT count(*) AS n FROM host_samples WHERE cpu_util IS NOT NULL")[0]["n"] == 15
    (seen,) = rows(db, "SELECT node, gpu_count, agent_version FROM nodes")
    assert seen["gpu_count"] == 2 and seen["agent_version"]
    assert [r["sku"] for r in rows(db, "SELECT sku FROM gpus")] == ["H100-SXM5"] * 2
    calls = read_calls(tmp_path)
    assert "nvmlDeviceGetPcieThroughput" not in calls
    assert calls["gpm.live_samples"] == 0
    copied = skuwise("agent", "snapshot", str(tmp_path / "copy.db"), "--db", str(db), env=env, cwd=tmp_path)
    assert copied.returncode == 0 and rows(tmp_path / "copy.db", "SELECT node FROM nodes") == [{"node": seen["node"]}]


@pytest.mark.parametrize("seconds", ["1" + "0" * 400, "NaN", "-1", '"x"'])
def test_no_pause_that_is_asked_for_ends_the_agent(tmp_path: Path, seconds: str) -> None:
    thread = opened(Driver())
    path = tmp_path / "agent.sock"
    with contextlib.closing(ControlServer(path)) as server:
        supervised = Told(tmp_path, thread, server)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(f'{{"command": "pause", "seconds": {seconds}}}\n'.encode())
            supervised.supervisor.attend()
            assert b"A pause is" in client.recv(4096)
    supervised.lock.close()


def test_a_child_takes_no_code_from_the_folder_it_is_started_in(tmp_path: Path) -> None:
    (tmp_path / "skuwise").mkdir()
    for name in ("skuwise/__init__.py", "hashlib.py"):
        (tmp_path / name).write_text("raise SystemExit('taken from the current folder')\n")
    command = child_command("skuwise", "--version")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "skuwise" in done.stdout, done.stderr


T0 = 1_790_000_000.0
_COUNT = """
import sys
from pathlib import Path
from skuwise.agent.store.reader import open_reader
from skuwise.tests.support.file_modes import bound_by_modes

with bound_by_modes(), open_reader(Path(sys.argv[1])) as reader:
    print(reader.fetch("SELECT count(*) FROM host_samples")[0][0])
"""


@pytest.mark.parametrize("live", [False, True])
def test_a_database_is_read_where_nothing_may_be_written(tmp_path: Path, live: bool) -> None:
    path = tmp_path / "node.db"
    writer = Writer.open(path)
    writer.for_node(Node("n1"), T0).add_tick(Tick(T0 + 1, 1.0, host={"cpu_util": 0.5}))
    writer.commit()
    if not live:
        writer.close()
    before = sorted(path.name for path in tmp_path.iterdir())
    for file in tmp_path.iterdir():
        file.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        done = subprocess.run([sys.executable, "-c", _COUNT, path], capture_output=True, text=True, check=False)
    finally:
        tmp_path.chmod(0o755)
    assert done.stdout == "1\n", done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    writer.close()


_WRITE = """
import sys, time
from pathlib import Path
from skuwise.agent.model import Gpu, Node, Tick
from skuwise.agent.store.writer import Writer

writer = Writer.open(Path(sys.argv[1]))
begun = time.time()
node = writer.for_node(Node("n1"), begun)
node.set_gpus([Gpu(f"GPU-{n}", n, "H100") for n in range(8)], begun)
while True:
    ts = time.time()
    node.add_tick(Tick(ts, 0.1, {f"GPU-{n}": {"sm_active": 0.5} for n in range(8)}))
    if not writer.waiting_ticks:
        print(repr(ts), flush=True)
    time.sleep(0.1)
"""


def test_a_killed_writer_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path, output = tmp_path / "node.db", tmp_path / "told"
    for number in range(6):
        with output.open("w") as out:
            process = subprocess.Popen([sys.executable, "-c", _WRITE, path], stdout=out)
        ends = time.monotonic() + 60
        while not output.stat().st_size and time.monotonic() < ends:
            time.sleep(0.02)
        time.sleep(0.3 * number)
        process.kill()
        process.wait()
        written = [float(line) for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]
        with closing(sqlite3.connect(path)) as connection:
            kept = {ts for (ts,) in connection.execute("SELECT ts FROM tick")}
            assert written and kept >= set(written)
            assert connection.execute("SELECT count(*) FROM gpu_samples").fetchone() == (8 * len(kept),)
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
