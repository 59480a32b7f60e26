"""Events of the driver: XID errors, ECC errors, changes of MIG.

Waiting for events blocks, so its own thread does, a second at a time: a release of the GPUs waits no
longer. A wait that never returns costs that thread and nothing else.
"""

import ctypes
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pynvml

from ..model import Capability, Event, EventKind, Instant, Probe, Reading
from . import nvml_table as table
from .base import Fault
from .nvml_session import NvmlDevice, NvmlSession
from .nvml_table import address_of, code_of, fault_of, function, with_room

# From NVIDIA's XID catalog (https://docs.nvidia.com/deploy/xid-errors/, 2025). Other numbers are kept as they are.
XID_MEANINGS: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "invalid or corrupted push buffer stream",
    38: "driver firmware error",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping recorded",
    64: "ECC page retirement or row remapping could not be recorded",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
    120: "GSP error",
}

_WAIT_MILLISECONDS = 1000  # each end of a wait wakes the thread, which costs a tenth of a tick
_LEAVE_SECONDS = 1.2  # how long a session that closes waits for the thread, whose waits end in a second
_FIRST_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 30.0
_BREATH_SECONDS = 0.01  # after each event, so that a storm does not take a core

# nvml.h, nvmlEventType*. Changes of P-state, clocks and power source are everyday and not asked for.
KINDS: Mapping[int, EventKind] = {
    0x1: "ecc-single-bit",
    0x2: "ecc-double-bit",
    0x8: "xid",
    0x100: "mig-change",
    0x200: "ecc-single-bit-storm",
    0x400: "dram-retirement",
    0x800: "dram-retirement-failure",
    0x1000: "poison-nonfatal",
    0x2000: "poison-fatal",
    0x4000: "gpu-unavailable",
    0x8000: "recovery-action",
}
_WANTED = sum(KINDS)
_ORIGIN = "nvmlEventSetWait_v2"

_STARTING = Fault("not-read-yet", "The driver's events have not been read yet.", "Try again.")


class EventSource:
    """Reads the driver's events while the session is open. `read` and `probe` never call NVML."""

    name = "events"

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        self._arrived: dict[tuple[str | None, str, int | None], Event] = {}
        self._lock = threading.Lock()  # of what has arrived
        self._thread: threading.Thread | None = None
        self._stop, self._looked = threading.Event(), threading.Event()  # a new one to stop each thread
        self._lines = [_STARTING.line(self.name, _ORIGIN)]  # which events each GPU reports, or why none
        session.after_open.append(self._begin)
        session.before_close.append(self._end)

    def probe(self) -> Probe:
        if self._thread is not None:
            self._looked.wait(_FIRST_LOOK_SECONDS)
        return Probe(capabilities=tuple(self._now()))

    def read(self, instant: Instant) -> Reading:  # noqa: ARG002 - events have a time of their own
        with self._lock:
            events, self._arrived = tuple(self._arrived.values()), {}
        absences = frozenset(line.absence for line in self._now() if line.absence is not None)
        return Reading(events=events, absences=absences)

    def _now(self) -> list[Capability]:
        return [self._session.fault.line(self.name, _ORIGIN)] if self._session.fault else self._lines

    def close(self) -> None:
        """Let the thread end. Only a session that was released waits for it, not one whose driver hangs."""
        self._stop.set()

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LEAVE_SECONDS)
        self._thread = None  # one that hangs is left alone, and lets its event set alone

    def _begin(self) -> None:
        self._lines, self._stop = [_STARTING.line(self.name, _ORIGIN)], threading.Event()
        self._looked.clear()
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name="skuwise-events", daemon=True)
        self._thread.start()

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._listen(stop, self._session.devices)
            except pynvml.NVMLError as error:
                self._lines = [fault_of(code_of(error)).line(self.name, _ORIGIN)]
                self._looked.set()
                stop.wait(_RETRY_SECONDS)

    def _listen(self, stop: threading.Event, devices: tuple[NvmlDevice, ...]) -> None:
        events, data = pynvml.nvmlEventSetCreate(), with_room(pynvml.c_nvmlEventData_t)
        try:
            whole = [device for device in devices if device.parent is None]  # instances report through their GPU
            refused = {gpu.uuid: gpu.lost or _register(gpu, events) for gpu in whole}
            absences = {uuid: why and why.of("gpu", uuid, "events") for uuid, why in refused.items()}
            lines = [Capability("events", "gpu", uuid, "events", _ORIGIN, why) for uuid, why in absences.items()]
            uuids = {address_of(gpu.handle): gpu.uuid for gpu in whole}
            patience = 0  # the first wait only shows that it works
            while not stop.is_set() and self._session.devices is devices:
                code = function("nvmlEventSetWait_v2")(events, ctypes.byref(data), patience)
                if code not in (0, table.TIMEOUT):
                    raise pynvml.NVMLError(code)
                self._lines = lines
                patience = _WAIT_MILLISECONDS
                self._looked.set()
                if code == 0:
                    self._keep(data, uuids.get(address_of(data.device)))
                    stop.wait(_BREATH_SECONDS)
        finally:
            if threading.current_thread() is self._thread:
                self._session.ask(pynvml.nvmlEventSetFree, events)

    def _keep(self, data: Any, uuid: str | None) -> None:  # noqa: ANN401 - nvmlEventData_t
        """Keep an event for the loop. What has no name here is ``other``, its number kept in the detail."""
        kind, number, instance, now = data.eventType, data.eventData, data.gpuInstanceId, time.time()
        name = KINDS.get(kind, "other")
        code = number if name == "xid" and 0 < number < 2**31 else None
        meaning = XID_MEANINGS.get(number, f"XID {number}" if code is None else "")
        words = {"xid": meaning, "other": f"event type {kind:#x}"}.get(name, "")
        where = f"GPU instance {instance}" if instance < 1024 else ""
        event = Event(now, uuid, name, code, ", ".join(filter(None, (words, where))), last_ts=now)
        with self._lock:
            first = self._arrived.get(event.key, replace(event, count=0))
            self._arrived[event.key] = replace(first, count=first.count + 1, last_ts=now)


def _register(device: NvmlDevice, events: object) -> Fault | None:
    try:
        types = pynvml.nvmlDeviceGetSupportedEventTypes(device.handle) & _WANTED
        if types:
            pynvml.nvmlDeviceRegisterEvents(device.handle, types, events)
    except pynvml.NVMLError as error:
        return fault_of(code_of(error))
    return None if types else fault_of(table.NOT_SUPPORTED)
