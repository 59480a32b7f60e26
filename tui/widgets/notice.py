"""What stands where data would be: that it is being read, or why it is not there."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ..cell_text import line, lines
from ..state import State


class Notice(Static):
    """Shown while there is no data."""

    DEFAULT_CSS = """
    Notice { height: 1fr; content-align: center middle; padding: 1 4; text-align: center; }
    """

    def set_data(self, state: State) -> None:
        self.update(notice(state))


def notice(state: State) -> Content:
    if state.error is not None:
        return lines(line("No data", "$error bold"), Content(""), line(state.error), Content(""), line("r reads again"))
    if state.progress is not None:
        return lines(line(f"{state.progress} ..."), Content(""), line("escape stops it", "$foreground-muted"))
    return lines(line("Reading stopped."), Content(""), line("r reads"))
