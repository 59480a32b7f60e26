"""NVLink and PCIe traffic from NVML's cumulative field counters, for GPUs on which GPM does not tell it."""

from __future__ import annotations

import math
from typing import NamedTuple

import pynvml

from ..model import Absence, Capability, Instant, Probe, Reading
from . import nvml_fields as fields
from .base import GAPS, NOTHING_READ, Fault
from .counters import CounterRates, NoRate
from .nvml_errors import INVALID_ARGUMENT, NO_COUNTER, NO_NVLINK, NOT_SUPPORTED, counter_wrap
from .nvml_session import GpuReader, NvmlDevice, NvmlSession

_KIB = 1024.0
_UNKNOWN = frozenset({NOT_SUPPORTED, INVALID_ARGUMENT})  # this GPU has no such counter or no such link
_32_BITS = 1 << 32
# What a lane moves one way, by PCIe generation (PCI-SIG): transfers a second over 8, with nothing taken off for
# encoding, because it bounds what a counter can show. A link that is not known is taken for the fastest.
_LANE_BYTES_PER_SECOND = {1: 2.5e9 / 8, 2: 5e9 / 8, 3: 1e9, 4: 2e9, 5: 4e9, 6: 8e9, 7: 16e9}
_MOST_LANES = 16


class _Counted(NamedTuple):
    """A metric that is the sum of some counters. Places are those of the block's fields."""

    metric: str
    places: tuple[int, ...]
    scale: float  # bytes per count
    origin: str
    may_wrap: bool  # at 32 bits


class _Counters:
    """Which counters one GPU has, as the one block that reads them."""

    def __init__(self, session: NvmlSession, device: NvmlDevice) -> None:
        self.epoch = device.epoch
        self.counted: list[_Counted] = []
        self.never: list[Absence] = []
        self._device = device
        self._call = session.function("nvmlDeviceGetFieldValues")
        self._asked: list[tuple[int, int]] = []
        # The shortest time in which a PCIe counter can turn once; infinite once one has shown more than 32 bits.
        self.wrap_seconds = _wrap_seconds(session, device)
        self.wrap = counter_wrap(self.wrap_seconds)
        for metric, field in (
            ("pcie_tx_bytes_per_second", fields.PCIE_TX_BYTES),
            ("pcie_rx_bytes_per_second", fields.PCIE_RX_BYTES),
        ):
            if not self._count(metric, [(field, 0)], 1.0, may_wrap=True):
                self.never.append(NO_COUNTER.of("gpu", device.uuid, metric))
        for metric, total_kib, link_bytes in (
            ("nvlink_tx_bytes_per_second", fields.NVLINK_DATA_TX_KIB, fields.NVLINK_XMIT_BYTES),
            ("nvlink_rx_bytes_per_second", fields.NVLINK_DATA_RX_KIB, fields.NVLINK_RCV_BYTES),
        ):
            links = [(link_bytes, link) for link in range(device.nvlink_places)]
            if device.nvlink_links == 0:
                self.never.append(NO_NVLINK.of("gpu", device.uuid, metric))
            elif not (self._count(metric, [(total_kib, fields.ALL_LINKS)], _KIB) or self._count(metric, links, 1.0)):
                self.never.append(NO_COUNTER.of("gpu", device.uuid, metric))
        asked = self._asked
        self.block = fields.FieldBlock(self._call, device.handle, asked) if self._call is not None and asked else None

    def note_width(self, number: float) -> None:
        """A reading that 32 bits cannot hold proves the GPU's PCIe counters wider."""
        if number >= _32_BITS:
            self.wrap_seconds = math.inf

    def _count(self, metric: str, asked: list[tuple[int, int]], scale: float, may_wrap: bool = False) -> bool:
        """Take those of `asked` that answer, for `metric`. False: this GPU knows none of them."""
        if self._call is None or not asked:
            return False
        block = fields.FieldBlock(self._call, self._device.handle, asked)
        refused = block.read()
        answers = [(refused, 0)] * len(asked) if refused else block.values()
        # A link that is not there is left out for good; with any other error the tick will say so.
        taken = [field for field, (code, _) in zip(asked, answers, strict=True) if code not in _UNKNOWN]
        if taken:
            places = tuple(range(len(self._asked), len(self._asked) + len(taken)))
            self._asked += taken
            self.counted.append(_Counted(metric, places, scale, f"NVML field {asked[0][0]}", may_wrap))
            for code, number in answers:
                if may_wrap and code == 0:
                    self.note_width(number)
        return bool(taken)


def _wrap_seconds(session: NvmlSession, device: NvmlDevice) -> float:
    """The time of 2^32 bytes at what the link can do at most: it slows down at rest and speeds up within an interval.

    The link as it is counts where it is faster: a virtual machine's ports may claim to be slower than it.
    """
    ask, handle = session.ask, device.handle
    generation = ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle) or 0
    lanes = ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle) or _MOST_LANES
    if generation:
        generation = max(generation, ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle) or 0)
    lanes = max(lanes, ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle) or 0)
    fastest = max(_LANE_BYTES_PER_SECOND.values())
    return _32_BITS / (lanes * _LANE_BYTES_PER_SECOND.get(generation, fastest))


class NvlinkSource(GpuReader):
    """Rates of the link counters, where GPM is missing. On GPUs with GPM it says nothing at all.

    `interval_seconds`: at which it is going to be read, so that a probe knows which counters may wrap in between.
    """

    name = "nvlink"

    def __init__(self, session: NvmlSession, max_gap_seconds: float, interval_seconds: float = 0.0) -> None:
        super().__init__(session)
        self._max_gap = max_gap_seconds
        self._interval = interval_seconds
        self._rates = CounterRates(max_gap_seconds)
        self._counters: dict[str, _Counters] = {}

    def probe(self) -> Probe:
        """Which counters stand in for GPM, on each GPU without it."""
        if self._session.fault is not None:
            return Probe(capabilities=(self._session.fault.line(self.name, "NVML fields"),))
        lines: list[Capability] = []
        for device in self._session.devices:
            if device.lost is not None:
                absence = device.lost.of("gpu", device.uuid)
                lines.append(Capability(self.name, "gpu", device.uuid, "*", "NVML fields", absence))
            elif device.no_gpm is not None and device.instance is None:
                counters = self._prepare(device)
                lines += [self._line(device, counters, counted) for counted in counters.counted]
                lines += [Capability(self.name, "gpu", device.uuid, a.metric, "NVML fields", a) for a in counters.never]
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:
        """What the counters of GPUs without GPM tell."""
        for device in self._session.current(instant):
            if device.no_gpm is not None or device.lost is not None:
                return super().read(instant)
        return NOTHING_READ if self._session.fault is None else super().read(instant)

    def close(self) -> None:
        """Forget the counters; the handles are the session's."""
        self._counters.clear()
        self._rates = CounterRates(self._max_gap)

    def _line(self, device: NvmlDevice, counters: _Counters, counted: _Counted) -> Capability:
        wraps = counted.may_wrap and self._interval >= counters.wrap_seconds
        absence = counters.wrap.of("gpu", device.uuid, counted.metric) if wraps else None
        return Capability(self.name, "gpu", device.uuid, counted.metric, counted.origin, absence)

    def _prepare(self, device: NvmlDevice) -> _Counters:
        known = self._counters.get(device.uuid)
        if known is None or known.epoch != device.epoch:
            if known is not None:
                for counted in known.counted:
                    for place in counted.places:
                        self._rates.forget((device.uuid, counted.metric, place))
            known = self._counters[device.uuid] = _Counters(self._session, device)
        return known

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float] | None:
        if device.lost is not None:
            self._absent.add(device.uuid, "*", device.lost)
            return None
        if device.no_gpm is None or device.instance is not None:
            return None
        counters = self._prepare(device)
        self._absent.extend(counters.never)
        if counters.block is None:
            return None
        code = counters.block.read()
        if code != 0:
            fault = self._session.failed(device, code, instant)
            for counted in counters.counted:
                self._absent.add(device.uuid, counted.metric, fault)
            return None
        values: dict[str, float] = {}
        numbers = counters.block.values()
        for counted in counters.counted:
            rate = self._rate(device, counters, counted, numbers, instant.monotonic_seconds)
            if isinstance(rate, Fault):
                self._absent.add(device.uuid, counted.metric, rate)
            else:
                values[counted.metric] = rate
        return values or None

    def _rate(
        self,
        device: NvmlDevice,
        counters: _Counters,
        counted: _Counted,
        numbers: list[tuple[int, int | float]],
        monotonic: float,
    ) -> float | Fault:
        total, why = 0.0, None
        for place in counted.places:
            code, number = numbers[place]
            key = (device.uuid, counted.metric, place)
            if code != 0:
                self._rates.forget(key)
                why = self._session.meaning(code)
                continue
            if counted.may_wrap:
                counters.note_width(number)
            wrap_seconds = counters.wrap_seconds if counted.may_wrap else math.inf
            rate = self._rates.rate(key, number, monotonic, wrap_seconds)
            if isinstance(rate, NoRate):
                why = why or (counters.wrap if rate.reason == "counter-wrap" else GAPS[rate.reason])
            else:
                total += rate * counted.scale
        return why or total  # a sum that lacks one of its links would be too low, not approximate
