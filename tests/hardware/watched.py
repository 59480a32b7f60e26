"""The experiment behind the tests: work runs while the agent samples, and NVML is asked directly beside it."""

import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
from skuwise.agent.metrics import GPU_METRICS
from skuwise.agent.model import Gpu, Tick
from skuwise.rules.base.errors import NothingToDo, SourceError


def no_gpu_reason() -> str | None:
    """Why there is no real GPU to test on, or None. The NVML test double is not one."""
    if os.environ.get("SKUWISE_NVML_SCENARIO"):
        return "the NVML test double is loaded (SKUWISE_NVML_SCENARIO is set)"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"there is no NVIDIA driver to talk to (nvmlInit: {error})"
    try:
        return None if pynvml.nvmlDeviceGetCount() else "the NVIDIA driver sees no GPU"
    finally:
        pynvml.nvmlShutdown()


@dataclass(frozen=True)
class PowerLog:
    """What NVML itself said of power, polled beside the agent: GPU UUID -> (Unix time, joules so far, watts now)."""

    readings: Mapping[str, Sequence[tuple[float, float, float]]]

    def joules_between(self, uuid: str, start: float, end: float) -> float:
        """Energy drawn, interpolated between the readings next to each end. NaN where they do not reach so far."""
        times, joules, _ = zip(*self.readings[uuid], strict=True)
        first, last = np.interp((start, end), times, joules, left=math.nan, right=math.nan)
        return float(last - first)

    def mean_watts(self, uuid: str, start: float, end: float) -> float:
        """Mean of the power readings. NaN where there are none."""
        watts = [w for ts, _, w in self.readings.get(uuid, ()) if start <= ts <= end]
        return sum(watts) / len(watts) if watts else math.nan


@contextmanager
def power_log(every_seconds: float = 0.1) -> Iterator[PowerLog]:
    """Poll every GPU's energy and power while the block runs."""
    readings: dict[str, list[tuple[float, float, float]]] = {}
    stop, handles = threading.Event(), dict[str, Any]()

    def poll() -> None:
        while not stop.wait(every_seconds):
            for uuid, handle in handles.items():
                joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3  # since the driver was loaded
                readings[uuid].append((time.time(), joules, pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3))

    pynvml.nvmlInit()
    for number in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        handles[str(pynvml.nvmlDeviceGetUUID(handle))] = handle
    readings.update({uuid: [] for uuid in handles})
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield PowerLog(readings)
    finally:
        stop.set()
        thread.join()
        pynvml.nvmlShutdown()


WORKLOADS = Path(__file__).with_name("workloads.py")
_EXIT_NOTHING = 3


@dataclass(frozen=True)
class Truth:
    """What a workload printed. `figures`: known without asking the GPU's counters, absent where the work has no such
    figure; `gpu_uuid`: the GPU that worked, None where none did or PyTorch does not say."""

    figures: Mapping[str, float]
    gpu_uuid: str | None

    def per_second(self, *names: str) -> float:
        """The sum of the named figures over the time the work took."""
        return sum(self.figures[name] for name in names) / self.figures["seconds"]


def run_work(name: str, seconds: float, python: str) -> Truth:
    """Run one workload to its end. Raises NothingToDo where it cannot run here, SourceError where it fails."""
    command = [python, str(WORKLOADS), name, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 300, check=False)
    if done.returncode not in (0, _EXIT_NOTHING):
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise SourceError(f"The workload {name} failed: {last[0][:300]}.", f"Try it alone: {' '.join(command)}")
    line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if "skipped" in line:
        raise NothingToDo(f"The workload {name} cannot run here: {line['skipped']}.", "Name another Python: --python")
    return Truth(line["truth"], line["gpu_uuid"])


@contextmanager
def agent(database: Path, interval_seconds: float) -> Iterator[None]:
    """An agent that samples into `database`, from its first stored tick until the block ends."""
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(database)]
    command += ["--interval", f"{interval_seconds * 1000:g}ms"]
    log = database.with_suffix(".log")
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        give_up = time.monotonic() + 30.0
        while not _has_ticks(database):
            if process.poll() is not None or time.monotonic() > give_up:
                raise SourceError(f"The agent did not start: {_tail(log)}", f"Read {log}.")
            time.sleep(0.1)
        yield
        time.sleep(2 * interval_seconds)  # the tick that ends after the work's last moment
        if process.poll() is not None:
            raise SourceError(f"The agent ended while it was needed: {_tail(log)}", f"Read {log}.")
    finally:
        process.terminate()
        process.wait(timeout=60)


def _has_ticks(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM host_samples)").fetchone()[0])
    except sqlite3.Error:
        return False  # no file, or no tables yet


def _tail(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1][:300]


@dataclass(frozen=True)
class Watched:
    """`ticks`: of the GPU that worked, those that lie wholly inside the counted work; `absences`: metric and reason of
    what the agent could not read of it."""

    truth: Truth
    gpu: Gpu
    ticks: list[Tick]
    absences: frozenset[tuple[str, str]]
    power: PowerLog

    @property
    def uuid(self) -> str:
        return self.gpu.uuid


Watch = Callable[[str, float], Watched]  # (workload, interval in seconds)


def watch_work(name: str, interval_seconds: float, seconds: float, python: str, folder: Path) -> Watched:
    """Run the agent over one workload. Raises NothingToDo where the work cannot run here."""
    database = folder / "node.db"
    with agent(database, interval_seconds), power_log() as power:
        truth = run_work(name, seconds, python)
    uuid = truth.gpu_uuid or next(iter(power.readings))
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        gpu, ticks = read_ticks(connection, uuid, truth.figures["started_at"], truth.figures["ended_at"])
        absences = connection.execute("SELECT metric, reason FROM absences WHERE gpu_uuid = ?", (uuid,))
        return Watched(truth, gpu, ticks, frozenset(absences.fetchall()), power)


def read_ticks(connection: sqlite3.Connection, uuid: str, since: float, until: float) -> tuple[Gpu, list[Tick]]:
    """A GPU, and what a database holds of it in intervals that lie wholly in [since, until]. Raises SourceError where
    that is nothing."""
    connection.row_factory = sqlite3.Row
    (about,) = connection.execute("SELECT * FROM gpus WHERE gpu_uuid = ? ORDER BY valid_from DESC LIMIT 1", (uuid,))
    # A millisecond is the step in which intervals are stored.
    inside = "gpu_uuid = ? AND ts - interval_seconds >= ? AND ts <= ? ORDER BY ts"
    rows = connection.execute(f"SELECT * FROM gpu_samples WHERE {inside}", (uuid, since - 1e-3, until)).fetchall()
    connection.row_factory = None
    if not rows:
        raise SourceError("The database holds no tick of that window.", "Let the work run for longer.")
    names = [metric.name for metric in GPU_METRICS]
    ticks = [
        Tick(row["ts"], row["interval_seconds"], {uuid: {n: row[n] for n in names if row[n] is not None}})
        for row in rows
    ]  # fmt: skip
    return Gpu(uuid, about["gpu_index"], about["name"], sku=about["sku"]), ticks
