"""A window to choose a table's columns in."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.widgets.selection_list import Selection

from ...cell_text import line
from ...widgets.movement import Choices


class ColumnPicker(ModalScreen[tuple[str, ...]]):
    """Gives the titles chosen. The first column is always shown, and is not asked about."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f", "take", "Apply")]

    def __init__(self, titles: tuple[str, ...], chosen: tuple[str, ...]) -> None:
        super().__init__()
        self._titles, self._shown = titles, chosen

    def compose(self) -> ComposeResult:
        with Vertical(classes="window small") as panel:
            panel.border_title = "Columns"
            yield Choices(*(Selection(one, one, one in self._shown) for one in self._titles[1:]))
            yield Static(line("space selects, escape applies", "$foreground-muted"))

    def action_take(self) -> None:
        chosen = set(self.query_one(Choices).selected)
        self.dismiss((self._titles[0], *(one for one in self._titles[1:] if one in chosen)))
