"""The agent killed, stopped and continued under load: the database opens, is whole, and lost no tick it committed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.sysfs_trees import dgx_like

SCENARIO = """
[gpu 0-7]
name = NVIDIA H100 80GB HBM3
nvlink_links = 18
sm_active = 0.5
power_watts = 412
mem_used_bytes = 1073741824
"""


def agent_in(folder: Path) -> tuple[list[str], dict[str, str]]:
    _, bus_ids = dgx_like(folder / "sys")
    (folder / "sys" / "block").mkdir(exist_ok=True)
    places = "".join(f"[gpu {i}]\nbus_id = {bus_id}\n" for i, bus_id in enumerate(bus_ids[:8]))
    env = stub_env(folder, SCENARIO + places)
    arguments = ["agent", "run", "--db", str(folder / "node.db"), "--interval", "0.1s"]
    return [sys.executable, "-m", "skuwise", *arguments, "--path.sysfs", str(folder / "sys")], env


@pytest.fixture
def command(tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    return agent_in(tmp_path)


def ticks(db: Path) -> set[int]:
    """The ids of all committed ticks, read as a stranger would while the agent is still writing."""
    connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=60)
    try:
        return {row[0] for row in connection.execute("SELECT id FROM tick")}
    finally:
        connection.close()


def check_whole(db: Path) -> None:
    connection = sqlite3.connect(db, timeout=60)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        connection.close()


def killed(command: list[str], env: dict[str, str], folder: Path, chance: random.Random) -> int:
    """How many ticks were committed when it was killed; none of them is missing afterwards."""
    db = folder / "node.db"
    process = subprocess.Popen(command, env=env, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr as said:
        line = said.readline()
        assert "sampling" in line
        time.sleep(chance.uniform(0.0, 2.5))
        before = ticks(db)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    assert before <= ticks(db)
    return len(before)


@pytest.mark.slow
def test_a_killed_agent_loses_nothing_that_was_committed(command, tmp_path: Path, seed_of) -> None:
    arguments, env = command
    for seed in range(2):
        killed(arguments, env, tmp_path, random.Random(seed_of(seed)))
        check_whole(tmp_path / "node.db")


@pytest.mark.slow
def test_a_stop_and_go_leaves_a_gap_and_no_invented_tick(command, tmp_path: Path) -> None:
    arguments, env = command
    process = subprocess.Popen(arguments, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr as said:
        assert "sampling" in said.readline()
        time.sleep(0.6)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.8)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    assert process.returncode == 0
    connection = sqlite3.connect(tmp_path / "node.db")
    stamps = [row[0] for row in connection.execute("SELECT ts FROM tick ORDER BY ts").fetchall()]
    missed = connection.execute("SELECT sum(missed_ticks) FROM agent_stats").fetchone()[0]
    connection.close()
    assert max(later - earlier for earlier, later in itertools.pairwise(stamps)) >= 1.4
    assert missed >= 10
    check_whole(tmp_path / "node.db")
