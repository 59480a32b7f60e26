"""What the driver tells of its own accord: XID errors, ECC errors, changes of MIG.

Waiting for events blocks, so it happens on a thread of its own, in waits of a second: whoever wants the GPUs let
go waits no longer. The loop only takes what has arrived. A wait that never returns costs that thread and nothing else;
what it had told before is kept.

What XID errors mean, in a few words.

From NVIDIA's XID catalog (https://docs.nvidia.com/deploy/xid-errors/, tables of XID errors, seen in 2025). Only those
whose meaning that page states in plain words; any other number is kept as a number.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pynvml

from ..model import Absence, Capability, Event, EventKind, Instant, Probe, Reading
from .base import NOTHING_READ, STAYS_MISSING, Fault
from .nvml_errors import FUNCTION_NOT_FOUND, NOT_SUPPORTED, TIMEOUT, code_of
from .nvml_session import NvmlDevice, NvmlSession

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


WAIT_MILLISECONDS = 1000  # each end of a wait wakes the thread, which costs a tenth of a tick
# How long a session that closes waits for the thread: a wait ends in a second, unless the driver hangs.
_LEAVE_SECONDS = 2.0
_FIRST_LOOK_SECONDS = 1.0
# A wait that is this late is none that will return soon.
_LATE_SECONDS = 5.0
_RETRY_SECONDS = 30.0
# Events a second beyond which the thread takes a breath after each: a storm shall not take a core.
_STORM = 50
_BREATH_SECONDS = 0.02
_MOST_WAITING = 100  # kinds of events that the loop has not taken yet; what comes then is only counted

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

_NO_EVENTS = Fault("not-supported", "This GPU's driver reports none of the events that are asked for.", STAYS_MISSING)
_HUNG = Fault(
    "driver-hung",
    "Waiting for the driver's events does not return; XID and ECC errors are in the kernel log only.",
    "See the kernel log; the GPU or the node may need a reset.",
)
_NO_ABSENCES: frozenset[Absence] = frozenset()
_STARTING = Fault("not-read-yet", "The driver's events have not been read yet.", "Try again.")


def nvml_event(kind: int, data: int, instance: int, uuid: str | None, ts: float) -> Event:
    """One event of the driver, in our words. What has no name here is ``other``, its number kept in the detail."""
    named = KINDS.get(kind)
    code = data if named == "xid" and 0 < data < 2**31 else None
    words = []
    if named is None:
        words.append(f"event type {kind:#x}")
    if named == "xid":
        words.append(XID_MEANINGS.get(data, f"XID {data}" if code is None else ""))
    if instance < 1024:
        words.append(f"GPU instance {instance}")
    return Event(ts, uuid, named or "other", code, ", ".join(word for word in words if word), last_ts=ts)


@dataclass(slots=True)
class _Watch:
    """One thread's life. It owns its event set; nobody else touches it."""

    stop: threading.Event = field(default_factory=threading.Event)
    looked: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    abandoned: bool = False  # the session closed without it: its event set is no longer its to free
    alive_at: float = 0.0
    fault: Fault | None = _STARTING
    kinds: Mapping[str, int] = field(default_factory=dict)  # gpu uuid -> types that are asked for
    refused: Mapping[str, Fault] = field(default_factory=dict)


class EventSource:
    """Reads the driver's events while the session is open. `read` and `probe` never call NVML."""

    name = "events"

    def __init__(
        self,
        session: NvmlSession,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._monotonic = monotonic
        self._wall = wall
        self._arrived: dict[tuple[str | None, str, int | None], Event] = {}
        self._lock = threading.Lock()  # of what has arrived
        self._watch: _Watch | None = None
        self._absences = _NO_ABSENCES
        session.after_open(self._begin)
        session.before_close(self._end)

    def probe(self) -> Probe:
        """Which events each GPU tells of."""
        watch = self._watch
        if watch is not None:
            watch.looked.wait(_FIRST_LOOK_SECONDS)
        fault = self._why_deaf()
        if watch is None or fault is not None:
            return Probe(capabilities=((fault or _STARTING).line(self.name, "nvmlEventSetWait"),))
        lines = []
        for uuid, types in watch.kinds.items():
            told = ", ".join(name for bit, name in KINDS.items() if types & bit)
            lines.append(Capability(self.name, "gpu", uuid, "events", f"nvmlEventSetWait_v2 ({told})"))
        lines += [
            Capability(self.name, "gpu", uuid, "events", "nvmlEventSetWait_v2", why.of("gpu", uuid, "events"))
            for uuid, why in watch.refused.items()
        ]
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:  # noqa: ARG002 - events have a time of their own
        """What arrived since the last reading."""
        events: tuple[Event, ...] = ()
        if self._arrived:
            with self._lock:
                events, self._arrived = tuple(self._arrived.values()), {}
        watch = self._watch
        if not events and watch is not None and not watch.refused and self._why_deaf() is None:
            self._absences = _NO_ABSENCES
            return NOTHING_READ
        now = self._why_not()
        if now != self._absences:
            self._absences = now
        return Reading(events=events, absences=self._absences)

    def close(self) -> None:
        """Let the thread end. Only a session that lets go waits for it: where the driver hangs nobody does."""
        if self._watch is not None:
            self._watch.stop.set()

    # On the thread that opens and closes the session.

    def _begin(self) -> None:
        self._end()
        watch = self._watch = _Watch(alive_at=self._monotonic())
        watch.thread = threading.Thread(target=self._run, args=(watch,), name="skuwise-events", daemon=True)
        watch.thread.start()

    def _end(self) -> None:
        watch, self._watch = self._watch, None
        if watch is None or watch.thread is None:
            return
        watch.stop.set()
        watch.thread.join(_LEAVE_SECONDS)
        watch.abandoned = watch.thread.is_alive()

    # On the thread that waits.

    def _run(self, watch: _Watch) -> None:
        while not watch.stop.is_set():
            devices = _whole(self._session.devices)
            try:
                self._listen(watch, devices)
                continue
            except pynvml.NVMLError as error:
                watch.fault = self._session.meaning(code_of(error))
            except Exception as error:  # what nobody foresaw must not go unsaid
                said = f"Waiting for events failed with {type(error).__name__}."
                watch.fault = Fault("source-failed", said, "Report this; it is tried again.")
            watch.looked.set()
            self._rest(watch)

    def _listen(self, watch: _Watch, devices: tuple[tuple[NvmlDevice, int], ...]) -> None:
        """Wait for events of these GPUs until they are others or the watch ends. Raises NVMLError."""
        events = pynvml.nvmlEventSetCreate()
        try:
            uuids = self._register(watch, devices, events)
            data = pynvml.c_nvmlEventData_t()
            wait = self._session.function("nvmlEventSetWait_v2")
            if wait is None:
                raise pynvml.NVMLError(FUNCTION_NOT_FOUND)
            second, count, patience = 0.0, 0, 0  # the first wait only shows that it works
            while not watch.stop.is_set() and _whole(self._session.devices) == devices:
                watch.alive_at = self._monotonic()
                code = wait(events, ctypes.byref(data), patience)
                if code not in (0, TIMEOUT):
                    raise pynvml.NVMLError(code)
                watch.fault, patience = None, WAIT_MILLISECONDS
                watch.looked.set()
                if code == TIMEOUT:
                    continue
                uuid = uuids.get(_address(data.device))
                kind, number, instance = int(data.eventType), int(data.eventData), int(data.gpuInstanceId)
                self._keep(nvml_event(kind, number, instance, uuid, self._wall()))
                count = count + 1 if watch.alive_at - second < 1.0 else 1
                second = second if count > 1 else watch.alive_at
                if count > _STORM:
                    watch.stop.wait(_BREATH_SECONDS)
        finally:
            if not watch.abandoned:
                self._session.ask(pynvml.nvmlEventSetFree, events)

    def _register(
        self, watch: _Watch, devices: tuple[tuple[NvmlDevice, int], ...], events: object
    ) -> Mapping[int, str]:
        """Ask for the events of each GPU; its uuid by what its handle points to."""
        uuids: dict[int, str] = {}
        kinds: dict[str, int] = {}
        refused: dict[str, Fault] = {}
        for device, _ in devices:
            uuids[_address(device.handle)] = device.uuid
            if device.lost is not None:
                refused[device.uuid] = device.lost
                continue
            try:
                types = pynvml.nvmlDeviceGetSupportedEventTypes(device.handle) & _WANTED
                if types:
                    pynvml.nvmlDeviceRegisterEvents(device.handle, types, events)
                    kinds[device.uuid] = types
                else:
                    refused[device.uuid] = _NO_EVENTS
            except pynvml.NVMLError as error:
                code = code_of(error)
                refused[device.uuid] = _NO_EVENTS if code == NOT_SUPPORTED else self._session.meaning(code)
        watch.kinds, watch.refused = kinds, refused
        return uuids

    def _keep(self, event: Event) -> None:
        with self._lock:
            if event.key not in self._arrived and len(self._arrived) >= _MOST_WAITING:
                event = Event(event.ts, None, "other", None, "other kinds of events", 1, event.ts)
            known = self._arrived.get(event.key)
            again = event if known is None else replace(known, count=known.count + 1, last_ts=event.ts)
            self._arrived[event.key] = again

    def _rest(self, watch: _Watch) -> None:
        ends = self._monotonic() + _RETRY_SECONDS
        while not watch.stop.wait(0.5) and self._monotonic() < ends:
            watch.alive_at = self._monotonic()

    # What is missing.

    def _why_deaf(self) -> Fault | None:
        watch = self._watch
        if self._session.fault is not None:
            return self._session.fault
        if watch is None:
            return _STARTING
        return _HUNG if self._monotonic() - watch.alive_at > _LATE_SECONDS else watch.fault

    def _why_not(self) -> frozenset[Absence]:
        fault = self._why_deaf()
        if fault is not None:
            return frozenset((fault.of("source", self.name),))
        watch = self._watch
        refused = watch.refused if watch is not None else {}
        return frozenset(why.of("gpu", uuid, "events") for uuid, why in refused.items())


def _whole(devices: tuple[NvmlDevice, ...]) -> tuple[tuple[NvmlDevice, int], ...]:
    """The whole GPUs and their handles' epochs: what events are asked of. Instances tell through their GPU."""
    return tuple((device, device.epoch) for device in devices if device.parent is None)


def _address(handle: Any) -> int:  # noqa: ANN401 - a ctypes pointer
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
