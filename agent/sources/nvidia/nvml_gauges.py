"""One GPU's gauges and its energy counter, on C objects that are built once and only filled on a tick."""

from __future__ import annotations

import ctypes
from typing import Literal, NamedTuple, Protocol

import pynvml

from ...metrics import GPU_METRICS
from ..base import GAPS, Fault
from ..counters import CounterRates, NoRate
from . import nvml_fields as fields
from .gpm import UNITS
from .nvml_errors import DRIVER_GONE, FUNCTION_NOT_FOUND, GPU_GONE, MIG_UTILISATION, MIG_WHOLE, NOT_UPDATED
from .nvml_session import NvmlDevice, NvmlSession

# Where each metric is read from; doctor shows it.
ORIGINS = {
    "gpu_util": "nvmlDeviceGetUtilizationRates",
    "mem_used_bytes": "nvmlDeviceGetMemoryInfo_v2",
    "power_watts": "field 83 (energy), else nvmlDeviceGetPowerUsage",
    "energy_joules": "field 83 (energy)",
    "sm_clock_hertz": "nvmlDeviceGetClockInfo SM",
    "mem_clock_hertz": "nvmlDeviceGetClockInfo MEM",
    "temperature_celsius": "nvmlDeviceGetTemperature",
    "throttle_reasons": "nvmlDeviceGetCurrentClocksEventReasons",
}

Complaint = tuple[str, int | Fault]  # a metric, and NVML's code or the reason itself
# What a MIG instance has of its own; all else NVML tells of the whole GPU only.
_INSTANCES_OWN = frozenset({"mem_used_bytes", *(one.metric for one in UNITS)})
_WHOLE: tuple[Complaint, ...] = tuple(
    (metric.name, MIG_UTILISATION if metric.name == "gpu_util" else MIG_WHOLE)
    for metric in GPU_METRICS
    if metric.name not in _INSTANCES_OWN
)
_MAX_PROCESSES = 4096  # more than a GPU can hold contexts for
NOT_AVAILABLE = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE as unsigned long long


class _Cell(Protocol):
    """A C number that the driver writes to."""

    value: int


class _Gauge(NamedTuple):
    """One call and the number it leaves: the metric is that number times `scale`."""

    metric: str
    call: fields.NvmlCall
    arguments: tuple[object, ...]
    cell: _Cell
    scale: float


class GpuGauges:
    """What NVML says of one GPU at one moment. Built for one handle; a new handle needs a new object."""

    def __init__(self, session: NvmlSession, device: NvmlDevice) -> None:
        self.epoch = device.epoch
        self._handle = device.handle
        self._missing: list[Complaint] = []
        self._gauges: list[_Gauge] = []
        self._power_cell = ctypes.c_uint()
        self._power = session.function("nvmlDeviceGetPowerUsage")
        self._power_arguments = (device.handle, ctypes.byref(self._power_cell))
        fields_call = session.function("nvmlDeviceGetFieldValues")
        self._energy = fields.FieldBlock(fields_call, self._handle, ((fields.ENERGY, 0),)) if fields_call else None
        self._energy_last: tuple[float, float] | None = None  # joules, monotonic seconds
        self._add_gauges(session)
        self._list = session.function("nvmlDeviceGetComputeRunningProcesses_v3") or session.function(
            "nvmlDeviceGetComputeRunningProcesses_v2"
        )
        self._room = (pynvml.c_nvmlProcessInfo_v2_t * 64)()
        self._count = ctypes.c_uint()

    def _add_gauges(self, session: NvmlSession) -> None:
        util = pynvml.c_nvmlUtilization_t()
        kernels = ctypes.c_uint.from_buffer(util, pynvml.c_nvmlUtilization_t.gpu.offset)
        sm, mem, reasons = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_ulonglong()
        add, ref, clock = self._add, ctypes.byref, session.function("nvmlDeviceGetClockInfo")
        add("gpu_util", session.function("nvmlDeviceGetUtilizationRates"), (ref(util),), (kernels, 0.01))
        self._add_memory(session)
        add("sm_clock_hertz", clock, (pynvml.NVML_CLOCK_SM, ref(sm)), (sm, 1e6))
        add("mem_clock_hertz", clock, (pynvml.NVML_CLOCK_MEM, ref(mem)), (mem, 1e6))
        self._add_temperature(session)
        # The second name is the first one's before R535.
        current = session.function("nvmlDeviceGetCurrentClocksEventReasons") or session.function(
            "nvmlDeviceGetCurrentClocksThrottleReasons"
        )
        add("throttle_reasons", current, (ref(reasons),), (reasons, 1.0))

    def _add_memory(self, session: NvmlSession) -> None:
        memory = pynvml.c_nvmlMemory_v2_t()
        memory.version = pynvml.nvmlMemory_v2  # v1 counts the driver's reserve as used since R510
        used = ctypes.c_ulonglong.from_buffer(memory, pynvml.c_nvmlMemory_v2_t.used.offset)
        call = session.function("nvmlDeviceGetMemoryInfo_v2")
        self._add("mem_used_bytes", call, (ctypes.byref(memory),), (used, 1.0))

    def _add_temperature(self, session: NvmlSession) -> None:
        metric, call = "temperature_celsius", session.function("nvmlDeviceGetTemperature")
        if call is not None:
            celsius = ctypes.c_uint()
            self._add(metric, call, (pynvml.NVML_TEMPERATURE_GPU, ctypes.byref(celsius)), (celsius, 1.0))
            return
        versioned = pynvml.c_nvmlTemperature_v1_t()  # the plain function is to go in CUDA 14
        versioned.version, versioned.sensorType = pynvml.nvmlTemperature_v1, pynvml.NVML_TEMPERATURE_GPU
        cell = ctypes.c_int.from_buffer(versioned, pynvml.c_nvmlTemperature_v1_t.temperature.offset)
        self._add(metric, session.function("nvmlDeviceGetTemperatureV"), (ctypes.byref(versioned),), (cell, 1.0))

    def _add(
        self, metric: str, call: fields.NvmlCall | None, arguments: tuple[object, ...], read: tuple[_Cell, float]
    ) -> None:
        if call is None:
            self._missing.append((metric, FUNCTION_NOT_FOUND))
        else:
            self._gauges.append(_Gauge(metric, call, (self._handle, *arguments), *read))

    def read(self, rates: CounterRates, key: str, monotonic: float) -> tuple[dict[str, float], list[Complaint]]:
        """Values by metric, and what is missing. Stops at a complaint that GPU or driver is gone."""
        values, missing, gone = self._read_gauges()
        if gone:
            return values, missing
        why = self._read_energy(rates, key, monotonic, values)
        if why:
            missing.append(("energy_joules", why))
            code = self._power(*self._power_arguments) if self._power else FUNCTION_NOT_FOUND
            if code == 0:
                values["power_watts"] = self._power_cell.value / 1e3
            else:
                missing.append(("power_watts", code))
        return values, missing

    def _read_gauges(self) -> tuple[dict[str, float], list[Complaint], bool]:
        """Values, what is missing, and whether GPU or driver turned out to be gone."""
        values: dict[str, float] = {}
        missing = list(self._missing)
        for metric, call, arguments, cell, scale in self._gauges:
            code = call(*arguments)
            if code == 0:
                values[metric] = cell.value * scale
            else:
                missing.append((metric, code))
                if code in GPU_GONE or code in DRIVER_GONE:
                    return values, missing, True
        return values, missing, False

    def _read_energy(
        self, rates: CounterRates, key: str, monotonic: float, values: dict[str, float]
    ) -> int | Fault | None:
        """Energy and mean power since the last reading into `values`, or why not."""
        code = self._energy.read() if self._energy is not None else FUNCTION_NOT_FOUND
        if code != 0:
            return code
        assert self._energy is not None
        ((code, millijoules),) = self._energy.values()
        if code != 0:
            return code
        joules, last = millijoules / 1e3, self._energy_last
        if last is not None and last[0] == joules:
            return NOT_UPDATED  # no GPU draws nothing: its next step covers this time too
        rate = rates.rate(key, joules, monotonic)
        self._energy_last = (joules, monotonic)
        if isinstance(rate, NoRate) or last is None:
            return GAPS[rate.reason if isinstance(rate, NoRate) else "first-reading"]
        values["power_watts"] = rate
        values["energy_joules"] = rate * (monotonic - last[1])
        return None

    def processes(self) -> tuple[Literal[0], list[tuple[int, int | None]]] | tuple[int, None]:
        """(0, [(PID, bytes or None)]) of compute processes, or (NVML code, None)."""
        if self._list is None:
            return FUNCTION_NOT_FOUND, None
        while True:
            self._count.value = len(self._room)
            code = self._list(self._handle, ctypes.byref(self._count), self._room)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE or len(self._room) >= _MAX_PROCESSES:
                break
            self._room = (pynvml.c_nvmlProcessInfo_v2_t * min(_MAX_PROCESSES, 2 * self._count.value + 64))()
        if code != 0:
            return code, None
        found = self._room[: self._count.value]
        return 0, [
            (one.pid, None if one.usedGpuMemory == NOT_AVAILABLE else one.usedGpuMemory) for one in found if one.pid
        ]


class InstanceGauges(GpuGauges):
    """As `GpuGauges`, for a MIG instance: its memory and its processes, in one call a tick."""

    def read(self, rates: CounterRates, key: str, monotonic: float) -> tuple[dict[str, float], list[Complaint]]:  # noqa: ARG002
        """Its memory, and why the rest is missing. Nothing here is a rate."""
        values, missing, _ = self._read_gauges()
        return values, [*missing, *_WHOLE]

    def _add_gauges(self, session: NvmlSession) -> None:
        self._add_memory(session)


def gauges_of(session: NvmlSession, device: NvmlDevice) -> GpuGauges:
    """The gauges that a device has."""
    return GpuGauges(session, device) if device.instance is None else InstanceGauges(session, device)
