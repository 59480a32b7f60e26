"""The driver's events as rows: each on its own while they are few, counted together in a storm."""

from __future__ import annotations

import dataclasses

from ..model import Event
from .codec import kept
from .write_batch import Batch

# What happens again within a minute is one row: a broken GPU repeats itself many times a second.
AGAIN_SECONDS = 60.0
# And no more rows than this begin in an hour, whatever happens; what comes then is counted in a row that is there.
MOST_ROWS_AN_HOUR = 60

_Key = tuple[str | None, str, int | None]
_REST = Event(0.0, None, "other", None, "more events than are kept one by one")


@dataclasses.dataclass(slots=True)
class _Row:
    id: int
    event: Event


class EventRows:
    """Writes one node's events into the table ``event``."""

    def __init__(self, batch: Batch, node_id: int) -> None:
        self._batch = batch
        self._node_id = node_id
        self._hour = 0
        self._begun = 0  # rows, in this hour
        self._rows: dict[_Key, _Row] = {}  # the newest of each key

    def add(self, event: Event) -> None:
        """Keep an event, or count it in the row of its like."""
        self._turn(event.ts)
        row = self._rows.get(event.key)
        if row is not None and 0 <= event.ts - row.event.last_ts < AGAIN_SECONDS:
            self._count(row, event)
        elif self._begun < MOST_ROWS_AN_HOUR:
            self._begin(event)
        elif row is not None:
            self._count(row, event)
        elif (rest := self._rows.get(_REST.key)) is not None:
            self._count(rest, event)
        else:
            self._begin(dataclasses.replace(_REST, ts=event.ts, last_ts=event.last_ts, count=event.count))

    def _turn(self, ts: float) -> None:
        hour = int(ts // 3600)
        if hour != self._hour:
            self._hour, self._begun = hour, 0
            self._rows = {k: row for k, row in self._rows.items() if 0 <= ts - row.event.last_ts < AGAIN_SECONDS}

    def _begin(self, event: Event) -> None:
        self._begun += 1
        row = self._rows[event.key] = _Row(self._batch.next_id("event"), event)
        self._put(row)

    def _count(self, row: _Row, event: Event) -> None:
        last = max(row.event.last_ts, event.last_ts)
        row.event = dataclasses.replace(row.event, count=row.event.count + event.count, last_ts=last)
        self._put(row)

    def _put(self, row: _Row) -> None:
        self._batch.put_row("event", row.id, (row.id, self._node_id, *kept(row.event)))
