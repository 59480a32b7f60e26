"""GPM (Hopper and newer): how busy the GPU's units and links were between two samples."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Collection, Generator, Mapping
from typing import NamedTuple

import pynvml

from ..model import Absence, Capability, Instant, Probe
from .base import GAPS, Fault
from .nvml_errors import (
    FUNCTION_NOT_FOUND,
    NO_GPM_DRIVER,
    NO_NVLINK,
    NO_PERMISSION,
    NOT_A_NUMBER,
    NOT_SUPPORTED,
    OUT_OF_RANGE,
    TOO_SOON,
)
from .nvml_fields import NvmlCall, argument_of
from .nvml_session import GpuReader, NvmlDevice, NvmlSession


class _Asked(NamedTuple):
    metric: str
    number: int  # nvmlGpmMetricId_t
    scale: float  # what NVML says times this is the metric in its unit
    most: float  # above: not a reading. In NVML's unit


# Percent may pass 100 by rounding; more than 0.1 % of it is a fault (NVIDIA/DCGM#152 shows them on MIG).
_PERCENT, _MOST_PERCENT = 0.01, 100.1
# MiB/s; no GPU link comes near 100 TiB/s.
_MIB, _MOST_MIB = 1048576.0, 1e8

# nvml.h, nvmlGpmMetricId_t. The links come last: a GPU without NVLink is asked for the others only.
UNITS = (
    _Asked("sm_active", 2, _PERCENT, _MOST_PERCENT),
    _Asked("sm_occupancy", 3, _PERCENT, _MOST_PERCENT),
    _Asked("tensor_active", 5, _PERCENT, _MOST_PERCENT),
    _Asked("dram_active", 10, _PERCENT, _MOST_PERCENT),
    _Asked("fp64_active", 11, _PERCENT, _MOST_PERCENT),
    _Asked("fp32_active", 12, _PERCENT, _MOST_PERCENT),
    _Asked("fp16_active", 13, _PERCENT, _MOST_PERCENT),
)
_PCIE = (
    _Asked("pcie_tx_bytes_per_second", 20, _MIB, _MOST_MIB),
    _Asked("pcie_rx_bytes_per_second", 21, _MIB, _MOST_MIB),
)
_NVLINK = (
    _Asked("nvlink_rx_bytes_per_second", 60, _MIB, _MOST_MIB),
    _Asked("nvlink_tx_bytes_per_second", 61, _MIB, _MOST_MIB),
)
_ALL = UNITS + _PCIE + _NVLINK

MIN_SECONDS = 0.1  # between two samples, from nvml.h
_ROUNDING_SECONDS = 1e-6

# nvmlGpmMetricsGet_t: version, numMetrics, sample1 (older), sample2 (newer), then the metrics; each is metricId,
# nvmlReturn, value and three pointers to text.
_HEAD = struct.Struct("@IIPP")
_METRIC = struct.Struct("@IIdPPP")
_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
_ROOM = 1024  # metrics; newer drivers know more than the binding, so leave more room than either


_unpack_all = struct.Struct("@" + "4xId24x" * len(_ALL)).unpack_from  # of each answer its code and its value


def _usual(answers: memoryview) -> dict[str, float] | None:
    """The answers to `_ALL`, where each was told and lies in its range; None: they are to be looked at one by one.

    Written out because a tick finds the CPU's caches cold: this touches half of what a loop over `_ALL` does.
    """
    (
        c1, sm, c2, occupancy, c3, tensor, c4, dram, c5, fp64, c6, fp32, c7, fp16,
        c8, pcie_tx, c9, pcie_rx, c10, nvlink_rx, c11, nvlink_tx,
    ) = _unpack_all(answers)  # fmt: skip
    if (
        c1 | c2 | c3 | c4 | c5 | c6 | c7 | c8 | c9 | c10 | c11 == 0
        and 0.0 <= sm <= 100.0
        and 0.0 <= occupancy <= 100.0
        and 0.0 <= tensor <= 100.0
        and 0.0 <= dram <= 100.0
        and 0.0 <= fp64 <= 100.0
        and 0.0 <= fp32 <= 100.0
        and 0.0 <= fp16 <= 100.0
        and 0.0 <= pcie_tx <= _MOST_MIB
        and 0.0 <= pcie_rx <= _MOST_MIB
        and 0.0 <= nvlink_rx <= _MOST_MIB
        and 0.0 <= nvlink_tx <= _MOST_MIB
    ):
        return {
            "sm_active": sm * _PERCENT,
            "sm_occupancy": occupancy * _PERCENT,
            "tensor_active": tensor * _PERCENT,
            "dram_active": dram * _PERCENT,
            "fp64_active": fp64 * _PERCENT,
            "fp32_active": fp32 * _PERCENT,
            "fp16_active": fp16 * _PERCENT,
            "pcie_tx_bytes_per_second": pcie_tx * _MIB,
            "pcie_rx_bytes_per_second": pcie_rx * _MIB,
            "nvlink_rx_bytes_per_second": nvlink_rx * _MIB,
            "nvlink_tx_bytes_per_second": nvlink_tx * _MIB,
        }
    return None


class _Pair:
    """Two sample buffers of one GPU, for the life of the session."""

    __slots__ = ("absent", "addresses", "asked", "buffers", "epoch", "handle", "newest", "taken_at")

    def __init__(
        self, device: NvmlDevice, buffers: tuple[ctypes.c_void_p, ctypes.c_void_p], asked: tuple[_Asked, ...]
    ) -> None:
        self.epoch = device.epoch
        self.handle = argument_of(device.handle)
        self.buffers = buffers
        self.addresses = (buffers[0].value, buffers[1].value)
        self.newest = 0  # which of the two holds the last sample
        self.taken_at: float | None = None  # when it was taken; None: it holds nothing to compare with
        self.asked = asked
        self.absent: tuple[Absence, ...] = ()  # what this GPU never has


class GpmSource(GpuReader):
    """SM, tensor, DRAM and FP activity, PCIe and NVLink traffic; absent, with the reason, where there is no GPM.

    `metrics`: the only ones asked for (None: all). Each source has sample buffers of its own, so that two of them may
    read the same GPUs at different paces; all of them on one thread.
    """

    name = "gpm"

    def __init__(self, session: NvmlSession, max_gap_seconds: float, metrics: Collection[str] | None = None) -> None:
        super().__init__(session)
        self._asked = _ALL if metrics is None else tuple(one for one in _ALL if one.metric in metrics)
        self._max_gap = max_gap_seconds
        self._pairs: dict[str, _Pair] = {}
        self._no_gpm: dict[tuple[str, Fault], tuple[Absence, ...]] = {}
        self._request = ctypes.create_string_buffer(_HEAD.size + _ROOM * _METRIC.size)  # shared: one GPU at a time
        for place, asked in enumerate(self._asked):
            struct.pack_into("@I", self._request, _HEAD.size + place * _METRIC.size, asked.number)
        self._answers = memoryview(self._request)[_HEAD.size :]
        self._sample_get: NvmlCall | None = None
        self._mig_sample_get: NvmlCall | None = None
        self._metrics_get: NvmlCall | None = None
        session.before_close(self._free_others)

    def probe(self) -> Probe:
        """What GPM can tell of each GPU. Takes the sample buffers, so that no tick has to."""
        if self._session.fault is not None:
            return Probe(capabilities=(self._session.fault.line(self.name, "GPM"),))
        self._free_others({device.uuid for device in self._session.devices})
        for device in self._session.devices:
            self._prepare(device, Instant(0.0, 0.0))
        return Probe(capabilities=tuple(line for device in self._session.devices for line in self._lines(device)))

    def each(
        self, now: Callable[[], Instant]
    ) -> Generator[tuple[str, Instant, Mapping[str, float] | None], None, frozenset[Absence]]:
        """As `read`, for bursts: one GPU a step, each at its own instant. Returns the absences."""
        devices = self._session.current(now())
        self._free_others({device.uuid for device in devices})
        for device in devices:
            if self._session.devices is not devices:
                break
            instant = now()
            yield device.uuid, instant, self._read_device(device, instant)
        return self._absent.finish()

    def close(self) -> None:
        """Give the sample buffers back to the driver's library."""
        self._free_others()

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float] | None:
        if device.lost is None and device.no_gpm is None:
            pair = self._pairs.get(device.uuid)
            if pair is None or pair.epoch != device.epoch:
                pair = self._prepare(device, instant)
            if pair is not None:
                return self._sample(device, pair, instant)
        if device.lost is not None:
            self._absent.add(device.uuid, "*", device.lost)
        elif device.no_gpm is not None:
            self._absent.extend(self._without_gpm(device.uuid, device.no_gpm))
        return None

    def _sample(self, device: NvmlDevice, pair: _Pair, instant: Instant) -> dict[str, float] | None:
        monotonic = instant.monotonic_seconds
        elapsed = None if pair.taken_at is None else monotonic - pair.taken_at
        if elapsed is not None and 0 <= elapsed < MIN_SECONDS - _ROUNDING_SECONDS:
            return self._nothing(device, pair, TOO_SOON)
        spare = 1 - pair.newest
        if device.instance is None and self._sample_get is not None:
            code = self._sample_get(pair.handle, pair.buffers[spare])
        else:
            code = self._take(device, pair.buffers[spare])
        if code != 0:
            return self._refused(device, pair, code, instant)
        older, pair.newest, pair.taken_at = pair.newest, spare, monotonic
        if elapsed is None:
            return self._nothing(device, pair, GAPS["first-reading"])
        if not 0 < elapsed <= self._max_gap:
            return self._nothing(device, pair, GAPS["long-gap"])
        count, addresses = len(pair.asked), pair.addresses
        _HEAD.pack_into(self._request, 0, _VERSION, count, addresses[older], addresses[spare])
        assert self._metrics_get is not None
        code = self._metrics_get(self._request)
        if code != 0:
            return self._refused(device, pair, code, instant)
        values = _usual(self._answers) if pair.asked is _ALL else None
        if values is not None:
            if pair.absent:
                self._absent.extend(pair.absent)
            return values
        return self._one_by_one(device, pair, count)

    def _one_by_one(self, device: NvmlDevice, pair: _Pair, count: int) -> dict[str, float] | None:
        values: dict[str, float] = {}
        answers = _METRIC.iter_unpack(self._answers[: count * _METRIC.size])
        for (metric, _, scale, most), (_, metric_code, value, _, _, _) in zip(pair.asked, answers, strict=True):
            if metric_code == 0 and 0.0 <= value <= most:
                values[metric] = value * scale if value <= 100.0 or scale == _MIB else 1.0
            else:
                self._absent.add(device.uuid, metric, self._why(metric_code, value))
        self._absent.extend(pair.absent)
        return values or None

    def _why(self, code: int, value: float) -> Fault:
        if code != 0:
            return self._session.meaning(code)
        return NOT_A_NUMBER if value != value else OUT_OF_RANGE  # noqa: PLR0124 - NaN alone differs from itself

    def _refused(self, device: NvmlDevice, pair: _Pair, code: int, instant: Instant) -> None:
        fault = self._session.failed(device, code, instant)
        if device.lost is not None:
            pair.taken_at = None
            self._absent.add(device.uuid, "*", fault)
            return
        if code in (NO_PERMISSION, NOT_SUPPORTED):
            device.no_gpm = fault  # until the next probe: the counters take over what they can
        if device.instance is not None:
            pair.taken_at = None  # an instance made anew under the same id: no sample of the old one may be compared
        self._nothing(device, pair, fault)

    def _nothing(self, device: NvmlDevice, pair: _Pair, fault: Fault) -> None:
        for asked in pair.asked:
            self._absent.add(device.uuid, asked.metric, fault)
        self._absent.extend(pair.absent)

    def _prepare(self, device: NvmlDevice, instant: Instant) -> _Pair | None:
        """Buffers for a GPU and one trial sample, thrown away: whether the driver lets us is known before the ticks."""
        if device.lost is not None or device.no_gpm is not None:
            return None
        self._sample_get, self._mig_sample_get, self._metrics_get = (
            self._session.function(f"nvmlGpm{name}Get") for name in ("Sample", "MigSample", "Metrics")
        )
        known = self._pairs.get(device.uuid)
        try:
            buffers = known.buffers if known else (self._alloc(), self._alloc())
            pair = self._pairs[device.uuid] = _Pair(device, buffers, self._asked)
        except pynvml.NVMLError as error:
            device.no_gpm = self._session.meaning(int(getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN)))
            return None
        if None in (self._sample_get if device.instance is None else self._mig_sample_get, self._metrics_get):
            device.no_gpm = NO_GPM_DRIVER
            return None
        if device.instance is not None:
            pair.asked = self._of(UNITS)  # links are the whole GPU's; the source `nvml` says so of the instance
        elif device.nvlink_links == 0:
            pair.asked = self._of(UNITS + _PCIE)
            pair.absent = tuple(NO_NVLINK.of("gpu", device.uuid, asked.metric) for asked in self._of(_NVLINK))
        code = self._take(device, buffers[0])
        if code != 0:
            fault = self._session.failed(device, code, instant)
            if code in (NO_PERMISSION, NOT_SUPPORTED):
                device.no_gpm = fault
            return None if device.lost or device.no_gpm or self._session.fault else pair
        return pair

    def _of(self, asked: tuple[_Asked, ...]) -> tuple[_Asked, ...]:
        return tuple(one for one in asked if one in self._asked)

    def _take(self, device: NvmlDevice, buffer: ctypes.c_void_p) -> int:
        """A sample of a GPU, or of the GPU instance that a MIG instance is."""
        if device.instance is None or device.parent is None:
            return self._sample_get(device.handle, buffer) if self._sample_get else FUNCTION_NOT_FOUND
        number = ctypes.c_uint(device.instance.gpu_instance)
        return (
            self._mig_sample_get(device.parent.handle, number, buffer) if self._mig_sample_get else FUNCTION_NOT_FOUND
        )

    def _alloc(self) -> ctypes.c_void_p:
        return ctypes.cast(pynvml.nvmlGpmSampleAlloc(), ctypes.c_void_p)

    def _free_others(self, kept: Collection[str] = ()) -> None:
        """Give back the buffers of all but these GPUs and instances."""
        gone = [uuid for uuid in self._pairs if uuid not in kept]
        free: Callable[..., int] | None = self._session.function("nvmlGpmSampleFree") if gone else None
        for uuid in gone:
            for buffer in self._pairs.pop(uuid).buffers:
                if free is not None:
                    free(buffer)

    def _without_gpm(self, uuid: str, fault: Fault) -> tuple[Absence, ...]:
        """The units' activity only: the links are then counted, or excused, by the source `nvlink`."""
        key = (uuid, fault)
        if key not in self._no_gpm:
            self._no_gpm[key] = tuple(fault.of("gpu", uuid, asked.metric) for asked in UNITS)
        return self._no_gpm[key]

    def _lines(self, device: NvmlDevice) -> list[Capability]:
        fault = device.lost or device.no_gpm
        if fault is not None:
            absent = [fault.of("gpu", device.uuid, asked.metric) for asked in UNITS]
            return [Capability(self.name, "gpu", device.uuid, one.metric, "GPM", one) for one in absent]
        pair = self._pairs.get(device.uuid)
        never = {one.metric: one for one in pair.absent} if pair else {}
        return [
            Capability(self.name, "gpu", device.uuid, one.metric, f"GPM metric {one.number}", never.get(one.metric))
            for one in (_ALL if device.instance is None else UNITS)
        ]
