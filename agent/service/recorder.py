"""Hands each tick to the store, together with what changed: devices, absences, whose work it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..model import Absence, AgentStats
from ..sampler import Sampled, Survey
from ..store.writer import Writer
from .assembly import Agent

if TYPE_CHECKING:
    from .page_server import PageServer
    from .totals import Totals

# Processes are listed every 10 s; where none come for this long the driver is silent, but the node can be drained.
_WITHOUT_PROCESSES_SECONDS = 15.0


class Recorder:
    """Keeps what the sampler of `agent` reads in its database. Where metrics are served, by `page`, `totals` are told
    the same things."""

    def __init__(
        self, writer: Writer, agent: Agent, ts: float, totals: Totals | None = None, page: PageServer | None = None
    ) -> None:
        self._writer, self._agent, self._totals, self._page = writer, agent, totals, page
        self._node_writer = writer.for_node(agent.node, ts)
        self._attribution, self._bursts = agent.attribution, agent.bursts
        self._absences: frozenset[Absence] | None = None
        self._attributed_at = ts
        self._announce(agent.survey, ts)

    def keep(self, sampled: Sampled) -> None:
        """Store one tick. What cannot be written waits in the writer; the fault is kept as an absence."""
        ts = sampled.tick.ts
        if self._agent.sampler.wants_probe:  # a port came up, a NIC or a GPU appeared
            self._announce(self._agent.look(), ts)
        if sampled.processes is not None:
            workloads, uses = self._attribution.attribute(sampled.processes)
            self._node_writer.set_workloads(workloads, uses, ts)
            if self._totals is not None:
                self._totals.set_uses(workloads, [use for use in uses if use.until is None])
            self._attributed_at = ts
        elif abs(ts - self._attributed_at) >= _WITHOUT_PROCESSES_SECONDS:
            self._attribution.look_at_node()
            self._attributed_at = ts
        self._keep_absences(sampled.absences, ts)
        self._node_writer.add_tick(sampled.tick)
        # Again: writing may have just failed or worked, and a stop before the next tick would leave that untold.
        self._keep_absences(sampled.absences, ts)
        for event in sampled.events:
            self._node_writer.add_event(event)
        if self._totals is not None:
            self._totals.add_tick(sampled.tick)
            if sampled.events:
                self._totals.add_events(sampled.events)
        for served in sampled.serving:
            holder = self._attribution.holder_of(served.pids)
            self._node_writer.add_serving(replace(served, workload_id=holder))
        for burst in self._bursts.take():
            self._node_writer.add_burst(burst)

    def report(self, stats: AgentStats) -> None:
        """Store what watching cost."""
        self._node_writer.add_agent_stats(stats)
        if self._totals is not None:
            self._totals.add_stats(stats)

    def note(self, absence: Absence, ts: float) -> None:
        """Record something that happened at `ts` and is over."""
        self._node_writer.note(absence, ts)

    def _keep_absences(self, absences: frozenset[Absence], ts: float) -> None:
        faults = (self._writer.fault, None if self._page is None else self._page.fault)
        whole = absences.union(self._attribution.absences, self._bursts.absences, filter(None, faults))
        if whole != self._absences:
            self._absences = whole
            self._node_writer.set_absences(whole, ts)
            if self._totals is not None:
                self._totals.set_absences(whole)

    def _announce(self, survey: Survey, ts: float) -> None:
        if survey.node is not None:
            self._node_writer.set_node(survey.node, ts)
        self._attribution.set_gpus(survey.gpus)
        self._node_writer.set_gpus(survey.gpus, ts)
        self._node_writer.set_ports(survey.ports, ts)
        if self._totals is not None:
            self._totals.set_survey(survey)
