"""Tables of rollups from the texts that a database's own tables give (`agent/store/reading/stored_rollups.py`).

What comes is a stranger's: a text that is not rows of plain numbers is not taken apart here. `stored_columns` then gives
None, and the caller reads the same rows through the view, cell by cell.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd

from ....agent.store.file.codec import DEVICES
from ....agent.store.reading.queries import Query
from ....agent.store.reading.stored_rollups import (
    COUNTS,
    DEVICES_AT_ONCE,
    STEPS_A_SECOND,
    STORED_SINCE,
    Cell,
    Count,
    StoredRollup,
    stored_rollups,
)
from ....rules.base.errors import StoreError
from ...core.histogram_array import WIDTH, BinsArray
from ..ipc_checks import Texts, Unpacked
from ..plausible import Lost
from ..tables import MAX_NUMBER, empty_table, table_of

Floats = npt.NDArray[np.float64]
Bins = npt.NDArray[np.float32]
_OWN = 4  # id, samples, set of counts, time not observed
# What plain rows are written with: digits, signs, points, exponents, brackets, commas and null.
_PLAIN = b"0123456789+-.eE,[]nul"
_ZERO = ord("0")
_LEADING_DIGITS = re.compile(rb"\s*[+-]?\d+", re.ASCII)


Ask = Callable[[Query, Mapping[str, object]], Unpacked]


def rollup_of(query: Query, version: int) -> StoredRollup | None:
    """How a query is answered from tables of a database whose schema has this version; None: it is not."""
    return stored_rollups().get(query) if version >= STORED_SINCE else None


@dataclass(slots=True)
class StoredTables:
    """Reads rollups of one open database. `ask`: a query of ours, as columns."""

    ask: Ask
    _devices: dict[Query, Devices] = field(default_factory=dict)
    _counts: dict[int, bytes] | None = None

    def table(self, stored: StoredRollup, span: Mapping[str, object], lost: Lost | None) -> pd.DataFrame | None:
        """The rows of a span, as `tables.to_table` gives those of the view; None where they are not as the store
        writes them."""
        try:
            read = self._read(stored, span)
        except StoreError:  # what the view answers decides
            return None
        if read is None:
            return None
        ends, matrix, bins = read
        if not len(ends):
            return empty_table(stored.query.columns)
        devices = self._devices_of(stored)
        place = np.searchsorted(devices.ids, matrix[:, 0].astype(np.int64) % DEVICES)
        counts = self._sets_of_counts() if not np.isnan(matrix[:, 2]).all() else {}
        texts = [(codes[place], distinct) for codes, distinct in (devices.texts[name] for name in stored.query.text)]
        numbers = view_numbers(stored, ends, matrix, devices, place, counts)
        return table_of(stored.query, len(ends), texts, numbers, [BinsArray(one) for one in bins], lost)

    def parts(self, stored: StoredRollup, span: Mapping[str, object]) -> list[tuple[Query, Mapping[str, object]]]:
        """What `table` asks for."""
        asked = [{**span, "first": first, "last": last} for first, last in self._devices_of(stored).blocks()]
        return [(query, one) for one in asked for query in (stored.rows, stored.bins) if query is not None]

    def _read(self, stored: StoredRollup, span: Mapping[str, object]) -> tuple[Floats, Floats, list[Bins]] | None:
        """Ends, cells and bins of all rows, in the order of the view."""
        width = _OWN + len(stored.cells)
        ends, parts = [np.empty(0)], [np.empty((0, width))]
        bins: list[list[Bins]] = []
        for first, last in self._devices_of(stored).blocks():
            asked = {**span, "first": first, "last": last}
            rows = stored_numbers(PeriodTexts.of(self.ask(stored.rows, asked)), width)
            if rows is None:
                return None
            ends.append(rows[0])
            parts.append(rows[1])
            if stored.bins is not None:
                some = stored_bins(PeriodTexts.of(self.ask(stored.bins, asked)), len(stored.query.bins))
                # A live database may have gone on between the two.
                if some is None or len(some[0]) != len(rows[0]):
                    return None
                bins.append(some)
        stamps, cells = np.concatenate(ends), np.concatenate(parts)
        known = np.isin(cells[:, 0].astype(np.int64) % DEVICES, self._devices_of(stored).ids)
        order = np.argsort(stamps[known], kind="stable")
        joined = [np.concatenate(column)[known][order] for column in zip(*bins, strict=True)]
        return stamps[known][order], cells[known][order], joined

    def _devices_of(self, stored: StoredRollup) -> Devices:
        if stored.devices not in self._devices:
            self._devices[stored.devices] = Devices.of(stored, self.ask(stored.devices, {}))
        return self._devices[stored.devices]

    def _sets_of_counts(self) -> dict[int, bytes]:
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

    def blocks(self) -> list[tuple[int, int]]:
        """First and last id of each lot of devices that is asked for at once."""
        lots = range(0, len(self.ids), DEVICES_AT_ONCE)
        return [(int(self.ids[n]), int(self.ids[min(n + DEVICES_AT_ONCE, len(self.ids)) - 1])) for n in lots]


@dataclass(frozen=True, slots=True)
class PeriodTexts:
    """Periods, and of each the JSON of its rows."""

    ends: Floats
    texts: Sequence[bytes]

    @classmethod
    def of(cls, told: Unpacked) -> PeriodTexts:
        codes, ends = told.columns
        assert isinstance(codes, Texts) and isinstance(ends, np.ndarray)
        return cls(ends, [codes.distinct[code] if code >= 0 else b"[]" for code in codes.codes.tolist()])


def stored_numbers(told: PeriodTexts, width: int) -> tuple[Floats, Floats] | None:
    """The end of each row's period, and the matrix of its `width` cells, NaN where there is none; None: not plain."""
    filled = [text != b"[]" for text in told.texts]
    texts = [text for text, has in zip(told.texts, filled, strict=True) if has]
    if not texts:
        return np.empty(0), np.empty((0, width))
    if any(text.translate(None, _PLAIN) or not (text.startswith(b"[[") and text.endswith(b"]]")) for text in texts):
        return None
    counts = [text.count(b"],[") + 1 for text in texts]
    lines = b"\n".join(text[2:-2] for text in texts).replace(b"],[", b"\n").replace(b"null", b"")
    try:
        table = pd.read_csv(io.BytesIO(lines), header=None, dtype=np.float64, skip_blank_lines=False, engine="c")
    except ValueError:
        return None
    matrix = table.to_numpy()
    if matrix.shape != (sum(counts), width):
        return None
    return np.repeat(told.ends[filled], counts), matrix


def stored_bins(told: PeriodTexts, columns: int) -> list[Bins] | None:
    """Of each column the seconds in each bin, a row for each row of the periods; None: not as the store writes it."""
    try:
        cells = list(chain.from_iterable(chain.from_iterable(map(orjson.loads, told.texts))))
        matrix = _decoded(cells)
    except (TypeError, ValueError):
        return None
    return None if len(cells) % columns else [matrix[n::columns] for n in range(columns)]


def _decoded(cells: Sequence[str | None]) -> Bins:
    """Cells as `codec.encode_bins` writes them, NaN all along where there is none. Raises ValueError and TypeError."""
    filled = np.array([cell is not None for cell in cells], dtype=np.bool_)
    texts = [cell for cell in cells if cell is not None]
    out = np.full((len(cells), WIDTH), np.nan, dtype=np.float32)
    if not texts:
        return out
    heads = np.frombuffer("".join([text[:4] for text in texts]).encode("ascii"), dtype=np.uint8)
    if len(heads) != 4 * len(texts) or not ((heads >= _ZERO) & (heads <= _ZERO + 9)).all():
        raise ValueError("bins without their place")
    digits = (heads.reshape(-1, 4) - _ZERO).astype(np.int64)
    before, behind = digits[:, 0] * 10 + digits[:, 1], digits[:, 2] * 10 + digits[:, 3]
    told = WIDTH - before - behind
    if not np.array_equal(told, [text.count(",") + 1 for text in texts]):
        raise ValueError("bins of another number")
    seconds = np.array(orjson.loads("[" + ",".join([text[4:] for text in texts]) + "]"), dtype=np.float64)
    if not ((seconds >= 0) & (seconds <= MAX_NUMBER)).all():
        raise ValueError("no seconds")
    zeros = np.zeros((len(texts), WIDTH), dtype=np.float32)
    at = np.arange(WIDTH)
    zeros[(at >= before[:, None]) & (at < (WIDTH - behind)[:, None])] = seconds
    out[filled] = zeros
    return out


def view_numbers(
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
