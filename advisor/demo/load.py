"""What a workload asks of its GPUs and its host, second by second, before any counter sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .hardware import SimGpu

Array = npt.NDArray[np.float32]


def zeros(*shape: int) -> Array:
    return np.zeros(shape, dtype=np.float32)


@dataclass(slots=True)
class Load:
    """Demand at n seconds on g GPUs. Per-GPU arrays are (g, n), or (1, n) where all GPUs do the same; host: (n,).

    `compute` and `memory` are relative to what the SKU sustains (u in the advice's terms: 1 is the roofline's corner),
    `nvlink` and `pcie` are bytes per second and GPU, `fabric_*` a share of the compute ports' line rate. `resident`
    says whether a context is held, `context_power` by how much that lifts idle power.

    What slows a GPU from outside: `clock_loss` is the share of the SM clock taken away, `throttle` NVML's bits that say
    why, `cap_loss` the share by which somebody set the power limit below the SKU's, `heat` degrees beyond what its own
    power explains. `blind` is 1 where the profiling counters stand at zero whatever runs.
    """

    compute: Array
    memory: Array
    vector: Array
    sm: Array
    occupancy: Array
    engine: Array
    nvlink: Array
    pcie_tx: Array
    pcie_rx: Array
    fabric_tx: Array
    fabric_rx: Array
    mem_used_bytes: Array
    resident: Array
    context_power: Array
    clock_loss: Array
    throttle: Array
    cap_loss: Array
    heat: Array
    blind: Array
    cpu: Array
    io_wait: Array
    disk_read: Array
    disk_write: Array
    storage_tx: Array
    storage_rx: Array
    host_mem: Array

    def scale(self, share: npt.NDArray[np.floating]) -> None:
        """Let the work itself be `share` (0..1) of what it is, with memory and context held as before."""
        for name in WORK:
            values = getattr(self, name)
            values *= share.astype(np.float32)

    @classmethod
    def none(cls, gpus: int, seconds: int) -> Load:
        """No demand at all."""
        shape = (gpus, seconds)
        return cls(*(zeros(*shape) for _ in PER_GPU), *(zeros(seconds) for _ in PER_HOST))

    def place(self, other: Load, gpus: list[int], where: slice) -> None:
        """Put `other` on these GPUs of this node's load, at these seconds; host demand adds up."""
        for name in PER_GPU:
            getattr(self, name)[gpus, where] = getattr(other, name)
        for name in PER_HOST:
            getattr(self, name)[where] += getattr(other, name)


PER_GPU = (
    "compute", "memory", "vector", "sm", "occupancy", "engine", "nvlink", "pcie_tx", "pcie_rx", "fabric_tx",
    "fabric_rx", "mem_used_bytes", "resident", "context_power", "clock_loss", "throttle", "cap_loss", "heat", "blind",
)  # fmt: skip
# What stands still when nothing is asked of a workload.
WORK = (
    "compute", "memory", "vector", "sm", "occupancy", "engine", "nvlink", "pcie_tx", "pcie_rx", "fabric_tx",
    "fabric_rx",
)  # fmt: skip
PER_HOST = ("cpu", "io_wait", "disk_read", "disk_write", "storage_tx", "storage_rx", "host_mem")


class Model(Protocol):
    """A workload's behaviour: pure in time, so that any second can be asked for."""

    def load(self, t: npt.NDArray[np.float64], age: npt.NDArray[np.float64], gpus: int, gpu: SimGpu) -> Load:
        """Demand in the seconds that end at `t` (Unix seconds), `age` seconds after the (re)start, per GPU and node."""
        ...
