"""One workload, watched by the agent and by NVML's power counters: what the hardware tests compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pynvml
from skuwise.agent.model import Gpu, Tick
from skuwise.tests.hardware import nvml_device, observe
from skuwise.tests.hardware.export import export_window
from skuwise.tests.hardware.recordings import Label, Made, RecordingHeader


@dataclass(frozen=True)
class Watched:
    """One workload as the agent saw it: only ticks that lie wholly inside the counted work.

    `gpu` is the GPU that worked, under its recorded (made-up) UUID; `power` knows it by its true one.
    """

    truth: observe.Truth
    header: RecordingHeader
    ticks: list[Tick]
    gpu: Gpu
    power: nvml_device.PowerLog
    true_uuid: str

    @property
    def uuid(self) -> str:
        return self.gpu.uuid


Watch = Callable[[str, float], Watched]  # (workload, interval in seconds)


def watch_work(name: str, interval_seconds: float, seconds: float, python: str, folder: Path) -> Watched:
    """Run the agent over one workload. Raises NothingToDo where the work cannot run here."""
    database = folder / "node.db"
    with observe.agent(database, interval_seconds), nvml_device.power_log() as power:
        truth = observe.run_work(name, seconds, python=python)
    header, ticks = export_window(
        database,
        truth.figures["started_at"],
        truth.figures["ended_at"],
        label=Label(**truth.label),  # type: ignore[arg-type] - the workload's own labels
        made=Made("hardware", f"watching {name}", "2026-01-01T00:00:00Z"),
        interval_seconds=interval_seconds,
        truth=truth.figures,
        versions=truth.versions,
    )
    with nvml_device.device(truth.gpu_uuid) as handle:
        index, uuid = pynvml.nvmlDeviceGetIndex(handle), str(pynvml.nvmlDeviceGetUUID(handle))
    gpu = next(gpu for gpu in header.gpus if gpu.index == index)
    return Watched(truth, header, ticks, gpu, power, uuid)
