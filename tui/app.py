"""The program behind `skuwise tui`: it holds the state, has work done on threads, and gives screens what they want."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ..advisor.core.advice_types import Decision
from ..advisor.core.verdict_types import WorkloadVerdict
from ..rules.base.errors import SkuwiseError
from ..rules.base.sanitize import clean
from .app_base import HabitsApp
from .data.background_jobs import JobDone, JobFailed, Jobs, JobTold, Tell, settle
from .data.loaders import Loader
from .data.preferences import Preferences, View
from .data.time_window import WINDOW_HINT, next_window, parse_window, window_of
from .screens.base_page import (
    Back,
    NodeWanted,
    Page,
    ReadingWanted,
    StateWanted,
    TextWanted,
    WhatIfWanted,
    WorkloadWanted,
    WorkWanted,
)
from .screens.dialogs.decision_dialog import DecisionAnswer, DecisionDialog
from .screens.dialogs.input_dialog import InputDialog
from .screens.dialogs.text_viewer import TextViewer, help_text, plain_text
from .screens.menu import MENU
from .screens.node import NodePage
from .screens.recommendations import DecisionWanted
from .screens.whatif import WhatIf
from .screens.workload import WorkloadPage
from .state import WINDOWS, Loaded, Look, State, WindowChoice, with_decision
from .themes import COLOURS, MONOCHROME, THEMES
from .widgets.topbar import Header, TopBar

_CLOCK_SECONDS = 5.0


class SkuwiseApp(HabitsApp):
    """`loader` is asked for all data; `clock` gives Unix seconds. `workload`: opened when the data are there.

    `monochrome`: begin without colours, whatever is remembered.
    `memory`: what an earlier run chose; `told`: a sentence about it.
    """

    TITLE = "skuwise"
    CSS_PATH = "skuwise.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "window(1)", "Window"),
        Binding("W", "window(-1)", "Shorter window", show=False),
        Binding("c", "own_window", "Custom window", show=False),
        Binding("r", "reload", "Read again"),
        Binding("b", "query", "Queries behind the numbers", show=False),
        Binding("exclamation_mark", "why", "Why reading failed", show=False, key_display="!"),
        Binding("t", "theme", "Colors on or off", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]  # fmt: skip

    def __init__(
        self, loader: Loader, *, clock: Callable[[], float], monochrome: bool = False, workload: str | None = None,
        memory: Preferences | None = None, told: str | None = None,
    ) -> None:  # fmt: skip
        memory = memory or Preferences()
        self._header = Header(clean(loader.name), tuple((page.NAME, page.LABEL) for page in MENU))
        super().__init__(memory, loader.key, monochrome)
        self._loader, self._clock, self._wanted = loader, clock, workload
        self._first = MENU[0].NAME
        view = memory.views.get(loader.key, View())
        self._begin, self._told = view.page if view.page in dict(self._header.tabs) else self._first, told
        self.source = self._header.source
        self.jobs = Jobs(self.post_message)
        self.state = State(window=window_of(view.window_seconds), now=clock(), progress="starting")
        for theme in THEMES:
            self.register_theme(theme)
        known = memory.theme if memory.theme in {theme.name for theme in THEMES} else COLOURS.name
        self.theme = MONOCHROME.name if monochrome else known or COLOURS.name
        for number, page in enumerate(MENU, 1):
            self.add_mode(page.NAME, partial(page, self._header))
            self.bind(str(number % 10), f"page('{page.NAME}')", description=page.LABEL, show=False)

    def on_mount(self) -> None:
        self.switch_mode(self._begin)
        if self._told is not None:
            self.notify(clean(self._told), severity="warning", markup=False)
        # The first paint comes before the first byte is read.
        self.call_after_refresh(self._begin_reading)
        self.set_interval(_CLOCK_SECONDS, self._tick)

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:  # noqa: ARG002 - the same on all
        """What the command palette offers."""
        for page, label in self._header.tabs:
            yield SystemCommand(label, f"Go to {label}", lambda page=page: self.action_page(page))
        for window in WINDOWS:
            yield SystemCommand(
                f"Window {window.name}", "Sums, shares and plots of this window", lambda w=window: self._choose(w)
            )
        yield SystemCommand("Window ...", "A length, or start and end", self.action_own_window)
        yield SystemCommand("Read again", "Read the source again", self.action_reload)
        yield SystemCommand("Colors on or off", "Switch between the color and the monochrome theme", self.action_theme)
        yield SystemCommand("Help", "About this page, and its keys", self.action_help)
        yield SystemCommand("Quit", "Quit skuwise", self.action_quit)

    # Reading, and the state

    def _begin_reading(self) -> None:
        """Read, and show what an earlier run saw until that is done."""
        window = self.state.window
        self.jobs.start("recalling", lambda _tell: self._loader.recall(window), self._show_earlier)
        self._load(None)

    def _load(self, kept: Loaded | None) -> None:
        window, advice = self.state.window, kept.advice if kept is not None else None
        self._become(progress="reading", error=None)

        def work(tell: Tell) -> Loaded:
            loaded = self._loader.load(window, advice, tell)
            settle()
            return loaded

        self.jobs.start("reading", work, self._show)

    def _show(self, loaded: Loaded) -> None:
        self._become(loaded=loaded, earlier=None, progress=None, error=None)
        self._open_wanted(loaded)
        self.jobs.start("keeping", lambda _tell: self._loader.keep(loaded))

    def _show_earlier(self, look: Look | None) -> None:
        if look is not None and self.state.loaded is None and look.window == self.state.window:
            self._become(earlier=look)

    def _become(self, **changes: object) -> None:
        """Another state, told to the page on the screen; the others ask when they come up."""
        self.state = replace(self.state, now=self._clock(), **changes)  # type: ignore[arg-type] - fields of State
        if isinstance(self.screen, Page):
            self.screen.update_state(self.state)

    def _tick(self) -> None:
        if self.is_running:  # there is no screen any more as it ends
            self._become()

    def on_job_told(self, message: JobTold) -> None:
        if not self.jobs.current(message):
            return
        if message.slot == "reading":
            self._become(progress=clean(message.text))
        elif isinstance(self.screen, Page):
            self.screen.narrate(message.slot, clean(message.text))

    def on_job_done(self, message: JobDone) -> None:
        if self.is_running and self.jobs.current(message):  # as it ends, pages lose their widgets
            message.show()

    def on_job_failed(self, message: JobFailed) -> None:
        if not self.jobs.current(message):
            return
        if message.slot == "reading":
            self._become(progress=None, error=message.error, window=self._window_read())
        else:
            self.notify(message.error, severity="error", markup=False)

    def _stop(self) -> None:
        self.jobs.cancel("recalling")
        self.jobs.cancel("reading")
        self._become(progress=None, window=self._window_read())

    def _window_read(self) -> WindowChoice:
        """The window of what is shown: one that could not be read is not claimed."""
        return self.state.look.window if self.state.look is not None else self.state.window

    def action_reload(self) -> None:
        self._load(None)

    def action_window(self, by: int) -> None:
        self._choose(next_window(self.state.window, by))

    def action_own_window(self) -> None:
        def choose(window: WindowChoice | None) -> None:
            if window is not None:
                self._choose(window)

        now = self._clock()
        self.push_screen(InputDialog("Window", WINDOW_HINT, lambda text: parse_window(text, now)), choose)

    def _choose(self, window: WindowChoice) -> None:
        self._become(window=window)
        self._load(self.state.loaded)

    def action_why(self) -> None:
        if self.state.error is not None:
            self._read_over("Why reading failed", self.state.error)

    def action_query(self) -> None:
        """The queries behind the numbers of what is chosen."""
        look, page = self.state.look, self.screen
        subject = page.subject if isinstance(page, Page) else None
        if look is None or subject is None:
            self.notify("Select a finding, a recommendation or a workload first.")
            return

        show = partial(self._read_over, "Queries behind the numbers")
        self.jobs.start("query", lambda _tell: self._loader.queries(look, subject), show)

    def _read_over(self, title: str, told: str) -> None:
        self.push_screen(TextViewer(title, plain_text(told)))

    def on_state_wanted(self, message: StateWanted) -> None:
        message.page.update_state(self.state)

    # Getting about

    def action_page(self, name: str) -> None:
        page = self.screen
        if isinstance(page, Page):
            if page.workload is not None and name != page.NAME:
                self.state = replace(self.state, workload=page.workload)
            self.switch_mode(name)

    def on_top_bar_chosen(self, message: TopBar.Chosen) -> None:
        self.action_page(message.page)

    def on_back(self, message: Back) -> None:  # noqa: ARG002 - whoever asks
        """First what is being read is called off, then the story closes, then the overview comes."""
        page = self.screen
        if self.state.progress is not None and isinstance(page, Page) and page.newest(self.state) is None:
            self._stop()
        elif len(self.screen_stack) > 1:
            self.pop_screen()
        elif self.state.progress is not None:
            self._stop()
        elif self.current_mode != self._first:
            self.switch_mode(self._first)

    def on_workload_wanted(self, message: WorkloadWanted) -> None:
        self.push_screen(WorkloadPage(self._header, message.id))

    def on_node_wanted(self, message: NodeWanted) -> None:
        self.push_screen(NodePage(self._header, message.node, message.gpu, self._clock))

    def on_text_wanted(self, message: TextWanted) -> None:
        look = self.state.look
        if look is None:
            return
        from ..advisor.show.pages.explain import explain_page  # noqa: PLC0415 - and this numpy
        from ..advisor.show.writers.text import document_text  # noqa: PLC0415 - it needs rich: not at the start

        advice = look.advice
        finding = next((one for one in (*advice.findings, *advice.recommendations) if one.id == message.id), None)
        if finding is not None:
            page = explain_page(advice, finding, verbose=True)
            self.push_screen(TextViewer("Details", lambda width: plain_text(document_text(page, width=width))(width)))

    def _open_wanted(self, loaded: Loaded) -> None:
        """The workload that the command line named, once."""
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        from ..advisor.core.naming import AmbiguousError  # noqa: PLC0415
        from ..advisor.show.subjects import find  # noqa: PLC0415

        try:
            found = find(loaded.advice, wanted)
        except SkuwiseError as error:
            said = error.brief if isinstance(error, AmbiguousError) else error
            self.notify(clean(said), severity="error", markup=False)
            return
        self.post_message(WorkloadWanted(found.id) if isinstance(found, WorkloadVerdict) else TextWanted(found.id))

    def action_help(self) -> None:
        page = self.screen
        if not isinstance(page, Page):
            return
        keys: dict[str, list[str]] = {}  # by what they do
        for active in page.active_bindings.values():
            binding, shown = active.binding, self.get_key_display(active.binding)
            if binding.description and not binding.system and shown not in keys.get(binding.description, ()):
                keys.setdefault(binding.description, []).append(shown)
        listed = [(" ".join(own), what) for what, own in keys.items()]
        self.push_screen(TextViewer("Help", help_text(page.ABOUT, listed)))

    def action_theme(self) -> None:
        self.theme = (COLOURS if self.theme == MONOCHROME.name else MONOCHROME).name

    # What screens ask for

    def on_work_wanted(self, message: WorkWanted) -> None:
        self.jobs.start(message.slot, lambda tell: message.work(self._loader, tell), message.show)

    def on_reading_wanted(self, message: ReadingWanted) -> None:
        self._read_over(message.title, message.text)

    def on_what_if_wanted(self, message: WhatIfWanted) -> None:
        self.push_screen(WhatIf(self._header, message.workload, message.node))

    def on_decision_wanted(self, message: DecisionWanted) -> None:
        if self.state.loaded is None:
            self.notify("These recommendations are of an earlier run: decide when the source has been read.")
            return

        def decide(answer: DecisionAnswer | None) -> None:
            loaded = self.state.loaded
            if answer is None or loaded is None:
                return
            a, id_ = answer, message.id
            self.jobs.start(
                "deciding",
                lambda _tell: self._loader.decide(loaded.advice, id_, a.act, a.until, a.why),
                partial(self._decided, id_),
            )

        self.push_screen(DecisionDialog(message.act, message.what, self._clock()), decide)

    def _decided(self, id_: str, decision: Decision) -> None:
        """Mark it at once; the sums follow, for what is set aside counts no more."""
        if self.state.loaded is not None:
            self._become(loaded=with_decision(self.state.loaded, id_, decision))
        self.notify(f"{id_} is {decision.state}.", markup=False)
        self._load(None)
