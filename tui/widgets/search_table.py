"""A table with a line to search in, opened by ``/``."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from ..cell_text import line
from .table import ItemTable


class SearchTable(Vertical):
    """Wraps a table. While the line is empty it takes no room."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "find", "Search", key_display="/")]
    DEFAULT_CSS = """
    SearchTable { height: 1fr; }
    SearchTable > Input { display: none; height: 1; border: none; padding: 0 1; }
    SearchTable.-finding > Input { display: block; }
    SearchTable > .finder--count { height: 1; color: $foreground-muted; padding: 0 1; }
    """

    def __init__(self, table: ItemTable, what: str, *, id: str | None = None) -> None:
        """`what`: the items' name in the plural, as in ``workloads``."""
        super().__init__(id=id)
        self._table, self._what = table, what

    def compose(self) -> ComposeResult:
        yield Input(placeholder=f"search {self._what}; enter keeps the filter, escape clears it")
        yield self._table
        yield Static(classes="finder--count")

    def set_data(self, items: list) -> None:
        self._table.set_data(items)
        self._count()

    def action_find(self) -> None:
        self.add_class("-finding")
        self.query_one(Input).focus()

    def forget(self) -> bool:
        """Close the search; False: there was none."""
        if not self.has_class("-finding"):
            return False
        self.remove_class("-finding")
        self.query_one(Input).value = ""
        self._table.focus()
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._table.filter(event.value)
        self._count()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._table.focus()

    def on_item_table_moved(self) -> None:
        self._count()

    def _count(self) -> None:
        order = self._table.order
        by = f", by {order[0]}, {'descending' if order[1] else 'ascending'}" if order else ""
        told = f"{len(self._table.shown):,} of {self._table.total:,} {self._what}{by}"
        self.query_one(".finder--count", Static).update(line(told), layout=False)
