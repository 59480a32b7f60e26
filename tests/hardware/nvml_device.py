"""NVML asked directly, past skuwise: what the hardware tests hold the agent's figures against."""

from __future__ import annotations

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

ENERGY_FIELD, NVLINK_FIELDS, PCIE_FIELDS = 83, (138, 139, 140, 141, 202, 204), (197, 198)  # nvml.h
ALL_LINKS = 0xFFFFFFFF
_UNSIGNED = {1: "uiVal", 2: "ulVal", 3: "ullVal"}  # nvmlValueType_t: unsigned int, long, long long


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


@dataclass(frozen=True)
class FieldReading:
    """One field value. `value` None: `code` (nvmlReturn_t) says why, or the type is not an unsigned number."""

    field: int
    scope: int
    value: int | None
    code: int
    latency_seconds: float


def read_fields(handle: Any, wanted: Sequence[tuple[int, int]]) -> list[FieldReading]:
    """`wanted`: (field id, scope id). One driver call."""
    values = pynvml.nvmlDeviceGetFieldValues(handle, list(wanted))
    return [
        FieldReading(
            field,
            scope,
            getattr(v.value, _UNSIGNED[v.valueType]) if v.nvmlReturn == 0 and v.valueType in _UNSIGNED else None,
            int(v.nvmlReturn),
            v.latencyUsec * 1e-6,
        )
        for (field, scope), v in zip(wanted, values, strict=True)
    ]


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


@dataclass(frozen=True)
class EnergySteps:
    """How the energy counter moves: seconds between changes and joules a change, over `seconds`, medians."""

    seconds: float
    reads: int
    changes: int
    period_seconds: float | None
    step_joules: float | None


def energy_steps(handle: Any, seconds: float) -> EnergySteps:
    """Read field 83 as fast as it answers and look when it moves."""
    began = time.perf_counter()
    last: int | None = None
    moves: list[tuple[float, int]] = []
    reads = 0
    while (now := time.perf_counter() - began) < seconds:
        value = read_fields(handle, [(ENERGY_FIELD, 0)])[0].value
        reads += 1
        if value is not None and last is not None and value != last:
            moves.append((now, value - last))
        last = value if value is not None else last
    gaps = sorted(later[0] - earlier[0] for earlier, later in itertools.pairwise(moves))
    steps = sorted(step for _, step in moves)
    return EnergySteps(
        seconds,
        reads,
        len(moves),
        gaps[len(gaps) // 2] if gaps else None,
        steps[len(steps) // 2] / 1e3 if steps else None,
    )


def call_seconds(calls: int, call: Any) -> tuple[float, float]:
    """Median and worst time of `call` over so many calls."""
    times: list[float] = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    times.sort()
    return times[len(times) // 2], times[-1]
