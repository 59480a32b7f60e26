"""Nodes as agents of many sorts read them: GPM, a dcgm-exporter, the driver alone; and GPUs cut into MIG instances.

Hopper and newer have GPM, which gives everything each second. Older parts have the driver's own gauges and, where
somebody runs a dcgm-exporter, means over 30 s of the fields that are on in its list (dcgm-exporter's
default-counters.csv has tensor, DRAM and PCIe, but not SM_ACTIVE, SM_OCCUPANCY and NVLink).
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from skuwise.advisor.core.fleet_identity import simulated_hex
from skuwise.advisor.demo.hardware import PER_GPU, Floats, Load, Model, SimGpu, SimNode
from skuwise.advisor.demo.writer import Array, Counters
from skuwise.advisor.demo.writer import observe as observe_whole
from skuwise.agent.model import Absence, Gpu

# A dcgm-exporter that was set to one second, one at its own 30 s with all fields or with its default list, or the
# driver's gauges alone.
Sensing = Literal["gpm", "dcgm-1s", "dcgm", "dcgm-default", "nvml"]

_PROFILED = (
    "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active", "fp16_active",
)  # fmt: skip
_UNREAD: dict[Sensing, tuple[str, ...]] = {
    "nvml": _PROFILED,
    "dcgm-default": tuple(name for name in _PROFILED if name not in ("tensor_active", "dram_active")),
}
_PAGE_SECONDS = 30  # dcgm-exporter's own interval
# What the driver reports of a MIG instance: its memory, and GPM where the GPU has it.
_OF_INSTANCES = ("mem_used_bytes", *_PROFILED)
_OF_PARENTS_ONLY = ("gpu_util", "power_watts", "energy_joules", "sm_clock_hertz", "temperature_celsius")
# Memory slices (of eight) of an instance by its compute slices (of seven): NVIDIA's MIG user guide, A100 and H100.
_MEMORY_SLICES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}


@dataclass(frozen=True, slots=True)
class SensedNode(SimNode):
    """A node whose agent reads as `sensing` says, and whose `gpus` may hold instances after the GPUs themselves."""

    sensing: Sensing

    @property
    def instances(self) -> npt.NDArray[np.bool_]:
        return np.array([gpu.kind == "mig" for gpu in self.gpus])

    @property
    def parents(self) -> npt.NDArray[np.bool_]:
        """By device: whether it is a GPU that is cut into instances."""
        parents = {gpu.parent_uuid for gpu in self.gpus}
        return np.array([gpu.uuid in parents for gpu in self.gpus])

    @property
    def unread(self) -> tuple[str, ...]:
        return _UNREAD.get(self.sensing, ())

    def absences(self) -> list[Absence]:
        """What `observe` leaves out, with the reasons that an agent gives."""
        reason = ("not-exported", "The exporter does not export this field.")
        if self.sensing == "nvml":
            reason = ("not-supported", "This GPU has no GPM, and no dcgm-exporter runs on this node.")
        absences = [Absence("gpu", gpu.uuid, name, *reason) for gpu in self.gpus for name in self.unread]
        whole = "The driver reports this for the whole GPU only; see the parent of the instance."
        for gpu, instance, parent in zip(self.gpus, self.instances, self.parents, strict=True):
            hidden = _OF_PARENTS_ONLY if instance else ("gpu_util", *_PROFILED) if parent else ()
            absences += [Absence("gpu", gpu.uuid, name, "mig", whole) for name in hidden]
        return absences


def sensed_node(sim: SimNode, sensing: Sensing | None, instances: tuple[int, ...]) -> SensedNode:
    """`sim` with its agent. `sensing`: None for GPM where the GPU has it, else a dcgm-exporter at 1 s. `instances`:
    compute slices of the MIG instances into which every GPU is cut."""
    cut = [_instance(gpu, number, size) for gpu in sim.gpus for number, size in enumerate(instances)]
    usual: Sensing = "gpm" if sim.gpu.sku.architecture in ("Hopper", "Blackwell") else "dcgm-1s"
    return SensedNode(sim.node, sim.sku, sim.gpu, (*sim.gpus, *cut), sim.ports, sensing or usual)


def _instance(parent: Gpu, number: int, slices: int) -> Gpu:
    digest = simulated_hex("mig", parent.uuid, str(number))
    size = (parent.mem_total_bytes or 0) * _MEMORY_SLICES[slices] / 8
    profile = f"{slices}g.{round(size / 1e9 / 5) * 5}gb"
    return Gpu(
        uuid=f"MIG-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}",
        index=parent.index,
        name=f"{parent.name} MIG {profile}",
        sku=parent.sku,
        kind="mig",
        parent_uuid=parent.uuid,
        slices=slices,
        mig_profile=profile,
        pci_bus_id=parent.pci_bus_id,
        mem_total_bytes=int(size),
        driver_version=parent.driver_version,
    )


class Sliced(Model):
    """A workload on one instance of `slices`: its model, on a GPU of that size."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        return self.inner.load(t, age, gpus, slice_of(gpu, self.slices))


def scale(load: Load, share: npt.NDArray[np.floating]) -> None:
    """Let the work itself be `share` (0..1) of what it is, with memory and context held as before."""
    for name in PER_GPU[: PER_GPU.index("mem_used_bytes")]:
        getattr(load, name)[:] *= share.astype(np.float32)


def slice_of(gpu: SimGpu, slices: int) -> SimGpu:
    """A GPU as an instance of `slices` compute slices sees it: its share of SMs, memory and bandwidth, no NVLink."""
    of_memory = _MEMORY_SLICES[slices] / 8
    sku = dataclasses.replace(
        gpu.sku,
        dense_flops={name: rate * slices / 7 for name, rate in gpu.sku.dense_flops.items()},
        mem_bytes=int(gpu.sku.mem_bytes * of_memory),
        mem_bandwidth_bytes_per_second=gpu.sku.mem_bandwidth_bytes_per_second * of_memory,
        nvlink_bytes_per_second=None,
    )
    return dataclasses.replace(gpu, sku=sku)


def observe(
    load: Load, node: SimNode, rng: np.random.Generator, window_seconds: int, *, scraped: bool = False
) -> Counters:
    """The counters that this node's agent has: a metric left out is missing on all its GPUs, NaN on one or at times.

    `window_seconds`: length of each stretch in it, which is contiguous unless it was `scraped`: by a server from an
    exporter, which shows how busy an instance's engine is and gives means anyway.
    """
    if not isinstance(node, SensedNode):
        return observe_whole(load, node, rng, window_seconds)
    instances, parents = node.instances, node.parents
    if instances.any():
        _add_instances(load, node)
    seen = observe_whole(load, node, rng, window_seconds)
    gpus: dict[str, Array] = {}
    for name, values in seen.gpus.items():
        if name in node.unread:
            continue
        by_page = name in _PROFILED and node.sensing in ("dcgm", "dcgm-default") and not scraped
        gpus[name] = _pages(values, window_seconds) if by_page else values
        hidden = parents if name in (*_PROFILED, "gpu_util") else np.zeros_like(parents)
        if name not in _OF_INSTANCES and not (scraped and name == "gpu_util"):
            hidden = hidden | instances
        if hidden.any():
            gpus[name] = np.where(hidden[:, None], np.float32(np.nan), gpus[name])
    return dataclasses.replace(seen, gpus=gpus)


def _add_instances(load: Load, node: SensedNode) -> None:
    """Give each GPU in MIG mode the sum of its instances: it draws their power and holds their memory."""
    place = {gpu.uuid: index for index, gpu in enumerate(node.gpus)}
    for index, gpu in enumerate(node.gpus):
        if gpu.parent_uuid is None or gpu.slices is None:
            continue
        parent = place[gpu.parent_uuid]
        for name in ("compute", "memory", "vector", "sm", "occupancy", "pcie_tx", "pcie_rx", "mem_used_bytes"):
            share = {"memory": _MEMORY_SLICES[gpu.slices] / 8, "mem_used_bytes": 1}.get(name, gpu.slices / 7)
            values = getattr(load, name)
            values[parent] += values[index] * share
        for name in ("engine", "resident", "context_power"):
            values = getattr(load, name)
            values[parent] = np.maximum(values[parent], values[index])


def _pages(values: Array, window_seconds: int) -> Array:
    """Means over the exporter's interval, each on the one second on which its page arrived."""
    if window_seconds % _PAGE_SECONDS:
        return values
    pages = values.reshape(len(values), -1, _PAGE_SECONDS)
    kept = np.full(pages.shape, np.nan, dtype=np.float32)
    kept[..., -1] = pages.mean(axis=2, dtype=np.float64)
    return kept.reshape(values.shape)
