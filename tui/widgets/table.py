"""A table of any length that draws only the lines on the screen: sorting or filtering it costs no widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..cells import fit, fit_middle

Key = float | str | None
_GAP = 2
_MARK_ROOM = 6
MARK = "● "


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


class ItemTable(ScrollView, can_focus=True):
    """Items in rows. It posts `Moved` when the cursor stands on another item and `Opened` when one is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "end(0)", "First", show=False),
        Binding("end", "end(-1)", "Last", show=False),
        Binding("left", "shift(-1)", "Columns to the left", show=False),
        Binding("right", "shift(1)", "Columns to the right", show=False),
        Binding("enter", "open", "Open"),
        Binding("s", "sort", "Sort"),
        Binding("S", "turn", "Turn the order", show=False),
        Binding("space", "mark", "Mark", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--head", "table--cursor", "table--empty"}
    DEFAULT_CSS = """
    ItemTable { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    ItemTable > .table--head { text-style: bold; color: $primary; }
    ItemTable > .table--cursor { background: $panel; text-style: bold; }
    ItemTable:focus > .table--cursor { background: $primary; color: $background; text-style: bold; }
    ItemTable > .table--empty { color: $foreground-muted; }
    """

    cursor: reactive[int] = reactive(0)

    class Moved(Message):
        def __init__(self, table: ItemTable, item: Any) -> None:  # noqa: ANN401 - of whatever the table holds
            super().__init__()
            self.table, self.item = table, item

        @property
        def control(self) -> ItemTable:
            return self.table

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, ItemTable.Moved) and message.table is self.table

    class Opened(Message):
        def __init__(self, table: ItemTable, item: Any) -> None:  # noqa: ANN401
            super().__init__()
            self.table, self.item = table, item

        @property
        def control(self) -> ItemTable:
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str,
        search: Callable[[Any], str] | None = None,
        identity: Callable[[Any], str] = lambda item: str(item.id),
        sorted_by: int | None = None,
        marks: int = 0,
        id: str | None = None,
    ) -> None:
        """`empty`: what stands where no item is. `search`: the text that a filter looks through. `sorted_by`: the
        column that sorts at first; None: in the order given. `identity`: the cursor stays on an item by it. `marks`:
        how many items may be marked; of more the oldest mark goes.
        """
        super().__init__(id=id)
        self._columns, self._empty, self._search, self._identity = tuple(columns), empty, search, identity
        self._sorted_by, self._turned, self._shift = sorted_by, False, 0
        self._items: list[Any] = []
        self._haystack: list[str] = []
        self._shown: list[Any] = []
        self._needle = ""
        self._marks = marks
        self._marked: list[str] = []

    @property
    def item(self) -> Any | None:  # noqa: ANN401
        """What the cursor stands on; None: the table is empty."""
        return self._shown[self.cursor] if 0 <= self.cursor < len(self._shown) else None

    @property
    def marked(self) -> list[Any]:
        """The items marked, in the order of marking."""
        known = {self._identity(item): item for item in self._items} if self._marked else {}
        return [known[name] for name in self._marked if name in known]

    @property
    def shown(self) -> Sequence[Any]:
        return self._shown

    @property
    def total(self) -> int:
        return len(self._items)

    @property
    def order(self) -> tuple[str, bool] | None:
        """Title of the column that sorts, and whether the largest comes first."""
        if self._sorted_by is None:
            return None
        column = self._columns[self._sorted_by]
        return column.title, column.falling != self._turned

    def put(self, items: Sequence[Any]) -> None:
        """Show other items; the cursor stays on the same one where it is still there."""
        self._items = list(items)
        search = self._search
        self._haystack = [search(item).casefold() for item in self._items] if search is not None else []
        self._arrange()

    def filter(self, needle: str) -> None:
        """Only items that hold every word of `needle`."""
        self._needle = needle
        self._arrange()

    def stand_on(self, identity: str) -> bool:
        """Put the cursor on an item; False: it is not shown."""
        at = next((n for n, item in enumerate(self._shown) if self._identity(item) == identity), None)
        if at is None:
            return False
        self.cursor = at
        self._tell()
        return True

    def _arrange(self) -> None:
        kept = self._identity(self.item) if self.item is not None else None
        words = self._needle.casefold().split()
        found = self._items
        if words and self._haystack:
            pairs = zip(self._items, self._haystack, strict=True)
            found = [item for item, hay in pairs if all(word in hay for word in words)]
        if self._sorted_by is not None:
            found = _sorted(found, self._columns[self._sorted_by], self._turned)
        self._shown = list(found)
        at = next((n for n, item in enumerate(self._shown) if self._identity(item) == kept), 0) if kept else 0
        self.virtual_size = Size(self.size.width, len(self._shown) + 1)
        self.set_reactive(ItemTable.cursor, at)
        self._tell()
        self.refresh()

    def action_move(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._go(self.cursor + by * max(self.size.height - 2, 1))

    def action_end(self, at: int) -> None:
        self._go(len(self._shown) - 1 if at < 0 else 0)

    def action_shift(self, by: int) -> None:
        """Columns beside the first, one further, as long as some are hidden there."""
        if by > 0 and not self._laid_out()[1]:
            return
        self._shift = max(self._shift + by, 0)
        self.refresh()

    def action_open(self) -> None:
        if self.item is not None:
            self.post_message(self.Opened(self, self.item))

    def action_mark(self) -> None:
        """Mark the item, or take its mark away."""
        if self.item is None or not self._marks:
            return
        name = self._identity(self.item)
        without = [one for one in self._marked if one != name]
        self._marked = without if name in self._marked else [*without, name][-self._marks :]
        self.refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Marks are for tables that have a use for them."""
        return self._marks > 0 if action == "mark" else True

    def action_sort(self) -> None:
        """By the next column."""
        self._sort_by(0 if self._sorted_by is None else (self._sorted_by + 1) % len(self._columns))

    def action_turn(self) -> None:
        if self._sorted_by is not None:
            self._sort_by(self._sorted_by)

    def _sort_by(self, column: int) -> None:
        """Again by the same column turns its order."""
        self._turned = not self._turned if column == self._sorted_by else False
        self._sorted_by = column
        self._arrange()

    def _go(self, to: int) -> None:
        to = min(max(to, 0), max(len(self._shown) - 1, 0))
        if to == self.cursor:
            return
        self.cursor = to
        self._tell()

    def _tell(self) -> None:
        if self.item is not None:
            self.post_message(self.Moved(self, self.item))

    def watch_cursor(self, before: int, now: int) -> None:
        top, height = self.scroll_offset.y, max(self.size.height - 1, 1)
        if now < top:
            self.scroll_to(y=now, animate=False, immediate=True)
        elif now >= top + height:
            self.scroll_to(y=now - height + 1, animate=False, immediate=True)
        else:  # of all lines only two look different
            self.refresh_line(before + 1)
            self.refresh_line(now + 1)

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(event.size.width, len(self._shown) + 1)

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            found = next((n for n, left, width in self._places() if left <= event.x < left + width), None)
            if found is not None:
                self._sort_by(found)
            return
        row = event.y - 1 + self.scroll_offset.y
        if row >= len(self._shown):
            return
        if row == self.cursor:
            self.action_open()
        else:
            self._go(row)

    @property
    def _room(self) -> int:
        """Cells of a line, without the scrollbar."""
        return self.scrollable_content_region.width

    def _laid_out(self) -> tuple[list[int], int]:
        """The columns that fit beside the first, and how many to the right do not."""
        room = self._room - self._columns[0].width - (_MARK_ROOM if self._shift else 0)
        fitting: list[int] = []
        rest = list(range(1 + self._shift, len(self._columns)))
        for n in rest:
            last = n == rest[-1]
            need = self._columns[n].width + _GAP
            if need > room - (0 if last else _MARK_ROOM):
                break
            room -= need
            fitting.append(n)
        return fitting, len(rest) - len(fitting)

    def _places(self) -> list[tuple[int, int, int]]:
        """Column, left edge and width of what is drawn."""
        fitting, hidden = self._laid_out()
        drawn = [0, *fitting]
        taken = sum(self._columns[n].width for n in drawn) + _GAP * (len(drawn) - 1)
        marks = _MARK_ROOM * (bool(hidden) + bool(self._shift))
        left_over = max(self._room - taken - marks, 0)
        growing = next((n for n in drawn if self._columns[n].grows), 0)
        places, left = [], 0
        for n in drawn:
            width = self._columns[n].width + (left_over if n == growing else 0)
            places.append((n, left, width))
            left += width + _GAP
        return places

    def render_line(self, y: int) -> Strip:
        width = self._room
        base = self.rich_style
        if y == 0:
            style = self.get_component_rich_style("table--head")
            return Strip([Segment(fit(self._head(), width), base + style)], width)
        row = y - 1 + self.scroll_offset.y
        if row >= len(self._shown):
            told = self._nothing() if row == 0 else ""
            return Strip([Segment(fit(told, width), base + self.get_component_rich_style("table--empty"))], width)
        item = self._shown[row]
        cells = [self._columns[n].cell(item, w) for n, _, w in self._places()]
        if self._marked and self._identity(item) in self._marked:
            cells[0] = fit(MARK + cells[0], self._places()[0][2])
        text = (" " * _GAP).join(cells)
        style = base + self.get_component_rich_style("table--cursor") if row == self.cursor else base
        return Strip([Segment(fit(text, width), style)], width)

    def _head(self) -> str:
        cells = []
        for n, _, width in self._places():
            column = self._columns[n]
            arrow = "" if n != self._sorted_by else "▼" if column.falling != self._turned else "▲"
            cells.append(fit(column.title + arrow, width, right=column.right))
        hidden = self._laid_out()[1]
        marks = (f" ‹ {self._shift}" if self._shift else "") + (f" +{hidden} ›" if hidden else "")
        return (" " * _GAP).join(cells) + marks

    def _nothing(self) -> str:
        return f"Nothing holds '{self._needle}'." if self._items else self._empty


def _sorted(items: Sequence[Any], column: Column, turned: bool) -> list[Any]:
    """By a column's key, stable; what has none comes last either way."""
    key = column.key or (lambda item: column.text(item).casefold())
    keyed = [(key(item), item) for item in items]
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=column.falling != turned)  # type: ignore[arg-type, return-value] - no None
    return [item for _, item in known] + [item for value, item in keyed if value is None]
