"""What NVML tells of a MIG instance: its memory and its processes. All else it tells of the whole GPU only."""

from __future__ import annotations

import ctypes

import pynvml

from ...model import GPU_METRICS
from ..counters import CounterRates
from .gpm import UNITS
from .nvml_errors import FUNCTION_NOT_FOUND, MIG_UTILISATION, MIG_WHOLE
from .nvml_gauges import Complaint, GpuGauges
from .nvml_session import NvmlDevice, NvmlSession

_OWN = frozenset({"mem_used_bytes", *(one.metric for one in UNITS)})
_WHOLE: tuple[Complaint, ...] = tuple(
    (metric.name, MIG_UTILISATION if metric.name == "gpu_util" else MIG_WHOLE)
    for metric in GPU_METRICS
    if metric.name not in _OWN
)


class InstanceGauges(GpuGauges):
    """As `GpuGauges`, for a MIG instance: one call a tick."""

    def __init__(self, session: NvmlSession, device: NvmlDevice) -> None:
        super().__init__(session, device)
        self._memory = pynvml.c_nvmlMemory_v2_t()
        self._memory.version = pynvml.nvmlMemory_v2
        self._memory_call = session.function("nvmlDeviceGetMemoryInfo_v2")
        self._memory_arguments = (device.handle, ctypes.byref(self._memory))

    def read(self, rates: CounterRates, key: str, monotonic: float) -> tuple[dict[str, float], list[Complaint]]:  # noqa: ARG002
        """Its memory, and why the rest is missing. Nothing here is a rate."""
        code = self._memory_call(*self._memory_arguments) if self._memory_call else FUNCTION_NOT_FOUND
        if code != 0:
            return {}, [("mem_used_bytes", code), *_WHOLE]
        return {"mem_used_bytes": float(self._memory.used)}, list(_WHOLE)


def gauges_of(session: NvmlSession, device: NvmlDevice) -> GpuGauges:
    """The gauges that a device has."""
    return GpuGauges(session, device) if device.instance is None else InstanceGauges(session, device)
