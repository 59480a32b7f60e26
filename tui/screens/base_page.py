"""What all pages have in common: the bars at the edges, data or a notice in its place, and what they ask for.

A page does not import the program that shows it: it is given a `State` and posts what it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Literal

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
from ..widgets.frame import KeyFooter, TopBar
from ..widgets.table import ItemTable


@dataclass
class Wanted(Message):
    """What a page asks for, with its arguments. Ids are those of the advice.

    state: the newest state. workload: its page (id). node: its page (name, uuid of the GPU to begin with or None).
    whatif: its page (workload, node SKU to begin with or None). details: a finding or a recommendation as text (id).
    text: a text over the page (title, text). decision: ask for it (verb, id, the recommendation in words).
    """

    kind: Literal["state", "workload", "node", "whatif", "details", "text", "decision"]
    arguments: tuple[Any, ...] = ()


@dataclass
class WorkWanted(Message):
    """Run `work` off the event loop, where the data come from, and give its result to `show` on the loop. By default
    the result is a function to call there. Of works with one `slot` the newest counts."""

    slot: str
    work: Callable[[Loader, Tell], Any]
    show: Callable[[Any], None] = lambda then: then()


class Page(Screen[None]):
    """A screen over the advice. Subclasses give `compose_data`, `set_data` and `ABOUT`.

    `NAME`: the page of the menu that it is, or belongs to; `LABEL`: its tab; `BEGIN`: the widget with the focus at
    first; `IDS`: subject and workload of the selected item, None: the page is about one workload; `NEEDS_DATA`: whether
    it needs telemetry, without it is shown at once; `SHOWS_EARLIER`: whether the advice is enough, so that it shows
    what an earlier run read until the source is read again.
    """

    NAME: ClassVar[str] = ""
    LABEL: ClassVar[str] = ""
    BEGIN: ClassVar[str] = "ItemTable"
    ABOUT: ClassVar[str] = ""
    IDS: ClassVar[attrgetter[tuple[str | None, str | None]] | None] = None
    NEEDS_DATA: ClassVar[bool] = True
    SHOWS_EARLIER: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", show=False),
        Binding("o", "workload", "Workload", show=False),
    ]

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

    def set_data(self, loaded: Any, /) -> None:  # noqa: ANN401 - a `Look`; without `SHOWS_EARLIER` a `Loaded`
        """Show what was read."""
        raise NotImplementedError

    def newest(self, state: State) -> Look | None:
        """Return what the page can show of a state; None: nothing yet."""
        return state.look if self.SHOWS_EARLIER else state.loaded

    def want(self, kind: Literal["workload", "node", "whatif", "details", "text", "decision"], *about: object) -> None:
        """Ask for something; see `Wanted`."""
        self.post_message(Wanted(kind, about))

    def write(self, selector: str, *text: Content) -> None:
        """Show lines in a text of the page."""
        self.query_one(selector, Static).update(lines(*text))

    @property
    def selected(self) -> Any:  # noqa: ANN401
        """The item under the cursor of the page's first table; None: there is none."""
        return self.query_one(ItemTable).item

    @property
    def subject(self) -> str | None:
        """Id of the finding, the recommendation or the workload that is chosen; None: there is none."""
        return self._ids()[0]

    @property
    def workload(self) -> str | None:
        """Id of the workload that the cursor is on, or that its item is about; None: there is none."""
        return self._ids()[1]

    def _ids(self) -> tuple[str | None, str | None]:
        if self.IDS is None:
            return self._workload, self._workload
        return self.IDS(self.selected) if self.selected is not None else (None, None)

    def on_mount(self) -> None:
        # A page that is composed while the program ends may have no such widget. The page stays at its top: Textual
        # would scroll to where an earlier layout had the widget.
        for widget in self.query(self.BEGIN).results(Widget):
            widget.focus(scroll_visible=False)
            return

    def on_screen_resume(self) -> None:
        self.post_message(Wanted("state"))

    def on_resize(self) -> None:
        """Ask for the state: a page that had no size yet has not shown it."""
        self.post_message(Wanted("state"))

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
            self.write("#notice", *_notice(state))
        elif look is not self._taken:
            self._taken = look
            self.set_data(look)

    def action_workload(self) -> None:
        if self.workload is not None:
            self.want("workload", self.workload)

    def action_what_if(self) -> None:
        if self.workload is not None:
            self.want("whatif", self.workload)


def _notice(state: State) -> tuple[Content, ...]:
    if state.error is not None:
        return line("No data", "$error bold"), line(""), line(state.error), line(""), line("r reads again")
    if state.progress is not None:
        return line(f"{state.progress} ..."), line(""), line("escape stops it", "$foreground-muted")
    return line("Reading stopped."), line(""), line("r reads")
