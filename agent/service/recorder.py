"""Hands each tick to the store, together with what changed: devices, absences, whose work it is."""

from __future__ import annotations

from collections.abc import Callable

from ..inventory.attribution import Attribution
from ..model import Absence, AgentStats, Node
from ..sampler import Sampled, Survey
from ..store.writer import Writer


class Recorder:
    """Keeps what the sampler reads in one node's database.

    `resurvey` gives a new survey where one is wanted (a port came up, a NIC appeared), or None; it is asked each tick.
    """

    def __init__(
        self,
        writer: Writer,
        node: Node,
        survey: Survey,
        *,
        attribution: Attribution,
        resurvey: Callable[[], Survey | None],
        ts: float,
    ) -> None:
        self._writer = writer
        self._node_writer = writer.for_node(node, ts)
        self._attribution = attribution
        self._resurvey = resurvey
        self._last_absences: tuple[frozenset[Absence], ...] = ()
        self._announce(survey, ts)

    def keep(self, sampled: Sampled) -> None:
        """Store one tick. What cannot be written waits in the writer; the fault is kept as an absence."""
        ts = sampled.tick.ts
        survey = self._resurvey()
        if survey is not None:
            self._announce(survey, ts)
        if sampled.processes is not None:
            self._node_writer.set_workloads(*self._attribution.attribute(sampled.processes), ts)
        self._keep_absences(sampled.absences, ts)
        self._node_writer.add_tick(sampled.tick)

    def report(self, stats: AgentStats) -> None:
        """Store what watching cost."""
        self._node_writer.add_agent_stats(stats)

    def _keep_absences(self, absences: frozenset[Absence], ts: float) -> None:
        fault = self._writer.fault
        parts = (absences, self._attribution.absences, frozenset((fault,)) if fault else frozenset())
        if len(parts) == len(self._last_absences) and all(map(_same, parts, self._last_absences)):
            return
        self._last_absences = parts
        self._node_writer.set_absences(frozenset().union(*parts), ts)

    def note(self, absence: Absence, ts: float) -> None:
        """Record something that happened at `ts` and is over."""
        self._node_writer.note(absence, ts)

    def _announce(self, survey: Survey, ts: float) -> None:
        if survey.node is not None:
            self._node_writer.set_node(survey.node, ts)
        self._node_writer.set_gpus(survey.gpus, ts)
        self._node_writer.set_ports(survey.ports, ts)


def _same(one: frozenset[Absence], other: frozenset[Absence]) -> bool:
    return one is other or one == other
