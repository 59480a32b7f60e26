"""Rows of a database as columns: numbers as arrays, each distinct text once."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# The forms of a column: numbers alone, NaN where there is none; texts alone; anything.
NUMBERS, TEXTS, ANYTHING = "n", "t", "a"
_A_TEXT = 64  # what keeping a text takes besides its bytes
_NOTHING, _INTEGER, _REAL, _TEXT = range(4)
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

    def rows(self) -> list[tuple[object, ...]]:
        """The rows, as SQLite gave them; texts as text."""
        cells = [_cells(column) for column in self.columns]
        return list(zip(*cells, strict=True)) if cells else []


class _Places(dict[object, int]):
    """The place of each distinct text, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__({None: -1})
        self.texts: list[bytes] = []
        self.bytes = 0

    def __missing__(self, cell: object) -> int:
        text = cell if isinstance(cell, bytes) else str(cell).encode("utf-8", "replace")
        self.texts.append(text)
        self.bytes += len(text)
        self[cell] = place = len(self.texts) - 1
        return place


class PackedColumn:
    """One column as it comes in."""

    def __init__(self, form: str) -> None:
        self.form = form
        self._places = _Places()
        self._codes = array("q")
        self._kinds = array("b")
        self._numbers = array("d")

    def add(self, cells: Sequence[object]) -> None:
        if self.form == TEXTS:
            self._codes.extend([self._places[cell] for cell in cells])
        elif self.form == NUMBERS:
            try:
                self._numbers.extend(array("d", cells))  # type: ignore[arg-type] - it says so where they are none
            except TypeError:
                self._numbers.extend([float(c) if isinstance(c, (int, float)) else math.nan for c in cells])
        else:
            for cell in cells:
                if cell is None:
                    kind, number = _NOTHING, 0.0
                elif isinstance(cell, (int, float)):
                    kind, number = (_INTEGER if isinstance(cell, int) else _REAL), float(cell)
                else:
                    kind, number = _TEXT, float(self._places[cell])
                self._kinds.append(kind)
                self._numbers.append(number)

    @property
    def weight(self) -> int:
        """Bytes that it holds so far: each text once."""
        return 8 * len(self._numbers) + 8 * len(self._codes) + self._places.bytes + _A_TEXT * len(self._places.texts)

    def told(self) -> Column:
        numbers = np.array(self._numbers, dtype=np.float64)
        if self.form == NUMBERS:
            return numbers
        if self.form == TEXTS:
            return Texts(np.array(self._codes, dtype=np.int64), self._places.texts)
        return Mixed(np.array(self._kinds, dtype=np.int8), numbers, self._places.texts)


def _cells(column: Column) -> list[object]:
    if not isinstance(column, Mixed):
        raise TypeError("columns of one kind are for tables")
    texts = [one.decode("utf-8", "replace") for one in column.distinct]
    out: list[object] = []
    for kind, number in zip(column.kinds.tolist(), column.numbers.tolist(), strict=True):
        if kind == _INTEGER and abs(number) <= _LOSSLESS:
            out.append(int(number))
        elif kind in (_INTEGER, _REAL):
            out.append(number)
        else:
            out.append(texts[int(number)] if kind == _TEXT and number >= 0 else None)
    return out
