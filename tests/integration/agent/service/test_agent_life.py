"""The agent's life: a driver that hangs, pauses, reloads, a second agent, systemd's datagrams, from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import StubClock, read_calls, stub_env
from skuwise.tests.support.sysfs_trees import dgx_like

GPUS = "[gpu 0-1]\nname = NVIDIA H100 80GB HBM3\nsm_active = 0.5\n"


class Running:
    """An agent that runs, and what it said to systemd."""

    def __init__(self, folder: Path, scenario: str, *arguments: str, supervised: bool = False, stepped: bool = False):
        self.folder, self.db = folder, folder / "node.db"
        if not (folder / "sys").exists():
            dgx_like(folder / "sys")
            (folder / "sys" / "block").mkdir(exist_ok=True)
        self.env = stub_env(folder, scenario, stepped=stepped)
        self.config = folder / "skuwise.toml"
        self.config.touch()
        self.manager: socket.socket | None = None
        if supervised:
            self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.manager.bind(str(folder / "notify"))
            self.manager.settimeout(60)
            self.env |= {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "2000000"}
        self.command = [sys.executable, "-m", "skuwise", "agent", "run", "--config", str(self.config), "--db"]
        self.command += [str(self.db), "--interval", "0.2s", "--path.sysfs", str(folder / "sys"), *arguments]
        self.process = subprocess.Popen(self.command, env=self.env, cwd=folder, stderr=subprocess.PIPE, text=True)

    def said(self, words: str) -> str:
        """The line of stderr that has `words`, once it comes."""
        assert self.process.stderr is not None
        heard = []
        for line in self.process.stderr:
            if words in line:
                return line
            heard.append(line)
        raise AssertionError(f"it ended without saying {words!r}: {heard}")

    def told(self, words: str) -> list[str]:
        """What systemd was told, up to the datagram that has `words`."""
        assert self.manager is not None
        heard: list[str] = []
        while not heard or words not in heard[-1]:
            heard.append(self.manager.recv(4096).decode())
        return heard

    def ask(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "skuwise", "agent", *words, "--db", str(self.db)]
        return subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=check, timeout=60
        )

    def state(self) -> str:
        return json.loads(self.ask("status", "--format", "json").stdout)["state"]

    def rows(self, sql: str) -> list[dict[str, object]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql)]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def begin(scenario: str = GPUS, *arguments: str, **options: bool) -> Running:
        running.append(Running(tmp_path, scenario, *arguments, **options))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait(timeout=60)
        if one.process.stderr is not None:
            one.process.stderr.close()
        if one.manager is not None:
            one.manager.close()


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_hung_driver_makes_the_gpus_absent_and_the_rest_goes_on(start: Callable[..., Running]) -> None:
    agent = start(GPUS + "delay_ms.nvmlDeviceGetUtilizationRates = 0 5:600000\n", supervised=True, stepped=True)
    agent.said("2 GPUs")
    until(lambda: agent.state() == "reading")
    StubClock(agent.folder / "nvml.clock").set(6.0)
    agent.said("driver-hung")
    agent.told("driver-hung")
    agent.told("WATCHDOG=1")  # the watchdog is still fed
    before = agent.rows("SELECT count(*) AS n FROM host_samples")[0]["n"]
    until(lambda: agent.rows("SELECT count(*) AS n FROM host_samples")[0]["n"] > before + 5)  # type: ignore[operator]
    assert agent.state() == "driver-hung"
    absent = agent.rows("SELECT gpu_uuid FROM absences WHERE reason = 'driver-hung' AND gpu_uuid IS NOT NULL")
    assert len(absent) == 2
    later = "SELECT 1 FROM host_samples WHERE ts > (SELECT coalesce(max(ts), 0) + 1 FROM gpu_samples)"
    until(lambda: bool(agent.rows(later)))
    assert agent.stop() == 0
    assert agent.rows("SELECT count(*) AS n FROM fabric_samples WHERE tx_bytes_per_second IS NOT NULL")[0]["n"] > 10  # type: ignore[operator]


@pytest.mark.slow  # the driver sleeps for 2.5 s, and what is seen afterwards waits for its commits
def test_a_driver_that_answers_again_is_read_again_and_the_late_reading_is_dropped(
    start: Callable[..., Running],
) -> None:
    agent = start(GPUS + "delay_ms.nvmlDeviceGetUtilizationRates = 0 5:2500 6:0\n", stepped=True)
    agent.said("2 GPUs")
    clock = StubClock(agent.folder / "nvml.clock")
    clock.set(5.5)
    agent.said("driver-hung")
    clock.set(7.0)
    agent.said("read again")
    until(lambda: agent.rows("SELECT max(ts) - min(ts) > 3 AS s FROM gpu_samples")[0]["s"] == 1)
    assert agent.rows("SELECT count(*) AS n FROM absences WHERE reason = 'driver-hung' AND until IS NULL")[0]["n"] == 0
    assert agent.stop() == 0


@pytest.mark.slow
def test_pause_lets_go_of_the_driver_and_resume_takes_it_up(start: Callable[..., Running]) -> None:
    agent = start()
    agent.said("2 GPUs")
    assert "GPUs released" in agent.ask("pause", "--for", "30m").stdout
    assert read_calls(agent.folder)["gpm.live_samples"] == 0  # written by the stub at nvmlShutdown
    status = json.loads(agent.ask("status", "--format", "json").stdout)
    assert status["state"] == "paused"
    assert 1700 < status["pause_left_seconds"] <= 1800
    assert "pause_left_seconds" in agent.ask("status").stdout
    assert agent.ask("pause", "--for", "2h", check=False).returncode == 1
    agent.ask("resume")
    until(lambda: agent.state() == "reading")
    assert agent.stop() == 0
    absences = agent.rows("SELECT until FROM absences WHERE reason = 'paused'")
    assert len(absences) >= 2 and all(row["until"] for row in absences)


@pytest.mark.slow
def test_a_pause_outlives_a_restart(start: Callable[..., Running], tmp_path: Path) -> None:
    agent = start()
    agent.said("2 GPUs")
    agent.ask("pause")
    agent.process.kill()
    agent.process.wait(timeout=60)
    again = start()
    again.said("sampling")
    assert again.state() == "paused"
    again.ask("resume")
    until(lambda: again.state() == "reading")
    until(lambda: len(again.rows("SELECT gpu_uuid FROM gpus WHERE valid_to IS NULL")) == 2)
    assert again.stop() == 0


@pytest.mark.slow
def test_the_socket_is_for_the_owner_and_the_group_alone(start: Callable[..., Running]) -> None:
    agent = start()
    agent.said("sampling")
    path = agent.folder / "node.db.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    for nonsense in (
        b"\n",
        b"[1]\n",
        b'{"command": "format"}\n',
        b'{"command": "pause", "seconds": 1e999}\n',
        b"x" * 9000,
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(60)
            client.connect(str(path))
            with contextlib.suppress(BrokenPipeError):
                client.sendall(nonsense)
            with contextlib.suppress(ConnectionResetError):
                assert json.loads(client.recv(4096))["ok"] is False
    assert agent.state() == "reading"
    assert agent.stop() == 0
    assert not path.exists()


def test_no_agent_no_answer(start: Callable[..., Running], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "skuwise", "agent", "status", "--db", str(tmp_path / "none.db")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "No agent listens" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_sighup_takes_new_settings_and_keeps_the_old_ones_where_they_are_wrong(start: Callable[..., Running]) -> None:
    agent = start(GPUS, supervised=True)
    agent.said("sampling")
    agent.told("READY=1")
    agent.config.write_text('cluster = "train-7"\n')
    agent.process.send_signal(signal.SIGHUP)
    assert any("MONOTONIC_USEC=" in one for one in agent.told("RELOADING=1"))
    agent.told("READY=1")
    agent.config.write_text('clutser = "train-8"\n')
    agent.process.send_signal(signal.SIGHUP)
    assert "clutser" in agent.said("the new settings are not taken")
    agent.told("READY=1")
    agent.config.write_text(f'db = "{agent.db}"\n')
    assert agent.stop() == 0
    assert agent.told("STOPPING=1")
    assert agent.rows("SELECT cluster FROM nodes") == [{"cluster": "train-7"}]


@pytest.mark.slow
def test_a_second_agent_is_refused_and_told_who_holds_the_file(start: Callable[..., Running]) -> None:
    agent = start()
    agent.said("sampling")
    code = (
        "import sys; from pathlib import Path; from skuwise.agent.service.runtime.db_lock import DatabaseLock\n"
        "DatabaseLock.take(Path(sys.argv[1]), wait_seconds=0.2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(agent.db)], capture_output=True, text=True, check=False, env=os.environ
    )
    assert f"PID {agent.process.pid}" in done.stderr
    assert agent.stop() == 0


@pytest.mark.slow
def test_a_driver_changed_under_the_agent_makes_it_end_for_a_restart_once(start: Callable[..., Running]) -> None:
    version = "[system]\ndriver = 570.86.15\n"
    (tmp := start(version + GPUS, supervised=True)).said("2 GPUs")
    assert tmp.stop() == 0
    file = tmp.folder / "sys/module/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text("580.1.2\n")
    assert tmp.manager is not None
    tmp.manager.close()
    (tmp.folder / "notify").unlink()
    agent = start(version + GPUS, supervised=True)
    assert "580.1.2" in agent.said("Stopping for a restart")
    assert agent.process.wait(timeout=30) == 1
    assert agent.rows("SELECT count(*) AS n FROM absences WHERE reason = 'self-restart'")[0]["n"] == 1
    assert agent.manager is not None
    agent.manager.close()
    (tmp.folder / "notify").unlink()
    again = start(version + GPUS, supervised=True)
    assert "within the last hour" in again.said("does not restart itself")
    assert again.stop() == 0
