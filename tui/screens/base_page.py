"""What all pages have in common: the bars at the edges, data or a notice in its place, and what they ask for.

A page does not import the program that shows it: it is given a `State` and posts what it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ..cell_text import line, lines
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded, Look, State
from ..widgets.key_footer import KeyFooter
from ..widgets.table import SearchTable
from ..widgets.topbar import TopBar


@dataclass
class StateWanted(Message):
    """A page has come up and asks for the state."""

    page: Page


@dataclass
class WorkloadWanted(Message):
    """Show a workload. `id`: as the advice has it."""

    id: str


@dataclass
class TextWanted(Message):
    """Show a finding or a recommendation as text. `id`: as the advice has it."""

    id: str


@dataclass
class NodeWanted(Message):
    """Show a node; `gpu`: the uuid of the GPU to begin with, None: the first."""

    node: str
    gpu: str | None = None


@dataclass
class WhatIfWanted(Message):
    """Show the what-if page of a workload. `node`: the node SKU to begin with, None: today's."""

    workload: str
    node: str | None = None


@dataclass
class WorkWanted(Message):
    """Run `work` off the event loop, where the data come from, and give its result to `show` on the loop. By default
    the result is a function to call there. Of works with one `slot` the newest counts."""

    slot: str
    work: Callable[[Loader, Tell], Any]
    show: Callable[[Any], None] = lambda then: then()


@dataclass
class ReadingWanted(Message):
    """Show a text over the page. `text`: it may contain outside text."""

    title: str
    text: str


class Back(Message):
    """Go back one step."""


class Page(Screen[None]):
    """A screen over the advice. Subclasses give `compose_data`, `set_data` and `ABOUT`.

    `NAME`: the page of the menu that it is, or belongs to; `LABEL`: its tab; `BEGIN`: the widget with the focus at
    first; `NEEDS_DATA`: whether it needs telemetry, without it is shown at once; `SHOWS_EARLIER`: whether the advice is
    enough, so that it shows what an earlier run read until the source is read again.
    """

    NAME: ClassVar[str] = ""
    LABEL: ClassVar[str] = ""
    BEGIN: ClassVar[str] = ""
    ABOUT: ClassVar[str] = ""
    NEEDS_DATA: ClassVar[bool] = True
    SHOWS_EARLIER: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back", show=False)]

    def __init__(self, workload: str | None = None) -> None:
        """`workload`: id of the workload that the page is about, None: none."""
        super().__init__()
        self._workload = workload
        self._loaded: Loaded | None = None
        self._taken: Look | None = None
        self.set_class(self.NEEDS_DATA, "-empty", update=False)

    def compose(self) -> ComposeResult:
        yield TopBar(self.NAME)
        yield Static(id="notice")
        with Container(id="data"):
            yield from self.compose_data()
        yield KeyFooter()

    def compose_data(self) -> ComposeResult:
        """Return the widgets that show data."""
        raise NotImplementedError

    def set_data(self, loaded: Loaded, /) -> None:
        """Show what was read."""
        raise NotImplementedError

    def newest(self, state: State) -> Look | None:
        """Return what the page can show of a state; None: nothing yet."""
        return state.look if self.SHOWS_EARLIER else state.loaded

    def begin_at(self, selector: str | type[Widget]) -> None:
        """Put the focus on a widget, if there is one: a page that is composed while the program ends may have none.

        The page stays at its top: Textual would scroll to where an earlier layout had the widget.
        """
        for widget in self.query(selector):
            widget.focus(scroll_visible=False)
            return

    def narrate(self, slot: str, text: str) -> None:
        """Show the progress of a slot. Another page may have asked for it."""

    @property
    def subject(self) -> str | None:
        """Id of the finding, the recommendation or the workload that is chosen; None: there is none."""
        return self._workload

    @property
    def workload(self) -> str | None:
        """Id of the workload that the cursor is on, or that its item is about; None: there is none."""
        return self._workload

    def on_mount(self) -> None:
        if self.BEGIN:
            self.begin_at(self.BEGIN)

    def on_screen_resume(self, event: events.ScreenResume) -> None:  # noqa: ARG002 - whatever came before
        self.post_message(StateWanted(self))

    def on_resize(self) -> None:
        """Ask for the state: a page that had no size yet has not shown it."""
        self.post_message(StateWanted(self))

    def update_state(self, state: State) -> None:
        """Take a new state. What was read is drawn only when it is another.

        A page whose widgets are not all mounted takes none: not yet, and it asks in `on_screen_resume`; or no more, as
        the program ends.
        """
        bar = next(iter(self.query(TopBar)), None)
        if not self.is_mounted or bar is None:
            return
        bar.set_data(state)
        look, self._loaded = self.newest(state), state.loaded
        self.set_class(self.NEEDS_DATA and look is None, "-empty")
        if look is None:
            self.query_one("#notice", Static).update(_notice(state))
        elif look is not self._taken:
            self._taken = look
            self.set_data(look)  # type: ignore[arg-type] - without SHOWS_EARLIER it is a `Loaded`

    def action_workload(self) -> None:
        if self.workload is not None:
            self.post_message(WorkloadWanted(self.workload))

    def action_what_if(self) -> None:
        if self.workload is not None:
            self.post_message(WhatIfWanted(self.workload))

    def action_back(self) -> None:
        """Close a search, else go back."""
        if not any(table.forget() for table in self.query(SearchTable)):
            self.post_message(Back())


def _notice(state: State) -> Content:
    """The text in the place of data."""
    if state.error is not None:
        return lines(line("No data", "$error bold"), line(""), line(state.error), line(""), line("r reads again"))
    if state.progress is not None:
        return lines(line(f"{state.progress} ..."), line(""), line("escape stops it", "$foreground-muted"))
    return lines(line("Reading stopped."), line(""), line("r reads"))


class ListPage(Page):
    """A list, `#listed`, above the details of its chosen item or beside them, both within `#proposed`."""

    def tell(self) -> None:
        """Show the details of the chosen item."""
        raise NotImplementedError

    def on_item_table_moved(self) -> None:
        self.tell()
