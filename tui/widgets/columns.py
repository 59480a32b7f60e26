"""The columns of a table: what they show, what they sort by, and which of them fit a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

from ...rules.base.sanitize import clean
from ..cell_text import fit, fit_middle

Key = float | str | None
GAP = 2
MARK_ROOM = 6  # for the sign that counts hidden columns
SPREAD = 4  # cells that a column takes of what no cell needs
_SAMPLE = 200  # items whose cells are measured; of more, every so many


@dataclass(frozen=True)
class Column:
    """`text` gives a cell, `key` what it sorts by (None of it: last either way; None: by its text).

    `width`: cells up to which a text is not shortened to make room for other columns. `falling`: the first sort shows
    the largest first. `grows`: takes the width that others leave. `middle`: what does not fit is cut in its middle, for
    names that differ in their ends.
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

    def need(self, items: Sequence[Any]) -> int:
        """Cells of its widest cell, by a sample of the items; a column of numbers keeps its width."""
        sample = items[:: max(len(items) // _SAMPLE, 1)]
        widest = max((cell_len(clean(self.text(item))) for item in sample), default=0)
        return max(widest, cell_len(self.title) + 1, self.width if self.right else 0)

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


def lay_out(columns: Sequence[Column], chosen: Sequence[int], shift: int, room: int, needs: Sequence[int]) -> Layout:
    """`chosen`: the columns to show, by number; the first is always there, `shift` of the others are passed over.
    `room`: cells of a line. `needs`: cells of the widest cell of each column.

    A column is at least as wide as its title, a number is never cut. What is left over widens first the columns whose
    cells are cut, the ones that grow before the others, and is then shared.
    """
    drawn = [chosen[0]]
    rest = list(chosen[1 + shift :])
    left_over = room - _least(columns[chosen[0]], needs[chosen[0]]) - (MARK_ROOM if shift else 0)
    for n in rest:
        need = _least(columns[n], needs[n]) + GAP
        if need > left_over - (0 if n == rest[-1] else MARK_ROOM):
            break
        left_over -= need
        drawn.append(n)
    hidden = len(rest) - len(drawn) + 1
    widths = _shared(columns, drawn, needs, max(left_over - (MARK_ROOM if hidden else 0), 0))
    places, left = [], 0
    for n in drawn:
        places.append(Place(n, left, widths[n]))
        left += widths[n] + GAP
    return Layout(tuple(places), hidden)


def _least(column: Column, need: int) -> int:
    """Cells without which a column is not shown."""
    return need if column.right else min(need, max(column.width, cell_len(column.title) + 1))


def _shared(columns: Sequence[Column], drawn: Sequence[int], needs: Sequence[int], left_over: int) -> dict[int, int]:
    """The width of each column that is drawn, with all of what is left over."""
    widths = {n: _least(columns[n], needs[n]) for n in drawn}
    growing = next((n for n in drawn if columns[n].grows), drawn[0])
    for n in sorted(drawn, key=lambda n: not (columns[n].grows or columns[n].middle)):
        more = min(max(needs[n] - widths[n], 0), left_over)
        widths[n] += more
        left_over -= more
    each = min(left_over // len(drawn), SPREAD)
    for n in drawn:
        widths[n] += each
    widths[growing] += left_over - each * len(drawn)
    return widths
