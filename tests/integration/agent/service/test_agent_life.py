"""The agent's life from outside: a driver that hangs, pauses, reloads, events, MIG, a full disk, a kill."""

import contextlib
import os
import signal
import stat
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from skuwise.tests.integration.agent.sources.test_nvml_truth import ONE, TWO, A
from skuwise.tests.nvmlstub import read_calls
from skuwise.tests.support.running_agent import GPUS, RunningAgent, until

Start = Callable[..., RunningAgent]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[RunningAgent] = []

    def begin(*arguments: str, **options: object) -> RunningAgent:
        running.append(RunningAgent(tmp_path, *arguments, **options))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for running_agent in running:
        running_agent.end()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_hung_driver_makes_the_gpus_absent_and_is_read_again_once_it_answers(start: Start) -> None:
    scenario = f"{GPUS}delay_ms.nvmlDeviceGetUtilizationRates = 0 5:4000 6:0\n"
    agent = start(scenario, supervised=True, stepped=True)
    until(lambda: agent.rows("SELECT 1 FROM gpu_samples") and agent.status()["state"] == "reading")
    agent.clock.set(5.5)
    agent.said("driver-hung")
    agent.told("driver-hung")
    agent.told("WATCHDOG=1")  # the watchdog is still fed
    assert agent.status()["state"] == "driver-hung"
    agent.clock.set(7.0)
    agent.said("read again")
    ended = "SELECT count(DISTINCT gpu_uuid), count(until) = count(*) FROM absences WHERE reason = 'driver-hung'"
    until(lambda: agent.rows(f"{ended} AND gpu_uuid IS NOT NULL") == [(2, 1)])
    assert agent.stop() == 0


@pytest.mark.parametrize(
    ("call", "hangs"),
    [
        ("nvmlInitWithFlags", "600000"),
        ("nvmlDeviceGetName", "600000"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "0 3:600000"),
        ("nvmlShutdown", "600000"),
    ],
)
def test_the_agent_ends_whatever_call_hangs(start: Start, call: str, hangs: str) -> None:
    agent = start(f"{GPUS}[system]\ndelay_ms.{call} = {hangs}\n")
    if hangs.startswith("0"):
        agent.said("driver-hung")
    elif call == "nvmlShutdown":
        agent.said("2 GPUs")
    until(agent.db.with_name("node.db.lock").exists)  # it listens to signals from before it has its lock
    assert agent.stop() == 0


def test_a_pause_outlives_a_restart_and_the_socket_is_for_the_owner_and_the_group(start: Start) -> None:
    agent = start()
    agent.said("2 GPUs")
    assert stat.S_IMODE(agent.socket.stat().st_mode) == 0o660
    agent.ask("pause")
    agent.process.kill()
    agent.process.wait(timeout=60)
    agent = start()
    agent.said("sampling")
    assert agent.status()["state"] == "paused"
    agent.ask("resume")
    until(lambda: agent.status()["state"] == "reading")
    until(lambda: len(agent.rows("SELECT gpu_uuid FROM gpus WHERE valid_to IS NULL")) == 2)
    assert agent.stop() == 0
    assert not agent.socket.exists()


def test_sighup_takes_new_settings_and_keeps_the_old_ones_where_they_are_wrong(start: Start) -> None:
    agent = start(GPUS, supervised=True)
    agent.said("sampling")
    agent.told("READY=1")
    agent.config.write_text('cluster = "train-7"\n')
    agent.process.send_signal(signal.SIGHUP)
    assert any("MONOTONIC_USEC=" in line for line in agent.told("RELOADING=1"))
    agent.told("READY=1")
    agent.config.write_text('clutser = "train-8"\n')
    agent.process.send_signal(signal.SIGHUP)
    assert "clutser" in agent.said("the new settings are not taken")
    agent.told("READY=1")
    assert agent.stop() == 0
    assert agent.told("STOPPING=1")
    assert agent.rows("SELECT cluster FROM nodes") == [("train-7",)]


def test_a_driver_changed_under_the_agent_makes_it_end_for_a_restart(start: Start) -> None:
    agent = start("[system]\nfault.nvmlInitWithFlags = !18\n" + GPUS, supervised=True)
    assert "driver was changed" in agent.said("Stopping for a restart")
    assert agent.process.wait(timeout=30) == 1
    assert len(agent.rows("SELECT 1 FROM absences WHERE reason = 'self-restart'")) == 1


def test_a_pause_lets_go_of_the_driver_and_its_events_and_resume_takes_them_up(start: Start) -> None:
    agent = start("[gpu 0]\nsm_active = 0.5\nevent = 5 0x8 79\nevent = 30 0x2 0\n", stepped=True, nics=False)
    until(lambda: agent.rows("SELECT 1 FROM gpu_samples"))
    agent.clock.set(6.0)
    until(lambda: agent.rows("SELECT 1 FROM events"))
    assert agent.rows("SELECT gpu_uuid, kind, code, count, detail FROM events") == [
        (A, "xid", 79, 1, "GPU has fallen off the bus")
    ]
    assert "GPUs released" in agent.ask("pause", "--for", "30m").stdout
    calls = read_calls(agent.folder)  # written when the driver was released
    assert (calls["events.live_sets"], calls["nvmlEventSetFree"], calls["gpm.live_samples"]) == (0, 1, 0)
    status = agent.status()
    assert status["state"] == "paused" and 1700 < float(str(status["pause_left_seconds"])) <= 1800
    assert agent.ask("pause", "--for", "2h", check=False).returncode == 1
    agent.ask("resume")
    until(lambda: agent.status()["state"] == "reading")
    agent.clock.set(31.0)
    until(lambda: agent.rows("SELECT 1 FROM events WHERE kind = 'ecc-double-bit'"))
    assert agent.stop() == 0
    absences = agent.rows("SELECT until FROM absences WHERE reason = 'paused'")
    assert len(absences) >= 2 and all(ended for (ended,) in absences)


def test_instances_that_change_close_their_rows_and_begin_new_ones(start: Start) -> None:
    agent = start(
        "[gpu 0]\nmig_mode = 1\nsm_active = 0.5\n[mig 0/0]\nsm_active = 0.8\nexists = 1 6:0\n"
        "[mig 0/1]\nsm_active = 0.2\nexists = 0 6:1\n",
        nics=False,
    )
    agent.said("sampling 1 GPUs (1 MIG instances)")
    for uuid in (ONE, TWO):
        until(lambda uuid=uuid: agent.rows(f"SELECT 1 FROM gpu_samples WHERE gpu_uuid = '{uuid}' AND sm_active > 0"))
    columns = "gpu_uuid, kind, parent_uuid, sku, slices, mig_profile, valid_to IS NULL"
    assert agent.rows(f"SELECT {columns} FROM gpus ORDER BY gpu_uuid, valid_from") == [
        (A, "gpu", None, "H100-SXM5", None, None, 1),
        (ONE, "mig", A, "H100-SXM5", 1, "1g.10gb", 0),
        (TWO, "mig", A, "H100-SXM5", 1, "1g.10gb", 1),
    ]
    assert agent.rows("SELECT gpu_count FROM nodes") == [(1,)] and agent.status()["gpus"] == 1
    assert agent.stop() == 0
    assert {uuid for (uuid,) in agent.rows("SELECT gpu_uuid FROM gpu_hours")} == {A, ONE, TWO}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root")
@pytest.mark.parametrize("fault", ["disk-full", "store-read-only"])
def test_a_start_on_a_disk_that_takes_nothing_samples_and_recovers(start: Start, disk: Path, fault: str) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

    if fault == "disk-full":
        with contextlib.suppress(OSError), (disk / "fill").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    else:
        remount("ro")
    agent = start(GPUS, "--listen", "127.0.0.1:0", db=disk / "node.db")
    page = agent.said("metrics at").split()[-1]
    agent.said(f"nothing is written ({fault})")
    until(lambda: int(str(agent.status()["waiting_ticks"])) >= 5)
    assert agent.status()["store"] == fault
    with urllib.request.urlopen(page, timeout=60) as answer:
        assert f'reason="{fault}"'.encode() in answer.read()
    mended_at = time.time()
    (disk / "fill").unlink() if fault == "disk-full" else remount("rw")
    agent.said("written again")
    assert agent.status()["store"] == "writing"
    assert agent.stop() == 0
    ((since, ended),) = agent.rows(f"SELECT since, until FROM absences WHERE reason = '{fault}'")
    assert float(str(since)) < mended_at <= float(str(ended))
    assert len(agent.rows(f"SELECT DISTINCT ts FROM host_samples WHERE ts < {mended_at}")) >= 5
