"""One workload as the agent saw it: run while the agent samples, then read from the agent's database."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pynvml
from skuwise.agent.metrics import GPU_METRICS
from skuwise.agent.model import Gpu, Tick
from skuwise.rules.base.errors import SourceError
from skuwise.tests.hardware import nvml_device
from skuwise.tests.hardware.observe import Truth, agent, run_work


@dataclass(frozen=True)
class Watched:
    """`ticks`: of the GPU that worked, those that lie wholly inside the counted work; `absences`: metric and reason of
    what the agent could not read of it."""

    truth: Truth
    gpu: Gpu
    ticks: list[Tick]
    absences: frozenset[tuple[str, str]]
    power: nvml_device.PowerLog

    @property
    def uuid(self) -> str:
        return self.gpu.uuid


Watch = Callable[[str, float], Watched]  # (workload, interval in seconds)


def watch_work(name: str, interval_seconds: float, seconds: float, python: str, folder: Path) -> Watched:
    """Run the agent over one workload. Raises NothingToDo where the work cannot run here."""
    database = folder / "node.db"
    with agent(database, interval_seconds), nvml_device.power_log() as power:
        truth = run_work(name, seconds, python)
    with nvml_device.device(truth.gpu_uuid) as handle:
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
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
