"""What a workload asks of its GPUs and its host, second by second, before any counter sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Self

import numpy as np
import numpy.typing as npt

from .hardware import SimGpu

Floats = npt.NDArray[np.float64]

PER_GPU = (
    "compute", "memory", "vector", "sm", "occupancy", "engine", "nvlink", "pcie_tx", "pcie_rx", "fabric_tx",
    "fabric_rx", "mem_used_bytes", "resident", "context_power", "clock_loss", "throttle", "cap_loss", "heat", "blind",
)  # fmt: skip
PER_HOST = ("cpu", "io_wait", "disk_read", "disk_write", "storage_tx", "storage_rx", "host_mem")


class Load(SimpleNamespace):
    """Demand at n seconds on g GPUs, 0 at first: `PER_GPU` (g, n), or (1, n) where all do the same, `PER_HOST` (n,).

    `compute` and `memory` are relative to what the SKU sustains (u in the advice's terms: 1 is the roofline's corner),
    `nvlink` and `pcie` are bytes per second and GPU, `fabric_*` a share of the compute ports' line rate. `resident`
    says whether a context is held, `context_power` by how much that lifts idle power.

    What slows a GPU from outside: `clock_loss` is the share of the SM clock taken away, `throttle` NVML's bits that say
    why, `cap_loss` the share by which somebody set the power limit below the SKU's, `heat` degrees beyond what its own
    power explains. `blind` is 1 where the profiling counters stand at zero whatever runs.
    """

    def __init__(self, gpus: int, seconds: int) -> None:
        shapes = dict.fromkeys(PER_GPU, (gpus, seconds)) | dict.fromkeys(PER_HOST, (seconds,))
        super().__init__(**{name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()})

    def place(self, other: Load, gpus: list[int], where: slice | npt.NDArray[np.bool_]) -> None:
        """Put `other` on these GPUs of this node's load, at these seconds; host demand adds up."""
        for name in PER_GPU:
            getattr(self, name)[gpus, where] = getattr(other, name)
        for name in PER_HOST:
            getattr(self, name)[where] += getattr(other, name)


class Model(SimpleNamespace):
    """A workload's behaviour, pure in time, so that any second can be asked for. Parameters are named as drawn."""

    def but(self, **changed: object) -> Self:
        """The same with some parameters changed."""
        return type(self)(**(vars(self) | changed))

    def with_context(self, seconds: int) -> Load:
        """A load in which nothing but a context is held, by `context_power`."""
        load = Load(1, seconds)
        load.resident[:], load.context_power[:] = 1.0, self.context_power
        return load

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        """Demand in the seconds that end at `t` (Unix seconds), `age` seconds after the (re)start, per GPU and node."""
        raise NotImplementedError
