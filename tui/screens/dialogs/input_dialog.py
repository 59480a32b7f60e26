"""A window that asks for one value: a price, the name of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ....rules.base.errors import SkuwiseError
from ...cell_text import line, lines

Value = TypeVar("Value")


class InputDialog(ModalScreen[Value | None], Generic[Value]):
    """Returns what `parse` makes of the text, or None if cancelled.

    `parse` raises SkuwiseError for invalid text; its sentence is shown below the text.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, title: str, hint: str, parse: Callable[[str], Value], text: str = "") -> None:
        super().__init__()
        self._title, self._hint, self._parse, self._text = title, hint, parse, text

    def compose(self) -> ComposeResult:
        with Vertical(classes="window question"):
            yield Static(line(self._title, "bold"))
            yield Static(lines(*(line(part, "$foreground-muted") for part in self._hint.split("\n"))))
            yield Input(self._text, max_length=2000)
            yield Static(classes="wrong")
            yield Static(line("enter confirms, escape cancels", "$foreground-muted"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            value = self._parse(event.value.strip())
        except SkuwiseError as error:
            self.query_one(".wrong", Static).update(line(error))
            return
        self.dismiss(value)
