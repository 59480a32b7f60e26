"""The one place that opens NVML: handles by UUID, error codes as reasons, lost GPUs set aside and tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pynvml

from ..model import Absence, Instant, Reading
from . import nvml_fields as fields
from .base import AbsenceSet, Fault
from .mig import NvmlInstance, find_instances
from .nvml_errors import (
    DRIVER_GONE,
    FUNCTION_NOT_FOUND,
    GPU_GONE,
    INVALID_ARGUMENT,
    MIG_SHARED,
    NO_GPM,
    NO_GPM_DRIVER,
    NOT_FOUND,
    NOT_OPEN,
    NOT_SUPPORTED,
    RELEASED,
    code_of,
    fault_of,
    text_of,
)

_Answer = TypeVar("_Answer")
# What a handle answers whose instance is gone.
_INSTANCE_GONE = frozenset({INVALID_ARGUMENT, NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN})


@dataclass(slots=True, eq=False)
class NvmlDevice:
    """One GPU or MIG instance. `epoch` changes with its handle: what was built on the old one is to be built anew."""

    uuid: str
    index: int
    handle: object
    epoch: int
    lost: Fault | None = None  # set: ask it nothing
    retry_at: float = 0.0  # monotonic seconds
    no_gpm: Fault | None = None  # set: GPM cannot be read here
    nvlink_places: int = 0  # links the GPU has, active or not
    nvlink_links: int | None = None  # active ones; None: the driver does not say
    nvlink_bytes_per_second: float | None = None  # all active links together, one way
    instances: tuple[NvmlInstance, ...] | None = None  # of a GPU in MIG mode; None: it is not
    instance: NvmlInstance | None = None  # set: this is a MIG instance, of `parent`
    parent: NvmlDevice | None = None


class NvmlSession:
    """NVML opened once for all sources that read it.

    Any NVML client keeps the driver from GPU resets, MIG changes and unbinding, so `close` lets go of everything and
    `open` takes it up again; probe the sources anew after that, the GPUs may be others.
    """

    def __init__(self, retry_seconds: float = 30.0) -> None:
        self.retry_seconds = retry_seconds
        self.fault: Fault | None = NOT_OPEN  # why nothing can be read; None: open
        self.devices: tuple[NvmlDevice, ...] = ()
        self.unnamed: tuple[Absence, ...] = ()  # GPUs that are there but could not even be asked their UUID
        self.driver_version: str | None = None
        self._initialised = False
        self._some_lost = False
        self._epoch = 0
        self._doubted: set[str] = set()  # instances whose handle failed
        self._hooks: list[Callable[[], None]] = []
        self._open_hooks: list[Callable[[], None]] = []
        self._meanings: dict[int, Fault] = {}

    def open(self, instant: Instant) -> None:
        """Load the driver's library and find the GPUs; where that fails, `fault` says why. Does nothing when open."""
        if self.fault is None:
            return
        self._shut()
        try:
            pynvml.nvmlInit()
            self._initialised = True
            self.driver_version = text_of(pynvml.nvmlSystemGetDriverVersion())
            self._discover(instant, pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            self._shut()
            self.fault = self.meaning(code_of(error))
            return
        self.fault = None
        for hook in self._open_hooks:
            hook()

    def close(self) -> None:
        """Let go of the driver and every GPU. Idempotent."""
        self._shut()
        self.fault = RELEASED

    def before_close(self, hook: Callable[[], None]) -> None:
        """Call `hook` while NVML still answers, whenever the session is about to let go."""
        self._hooks.append(hook)

    def after_open(self, hook: Callable[[], None]) -> None:
        """Call `hook` whenever the session was opened."""
        self._open_hooks.append(hook)

    def function(self, name: str) -> fields.NvmlCall | None:
        """The driver's C function, without pynvml's wrapper; None where this driver lacks it."""
        try:
            return pynvml._nvmlGetFunctionPointer(name)
        except pynvml.NVMLError:
            return None

    def current(self, instant: Instant) -> tuple[NvmlDevice, ...]:
        """All GPUs, after those whose time has come were tried again. Empty when not open."""
        if self._some_lost:
            self._retry(instant)
        return self.devices

    def failed(self, device: NvmlDevice, code: int, instant: Instant) -> Fault:
        """What `code` from a call on `device` means. Sets a lost GPU aside, and all where the driver is gone."""
        fault = self.meaning(code)
        if code in GPU_GONE:
            whole = device.parent or device
            for one in (whole, *(d for d in self.devices if d.parent is whole)):
                one.lost, one.retry_at = fault, instant.monotonic_seconds + self.retry_seconds
            self._some_lost = True
        elif code in DRIVER_GONE:
            self._shut()
            self.fault = fault
        elif device.instance is not None and code in _INSTANCE_GONE:
            self._doubted.add(device.uuid)
        return fault

    def look_at_instances(self, instant: Instant) -> bool:
        """Whether the MIG instances are others than before. Those that failed since the last look count as others."""
        doubted, self._doubted = self._doubted, set()
        known = {device.uuid: device for device in self.devices if device.parent is not None}
        devices: list[NvmlDevice] = []
        for whole in [device for device in self.devices if device.parent is None]:
            devices.append(whole)
            before = [device for device in self.devices if device.parent is whole]
            if whole.lost is not None:
                devices += before
                continue
            try:
                whole.instances = find_instances(whole.handle)
            except pynvml.NVMLError as error:
                self.failed(whole, code_of(error), instant)
                if self.fault is not None:
                    return False
                devices += before  # the driver did not say, which is not the same as none
                continue
            for one in whole.instances or ():
                device = known.get(one.uuid)
                if device is None or device.instance != one or device.lost is not None or one.uuid in doubted:
                    device = self._new_instance(whole, one, instant)
                devices.append(device)
        changed = len(devices) != len(self.devices) or any(
            a is not b for a, b in zip(devices, self.devices, strict=True)
        )
        if changed:
            self.devices = tuple(devices)
        return changed

    def ask(self, function: Callable[..., _Answer], *arguments: object) -> _Answer | None:
        """The answer of a pynvml function, or None where it has none. Not for the tick."""
        try:
            return function(*arguments)
        except pynvml.NVMLError:
            return None

    def meaning(self, code: int) -> Fault:
        """What an NVML error code says, without consequences."""
        known = self._meanings.get(code)
        if known is None:
            known = self._meanings[code] = fault_of(code, str(pynvml.NVMLError(code)))
        return known

    def _shut(self) -> None:
        for hook in self._hooks:
            hook()
        if self._initialised:
            self._initialised = False
            self.ask(pynvml.nvmlShutdown)
        self.devices, self.unnamed, self._some_lost = (), (), False
        self._doubted = set()

    def _discover(self, instant: Instant, count: int) -> None:
        devices, unnamed = [], []
        for index in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                device = NvmlDevice(text_of(pynvml.nvmlDeviceGetUUID(handle)), index, handle, self._next_epoch())
            except pynvml.NVMLError as error:
                unnamed.append(self.meaning(code_of(error)).of("source", f"nvml/gpu{index}"))
                continue
            self._find_nvlink(device)
            device.no_gpm = self._why_no_gpm(device, instant)
            devices.append(device)
        self.devices, self.unnamed = tuple(devices), tuple(unnamed)
        self.look_at_instances(instant)

    def _new_instance(self, parent: NvmlDevice, one: NvmlInstance, instant: Instant) -> NvmlDevice:
        device = NvmlDevice(one.uuid, parent.index, one.handle, self._next_epoch())
        device.parent, device.instance = parent, one
        device.no_gpm = self._why_no_gpm(parent, instant) or (None if one.alone else MIG_SHARED)
        return device

    def _find_nvlink(self, device: NvmlDevice) -> None:
        asked = ((fields.NVLINK_LINK_COUNT, 0), (fields.NVLINK_MB_PER_SECOND, 0))
        call = self.function("nvmlDeviceGetFieldValues")
        block = fields.FieldBlock(call, device.handle, asked) if call else None
        if block is None or block.read() != 0:
            return
        (count_code, count), (speed_code, mb_per_second) = block.values()
        if count_code == NOT_SUPPORTED:
            device.nvlink_links = 0
        if count_code != 0:
            return
        device.nvlink_places = int(count)
        states = [self.ask(pynvml.nvmlDeviceGetNvLinkState, device.handle, link) for link in range(int(count))]
        device.nvlink_links = sum(state == 1 for state in states)
        if speed_code == 0 and mb_per_second > 0 and device.nvlink_links:
            device.nvlink_bytes_per_second = device.nvlink_links * mb_per_second * 1e6

    def _why_no_gpm(self, device: NvmlDevice, instant: Instant) -> Fault | None:
        try:
            return None if pynvml.nvmlGpmQueryDeviceSupport(device.handle).isSupportedDevice else NO_GPM
        except pynvml.NVMLError as error:
            code = code_of(error)
            if code in GPU_GONE:
                self.failed(device, code, instant)
                return None  # not known; a sample will tell once it is back
            known = {NOT_SUPPORTED: NO_GPM, FUNCTION_NOT_FOUND: NO_GPM_DRIVER}
            return known.get(code) or self.meaning(code)

    def _retry(self, instant: Instant) -> None:
        back = False
        for device in self.devices:
            if device.lost is None or instant.monotonic_seconds < device.retry_at or device.parent is not None:
                continue
            device.retry_at = instant.monotonic_seconds + self.retry_seconds
            handle = self.ask(pynvml.nvmlDeviceGetHandleByUUID, device.uuid)
            if handle is not None:
                device.handle, device.lost, device.epoch = handle, None, self._next_epoch()
                self._find_nvlink(device)
                device.no_gpm = self._why_no_gpm(device, instant)
                back = True
                self._doubted |= {one.uuid for one in self.devices if one.parent is device}
        if back:
            self.look_at_instances(instant)
        self._some_lost = any(device.lost for device in self.devices)

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch


class GpuReader:
    """What reads each GPU of a session, one after the other."""

    name: str

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        self._absent = AbsenceSet("gpu")

    def read(self, instant: Instant) -> Reading:
        """What each GPU tells, over the time since the last reading."""
        gpus: dict[str, dict[str, float]] = {}
        for device in self._session.current(instant):
            values = self._read_device(device, instant)
            if self._session.fault is not None:
                break
            if values is not None:
                gpus[device.uuid] = values
        if self._session.fault is not None:
            return Reading(absences=self._absent.only(self._session.fault.of("source", self.name)))
        return Reading(gpus=gpus, absences=self._absent.finish())

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float] | None:
        """The values of one GPU, its absences added to `_absent`; None: nothing."""
        raise NotImplementedError
