"""The two lines at the top: where one is, and what the figures rest on."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from ...advisor.core.timestamps import minute
from ...rules.base.sanitize import clean
from ..cell_text import fit, line, lines
from ..state import State


@dataclass(frozen=True, slots=True)
class Header:
    """What stands at the top of every page. `source`: what is read; `tabs`: (page, its label)."""

    source: str
    tabs: tuple[tuple[str, str], ...]


class TopBar(Widget):
    """`here`: the page that is shown. One widget draws both lines: one for each name took a
    good part of the time that a new page needs.
    """

    DEFAULT_CSS = "TopBar { height: 2; dock: top; background: $panel; }"

    @dataclass
    class Chosen(Message):
        """Somebody clicked the name of a page."""

        page: str

    def __init__(self, header: Header, here: str) -> None:
        super().__init__()
        self._header, self._here = header, here
        self._state: State | None = None

    def set_data(self, state: State) -> None:
        """Tell the state: window, how old it is, what is being done."""
        self._state = state
        self.refresh()

    def render(self) -> Content:
        names = [
            Content.styled(name, "bold $background on $primary" if page == self._here else "$foreground-muted")
            for page, name in self._names()
        ]
        return lines(Content.assemble(*names), self._standing())

    def _names(self) -> list[tuple[str, str]]:
        """Each page with what stands for it; where not all names fit, the other pages are numbers."""
        whole = [(page, f" {number % 10} {label} ") for number, (page, label) in enumerate(self._header.tabs, 1)]
        if sum(len(name) for _, name in whole) <= self.size.width:
            return whole
        return [(p, name if p == self._here else f" {number % 10} ") for number, (p, name) in enumerate(whole, 1)]

    def _standing(self) -> Content:
        """Window, what it is read from, how old it is, what is being done."""
        state = self._state
        if state is None:
            return Content("")
        width = max(self.size.width - 2, 0)
        told = standing_words(state)
        told = fit(told, width) if len(told) > width else told
        room = width - len(told)
        where = fit(clean(self._header.source), room) if room > 4 else ""
        style = "$error" if state.error else "$warning" if state.stale or state.progress else ""
        return Content.assemble(" ", line(told, style), where and Content.styled(where, "$foreground-muted"))

    def on_click(self, event: events.Click) -> None:
        """On a name: that page."""
        at = event.x
        for page, name in self._names() if event.y == 0 else ():
            if 0 <= at < len(name):
                self.post_message(self.Chosen(page))
                return
            at -= len(name)


def standing_words(state: State) -> str:
    """``window 14d · read 2 min ago · data to 2026-11-16 00:00 UTC · ``: what asks for something comes first."""
    parts = [f"window {state.window.name}"]
    if state.progress is not None:
        parts.append(f"{state.progress} ...")
    elif state.error is not None and state.look is not None:
        parts.append("reading failed: ! shows why")
    elif state.stale:
        parts.append("old: r reads again")
    if state.look is not None:
        parts += [f"read {state.age} ago", f"data to {minute(state.look.shown.end)}"]
    return " · ".join([*parts, ""])
