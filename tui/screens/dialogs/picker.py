"""A window to choose an item of a table in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from ...widgets.key_footer import KeyFooter
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
