"""The experiment behind the tests: work runs while the agent samples, and NVML is asked directly beside it."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml
from skuwise.agent.metrics import GPU_METRICS
from skuwise.agent.model import Gpu, Tick
from skuwise.rules.base.errors import NothingToDo, SourceError
from skuwise.tests.support.stored_rows import rows

WORKLOADS = Path(__file__).with_name("workloads.py")
Power = list[tuple[float, float, float]]


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
class Watched:
    """`figures`: what the work printed, known without asking the GPU's counters; `ticks`: of the GPU that worked, those
    that lie wholly inside the counted work; `absences`: metric and reason of what the agent could not read of it;
    `power`: what NVML itself said of it, polled beside the agent: Unix time, joules so far, watts now."""

    gpu: Gpu
    figures: Mapping[str, float]
    ticks: Sequence[Tick]
    absences: Sequence[tuple[str, str]]
    power: Power

    def per_second(self, *names: str) -> float:
        """The sum of the named figures over the time the work took."""
        return sum(self.figures[name] for name in names) / self.figures["seconds"]


Watch = Callable[[str, float], Watched]  # (workload, interval in seconds)


@contextmanager
def power_log(every_seconds: float = 0.1) -> Iterator[dict[str, Power]]:
    """Poll every GPU's energy and power while the block runs."""
    readings, handles, stop = dict[str, Power](), dict[str, Any](), threading.Event()

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
        yield readings
    finally:
        stop.set()
        thread.join()
        pynvml.nvmlShutdown()


def run_work(name: str, seconds: float, python: str) -> dict[str, Any]:
    """What one workload printed at its end. Raises NothingToDo where it cannot run here, SourceError where it fails."""
    command = [python, str(WORKLOADS), name, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 300, check=False)
    line = json.loads((done.stdout.splitlines() or ["{}"])[-1])
    if "skipped" in line:
        raise NothingToDo(f"The workload {name} cannot run here: {line['skipped']}.", "Set HARDWARE_PYTHON.")
    if done.returncode != 0:
        raise SourceError(f"The workload {name} failed: {done.stderr[-300:]}.", f"Try it alone: {' '.join(command)}")
    return line


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
                raise SourceError(f"The agent did not start: {log.read_text()[-300:]}", f"Read {log}.")
            time.sleep(0.1)
        yield
        time.sleep(2 * interval_seconds)  # the tick that ends after the work's last moment
        if process.poll() is not None:
            raise SourceError(f"The agent ended while it was needed: {log.read_text()[-300:]}", f"Read {log}.")
    finally:
        process.terminate()
        process.wait(timeout=60)


def _has_ticks(database: Path) -> bool:
    try:
        return bool(rows(database, "SELECT 1 FROM host_samples LIMIT 1"))
    except sqlite3.Error:
        return False  # no file, or no tables yet


def watch_work(name: str, interval_seconds: float, seconds: float, python: str, folder: Path) -> Watched:
    """Run the agent over one workload. Raises NothingToDo where the work cannot run here."""
    database = folder / "node.db"
    with agent(database, interval_seconds), power_log() as power:
        work = run_work(name, seconds, python)
    figures = work["truth"]
    uuid = work["gpu_uuid"] or next(iter(power))  # PyTorch need not say which GPU worked
    about = rows(database, "SELECT gpu_index, name, sku FROM gpus WHERE gpu_uuid = ? ORDER BY valid_from DESC", (uuid,))
    names = [metric.name for metric in GPU_METRICS]
    query = f"SELECT ts, interval_seconds, {', '.join(names)} FROM gpu_samples WHERE gpu_uuid = ?"
    # A millisecond is the step in which intervals are stored.
    span = (uuid, figures["started_at"] - 1e-3, figures["ended_at"])
    samples = rows(database, f"{query} AND ts - interval_seconds >= ? AND ts <= ? ORDER BY ts", span)
    if not samples:
        raise SourceError("The database holds no tick of that window.", "Let the work run for longer.")
    ticks = []
    for ts, interval, *values in samples:
        present = {metric: value for metric, value in zip(names, values, strict=True) if value is not None}
        ticks.append(Tick(ts, interval, {uuid: present}))
    absences = rows(database, "SELECT metric, reason FROM absences WHERE gpu_uuid = ?", (uuid,))
    index, gpu_name, sku = about[0]
    return Watched(Gpu(uuid, index, gpu_name, sku=sku), figures, ticks, absences, power[uuid])
