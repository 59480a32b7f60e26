"""dcgm-exporter: its default metrics and labels, MIG instances, shared GPUs, and its known faults.

Rests on: dcgm-exporter's default-counters.csv, with the four profiling fields that are on by default; sample outputs
in its issues 68, 544, 713 and in dra-driver-nvidia-gpu issue 166 (instances carry the parent's gpu and UUID,
GPU_I_ID, GPU_I_PROFILE); issues 50, 105, 216, 430 (GPU_UTIL of instances absent or 0), 151, 201, 587 (one value for
each pod that shares a GPU); DCGM issues 152 (SM_ACTIVE of an instance above 1) and 303 (profiling fields at 0 after
an XID). Without a job, hpc_job is "0".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from skuwise.tests.server_metrics.prometheus_series import Series

from .behaviors import Activity, Floats
from .description import Hold, Node, Slice
from .device import Readings, nothing, readings, together, utilization
from .names import generated
from .world import Held, Mask, Target, World, address, target

RESET_S = 420.0
"""How long a GPU is gone while its instances are made anew (pods drained, GPU reset)."""
XID = 31.0


def exporter_pod(node: Node) -> str:
    return f"nvidia-dcgm-exporter-{generated(5, 'dcgm', node.name)}"


def dcgm(world: World, node: Node, rng: np.random.Generator) -> Iterator[Series]:
    if not node.observed.dcgm:
        return
    in_kubernetes = node.observed.kube
    instance = f"{address('dcgm', node.name) if in_kubernetes else node.name}:9400"
    at = target(world.fleet, world.clock, "nvidia-dcgm-exporter" if in_kubernetes else "dcgm", instance, rng)
    for index in range(node.machine.gpus):
        yield from _gpu(world, node, index, at, rng.spawn(1)[0])


def _gpu(world: World, node: Node, index: int, at: Target, rng: np.random.Generator) -> Iterator[Series]:
    slices, count = node.sliced(index), world.clock.count
    present = {one: _present(world, one) for one in slices}
    whole = ~world.sliced(node, index)
    holds = {one: world.held.get(Hold(node.name, index, one.instance), ()) for one in slices}
    of_gpu = world.held.get(Hold(node.name, index), ())
    parts = [(one.activity, 1.0, 1.0) for one in of_gpu]
    for one in slices:
        sevenths, memory = node.gpu.slices[one.profile]
        share = memory / node.gpu.memory_mib
        parts += [(held.activity.during(present[one]), sevenths / 7, share) for held in holds[one]]
    gpu = readings(node.gpu, together(count, parts), world.clock.interval_s, rng)
    stuck = _stuck(world, node, index)
    if not slices or whole.any():
        scene = _Device(world, node, index, at, whole, of_gpu, gpu, stuck, None)
        yield from _series(scene, together(count, [(one.activity, 1, 1) for one in of_gpu]), rng)
    if slices and node.observed.mig_parent:
        yield from _parent(world, node, index, at, ~whole, parts, gpu)
    for one in slices:
        activity = together(count, [(held.activity, 1, 1) for held in holds[one]])
        yield from _series(_Device(world, node, index, at, present[one], holds[one], gpu, stuck, one), activity, rng)


def _present(world: World, one: Slice) -> Mask:
    later = world.fleet.at(one.begin_day) + (RESET_S if one.begin_day > 0 else 0.0)
    return world.during(one.begin_day, one.end_day) & (world.clock.ts >= later)


def _stuck(world: World, node: Node, index: int) -> Mask:
    days = dict(node.observed.stuck_prof)
    return world.during(days[index], None) if index in days else np.zeros(world.clock.count, dtype=bool)


@dataclass(frozen=True)
class _Device:
    """A GPU or an instance as the exporter sees it."""

    world: World
    node: Node
    index: int
    at: Target
    present: Mask
    held: tuple[Held, ...]
    gpu: Readings
    stuck: Mask
    slice: Slice | None

    @property
    def memory_mib(self) -> int:
        return self.node.gpu.slices[self.slice.profile][1] if self.slice else self.node.gpu.memory_mib


def _series(device: _Device, activity: Activity, rng: np.random.Generator) -> Iterator[Series]:
    values = {**_common(device), **_memory(device, activity), **_profiled(device, activity, rng)}
    values.update(_utilization(device, activity, rng))
    for labels, when in _labeled(device):
        if when.any():
            for name, each in values.items():
                yield device.at.series(name, labels, each, when)


def _common(device: _Device) -> dict[str, Floats]:
    gpu = device.gpu
    return {
        "DCGM_FI_DEV_POWER_USAGE": gpu.watts, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": np.floor(gpu.joules * 1000),
        "DCGM_FI_DEV_SM_CLOCK": gpu.sm_mhz, "DCGM_FI_DEV_MEM_CLOCK": gpu.memory_mhz,
        "DCGM_FI_DEV_GPU_TEMP": gpu.celsius, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": np.zeros(len(gpu.watts)),
        "DCGM_FI_DEV_XID_ERRORS": np.where(device.stuck, XID, 0.0),
    }  # fmt: skip


def _memory(device: _Device, activity: Activity) -> dict[str, Floats]:
    total = device.memory_mib
    reserved = round(device.node.gpu.reserved_mib * total / device.node.gpu.memory_mib)
    overhead = np.where(activity.context > 0, 420.0, 12.0 if device.slice else 1.0)
    used = np.minimum(np.round(overhead + activity.memory * (total - reserved)), total - reserved - 8)
    return {
        "DCGM_FI_DEV_FB_USED": used, "DCGM_FI_DEV_FB_FREE": total - reserved - used,
        "DCGM_FI_DEV_FB_RESERVED": np.full(len(used), float(reserved)),
    }  # fmt: skip


def _utilization(device: _Device, activity: Activity, rng: np.random.Generator) -> dict[str, Floats]:
    if device.slice is not None:
        if device.node.observed.mig_util == "absent":
            return {}
        zero = np.zeros(len(activity.engine))
        return {"DCGM_FI_DEV_GPU_UTIL": zero, "DCGM_FI_DEV_MEM_COPY_UTIL": zero}
    copy = np.round(100 * np.clip(activity.dram * rng.uniform(0.75, 1.0, len(activity.dram)), 0, 1))
    return {"DCGM_FI_DEV_GPU_UTIL": utilization(activity.engine, rng), "DCGM_FI_DEV_MEM_COPY_UTIL": copy}


def _profiled(device: _Device, activity: Activity, rng: np.random.Generator) -> dict[str, Floats]:
    observed, gpu = device.node.observed, device.node.gpu
    nvlink = 2 * gpu.nvlink_bytes_per_second * activity.nvlink / 1e6
    links: dict[str, Floats] = {}
    if gpu.nvlink_bytes_per_second and device.slice is None:
        total = np.cumsum(nvlink * device.world.clock.interval_s) + 1e6
        links["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"] = np.round(nvlink if observed.nvlink == "rate" else total)
    if not observed.prof:
        return links
    ratios = {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": activity.engine, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": activity.tensor,
        "DCGM_FI_PROF_DRAM_ACTIVE": activity.dram,
    }  # fmt: skip
    if observed.more_prof:
        over = rng.uniform(0.95, 1.12, len(activity.sm)) if device.slice else np.ones(len(activity.sm))
        busy = activity.sm * np.where(activity.sm > 0.9, over, 1.0) if device.slice else activity.sm
        ratios |= {"DCGM_FI_PROF_SM_ACTIVE": busy, "DCGM_FI_PROF_SM_OCCUPANCY": 0.45 * activity.sm}
    values = {name: np.round(each, 6) for name, each in ratios.items()}
    if device.slice is None:
        if device.index in observed.prof_nvlink:
            for way in ("TX", "RX"):
                values[f"DCGM_FI_PROF_NVLINK_{way}_BYTES"] = np.round(gpu.nvlink_bytes_per_second * activity.nvlink)
        values["DCGM_FI_PROF_PCIE_TX_BYTES"] = np.round(gpu.pcie_bytes_per_second * activity.pcie_tx + 4e4)
        values["DCGM_FI_PROF_PCIE_RX_BYTES"] = np.round(gpu.pcie_bytes_per_second * activity.pcie_rx + 6e4)
    return {**links, **{name: np.where(device.stuck, 0.0, each) for name, each in values.items()}}


def base_labels(node: Node, index: int) -> dict[str, str]:
    hostname = node.name if node.observed.hostname == "node" else exporter_pod(node)
    return {
        "gpu": str(index), "UUID": node.uuid(index), "pci_bus_id": f"00000000:{0x18 + 0x11 * index:02X}:00.0",
        "device": f"nvidia{index}", "modelName": node.gpu.name, "Hostname": hostname,
        "DCGM_FI_DRIVER_VERSION": "550.90.07",
    }  # fmt: skip


def _labeled(device: _Device) -> Iterator[tuple[dict[str, str], Mask]]:
    """The label sets of a device and when each holds: one for each holder, one for the time without any."""
    observed = device.node.observed
    base = base_labels(device.node, device.index)
    if device.slice:
        base |= {"GPU_I_ID": str(device.slice.instance), "GPU_I_PROFILE": device.slice.profile}
    prefix = "exported_" if observed.pods == "exported" else ""
    if prefix:
        base |= {"namespace": "gpu-operator", "pod": exporter_pod(device.node), "container": "nvidia-dcgm-exporter"}
    free = device.present.copy()
    for one in device.held:
        work = one.workload
        if observed.hpc_job and work.hpc_job:
            labels = {"hpc_job": work.hpc_job}
        elif observed.pods != "none" and one.pod:
            container = container_of(work.image)
            labels = {f"{prefix}namespace": work.namespace, f"{prefix}pod": one.pod, f"{prefix}container": container}
        else:
            continue
        free &= ~one.mask
        yield base | labels, device.present & one.mask
    yield base | ({"hpc_job": "0"} if observed.hpc_job else {}), free


def container_of(image: str) -> str:
    """A container named after its image."""
    return image.rsplit("/", 1)[-1].split(":", 1)[0] or "main"


def _parent(
    world: World, node: Node, index: int, at: Target, sliced: Mask, parts: list[tuple[Activity, float, float]],
    gpu: Readings,
) -> Iterator[Series]:  # fmt: skip
    """The parent of instances itself: memory and power alone, without pods."""
    device = _Device(world, node, index, at, sliced, (), gpu, np.zeros(world.clock.count, dtype=bool), None)
    activity = together(world.clock.count, parts) if parts else nothing(world.clock.count)
    values = {**_common(device), **_memory(device, activity)}
    for name in ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"):
        yield at.series(name, base_labels(node, index), values[name], sliced)
