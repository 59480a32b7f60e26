"""The two lines at the top: where one is, and what the figures rest on."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...advisor.moments import minute
from ...rules.plain import clean
from ..cells import fit, line
from ..state import State


class Tab(Static):
    """The name of a page. A click on it posts `Chosen`."""

    class Chosen(Message):
        def __init__(self, page: str) -> None:
            super().__init__()
            self.page = page

    def __init__(self, page: str, number: int, label: str, here: bool) -> None:
        super().__init__(Content(f"{number} {label}"), classes="-here" if here else "")
        self._page, self._number, self._label, self._here = page, number, label, here

    @property
    def room(self) -> int:
        """Cells that it takes with its name."""
        return len(f"{self._number} {self._label}") + 2

    def shorten(self, short: bool) -> None:
        """Only the number, unless it is the page that is shown."""
        self.update(Content(str(self._number) if short and not self._here else f"{self._number} {self._label}"))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Chosen(self._page))


class TopBar(Widget):
    """`tabs`: (page, its label); `here`: the page that is shown."""

    DEFAULT_CSS = """
    TopBar { height: 2; dock: top; background: $panel; }
    TopBar > Horizontal { height: 1; }
    TopBar Tab { width: auto; padding: 0 1; color: $foreground-muted; }
    TopBar Tab.-here { background: $primary; color: $background; text-style: bold; }
    TopBar > #standing { height: 1; padding: 0 1; }
    """

    def __init__(self, tabs: Sequence[tuple[str, str]], here: str) -> None:
        super().__init__()
        self._tabs, self._here = tuple(tabs), here
        self._told = Content("")

    def compose(self) -> ComposeResult:
        with Horizontal():
            for number, (page, label) in enumerate(self._tabs, 1):
                yield Tab(page, number, label, page == self._here)
        yield Static(id="standing")

    def on_resize(self, event: events.Resize) -> None:
        """Where not all names fit, the other pages are numbers."""
        tabs = list(self.query(Tab))
        for tab in tabs:
            tab.shorten(sum(one.room for one in tabs) > event.size.width)

    def put(self, state: State, source: str) -> None:
        """Tell the state: window, what it is read from, how old it is, what is being done."""
        standing = self.query_one("#standing", Static)
        width = max(self.size.width - 2, 0)
        told = standing_words(state)
        told = fit(told, width) if len(told) > width else told
        room = width - len(told)
        where = fit(clean(source), room) if room > 4 else ""
        style = "$error" if state.error else "$warning" if state.stale or state.progress else ""
        standing.update(
            Content.assemble(line(told, style), where and Content.styled(where, "$foreground-muted")), layout=False
        )


def standing_words(state: State) -> str:
    """``window 14d · read 2 min ago · data to 2026-11-16 00:00 UTC · ``: what asks for something comes first."""
    parts = [f"window {state.window.name}"]
    if state.progress is not None:
        parts.append(f"{state.progress} ...")
    elif state.error is not None and state.loaded is not None:
        parts.append("not read anew: ! tells why")
    elif state.stale:
        parts.append("old: r reads anew")
    if state.loaded is not None:
        parts += [f"read {state.age} ago", f"data to {minute(state.loaded.shown.end)}"]
    return " · ".join([*parts, ""])
