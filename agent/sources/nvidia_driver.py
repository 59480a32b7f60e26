"""One session of NVML and all that reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pynvml

from ..model import Absence, Capability, Gpu, GpuProcess, Instant, Probe, Reading
from .base import GAPS, Fault, Source, UnreadGpu
from .gpm import GpmSource
from .mig import instance_slices, mig_profile_in
from .nvlink import NvlinkSource
from .nvml_errors import MIG_SHARED, MIG_UTILISATION, NOT_SUPPORTED, text_of
from .nvml_events import EventSource
from .nvml_gauges import ORIGINS, Gauges, GpuGauges
from .nvml_session import GpuReader, NvmlDevice, NvmlSession


class NvidiaDriver:
    """`interval_seconds`: at which it is going to be read. No counter is compared over more than `max_gap_seconds`.
    `now`: the monotonic time; None: a reading takes no time.
    """

    def __init__(
        self,
        interval_seconds: float,
        max_gap_seconds: float,
        session: NvmlSession | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._session = session = session or NvmlSession()
        self.sources: tuple[Source, ...] = (
            NvmlSource(session, max_gap_seconds, now=now),
            GpmSource(session, max_gap_seconds),
            NvlinkSource(session, max_gap_seconds, interval_seconds),
        )
        self.beside: tuple[Source, ...] = (EventSource(session),)

    @property
    def fault(self) -> Fault | None:
        return self._session.fault

    @property
    def version(self) -> str | None:
        return self._session.driver_version

    def open(self, instant: Instant) -> None:
        self._session.open(instant)

    def burst_reader(self, max_gap_seconds: float, metrics: Collection[str]) -> GpmSource:
        return GpmSource(self._session, max_gap_seconds, metrics)

    def unread_gpus(self) -> list[UnreadGpu]:
        """GPUs without GPM. What several instances share is no better on a page: it has the same counters."""
        if self._session.fault is not None:
            return []
        return [
            UnreadGpu(device.uuid, device.parent.uuid, str(device.instance.gpu_instance))
            if device.parent is not None and device.instance is not None
            else UnreadGpu(device.uuid, device.uuid)
            for device in self._session.devices
            if device.no_gpm not in (None, MIG_SHARED) and device.lost is None
        ]


PROCESSES_EVERY_SECONDS = 10.0  # a process list costs more than all gauges; work that matters lives longer
_JITTER_SECONDS = 0.05  # a tick that comes a little early still counts as the tenth second


class NvmlSource(GpuReader):
    """The devices themselves and what plain NVML says of them. Closing it closes the session for all its sources."""

    name = "nvml"

    def __init__(
        self,
        session: NvmlSession,
        max_gap_seconds: float,
        processes_every_seconds: float = PROCESSES_EVERY_SECONDS,
        now: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(session)
        self._made = Gauges(session, max_gap_seconds, now)
        self._gauges: dict[str, GpuGauges] = {}
        self._every = processes_every_seconds - _JITTER_SECONDS
        self._primed = False  # the loop throws the first reading away: a process list would be lost with it
        self._looked_at: float | None = None
        self._processes: list[GpuProcess] | None = None  # of this reading; None: it does not look
        self._no_processes: list[Absence] = []
        self._probed: tuple[NvmlDevice, ...] = ()

    @property
    def wants_probe(self) -> bool:
        """Whether the MIG instances are others than at the last probe."""
        return self._session.fault is None and self._session.devices is not self._probed

    def probe(self) -> Probe:
        """The GPUs (sku left to the catalogue), and what of each can be read."""
        if self._session.fault is not None:
            return Probe(capabilities=(self._session.fault.line(self.name, "libnvidia-ml.so.1"),))
        devices = self._probed = self._session.devices
        here = {device.uuid for device in devices}
        for gone in self._gauges.keys() - here:
            del self._gauges[gone]
        lines = [line for device in devices for line in self._capabilities(device)]
        lines += [
            Capability(self.name, one.scope, one.subject, "*", "nvmlDeviceGetHandleByIndex", one)
            for one in self._session.unnamed
        ]
        return Probe(gpus=tuple(self._describe(device) for device in devices), capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:
        """One reading of every GPU; processes on the second and then every `processes_every_seconds`."""
        monotonic = instant.monotonic_seconds
        due = self._primed and (self._looked_at is None or monotonic - self._looked_at >= self._every)
        self._primed = True
        self._processes = [] if due else None
        if due and self._session.fault is None:
            self._looked_at, self._no_processes = monotonic, []
            self._session.look_at_instances(instant)
        self._absent.extend(self._session.unnamed)
        if not due:
            self._absent.extend(self._no_processes)
        reading = super().read(instant)
        if self._processes is None or self._session.fault is not None:
            return reading
        return replace(reading, processes=tuple(self._processes))

    def close(self) -> None:
        """Let go of every GPU, for all sources of the session."""
        self._session.close()
        self._gauges.clear()
        self._made.forget()

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float] | None:
        if device.lost is not None:
            self._absent.add(device.uuid, "*", device.lost)
            return None
        gauges = self._gauges.get(device.uuid)
        if gauges is None or gauges.epoch != device.epoch:
            gauges = self._gauges[device.uuid] = self._made.of(device)
        values, missing = gauges.read(instant.monotonic_seconds)
        for metric, why in missing:
            known = _in_mig_mode(device, metric, why)
            fault = known if isinstance(known, Fault) else self._session.failed(device, known, instant)
            if device.lost is not None:
                self._absent.add(device.uuid, "*", device.lost)
                return None
            self._absent.add(device.uuid, metric, fault)
        # In MIG mode work runs on instances, which list their own.
        if self._processes is not None and device.instances is None and self._session.fault is None:
            code, found = gauges.processes()
            if found is None:
                refused = self._absent.of(device.uuid, "processes", self._session.meaning(code))
                self._no_processes.append(refused)
                self._absent.extend((refused,))
            else:
                self._processes += [GpuProcess(device.uuid, pid, memory) for pid, memory in found]
        return values

    def _describe(self, device: NvmlDevice) -> Gpu:
        ask, handle = self._session.ask, device.handle
        memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        pci = ask(pynvml.nvmlDeviceGetPciInfo, handle)
        name = ask(pynvml.nvmlDeviceGetName, handle)
        if device.instance is not None and device.parent is not None:
            full_name = text_of(name) if name else "unknown MIG instance"
            return Gpu(
                uuid=device.uuid,
                index=device.index,
                name=full_name,
                kind="mig",
                parent_uuid=device.parent.uuid,
                slices=instance_slices(handle),
                mig_profile=mig_profile_in(full_name),
                mem_total_bytes=int(memory.total) if memory else None,
                driver_version=self._session.driver_version,
                gpu_instance=device.instance.gpu_instance,
            )
        return Gpu(
            uuid=device.uuid,
            index=device.index,
            name=text_of(name) if name else "unknown GPU",
            pci_bus_id=text_of(pci.busId) if pci else None,
            mem_total_bytes=int(memory.total) if memory else None,
            power_limit_watts=limit / 1e3 if limit else None,
            nvlink_links=device.nvlink_links,
            nvlink_bytes_per_second=device.nvlink_bytes_per_second,
            driver_version=self._session.driver_version,
            minor=ask(pynvml.nvmlDeviceGetMinorNumber, handle),
        )

    def _capabilities(self, device: NvmlDevice) -> list[Capability]:
        if device.lost is not None:
            return [self._line(device, "*", device.lost)]
        gauges = self._made.of(device)
        _, missing = gauges.read(0.0)
        why = {metric: self._meaning(_in_mig_mode(device, metric, one)) for metric, one in missing}
        lines = [self._line(device, metric, why.get(metric)) for metric in ORIGINS]
        code, _ = gauges.processes()
        return [*lines, self._line(device, "processes", self._session.meaning(code) if code else None)]

    def _meaning(self, why: int | Fault) -> Fault | None:
        if why is GAPS["first-reading"]:
            return None  # a probe has no earlier reading; that says nothing about the counter
        return why if isinstance(why, Fault) else self._session.meaning(why)

    def _line(self, device: NvmlDevice, metric: str, fault: Fault | None) -> Capability:
        origin = ORIGINS.get(metric, "nvmlDeviceGetComputeRunningProcesses")
        absence = fault.of("gpu", device.uuid, metric) if fault else None
        return Capability(self.name, "gpu", device.uuid, metric, origin, absence)


def _in_mig_mode(device: NvmlDevice, metric: str, why: int | Fault) -> int | Fault:
    """The reason itself where MIG mode is why the driver does not tell a metric."""
    return MIG_UTILISATION if metric == "gpu_util" and why == NOT_SUPPORTED and device.instances is not None else why
