"""The one place that opens NVML: handles by UUID, error codes as reasons, lost GPUs set aside and tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pynvml

from ..model import Absence, Instant
from . import nvml_fields as fields
from .nvml_reasons import (
    DRIVER_GONE,
    FUNCTION_NOT_FOUND,
    GPU_GONE,
    NO_GPM,
    NO_GPM_DRIVER,
    NOT_OPEN,
    NOT_SUPPORTED,
    RELEASED,
    Fault,
    fault_of,
)

_Answer = TypeVar("_Answer")


class NvmlDevice:
    """One GPU of the session. `epoch` changes with its handle: what was built on the old one is to be built anew."""

    __slots__ = (
        "epoch",
        "handle",
        "index",
        "lost",
        "no_gpm",
        "nvlink_bytes_per_second",
        "nvlink_links",
        "nvlink_places",
        "retry_at",
        "uuid",
    )

    def __init__(self, uuid: str, index: int, handle: object, epoch: int) -> None:
        self.uuid = uuid
        self.index = index
        self.handle = handle
        self.epoch = epoch
        self.lost: Fault | None = None  # set: ask it nothing
        self.retry_at = 0.0  # monotonic seconds
        self.no_gpm: Fault | None = None  # set: GPM cannot be read here
        self.nvlink_places = 0  # links the GPU has, active or not
        self.nvlink_links: int | None = None  # active ones; None: the driver does not say
        self.nvlink_bytes_per_second: float | None = None  # all active links together, one way


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
        self._hooks: list[Callable[[], None]] = []
        self._meanings: dict[int, Fault] = {}

    def open(self, instant: Instant) -> Absence | None:
        """Load the driver's library and find the GPUs. Returns why that failed, or None. Does nothing when open."""
        if self.fault is None:
            return None
        self._shut()
        try:
            pynvml.nvmlInit()
            self._initialised = True
            self.driver_version = text(pynvml.nvmlSystemGetDriverVersion())
            self._discover(instant, pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            self._shut()
            self.fault = self.meaning(_code(error))
            return self.fault.of("source", "nvml")
        self.fault = None
        return None

    def close(self) -> None:
        """Let go of the driver and every GPU. Idempotent."""
        self._shut()
        self.fault = RELEASED

    def before_close(self, hook: Callable[[], None]) -> None:
        """Call `hook` while NVML still answers, whenever the session is about to let go."""
        self._hooks.append(hook)

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
            device.lost, device.retry_at = fault, instant.monotonic_seconds + self.retry_seconds
            self._some_lost = True
        elif code in DRIVER_GONE:
            self._shut()
            self.fault = fault
        return fault

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

    def _discover(self, instant: Instant, count: int) -> None:
        devices, unnamed = [], []
        for index in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                device = NvmlDevice(text(pynvml.nvmlDeviceGetUUID(handle)), index, handle, self._next_epoch())
            except pynvml.NVMLError as error:
                unnamed.append(self.meaning(_code(error)).of("source", f"nvml/gpu{index}"))
                continue
            self._find_nvlink(device)
            device.no_gpm = self._why_no_gpm(device, instant)
            devices.append(device)
        self.devices, self.unnamed = tuple(devices), tuple(unnamed)

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
            code = _code(error)
            if code in GPU_GONE:
                self.failed(device, code, instant)
                return None  # not known; a sample will tell once it is back
            known = {NOT_SUPPORTED: NO_GPM, FUNCTION_NOT_FOUND: NO_GPM_DRIVER}
            return known.get(code) or self.meaning(code)

    def _retry(self, instant: Instant) -> None:
        for device in self.devices:
            if device.lost is None or instant.monotonic_seconds < device.retry_at:
                continue
            device.retry_at = instant.monotonic_seconds + self.retry_seconds
            handle = self.ask(pynvml.nvmlDeviceGetHandleByUUID, device.uuid)
            if handle is not None:
                device.handle, device.lost, device.epoch = handle, None, self._next_epoch()
                self._find_nvlink(device)
                device.no_gpm = self._why_no_gpm(device, instant)
        self._some_lost = any(device.lost for device in self.devices)

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch


def _code(error: pynvml.NVMLError) -> int:
    return int(getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN))


def text(answer: str | bytes) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
