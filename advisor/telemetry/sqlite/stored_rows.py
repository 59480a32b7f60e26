"""Tables of rollups from the texts that a database's own tables give (`agent/store/reading/stored_rollups.py`).

What comes is a stranger's: a text that is not rows of plain numbers is not taken apart here. `StoredTables` then gives
None, and the caller reads the same rows through the view, cell by cell.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....agent.store.file.codec import DEVICES
from ....agent.store.reading.queries import Query
from ....agent.store.reading.stored_rollups import (
    COUNTS,
    DEVICES_AT_ONCE,
    STEPS_A_SECOND,
    Cell,
    Count,
    StoredRollup,
    stored_rollups,
)
from ....rules.base.errors import StoreError
from ...core.histogram_array import BinsArray
from ..only import Only
from ..packing import Texts, Unpacked
from ..plausible import Lost
from ..tables import empty_table, table_of
from .stored_bins import Bins, bins_of_texts

Floats = npt.NDArray[np.float64]
_OWN = 4  # id, samples, set of counts, time not observed
# What plain rows are written with: digits, signs, points, exponents, brackets, commas and null.
_PLAIN = b"0123456789+-.eE,[]nul\n"
_NOTHING = b"[]"
_APART = 16
# Rows of a statement: their texts stay below some 5 MB, and one is read while the last is taken apart.
ROWS_AT_ONCE = 12_000
_MOST_STATEMENTS = 500
_LEADING_DIGITS = re.compile(rb"\s*[+-]?\d+", re.ASCII)


Ask = Callable[[Query, Mapping[str, object]], Unpacked]


def rollup_of(query: Query) -> StoredRollup | None:
    """How a query is answered from tables; None: it is not."""
    return stored_rollups().get(query)


@dataclass(slots=True)
class StoredTables:
    """Reads rollups of one open database. `ask`: a query of ours, as columns."""

    ask: Ask
    _told: dict[Query, Unpacked] = field(default_factory=dict)
    _devices: dict[Query, Devices] = field(default_factory=dict)
    _counts: dict[int, bytes] | None = None

    def tables(
        self,
        stored: StoredRollup,
        span: Mapping[str, object],
        lost: Lost | None,
        only: Only | None = None,
    ) -> list[pd.DataFrame] | None:
        """The rows of a span, as `tables.to_table` gives those of the view, in another order and in tables of some
        thousand rows; None where they are not as the store writes them. `only`: of whom they are wanted; those of
        others come, too."""
        own = Lost()
        found: list[pd.DataFrame] = []
        try:
            for asked in self._asked(stored, span, only):
                table = self._table(stored, asked, own)
                if table is None:
                    return None
                found.append(table)
        except StoreError:  # what the view answers decides
            return None
        if lost is not None:
            lost.take(own)
        return [table for table in found if not table.empty]

    def parts(
        self, stored: StoredRollup, span: Mapping[str, object], only: Only | None = None
    ) -> list[tuple[Query, Mapping[str, object]]]:
        """What `tables` asks for."""
        asked = self._asked(stored, span, only)
        return [(query, one) for one in asked for query in (stored.rows, stored.bins) if query is not None]

    def _asked(self, stored: StoredRollup, span: Mapping[str, object], only: Only | None) -> list[Mapping[str, object]]:
        """The parameters of each statement: so many devices and so much time that its rows are some thousand."""
        start, end = span["start"], span["end"]
        assert isinstance(start, (int, float)) and isinstance(end, (int, float))
        found: list[Mapping[str, object]] = []
        for first, last in self._devices_of(stored).blocks(only):
            periods = max(1, ROWS_AT_ONCE // (last - first + 1))
            length = max(periods * stored.seconds, (end - start) / _MOST_STATEMENTS)
            edges = [*np.arange(start, end, length).tolist(), end]
            found += [
                {**span, "start": begin, "end": until, "first": first, "last": last}
                for begin, until in pairwise(edges)
            ]  # fmt: skip
        return found

    def _table(self, stored: StoredRollup, asked: Mapping[str, object], lost: Lost) -> pd.DataFrame | None:
        width = _OWN + len(stored.cells)
        told = PeriodTexts.of(self.ask(stored.rows, asked))
        binned = None if stored.bins is None else PeriodTexts.of(self.ask(stored.bins, asked))
        matrix = stored_numbers(told, width)
        if matrix is None:
            return None
        bins: list[Bins] = []
        if binned is not None:
            # A live database may have gone on between the two.
            if not np.array_equal(binned.ends, told.ends):
                return None
            some = bins_of_texts(binned.texts, told.rows, len(stored.query.bins))
            if some is None:
                return None
            bins = some
        if not len(matrix):
            return empty_table(stored.query.columns)
        devices = self._devices_of(stored)
        ends, ids = np.repeat(told.ends, told.rows), matrix[:, 0].astype(np.int64) % DEVICES
        known = np.isin(ids, devices.ids)
        if not known.all():
            ends, matrix, ids, bins = ends[known], matrix[known], ids[known], [one[known] for one in bins]
        place = np.searchsorted(devices.ids, ids)
        counts = self.sets_of_counts() if not np.isnan(matrix[:, 2]).all() else {}
        texts = [(codes[place], distinct) for codes, distinct in (devices.texts[name] for name in stored.query.text)]
        numbers = view_numbers(stored, ends, matrix, devices, place, counts)
        return table_of(stored.query, len(ends), texts, numbers, [BinsArray(one) for one in bins], lost)

    def devices(self, stored: StoredRollup) -> Unpacked:
        """The devices of a rollup as they came."""
        if stored.devices not in self._told:
            self._told[stored.devices] = self.ask(stored.devices, {})
        return self._told[stored.devices]

    def _devices_of(self, stored: StoredRollup) -> Devices:
        if stored.devices not in self._devices:
            self._devices[stored.devices] = Devices.of(stored, self.devices(stored))
        return self._devices[stored.devices]

    def sets_of_counts(self) -> dict[int, bytes]:
        """Counts of samples by id, as the store writes them."""
        if self._counts is None:
            texts, ids = self.ask(COUNTS, {}).columns
            assert isinstance(texts, Texts) and isinstance(ids, np.ndarray)
            self._counts = {
                int(key): texts.distinct[code] for key, code in zip(ids, texts.codes, strict=True) if code >= 0
            }
        return self._counts


@dataclass(frozen=True, slots=True)
class Devices:
    """What rows take from their devices: `ids` ascending, and of each its texts and numbers."""

    ids: npt.NDArray[np.int64]
    texts: Mapping[str, tuple[npt.NDArray[np.int64], Sequence[object]]]
    numbers: Mapping[str, Floats]

    @classmethod
    def of(cls, stored: StoredRollup, told: Unpacked) -> Devices:
        coded = [(column.codes, column.distinct) for column in told.columns if isinstance(column, Texts)]
        plain = [column for column in told.columns if isinstance(column, np.ndarray)]
        texts = dict(zip(stored.devices.text, coded, strict=True))
        numbers = dict(zip(stored.devices.numbers, plain, strict=True))
        return cls(numbers.pop("id").astype(np.int64), texts, numbers)

    def blocks(self, only: Only | None = None) -> list[tuple[int, int]]:
        """First and last id of each lot of devices that is asked for at once; of all devices, or so that those who
        are wanted are among them."""
        ids = self.ids if only is None else self.ids[self._are_among(only)]
        # What lies between two that are wanted is not, but a statement more costs more than some devices more.
        parts = np.split(ids, np.flatnonzero(np.diff(ids) > _APART) + 1) if len(ids) else []
        return [lot for part in parts for lot in _lots(part)]

    def _are_among(self, only: Only) -> npt.NDArray[np.bool_]:
        nodes = self._plain("node")
        gpus = self._plain("gpu_uuid") if "gpu_uuid" in self.texts else [None] * len(nodes)
        return np.array([only.takes(node, gpu) for node, gpu in zip(nodes, gpus, strict=True)], dtype=np.bool_)

    def _plain(self, name: str) -> list[str]:
        codes, distinct = self.texts[name]
        texts = [cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell) for cell in distinct]
        return [texts[code] if code >= 0 else "" for code in codes.tolist()]


def _lots(ids: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """First and last of ascending ids, no more than `DEVICES_AT_ONCE` apart."""
    found: list[tuple[int, int]] = []
    while len(ids):
        count = int(np.searchsorted(ids, ids[0] + DEVICES_AT_ONCE))
        found.append((int(ids[0]), int(ids[count - 1])))
        ids = ids[count:]
    return found


@dataclass(frozen=True, slots=True)
class PeriodTexts:
    """Periods, of each the JSON of its rows, and how many those are."""

    ends: Floats
    texts: Sequence[bytes]
    rows: Sequence[int]

    @classmethod
    def of(cls, told: Unpacked) -> PeriodTexts:
        codes, ends = told.columns
        assert isinstance(codes, Texts) and isinstance(ends, np.ndarray)
        texts = [codes.distinct[code] if code >= 0 else _NOTHING for code in codes.codes.tolist()]
        return cls(ends, texts, [0 if text == _NOTHING else text.count(b"],[") + 1 for text in texts])


def stored_numbers(told: PeriodTexts, width: int) -> Floats | None:
    """The matrix of all rows' `width` cells, NaN where there is none; None: not plain."""
    texts = [text for text, rows in zip(told.texts, told.rows, strict=True) if rows]
    if not texts:
        return np.empty((0, width))
    if not all(text.startswith(b"[[") and text.endswith(b"]]") for text in texts):
        return None
    lines = b"\n".join([text[2:-2] for text in texts])
    if lines.translate(None, _PLAIN):
        return None
    lines = lines.replace(b"],[", b"\n").replace(b"null", b"")
    try:
        table = pd.read_csv(io.BytesIO(lines), header=None, dtype=np.float64, skip_blank_lines=False, engine="c")
    except ValueError:
        return None
    matrix = table.to_numpy()
    return matrix if matrix.shape == (sum(told.rows), width) else None


def view_numbers(  # noqa: PLR0917
    stored: StoredRollup, ends: Floats, matrix: Floats, devices: Devices, place: npt.NDArray[np.intp],
    counts: Mapping[int, bytes],
) -> list[Floats]:  # fmt: skip
    """The numbers of the query's columns. `place`: each row's device; `counts`: sets of counts by id."""
    found: list[Floats] = []
    cells = matrix[:, _OWN:].T
    for name in stored.query.numbers:
        rule = stored.numbers.get(name)
        if name == "ts":
            found.append(ends)
        elif name == "interval_seconds":
            found.append(np.full(len(ends), float(stored.seconds)))
        elif name == "observed_seconds":
            found.append((stored.seconds * STEPS_A_SECOND - matrix[:, 3]) * (1 / STEPS_A_SECOND))
        elif rule is None:
            found.append(devices.numbers[name][place])
        elif isinstance(rule, Cell):
            found.append(_scaled(rule, cells))
        else:
            found.append(_counted(rule, cells, matrix, counts))
    return found


def _scaled(rule: Cell, cells: Floats) -> Floats:
    (first, _, _), *rest = rule.terms
    if not rest:
        return cells[first] * rule.step
    spread = sum(np.nan_to_num(cells[at]) if as_zero else cells[at] for at, _, as_zero in rest)
    return (cells[first] + spread * rest[0][1]) * rule.step


def _counted(rule: Count, cells: Floats, matrix: Floats, counts: Mapping[int, bytes]) -> Floats:
    out = np.where(np.isnan(cells[rule.mean]), 0.0, matrix[:, 1])
    sets = matrix[:, 2]
    for key in np.unique(sets[~np.isnan(sets)]):
        if int(key) in counts:
            out[sets == key] = _leading(counts[int(key)][rule.digits])
    return out


def _leading(digits: bytes) -> float:
    """As SQLite casts a text to an integer."""
    found = _LEADING_DIGITS.match(digits)
    return float(found.group()) if found else 0.0
