"""What a node's writer was told while its file could not be opened: in order, and never more than a bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..file.disk_errors import lost_absence

if TYPE_CHECKING:
    from .node_writer import NodeWriter

# Workloads, uses and absences that wait, counted one by one: some 300 bytes each, so at most some 6 MB.
MOST_ITEMS = 20_000
_MOST_NOTES = 100

Kind = Literal["node", "gpus", "ports", "absences", "workloads", "tick", "note", "other", "dropped"]
# What holds until it is said anew, in the order in which it must be said: the last word of each is never let go.
_STATES: tuple[Kind, ...] = ("node", "gpus", "ports", "absences", "workloads")
_BULKY: frozenset[Kind] = frozenset({"absences", "workloads"})


@dataclass(slots=True, eq=False)
class Told:
    """One thing that a `NodeWriter` shall be told. `span`: when a tick began and ended; `items`: how much it holds."""

    kind: Kind
    tell: Callable[[NodeWriter], object]
    span: tuple[float, float] = (0.0, 0.0)
    items: int = 0


class Ring:
    """Up to `hold_ticks` ticks and what belongs to them; the oldest are let go, and the gap they leave is recorded."""

    def __init__(self, hold_ticks: int) -> None:
        self.hold_ticks = hold_ticks
        self.ticks = 0
        self.lost_ticks = 0
        self._waiting: deque[Told] = deque()
        self._states: dict[Kind, Told] = {}  # of what was let go, the last word of each kind
        self._notes: deque[Told] = deque(maxlen=_MOST_NOTES)
        self._bulky: deque[Told] = deque()
        self._items = 0
        self._gap: tuple[float, float] | None = None

    def add(self, told: Told) -> None:
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

    def _let_go(self, told: Told) -> None:
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
