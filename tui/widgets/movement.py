"""The keys that move in every table, map and text: arrows, and those of vi and less."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import SelectionList


def movement(up: str, down: str, first: str, last: str) -> tuple[Binding, ...]:
    """Keys for these actions, and for ``half(-1)`` and ``half(1)``: half a page."""
    return (
        Binding("up,k", up, "Up", show=False),
        Binding("down,j", down, "Down", show=False),
        Binding("home,g", first, "First", show=False),
        Binding("end,G", last, "Last", show=False),
        Binding("ctrl+u", "half(-1)", "Half a page up", show=False),
        Binding("ctrl+d", "half(1)", "Half a page down", show=False),
    )


class Scroll(VerticalScroll):
    """A place that scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [*movement("scroll_up", "scroll_down", "scroll_home", "scroll_end")]

    def action_half(self, by: int) -> None:
        self.scroll_relative(y=by * max(self.size.height // 2, 1), animate=False)


class Choices(SelectionList[str]):
    """Several to choose of."""

    BINDINGS: ClassVar[list[BindingType]] = [*movement("cursor_up", "cursor_down", "first", "last")]

    def action_half(self, by: int) -> None:
        (self.action_page_down if by > 0 else self.action_page_up)()
