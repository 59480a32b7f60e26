"""A window that asks for what a decision needs."""

from __future__ import annotations

from typing import Literal

from ....advisor.core.timestamps import day, parse_moment
from ....rules.base.errors import UsageError
from .input_dialog import InputDialog

Verb = Literal["accepted", "snoozed", "dismissed"]
Answer = tuple[float | None, str | None]  # until when, Unix seconds (None: without an end); the reason (None: none)
_MONTH_SECONDS = 30 * 86400.0
_TITLES: dict[Verb, str] = {
    "accepted": "Accept: will be done; its savings count until then.",
    "snoozed": "Snooze: not now; its savings do not count until the date.",
    "dismissed": "Dismiss: will not be done; its savings do not count.",
}
_HINTS: dict[Verb, str] = {
    "accepted": "Reason (optional):",
    "snoozed": "Until (a date, UTC), then a reason (optional):",
    "dismissed": "Reason (required):",
}


def decision_dialog(act: Verb, what: str, now: float) -> InputDialog[Answer]:
    """Return the dialog for a decision. `what`: the recommendation in words; `now`: Unix seconds."""

    def parse(text: str) -> Answer:
        if act == "dismissed" and not text:
            raise UsageError("The reason is empty.", "Enter one: it is kept with the decision.")
        if act != "snoozed":
            return None, text or None
        date, _, reason = text.partition(" ")
        until = parse_moment(date)
        if until <= now:
            raise UsageError(f"{day(until)} is in the past.", "Enter a later date.")
        return until, reason.strip() or None

    return InputDialog(
        _TITLES[act], f"{what}\n{_HINTS[act]}", parse, day(now + _MONTH_SECONDS) if act == "snoozed" else ""
    )
