"""NVML asked directly, past skuwise: what the hardware tests hold the agent's figures against."""

import itertools
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pynvml


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


@contextmanager
def device(uuid: str | None = None) -> Iterator[Any]:
    """A handle of the GPU with `uuid`, else of the first, between nvmlInit and nvmlShutdown."""
    pynvml.nvmlInit()
    try:
        yield pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(0)
    finally:
        pynvml.nvmlShutdown()


def energy_joules(handle: Any) -> float:
    """Energy since the driver was loaded (Volta and newer)."""
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3


@dataclass(frozen=True)
class PowerLog:
    """What NVML itself said of power, polled beside the agent: GPU UUID -> (Unix time, joules so far, watts now)."""

    readings: Mapping[str, Sequence[tuple[float, float, float]]]

    def joules_between(self, uuid: str, start: float, end: float) -> float:
        """Energy drawn, interpolated between the readings next to each end. NaN where they do not reach so far."""
        return self._joules_at(uuid, end) - self._joules_at(uuid, start)

    def mean_watts(self, uuid: str, start: float, end: float) -> float:
        """Mean of the power readings. NaN where there are none."""
        watts = [w for ts, _, w in self.readings.get(uuid, ()) if start <= ts <= end]
        return sum(watts) / len(watts) if watts else math.nan

    def _joules_at(self, uuid: str, ts: float) -> float:
        for (t0, j0, _), (t1, j1, _) in itertools.pairwise(self.readings.get(uuid, ())):
            if t0 <= ts <= t1:
                return j0 + (j1 - j0) * (ts - t0) / (t1 - t0) if t1 > t0 else j0
        return math.nan


@contextmanager
def power_log(every_seconds: float = 0.1) -> Iterator[PowerLog]:
    """Poll every GPU's energy and power while the block runs."""
    readings: dict[str, list[tuple[float, float, float]]] = {}
    stop = threading.Event()

    def poll(handles: Mapping[str, Any]) -> None:
        while not stop.wait(every_seconds):
            for uuid, handle in handles.items():
                joules, watts = energy_joules(handle), pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
                readings[uuid].append((time.time(), joules, watts))

    pynvml.nvmlInit()
    try:
        found = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        handles = {str(pynvml.nvmlDeviceGetUUID(handle)): handle for handle in found}
        readings.update({uuid: [] for uuid in handles})
        thread = threading.Thread(target=poll, args=(handles,), daemon=True)
        thread.start()
        try:
            yield PowerLog(readings)
        finally:
            stop.set()
            thread.join()
    finally:
        pynvml.nvmlShutdown()
