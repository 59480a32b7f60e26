"""One session of NVML and all that reads it, as the guard wants a driver (`gpu_backend.GpuDriver`)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...model import Instant
from ..base import Fault, Source, UnreadGpu
from .gpm import GpmSource
from .nvlink import NvlinkSource
from .nvml import NvmlSource
from .nvml_errors import MIG_SHARED
from .nvml_events import EventSource
from .nvml_session import NvmlSession


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
