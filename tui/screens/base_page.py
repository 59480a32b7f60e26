"""What all pages have in common: the bars at the edges, data or a notice in its place, and what they ask for.

A page never knows the program that shows it: it is given a `State` and posts what it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ..cell_text import line, lines
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded, Look, State
from ..widgets.key_footer import KeyFooter
from ..widgets.search_table import SearchTable
from ..widgets.table import ItemTable
from ..widgets.topbar import Header, TopBar


class Notice(Static):
    """Shown while there is no data."""

    DEFAULT_CSS = """
    Notice { height: 1fr; content-align: center middle; padding: 1 4; text-align: center; }
    """

    def set_data(self, state: State) -> None:
        if state.error is not None:
            told = (line("No data", "$error bold"), line(""), line(state.error), line(""), line("r reads again"))
        elif state.progress is not None:
            told = (line(f"{state.progress} ..."), line(""), line("escape stops it", "$foreground-muted"))
        else:
            told = (line("Reading stopped."), line(""), line("r reads"))
        self.update(lines(*told))


_VAST = 200  # columns of a terminal in which a list and its details are side by side
_LEAST = 8  # lines of a list above its details


@dataclass
class StateWanted(Message):
    """A page has come up and wants what is known."""

    page: Page


@dataclass
class WorkloadWanted(Message):
    """Somebody wants to see a workload. `id`: as the advice has it."""

    id: str


@dataclass
class TextWanted(Message):
    """Somebody wants to read about a finding or a recommendation. `id`: as the advice has it."""

    id: str


@dataclass
class NodeWanted(Message):
    """Somebody wants to see a node; `gpu`: the uuid of the GPU to begin with, None: the first."""

    node: str
    gpu: str | None = None


@dataclass
class WhatIfWanted(Message):
    """Somebody wants to ask what if about a workload. `node`: the node SKU to begin with, None: today's."""

    workload: str
    node: str | None = None


@dataclass
class WorkWanted(Message):
    """A page wants work done off the event loop. `work` is given where data come from; `show` is given the result, on
    the loop. By default the result is a function to call there. Of works with one `slot` the newest counts."""

    slot: str
    work: Callable[[Loader, Tell], Any]
    show: Callable[[Any], None] = lambda then: then()


@dataclass
class ReadingWanted(Message):
    """Somebody wants to read a text over the page. `text`: it may hold what came from outside."""

    title: str
    text: str


class Back(Message):
    """Out of here, one step."""


class Page(Screen[None]):
    """A screen over the advice. Subclasses give `compose_data`, `set_data` and `ABOUT`.

    `NAME`: the page of the menu that it is, or belongs to; `LABEL`: what the menu calls it; `BEGIN`: the widget that
    has the focus at first.
    """

    NAME: ClassVar[str] = ""
    LABEL: ClassVar[str] = ""
    BEGIN: ClassVar[str] = ""
    ABOUT: ClassVar[str] = ""
    # Whether the page needs telemetry; without, it is shown at once.
    NEEDS_DATA: ClassVar[bool] = True
    # Whether the advice is enough for it: then it shows what an earlier run saw until the source is read anew.
    SHOWS_EARLIER: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back", show=False)]

    def __init__(self, header: Header, workload: str | None = None) -> None:
        """`workload`: id of the one that the page is about, None: of none."""
        super().__init__()
        self._workload = workload
        # Textual would read all styles anew for each new page: half of what a first visit takes.
        self._css_update_count = self.app._css_update_count
        self._header = header
        self._loaded: Loaded | None = None
        self._taken: Look | None = None
        self.set_class(self.NEEDS_DATA, "-empty", update=False)

    def compose(self) -> ComposeResult:
        yield TopBar(self._header, self.NAME)
        yield Notice()
        with Container(id="data"):
            yield from self.compose_data()
        yield KeyFooter()

    def compose_data(self) -> ComposeResult:
        """The widgets that show data."""
        raise NotImplementedError

    def set_data(self, loaded: Loaded, /) -> None:
        """Show what was read."""
        raise NotImplementedError

    def newest(self, state: State) -> Look | None:
        """What the page can show of a state; None: nothing yet."""
        return state.look if self.SHOWS_EARLIER else state.loaded

    def take(self, state: State) -> None:
        """Show what a state has, where it is not shown yet."""
        look, self._loaded = self.newest(state), state.loaded
        if look is not None and look is not self._taken:
            self._taken = look
            self.set_data(look)  # type: ignore[arg-type] - without SHOWS_EARLIER it is a `Loaded`

    def begin_at(self, selector: str | type[Widget]) -> None:
        """Put the focus on a widget. A page that is built as the program ends may have none.

        A page begins at its top: Textual would glide to the widget from where an earlier layout had it, and a page that
        is laid out again meanwhile would stay between two lines.
        """
        for widget in self.query(selector):
            widget.focus(scroll_visible=False)
            return

    def narrate(self, slot: str, text: str) -> None:
        """Say what is being done in a slot. Another page may have wanted it."""

    @property
    def subject(self) -> str | None:
        """Id of the finding, the recommendation or the workload that is chosen; None: there is none."""
        return self._workload

    @property
    def workload(self) -> str | None:
        """Id of the workload that the cursor is on, or that what it is on is about; None: there is none."""
        return self._workload

    def on_mount(self) -> None:
        if self.BEGIN:
            self.begin_at(self.BEGIN)

    def on_screen_resume(self, event: events.ScreenResume) -> None:  # noqa: ARG002 - whatever came before
        self.post_message(StateWanted(self))

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _VAST, "-vast")
        self.post_message(StateWanted(self))
        self.call_after_refresh(self.share)

    def share(self) -> None:
        """Give the widgets their heights, as far as these depend on the room and on what was read."""

    def update_state(self, state: State) -> None:
        """Take a new state. What was read is drawn only when it is another.

        A page whose widgets are not all there takes none: not yet, and it asks when they are (`on_screen_resume`); or
        no more, as the program ends.
        """
        bar = next(iter(self.query(TopBar)), None)
        if not self.is_mounted or bar is None:
            return
        bar.set_data(state)
        empty = self.newest(state) is None
        self.set_class(self.NEEDS_DATA and empty, "-empty")
        if empty:
            self.query_one(Notice).set_data(state)
        else:
            self.take(state)

    def action_workload(self) -> None:
        if self.workload is not None:
            self.post_message(WorkloadWanted(self.workload))

    def action_what_if(self) -> None:
        if self.workload is not None:
            self.post_message(WhatIfWanted(self.workload))

    def action_back(self) -> None:
        for finder in self.query(SearchTable):
            if finder.forget():
                return
        self.post_message(Back())


class ListPage(Page):
    """A list, `#listed`, above the details of its chosen item or beside them, both within `#proposed`.

    `FRAME`: lines of the list beside its items.
    """

    FRAME: ClassVar[int]

    def share(self) -> None:
        """Below one another, the list has the lines it needs, up to a good half."""
        beside, room = self.has_class("-vast"), self.query_one("#proposed").size.height
        needed = max(self.query_one(ItemTable).total, 1) + self.FRAME
        self.query_one("#listed").styles.height = "1fr" if beside else min(needed, max(room * 5 // 9, _LEAST))

    def tell(self) -> None:
        """Show the details of the chosen item."""
        raise NotImplementedError

    def on_item_table_moved(self) -> None:
        self.tell()
