"""A window to choose one item of a table in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from ...widgets.key_footer import KeyLine
from ...widgets.search_table import Finder
from ...widgets.table import ItemTable


class Choosing(ModalScreen[Any]):
    """Gives the item, or None where somebody thought better of it. `what`: the items' name in the plural."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave it")]

    def __init__(self, title: str, table: ItemTable, items: Sequence[Any], what: str) -> None:
        super().__init__()
        self._title, self._table, self._items, self._what = title, table, items, what

    def compose(self) -> ComposeResult:
        with Vertical(classes="window list") as panel:
            panel.border_title = self._title
            yield Finder(self._table, self._what)
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(Finder).put(list(self._items))
        self._table.focus()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        event.stop()
        self.dismiss(event.item)

    def action_leave(self) -> None:
        if not self.query_one(Finder).forget():
            self.dismiss(None)
