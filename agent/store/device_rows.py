"""A node's GPUs or its ports as rows: what each was, from when to when. A changed device gets a new row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from ..model import FabricPort, Gpu
from .codec import TABLES, Cell, kept
from .write_batch import Batch


@dataclasses.dataclass(slots=True)
class _Validity:
    """The rows of one device: ids by the time from which they hold, and whether the last still does."""

    rows: list[tuple[float, int]]
    value: Gpu | FabricPort
    open: bool

    @property
    def id(self) -> int:
        return self.rows[-1][1]

    def at(self, ts: float) -> int:
        """The id of the row that held in the interval that ends at `ts` (before the first: the first)."""
        if len(self.rows) == 1:
            return self.rows[0][1]
        return next((row_id for valid_from, row_id in reversed(self.rows) if valid_from < ts), self.rows[0][1])


class DeviceRows:
    """Writes one node's devices into the table ``gpu`` or ``port``, and begins with what the file knows of them.

    `ids`: the row of each device that is here now; none for one for which no id is left.
    """

    def __init__(self, batch: Batch, node_id: int, table: Literal["gpu", "port"]) -> None:
        self._batch = batch
        self._node_id = node_id
        self._table = table
        self._known: dict[str, _Validity] = {}
        self.ids: dict[str, int] = {}
        self._load()

    def at(self, key: str, ts: float) -> int | None:
        """The id of the row of `key` that held in the interval that ends at `ts`; None: nobody ever named it."""
        known = self._known.get(key)
        return None if known is None else known.at(ts)

    def set(self, wanted: Mapping[str, Gpu | FabricPort], ts: float) -> None:
        """The devices that are here from `ts` on: what changed or is not named any more is closed."""
        for key, held in self._known.items():
            if held.open and wanted.get(key) != held.value:
                if key in wanted and not self._batch.ids_left(self._table):
                    # No id is free for another row: the change is kept, its history is not.
                    held.value = wanted[key]
                    self._put(held, None)
                    continue
                held.open = False
                self._put(held, ts)
        for key, device in wanted.items():
            held = self._known.get(key)
            if held is not None and held.open:
                continue
            if not self._batch.ids_left(self._table):
                continue
            earlier = held.rows if held else []
            self._known[key] = _Validity([*earlier, (ts, self._batch.next_id(self._table))], device, True)
            self._put(self._known[key], None)
        self._list_ids()

    def _put(self, held: _Validity, valid_to: float | None) -> None:
        valid_from = held.rows[-1][0]
        if valid_to is not None:
            valid_to = max(valid_to, valid_from)
        self._batch.put_row(self._table, held.id, (held.id, self._node_id, *kept(held.value), valid_from, valid_to))

    def _load(self) -> None:
        columns = TABLES[self._table]
        sql = f"SELECT {', '.join(columns)} FROM {self._table} WHERE node_id = ? ORDER BY id"  # noqa: S608
        for row in self._batch.connection.execute(sql, (self._node_id,)):
            self._remember(row)
        self._list_ids()

    def _remember(self, row: Sequence[Cell]) -> None:
        device: Gpu | FabricPort = Gpu(*row[2:-2]) if self._table == "gpu" else FabricPort(*row[2:-2])  # type: ignore[arg-type]
        key = device.uuid if isinstance(device, Gpu) else device.key
        valid_from, number = float(row[-2] or 0), int(row[0] or 0)
        earlier = self._known[key].rows if key in self._known else []
        self._known[key] = _Validity([*earlier, (valid_from, number)], device, row[-1] is None)

    def _list_ids(self) -> None:
        self.ids = {key: known.id for key, known in self._known.items() if known.open}
