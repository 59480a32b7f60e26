"""A GPU's own readings from what runs on it: power, clocks, temperature, memory.

Rests on: power at rest with a context (hardware.py names the sources); decode on an H200 at 137 to 300 of 700 W; HBM
GPUs keep their memory clock at rest, GDDR GPUs drop it; clocks come in steps of 15 MHz and fall near the power limit;
NVML's utilization is a window of 1/6 to 1 second, so that it is coarse where the profiling fields are smooth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from .behaviors import Activity, Floats, still
from .hardware import GpuModel


@dataclass(frozen=True)
class Readings:
    """Of one physical GPU. `memory_mib` is what contexts hold."""

    watts: Floats
    joules: Floats
    sm_mhz: Floats
    memory_mhz: Floats
    celsius: Floats


def together(count: int, parts: Iterable[tuple[Activity, float, float]]) -> Activity:
    """What several do on one GPU: each with its share of the compute and of the memory."""
    total = {one.name: np.zeros(count) for one in fields(Activity)}
    for activity, compute, memory in parts:
        for name, values in total.items():
            share = memory if name in ("dram", "memory") else compute if name in ("engine", "sm", "tensor") else 1.0
            values += share * getattr(activity, name)
    unbounded = ("disk_read", "disk_write", "web")
    return Activity(**{name: v if name in unbounded else np.clip(v, 0, 1) for name, v in total.items()})


def nothing(count: int) -> Activity:
    return still((count,))


def readings(gpu: GpuModel, activity: Activity, interval_s: float, rng: np.random.Generator) -> Readings:
    rest, context = rng.uniform(*gpu.rest_watts), rng.uniform(*gpu.context_watts)
    lowest = np.where(activity.context > 0, max(context, rest + 1), rest)
    load = 0.08 * activity.engine + 0.12 * activity.sm + 0.52 * activity.tensor / 0.6 + 0.38 * activity.dram / 0.9
    mean = lowest + (gpu.limit_watts - lowest) * np.clip(load, 0.0, 0.99)
    at_rest = activity.engine < 0.005
    noise = np.where(at_rest, 0.004, 0.02) * rng.standard_normal(len(mean))
    watts = np.clip(mean * (1 + noise), rest * 0.97, gpu.limit_watts * 1.01)
    joules = np.cumsum(mean * interval_s) + rng.uniform(1e8, 4e9)
    near = np.clip((mean / gpu.limit_watts - 0.75) / 0.25, 0.0, 1.0)
    running = gpu.sm_mhz[1] * (1 - 0.2 * near) - np.where(at_rest, 0, rng.uniform(0, 20, len(mean)))
    sm = np.where(activity.context > 0, running, gpu.sm_mhz[0])
    memory = np.where(activity.context > 0, gpu.memory_mhz[1], gpu.memory_mhz[0])
    heat = rng.uniform(26, 33) + 45 * (mean - rest) / (gpu.limit_watts - rest)
    celsius = np.round(heat + 0.6 * rng.standard_normal(len(mean)))
    return Readings(np.round(watts, 3), joules, np.floor(sm / 15) * 15, memory.astype(float), celsius)


def utilization(engine: Floats, rng: np.random.Generator) -> Floats:
    """GPU_UTIL, whole percent: the share of a window of a second in which a kernel ran."""
    share = np.clip(engine, 1e-3, 0.999)
    firm = np.where(share > 0.85, 200.0, 4.0)
    seen = rng.beta(share * firm, (1 - share) * firm)
    return np.where(engine < 1e-3, 0.0, np.round(100 * np.where(share > 0.85, np.maximum(seen, share), seen)))
