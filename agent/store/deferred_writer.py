"""A writer for a disk that does not take the database yet: what it is told waits in memory until the file opens.

A start must not fail on a full or read-only disk: nobody would sample, and nobody would know why. Once the file is
open everything goes straight to the `Writer`, which has its own patience for a disk that fills later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ...rules.base.errors import StoreError
from ..model import Absence, AgentStats, Event, FabricPort, Gpu, Node, ServingSample, Tick, Workload, WorkloadUse
from ..statistics.burst_stats import Burst
from .disk_errors import PassingError, held_absence, lost_absence
from .node_writer import NodeWriter
from .writer import Writer

HOLD_TICKS = 600
RETRY_SECONDS = 10.0
# Workloads, uses and absences that wait, counted one by one: some 300 bytes each, so at most some 6 MB.
MOST_ITEMS = 20_000
_MOST_NOTES = 100

Kind = Literal["node", "gpus", "ports", "absences", "workloads", "tick", "note", "other", "dropped"]
# What holds until it is said anew, in the order in which it must be said: the last word of each is never let go.
_STATES: tuple[Kind, ...] = ("node", "gpus", "ports", "absences", "workloads")
_BULKY: frozenset[Kind] = frozenset({"absences", "workloads"})


@dataclass(slots=True, eq=False)
class WaitingCall:
    """One thing that a `NodeWriter` shall be told. `span`: when a tick began and ended; `items`: how much it holds."""

    kind: Kind
    tell: Callable[[NodeWriter], object]
    span: tuple[float, float] = (0.0, 0.0)
    items: int = 0


class PatientWriter:
    """Opens with `opening`, at once or later: every `retry_seconds`, with a tick. Not for several threads.

    Raises StoreError from its constructor, and later from `PatientNode.add_tick`, where `opening` fails for a reason
    that does not pass. `opened` is called once, when the file is open.
    """

    def __init__(
        self,
        opening: Callable[[], Writer],
        *,
        hold_ticks: int = HOLD_TICKS,
        retry_seconds: float = RETRY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opening = opening
        self._hold_ticks = hold_ticks
        self._retry_seconds = retry_seconds
        self._monotonic = monotonic
        self._tried_at = monotonic()
        self._writer: Writer | None = None
        self._why: PassingError | None = None
        self._absence: Absence | None = None
        self._nodes: list[PatientNode] = []
        self._when_open: list[Callable[[], None]] = []
        self._try()

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def fault(self) -> Absence | None:
        """Why nothing can be written at present; None while all is well."""
        return self._absence if self._writer is None else self._writer.fault

    @property
    def waiting_ticks(self) -> int:
        """How many ticks wait in memory."""
        return sum(node.waiting_ticks for node in self._nodes) if self._writer is None else self._writer.waiting_ticks

    @property
    def lost_ticks(self) -> int:
        """How many ticks were let go because a fault lasted too long."""
        written = 0 if self._writer is None else self._writer.lost_ticks
        return written + sum(node.lost_ticks for node in self._nodes)

    def when_open(self, call: Callable[[], None]) -> None:
        """Call once when the file is open; at once where it is."""
        if self._writer is None:
            self._when_open.append(call)
        else:
            call()

    def for_node(self, node: Node, ts: float) -> PatientNode:
        """The writer of one node, as `Writer.for_node`."""
        one = PatientNode(self, node, ts, self._hold_ticks)
        self._nodes.append(one)
        if self._writer is not None:
            one.take_over(self._writer, "")
        return one

    def commit(self) -> bool:
        """Write what waits, as `Writer.commit`; False while the file is not open."""
        return self._writer is not None and self._writer.commit()

    def retry(self) -> None:
        """Try to open where it is time. Raises StoreError where it fails for a reason that does not pass."""
        now = self._monotonic()
        if self._writer is None and now - self._tried_at >= self._retry_seconds:
            self._tried_at = now
            self._try()

    def close(self) -> None:
        """Commit and let go of the file. Raises StoreError where something could not be written."""
        if self._writer is None:
            self._try()
        if self._writer is not None:
            self._writer.close()
        elif self._why is not None and self.waiting_ticks:
            raise StoreError(f"{self._why.message} The last {self.waiting_ticks} ticks are lost.", self._why.remedy)

    def _try(self) -> None:
        try:
            writer = self._opening()
        except PassingError as fault:
            if self._why is None or fault.reason != self._why.reason:
                self._absence = held_absence(fault.path, fault.reason, fault.why, fault.remedy, self._hold_ticks)
            self._why = fault
            return
        self._writer = writer
        reason = self._why.reason if self._why is not None else ""
        for node in self._nodes:
            node.take_over(writer, reason)
        for call in self._when_open:
            call()
        self._when_open.clear()


class PatientNode:
    """One node's road, as `NodeWriter`: straight into the writer where there is one, else into the ring."""

    def __init__(self, owner: PatientWriter, node: Node, ts: float, hold_ticks: int) -> None:
        self._owner = owner
        self._begun = (node, ts)
        self._ring = Ring(hold_ticks)
        self._to: NodeWriter | None = None

    @property
    def waiting_ticks(self) -> int:
        return self._ring.ticks

    @property
    def lost_ticks(self) -> int:
        return self._ring.lost_ticks

    def take_over(self, writer: Writer, reason: str) -> None:
        """From now on all goes to `writer`, what waited first; `reason` is why it waited."""
        self._to = writer.for_node(*self._begun)
        self._ring.replay(self._to, reason)
        lost, self._ring = self._ring.lost_ticks, Ring(self._ring.hold_ticks)
        self._ring.lost_ticks = lost

    def set_node(self, node: Node, ts: float) -> None:
        self._tell("node", lambda to: to.set_node(node, ts))

    def set_gpus(self, gpus: Iterable[Gpu], ts: float) -> None:
        named = tuple(gpus)
        self._tell("gpus", lambda to: to.set_gpus(named, ts))

    def set_ports(self, ports: Iterable[FabricPort], ts: float) -> None:
        named = tuple(ports)
        self._tell("ports", lambda to: to.set_ports(named, ts))

    def set_absences(self, absences: Iterable[Absence], ts: float) -> None:
        whole = frozenset(absences)
        self._tell("absences", lambda to: to.set_absences(whole, ts), len(whole))

    def set_workloads(self, workloads: Iterable[Workload], uses: Iterable[WorkloadUse], ts: float) -> None:
        named, used = tuple(workloads), tuple(uses)
        self._tell("workloads", lambda to: to.set_workloads(named, used, ts), len(named) + len(used))

    def note(self, absence: Absence, ts: float) -> None:
        self._tell("note", lambda to: to.note(absence, ts))

    def add_agent_stats(self, stats: AgentStats) -> None:
        self._tell("other", lambda to: to.add_agent_stats(stats))

    def add_event(self, event: Event) -> None:
        self._tell("note", lambda to: to.add_event(event))

    def add_burst(self, burst: Burst) -> None:
        self._tell("other", lambda to: to.add_burst(burst))

    def add_serving(self, sample: ServingSample) -> None:
        self._tell("other", lambda to: to.add_serving(sample))

    def add_tick(self, tick: Tick) -> None:
        """Keep one tick; while the file is not open, look now and then whether it can be opened."""
        if self._to is not None:
            self._to.add_tick(tick)
            return
        self._ring.add(WaitingCall("tick", lambda to: to.add_tick(tick), (tick.ts - tick.interval_seconds, tick.ts)))
        self._owner.retry()

    def _tell(self, kind: Kind, tell: Callable[[NodeWriter], None], items: int = 0) -> None:
        if self._to is not None:
            tell(self._to)
        else:
            self._ring.add(WaitingCall(kind, tell, items=items))


class Ring:
    """Up to `hold_ticks` ticks and what belongs to them; the oldest are let go, and the gap they leave is recorded."""

    def __init__(self, hold_ticks: int) -> None:
        self.hold_ticks = hold_ticks
        self.ticks = 0
        self.lost_ticks = 0
        self._waiting: deque[WaitingCall] = deque()
        self._states: dict[Kind, WaitingCall] = {}  # of what was let go, the last word of each kind
        self._notes: deque[WaitingCall] = deque(maxlen=_MOST_NOTES)
        self._bulky: deque[WaitingCall] = deque()
        self._items = 0
        self._gap: tuple[float, float] | None = None

    def add(self, told: WaitingCall) -> None:
        """Let it wait."""
        self._waiting.append(told)
        if told.kind in _BULKY:
            self._bulky.append(told)
            self._items += told.items
            while self._items > MOST_ITEMS and len(self._bulky) > 1:
                oldest = self._bulky.popleft()
                self._items -= oldest.items
                oldest.kind, oldest.tell = "dropped", _nothing
        self.ticks += told.kind == "tick"
        while self.ticks > self.hold_ticks:
            self._let_go(self._waiting.popleft())

    def replay(self, writer: NodeWriter, reason: str) -> None:
        """Tell all of it to `writer`; `reason` is why it waited."""
        for kind in _STATES:
            if kind in self._states:
                self._states[kind].tell(writer)
        for note in self._notes:
            note.tell(writer)
        if self._gap is not None:
            writer.note(lost_absence(reason, self.hold_ticks), *self._gap)
        for told in self._waiting:
            told.tell(writer)

    def _let_go(self, told: WaitingCall) -> None:
        if told.kind == "tick":
            self.ticks -= 1
            self.lost_ticks += 1
            since, until = self._gap or told.span
            self._gap = (min(since, told.span[0]), max(until, told.span[1]))
        elif told.kind in _STATES:
            self._states[told.kind] = told
            if told.kind in _BULKY:
                self._items -= self._bulky.popleft().items  # let go in order: it is the oldest of them
        elif told.kind == "note":
            self._notes.append(told)


def _nothing(_: NodeWriter) -> None:
    """What was too much to hold."""
