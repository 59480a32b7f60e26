"""Frames with a title, places that scroll, and the keys that move in them: arrows, and those of vi and less."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static


def movement(up: str, down: str, first: str, last: str) -> tuple[Binding, ...]:
    """Return keys for these actions, and for ``half(-1)`` and ``half(1)``: half a page."""
    return (
        Binding("up,k", up, "Up", show=False),
        Binding("down,j", down, "Down", show=False),
        Binding("home,g", first, "First", show=False),
        Binding("end,G", last, "Last", show=False),
        Binding("ctrl+u", "half(-1)", "Half a page up", show=False),
        Binding("ctrl+d", "half(1)", "Half a page down", show=False),
    )


class Scroll(VerticalScroll):
    """A container that scrolls by keys."""

    BINDINGS: ClassVar[list[BindingType]] = [*movement("scroll_up", "scroll_down", "scroll_home", "scroll_end")]

    def action_half(self, by: int) -> None:
        self.scroll_relative(y=by * max(self.size.height // 2, 1), animate=False)


def panel(
    title: str, *inside: Widget, id: str | None = None, classes: str = "", scrolls: bool = False
) -> Vertical | Scroll:
    """Return widgets below one another in a frame, which may scroll."""
    box = (Scroll if scrolls else Vertical)(*inside, id=id, classes=f"panel {classes}")
    box.border_title = title
    return box


def put(place: Static, text: Content) -> None:
    """Show a text that is new. The page is laid out only where its number of lines changes: a layout costs more than
    everything else that a key does."""
    before = place.content
    if isinstance(before, Content) and before.is_same(text):
        return
    width = place.content_region.width
    place.update(text, layout=not width or text.get_height({}, width) != place.content_region.height)
