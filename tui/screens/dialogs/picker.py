"""Windows to choose in: one item of a table, or the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.widgets.selection_list import Selection

from ...cell_text import line
from ...widgets.key_footer import KeyFooter
from ...widgets.panel import Choices
from ...widgets.table import ItemTable, SearchTable


class Picker(ModalScreen[Any]):
    """Returns the item chosen, or None if cancelled. `what`: the items' name in the plural."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Cancel")]

    def __init__(self, title: str, table: ItemTable, items: Sequence[Any], what: str) -> None:
        super().__init__()
        self._title, self._table, self._items, self._what = title, table, items, what

    def compose(self) -> ComposeResult:
        with Vertical(classes="window list") as frame:
            frame.border_title = self._title
            yield SearchTable(self._table, self._what)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(SearchTable).set_data(self._items)
        self._table.focus()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        event.stop()
        self.dismiss(event.item)

    def action_leave(self) -> None:
        if not self.query_one(SearchTable).forget():
            self.dismiss(None)


class ColumnPicker(ModalScreen[tuple[str, ...]]):
    """Returns the titles chosen. The first column is always shown, and is not offered."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f", "take", "Apply")]

    def __init__(self, titles: tuple[str, ...], chosen: tuple[str, ...]) -> None:
        super().__init__()
        self._titles, self._chosen = titles, chosen

    def compose(self) -> ComposeResult:
        with Vertical(classes="window small") as frame:
            frame.border_title = "Columns"
            yield Choices(*(Selection(title, title, title in self._chosen) for title in self._titles[1:]))
            yield Static(line("space selects, escape applies", "$foreground-muted"))

    def action_take(self) -> None:
        chosen = set(self.query_one(Choices).selected)
        self.dismiss((self._titles[0], *(title for title in self._titles[1:] if title in chosen)))
