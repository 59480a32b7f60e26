"""The agent as a person runs it, on a node whose every value is known: the views say what the scenario says."""

import contextlib
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from skuwise.agent.service.control import ControlServer
from skuwise.tests.integration.agent.sources.test_nvml_truth import BUSY, first_values
from skuwise.tests.nvmlstub import read_calls, stub_env
from skuwise.tests.support.hanging_driver import Driver
from skuwise.tests.support.sysfs_trees import dgx_like
from skuwise.tests.unit.agent.service.test_driver import Told, opened

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


@pytest.mark.parametrize("seconds", ["1" + "0" * 400, "NaN", "-1", '"x"'])
def test_no_pause_that_is_asked_for_ends_the_agent(tmp_path: Path, seconds: str) -> None:
    thread = opened(Driver())
    path = tmp_path / "agent.sock"
    with contextlib.closing(ControlServer(path)) as server:
        told = Told(tmp_path, thread, server)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(f'{{"command": "pause", "seconds": {seconds}}}\n'.encode())
            told.supervisor.attend()
            assert b"A pause is" in client.recv(4096)
    told.lock.close()
