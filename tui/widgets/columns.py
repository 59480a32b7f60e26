"""The columns of a table: what they show, what they sort by, and which of them fit a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..cell_text import fit, fit_middle

Key = float | str | None
GAP = 2
MARK_ROOM = 6  # for the sign that counts hidden columns


@dataclass(frozen=True)
class Column:
    """`text` gives a cell, `key` what it sorts by (None of it: last either way; None: by its text).

    `falling`: the first sort shows the largest first. `grows`: takes the width that others leave. `middle`: what does
    not fit is cut in its middle, for names that differ in their ends.
    """

    title: str
    width: int
    text: Callable[[Any], str]
    key: Callable[[Any], Key] | None = None
    right: bool = False
    falling: bool = False
    grows: bool = False
    middle: bool = False

    def cell(self, item: Any, width: int) -> str:  # noqa: ANN401 - of whatever the table holds
        """The item's cell, so many cells wide."""
        text = self.text(item)
        return fit_middle(text, width) if self.middle else fit(text, width, right=self.right)

    def sorted(self, items: Sequence[Any], turned: bool) -> list[Any]:
        """Items by this column's key, stable; what has none comes last either way."""
        key = self.key or (lambda item: self.text(item).casefold())
        keys = [key(item) for item in items]
        known = [n for n, value in enumerate(keys) if value is not None]
        # By position: a pair for each item would set off the garbage collector, at thousands of items.
        known.sort(key=keys.__getitem__, reverse=self.falling != turned)  # type: ignore[arg-type] - no None
        return [items[n] for n in known] + [items[n] for n, value in enumerate(keys) if value is None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column is drawn: its number, its left edge and its width in cells."""

    number: int
    left: int
    width: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit a line, and how many to the right do not."""

    places: tuple[Place, ...]
    hidden: int


def lay_out(columns: Sequence[Column], chosen: Sequence[int], shift: int, room: int) -> Layout:
    """`chosen`: the columns to show, by number; the first stands, and of the others `shift` are passed over. `room`:
    cells of a line."""
    drawn = [chosen[0]]
    rest = list(chosen[1 + shift :])
    left_over = room - columns[chosen[0]].width - (MARK_ROOM if shift else 0)
    for n in rest:
        need = columns[n].width + GAP
        if need > left_over - (0 if n == rest[-1] else MARK_ROOM):
            break
        left_over -= need
        drawn.append(n)
    hidden = len(rest) - len(drawn) + 1
    left_over = max(left_over - (MARK_ROOM if hidden else 0), 0)
    growing = next((n for n in drawn if columns[n].grows), drawn[0])
    places, left = [], 0
    for n in drawn:
        width = columns[n].width + (left_over if n == growing else 0)
        places.append(Place(n, left, width))
        left += width + GAP
    return Layout(tuple(places), hidden)
