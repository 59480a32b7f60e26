"""Rows as columns in plain bytes: how a process that reads a database gives them to one that believes it nothing.

A frame is its head's length, its body's length, the head (JSON) and the body. A body holds each column in turn, in one
of three forms: ``n`` numbers alone, a double each, NaN where there is none; ``t`` texts alone, the place of each among
the column's distinct ones, -1 where there is none; ``a`` anything, a kind and a double each (of a text, its place).
"""

from __future__ import annotations

import json
import math
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FRAME = struct.Struct("<IQ")
NUMBERS, TEXTS, ANYTHING = "n", "t", "a"
_A_TEXT = 64  # what keeping a text takes besides its bytes
NOTHING, INTEGER, REAL, TEXT = range(4)  # the kinds of `a`


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
        self._codes = array("i")
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
                    kind, number = NOTHING, 0.0
                elif isinstance(cell, (int, float)):
                    kind, number = (INTEGER if isinstance(cell, int) else REAL), float(cell)
                else:
                    kind, number = TEXT, float(self._places[cell])
                self._kinds.append(kind)
                self._numbers.append(number)

    @property
    def weight(self) -> int:
        """Bytes that it holds so far: each text once."""
        return 8 * len(self._numbers) + 4 * len(self._codes) + self._places.bytes + _A_TEXT * len(self._places.texts)

    def told(self) -> list[object]:
        return [self.form, len(self._places.texts), self._places.bytes]

    def body(self) -> Iterable[bytes | array[Any]]:
        yield from (part for part in (self._kinds, self._codes, self._numbers) if part)
        if self._places.texts:
            yield array("i", map(len, self._places.texts))
            yield b"".join(self._places.texts)


def frame(head: Mapping[str, object], columns: Sequence[PackedColumn] = ()) -> Iterable[bytes | memoryview]:
    """The bytes of a frame, in parts."""
    about = json.dumps({**head, "columns": [column.told() for column in columns]}).encode()
    parts = [memoryview(part).cast("B") for column in columns for part in column.body()]
    yield FRAME.pack(len(about), sum(map(len, parts)))
    yield about
    yield from parts
