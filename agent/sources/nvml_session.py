"""Opens NVML once for all its sources: GPUs and MIG instances by UUID, lost ones set aside and asked again."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from ..model import Absence, Capability, Instant, Probe, Reading
from . import nvml_errors as errors
from .base import AbsenceSet, Fault
from .nvml_errors import code_of, fault_of
from .nvml_table import LINK_COUNT, LINK_MB_PER_SECOND, MOST, ROUNDING, FieldBlock, Row, address_of, get

_Answer = TypeVar("_Answer")
RETRY_SECONDS = 30.0
_LONGEST_PATIENCE_SECONDS = 3600.0
_EMPTY_PLACE = frozenset({errors.NOT_FOUND, errors.INVALID_ARGUMENT})
MOST_INSTANCES = 16  # no GPU has more than seven; a driver that claims more is not asked for all
_GPM_VERSION = pynvml.NVML_GPM_SUPPORT_VERSION


@dataclass(slots=True, eq=False)
class NvmlDevice:
    """One GPU or MIG instance. `epoch` changes with its handle: what was built on the old one is to be built anew."""

    uuid: str  # empty: not known yet
    index: int
    handle: object = None
    epoch: int = 0
    lost: Fault | None = None  # set: ask it nothing
    no_gpm: Fault | None = None  # set: GPM cannot be read here
    nvlink_places: int = 0  # links the GPU has, active or not
    nvlink_links: int | None = None  # active ones; None: the driver does not say
    nvlink_bytes_per_second: float | None = None  # all active links together, one way
    in_mig_mode: bool = False
    parent: NvmlDevice | None = None  # set: this is a MIG instance of it
    # Of an instance: the ids of its GPU instance and compute instance, the handle's address (another when made anew),
    # and how many compute instances share the GPU instance and so its counters.
    made: tuple[int, ...] = ()


class NvmlSession:
    """NVML opened once for all sources that read it.

    Any NVML client keeps the driver from GPU resets, MIG changes and unbinding, so `close` lets go of everything and
    `open` takes it up again. `devices` is another tuple whenever there are other devices, or more is known of them:
    probe the sources anew then. What fails for no lasting reason is asked again after `RETRY_SECONDS`.
    """

    def __init__(self) -> None:
        self.fault: Fault | None = errors.NOT_OPEN  # why nothing can be read; None: open
        self.devices: tuple[NvmlDevice, ...] = ()  # GPUs, each with its MIG instances behind it
        self.driver_version: str | None = None
        self.after_open: list[Callable[[], None]] = []  # called whenever the session was opened
        self.before_close: list[Callable[[], None]] = []  # called while NVML still answers
        self._gpus: list[NvmlDevice] = []  # all that NVML counts, by index
        self._initialised = False
        self._epochs = itertools.count(1)
        self._now, self._again_at = 0.0, math.inf  # monotonic seconds: of the last reading, and when to ask again
        self._doubt, self._patience = False, RETRY_SECONDS  # something was not told; when to ask for it again

    @property
    def unnamed(self) -> list[Absence]:
        """GPUs that NVML counts but that have not told their UUID yet."""
        return [one.lost.of("source", f"nvml/gpu{one.index}") for one in self._gpus if not one.uuid and one.lost]

    def open(self, instant: Instant) -> None:
        """Load the driver's library and find the GPUs; where that fails, `fault` says why. Does nothing when open."""
        if self.fault is None:
            return
        self._shut()
        self._now, self._again_at, self._patience = instant.monotonic_seconds, math.inf, RETRY_SECONDS
        try:
            pynvml.nvmlInit()
            self._initialised = True
            self.driver_version = pynvml.nvmlSystemGetDriverVersion()
            self._gpus = [NvmlDevice("", index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            self._shut()
            self.fault = fault_of(code_of(error))
            return
        self.fault = None
        for gpu in self._gpus:
            self._take_up(gpu)
        self.look_at_instances()
        for hook in self.after_open:
            hook()

    def close(self) -> None:
        """Let go of the driver and every GPU. Idempotent."""
        self._shut()
        self.fault = errors.RELEASED

    def current(self, instant: Instant) -> tuple[NvmlDevice, ...]:
        """All GPUs, after what failed was asked again where its time has come. Empty when not open."""
        self._now = instant.monotonic_seconds
        if self._now >= self._again_at and self.fault is None:
            self._ask_again()
        return self.devices

    def failed(self, device: NvmlDevice, code: int) -> Fault:
        """What `code` from a call on `device` means. Sets a lost GPU aside, and all where the driver is gone."""
        fault = fault_of(code)
        if code in errors.GPU_GONE:
            whole = device.parent or device
            for one in (whole, *(d for d in self.devices if d.parent is whole)):
                one.lost = fault
            self._plan(RETRY_SECONDS)
        elif code in errors.DRIVER_GONE:
            self._shut()
            self.fault = fault
        return fault

    def ask(self, function: Callable[..., _Answer], *arguments: object, **preset: int) -> _Answer | None:
        """The answer of a function, or None where it raises NVMLError. Not for the tick."""
        try:
            return function(*arguments, **preset)
        except pynvml.NVMLError as error:
            self._doubt_after(code_of(error))
            return None

    def number(self, name: str, *arguments: object) -> int | None:
        """As `ask`, for a C function that leaves an unsigned number."""
        answer = self.ask(get, name, ctypes.c_uint, *arguments)
        return None if answer is None else answer.value

    def look_at_instances(self) -> None:
        """Take up MIG instances that are others than before."""
        devices: list[NvmlDevice] = []
        for gpu in [one for one in self._gpus if one.uuid]:
            devices.append(gpu)
            before = {device.uuid: device for device in self.devices if device.parent is gpu}
            try:
                found = None if gpu.lost else _instances_of(gpu)
            except pynvml.NVMLError as error:
                self.failed(gpu, code_of(error))
                found = None
            if found is None:  # the driver did not say, which is not the same as none
                found = list(before.values())
            for one in found:
                known = before.get(one.uuid)
                if known is None or known.made != one.made or (known.lost and not gpu.lost):
                    one.epoch, known = next(self._epochs), one
                devices.append(known)
        if self.fault is None and devices != list(self.devices):
            self.devices = tuple(devices)

    def _shut(self) -> None:
        for hook in self.before_close:
            hook()
        if self._initialised:
            self._initialised = False
            self.ask(pynvml.nvmlShutdown)
        self.devices, self._gpus, self._doubt = (), [], False

    def _plan(self, seconds: float) -> None:
        self._again_at = min(self._again_at, self._now + seconds)

    def _doubt_after(self, code: int) -> None:
        if code not in errors.LASTING | errors.GPU_GONE:
            self._doubt = True
            self._plan(self._patience)

    def _ask_again(self) -> None:
        """Ask again whatever failed: lost GPUs their handle, and all GPUs where one did not tell something."""
        self._again_at, doubt, self._doubt = math.inf, self._doubt, False
        if doubt:
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE_SECONDS)
        for gpu in self._gpus:
            lost = gpu.lost
            if lost is not None:
                self._take_up(gpu)
            elif doubt:
                self._look_at(gpu)
            if doubt or gpu.lost is not lost:
                self.devices = (*self.devices,)  # another tuple: more is known of them
        self.look_at_instances()

    def _take_up(self, gpu: NvmlDevice) -> None:
        """Get the handle of a GPU, and its UUID where that is not known; or plan to ask again."""
        try:
            by_uuid, by_index = pynvml.nvmlDeviceGetHandleByUUID, pynvml.nvmlDeviceGetHandleByIndex
            gpu.handle = by_uuid(gpu.uuid) if gpu.uuid else by_index(gpu.index)
            gpu.uuid = gpu.uuid or pynvml.nvmlDeviceGetUUID(gpu.handle)
        except pynvml.NVMLError as error:
            gpu.lost = gpu.lost or fault_of(code_of(error))
            self._plan(RETRY_SECONDS)
            return
        gpu.lost, gpu.epoch = None, next(self._epochs)
        self._look_at(gpu)

    def _look_at(self, gpu: NvmlDevice) -> None:
        """Ask a GPU for its links and whether it has GPM."""
        links = gpu.nvlink_links
        block = FieldBlock(gpu.handle, ((LINK_COUNT, 0), (LINK_MB_PER_SECOND, 0)))
        (code, count), (speed_code, mb_per_second) = block.read()
        if code == errors.NOT_SUPPORTED:
            gpu.nvlink_links = 0
        elif code == 0:
            gpu.nvlink_places = places = int(count)
            gpu.nvlink_links = sum(self.number("nvmlDeviceGetNvLinkState", gpu.handle, n) == 1 for n in range(places))
            if speed_code == 0 and mb_per_second > 0 and gpu.nvlink_links:
                gpu.nvlink_bytes_per_second = gpu.nvlink_links * mb_per_second * 1e6
        else:
            self._doubt_after(code)
        if gpu.nvlink_links != links:
            gpu.epoch = next(self._epochs)
        try:
            support = get("nvmlGpmQueryDeviceSupport", pynvml.c_nvmlGpmSupport_t, gpu.handle, version=_GPM_VERSION)
            gpu.no_gpm = None if support.isSupportedDevice else errors.NO_GPM
        except pynvml.NVMLError as error:
            code = code_of(error)
            self._doubt_after(code)
            no_gpm = code in (errors.NOT_SUPPORTED, errors.FUNCTION_NOT_FOUND)
            gpu.no_gpm = errors.NO_GPM if no_gpm else self.failed(gpu, code)


def _instances_of(gpu: NvmlDevice) -> list[NvmlDevice]:
    """The MIG devices of a GPU, in the driver's order; none where MIG mode is off or unknown to it.

    A GPU instance without a compute instance is not listed: nothing can run on it. Raises NVMLError where the driver
    cannot say.
    """
    in_mig_mode, places = False, 0
    try:
        in_mig_mode = bool(pynvml.nvmlDeviceGetMigMode(gpu.handle)[0])
        places = get("nvmlDeviceGetMaxMigDeviceCount", ctypes.c_uint, gpu.handle).value if in_mig_mode else 0
    except pynvml.NVMLError as error:
        if code_of(error) not in errors.LASTING:
            raise
    gpu.in_mig_mode = in_mig_mode
    found: dict[str, NvmlDevice] = {}
    for place in range(min(places, MOST_INSTANCES)):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, place)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            ids = [get(f"nvmlDeviceGet{kind}InstanceId", ctypes.c_uint, handle).value for kind in ("Gpu", "Compute")]
        except pynvml.NVMLError as error:
            if code_of(error) in _EMPTY_PLACE:  # nothing there, or it went away while it was asked
                continue
            raise
        made = (*ids, address_of(handle))
        found.setdefault(uuid, NvmlDevice(uuid, gpu.index, handle, no_gpm=gpu.no_gpm, parent=gpu, made=made))
    held = [one.made[0] for one in found.values()]
    for one in found.values():
        one.made = (*one.made, held.count(one.made[0]))
        if one.no_gpm is None and one.made[-1] > 1:
            one.no_gpm = errors.MIG_SHARED
    return list(found.values())


class GpuReader:
    """Reads each GPU of a session, one after the other, with a state for each that lives as long as its handle."""

    name: str
    origin: str  # what it is read through, as doctor shows it

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        self._absent = AbsenceSet("gpu")
        self._states: dict[tuple[str, int], Any] = {}

    def probe(self) -> Probe:
        """What can be read of each GPU, by a reading that is thrown away: the next one is the first again."""
        if self._session.fault is not None:
            return Probe(capabilities=(self._session.fault.line(self.name, self.origin),))
        self._states.clear()
        lines: list[Capability] = []
        for device in self._session.devices:
            values = self._read_one(device, Instant(0.0, 0.0)) or {}
            absences = {one.metric: one for one in self._absent.finish()}
            origins = {} if device.lost else {row.metric: row.origin for row in self._state(device).rows}
            for metric in dict.fromkeys([*values, *absences]):
                absence, origin = absences.get(metric), origins.get(metric, self.origin)
                # That there was no earlier reading says nothing about the counter.
                absence = None if absence is not None and absence.reason == "first-reading" else absence
                lines.append(Capability(self.name, "gpu", device.uuid, metric, origin, absence))
        self._states.clear()
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:
        """What each GPU tells, over the time since the last reading."""
        gpus: dict[str, dict[str, float]] = {}
        for device in self._session.current(instant):
            if values := self._read_one(device, instant):
                gpus[device.uuid] = values
            if self._session.fault is not None:
                break
        if self._session.fault is not None:
            return Reading(absences=self._absent.only(self._session.fault.of("source", self.name)))
        return Reading(gpus=gpus, absences=self._absent.finish())

    def _prepare(self, device: NvmlDevice) -> object:
        """The state to keep for a GPU's handle. Its `rows` are those of the table that are read here."""
        raise NotImplementedError

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float]:
        """The values of a GPU that is not lost. What is missing goes through `_miss`."""
        raise NotImplementedError

    def _state(self, device: NvmlDevice) -> Any:  # noqa: ANN401 - what `_prepare` made
        key = device.uuid, device.epoch
        if key not in self._states:
            self._states[key] = self._prepare(device)
        return self._states[key]

    def _read_one(self, device: NvmlDevice, instant: Instant) -> dict[str, float] | None:
        values = None if device.lost else self._read_device(device, instant)
        if device.lost is None:
            return values
        self._absent.add(device.uuid, "*", device.lost)
        return None

    def _values(
        self, device: NvmlDevice, rows: Iterable[Row], answers: Iterable[tuple[int | Fault, float]]
    ) -> dict[str, float]:
        """The sound ones of `answers`: for each of `rows` 0 and the number, or NVML's code or another reason."""
        values: dict[str, float] = {}
        for (metric, _, _, unit, step, _), (why, number) in zip(rows, answers, strict=True):
            value, most = number * step, MOST[metric]
            if why == 0 and 0.0 <= value <= most * ROUNDING:
                values[metric] = value if value <= most else most
            elif self._miss(device, metric, why or errors.impossible(number, unit)):
                break
        return values

    def _miss(self, device: NvmlDevice, metric: str, why: int | Fault) -> bool:
        """Note that a metric is absent. Whether nothing more can be asked of the GPU."""
        fault = why if isinstance(why, Fault) else self._session.failed(device, why)
        if device.lost is not None or self._session.fault is not None:
            return True
        if fault.reason != "out-of-range":
            self._absent.add(device.uuid, metric, fault)
        else:  # another value each time: not to be kept
            self._absent.extend((fault.of("gpu", device.uuid, metric),))
        return False
