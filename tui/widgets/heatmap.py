"""A map of many small cells in named tiles, tiles in bands. It draws only the lines that are on the screen."""

from bisect import bisect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...rules.base.sanitize import clean
from ..cell_text import fit, fit_middle
from ..themes import Mark
from .frame import movement

_NAME_MOST, _NAME_LEAST, _GAP = 18, 4, 2
_WIDTHS = (7, 5, 2)  # cells of the terminal for a cell of the map: the widest that leaves all on the screen
MOST_IN_A_TILE = 8


MapTile = tuple[str, tuple[Any, ...]]  # name, and what its cells show, at most `MOST_IN_A_TILE`
MapBand = tuple[str, Sequence[MapTile]]  # tiles under a title


class HeatMap(ScrollView, can_focus=True):
    """`paint` gives the mark of an item at a width. It posts `Moved` and `Opened`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "Previous GPU", show=False),
        Binding("right", "step(1)", "Next GPU", show=False),
        *movement("climb(-1)", "climb(1)", "step(-1000000)", "step(1000000)"),
        Binding("pageup", "half(-2)", "Page up", show=False),
        Binding("pagedown", "half(2)", "Page down", show=False),
        Binding("n", "tile(1)", "Next node", show=False),
        Binding("N", "tile(-1)", "Previous node", show=False),
        Binding("enter", "open", "Node"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"map--title", "map--name", "map--here", "map--cursor"}
    DEFAULT_CSS = """
    HeatMap { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    HeatMap > .map--title { text-style: bold; color: $primary; }
    HeatMap > .map--name { color: $foreground-muted; }
    HeatMap > .map--here { color: $foreground; text-style: bold reverse; }
    HeatMap > .map--cursor { text-style: bold; }
    HeatMap:focus > .map--cursor { background: $foreground; color: $background; }
    """

    class Moved(Message):
        """The cursor is on another item."""

    class Opened(Message):
        """The item of the cursor was chosen."""

    def __init__(self, empty: str) -> None:
        """`empty`: the text shown without cells."""
        super().__init__()
        self._empty = empty
        self._bands: tuple[MapBand, ...] = ()
        self._items: list[Any] = []
        self._rows: list[str | list[tuple[int, MapTile]]] = []  # a band's title, or tiles with their first cell
        self._places: list[tuple[int, int]] = []  # row and column of each cell
        self._cell_width, self._name_width, self._slots = 2, _NAME_LEAST, 1
        self._paint: Callable[[Any, int], Mark] = lambda _, width: Mark(" " * width, Style.null())
        self.cursor = 0

    @property
    def item(self) -> Any | None:  # noqa: ANN401
        """The item under the cursor; None: the map is empty."""
        return self._items[self.cursor] if self._items else None

    def set_data(self, bands: Sequence[MapBand], paint: Callable[[Any, int], Mark]) -> None:
        """Show other cells. The cursor stays on the item with the same `key` where that is still there."""
        kept = self.item.key if self.item is not None else None
        self._bands, self._paint = tuple(bands), paint
        self._items = [item for _, tiles in bands for _, items in tiles for item in items]
        self.cursor = next((n for n, item in enumerate(self._items) if item.key == kept), 0)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        tiles = [tile for _, tiles in self._bands for tile in tiles]
        longest = min(max((cell_len(clean(name)) for name, _ in tiles), default=0), _NAME_MOST)
        slots = self._slots = max((len(items) for _, items in tiles), default=1)
        width, tile_width, per_row = self.scrollable_content_region.width, 1, 1
        for self._cell_width in _WIDTHS:
            room = width - 1 - self._cell_width * slots
            self._name_width = max(min(longest, room), _NAME_LEAST)
            tile_width = self._name_width + 1 + self._cell_width * slots + _GAP
            per_row = max((width + _GAP) // tile_width, 1)
            height = sum(1 - (-len(tiles) // per_row) for _, tiles in self._bands)
            if room >= longest and height <= self.size.height:
                break
        self._rows, self._places = [], []
        for title, tiles in self._bands:
            self._rows.append(title)
            for at in range(0, len(tiles), per_row):
                row = []
                for n, tile in enumerate(tiles[at : at + per_row]):
                    row.append((len(self._places), tile))
                    left, here = n * tile_width + self._name_width + 1, len(self._rows)
                    self._places += [(here, left + cell * self._cell_width) for cell in range(len(tile[1]))]
                self._rows.append(row)
        self.virtual_size = Size(self.size.width, max(len(self._rows), 1))
        self._scroll_to_cursor()
        self.refresh()

    def action_step(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_climb(self, by: int) -> None:
        """Go to the nearest cell of a row above or below; titles are passed over."""
        if self._items:
            row, column = self._places[self.cursor]
            to = min(max(row + by, 1), len(self._rows) - 1)
            if isinstance(self._rows[to], str):
                to += 1 if by > 0 else -1
            self._go(self._nearest(to, column))

    def action_half(self, by: int) -> None:
        self.action_climb(by * max(self.size.height // 2, 1))

    def action_tile(self, by: int) -> None:
        """Go to the first cell of the next or previous tile."""
        firsts = [number for row in self._rows if not isinstance(row, str) for number, _ in row]
        here = bisect(firsts, self.cursor) - 1
        if 0 <= here + by < len(firsts):
            self._go(firsts[here + by])

    def action_open(self) -> None:
        if self.item is not None:
            self.post_message(self.Opened())

    def _go(self, to: int) -> None:
        before, self.cursor = self.cursor, min(max(to, 0), max(len(self._items) - 1, 0))
        if self.cursor != before:
            self._scroll_to_cursor()
            for cell in (before, self.cursor):
                self.refresh_line(self._places[cell][0])
            self.post_message(self.Moved())

    def _scroll_to_cursor(self) -> None:
        if self._items:
            row = self._places[self.cursor][0]
            first = row - 1 if isinstance(self._rows[row - 1], str) else row
            self.scroll_to_region(Region(0, first, 1, row - first + 1), animate=False, force=True, immediate=True)

    def _nearest(self, row: int, column: int) -> int:
        cells = (n for n, place in enumerate(self._places) if place[0] == row)
        return min(cells, key=lambda cell: abs(self._places[cell][1] - column))

    def on_click(self, event: events.Click) -> None:
        row = event.y + self.scroll_offset.y
        if row >= len(self._rows) or isinstance(self._rows[row], str):
            return
        before, cell = self.cursor, self._nearest(row, max(event.x - self._cell_width // 2, 0))
        self._go(cell)
        if cell == before:
            self.action_open()

    def render_line(self, y: int) -> Strip:
        width, base = self.scrollable_content_region.width, self.rich_style
        at = y + self.scroll_offset.y
        row = self._rows[at] if at < len(self._rows) else self._empty if y == 0 and not self._items else ""
        if isinstance(row, str):
            style = self.get_component_rich_style("map--title" if at < len(self._rows) else "map--name")
            return Strip([Segment(fit(row, width), base + style)], width)
        segments = [segment for number, tile in row for segment in self._drawn(number, tile, base)]
        return Strip(segments).simplify().crop(0, width).extend_cell_length(width, base)

    def _drawn(self, number: int, tile: MapTile, base: Style) -> list[Segment]:
        title, items = tile
        here = number <= self.cursor < number + len(items)
        name = base + self.get_component_rich_style("map--here" if here and self.has_focus else "map--name")
        segments = [Segment(fit_middle(title, self._name_width), name), Segment(" ", base)]
        between = " " if self._cell_width > _WIDTHS[-1] else ""  # wide cells stand apart; narrow ones touch
        for n, item in enumerate(items, number):
            mark = self._paint(item, self._cell_width - len(between))
            style, text = base + mark.style, mark.text
            if n == self.cursor:
                style += self.get_component_rich_style("map--cursor", partial=True)
                text = f"[{text[1:-1]}]"
            segments += [Segment(text, style), Segment(between, base)]
        return [*segments, Segment(" " * ((self._slots - len(items)) * self._cell_width + _GAP), base)]
