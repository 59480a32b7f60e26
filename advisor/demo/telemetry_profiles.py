"""What an agent can read on a node: GPM gives everything each second, a dcgm-exporter means over 30 s, NVML little.

Hopper and newer have GPM. Older parts have the driver's own gauges and, where somebody runs a dcgm-exporter, the fields
that are on in its list (dcgm-exporter's default-counters.csv has tensor, DRAM and PCIe, but neither SM_ACTIVE,
SM_OCCUPANCY nor NVLink).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...agent.model import Absence
from .hardware import SimNode

Array = npt.NDArray[np.float32]

_PROFILED = (
    "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active", "fp16_active",
)  # fmt: skip
_DEFAULT_FIELDS = ("tensor_active", "dram_active")
_PAGE_SECONDS = 30  # dcgm-exporter's own interval
# What the driver tells of a MIG instance: its memory, and GPM where the GPU has it.
_OF_INSTANCES = ("mem_used_bytes", *_PROFILED)
_WHOLE = "The driver reports this for the whole GPU only; see the parent of the instance."
_NO_GPM = "This GPU has no GPM, and no dcgm-exporter runs on this node."
_NOT_EXPORTED = "The exporter does not export this field."


def sensed(
    counters: dict[str, Array], node: SimNode, window_seconds: int, *, scraped: bool = False
) -> dict[str, Array]:
    """The counters that this node's agent has: a metric left out is missing on all its GPUs, NaN on one or at times.

    `scraped`: by a server from an exporter, which tells how busy an instance's engine is and gives means anyway.
    """
    counters = dict(counters)
    for name in _PROFILED:
        if name in _unread(node):
            del counters[name]
        elif node.sensing in ("dcgm", "dcgm-default") and not scraped:
            counters[name] = _pages(counters[name], window_seconds)
    if node.has_slices:
        instances = np.array([gpu.kind == "mig" for gpu in node.gpus])
        parents = ~instances & node.sliced
        for name, values in counters.items():
            hidden = parents if name in (*_PROFILED, "gpu_util") else np.zeros_like(parents)
            if name not in _OF_INSTANCES and not (scraped and name == "gpu_util"):
                hidden = hidden | instances
            if hidden.any():
                counters[name] = np.where(hidden[:, None], np.float32(np.nan), values)
    return counters


def absences(node: SimNode) -> list[Absence]:
    """What `sensed` leaves out, with the reasons that an agent gives."""
    found = [
        Absence("gpu", gpu.uuid, name, *_reason(node))
        for gpu in node.gpus
        for name in _PROFILED
        if name in _unread(node)
    ]
    if node.has_slices:
        for gpu, sliced in zip(node.gpus, node.sliced, strict=True):
            hidden: tuple[str, ...] = ()
            if gpu.kind == "mig":
                hidden = ("gpu_util", "power_watts", "energy_joules", "sm_clock_hertz", "temperature_celsius")
            elif sliced:
                hidden = ("gpu_util", *_PROFILED)
            found += [Absence("gpu", gpu.uuid, name, "mig", _WHOLE) for name in hidden]
    return found


def _unread(node: SimNode) -> tuple[str, ...]:
    if node.sensing == "nvml":
        return _PROFILED
    return tuple(n for n in _PROFILED if n not in _DEFAULT_FIELDS) if node.sensing == "dcgm-default" else ()


def _reason(node: SimNode) -> tuple[str, str]:
    return ("not-supported", _NO_GPM) if node.sensing == "nvml" else ("not-exported", _NOT_EXPORTED)


def _pages(values: Array, window_seconds: int) -> Array:
    """Means over the exporter's interval, each on the one second on which its page arrived."""
    page = _PAGE_SECONDS
    if window_seconds % page:
        return values
    gpus, seconds = values.shape
    means = values.reshape(gpus, seconds // page, page).mean(axis=2, dtype=np.float64)
    kept = np.full((gpus, seconds // page, page), np.nan, dtype=np.float32)
    kept[..., -1] = means
    return kept.reshape(gpus, seconds)
