"""Commands of the agent in this process, on a node without a GPU; tests/integration runs them on one."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import pytest
from skuwise.__main__ import main
from skuwise.agent.service.driver.bursts import next_start
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.sysfs_trees import Procfs, dgx_like

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def agent(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    dgx_like(tmp_path / "sys")
    (tmp_path / "sys/block").mkdir()
    proc = Procfs(tmp_path / "proc")
    proc.cpu(user=5, idle=5)
    proc.memory(1000, 600)
    proc.disks({"sda": (1, 2)})
    monkeypatch.setenv("SKUWISE_DB", str(tmp_path / "node.db"))
    monkeypatch.setenv("SKUWISE_DCGM_URL", "")
    monkeypatch.setattr("skuwise.agent.service.diagnostics.slurm_checks.ask_scontrol", lambda _: None)

    def run(command: str, *arguments: str, reads: bool = True) -> tuple[int, str, str]:
        paths = ("--path.sysfs", str(tmp_path / "sys"), "--path.procfs", str(tmp_path / "proc")) if reads else ()
        status = main(["agent", command, *arguments, *paths])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def test_once_prints_what_can_be_read(agent: Run) -> None:
    status, out, _ = agent("once", "--format", "json")
    reading = json.loads(out)
    assert status == 0 and reading["gpus"] == [] and reading["host"]["mem_used_bytes"] == 400 * 1024
    assert {port["device"] for port in reading["fabric"]} >= {"mlx5_0", "mlx5_1"}
    assert "no-driver" in {absence["reason"] for absence in reading["absences"]}
    _, table, _ = agent("once")
    assert "No GPU can be read here." in table and "mlx5_0/1" in table and "agent doctor" in table


def test_doctor_names_each_cause_with_its_remedy(agent: Run) -> None:
    status, out, _ = agent("doctor", "--format", "json")
    lines = json.loads(out)
    assert status == 0
    assert all(line["detail"] and line["remedy"] for line in lines if line["status"] == "absent")
    assert any(line["source"] == "infiniband" and line["status"] == "read" for line in lines)
    assert "Remedy:" in agent("doctor")[1]


def test_run_stores_what_can_be_read(agent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise SkuwiseError("No socket here.", "None.")

    monkeypatch.setattr("skuwise.agent.service.runtime.daemon.ControlServer", refuse)
    monkeypatch.setattr("skuwise.agent.service.runtime.daemon.roll_all", lambda *_, **__: None)
    status, _, err = agent("run", "--interval", "0.1s", "--duration", "0.5s")
    assert status == 0 and "no GPU can be read" in err and "stopped after 5 ticks" in err
    with sqlite3.connect(tmp_path / "node.db") as connection:
        assert connection.execute("SELECT count(*) FROM host_samples").fetchone() == (5,)
        assert connection.execute("SELECT node FROM nodes").fetchone() == ("gpu-node-17",)
        ports = connection.execute("SELECT DISTINCT device FROM fabric_samples").fetchall()
        reasons = {reason for (reason,) in connection.execute("SELECT reason FROM absences")}
    assert ("mlx5_0",) in ports and "no-driver" in reasons
    status, _, err = agent("snapshot", str(tmp_path / "copy.db"), reads=False)
    assert status == 0 and (tmp_path / "copy.db").exists(), err


def test_where_no_agent_runs_its_commands_say_so(agent: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> NoReturn:
        raise FileNotFoundError

    monkeypatch.setattr(socket.socket, "connect", nobody)
    for command in ("status", "resume", "pause"):
        status, _, err = agent(command, reads=False)
        assert status == 1 and "No agent listens" in err


def test_an_unknown_option_is_wrong_usage(agent: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        agent("once", "--fromat", "json")
    assert ended.value.code == 2 and "--format" in capsys.readouterr().err


NOW = 1.8e9


def test_one_burst_a_window_and_never_two_close_together() -> None:
    starts = [next_start("gpu-017", NOW, 300.0)]
    for _ in range(500):
        starts.append(next_start("gpu-017", starts[-1], 300.0))
    windows = [int(start // 300) for start in starts]
    assert windows == list(range(windows[0], windows[0] + 501))
    assert min(b - a for a, b in pairwise(starts)) >= 150.0
    offsets = sorted(start % 300 for start in starts)
    assert offsets[0] < 10 and offsets[-1] > 140  # work that repeats every 300 s is met at many points


def test_a_fleet_does_not_pulse_together_and_a_restart_changes_nothing() -> None:
    starts = [next_start(f"gpu-{i:04d}", NOW, 300.0) for i in range(1000)]
    busiest = max(sum(moment <= start < moment + 10 for start in starts) for moment in sorted(starts))
    assert busiest < 120  # of 1,000 nodes, bursts of 10 s at one time
    assert next_start("gpu-0001", starts[1] - 1.0, 300.0) == starts[1]
