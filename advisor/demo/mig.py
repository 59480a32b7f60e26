"""MIG: a GPU cut into instances, each with whole memory slices and SMs of its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .hardware import MEMORY_SLICES, SimGpu, SimNode
from .load import PER_GPU, Load, Model

Floats = npt.NDArray[np.float64]

_ADDS = ("compute", "memory", "vector", "sm", "occupancy", "pcie_tx", "pcie_rx")


@dataclass(frozen=True, slots=True)
class Sliced:
    """A workload on one instance: its model, on a GPU of that size."""

    inner: Model
    slices: int

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        return self.inner.load(t, age, gpus, slice_of(gpu, self.slices))


def slice_of(gpu: SimGpu, slices: int) -> SimGpu:
    """A GPU as an instance of `slices` compute slices sees it: its share of SMs, memory and bandwidth, no NVLink."""
    of_memory = MEMORY_SLICES[slices] / 8
    sku = gpu.sku
    return dataclasses.replace(
        gpu,
        sku=dataclasses.replace(
            sku,
            dense_flops={name: rate * slices / 7 for name, rate in sku.dense_flops.items()},
            mem_bytes=int(sku.mem_bytes * of_memory),
            mem_bandwidth_bytes_per_second=sku.mem_bandwidth_bytes_per_second * of_memory,
            nvlink_bytes_per_second=None,
        ),
    )


def of_whole_gpus(load: Load, node: SimNode) -> None:
    """Give each GPU in MIG mode the sum of its instances: it draws their power and holds their memory."""
    place = {gpu.uuid: index for index, gpu in enumerate(node.gpus)}
    for index, gpu in enumerate(node.gpus):
        if gpu.kind != "mig" or gpu.parent_uuid is None or gpu.slices is None:
            continue
        parent = place[gpu.parent_uuid]
        by_memory = MEMORY_SLICES[gpu.slices] / 8
        for name in _ADDS:
            share = by_memory if name == "memory" else gpu.slices / 7
            getattr(load, name)[parent] += getattr(load, name)[index] * share
        load.mem_used_bytes[parent] += load.mem_used_bytes[index]
        for name in PER_GPU:
            if name in ("engine", "resident", "context_power"):
                values = getattr(load, name)
                values[parent] = np.maximum(values[parent], values[index])
