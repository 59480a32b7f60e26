"""Hours of databases kept on this machine, so that the next look reads only what is new.

A day of a file is kept once it is over, under what the file tells of that day's rows (`StoredRollup.marks`) and of its
devices. It is asked for those at each look: a day whose rows were changed, a file that was replaced by another, and a
node that was renamed are read anew. So is what another version of skuwise kept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from .... import __version__
from ....agent.metrics import BIN_EDGES
from ....agent.store.reading.queries import Query
from ....rules.base.errors import StoreError
from ..cache_folder import CacheFolder
from ..packing import Texts, Unpacked
from ..resolution import concat
from ..tables import cut
from .arrays import head_of, packed_tables, unpacked_tables
from .opening import DatabaseReader
from .stored_rows import rollup_of

DAY = 86400.0
SUFFIX = ".hours"
MAX_BYTES = 1 << 30
# A fleet's file of 64 nodes takes some 180 MB.
_MOST_BYTES = 512 << 20
_FORM = b"skuwise-hours-1\n"

Span = tuple[float, float]
Tables = Mapping[str, Sequence[pd.DataFrame]]


@dataclass(frozen=True, slots=True)
class KeptHours:
    """`queries`: what is kept of each day, by name."""

    folder: CacheFolder
    queries: Mapping[str, Query]

    @classmethod
    def at(cls, folder: Path | None, queries: Mapping[str, Query]) -> KeptHours:
        """In this folder; None: nowhere."""
        return cls(CacheFolder(folder, SUFFIX), queries)

    def look(self, connection: DatabaseReader, window: Span) -> Look | None:
        """What is kept of an open file and still holds; None: nothing of it can be kept."""
        if self.folder.path is None:
            return None
        first, last = math.floor(window[0] / DAY), math.floor(window[1] / DAY)
        if last <= first:
            return None
        try:
            marks = _marks_of(connection, self.queries.values(), (first * DAY, last * DAY))
        except (StoreError, ValueError):  # whatever it is, reading tells
            return None
        name = self._name(connection.path)
        known = self._kept(name)
        good = {day: known.days[day] for day in marks if known is not None and known.days.get(day) == marks[day]}
        tables = {} if known is None or not good else {n: [_of_days(t, good)] for n, t in known.tables.items()}
        # A day without rows has nothing to read but what may still come.
        lacking = [day for day in range(first, last) if day in marks and day not in good]
        return Look(self, name, marks, tables, tuple(good), tuple(lacking), (window[0], window[1]))

    def _kept(self, name: str) -> _Kept | None:
        content = self.folder.read(name, _FORM, _MOST_BYTES)
        if content is None:
            return None
        try:
            head = head_of(content)
            if head["version"] != _VERSION:
                return None
            days = {int(day): str(mark) for day, mark in head["days"].items()}
            tables = unpacked_tables(content)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            return None
        is_ours = all(
            list(tables[n].columns) == list(query.columns) for n, query in self.queries.items() if n in tables
        )
        return _Kept(days, tables) if is_ours and set(tables) == set(self.queries) else None

    def has(self, path: Path) -> bool:
        """Whether anything is kept of a file, be it still so or not."""
        folder = self.folder.path
        return folder is not None and (folder / self._name(path)).exists()

    def _name(self, path: Path) -> str:
        return f"{_digest([str(path.resolve()), *(query.sql for query in self.queries.values())])}{SUFFIX}"

    def keep(self, name: str, days: Mapping[int, str], tables: Mapping[str, pd.DataFrame]) -> None:
        """Keep the hours of whole days of a file, in place of what was kept of it."""
        content = packed_tables(tables, {"version": _VERSION, "days": days})
        if len(content) <= _MOST_BYTES:
            self.folder.write(name, _FORM, content)

    def prune(self) -> None:
        self.folder.prune(MAX_BYTES)


_VERSION = [__version__, list(BIN_EDGES)]


@dataclass(frozen=True, slots=True)
class _Kept:
    days: Mapping[int, str]
    tables: Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Look:
    """One look at a file's hours. `tables`: the kept ones by name; `good`: of which days (since 1970); `lacking`: days
    that are over and not kept; `window`: of which hours are wanted."""

    kept: KeptHours
    name: str
    marks: Mapping[int, str]
    tables: Tables
    good: tuple[int, ...]
    lacking: tuple[int, ...]
    window: Span
    _read: dict[str, list[pd.DataFrame]] = field(default_factory=dict)

    def spans(self) -> list[Span]:
        """What is to be read: days that are over whole, so that they can be kept, and the rest of the window."""
        first, last = math.floor(self.window[0] / DAY), math.floor(self.window[1] / DAY)
        wanted = [(day * DAY, (day + 1) * DAY) for day in range(first, last) if day not in self.good]
        if self.window[1] > last * DAY:
            wanted.append((last * DAY, self.window[1]))
        found: list[Span] = []
        for begin, end in wanted:
            goes_on = bool(found) and found[-1][1] == begin
            found.append((found.pop()[0] if goes_on else begin, end))
        return found

    def keep(self, read: Mapping[str, Sequence[pd.DataFrame]]) -> None:
        """Keep what was read of days that are over, beside what is kept of others."""
        if not self.lacking:
            return
        days = {day: self.marks[day] for day in (*self.good, *self.lacking)}
        tables = {
            name: concat(
                [*self.tables.get(name, []), *(_of_days(table, self.lacking) for table in read[name])], query.columns
            )
            for name, query in self.kept.queries.items()
        }
        self.kept.keep(self.name, days, tables)


def _of_days(table: pd.DataFrame, days: Iterable[int]) -> pd.DataFrame:
    """The rows whose end lies in one of these days."""
    if table.empty:
        return table
    day = np.floor((table["ts"].to_numpy(float) - 1.0) / DAY)
    return cut(table, np.isin(day, list(days)))


def _marks_of(connection: DatabaseReader, queries: Iterable[Query], span: Span) -> dict[int, str]:
    """Of each day with rows what the file tells of them."""
    found: dict[int, list[str]] = {}
    devices: list[str] = []
    known = [stored for query in queries if (stored := rollup_of(query)) is not None]
    bounds = {"start": span[0], "end": span[1]}
    for stored in known:
        devices.append(_told(connection.devices(stored)))
    for stored in known:
        told = connection.columns(stored.marks, bounds)
        numbers = np.array([column for column in told.columns if isinstance(column, np.ndarray)])
        for row in numbers.T if told.count else ():
            found.setdefault(int(row[0]), []).append(f"{stored.query.sql[:40]} {row.tobytes().hex()}")
    counts = sorted((key, text.hex()) for key, text in connection.sets_of_counts().items())
    return {day: _digest([devices, counts, marks]) for day, marks in found.items()}


def _told(told: Unpacked) -> str:
    parts = [
        [column.codes.tolist(), [text.hex() for text in column.distinct]] if isinstance(column, Texts)
        else column.tobytes().hex() if isinstance(column, np.ndarray) else None
        for column in told.columns
    ]  # fmt: skip
    return _digest(parts)


def _digest(told: object) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:40]
