"""A window to choose one item of a table in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from ...widgets.key_footer import KeyFooter
from ...widgets.search_table import SearchTable
from ...widgets.table import ItemTable


class Picker(ModalScreen[Any]):
    """Gives the item, or None where somebody thought better of it. `what`: the items' name in the plural."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Cancel")]

    def __init__(self, title: str, table: ItemTable, items: Sequence[Any], what: str) -> None:
        super().__init__()
        self._title, self._table, self._items, self._what = title, table, items, what

    def compose(self) -> ComposeResult:
        with Vertical(classes="window list") as panel:
            panel.border_title = self._title
            yield SearchTable(self._table, self._what)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(SearchTable).set_data(list(self._items))
        self._table.focus()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        event.stop()
        self.dismiss(event.item)

    def action_leave(self) -> None:
        if not self.query_one(SearchTable).forget():
            self.dismiss(None)
