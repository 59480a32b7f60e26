"""Hands each tick to the store, together with what changed: devices, absences, whose work it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..jobs.attribution import NodeAttribution
from ..model import Absence, AgentStats, Event, Node
from ..sampler import Sampled, Survey
from ..store.writer import Writer
from .bursts import Bursts

if TYPE_CHECKING:
    from .metrics_page import MetricsPage

# Processes are listed every 10 s; where none come for this long the driver is silent, but the node can be drained.
_WITHOUT_PROCESSES_SECONDS = 15.0

_NOTHING: frozenset[Absence] = frozenset()


class Recorder:
    """Keeps what the sampler reads in one node's database.

    `resurvey` gives a new survey where one is wanted (a port came up, a NIC appeared), or None; it is asked each tick.
    `bursts` are asked each tick for what they told meanwhile. `metrics`, where a page of metrics is served, is told the
    same things.
    """

    def __init__(
        self,
        writer: Writer,
        node: Node,
        survey: Survey,
        *,
        attribution: NodeAttribution,
        resurvey: Callable[[], Survey | None],
        bursts: Bursts,
        ts: float,
        metrics: MetricsPage | None = None,
    ) -> None:
        self._writer = writer
        self._metrics = metrics
        self._node_writer = writer.for_node(node, ts)
        self._attribution = attribution
        self._resurvey = resurvey
        self._bursts = bursts
        self._last_absences: tuple[frozenset[Absence], ...] = ()
        self._attributed_at = ts
        self._announce(survey, ts)

    def keep(self, sampled: Sampled) -> None:
        """Store one tick. What cannot be written waits in the writer; the fault is kept as an absence."""
        ts = sampled.tick.ts
        survey = self._resurvey()
        if survey is not None:
            self._announce(survey, ts)
        if sampled.processes is not None:
            workloads, uses = self._attribution.attribute(sampled.processes)
            self._node_writer.set_workloads(workloads, uses, ts)
            if self._metrics is not None:
                self._metrics.totals.set_uses(workloads, [use for use in uses if use.until is None])
            self._attributed_at = ts
        elif abs(ts - self._attributed_at) >= _WITHOUT_PROCESSES_SECONDS:
            self._attribution.look_at_node()
            self._attributed_at = ts
        self._keep_absences(sampled.absences, ts)
        fault = self._writer.fault
        self._node_writer.add_tick(sampled.tick)
        if self._writer.fault is not fault:
            # Writing just failed or worked again. A stop before the next tick would leave that untold.
            self._keep_absences(sampled.absences, ts)
        if self._metrics is not None:
            self._metrics.totals.add_tick(sampled.tick)
        if sampled.events:
            self._keep_events(sampled.events)
        for served in sampled.serving:
            holder = self._attribution.holder_of(served.pids)
            self._node_writer.add_serving(replace(served, workload_id=holder))
        for burst in self._bursts.take():
            self._node_writer.add_burst(burst)

    def _keep_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self._node_writer.add_event(event)
        if self._metrics is not None:
            self._metrics.totals.add_events(events)

    def report(self, stats: AgentStats) -> None:
        """Store what watching cost."""
        self._node_writer.add_agent_stats(stats)
        if self._metrics is not None:
            self._metrics.totals.add_stats(stats)

    def _keep_absences(self, absences: frozenset[Absence], ts: float) -> None:
        fault = self._writer.fault
        faults: frozenset[Absence] = frozenset((fault,)) if fault else _NOTHING
        page = self._metrics.absences if self._metrics is not None else _NOTHING
        parts = (absences, self._attribution.absences, self._bursts.absences, faults, page)
        if parts == self._last_absences:  # the same objects are not compared further
            return
        self._last_absences = parts
        whole = frozenset[Absence]().union(*parts)
        self._node_writer.set_absences(whole, ts)
        if self._metrics is not None:
            self._metrics.totals.set_absences(whole)

    def note(self, absence: Absence, ts: float) -> None:
        """Record something that happened at `ts` and is over."""
        self._node_writer.note(absence, ts)

    def _announce(self, survey: Survey, ts: float) -> None:
        if survey.node is not None:
            self._node_writer.set_node(survey.node, ts)
        self._attribution.set_gpus(survey.gpus)
        self._node_writer.set_gpus(survey.gpus, ts)
        self._node_writer.set_ports(survey.ports, ts)
        if self._metrics is not None:
            self._metrics.totals.set_survey(survey)
