"""The page of metrics as a part of the running agent: its totals, its server, and what the process costs."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping

from ...base.address import Address
from ...base.openmetrics import ExpositionFormat
from ...model import Absence
from .accumulators import Totals
from .http_server import MetricsServer
from .metrics_render import ProcessCost, render_metrics
from .process_stats import resident_bytes, started_ts

_NOTHING: frozenset[Absence] = frozenset()


class MetricsPage:
    """`totals` is fed by the recorder; between `start` and `stop` the page is served.

    They outlive the page: one that is served with other settings goes on with them. The agent counts as healthy while
    its last tick is at most `max_gap_seconds` old.
    """

    def __init__(self, address: Address, totals: Totals, max_gap_seconds: float) -> None:
        self.totals = totals
        self._max_gap = max_gap_seconds
        self._started_ts = started_ts()
        self._exporter = MetricsServer(
            address, page=self._text, version=lambda: totals.version, is_healthy=self._is_healthy
        )
        self._absences = _NOTHING

    @property
    def absences(self) -> frozenset[Absence]:
        """Why there is no page, while there is none; the same object while nothing changes."""
        fault = self._exporter.fault
        if (fault is None) != (not self._absences) or (fault is not None and fault not in self._absences):
            self._absences = _NOTHING if fault is None else frozenset((fault,))
        return self._absences

    def start(self, say: Callable[[str], None]) -> None:
        """Serve in a thread of its own, and say where, or why not."""
        self._exporter.start()
        fault = self._exporter.fault
        say(f"{fault.detail} {fault.remedy}" if fault else f"metrics at http://{self._exporter.address}/metrics")

    def stop(self) -> None:
        """Serve no longer."""
        self._exporter.stop()

    def _is_healthy(self) -> bool:
        return self.totals.seconds_since_tick() <= self._max_gap

    def _text(self, form: ExpositionFormat, served: Mapping[str, int]) -> str:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = resource.getrusage(resource.RUSAGE_SELF)
        cost = ProcessCost(
            cpu_seconds=own.ru_utime + own.ru_stime,
            children_cpu_seconds=children.ru_utime + children.ru_stime,
            resident_bytes=resident_bytes(),
            started_ts=self._started_ts,
        )
        return render_metrics(self.totals.read(), cost, served, form)
