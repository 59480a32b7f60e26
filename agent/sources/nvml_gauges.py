"""One GPU's gauges and its energy counter, on C objects that are built once and only filled on a tick."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple, Protocol

import pynvml

from ..metrics import GPU_METRICS
from . import nvml_fields as fields
from .base import GAPS, Fault
from .counters import CounterRate, NoRate
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

# Where the calls of a GPU leave their numbers: nvmlUtilization_t, two clocks, nvmlTemperature_v1_t, the reasons and
# nvmlMemory_v2_t. Of the structures only the numbers that are kept are unpacked.
_UTIL_AT, _SM_AT, _MEM_AT, _TEMPERATURE_AT, _REASONS_AT, _MEMORY_AT = 0, 8, 12, 16, 32, 40
_ROOM = struct.Struct("=I4xII8xi4xQ32xQ")


class _Cell(Protocol):
    """A C number that the driver writes to."""

    value: int


class _Gauge(NamedTuple):
    """One call and the number it leaves: the metric is that number times `scale`."""

    metric: str
    call: fields.NvmlCall
    arguments: tuple[object, ...]  # behind the GPU's handle
    cell: _Cell
    scale: float


class GaugeCalls:
    """The calls that read a GPU's gauges, and the one piece of memory that the driver answers into.

    It is the same for all GPUs of a source, which are read one after the other: a tick finds the CPU's caches cold, and
    what is used for the second GPU is warm already.
    """

    def __init__(self, session: NvmlSession, metrics: Collection[str] | None = None) -> None:
        self._session = session
        self._wanted = metrics
        self.gauges: list[_Gauge] = []
        self.missing: list[Complaint] = []  # what this driver has no function for
        room = self._room = ctypes.create_string_buffer(_ROOM.size)
        clock = session.function("nvmlDeviceGetClockInfo")
        # The second name is the first one's before R535.
        reasons = session.function("nvmlDeviceGetCurrentClocksEventReasons") or session.function(
            "nvmlDeviceGetCurrentClocksThrottleReasons"
        )
        kernels, sm, mem = (ctypes.c_uint.from_buffer(room, place) for place in (_UTIL_AT, _SM_AT, _MEM_AT))
        self._add(
            "gpu_util", session.function("nvmlDeviceGetUtilizationRates"), (ctypes.byref(kernels),), kernels, 0.01
        )
        self._add_memory()
        self._add("sm_clock_hertz", clock, (pynvml.NVML_CLOCK_SM, ctypes.byref(sm)), sm, 1e6)
        self._add("mem_clock_hertz", clock, (pynvml.NVML_CLOCK_MEM, ctypes.byref(mem)), mem, 1e6)
        self._add_temperature()
        bits = ctypes.c_ulonglong.from_buffer(room, _REASONS_AT)
        self._add("throttle_reasons", reasons, (ctypes.byref(bits),), bits, 1.0)
        # In the order of `read`; None where it cannot read all of them.
        whole = not self.missing and metrics is None
        self._all: tuple[Any, ...] | None = (
            tuple(part for g in self.gauges for part in (g.call, g.arguments)) if whole else None
        )
        call = session.function("nvmlDeviceGetFieldValues") if metrics is None else None
        self.energy = fields.FieldBlock(call, None, ((fields.ENERGY, 0),)) if call else None
        self.power = session.function("nvmlDeviceGetPowerUsage")
        self.power_cell = ctypes.c_uint()

    def read(self, handle: object) -> dict[str, float] | None:
        """Every gauge of a GPU; None where the driver does not answer each, and is to be asked one by one."""
        if self._all is None:
            return None
        util, a, memory, b, clock, c, _, d, temperature, e, events, f = self._all
        if (
            util(handle, *a)
            or memory(handle, *b)
            or clock(handle, *c)
            or clock(handle, *d)
            or temperature(handle, *e)
            or events(handle, *f)
        ):
            return None
        kernels, sm, mem, celsius, reasons, used = _ROOM.unpack_from(self._room)
        return {
            "gpu_util": kernels * 0.01,
            "mem_used_bytes": used * 1.0,
            "sm_clock_hertz": sm * 1e6,
            "mem_clock_hertz": mem * 1e6,
            "temperature_celsius": celsius * 1.0,
            "throttle_reasons": reasons * 1.0,
        }

    def _add_memory(self) -> None:
        memory = pynvml.c_nvmlMemory_v2_t.from_buffer(self._room, _MEMORY_AT)
        memory.version = pynvml.nvmlMemory_v2  # v1 counts the driver's reserve as used since R510
        used = ctypes.c_ulonglong.from_buffer(self._room, _MEMORY_AT + pynvml.c_nvmlMemory_v2_t.used.offset)
        call = self._session.function("nvmlDeviceGetMemoryInfo_v2")
        self._add("mem_used_bytes", call, (ctypes.byref(memory),), used, 1.0)

    def _add_temperature(self) -> None:
        kind = pynvml.c_nvmlTemperature_v1_t
        versioned = kind.from_buffer(self._room, _TEMPERATURE_AT)
        celsius = ctypes.c_int.from_buffer(self._room, _TEMPERATURE_AT + kind.temperature.offset)
        metric, call = "temperature_celsius", self._session.function("nvmlDeviceGetTemperature")
        arguments: tuple[object, ...] = (pynvml.NVML_TEMPERATURE_GPU, ctypes.byref(celsius))
        if call is None:  # the plain function is to go in CUDA 14
            versioned.version, versioned.sensorType = pynvml.nvmlTemperature_v1, pynvml.NVML_TEMPERATURE_GPU
            call, arguments = self._session.function("nvmlDeviceGetTemperatureV"), (ctypes.byref(versioned),)
        self._add(metric, call, arguments, celsius, 1.0)

    def _add(
        self, metric: str, call: fields.NvmlCall | None, arguments: tuple[object, ...], cell: _Cell, scale: float
    ) -> None:
        if self._wanted is not None and metric not in self._wanted:
            return
        if call is None:
            self.missing.append((metric, FUNCTION_NOT_FOUND))
        else:
            self.gauges.append(_Gauge(metric, call, arguments, cell, scale))


class GpuGauges:
    """What NVML says of one GPU at one moment. Built for one handle; a new handle needs a new object."""

    def __init__(
        self,
        session: NvmlSession,
        device: NvmlDevice,
        calls: GaugeCalls,
        max_gap_seconds: float,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.epoch = device.epoch
        self._calls = calls
        self._handle = fields.argument_of(device.handle)
        self._rate = CounterRate(max_gap_seconds)
        self._now = now
        self._list = session.function("nvmlDeviceGetComputeRunningProcesses_v3") or session.function(
            "nvmlDeviceGetComputeRunningProcesses_v2"
        )
        self._room = (pynvml.c_nvmlProcessInfo_v2_t * 64)()
        self._count = ctypes.c_uint()

    def read(self, monotonic: float) -> tuple[dict[str, float], list[Complaint]]:
        """Values by metric, and what is missing. Stops at a complaint that GPU or driver is gone."""
        missing: list[Complaint] = []
        values = self._calls.read(self._handle)
        if values is None:
            values, missing, gone = self._read_gauges()
            if gone:
                return values, missing
        why = self._read_energy(monotonic, values)
        if why:
            missing.append(("energy_joules", why))
            power, cell = self._calls.power, self._calls.power_cell
            code = power(self._handle, ctypes.byref(cell)) if power else FUNCTION_NOT_FOUND
            if code == 0:
                values["power_watts"] = cell.value / 1e3
            else:
                missing.append(("power_watts", code))
        return values, missing

    def _read_gauges(self) -> tuple[dict[str, float], list[Complaint], bool]:
        """Values, what is missing, and whether GPU or driver turned out to be gone."""
        values: dict[str, float] = {}
        missing = list(self._calls.missing)
        for metric, call, arguments, cell, scale in self._calls.gauges:
            code = call(self._handle, *arguments)
            if code == 0:
                values[metric] = cell.value * scale
            else:
                missing.append((metric, code))
                if code in GPU_GONE or code in DRIVER_GONE:
                    return values, missing, True
        return values, missing, False

    def _read_energy(self, monotonic: float, values: dict[str, float]) -> int | Fault | None:
        """Energy and mean power since the last reading into `values`, or why not."""
        block = self._calls.energy
        if block is None:
            return FUNCTION_NOT_FOUND
        code, millijoules = block.ask(self._handle)
        if code != 0:
            return code
        if self._now is not None:  # another thread may have kept this one between the tick's time and this reading
            monotonic = self._now()
        joules, last, since = millijoules / 1e3, self._rate.last, self._rate.at
        if last == joules:
            return NOT_UPDATED  # no GPU draws nothing: its next step covers this time too
        rate = self._rate.rate(joules, monotonic)
        if isinstance(rate, NoRate):
            return GAPS[rate.reason]
        values["power_watts"] = rate
        values["energy_joules"] = rate * (monotonic - since)
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

    def read(self, monotonic: float) -> tuple[dict[str, float], list[Complaint]]:  # noqa: ARG002
        """Its memory, and why the rest is missing. Nothing here is a rate."""
        values, missing, _ = self._read_gauges()
        return values, [*missing, *_WHOLE]


class Gauges:
    """Makes the gauges of devices, on calls that they share. `now`: as `NvidiaDriver` has it."""

    def __init__(self, session: NvmlSession, max_gap_seconds: float, now: Callable[[], float] | None = None) -> None:
        self._session = session
        self._max_gap, self._now = max_gap_seconds, now
        self._calls: GaugeCalls | None = None
        self._instance_calls: GaugeCalls | None = None

    def of(self, device: NvmlDevice) -> GpuGauges:
        """The gauges that a device has."""
        if device.instance is None:
            self._calls = self._calls or GaugeCalls(self._session)
            return GpuGauges(self._session, device, self._calls, self._max_gap, self._now)
        self._instance_calls = self._instance_calls or GaugeCalls(self._session, ("mem_used_bytes",))
        return InstanceGauges(self._session, device, self._instance_calls, self._max_gap)

    def forget(self) -> None:
        """The session is closed; its next driver may have other functions."""
        self._calls = self._instance_calls = None
