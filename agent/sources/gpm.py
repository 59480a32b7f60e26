"""How busy a GPU's units and links were between two readings: by GPM (Hopper and newer), else its links by counters."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from ..model import Absence, Instant
from . import nvml_errors as errors
from .base import FIRST_READING, LONG_GAP, CounterRate, Fault
from .nvml_session import GpuReader, NvmlDevice, NvmlSession
from .nvml_table import COUNTERS, EACH_LINK, GPM_ROWS, UNITS, Answers, FieldBlock, Row, function, with_room

_MIN_SECONDS = 0.1 - 1e-6  # between two samples, from nvml.h
_REFUSED = frozenset({errors.NO_PERMISSION, errors.NOT_SUPPORTED, errors.FUNCTION_NOT_FOUND})
_UNKNOWN = frozenset({errors.NOT_SUPPORTED, errors.INVALID_ARGUMENT})  # there is no such counter or no such link
# PCIe moves 2^32 bytes in less than the shortest interval (0.07 s at Gen5 x16): a counter that may have no more bits
# has no value before its first sample.
_32_BITS = 1 << 32

Pass = dict[str, tuple[Instant, Mapping[str, float]]]  # by GPU, each at its own instant


@dataclass(slots=True)
class _Pair:
    """Two sample buffers of one GPU, for the life of the session, and the rows to ask for."""

    buffers: list[Any]
    rows: tuple[Row, ...]
    newest: int = 0  # which of the two holds the last sample
    taken_at: float | None = None  # when it was taken; None: it holds nothing to compare with


class GpmSource(GpuReader):
    """SM, tensor, DRAM and FP activity, PCIe and NVLink traffic, or only `metrics` of these. Each source has its own
    sample buffers, so that two of them may read the same GPUs at different paces, on one thread."""

    name, origin = "gpm", "GPM"

    def __init__(self, session: NvmlSession, max_gap_seconds: float, metrics: Collection[str] | None = None) -> None:
        super().__init__(session, self._pair)
        self._rows = tuple(row for row in GPM_ROWS if metrics is None or row.metric in metrics)
        self._max_gap = max_gap_seconds
        self._buffers: dict[str, list[Any]] = {}  # kept until the session closes, also of instances that are gone
        # One GPU at a time. The rows have the order of the table, so that fewer are asked for by their number.
        self._request = with_room(pynvml.c_nvmlGpmMetricsGet_t, version=pynvml.NVML_GPM_METRICS_GET_VERSION)
        self._answers = [self._request.metrics[place] for place in range(len(self._rows))]
        for row, answer in zip(self._rows, self._answers, strict=True):
            answer.metricId = row.number
        session.before_close.append(self.close)

    def read_each(self, now: Callable[[], Instant]) -> tuple[Pass, list[Absence]]:
        """One reading for bursts, and the absences. Ends early if the GPUs change."""
        devices = self._session.current(now())
        readings: Pass = {}
        absences: list[Absence] = []
        for device in devices:
            if self._session.devices is not devices:
                break
            instant = now()
            values, absent = self._read_one(device, instant)
            absences += absent
            if values:
                readings[device.uuid] = instant, values
        return readings, absences

    def close(self) -> None:
        """Give the sample buffers back to the driver's library."""
        super().close()
        for buffers in self._buffers.values():
            for buffer in buffers:
                function("nvmlGpmSampleFree")(buffer)
        self._buffers.clear()

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float | Fault]:
        if device.no_gpm is not None:  # the links are then counted, or excused, by the source `nvlink`
            return {row.metric: device.no_gpm for row in UNITS}
        pair = self._state(device)
        why = self._compare(device, pair, instant.monotonic_seconds)
        if isinstance(why, int) and why != 0:
            pair.taken_at = None  # of an instance made again under the same id no older sample may be compared
            if why in _REFUSED:  # the counters take over what they can
                device.no_gpm = errors.NO_GPM if why == errors.FUNCTION_NOT_FOUND else errors.fault_of(why)
        answers = [(why or answer.nvmlReturn, answer.value) for answer in self._answers[: len(pair.rows)]]
        not_asked = self._rows[len(pair.rows) :] if device.parent is None else ()
        return {row.metric: errors.NO_NVLINK for row in not_asked} | self._told(device, pair.rows, answers)

    def _compare(self, device: NvmlDevice, pair: _Pair, monotonic: float) -> int | Fault:
        """Take a sample and compare it with the last one: 0 where `_answers` has the metrics, else why not."""
        elapsed = None if pair.taken_at is None else monotonic - pair.taken_at
        if elapsed is not None and 0 <= elapsed < _MIN_SECONDS:
            return errors.TOO_SOON
        while len(pair.buffers) < 2:
            try:
                pair.buffers.append(pynvml.nvmlGpmSampleAlloc())
            except pynvml.NVMLError as error:
                return errors.code_of(error)
        older, newer = pair.newest, 1 - pair.newest
        if device.parent is None:
            code = function("nvmlGpmSampleGet")(device.handle, pair.buffers[newer])
        else:
            code = function("nvmlGpmMigSampleGet")(device.parent.handle, device.made[0], pair.buffers[newer])
        if code != 0:
            return code
        pair.newest, pair.taken_at = newer, monotonic
        if elapsed is None:
            return FIRST_READING
        if not 0 < elapsed <= self._max_gap:
            return LONG_GAP
        request = self._request
        request.numMetrics, request.sample1, request.sample2 = len(pair.rows), pair.buffers[older], pair.buffers[newer]
        return function("nvmlGpmMetricsGet")(ctypes.byref(request))

    def _pair(self, device: NvmlDevice) -> _Pair:
        # Links are the whole GPU's; the source `nvml` says so of an instance.
        without = ("nvlink", "pcie") if device.parent else ("nvlink",) if device.nvlink_links == 0 else ()
        rows = [row for row in self._rows if not row.metric.startswith(without)]
        return _Pair(self._buffers.setdefault(device.uuid, []), tuple(rows))


class _Counters:
    """The counters of one GPU, in one block, for the life of its handle. Each of `rows` is the sum of some."""

    def __init__(self, device: NvmlDevice, max_gap_seconds: float) -> None:
        self.rows: dict[Row, list[tuple[int, CounterRate]]] = {}  # with their places in the block, and their rates
        self._wide = False  # whether a PCIe counter has shown more than 32 bits
        asked: list[tuple[int, int]] = []
        for row in COUNTERS:
            if row.metric in [row.metric for row in self.rows] or (row.scope != 0 and device.nvlink_links == 0):
                continue
            scopes = range(device.nvlink_places) if row.scope == EACH_LINK else (row.scope,)
            fields = [(row.number, scope) for scope in scopes]
            # A link that is not there is left out for good; with any other error the tick will say so.
            answers = zip(fields, FieldBlock(device.handle, fields).read(), strict=True)
            if taken := [row for row, (code, _) in answers if code not in _UNKNOWN]:
                self.rows[row] = [(len(asked) + n, CounterRate(max_gap_seconds)) for n in range(len(taken))]
                asked += taken
        self._block = FieldBlock(device.handle, asked)

    def read(self, monotonic: float) -> Answers:
        """For each of `rows` 0 and the rate, or why there is none: a sum that lacks one of its links is too low."""
        numbers = self._block.read()
        rates: list[tuple[int | Fault, float]] = []
        for row, parts in self.rows.items():
            total, why, may_wrap = 0.0, None, row.metric.startswith("pcie")
            for place, counter in parts:
                code, number = numbers[place]
                rate = code or counter.rate(number, monotonic)
                if code != 0:
                    counter.last = None
                elif may_wrap and number >= _32_BITS:
                    self._wide = True
                if isinstance(rate, float):
                    total += rate
                else:
                    why = why or rate
            if may_wrap and not self._wide:
                why = why or errors.COUNTER_WRAP
            rates.append((why or 0, total))
        return rates


class NvlinkSource(GpuReader):
    """Rates of the link counters, where GPM is missing. On GPUs with GPM it says nothing at all."""

    name, origin = "nvlink", "NVML fields"

    def __init__(self, session: NvmlSession, max_gap_seconds: float) -> None:
        super().__init__(session, lambda device: _Counters(device, max_gap_seconds))

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float | Fault]:
        if device.no_gpm is None or device.parent is not None:
            return {}
        counters = self._state(device)
        of_links = errors.NO_NVLINK if device.nvlink_links == 0 else errors.NO_COUNTER
        without = {row.metric: of_links if row.scope != 0 else errors.NO_COUNTER for row in COUNTERS}
        return without | self._told(device, counters.rows, counters.read(instant.monotonic_seconds))
