"""NVIDIA's driver as the agent knows it: its devices, and all that reads them."""

import ctypes
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from ..base.clock import boot_seconds
from ..metrics import GPU_METRICS
from ..model import Absence, Capability, Gpu, GpuProcess, Instant, Probe, Reading
from . import nvml_table as table
from .base import FIRST_READING, LONG_GAP, OUT_OF_RANGE, CounterRate, Fault, Source, UnreadGpu
from .nvml_events import EventSource
from .nvml_session import GpuReader, NvmlDevice, NvmlSession
from .nvml_table import COUNTERS, EACH_LINK, GPM_ROWS, UNITS, Answers, FieldBlock, Row, fault_of, function, with_room

_MIN_SECONDS = 0.1 - 1e-6  # between two samples, from nvml.h
_REFUSED = frozenset({table.NO_PERMISSION, table.NOT_SUPPORTED, table.FUNCTION_NOT_FOUND})
_UNKNOWN = frozenset({table.NOT_SUPPORTED, table.INVALID_ARGUMENT})  # there is no such counter or no such link
# PCIe moves 2^32 bytes in less than the shortest interval (0.07 s at Gen5 x16): a counter that may have no more bits
# has no value before its first sample.
_32_BITS = 1 << 32

Pass = dict[str, tuple[Instant, Mapping[str, float]]]  # by GPU, each at its own instant


@dataclass(slots=True)
class _Pair:
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
                device.no_gpm = table.NO_GPM if why == table.FUNCTION_NOT_FOUND else table.fault_of(why)
        answers = [(why or answer.nvmlReturn, answer.value) for answer in self._answers[: len(pair.rows)]]
        not_asked = self._rows[len(pair.rows) :] if device.parent is None else ()
        return {row.metric: table.NO_NVLINK for row in not_asked} | self._told(device, pair.rows, answers)

    def _compare(self, device: NvmlDevice, pair: _Pair, monotonic: float) -> int | Fault:
        """Take a sample and compare it with the last one: 0 where `_answers` has the metrics, else why not."""
        elapsed = None if pair.taken_at is None else monotonic - pair.taken_at
        if elapsed is not None and 0 <= elapsed < _MIN_SECONDS:
            return table.TOO_SOON
        while len(pair.buffers) < 2:
            try:
                pair.buffers.append(pynvml.nvmlGpmSampleAlloc())
            except pynvml.NVMLError as error:
                return table.code_of(error)
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
                why = why or table.COUNTER_WRAP
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
        of_links = table.NO_NVLINK if device.nvlink_links == 0 else table.NO_COUNTER
        without = {row.metric: of_links if row.scope != 0 else table.NO_COUNTER for row in COUNTERS}
        return without | self._told(device, counters.rows, counters.read(instant.monotonic_seconds))


PROCESSES_EVERY_SECONDS = 10.0  # a process list costs more than all gauges; work that matters lives longer
_OF_INSTANCES = tuple(row for row in table.GAUGES if row.metric == "mem_used_bytes")
# NVML has the rest for whole GPUs only.
_OF_WHOLE = {metric.name for metric in GPU_METRICS} - {row.metric for row in (*_OF_INSTANCES, *table.UNITS)}


class NvidiaDriver(NvmlSession):
    """The session and all that reads it, each `interval_seconds`. No counter is compared over more than
    `max_gap_seconds`. `sources` may hang with the driver; the first names the GPUs, and closing all releases it.
    Those `beside` wait on threads of their own and never hang their reader. `now`: the monotonic time."""

    def __init__(
        self, interval_seconds: float, max_gap_seconds: float, now: Callable[[], float] = boot_seconds
    ) -> None:
        super().__init__()
        self.interval_seconds, self.max_gap_seconds = interval_seconds, max_gap_seconds
        self.sources: tuple[Source, ...] = (
            NvmlSource(self, interval_seconds, max_gap_seconds, now),
            GpmSource(self, max_gap_seconds),
            NvlinkSource(self, max_gap_seconds),
        )
        self.beside: tuple[Source, ...] = (EventSource(self),)

    def unread_gpus(self) -> list[UnreadGpu]:
        """GPUs without GPM. What several instances share is no better on a page: it has the same counters."""
        return [
            UnreadGpu(device.uuid, device.parent.uuid, str(device.made[0]))
            if device.parent
            else UnreadGpu(device.uuid, device.uuid)
            for device in self.devices
            if device.no_gpm not in (None, table.MIG_SHARED) and device.lost is None
        ]


class _GpuState:
    def __init__(self, device: NvmlDevice, max_gap_seconds: float) -> None:
        self.gauges = table.GaugeCalls(table.GAUGES if device.parent is None else _OF_INSTANCES)
        self.power = table.GaugeCalls((table.POWER,))
        self.energy = table.FieldBlock(device.handle, ((table.ENERGY.number, 0),))
        self.rate = CounterRate(max_gap_seconds)

    def energy_and_power(self, device: NvmlDevice, now: float) -> table.Answers:
        """0 and the millijoules since the last reading, or why not; the same of the mean milliwatts."""
        ((why, millijoules),) = self.energy.read()
        last, elapsed = self.rate.last, now - self.rate.at
        if why == 0 and millijoules == last:
            why = table.NOT_UPDATED  # no GPU draws nothing: its next step covers this time too
        milliwatts = why or self.rate.rate(millijoules, now)
        if isinstance(milliwatts, float) and milliwatts * table.POWER.step > table.MOST[table.POWER.metric]:
            milliwatts = OUT_OF_RANGE
        if isinstance(milliwatts, float):
            return [(0, milliwatts * elapsed), (0, milliwatts)]
        return [(milliwatts, 0.0), *self.power.answers(device.handle)]


class NvmlSource(GpuReader):
    """The devices themselves and what plain NVML says of them. Closing it closes the session for all its sources."""

    name, origin = "nvml", "libnvidia-ml.so.1"

    def __init__(
        self, session: NvmlSession, interval_seconds: float, max_gap_seconds: float, now: Callable[[], float]
    ) -> None:
        super().__init__(session, lambda device: _GpuState(device, max_gap_seconds))
        self._now = now
        self._every = PROCESSES_EVERY_SECONDS - interval_seconds / 2  # the nearest tick
        self._gpus: dict[str, Gpu] = {}
        self._primed = False  # the loop throws the first reading away: a process list would be lost with it
        self._looked_at = -math.inf
        self._processes: list[GpuProcess] | None = None  # of this reading; None: it does not look
        self._unlisted: dict[str, Fault] = {}  # by GPU why its processes were not listed at the last look
        self._probed: tuple[NvmlDevice, ...] = ()

    @property
    def wants_probe(self) -> bool:
        """Whether there are other devices than at the last probe, or more is known of them."""
        return self._session.fault is None and self._session.devices is not self._probed

    def probe(self) -> Probe:
        """The GPUs (sku left to the catalogue), and what of each can be read."""
        self._processes, self._unlisted = [], {}
        capabilities = super().probe().capabilities
        self._probed, unnamed = self._session.devices, self._session.unnamed
        self._gpus = {device.uuid: self._describe(device) for device in self._probed}
        capabilities += tuple(Capability(self.name, a.scope, a.subject, "*", self.origin, a) for a in unnamed)
        return Probe(tuple(self._gpus.values()), capabilities=capabilities, unnamed_gpus=len(unnamed))

    def read(self, instant: Instant) -> Reading:
        """One reading of every GPU; processes on the second and then every `PROCESSES_EVERY_SECONDS`."""
        open_now, elapsed = self._session.fault is None, instant.monotonic_seconds - self._looked_at
        due = open_now and self._primed and elapsed >= self._every
        self._primed, self._processes = True, [] if due else None
        if due:
            self._looked_at, self._unlisted = instant.monotonic_seconds, {}
            self._session.look_again()
        reading = super().read(instant)
        listed = None if self._processes is None or self._session.fault else tuple(self._processes)
        return replace(reading, processes=listed, absences=reading.absences.union(self._session.unnamed))

    def close(self) -> None:
        """Release every GPU, for all sources of the session."""
        self._session.close()
        super().close()

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float | Fault]:  # noqa: ARG002
        state = self._state(device)
        values = self._told(device, state.gauges.rows, state.gauges.answers(device.handle))
        if device.lost is not None or self._session.fault is not None:
            return {}
        if device.parent is not None:
            values |= dict.fromkeys(_OF_WHOLE, table.MIG)
        else:
            if device.in_mig_mode and values["gpu_util"] == fault_of(table.NOT_SUPPORTED):
                values["gpu_util"] = table.MIG
            # Another thread may have kept this one between the tick's time and this reading.
            answers = state.energy_and_power(device, self._now())
            values |= self._told(device, (table.ENERGY, table.POWER), answers)
        # In MIG mode work runs on instances, which list their own.
        if self._processes is not None and not device.in_mig_mode:
            code, running = table.processes_of(device.handle)
            if code != 0:
                self._unlisted[device.uuid] = self._fault(device, code)
            self._processes += [GpuProcess(device.uuid, pid, memory) for pid, memory in running]
        return values | ({"processes": self._unlisted[device.uuid]} if device.uuid in self._unlisted else {})

    def _describe(self, device: NvmlDevice) -> Gpu:
        if device.lost is not None and device.uuid in self._gpus:
            return self._gpus[device.uuid]
        ask, handle, parent = self._session.ask, device.handle, device.parent
        version, attributes_kind = pynvml.nvmlMemory_v2, pynvml.c_nvmlDeviceAttributes
        name = ask(pynvml.nvmlDeviceGetName, handle) or "unknown GPU"
        memory = ask(table.get, "nvmlDeviceGetMemoryInfo_v2", pynvml.c_nvmlMemory_v2_t, handle, version=version)
        attributes = ask(table.get, "nvmlDeviceGetAttributes_v2", attributes_kind, handle) if parent else None
        pci = None if parent else ask(table.get, "nvmlDeviceGetPciInfo_v3", pynvml.nvmlPciInfo_t, handle)
        limit = None if parent else ask(table.get_number, "nvmlDeviceGetEnforcedPowerLimit", handle)
        return Gpu(
            uuid=device.uuid,
            index=device.index,
            name=name,
            kind="mig" if parent else "gpu",
            parent_uuid=parent and parent.uuid,
            slices=attributes.gpuInstanceSliceCount or None if attributes else None,
            mig_profile=name.partition(" MIG ")[2].strip() or None,
            pci_bus_id=pci and pci.busId,
            mem_total_bytes=memory and int(memory.total),
            power_limit_watts=limit / 1e3 if limit else None,
            nvlink_links=device.nvlink_links,
            nvlink_bytes_per_second=device.nvlink_bytes_per_second,
            driver_version=self._session.version,
            minor=None if parent else ask(table.get_number, "nvmlDeviceGetMinorNumber", handle),
            gpu_instance=device.made[0] if parent else None,
        )
