"""The agent on real disks that take nothing: full or read-only from the start, and full under way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.sysfs_trees import dgx_like

pytestmark = [
    pytest.mark.slow,  # the agent looks every 10 s whether the disk takes something
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "fill").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


class Running:
    """An agent whose database lies on the disk, and its socket elsewhere."""

    def __init__(self, folder: Path, disk: Path) -> None:
        dgx_like(folder / "sys")
        (folder / "sys" / "block").mkdir(exist_ok=True)
        (folder / "skuwise.toml").touch()
        self.db, self.socket = disk / "node.db", folder / "agent.sock"
        self.env, self.folder = stub_env(folder, "[gpu 0-1]\nname = NVIDIA H100 80GB HBM3\nsm_active = 0.5\n"), folder
        command = [sys.executable, "-m", "skuwise", "agent", "run", "--config", str(folder / "skuwise.toml")]
        command += ["--db", str(self.db), "--socket", str(self.socket), "--interval", "0.2s", "--listen", "127.0.0.1:0"]
        command += ["--path.sysfs", str(folder / "sys")]
        self.process = subprocess.Popen(command, env=self.env, cwd=folder, stderr=subprocess.PIPE, text=True)

    def said(self, words: str) -> str:
        assert self.process.stderr is not None
        heard = []
        for line in self.process.stderr:
            if words in line:
                return line
            heard.append(line)
        raise AssertionError(f"it ended without saying {words!r}: {heard}")

    def status(self) -> dict[str, object]:
        command = [sys.executable, "-m", "skuwise", "agent", "status", "--socket", str(self.socket), "--format", "json"]
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=60)) as connection:
            return connection.execute(sql).fetchall()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@pytest.fixture
def start(tmp_path: Path, disk: Path) -> Iterator[Callable[[], Running]]:
    running: list[Running] = []

    def begin() -> Running:
        running.append(Running(tmp_path, disk))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait(timeout=60)
        assert one.process.stderr is not None
        one.process.stderr.close()


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(0.2)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


@pytest.mark.parametrize("fault", ["disk-full", "store-read-only"])
def test_a_start_on_a_disk_that_takes_nothing_samples_and_recovers(
    start: Callable[[], Running], disk: Path, fault: str
) -> None:
    if fault == "disk-full":
        fill(disk)
    else:
        remount(disk, "ro")
    agent = start()
    page = agent.said("metrics at").split()[-1]
    agent.said(f"nothing is written ({fault})")
    until(lambda: int(str(agent.status()["waiting_ticks"])) >= 5)
    assert agent.status()["store"] == fault
    with urllib.request.urlopen(page, timeout=60) as answer:
        assert f'reason="{fault}"'.encode() in answer.read()
    mended_at = time.time()
    if fault == "disk-full":
        (disk / "fill").unlink()
    else:
        remount(disk, "rw")
    agent.said("written again")
    assert agent.status()["store"] == "writing"
    assert agent.stop() == 0
    ((since, ended),) = agent.rows(f"SELECT since, until FROM absences WHERE reason = '{fault}'")
    assert float(str(since)) < mended_at <= float(str(ended))
    assert len(agent.rows(f"SELECT DISTINCT ts FROM host_samples WHERE ts < {mended_at}")) >= 5
    assert agent.rows("SELECT count(*) FROM absences WHERE reason = 'ticks-lost'") == [(0,)]
    assert len(agent.rows("SELECT DISTINCT gpu_uuid FROM gpu_samples")) == 2


def test_a_disk_that_fills_under_way_costs_nothing_and_holds_a_reload_back(
    start: Callable[[], Running], disk: Path
) -> None:
    agent = start()
    agent.said("sampling")
    fill(disk)
    agent.said("nothing is written (disk-full)")
    agent.process.send_signal(signal.SIGHUP)
    agent.said("the settings are read again when the database can be written")
    assert agent.status()["waiting_ticks"]
    (disk / "fill").unlink()
    agent.said("sampling")  # the reload, once all is written
    until(lambda: agent.rows("SELECT until IS NOT NULL FROM absences WHERE reason = 'disk-full'") == [(1,)])
    assert agent.stop() == 0
    assert agent.rows("SELECT count(*) FROM absences WHERE reason = 'ticks-lost'") == [(0,)]
    assert agent.rows("PRAGMA integrity_check") == [("ok",)]
