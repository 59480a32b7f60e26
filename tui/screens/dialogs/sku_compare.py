"""Two parts of the catalog beside each other, over the page."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ...cell_text import line, lines
from ...content.sku_comparison import SkuComparison
from ...widgets.key_footer import KeyFooter
from ...widgets.movement import Scroll
from ...widgets.side_by_side import SideBySide


class SkuComparisonDialog(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,v", "dismiss", "Close", key_display="esc")]

    def __init__(self, told: SkuComparison) -> None:
        super().__init__()
        self._told = told

    def compose(self) -> ComposeResult:
        with Scroll(classes="window") as scroll:
            scroll.border_title = "Comparison"
            yield SideBySide()
            yield Static(self._times())
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(Scroll).focus()
        self.query_one(SideBySide).set_data(self._told.heads, self._told.pairs)

    def _times(self) -> Content:
        first, second = self._told.heads
        return lines(
            Content(""),
            line(f"Time of typical work on {second}, relative to {first}", "bold $primary"),
            *(line(one) for one in self._told.times),
            Content(""),
            *(line(one, "$foreground-muted") for one in self._told.notes),
        )
