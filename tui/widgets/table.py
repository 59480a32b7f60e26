"""A table of any length that draws only the lines on the screen: sorting or filtering it costs no widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..cell_text import fit
from .columns import GAP, Column, Layout, lay_out
from .exportable import Sheet
from .movement import movement

MARK = "● "


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Titles of the columns shown; the title of the one that sorts (None: none chosen), and whether it is turned."""

    columns: tuple[str, ...]
    by: str | None = None
    turned: bool = False


class ItemTable(ScrollView, can_focus=True):
    """Items in rows. It posts `Moved` when the cursor stands on another item and `Opened` when one is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *movement("move(-1)", "move(1)", "end(0)", "end(-1)"),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("left", "shift(-1)", "Previous columns", show=False),
        Binding("right", "shift(1)", "More columns", show=False),
        Binding("enter", "open", "Open"),
        Binding("s", "sort", "Sort"),
        Binding("S", "turn", "Reverse the order", show=False),
        Binding("space", "mark", "Mark", show=False),
        Binding("f", "columns", "Columns", show=False),
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

    @dataclass
    class Moved(Message):
        table: ItemTable
        item: Any

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, ItemTable.Moved) and message.table is self.table

    @dataclass
    class Opened(Message):
        table: ItemTable
        item: Any

    @dataclass
    class Arranged(Message):
        """Somebody chose its columns or its order. `first`: the table has come up and nobody has chosen yet."""

        table: ItemTable
        first: bool = False

    @dataclass
    class ColumnsWanted(Message):
        """Somebody wants to choose the columns."""

        table: ItemTable

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
        self._chosen = list(range(len(self._columns)))
        self._layout = Layout((), 0)
        self._needs: Sequence[int] | None = None  # by column, of the items there are
        self._width, self._base = 0, Style()
        self._items: list[Any] = []
        self._haystack: list[str] = []  # of the items, once somebody searches
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

    @property
    def arrangement(self) -> Arrangement:
        """The columns shown and the order, to be restored at another time."""
        by = self.order[0] if self.order is not None else None
        return Arrangement(tuple(self._columns[n].title for n in self._chosen), by, self._turned)

    @property
    def titles(self) -> tuple[str, ...]:
        """Of all columns there are."""
        return tuple(column.title for column in self._columns)

    def restore(self, wanted: Arrangement) -> None:
        """Show these columns in this order; titles that the table does not have are passed over. The first column
        always stands."""
        at = {column.title: n for n, column in enumerate(self._columns)}
        self._chosen = sorted({0, *(at[title] for title in wanted.columns if title in at)})
        self._sorted_by = at.get(wanted.by) if wanted.by is not None else self._sorted_by
        self._turned, self._shift = wanted.turned, 0
        self._arrange()

    def sheet(self, title: str) -> Sheet:
        """All lines of the table, as it is searched and sorted, with the columns chosen."""
        columns, items = [self._columns[n] for n in self._chosen], tuple(self._shown)
        heads = tuple(column.title for column in columns)
        return Sheet(title, heads, lambda: [[column.text(item) for column in columns] for item in items])

    def line(self) -> Sequence[str]:
        """The cells of the line that the cursor stands on; empty: there is none."""
        return [] if self.item is None else [self._columns[n].text(self.item) for n in self._chosen]

    def set_data(self, items: Sequence[Any], empty: str | None = None) -> None:
        """Show other items; the cursor stays on the same one where it is still there. `empty`: what now stands where no
        item is; None: as before."""
        self._items, self._empty = list(items), empty or self._empty
        self._haystack, self._needs = [], None
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
        if words and self._search is not None:
            self._haystack = self._haystack or [self._search(item).casefold() for item in self._items]
            pairs = zip(self._items, self._haystack, strict=True)
            found = [item for item, hay in pairs if all(word in hay for word in words)]
        if self._sorted_by is not None:
            found = self._columns[self._sorted_by].sorted(found, self._turned)
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

    def action_half(self, by: int) -> None:
        self._go(self.cursor + by * max((self.size.height - 1) // 2, 1))

    def action_end(self, at: int) -> None:
        self._go(len(self._shown) - 1 if at < 0 else 0)

    def action_shift(self, by: int) -> None:
        """Columns beside the first, one further, as long as some are hidden there."""
        if by > 0 and not self._lay_out().hidden:
            return
        self._shift = max(self._shift + by, 0)
        self.refresh()

    def action_open(self) -> None:
        if self.item is not None:
            self.post_message(self.Opened(self, self.item))

    def action_mark(self) -> None:
        """Mark the item, or take its mark away."""
        if self.item is None:
            return
        name = self._identity(self.item)
        without = [one for one in self._marked if one != name]
        self._marked = without if name in self._marked else [*without, name][-self._marks :]
        self.refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Marks are for tables that have a use for them."""
        return self._marks > 0 if action == "mark" else True

    def action_columns(self) -> None:
        self.post_message(self.ColumnsWanted(self))

    def action_sort(self) -> None:
        """By the next column that is shown."""
        after = [n for n in self._chosen if self._sorted_by is None or n > self._sorted_by]
        self._sort_by(after[0] if after else self._chosen[0])

    def action_turn(self) -> None:
        if self._sorted_by is not None:
            self._sort_by(self._sorted_by)

    def _sort_by(self, column: int) -> None:
        """Again by the same column turns its order."""
        self._turned = not self._turned if column == self._sorted_by else False
        self._sorted_by = column
        self._arrange()
        self.post_message(self.Arranged(self))

    def _go(self, to: int) -> None:
        to = min(max(to, 0), max(len(self._shown) - 1, 0))
        if to != self.cursor:
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

    def on_mount(self) -> None:
        self.post_message(self.Arranged(self, first=True))

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(event.size.width, len(self._shown) + 1)

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            places = self._lay_out().places
            place = next((p.number for p in places if p.left <= event.x < p.left + p.width), None)
            if place is not None:
                self._sort_by(place)
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

    def _lay_out(self) -> Layout:
        if self._needs is None:
            self._needs = [column.need(self._items) for column in self._columns]
        return lay_out(self._columns, self._chosen, self._shift, self._room, self._needs)

    def render_lines(self, crop: Region) -> list[Strip]:
        """What all lines have in common is reckoned once a drawing: styles and places took most of its time."""
        self._layout, self._width = self._lay_out(), self._room
        self._base = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        layout, width, base = self._layout, self._width, self._base
        if y == 0:
            style = self.get_component_rich_style("table--head")
            return Strip([Segment(fit(self._head(layout), width), base + style)], width)
        row = y - 1 + self.scroll_offset.y
        if row >= len(self._shown):
            told = self._nothing() if row == 0 else ""
            return Strip([Segment(fit(told, width), base + self.get_component_rich_style("table--empty"))], width)
        item = self._shown[row]
        cells = [self._columns[p.number].cell(item, p.width) for p in layout.places]
        if self._marked and self._identity(item) in self._marked:
            cells[0] = fit(MARK + cells[0], layout.places[0].width)
        text = (" " * GAP).join(cells)
        style = base + self.get_component_rich_style("table--cursor") if row == self.cursor else base
        return Strip([Segment(fit(text, width), style)], width)

    def _head(self, layout: Layout) -> str:
        cells = []
        for place in layout.places:
            column = self._columns[place.number]
            arrow = "" if place.number != self._sorted_by else "▼" if column.falling != self._turned else "▲"
            cells.append(fit(column.title + arrow, place.width, right=column.right))
        marks = (f" ‹ {self._shift}" if self._shift else "") + (f" +{layout.hidden} ›" if layout.hidden else "")
        return (" " * GAP).join(cells) + marks

    def _nothing(self) -> str:
        return f"No match for '{self._needle}'." if self._items else self._empty
