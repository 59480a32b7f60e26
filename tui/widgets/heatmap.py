"""A map of many small cells in named tiles, tiles in bands. It draws only the lines that are on the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...rules.base.sanitize import clean
from ..cell_text import fit, fit_middle
from ..color_scale import Mark
from .movement import movement

_NAME_MOST, _NAME_LEAST, _GAP = 18, 4, 2
_WIDTHS = (7, 5, 2)  # cells of the terminal for a cell of the map, the widest first that leaves all on the screen
MOST_IN_A_TILE = 8


@dataclass(frozen=True, slots=True)
class MapTile:
    """`items`: what its cells stand for, at most `MOST_IN_A_TILE`."""

    name: str
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class MapBand:
    title: str
    tiles: tuple[MapTile, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the map: a band's title, or tiles with the number of each one's first cell."""

    title: str = ""
    tiles: tuple[tuple[int, MapTile], ...] = ()


class HeatMap(ScrollView, can_focus=True):
    """`paint` gives the mark of an item at a width. It posts `Moved` and `Opened` with the item of the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "Previous GPU", show=False),
        Binding("right", "step(1)", "Next GPU", show=False),
        *movement("climb(-1)", "climb(1)", "end(0)", "end(-1)"),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("n", "tile(1)", "Next node", show=False),
        Binding("N", "tile(-1)", "Previous node", show=False),
        Binding("enter", "open", "Node"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"map--title", "map--name", "map--here", "map--empty", "map--cursor"}
    DEFAULT_CSS = """
    HeatMap { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    HeatMap > .map--title { text-style: bold; color: $primary; }
    HeatMap > .map--name { color: $foreground-muted; }
    HeatMap > .map--here { color: $foreground; text-style: bold reverse; }
    HeatMap > .map--cursor { text-style: bold; }
    HeatMap:focus > .map--cursor { background: $foreground; color: $background; }
    HeatMap > .map--empty { color: $foreground-muted; }
    """

    class Moved(Message):
        def can_replace(self, message: Message) -> bool:
            return isinstance(message, HeatMap.Moved)

    @dataclass
    class Opened(Message):
        item: Any

    def __init__(self, identity: Callable[[Any], object], *, empty: str, id: str | None = None) -> None:
        """`identity`: by it the cursor stays on an item. `empty`: what stands where no cell is."""
        super().__init__(id=id)
        self._identity, self._empty = identity, empty
        self._bands: tuple[MapBand, ...] = ()
        self._items: list[Any] = []
        self._lines: list[_Line] = []
        self._line_of: list[int] = []  # of each cell
        self._wide, self._named, self._slots, self._per_line = 2, _NAME_LEAST, 1, 1
        self._paint: Callable[[Any, int], Mark] = lambda _, width: Mark(" " * width, Style.null())
        self.cursor = 0

    @property
    def item(self) -> Any | None:  # noqa: ANN401
        return self._items[self.cursor] if self._items else None

    def set_data(self, bands: Sequence[MapBand], paint: Callable[[Any, int], Mark]) -> None:
        """Show other cells. The cursor stays on its item where that is still there."""
        kept = self._identity(self.item) if self._items else None
        self._bands, self._paint = tuple(bands), paint
        self._items = [item for band in bands for tile in band.tiles for item in tile.items]
        self.cursor = next((n for n, item in enumerate(self._items) if self._identity(item) == kept), 0)
        self._arrange()

    def _arrange(self) -> None:
        """Lay the tiles out for the width there is."""
        across = self._room
        longest = max((cell_len(clean(tile.name)) for band in self._bands for tile in band.tiles), default=0)
        self._slots = max((len(tile.items) for band in self._bands for tile in band.tiles), default=1)
        for wide in _WIDTHS:
            self._wide = wide
            room = across - 1 - wide * self._slots
            self._named = max(min(longest, _NAME_MOST, room), _NAME_LEAST)
            self._per_line = max((across + _GAP) // (self._tile_width + _GAP), 1)
            if wide == _WIDTHS[-1] or (room >= min(longest, _NAME_MOST) and self._height() <= self.size.height):
                break
        self._lines, self._line_of, number = [], [], 0
        for band in self._bands:
            self._lines.append(_Line(band.title))
            for at in range(0, len(band.tiles), self._per_line):
                row = []
                for tile in band.tiles[at : at + self._per_line]:
                    row.append((number, tile))
                    self._line_of += [len(self._lines)] * len(tile.items)
                    number += len(tile.items)
                self._lines.append(_Line(tiles=tuple(row)))
        self.virtual_size = Size(self.size.width, max(len(self._lines), 1))
        self._seen()
        self.refresh()

    @property
    def _room(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _tile_width(self) -> int:
        return self._named + 1 + self._wide * self._slots

    def _height(self) -> int:
        return sum(1 - (-len(band.tiles) // self._per_line) for band in self._bands)

    def on_resize(self) -> None:
        self._arrange()

    def action_step(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_climb(self, by: int) -> None:
        """To a line above or below, as near to the same place as it has cells; a band's title is passed over."""
        if not self._items:
            return
        line = self._line_of[self.cursor]
        to = min(max(line + by, 0), len(self._lines) - 1)
        if not self._lines[to].tiles:
            to += 1 if by > 0 or to == 0 else -1
        self._go(self._nearest(to, self._place(line, self.cursor)))

    def action_page(self, by: int) -> None:
        self.action_climb(by * max(self.size.height - 1, 1))

    def action_half(self, by: int) -> None:
        self.action_climb(by * max(self.size.height // 2, 1))

    def action_end(self, at: int) -> None:
        self._go(len(self._items) - 1 if at < 0 else 0)

    def action_tile(self, by: int) -> None:
        """To the first cell of the tile after, or before."""
        firsts = [number for line in self._lines for number, _ in line.tiles]
        if by > 0:
            self._go(next((n for n in firsts if n > self.cursor), self.cursor))
        else:
            here = max((n for n in firsts if n <= self.cursor), default=0)
            self._go(max((n for n in firsts if n < here), default=here))

    def action_open(self) -> None:
        if self.item is not None:
            self.post_message(self.Opened(self.item))

    def _go(self, to: int) -> None:
        to = min(max(to, 0), max(len(self._items) - 1, 0))
        if to == self.cursor or not self._items:
            return
        before, self.cursor = self.cursor, to
        self._seen()
        self.refresh_line(self._line_of[before])
        self.refresh_line(self._line_of[to])
        self.post_message(self.Moved())

    def _seen(self) -> None:
        """Scroll to the cursor; a band's title is shown with its first line."""
        if not self._items:
            return
        line = self._line_of[self.cursor]
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        first = line - 1 if not self._lines[line - 1].tiles else line
        if first < top:
            self.scroll_to(y=first, animate=False, immediate=True)
        elif line >= top + height:
            self.scroll_to(y=line - height + 1, animate=False, immediate=True)

    def _place(self, line: int, cell: int) -> int:
        """Column of the terminal at which a cell of a line begins."""
        for n, (number, tile) in enumerate(self._lines[line].tiles):
            if number <= cell < number + len(tile.items):
                return n * (self._tile_width + _GAP) + self._named + 1 + (cell - number) * self._wide
        return 0

    def _nearest(self, line: int, place: int) -> int:
        cells = (n for number, tile in self._lines[line].tiles for n in range(number, number + len(tile.items)))
        return min(cells, key=lambda cell: abs(self._place(line, cell) - place))

    def on_click(self, event: events.Click) -> None:
        line = event.y + self.scroll_offset.y
        if line >= len(self._lines) or not self._lines[line].tiles:
            return
        cell = self._nearest(line, max(event.x - self._wide // 2, 0))
        if cell == self.cursor:
            self.action_open()
        else:
            self._go(cell)

    def render_line(self, y: int) -> Strip:
        width, base = self._room, self.rich_style
        at = y + self.scroll_offset.y
        if at >= len(self._lines):
            told = self._empty if y == 0 and not self._items else ""
            return Strip([Segment(fit(told, width), base + self.get_component_rich_style("map--empty"))], width)
        line = self._lines[at]
        if not line.tiles:
            return Strip([Segment(fit(line.title, width), base + self.get_component_rich_style("map--title"))], width)
        segments = [segment for number, tile in line.tiles for segment in self._drawn(number, tile, base)]
        return Strip(segments).simplify().crop(0, width).extend_cell_length(width, base)

    def _drawn(self, number: int, tile: MapTile, base: Style) -> list[Segment]:
        """A tile, and the gap behind it."""
        here = number <= self.cursor < number + len(tile.items)
        name = base + self.get_component_rich_style("map--here" if here and self.has_focus else "map--name")
        told = [Segment(fit_middle(tile.name, self._named), name), Segment(" ", base)]
        between = " " if self._wide > _WIDTHS[-1] else ""  # wide cells stand apart; narrow ones touch
        for n, item in enumerate(tile.items, number):
            mark = self._paint(item, self._wide - len(between))
            if n == self.cursor:
                style = base + mark.style + self.get_component_rich_style("map--cursor", partial=True)
                told.append(Segment(f"[{mark.text[1:-1]}]", style))
            else:
                told.append(Segment(mark.text, base + mark.style))
            told.append(Segment(between, base))
        return [*told, Segment(" " * ((self._slots - len(tile.items)) * self._wide + _GAP), base)]
