"""Windows over a page: to enter a value, and to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, Literal, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...advisor.core.timestamps import day, parse_moment
from ...rules.base.errors import SkuwiseError, UsageError
from ..cell_text import line, lines
from ..widgets.frame import Drawing, Drawn, KeyFooter, Scroll

Value = TypeVar("Value")
Verb = Literal["accepted", "snoozed", "dismissed"]
Answer = tuple[float | None, str | None]  # until when, Unix seconds (None: without an end); the reason (None: none)
_MONTH_SECONDS = 30 * 86400.0
_DECISIONS: dict[Verb, str] = {
    "accepted": "Accept: will be done; its savings count until then.\nReason (optional):",
    "snoozed": "Snooze: not now; its savings do not count until the date.\n"
    "Until (a date, UTC), then a reason (optional):",
    "dismissed": "Dismiss: will not be done; its savings do not count.\nReason (required):",
}


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


def decision_dialog(verb: Verb, what: str, now: float) -> InputDialog[Answer]:
    """Return the dialog for a decision. `what`: the recommendation in words; `now`: Unix seconds."""

    def parse(text: str) -> Answer:
        if verb == "dismissed" and not text:
            raise UsageError("The reason is empty.", "Enter one: it is kept with the decision.")
        if verb != "snoozed":
            return None, text or None
        date, _, reason = text.partition(" ")
        until = parse_moment(date)
        if until <= now:
            raise UsageError(f"{day(until)} is in the past.", "Enter a later date.")
        return until, reason.strip() or None

    title, _, hint = _DECISIONS[verb].partition("\n")
    return InputDialog(title, f"{what}\n{hint}", parse, day(now + _MONTH_SECONDS) if verb == "snoozed" else "")


class TextViewer(ModalScreen[None]):
    """Shows a text, or what `text` draws for a width in cells; it may contain outside text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "dismiss", "Close", key_display="esc")]

    def __init__(self, title: str, text: str | Drawing) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Scroll(classes="window") as scroll:
            scroll.border_title = Content(self._title)
            yield Drawn()
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(Scroll).focus()
        text = self._text
        self.query_one(Drawn).set_data(text if callable(text) else lambda _: [line(part) for part in text.split("\n")])
