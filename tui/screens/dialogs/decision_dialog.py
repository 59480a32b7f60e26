"""A window that asks for what a decision needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ....advisor.core.timestamps import day, parse_moment
from ....rules.base.errors import UsageError
from ...cell_text import line

Verb = Literal["accepted", "snoozed", "dismissed"]
_MONTH_SECONDS = 30 * 86400.0
_TITLES: dict[Verb, str] = {
    "accepted": "Accept: it will be done, and counts until it is.",
    "snoozed": "Snooze: not now, and not counted until then.",
    "dismissed": "Dismiss: it will not be done, and is not counted.",
}


@dataclass(frozen=True, slots=True)
class DecisionAnswer:
    """`until`: Unix seconds, of a snooze. `why`: the reason, None where none was given."""

    act: Verb
    until: float | None
    why: str | None


class DecisionDialog(ModalScreen[DecisionAnswer | None]):
    """Gives the answer, or None where somebody thought better of it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Leave it")]

    def __init__(self, act: Verb, what: str, now: float) -> None:
        """`what`: the recommendation in words; `now`: Unix seconds."""
        super().__init__()
        self._act: Verb = act
        self._what, self._now = what, now

    def compose(self) -> ComposeResult:
        with Vertical(classes="window question"):
            yield Static(line(_TITLES[self._act], "bold"))
            yield Static(line(self._what))
            if self._act == "snoozed":
                yield Input(day(self._now + _MONTH_SECONDS), placeholder="until: a date, UTC", id="until")
            needed = "why (needed)" if self._act == "dismissed" else "why (may stay empty)"
            yield Input(placeholder=needed, id="why", max_length=2000)
            yield Static(classes="wrong")
            yield Static(line("enter decides, escape leaves it as it is", "$foreground-muted"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.input.id == "until":
            self.query_one("#why", Input).focus()
            return
        try:
            self.dismiss(self._answer())
        except UsageError as error:
            self.query_one(".wrong", Static).update(line(error))

    def _answer(self) -> DecisionAnswer:
        why = self.query_one("#why", Input).value.strip() or None
        if self._act == "dismissed" and why is None:
            raise UsageError("The reason is empty.", "Say why: whoever finds this in a year will ask.")
        if self._act != "snoozed":
            return DecisionAnswer(self._act, None, why)
        until = parse_moment(self.query_one("#until", Input).value)
        if until <= self._now:
            raise UsageError(f"{day(until)} is past.", "Give a date that is to come.")
        return DecisionAnswer(self._act, until, why)
