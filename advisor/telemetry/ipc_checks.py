"""The columns of an answer of the process that reads databases, checked before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...agent.store.reading.packing import ANYTHING, INTEGER, NOTHING, NUMBERS, REAL, TEXT, TEXTS

_MOST = 1 << 40  # far above what a body may hold: an int of any length is no count
_MOST_COLUMNS = 2000  # SQLite's own limit
_LOSSLESS = 2.0**53


@dataclass(frozen=True, slots=True)
class Texts:
    """`codes`: the place of each cell's text in `distinct`; -1 where there is none."""

    codes: npt.NDArray[np.int64]
    distinct: list[bytes]


@dataclass(frozen=True, slots=True)
class Mixed:
    """Cells of any kind: `numbers` holds numbers, and the places of texts."""

    kinds: npt.NDArray[np.int8]
    numbers: npt.NDArray[np.float64]
    distinct: list[bytes]


Column = npt.NDArray[np.float64] | Texts | Mixed


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An answer: how many rows, and their columns."""

    count: int
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, head: Mapping[str, Any], body: memoryview, forms: str) -> Unpacked:
        """What a frame holds. `forms`: those of the columns that were asked for; empty: any. Raises ValueError."""
        count, about = head.get("rows"), head.get("columns")
        if not (isinstance(count, int) and count >= 0 and isinstance(about, list) and len(about) <= _MOST_COLUMNS):
            raise ValueError("no head")
        told = [_form(one) for one in about]
        wanted = forms or ANYTHING * len(told)
        if "".join(form for form, _, _ in told) != wanted:
            raise ValueError("other columns")
        place = _Place(body)
        columns = tuple(_column(place, count, *one) for one in told)
        if place.at != len(body) or (count and not columns):
            raise ValueError("another size")
        return cls(count, columns)

    def rows(self) -> list[tuple[object, ...]]:
        """The rows, as SQLite gave them; texts as text."""
        cells = [_cells(column) for column in self.columns]
        return list(zip(*cells, strict=True)) if cells else []


class _Place:
    """How far a body was read."""

    def __init__(self, body: memoryview) -> None:
        self.body, self.at = body, 0

    def take(self, count: int) -> memoryview:
        part = self.body[self.at : self.at + count]
        if len(part) != count:
            raise ValueError("too short")
        self.at += count
        return part


def _form(told: object) -> tuple[str, int, int]:
    match told:
        case [("n" | "t" | "a") as form, int(count), int(size)] if 0 <= count < _MOST and 0 <= size < _MOST:
            return form, count, size
    raise ValueError("no column")


def _column(place: _Place, rows: int, form: str, count: int, size: int) -> Column:
    if form == NUMBERS:
        return np.frombuffer(place.take(rows * 8), dtype=np.float64)
    if form == TEXTS:
        codes = np.frombuffer(place.take(rows * 4), dtype=np.int32).astype(np.int64)
        _check_codes(codes, count)
        return Texts(codes, _distinct(place, count, size))
    kinds = np.frombuffer(place.take(rows), dtype=np.int8)
    numbers = np.frombuffer(place.take(rows * 8), dtype=np.float64)
    if rows and not ((kinds >= NOTHING) & (kinds <= TEXT)).all():
        raise ValueError("no kind")
    _check_codes(numbers[kinds == TEXT], count)
    return Mixed(kinds, numbers, _distinct(place, count, size))


def _check_codes(codes: npt.NDArray[Any], count: int) -> None:
    if codes.size and not ((codes >= -1) & (codes < count)).all():
        raise ValueError("a text that is not there")


def _distinct(place: _Place, count: int, size: int) -> list[bytes]:
    lengths = np.frombuffer(place.take(count * 4), dtype=np.int32)
    if (lengths < 0).any() or int(lengths.sum(dtype=np.int64)) != size:
        raise ValueError("texts of other lengths")
    text = bytes(place.take(size))
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    return [text[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def _cells(column: Column) -> list[object]:
    if not isinstance(column, Mixed):
        raise TypeError("columns of one kind are for tables")
    texts = [one.decode("utf-8", "replace") for one in column.distinct]
    out: list[object] = []
    for kind, number in zip(column.kinds.tolist(), column.numbers.tolist(), strict=True):
        if kind == INTEGER and abs(number) <= _LOSSLESS:
            out.append(int(number))
        elif kind in (INTEGER, REAL):
            out.append(number)
        else:
            out.append(texts[int(number)] if kind == TEXT and number >= 0 else None)
    return out
