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
    "accepted": "Accept: will be done; its savings count until then.",
    "snoozed": "Snooze: not now; its savings do not count until the date.",
    "dismissed": "Dismiss: will not be done; its savings do not count.",
}


@dataclass(frozen=True, slots=True)
class DecisionAnswer:
    """`until`: Unix seconds, of a snooze. `why`: the reason, None: none was given."""

    act: Verb
    until: float | None
    why: str | None


class DecisionDialog(ModalScreen[DecisionAnswer | None]):
    """Returns the answer, or None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

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
                yield Input(day(self._now + _MONTH_SECONDS), placeholder="until: date, UTC", id="until")
            needed = "reason (required)" if self._act == "dismissed" else "reason (optional)"
            yield Input(placeholder=needed, id="why", max_length=2000)
            yield Static(classes="wrong")
            yield Static(line("enter confirms, escape cancels", "$foreground-muted"))

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
            raise UsageError("The reason is empty.", "Enter one: it is kept with the decision.")
        if self._act != "snoozed":
            return DecisionAnswer(self._act, None, why)
        until = parse_moment(self.query_one("#until", Input).value)
        if until <= self._now:
            raise UsageError(f"{day(until)} is in the past.", "Enter a later date.")
        return DecisionAnswer(self._act, until, why)
