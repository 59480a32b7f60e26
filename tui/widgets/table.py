"""A table of items that can be sorted and searched: Textual's `DataTable` with a row per item."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from ...advisor.core.formatting import NONE
from ...advisor.show.document import Table
from ...rules.base.sanitize import clean
from ..cell_text import fit, fit_apart, line
from .frame import movement

Key = float | str | None
PADDING = 2  # cells beside the text of a column
_SPREAD = 4  # cells that a column takes of what no cell needs
_SAMPLE = 200  # items whose cells are measured; of more, every so many
# Rows are added in steps: 10,000 at once take 0.6 s, a step 6 ms.
_STEP = 100


@dataclass(frozen=True)
class Column:
    """`text` gives a cell, `key` what it sorts by (None of it: last either way; no `key`: by its text).

    `width`: cells below which the text is not cut to make room. `falling`: the first sort shows the largest first.
    `grows`: takes the width that others leave. `middle`: cut so that names keep the part that differs.
    """

    title: str
    width: int
    text: Callable[[Any], str]
    key: Callable[[Any], Key] | None = None
    right: bool = False
    falling: bool = False
    grows: bool = False
    middle: bool = False

    def cells(self, items: Sequence[Any], width: int) -> list[str]:
        """Return the cells of items next to each other, `width` cells wide."""
        texts = [self.text(item) for item in items]
        return fit_apart(texts, width) if self.middle else [fit(text, width, right=self.right) for text in texts]

    def need(self, items: Sequence[Any]) -> int:
        """Return the width of the widest cell, from a sample; at least that of the title with its arrow."""
        sample = items[:: max(len(items) // _SAMPLE, 1)]
        widest = max((cell_len(clean(self.text(item))) for item in sample), default=0)
        return max(widest, cell_len(self.title) + 1, self.width if self.right else 0)

    def sorted(self, items: Sequence[Any], turned: bool) -> list[Any]:
        """Sort items by this column's key, stable; items without a key come last either way."""
        key = self.key or (lambda item: self.text(item).casefold())
        keys = [key(item) for item in items]
        ranked = [n for n, value in enumerate(keys) if value is not None]
        # By position: a pair for each item would set off the garbage collector, at thousands of items.
        ranked.sort(key=keys.__getitem__, reverse=self.falling != turned)  # type: ignore[arg-type] - no None
        return [items[n] for n in ranked] + [items[n] for n, value in enumerate(keys) if value is None]


number = partial(Column, right=True, falling=True)


def quantity(title: str, width: int, value: Callable[[Any], float | None], write: Callable[[float], str]) -> Column:
    """Return a column of numbers; what has none shows a dash."""

    def text(item: Any) -> str:  # noqa: ANN401 - of whatever the table holds
        amount = value(item)
        return NONE if amount is None else write(amount)

    return number(title, width, text, value)


def column_widths(columns: Sequence[Column], needs: Sequence[int], room: int) -> list[int]:
    """Return the cells of each column in a line of `room` cells; more than that in total where it must scroll.

    Where room lacks, texts are cut down to `Column.width`, first those that grow or are cut in the middle; numbers are
    never cut. What is left over, by all columns or by the first ones that fit, is shared, most of it to the column that
    grows: no column is cut by the edge.
    """
    widths, left_over = list(needs), room - sum(needs) - PADDING * len(needs)
    for n in sorted(range(len(columns)), key=lambda n: not (columns[n].grows or columns[n].middle)):
        column = columns[n]
        least = needs[n] if column.right else min(needs[n], max(column.width, cell_len(column.title) + 1))
        cut = min(widths[n] - least, max(-left_over, 0))
        widths[n] -= cut
        left_over += cut
    fitting = len(widths)
    while left_over < 0 and fitting > 1:
        fitting -= 1
        left_over += widths[fitting] + PADDING
    each = min(max(left_over, 0) // fitting, _SPREAD)
    widths[:fitting] = [width + each for width in widths[:fitting]]
    widths[next((n for n in range(fitting) if columns[n].grows), 0)] += max(left_over, 0) - each * fitting
    return widths


class ItemTable(DataTable[Text]):
    """Shows items in rows. It posts `Moved` when the cursor is on another item and `Opened` when one is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *movement("cursor_up", "cursor_down", "scroll_top", "scroll_bottom"),
        Binding("left", "shift(-16)", "Previous columns", show=False),
        Binding("right", "shift(16)", "More columns", show=False),
        Binding("enter", "select_cursor", "Open"),
        Binding("s", "sort", "Sort"),
    ]
    DEFAULT_CSS = """
    ItemTable { height: 1fr; background: transparent; scrollbar-size: 1 1; }
    ItemTable > .datatable--header { color: $primary; background: transparent; text-style: bold; }
    ItemTable > .datatable--fixed { background: transparent; color: $foreground; }
    ItemTable > .datatable--cursor { background: $panel; text-style: bold; }
    ItemTable:focus { background-tint: transparent; }
    ItemTable:focus > .datatable--cursor { background: $primary; color: $background; text-style: bold; }
    """

    @dataclass
    class Opened(Message):
        """`item` was chosen."""

        table: ItemTable
        item: Any

    class Moved(Opened):
        """The cursor is on `item`."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, ItemTable.Moved) and message.table is self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str,
        search: Callable[[Any], str] | None = None,
        identity: Callable[[Any], str] = lambda item: str(item.id),
        sorted_by: int | None = None,
        id: str | None = None,
    ) -> None:
        """`empty`: the text without items. `search`: the text that a filter searches. `identity`: the cursor stays on
        the item with the same one. `sorted_by`: the column that sorts at first; None: the order given."""
        super().__init__(cursor_type="row", fixed_columns=1, id=id)
        self.item_columns, self._empty, self._search, self._identity = tuple(columns), empty, search, identity
        self._sorted_by, self._turned = sorted_by, False
        self._widths: list[int] = []
        self._laid_out_for = 0
        self._items: list[Any] = []
        self._haystacks: list[str] = []  # of the items, once a filter is set
        self._needs: list[int] = []  # cells that each column needs for the items
        self.shown: list[Any] = []  # the items that match the filter, in their order
        self._needle = ""

    @property
    def item(self) -> Any | None:  # noqa: ANN401
        """The item under the cursor; None: the table is empty."""
        return self.shown[self.cursor_row] if 0 <= self.cursor_row < len(self.shown) else None

    @property
    def order(self) -> str:
        """``cost, descending``: the column that sorts; empty: the order given."""
        if self._sorted_by is None:
            return ""
        column = self.item_columns[self._sorted_by]
        return f"{column.title}, {'descending' if column.falling != self._turned else 'ascending'}"

    @property
    def sheet(self) -> Table:
        """All rows as they are filtered and sorted."""
        rows = tuple(tuple(column.text(item) for column in self.item_columns) for item in self.shown)
        return Table(tuple(column.title for column in self.item_columns), rows)

    def count(self, what: str) -> str:
        """``2 of 300 workloads, by cost, descending``. `what`: the items' name in the plural."""
        by = f", by {self.order}" if self.order else ""
        return f"{len(self.shown):,} of {len(self._items):,} {what}{by}"

    def set_data(self, items: Sequence[Any], empty: str | None = None) -> None:
        """Show other items; the cursor stays on its item. `empty`: the text without items, None: as before."""
        self._items, self._empty = list(items), empty or self._empty
        self._haystacks, self._needs = [], []
        self._arrange()

    def filter(self, needle: str) -> None:
        """Show only the items that contain every word of `needle`."""
        self._needle = needle
        self._arrange()

    def stand_on(self, identity: str) -> bool:
        """Move the cursor to an item; False: it is not shown."""
        at = next((n for n, item in enumerate(self.shown) if self._identity(item) == identity), None)
        if at is not None:
            self._append(at + 1 - self.row_count)
            self.move_cursor(row=at)
        return at is not None

    def _arrange(self) -> None:
        kept = self._identity(self.item) if self.item is not None else None
        words, self.shown = self._needle.casefold().split(), self._items
        if words and self._search is not None:
            self._haystacks = self._haystacks or [self._search(item).casefold() for item in self._items]
            pairs = zip(self._items, self._haystacks, strict=True)
            self.shown = [item for item, haystack in pairs if all(word in haystack for word in words)]
        if self._sorted_by is not None:
            self.shown = self.item_columns[self._sorted_by].sorted(self.shown, self._turned)
        at = next((n for n, item in enumerate(self.shown[: 10 * _STEP]) if self._identity(item) == kept), 0)
        self._fill(at)

    def _fill(self, cursor: int) -> None:
        self._laid_out_for = self.outer_size.width
        room = self._laid_out_for - 1  # of the scrollbar
        if room <= 0:
            return
        self._widths = []
        self.clear(columns=True)
        self.show_cursor = bool(self.shown)
        columns = self.item_columns
        if not self.shown:
            self.add_column(Text(columns[0].title), width=room - PADDING)
            self.add_row(Text(f"No match for '{clean(self._needle)}'." if self._items else clean(self._empty)))
            return
        self._needs = self._needs or [column.need(self._items) for column in columns]
        self._widths = column_widths(columns, self._needs, room)
        heads = []
        for n, (column, width) in enumerate(zip(columns, self._widths, strict=True)):
            arrow = "" if n != self._sorted_by else "▼" if column.falling != self._turned else "▲"
            heads.append(fit(column.title + arrow, width, right=column.right))
        for head in _cells(heads):
            self.add_column(head, width=head.cell_len)
        self._append(max(cursor + 1, _STEP))
        if cursor:
            self.move_cursor(row=cursor)

    def _append(self, count: int) -> None:
        if not self._widths or count <= 0:
            return
        items = self.shown[self.row_count : self.row_count + count]
        columns = [column.cells(items, width) for column, width in zip(self.item_columns, self._widths, strict=True)]
        for cells in zip(*columns, strict=True):
            self.add_row(*_cells(cells))

    def on_resize(self) -> None:
        """Lay out the columns again where the width changed."""
        if self.outer_size.width != self._laid_out_for:
            self._fill(self.cursor_row)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.shown and new_value + 2 * self.size.height > self.row_count:
            self._append(_STEP)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        if self.item is not None:
            self.post_message(self.Moved(self, self.item))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if self.item is not None:
            self.post_message(self.Opened(self, self.item))

    def on_click(self, event: events.Click) -> None:
        """Sort by the column whose title was clicked."""
        ends = list(accumulate(width + PADDING for width in self._widths))
        at = event.x + (self.scroll_offset.x if ends and event.x >= ends[0] else 0)
        if event.y == 0 and ends and at < ends[-1]:
            self._sort_by(bisect(ends, at))

    def action_half(self, by: int) -> None:
        self.move_cursor(row=self.cursor_row + by * max((self.size.height - 1) // 2, 1))

    def action_shift(self, cells: int) -> None:
        """Move the columns beside the first."""
        self.scroll_relative(x=cells, animate=False)

    def action_scroll_bottom(self) -> None:
        """Go to the last row. Thousands are added before, in steps that leave room for other keys."""
        if self.row_count < len(self.shown):
            self._append(5 * _STEP)
            self.call_later(self.action_scroll_bottom)
        elif self.shown:
            self.move_cursor(row=len(self.shown) - 1)

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort_by(0 if self._sorted_by is None else (self._sorted_by + 1) % len(self.item_columns))

    def _sort_by(self, column: int) -> None:
        self._turned = not self._turned if column == self._sorted_by else False
        self._sorted_by = column
        self._arrange()


def _cells(texts: Sequence[str]) -> list[Text]:
    """The first text, and all others as one: a page of 50 rows takes 15 ms instead of 90 with a cell for each."""
    return [Text(texts[0]), *([Text((" " * PADDING).join(texts[1:]))] if texts[1:] else [])]


class SearchTable(Vertical):
    """A table with a search line, opened by ``/``, and the number of its items below."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "find", "Search", key_display="/")]
    DEFAULT_CSS = """
    SearchTable { height: 1fr; }
    SearchTable > Input { display: none; height: 1; border: none; padding: 0 1; }
    SearchTable.-finding > Input { display: block; }
    SearchTable > Static { height: 1; color: $foreground-muted; padding: 0 1; }
    """

    def __init__(self, table: ItemTable, what: str, *, id: str | None = None) -> None:
        """`what`: the items' name in the plural, as in ``workloads``."""
        super().__init__(id=id)
        self._table, self._what = table, what

    def compose(self) -> ComposeResult:
        yield Input(placeholder=f"search {self._what}; enter keeps the filter, escape clears it")
        yield self._table
        yield Static()

    def set_data(self, items: Sequence[Any]) -> None:
        """Show other items."""
        self._table.set_data(items)
        self.on_item_table_moved()

    def action_find(self) -> None:
        self.add_class("-finding")
        self.query_one(Input).focus()

    def forget(self) -> bool:
        """Close the search; False: none was open."""
        is_open = self.has_class("-finding")
        if is_open:
            self.remove_class("-finding")
            self.query_one(Input).value = ""
            self._table.focus()
        return is_open

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._table.filter(event.value)
        self.on_item_table_moved()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._table.focus()

    def on_item_table_moved(self) -> None:
        self.query_one(Static).update(line(self._table.count(self._what)), layout=False)
