"""Hands each tick to the store, together with what changed: devices, absences, whose work it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..model import Absence, AgentStats, GpuProcess, Node, Workload, WorkloadUse
from ..sampler import Sampled, Survey
from ..store.writer import Writer

Attribute = Callable[[Sequence[GpuProcess]], tuple[tuple[Workload, ...], tuple[WorkloadUse, ...]]]


class Recorder:
    """Keeps what the sampler reads in one node's database.

    `attribute` turns GPU processes into workloads. `resurvey` is asked again when a tick speaks of a device that
    nobody announced (a driver that came up late).
    """

    def __init__(
        self,
        writer: Writer,
        node: Node,
        survey: Survey,
        *,
        attribute: Attribute,
        resurvey: Callable[[], Survey],
        ts: float,
    ) -> None:
        self._writer = writer
        self._node_writer = writer.for_node(node, ts)
        self._attribute = attribute
        self._resurvey = resurvey
        self._unknown: set[str] = set()
        self._last_absences: tuple[frozenset[Absence], Absence | None] | None = None
        self._announce(survey, ts)

    def keep(self, sampled: Sampled) -> None:
        """Store one tick. What cannot be written waits in the writer; the fault is kept as an absence."""
        ts = sampled.tick.ts
        if self._node_writer.unknown_devices - self._unknown:
            self._announce(self._resurvey(), ts)
            self._unknown = set(self._node_writer.unknown_devices)
        self._keep_absences(sampled.absences, ts)
        if sampled.processes is not None:
            self._node_writer.set_workloads(*self._attribute(sampled.processes), ts)
        self._node_writer.add_tick(sampled.tick)

    def report(self, stats: AgentStats) -> None:
        """Store what watching cost."""
        self._node_writer.add_agent_stats(stats)

    def _keep_absences(self, absences: frozenset[Absence], ts: float) -> None:
        now = (absences, self._writer.fault)
        last = self._last_absences
        if last is not None and last[0] is now[0] and last[1] == now[1]:
            return
        self._last_absences = now
        self._node_writer.set_absences(absences | {now[1]} if now[1] else absences, ts)

    def _announce(self, survey: Survey, ts: float) -> None:
        self._node_writer.set_gpus(survey.gpus, ts)
        self._node_writer.set_ports(survey.ports, ts)
