"""Opens NVML once for all its sources: GPUs and MIG instances by UUID, lost ones set aside and asked again."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pynvml

from ..model import Absence, Capability, Instant, Probe, Reading
from . import nvml_table as table
from .base import Fault, sort_out
from .nvml_table import code_of, fault_of

RETRY_SECONDS = 30.0
_MOST_INSTANCES = 16  # no GPU has more than seven


@dataclass(slots=True, eq=False)
class NvmlDevice:
    """One GPU or MIG instance. With another handle it is another object: what was built on the old is built again."""

    uuid: str  # empty: not known yet
    index: int
    handle: object = None
    lost: Fault | None = None  # set: ask it nothing
    no_gpm: Fault | None = None  # set: GPM cannot be read here
    nvlink_places: int = 0  # links the GPU has, active or not
    nvlink_links: int | None = None  # active ones; None: the driver does not say
    nvlink_bytes_per_second: float | None = None  # all active links together, one way
    in_mig_mode: bool = False
    parent: "NvmlDevice | None" = None  # set: this is a MIG instance of it
    # Of an instance: the ids of its GPU and compute instance, the handle's address, and how many share its counters.
    made: tuple[int, ...] = ()


class NvmlSession:
    """NVML opened once for all sources that read it. Any NVML client keeps the driver from GPU resets, MIG changes and
    unbinding, so `close` releases everything. `devices` is another tuple whenever there are others, or more is known of
    them: probe the sources again then. What fails for no lasting reason is asked again after `RETRY_SECONDS`."""

    def __init__(self) -> None:
        self.fault: Fault | None = table.NOT_OPEN  # why nothing can be read; None: open
        self.devices: tuple[NvmlDevice, ...] = ()  # GPUs, each with its MIG instances behind it
        self.version: str | None = None  # the driver's, as it was when opened
        self.after_open: list[Callable[[], None]] = []  # called whenever the session was opened
        self.before_close: list[Callable[[], None]] = []  # called while NVML still answers
        self._gpus: list[NvmlDevice] = []  # all that NVML counts, by index
        self._initialised = False
        self._now, self._again_at = 0.0, math.inf  # monotonic seconds: of the last reading, and when to ask again
        self._doubt = False  # something unknown may become known later

    @property
    def unnamed(self) -> list[Absence]:
        """GPUs that NVML counts whose UUID is unknown yet."""
        return [gpu.lost.of("source", f"nvml/gpu{gpu.index}") for gpu in self._gpus if not gpu.uuid and gpu.lost]

    def open(self, instant: Instant) -> None:
        """Load the driver's library and find the GPUs; where that fails, `fault` says why. Does nothing when open."""
        if self.fault is None:
            return
        try:
            pynvml.nvmlInit()
            self._initialised = True
            self.version = pynvml.nvmlSystemGetDriverVersion()
            self._gpus = [NvmlDevice("", index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            self._shut()
            self.fault = fault_of(code_of(error))
            return
        self.fault, self._again_at, self._doubt = None, instant.monotonic_seconds, True
        self.current(instant)
        for hook in self.after_open:
            hook()

    def close(self) -> None:
        """Release the driver and every GPU. Idempotent."""
        self._shut()
        self.fault = table.RELEASED

    def current(self, instant: Instant) -> tuple[NvmlDevice, ...]:
        """All GPUs, after what failed was asked again where its time has come. Empty when not open."""
        self._now = instant.monotonic_seconds
        if self._now >= self._again_at:
            self.look_again()
        return self.devices

    def failed(self, device: NvmlDevice, code: int) -> Fault:
        """What `code` from a call on `device` means. Sets a lost GPU aside, and all where the driver is gone."""
        fault = fault_of(code)
        if code in table.GPU_GONE:
            whole = device.parent or device
            for part in (whole, *(d for d in self.devices if d.parent is whole)):
                part.lost = fault
            self._ask_later()
        elif code in table.DRIVER_GONE:
            self._shut()
            self.fault = fault
        return fault

    def ask(self, function: Callable[..., Any], *arguments: object, **preset: int) -> Any:  # noqa: ANN401
        """The answer of a function, or None where it raises NVMLError. Not for the tick."""
        try:
            return function(*arguments, **preset)
        except pynvml.NVMLError as error:
            self._doubt_after(code_of(error))
            return None

    def look_again(self) -> None:
        """Take up MIG instances that are others than before and, where its time has come, what failed."""
        due = self._now >= self._again_at
        asked = [place for place, gpu in enumerate(self._gpus) if due and (self._doubt or gpu.lost)]
        if due:
            self._again_at, self._doubt = math.inf, False
        answered = [self._take_up(place) for place in asked]
        devices: list[NvmlDevice] = []
        for gpu in [gpu for gpu in self._gpus if gpu.uuid]:
            previous = {device.uuid: device for device in self.devices if device.parent is gpu}
            instances = previous  # that the driver does not say is not the same as none
            try:
                instances = previous if gpu.lost else _instances_of(gpu)
            except pynvml.NVMLError as error:
                self.failed(gpu, code_of(error))
            same = {
                uuid: old for uuid, old in previous.items() if uuid in instances and old.made == instances[uuid].made
            }
            devices += [gpu, *(instances | same).values()]
        if self.fault is None and (any(answered) or devices != list(self.devices)):
            self.devices = tuple(devices)

    def _shut(self) -> None:
        for hook in self.before_close:
            hook()
        if self._initialised:
            self._initialised = False
            self.ask(pynvml.nvmlShutdown)
        self.devices, self._gpus, self._doubt, self._again_at = (), [], False, math.inf

    def _doubt_after(self, code: int) -> None:
        if code not in table.LASTING:
            self._doubt = True
            self._ask_later()

    def _ask_later(self) -> None:
        self._again_at = min(self._again_at, self._now + RETRY_SECONDS)

    def _take_up(self, place: int) -> bool:
        """Get a GPU's handle, links and whether it has GPM. False where it does not answer: it is asked again."""
        before = self._gpus[place]
        try:
            if uuid := before.uuid:
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            else:
                handle = pynvml.nvmlDeviceGetHandleByIndex(place)
                uuid = pynvml.nvmlDeviceGetUUID(handle)
        except pynvml.NVMLError as error:
            before.lost = before.lost or fault_of(code_of(error))
            self._ask_later()
            return False
        gpu = NvmlDevice(uuid, place, handle)
        block = table.FieldBlock(handle, ((table.LINK_COUNT, 0), (table.LINK_MB_PER_SECOND, 0)))
        (code, count), (speed_code, mb_per_second) = block.read()
        gpu.nvlink_places = places = int(count) if code == 0 else 0
        states = [self.ask(table.get_number, "nvmlDeviceGetNvLinkState", handle, link) for link in range(places)]
        gpu.nvlink_links = active = states.count(1) if code in (0, table.NOT_SUPPORTED) else None
        gpu.nvlink_bytes_per_second = active * mb_per_second * 1e6 or None if active and speed_code == 0 else None
        self._doubt_after(code)
        support = self.ask(table.get, "nvmlGpmQueryDeviceSupport", pynvml.c_nvmlGpmSupport_t, handle, version=1)
        gpu.no_gpm = None if support is not None and support.isSupportedDevice else table.NO_GPM
        names = ("lost", "no_gpm", "nvlink_places", "nvlink_links", "nvlink_bytes_per_second")
        changed = any(getattr(before, name) != getattr(gpu, name) for name in names)
        if changed or table.address_of(before.handle) != table.address_of(handle):
            self._gpus[place] = gpu
        return True


def _instances_of(gpu: NvmlDevice) -> dict[str, NvmlDevice]:
    """The MIG devices of a GPU by UUID, in the driver's order; none where MIG mode is off or unknown to it. A GPU
    instance without a compute instance is none: nothing can run on it. Raises NVMLError where the driver cannot say."""
    try:
        gpu.in_mig_mode = bool(pynvml.nvmlDeviceGetMigMode(gpu.handle)[0])
    except pynvml.NVMLError as error:
        if code_of(error) not in table.LASTING:
            raise
        gpu.in_mig_mode = False
    devices: dict[str, NvmlDevice] = {}
    for place in range(_MOST_INSTANCES if gpu.in_mig_mode else 0):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, place)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            ids = [table.get_number(f"nvmlDeviceGet{kind}InstanceId", handle) for kind in ("Gpu", "Compute")]
        except pynvml.NVMLError as error:
            if code_of(error) not in (table.NOT_FOUND, table.INVALID_ARGUMENT):
                raise
            continue  # nothing there, or it went away while it was asked
        made = (*ids, table.address_of(handle))
        devices.setdefault(uuid, NvmlDevice(uuid, gpu.index, handle, no_gpm=gpu.no_gpm, parent=gpu, made=made))
    held = [device.made[0] for device in devices.values()]
    for device in devices.values():
        device.made = (*device.made, held.count(device.made[0]))
        if device.no_gpm is None and device.made[-1] > 1:
            device.no_gpm = table.MIG_SHARED
    return devices


class GpuReader:
    """Reads each GPU of a session, one after the other. `prepare` makes what is kept for each as long as its handle."""

    name: str
    origin: str  # what it is read through, as doctor shows it

    def __init__(self, session: NvmlSession, prepare: Callable[[NvmlDevice], Any]) -> None:
        self._session, self._prepare = session, prepare
        self._states: dict[NvmlDevice, Any] = {}
        self._lines: dict[NvmlDevice, list[Capability]] = {}

    def probe(self) -> Probe:
        """What can be read of each GPU. Those whose handle is the same as at the last probe are not asked again."""
        if self._session.fault is not None:
            return Probe(capabilities=(self._session.fault.line(self.name, self.origin),))
        self._lines = {device: self._lines.get(device) or self._look(device) for device in self._session.devices}
        self._states = {device: state for device, state in self._states.items() if device in self._lines}
        return Probe(capabilities=tuple(line for lines in self._lines.values() for line in lines))

    def _look(self, device: NvmlDevice) -> list[Capability]:
        """What a first reading of a GPU shows. It is thrown away: the next one is the first again."""
        values, absences = self._read_one(device, Instant(0.0, 0.0))
        self._states.pop(device, None)
        # That there was no earlier reading says nothing about a counter.
        readings = dict.fromkeys(values) | {a.metric: a if a.reason != "first-reading" else None for a in absences}
        return [Capability(self.name, "gpu", device.uuid, metric, self.origin, why) for metric, why in readings.items()]

    def read(self, instant: Instant) -> Reading:
        gpus: dict[str, dict[str, float]] = {}
        absences: list[Absence] = []
        for device in self._session.current(instant):
            if self._session.fault is None:
                gpus[device.uuid], absent = self._read_one(device, instant)
                absences += absent
        if self._session.fault is not None:
            return Reading(absences=frozenset({self._session.fault.of("source", self.name)}))
        return Reading(gpus={uuid: values for uuid, values in gpus.items() if values}, absences=frozenset(absences))

    def close(self) -> None:
        """Forget the GPUs; their handles are the session's."""
        self._states.clear()

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float | Fault]:
        raise NotImplementedError

    def _state(self, device: NvmlDevice) -> Any:  # noqa: ANN401 - what `prepare` made
        if device not in self._states:
            self._states[device] = self._prepare(device)
        return self._states[device]

    def _read_one(self, device: NvmlDevice, instant: Instant) -> tuple[dict[str, float], list[Absence]]:
        readings = self._read_device(device, instant) if device.lost is None else {}
        if device.lost is not None:
            return {}, [device.lost.of("gpu", device.uuid)]
        return sort_out("gpu", device.uuid, readings, table.MOST)

    def _told(self, device: NvmlDevice, rows: Iterable[table.Row], answers: table.Answers) -> dict[str, float | Fault]:
        readings: dict[str, float | Fault] = {}
        for row, (why, number) in zip(rows, answers, strict=True):
            readings[row.metric] = number * row.step if why == 0 else self._fault(device, why)
            if device.lost is not None or self._session.fault is not None:
                break
        return readings

    def _fault(self, device: NvmlDevice, why: int | Fault) -> Fault:
        return why if isinstance(why, Fault) else self._session.failed(device, why)
