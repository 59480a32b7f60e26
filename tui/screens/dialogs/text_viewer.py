"""Text to read over the page: everything about one thing, or what a page is for and its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ...cell_text import fit, line, lines
from ...widgets.key_footer import KeyFooter
from ...widgets.panel import Scroll


class TextViewer(ModalScreen[None]):
    """`text` returns the text for a width in cells; it may contain outside text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "dismiss", "Close", key_display="esc")]

    def __init__(self, title: str, text: Callable[[int], Content]) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Scroll(classes="window") as scroll:
            scroll.border_title = Content(self._title)
            yield Static()
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(Scroll).focus()

    def on_resize(self) -> None:
        """Draw for the inner width, which is there after the layout."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        place = self.query_one(Static)
        place.update(self._text(max(place.size.width, 20)))


def plain_text(text: str) -> Callable[[int], Content]:
    """Return text whose lines are broken already."""
    return lambda _: lines(*(line(part) for part in text.split("\n")))


def help_text(about: str, keys: Sequence[tuple[str, str]]) -> Callable[[int], Content]:
    """Return what a page is for, and each key with what it does."""
    listed = [Content.assemble(Content.styled(fit(key, 12), "bold"), description) for key, description in keys]
    return lambda _: lines(line(about), Content(""), *listed)
