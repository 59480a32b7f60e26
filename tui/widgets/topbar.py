"""The two lines at the top: the pages, and what the figures rest on."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from ...advisor.core.timestamps import minute
from ...rules.base.sanitize import clean
from ..cell_text import fit, line, lines
from ..state import State


class TopBar(Widget):
    """`here`: the page shown. One widget draws all names: a widget each takes much of the time of a new page."""

    DEFAULT_CSS = """
    TopBar { height: 2; dock: top; background: $panel; link-style: none; link-color: $foreground-muted; }
    """
    tabs: ClassVar[tuple[tuple[str, str], ...]] = ()  # (page, label), in the order of their keys; set by the program

    def __init__(self, here: str) -> None:
        super().__init__()
        self._here = here
        self._state: State | None = None

    def set_data(self, state: State) -> None:
        """Show the window, its age and what is being done."""
        self._state = state
        self.refresh()

    def render(self) -> Content:
        names = [(page, f" {number} {label} ") for number, (page, label) in enumerate(self.tabs, 1)]
        if sum(len(name) for _, name in names) > self.size.width:  # the key of the page shown hints at the others
            names = [(page, f"{name[1:] if page == self._here else name[3:]}") for page, name in names]
        tabs = Content.assemble(*(self._tab(page, name) for page, name in names))
        return lines(tabs.truncate(self.size.width), self._status())

    def _tab(self, page: str, name: str) -> Content:
        if page == self._here:
            return Content.styled(name, "bold $background on $primary")
        return Content.styled(name, "$foreground-muted").stylize(Style.from_meta({"@click": f"app.page('{page}')"}))

    def _status(self) -> Content:
        state, width = self._state, max(self.size.width - 2, 0)
        if state is None:
            return Content("")
        status = status_words(state)
        status = fit(status, width) if len(status) > width else status
        room = width - len(status)
        source = fit(clean(self.app.sub_title), room) if room > 4 else ""
        style = "$error" if state.error else "$warning" if state.stale or state.progress else ""
        return Content.assemble(" ", line(status, style), source and Content.styled(source, "$foreground-muted"))


def status_words(state: State) -> str:
    """``window 14d · read 2 min ago · data to 2026-11-16 00:00 UTC · ``; what needs attention comes first."""
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
