"""NVIDIA's driver as the agent knows it: its devices, and all that reads them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pynvml

from ..base.clock import boot_seconds
from ..metrics import GPU_METRICS
from ..model import Capability, Gpu, GpuProcess, Instant, Probe, Reading
from . import nvml_errors as errors
from . import nvml_table as table
from .base import OUT_OF_RANGE, CounterRate, Fault, Source, UnreadGpu
from .gpm import GpmSource, NvlinkSource
from .nvml_errors import fault_of
from .nvml_events import EventSource
from .nvml_session import GpuReader, NvmlDevice, NvmlSession

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
            if device.no_gpm not in (None, errors.MIG_SHARED) and device.lost is None
        ]


class _GpuState:
    """What is read of one GPU or instance. Power is asked for where the energy counter has no rate."""

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
            why = errors.NOT_UPDATED  # no GPU draws nothing: its next step covers this time too
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
            values |= dict.fromkeys(_OF_WHOLE, errors.MIG)
        else:
            if device.in_mig_mode and values["gpu_util"] == fault_of(errors.NOT_SUPPORTED):
                values["gpu_util"] = errors.MIG
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
