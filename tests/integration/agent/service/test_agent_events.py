"""The running agent: events in its database, let go by a pause; MIG instances that change under it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import StubClock, read_calls, stub_env

A = "GPU-00000000-0000-4000-8000-000000000000"
ONE, TWO = "MIG-00000000-0000-4000-8000-000000000000", "MIG-00000000-0000-4000-8000-000000000001"


class Agent:
    """An agent on a stub whose clock the test sets."""

    def __init__(self, folder: Path, scenario: str, *, stepped: bool = True) -> None:
        self.folder, self.db = folder, folder / "node.db"
        (folder / "sys" / "block").mkdir(parents=True)
        self.env = stub_env(folder, scenario, stepped=stepped)
        self.clock = StubClock(folder / "nvml.clock")
        command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(self.db), "--interval", "0.2s"]
        command += ["--path.sysfs", str(folder / "sys")]
        with (folder / "said").open("w") as said:
            self.process = subprocess.Popen(command, env=self.env, cwd=folder, stderr=said)

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)) as connection:
                return connection.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []  # not there yet

    def until(self, true: Callable[[], bool]) -> None:
        ends = time.monotonic() + 60
        while not true():
            assert time.monotonic() < ends, (self.folder / "said").read_text()
            time.sleep(0.1)

    def ask(self, *words: str) -> str:
        command = [sys.executable, "-m", "skuwise", "agent", *words, "--db", str(self.db)]
        return subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def status(self) -> dict[str, object]:
        return json.loads(self.ask("status", "--format", "json"))

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=30)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    running: list[Agent] = []

    def begin(scenario: str, **options: bool) -> Agent:
        running.append(Agent(tmp_path, scenario, **options))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait(timeout=60)


@pytest.mark.slow
def test_an_xid_is_kept_and_a_pause_lets_go_of_the_events_too(start: Callable[..., Agent]) -> None:
    agent = start("[gpu 0]\nevent = 5 0x8 79\nevent = 30 0x2 0\n")
    agent.until(lambda: bool(agent.rows("SELECT 1 FROM gpu_samples")))
    agent.clock.set(6.0)
    agent.until(lambda: bool(agent.rows("SELECT 1 FROM events")))
    assert agent.rows("SELECT gpu_uuid, kind, code, count, detail FROM events") == [
        (A, "xid", 79, 1, "GPU has fallen off the bus")
    ]
    assert "released" in agent.ask("pause", "--for", "10m")
    calls = read_calls(agent.folder)  # written when the driver was let go
    assert (calls["events.live_sets"], calls["nvmlEventSetFree"]) == (0, 1)
    agent.ask("resume")
    agent.until(lambda: agent.status()["state"] == "reading")
    agent.clock.set(31.0)
    agent.until(lambda: bool(agent.rows("SELECT 1 FROM events WHERE kind = 'ecc-double-bit'")))
    assert agent.stop() == 0
    assert read_calls(agent.folder)["events.live_sets"] == 0


@pytest.mark.slow
def test_a_wait_for_events_that_hangs_stops_nothing(start: Callable[..., Agent]) -> None:
    agent = start("[system]\ndelay_ms.nvmlEventSetWait_v2 = 0 5:600000\n[gpu 0]\n")
    agent.until(lambda: bool(agent.rows("SELECT 1 FROM gpu_samples")))
    agent.clock.set(6.0)
    absent = "SELECT since FROM absences WHERE device = 'events' AND reason = 'driver-hung'"
    agent.until(lambda: bool(agent.rows(absent)))
    ((since,),) = agent.rows(absent)
    agent.until(lambda: bool(agent.rows(f"SELECT 1 FROM gpu_samples WHERE ts > {since} + 1")))
    assert "released" in agent.ask("pause", "--for", "10m")
    assert agent.stop() == 0


@pytest.mark.slow
def test_instances_that_change_close_their_rows_and_begin_new_ones(start: Callable[..., Agent]) -> None:
    agent = start(
        "[gpu 0]\nmig_mode = 1\nsm_active = 0.5\n[mig 0/0]\nsm_active = 0.8\nexists = 1 6:0\n"
        "[mig 0/1]\nsm_active = 0.2\nexists = 0 6:1\n",
        stepped=False,
    )
    read = "SELECT 1 FROM gpu_samples WHERE gpu_uuid = '{}' AND sm_active > 0"
    agent.until(lambda: bool(agent.rows(read.format(ONE))))
    agent.until(lambda: bool(agent.rows(read.format(TWO))))
    columns = "gpu_uuid, kind, parent_uuid, sku, slices, mig_profile, valid_to IS NULL"
    sku = "H100-SXM5"
    assert agent.rows(f"SELECT {columns} FROM gpus ORDER BY gpu_uuid, valid_from") == [
        (A, "gpu", None, sku, None, None, 1),
        (ONE, "mig", A, sku, 1, "1g.10gb", 0),
        (TWO, "mig", A, sku, 1, "1g.10gb", 1),
    ]
    assert agent.rows("SELECT gpu_count FROM nodes") == [(1,)]
    assert agent.status()["gpus"] == 1
    assert agent.stop() == 0
    assert "sampling 1 GPUs (1 MIG instances)" in (agent.folder / "said").read_text()
    hours = agent.rows("SELECT gpu_uuid FROM gpu_hours ORDER BY gpu_uuid")
    assert {uuid for (uuid,) in hours} == {A, ONE, TWO}
