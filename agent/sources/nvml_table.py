"""What is read from NVML and GPM: one table, and how the driver is called for it.

Drivers have written more than the header says (535.43 to 535.98: 32 bytes for each process where it says 24). So
whatever a driver fills has `_ROOM_BYTES` behind it, and the size of an entry of its list of processes is measured.
"""

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pynvml

from ..metrics import GPU_METRICS
from .base import COMES_BACK, STAYS_MISSING, Fault

NO_DRIVER = "no-driver"  # reason: the node has no working driver
DRIVER_MISMATCH = "driver-mismatch"  # reason: only a new process can read the driver that is now loaded

# nvml.h, nvmlReturn_t.
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 2, 3, 4, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH = 15, 16, 18

GPU_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED})  # this GPU answers nothing more
DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})  # no GPU answers
# The same question will get the same answer. After any other code it is asked again.
LASTING = frozenset({0, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND})

_REPORT = "Nothing to do, if the next ones are sound; else see nvidia-smi and report the driver's version."
_DRIVER = "Install or load the NVIDIA driver; nvidia-smi shows whether it works."
_DCGM = "Run dcgm-exporter with its profiling fields (DCGM_FI_PROF_SM_ACTIVE and the others) switched on."
_PERMIT = (
    "Either options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, and reload the driver; every user "
    "of the node may then profile. Or, in a drop-in of skuwise-agent.service, AmbientCapabilities=CAP_PERFMON and "
    "CapabilityBoundingSet=CAP_PERFMON. Before R565 only CAP_SYS_ADMIN counts, and in a container it is the host's."
)
_LOST = "See the kernel log for its XID; it needs a reset or a reboot. The agent tries again."
_RESET = "Pause the agent (skuwise agent pause) and reset the GPU. The agent tries again."
_FAULTS = {
    UNINITIALIZED: Fault(NO_DRIVER, "The NVIDIA driver disconnected this agent.", "Restart the agent."),
    NOT_SUPPORTED: Fault("not-supported", "This GPU does not report it.", STAYS_MISSING),
    NO_PERMISSION: Fault("no-permission", "The driver does not let this user read it.", _PERMIT),
    DRIVER_NOT_LOADED: Fault(NO_DRIVER, "The NVIDIA driver is not loaded.", _DRIVER),
    LIBRARY_NOT_FOUND: Fault(NO_DRIVER, "There is no NVIDIA driver here (libnvidia-ml.so.1 is missing).", _DRIVER),
    FUNCTION_NOT_FOUND: Fault("not-supported", "This driver does not have the function.", "Use a newer driver."),
    GPU_IS_LOST: Fault("gpu-lost", "The GPU has fallen off the bus.", _LOST),
    RESET_REQUIRED: Fault("reset-required", "The GPU needs a reset before it can be used.", _RESET),
    LIB_RM_VERSION_MISMATCH: Fault(
        DRIVER_MISMATCH, "The driver was changed under the agent.", "Restart the agent, or reboot the node."
    ),
}

RELEASED = Fault("released", "The agent has released the GPUs.", "Run skuwise agent resume to sample them again.")
NOT_OPEN = Fault(NO_DRIVER, "The NVIDIA driver has not been opened yet.", "Wait for the agent to start.")
NO_GPM = Fault("no-gpm", "No GPM here (Hopper and R520 or newer have it): activity of its units is unknown.", _DCGM)
MIG = Fault(
    "mig", "Not reported in MIG mode: an instance has memory, processes and GPM, its GPU the rest.", STAYS_MISSING
)
MIG_SHARED = Fault("mig-shared", "Compute instances share this GPU instance's counters.", "Give each workload its own.")
NO_NVLINK = Fault("no-nvlink", "This GPU has no active NVLink.", "If it should have, see nvidia-smi nvlink -s.")
NO_COUNTER = Fault("not-supported", "This GPU's driver does not count this traffic.", _DCGM)
COUNTER_WRAP = Fault("counter-wrap", "The counter may have 32 bits, which PCIe fills between two readings.", _DCGM)
TOO_SOON = Fault("too-soon", "GPM needs 100 ms between two samples.", "Sample at an interval above 0.1 s.")
UNKNOWN_LAYOUT = Fault("unknown-layout", "The driver lists processes in an unknown layout.", _REPORT)
NOT_UPDATED = Fault("not-updated", "The driver has not refreshed its counter since the last reading.", COMES_BACK)


def fault_of(code: int) -> Fault:
    fault = _FAULTS.get(code)
    return fault or Fault("nvml-error", f"NVML answered with error {code} ({pynvml.NVMLError(code)}).", _REPORT)


def code_of(error: pynvml.NVMLError) -> int:
    """NVML's number of what pynvml raises."""
    return int(getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN))


NvmlCall = Callable[..., int]
Answers = Iterable[tuple[int | Fault, float]]  # 0 and the number, or NVML's code or another reason for none

LINK_MB_PER_SECOND, LINK_COUNT = 90, 91  # fields: speed of one link one way; links of the GPU
ALL_LINKS, EACH_LINK = 0xFFFFFFFF, -1
GPM, FIELD, NONE = "GPM metric", "NVML field", -1


class Row(NamedTuple):
    """One way to read a metric. Where several rows have one metric, the first that driver and GPU know counts. `ask`: a
    function, GPM or FIELD; `number`: the id there, or the function's argument (NONE: it has none). `step`: one `unit`
    of the driver in the unit of the metric, which is the resolution (GPM answers in fractions)."""

    metric: str
    ask: str
    number: int
    unit: str
    step: float
    scope: int = 0  # of a field


_CORE, _MIB = pynvml.NVML_TEMPERATURE_GPU, 1048576.0
TABLE: tuple[Row, ...] = (
    Row("gpu_util", "nvmlDeviceGetUtilizationRates", NONE, "%", 0.01),
    Row("mem_used_bytes", "nvmlDeviceGetMemoryInfo_v2", NONE, "B", 1.0),
    Row("sm_clock_hertz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM, "MHz", 1e6),
    Row("mem_clock_hertz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM, "MHz", 1e6),
    Row("temperature_celsius", "nvmlDeviceGetTemperature", _CORE, "°C", 1.0),
    Row("temperature_celsius", "nvmlDeviceGetTemperatureV", NONE, "°C", 1.0),  # the plain one is to go in CUDA 14
    Row("throttle_reasons", "nvmlDeviceGetCurrentClocksEventReasons", NONE, "as bits", 1.0),
    Row("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", NONE, "as bits", 1.0),
    Row("energy_joules", FIELD, 83, "mJ", 1e-3),  # since the driver was loaded; its rate is the power
    Row("power_watts", "nvmlDeviceGetPowerUsage", NONE, "mW", 1e-3),  # where the counter has no rate
    Row("sm_active", GPM, 2, "%", 0.01),
    Row("sm_occupancy", GPM, 3, "%", 0.01),
    Row("tensor_active", GPM, 5, "%", 0.01),
    Row("dram_active", GPM, 10, "%", 0.01),
    Row("fp64_active", GPM, 11, "%", 0.01),
    Row("fp32_active", GPM, 12, "%", 0.01),
    Row("fp16_active", GPM, 13, "%", 0.01),
    Row("pcie_tx_bytes_per_second", GPM, 20, "MiB/s", _MIB),
    Row("pcie_rx_bytes_per_second", GPM, 21, "MiB/s", _MIB),
    Row("nvlink_rx_bytes_per_second", GPM, 60, "MiB/s", _MIB),
    Row("nvlink_tx_bytes_per_second", GPM, 61, "MiB/s", _MIB),
    # Counters, where GPM is missing. Those of PCIe may wrap at 32 bits; the last two are of NVLink5.
    Row("pcie_tx_bytes_per_second", FIELD, 197, "B/s", 1.0),
    Row("pcie_rx_bytes_per_second", FIELD, 198, "B/s", 1.0),
    Row("nvlink_tx_bytes_per_second", FIELD, 138, "KiB/s", 1024.0, ALL_LINKS),
    Row("nvlink_rx_bytes_per_second", FIELD, 139, "KiB/s", 1024.0, ALL_LINKS),
    Row("nvlink_tx_bytes_per_second", FIELD, 202, "B/s", 1.0, EACH_LINK),
    Row("nvlink_rx_bytes_per_second", FIELD, 204, "B/s", 1.0, EACH_LINK),
)
ENERGY, POWER = (row for row in TABLE if row.metric in ("energy_joules", "power_watts"))
GAUGES = tuple(row for row in TABLE if row.ask not in (GPM, FIELD) and row is not POWER)
GPM_ROWS = tuple(row for row in TABLE if row.ask == GPM)
COUNTERS = tuple(row for row in TABLE if row.ask == FIELD and row is not ENERGY)
UNITS = tuple(row for row in GPM_ROWS if row.unit == "%")  # activity of the GPU's units: all that an instance has
MOST = {metric.name: metric.most for metric in GPU_METRICS}

_SENSOR = {"version": pynvml.nvmlTemperature_v1, "sensorType": _CORE}
# What functions leave, if it is more than a number: the type, the member that counts, and what to preset.
_ANSWERS: dict[str, tuple[type[Any], str, dict[str, int]]] = {
    "nvmlDeviceGetUtilizationRates": (pynvml.c_nvmlUtilization_t, "gpu", {}),
    # v1 counts the driver's reserve as used since R510.
    "nvmlDeviceGetMemoryInfo_v2": (pynvml.c_nvmlMemory_v2_t, "used", {"version": pynvml.nvmlMemory_v2}),
    "nvmlDeviceGetTemperatureV": (pynvml.c_nvmlTemperature_v1_t, "temperature", _SENSOR),
}
_NUMBER = (ctypes.c_ulonglong, "value", {})  # no driver writes more; one that writes less leaves the rest 0


def no_function(*_: object) -> int:
    """In place of a function that this driver lacks."""
    return FUNCTION_NOT_FOUND


def function(name: str) -> NvmlCall:
    """The driver's C function, without pynvml's wrapper."""
    return getattr(pynvml.nvmlLib, name, no_function)


_ROOM_BYTES = 4096


def with_room(kind: Any, **preset: int) -> Any:  # noqa: ANN401 - a C type and its object
    """A C object for the driver to fill, with room behind it."""
    answer = kind.from_buffer(bytearray(ctypes.sizeof(kind) + _ROOM_BYTES))
    for name, value in preset.items():
        setattr(answer, name, value)
    return answer


def get(name: str, kind: Any, *arguments: object, **preset: int) -> Any:  # noqa: ANN401
    """What a function leaves in its last argument, of type `kind`. Raises NVMLError."""
    answer = with_room(kind, **preset)
    if code := function(name)(*arguments, ctypes.byref(answer)):
        raise pynvml.NVMLError(code)
    return answer


def get_number(name: str, *arguments: object) -> int:
    """As `get`, for an unsigned number."""
    return get(name, ctypes.c_uint, *arguments).value


def address_of(handle: object) -> int:
    """What a handle points to, by which two of them are compared."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


class GaugeCalls:
    """The calls behind some rows of the table."""

    def __init__(self, rows: Sequence[Row]) -> None:
        there = [row for row in rows if function(row.ask) is not no_function]
        self.rows = tuple({row.metric: row for row in (*rows[::-1], *there[::-1])}.values())
        self._calls: list[tuple[NvmlCall, tuple[object, ...], Any, str]] = []
        for row in self.rows:
            kind, member, preset = _ANSWERS.get(row.ask, _NUMBER)
            answer = with_room(kind, **preset)
            arguments = () if row.number == NONE else (row.number,)
            self._calls.append((function(row.ask), (*arguments, ctypes.byref(answer)), answer, member))

    def answers(self, handle: object) -> Iterator[tuple[int, float]]:
        """NVML's code and the number for each of `rows`, asked one by one."""
        for call, arguments, answer, member in self._calls:
            yield call(handle, *arguments), getattr(answer, member)


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


def processes_of(handle: object) -> tuple[int | Fault, list[tuple[int, int | None]]]:
    """Compute processes as PID and bytes (None: not known), and 0; or why there is no list."""
    versions = [function(f"nvmlDeviceGetComputeRunningProcesses_{version}") for version in ("v3", "v2")]
    call = versions[0] if versions[0] is not no_function else versions[1]
    # Never a multiple of 4: so many entries of 24 bytes are no whole number of 32, should a driver fill all places.
    places, count = 66, with_room(ctypes.c_uint)
    while True:
        buffer = ctypes.create_string_buffer(_FILLED * (places * max(_ENTRY_SIZES) + _ROOM_BYTES))
        count.value = places
        code = call(handle, ctypes.byref(count), buffer)
        if code != INSUFFICIENT_SIZE or not places < count.value <= _MOST_PROCESSES:
            break
        places = 4 * count.value + 2
    if code != 0 or count.value == 0:
        return code, []
    written = len(buffer.raw[:-1].rstrip(_FILLED))
    for size in _ENTRY_SIZES:
        for entries in (count.value, places):
            if count.value <= entries and entries * size - 8 <= written <= entries * size:
                listed = [_ENTRY.unpack_from(buffer, number * size) for number in range(count.value)]
                return 0, [(pid, None if memory + 1 == 2**64 else memory) for pid, memory in listed if pid]
    return UNKNOWN_LAYOUT, []
