"""The agent as a person runs it on a node whose every value is known; its children; its file for other users."""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.agent.base.self_command import child_command
from skuwise.agent.model import Node, Tick
from skuwise.agent.service.control import ControlServer
from skuwise.agent.store.writer import Writer
from skuwise.tests.integration.agent.sources.test_nvml_truth import BUSY, first_values
from skuwise.tests.nvmlstub import read_calls
from skuwise.tests.support.running_agent import RunningAgent
from skuwise.tests.support.stored_rows import rows
from skuwise.tests.unit.agent.service.test_driver import Driver, Told, opened

TRUTH = first_values(BUSY)
PLACES = "[gpu 0]\nbus_id = 00000000:14:00.0\n[gpu 1]\nbus_id = 00000000:24:00.0\n"  # beside mlx5_0 and mlx5_1
HOPPER = "[gpu 0-1]\n" + "".join(f"{name} = {value:.12g}\n" for name, value in TRUTH.items()) + PLACES
del TRUTH["nvlink_links"]


def test_the_views_say_what_the_scenario_says(tmp_path: Path) -> None:
    agent = RunningAgent(tmp_path, HOPPER, "--duration", "3s")
    _, said = agent.process.communicate(timeout=60)
    assert agent.process.returncode == 0 and "2 GPUs, 10 fabric ports" in said
    names = ("interval_seconds", "energy_joules", *TRUTH)
    samples = rows(agent.db, f"SELECT {', '.join(names)} FROM gpu_samples")
    assert len(samples) == 2 * 15
    for name, column in zip(names[2:], list(zip(*samples, strict=True))[2:], strict=True):
        seen = [number for number in column if number is not None]
        assert len(seen) >= 20 and seen == pytest.approx([TRUTH[name]] * len(seen), rel=0.03), name
    energies = [(seconds, joules) for seconds, joules, *_ in samples if joules is not None]
    for seconds, joules in energies:
        assert joules == pytest.approx(TRUTH["power_watts"] * seconds, rel=0.35)
    assert sum(joules for _, joules in energies) == pytest.approx(2 * TRUTH["power_watts"] * 3, rel=0.12)
    ports = rows(agent.db, "SELECT DISTINCT device, role, state, line_rate_bytes_per_second FROM fabric_samples")
    assert {port[:2] for port in ports} >= {("mlx5_0", "compute"), ("mlx5_1", "compute")}
    assert {port[2:] for port in ports} == {("ACTIVE", 50e9)}
    assert rows(agent.db, "SELECT count(*) FROM host_samples WHERE cpu_util IS NOT NULL") == [(15,)]
    ((node, count, version),) = rows(agent.db, "SELECT node, gpu_count, agent_version FROM nodes")
    assert count == 2 and version
    assert rows(agent.db, "SELECT sku FROM gpus") == [("H100-SXM5",)] * 2
    calls = read_calls(tmp_path)
    assert "nvmlDeviceGetPcieThroughput" not in calls
    assert calls["gpm.live_samples"] == 0
    assert main(["agent", "snapshot", str(tmp_path / "copy.db"), "--db", str(agent.db)]) == 0
    assert rows(tmp_path / "copy.db", "SELECT node FROM nodes") == [(node,)]


@pytest.mark.parametrize(
    ("request_line", "answer"),
    [
        *(
            (f'{{"command": "pause", "seconds": {seconds}}}', "A pause is")
            for seconds in ("1" + "0" * 400, "NaN", "-1", '"x"')
        ),
        *((nonsense, '"ok": false') for nonsense in ("", "[1]", '{"command": "format"}', "x" * 9000)),
    ],
)
def test_nothing_that_is_asked_for_ends_the_agent(tmp_path: Path, request_line: str, answer: str) -> None:
    thread = opened(Driver())
    path = tmp_path / "agent.sock"
    with contextlib.closing(ControlServer(path)) as server:
        supervised = Told(tmp_path, thread, server)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(f"{request_line}\n".encode())
            supervised.supervisor.attend()
            assert answer in client.recv(4096).decode()
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
        kept = {ts for (ts,) in rows(path, "SELECT ts FROM tick")}
        assert written and kept >= set(written)
        assert rows(path, "SELECT count(*) FROM gpu_samples") == [(8 * len(kept),)]
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]
