"""What the driver tells of its own accord: XID errors, ECC errors, changes of MIG.

Waiting for events blocks, so it happens on a thread of its own, in waits of a second: whoever wants the GPUs let
go waits no longer. The loop only takes what has arrived. A wait that never returns costs that thread and nothing else.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pynvml

from ..model import Capability, Event, EventKind, Instant, Probe, Reading
from . import nvml_errors as errors
from .base import STAYS_MISSING, Fault
from .nvml_errors import code_of, fault_of
from .nvml_session import NvmlDevice, NvmlSession
from .nvml_table import address_of, function, with_room

# In a few words, from NVIDIA's XID catalog (https://docs.nvidia.com/deploy/xid-errors/, 2025): those whose meaning that
# page states in plain words. Any other number is kept as a number.
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
_LEAVE_SECONDS = 2.0  # how long a session that closes waits for the thread, whose waits end in a second
_FIRST_LOOK_SECONDS = 1.0
_LATE_SECONDS = 5.0  # a wait that is this late will not return soon
_RETRY_SECONDS = 30.0
_BREATH_SECONDS = 0.01  # after each event, so that a storm does not take a core
_MOST_WAITING = 100  # kinds of events that the loop has not taken yet; others are dropped then

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

_NO_EVENTS = Fault("not-supported", "This GPU's driver reports none of the events that are asked for.", STAYS_MISSING)
_HUNG = Fault(
    "driver-hung",
    "Waiting for the driver's events does not return; XID and ECC errors are in the kernel log only.",
    "See the kernel log; the GPU or the node may need a reset.",
)
_STARTING = Fault("not-read-yet", "The driver's events have not been read yet.", "Try again.")


@dataclass(slots=True)
class _Watch:
    """One thread's life. It owns its event set; nobody else touches it."""

    alive_until: float  # later, the driver hangs
    stop: threading.Event = field(default_factory=threading.Event)
    looked: threading.Event = field(default_factory=threading.Event)
    abandoned: bool = False  # the session closed without it: its event set is no longer its to free
    fault: Fault | None = _STARTING


class EventSource:
    """Reads the driver's events while the session is open. `read` and `probe` never call NVML."""

    name = "events"

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        self._arrived: dict[tuple[str | None, str, int | None], Event] = {}
        self._lock = threading.Lock()  # of what has arrived
        self._watch: _Watch | None = None
        self._thread: threading.Thread | None = None
        self._refused: Mapping[str, Fault | None] = {}  # by GPU why it tells of no events; None: it does
        session.after_open.append(self._begin)
        session.before_close.append(self.close)

    def probe(self) -> Probe:
        """Which events each GPU tells of."""
        watch = self._watch
        if watch is not None:
            watch.looked.wait(_FIRST_LOOK_SECONDS)
        if (fault := self._why_deaf()) is not None:
            return Probe(capabilities=(fault.line(self.name, _ORIGIN),))
        absences = {uuid: fault and fault.of("gpu", uuid, "events") for uuid, fault in self._refused.items()}
        lines = (Capability(self.name, "gpu", uuid, "events", _ORIGIN, why) for uuid, why in absences.items())
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:  # noqa: ARG002 - events have a time of their own
        """What arrived since the last reading."""
        with self._lock:
            events, self._arrived = tuple(self._arrived.values()), {}
        if (fault := self._why_deaf()) is not None:
            return Reading(events=events, absences=frozenset((fault.of("source", self.name),)))
        absences = [why.of("gpu", uuid, "events") for uuid, why in self._refused.items() if why is not None]
        return Reading(events=events, absences=frozenset(absences))

    def close(self) -> None:
        """End the thread. Idempotent."""
        watch, self._watch = self._watch, None
        if watch is not None and self._thread is not None:
            watch.stop.set()
            self._thread.join(_LEAVE_SECONDS)
            watch.abandoned = self._thread.is_alive()

    def _why_deaf(self) -> Fault | None:
        watch = self._watch
        if self._session.fault is not None or watch is None:
            return self._session.fault or _STARTING
        return _HUNG if time.monotonic() > watch.alive_until else watch.fault

    def _begin(self) -> None:
        self.close()
        self._watch = watch = _Watch(time.monotonic() + _LATE_SECONDS)
        self._thread = threading.Thread(target=self._run, args=(watch,), name="skuwise-events", daemon=True)
        self._thread.start()

    # On the thread that waits.

    def _run(self, watch: _Watch) -> None:
        while not watch.stop.is_set():
            try:
                self._listen(watch, _whole(self._session.devices))
            except pynvml.NVMLError as error:
                watch.fault = fault_of(code_of(error))
                watch.alive_until = time.monotonic() + _RETRY_SECONDS + _LATE_SECONDS
                watch.looked.set()
                watch.stop.wait(_RETRY_SECONDS)

    def _listen(self, watch: _Watch, devices: Mapping[NvmlDevice, int]) -> None:
        """Wait for events of these GPUs until they are others or the watch ends. Raises NVMLError."""
        events, data = pynvml.nvmlEventSetCreate(), with_room(pynvml.c_nvmlEventData_t)
        try:
            self._refused = {device.uuid: device.lost or _register(device, events) for device in devices}
            uuids = {address_of(device.handle): device.uuid for device in devices}
            patience = 0  # the first wait only shows that it works
            while not watch.stop.is_set() and _whole(self._session.devices) == devices:
                watch.alive_until = time.monotonic() + _LATE_SECONDS
                code = function("nvmlEventSetWait_v2")(events, ctypes.byref(data), patience)
                if code not in (0, errors.TIMEOUT):
                    raise pynvml.NVMLError(code)
                watch.fault, patience = None, _WAIT_MILLISECONDS
                watch.looked.set()
                if code == 0:
                    uuid = uuids.get(address_of(data.device))
                    self._keep(data.eventType, data.eventData, data.gpuInstanceId, uuid)
                    watch.stop.wait(_BREATH_SECONDS)
        finally:
            if not watch.abandoned:
                self._session.ask(pynvml.nvmlEventSetFree, events)

    def _keep(self, kind: int, data: int, instance: int, uuid: str | None) -> None:
        """Keep an event for the loop. What has no name here is ``other``, its number kept in the detail."""
        name, now = KINDS.get(kind, "other"), time.time()
        code = data if name == "xid" and 0 < data < 2**31 else None
        meaning = XID_MEANINGS.get(data, f"XID {data}" if code is None else "")
        words = {"xid": meaning, "other": f"event type {kind:#x}"}.get(name, "")
        where = f"GPU instance {instance}" if instance < 1024 else ""
        event = Event(now, uuid, name, code, ", ".join(filter(None, (words, where))), last_ts=now)
        with self._lock:
            known = self._arrived.get(event.key)
            if known is not None:
                event = replace(known, count=known.count + 1, last_ts=now)
            if known is not None or len(self._arrived) < _MOST_WAITING:
                self._arrived[event.key] = event


def _whole(devices: tuple[NvmlDevice, ...]) -> dict[NvmlDevice, int]:
    """The whole GPUs and their handles' epochs: what events are asked of. Instances tell through their GPU."""
    return {device: device.epoch for device in devices if device.parent is None}


def _register(device: NvmlDevice, events: object) -> Fault | None:
    """Ask for the events of a GPU, or why there are none."""
    try:
        types = pynvml.nvmlDeviceGetSupportedEventTypes(device.handle) & _WANTED
        return pynvml.nvmlDeviceRegisterEvents(device.handle, types, events) if types else _NO_EVENTS
    except pynvml.NVMLError as error:
        return fault_of(code_of(error))
