"""What is read from NVML and GPM: one table, and how the driver is called for it.

Drivers have written more than the header says (535.43 to 535.98: 32 bytes for each process where it says 24). So
whatever a driver fills has `_ROOM_BYTES` behind it, and the size of an entry of its list of processes is measured.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pynvml

from ..metrics import GPU_METRICS
from .base import Fault
from .nvml_errors import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, unknown_layout

_T = TypeVar("_T", bound=ctypes._SimpleCData | ctypes.Structure | ctypes.Array)
NvmlCall = Callable[..., int]

# nvml.h, field identifiers and scopes.
LINK_MB_PER_SECOND, LINK_COUNT = 90, 91  # speed of one link one way; links of the GPU
ALL_LINKS, EACH_LINK = 0xFFFFFFFF, -1


class Call(NamedTuple):
    """A function that leaves `number` of an `answer`, given behind the handle and `arguments`, with `preset` in it."""

    function: str
    answer: type[Any] = ctypes.c_uint
    number: str = "value"
    arguments: tuple[int, ...] = ()
    preset: Mapping[str, int] = {}


class Gpm(NamedTuple):
    """A GPM metric, between two samples (nvmlGpmMetricId_t)."""

    number: int


class Field(NamedTuple):
    """A field value, which counts up. `scope`: ALL_LINKS together, EACH_LINK to be added up, or 0: the GPU."""

    number: int
    scope: int = 0


class Row(NamedTuple):
    """One way to read a metric.

    `step`: one `unit` of the driver in the unit of the metric, which is also the resolution (GPM answers in fractions).
    What is above `most` is impossible; between `full` and `most` is rounding, and is `full`.
    """

    metric: str
    ask: Any  # Call, Gpm or Field
    unit: str
    step: float
    full: float
    most: float

    @property
    def origin(self) -> str:
        """Where the value comes from, as doctor shows it."""
        if isinstance(self.ask, Call):
            return self.ask.function
        return f"{'GPM metric' if isinstance(self.ask, Gpm) else 'NVML field'} {self.ask.number}"


_METRICS = {metric.name: metric for metric in GPU_METRICS}
# Percent may pass 100 by rounding; more than 0.1 % of it is a fault (NVIDIA/DCGM#152 shows them on MIG).
_ROUNDING = 1.001


def _row(metric: str, ask: Call | Gpm | Field, unit: str, step: float) -> Row:
    full = _METRICS[metric].most
    return Row(metric, ask, unit, step, full, full * _ROUNDING if unit == "%" else full)


_MEMORY = {"version": pynvml.nvmlMemory_v2}  # v1 counts the driver's reserve as used since R510
_CORE, _SENSOR = pynvml.NVML_TEMPERATURE_GPU, pynvml.c_nvmlTemperature_v1_t
_SENSED = {"version": pynvml.nvmlTemperature_v1, "sensorType": _CORE}
_MIB = 1048576.0
# Where several rows have one metric, the first that this driver and GPU know counts.
TABLE: tuple[Row, ...] = (
    _row("gpu_util", Call("nvmlDeviceGetUtilizationRates", pynvml.c_nvmlUtilization_t, "gpu"), "%", 0.01),
    _row("mem_used_bytes", Call("nvmlDeviceGetMemoryInfo_v2", pynvml.c_nvmlMemory_v2_t, "used", (), _MEMORY), "B", 1.0),
    _row("sm_clock_hertz", Call("nvmlDeviceGetClockInfo", arguments=(pynvml.NVML_CLOCK_SM,)), "MHz", 1e6),
    _row("mem_clock_hertz", Call("nvmlDeviceGetClockInfo", arguments=(pynvml.NVML_CLOCK_MEM,)), "MHz", 1e6),
    _row("temperature_celsius", Call("nvmlDeviceGetTemperature", ctypes.c_int, arguments=(_CORE,)), "°C", 1.0),
    # The plain function is to go in CUDA 14.
    _row("temperature_celsius", Call("nvmlDeviceGetTemperatureV", _SENSOR, "temperature", (), _SENSED), "°C", 1.0),
    _row("throttle_reasons", Call("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong), "bits", 1.0),
    _row("throttle_reasons", Call("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong), "bits", 1.0),
    _row("energy_joules", Field(83), "mJ", 1e-3),  # since the driver was loaded; its rate is the power
    _row("power_watts", Call("nvmlDeviceGetPowerUsage"), "mW", 1e-3),  # where the counter has no rate
    _row("sm_active", Gpm(2), "%", 0.01),
    _row("sm_occupancy", Gpm(3), "%", 0.01),
    _row("tensor_active", Gpm(5), "%", 0.01),
    _row("dram_active", Gpm(10), "%", 0.01),
    _row("fp64_active", Gpm(11), "%", 0.01),
    _row("fp32_active", Gpm(12), "%", 0.01),
    _row("fp16_active", Gpm(13), "%", 0.01),
    _row("pcie_tx_bytes_per_second", Gpm(20), "MiB/s", _MIB),
    _row("pcie_rx_bytes_per_second", Gpm(21), "MiB/s", _MIB),
    _row("nvlink_rx_bytes_per_second", Gpm(60), "MiB/s", _MIB),
    _row("nvlink_tx_bytes_per_second", Gpm(61), "MiB/s", _MIB),
    # Counters, where GPM is missing. Those of PCIe may wrap at 32 bits; the last two are of NVLink5.
    _row("pcie_tx_bytes_per_second", Field(197), "B", 1.0),
    _row("pcie_rx_bytes_per_second", Field(198), "B", 1.0),
    _row("nvlink_tx_bytes_per_second", Field(138, ALL_LINKS), "KiB", 1024.0),
    _row("nvlink_rx_bytes_per_second", Field(139, ALL_LINKS), "KiB", 1024.0),
    _row("nvlink_tx_bytes_per_second", Field(202, EACH_LINK), "B", 1.0),
    _row("nvlink_rx_bytes_per_second", Field(204, EACH_LINK), "B", 1.0),
)
ENERGY, POWER = (row for row in TABLE if row.metric in ("energy_joules", "power_watts"))
GAUGES = tuple(row for row in TABLE if isinstance(row.ask, Call) and row is not POWER)
GPM_ROWS = tuple(row for row in TABLE if isinstance(row.ask, Gpm))
COUNTERS = tuple(row for row in TABLE if isinstance(row.ask, Field) and row is not ENERGY)
UNITS = tuple(row for row in GPM_ROWS if row.unit == "%")  # activity of the GPU's units: all that an instance has


def no_function(*_: object) -> int:
    """In place of a function that this driver lacks."""
    return FUNCTION_NOT_FOUND


def function(name: str) -> NvmlCall:
    """The driver's C function, without pynvml's wrapper."""
    return getattr(pynvml.nvmlLib, name, no_function)


_ROOM_BYTES = 4096


def with_room(kind: type[_T], **preset: int) -> _T:
    """A C object for the driver to fill, with room behind it."""
    answer = kind.from_buffer(bytearray(ctypes.sizeof(kind) + _ROOM_BYTES))
    for name, value in preset.items():
        setattr(answer, name, value)
    return answer


def get(name: str, kind: type[_T], *arguments: object, **preset: int) -> _T:
    """What a function leaves in its last argument, of type `kind`. Raises NVMLError."""
    answer = with_room(kind, **preset)
    if code := function(name)(*arguments, ctypes.byref(answer)):
        raise pynvml.NVMLError(code)
    return answer


def address_of(handle: object) -> int:
    """What a handle points to, by which two of them are told to be the same."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


class GaugeCalls:
    """The calls behind some rows of the table, on memory for one GPU at a time."""

    def __init__(self, rows: Sequence[Row]) -> None:
        rows = rows[::-1]  # the first of a metric wins, and before all one whose function is there
        there = [row for row in rows if function(row.ask.function) is not no_function]
        self.rows = tuple({row.metric: row for row in (*rows, *there)}.values())
        self._calls: list[tuple[NvmlCall, tuple[object, ...], Any, str]] = []
        for name, kind, number, arguments, preset in [row.ask for row in self.rows]:
            answer = with_room(kind, **preset)
            self._calls.append((function(name), (*arguments, ctypes.byref(answer)), answer, number))

    def answers(self, handle: object) -> Iterator[tuple[int, float]]:
        """NVML's code and the number for each of `rows`, asked one by one."""
        for call, arguments, answer, number in self._calls:
            yield call(handle, *arguments), getattr(answer, number)


# nvmlValueType_t: which member of the union counts. The rest of its bytes is left over from earlier calls.
_MEMBERS = dict(enumerate(("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")))


class FieldBlock:
    """The same field values of one GPU, asked again and again."""

    def __init__(self, handle: object, asked: Sequence[tuple[int, int]]) -> None:
        self._call, self._handle = function("nvmlDeviceGetFieldValues"), handle
        self._block = with_room(pynvml.c_nvmlFieldValue_t * len(asked))
        self._entries = list(self._block)
        for entry, (number, scope) in zip(self._entries, asked, strict=True):
            entry.fieldId, entry.scopeId = number, scope

    def read(self) -> list[tuple[int, float]]:
        """NVML's code, of the call or of the field, and the number of each field."""
        if code := self._call(self._handle, len(self._entries), self._block):
            return [(code, 0)] * len(self._entries)
        return [
            (entry.nvmlReturn, getattr(entry.value, _MEMBERS.get(entry.valueType, "ullVal"))) for entry in self._entries
        ]


_MOST_PROCESSES = 4096  # more than a GPU can hold contexts for
_FILLED = b"\xa5"  # the last byte of no entry: its ids and sizes are small, or all ones
_ENTRY = struct.Struct("=I4xQ")  # PID, bytes; then ids of instances, and from 535.43 to 535.98 another size
_ENTRY_SIZES = (24, 32)
NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE


def processes_of(handle: object) -> tuple[int | Fault, list[tuple[int, int | None]]]:
    """Compute processes as PID and bytes (None: not known), and 0; or why there is no list.

    The size of an entry is measured by how far the driver wrote.
    """
    versions = [function(f"nvmlDeviceGetComputeRunningProcesses_{version}") for version in ("v3", "v2")]
    call = versions[0] if versions[0] is not no_function else versions[1]
    # Never a multiple of 4: so many entries of 24 bytes are no whole number of 32, should a driver fill all places.
    places, found = 66, with_room(ctypes.c_uint)
    while True:
        buffer = ctypes.create_string_buffer(_FILLED * (places * max(_ENTRY_SIZES) + _ROOM_BYTES))
        found.value = places
        code = call(handle, ctypes.byref(found), buffer)
        if code != INSUFFICIENT_SIZE or not places < found.value <= _MOST_PROCESSES:
            break
        places = 4 * found.value + 2
    if code != 0 or found.value == 0:
        return code, []
    written = len(buffer.raw[:-1].rstrip(_FILLED))
    for size in _ENTRY_SIZES:
        for entries in (found.value, places):
            if found.value <= entries and entries * size - 8 <= written <= entries * size:
                listed = [_ENTRY.unpack_from(buffer, number * size) for number in range(found.value)]
                return 0, [(pid, None if memory == NOT_AVAILABLE else memory) for pid, memory in listed if pid]
    return unknown_layout(found.value, written), []
