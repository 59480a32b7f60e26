"""The program of ``skuwise tui``: it holds the state, runs work on threads, and shows what pages ask for."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen

from ..advisor.core.advice_types import Decision
from ..advisor.core.timestamps import rfc3339
from ..advisor.core.verdict_types import WorkloadVerdict
from ..advisor.show.subjects import find
from ..rules.base.errors import SkuwiseError
from ..rules.base.output import write_whole
from ..rules.base.sanitize import clean
from .cell_text import fit, line
from .data.background_jobs import JobMessage, Jobs, Tell, settle
from .data.loaders import Loader
from .data.preferences import Preferences
from .exports import KINDS, page_panels, path_of, render_export
from .screens.base_page import Page, Wanted, WorkWanted
from .screens.doctor import Doctor
from .screens.fleet import FleetPage
from .screens.incidents import Incidents
from .screens.node import NodePage
from .screens.overview import Overview
from .screens.plan import PlanPage
from .screens.recommendations import Recommendations
from .screens.skus import Skus
from .screens.whatif import WhatIf
from .screens.workloads import WorkloadPage, Workloads
from .state import Loaded, Look, State, WindowChoice, next_window, parse_window, window_of, with_decision
from .themes import COLOURS, MONOCHROME, THEMES
from .widgets.figures import explained
from .widgets.frame import Answer, InputDialog, TextViewer, TopBar, Verb, decision_dialog
from .widgets.table import ItemTable, SearchTable

# The pages in their order: the first comes up first, and its place in the order is a page's key.
MENU: tuple[type[Page], ...] = (
    Overview, FleetPage, Workloads, Recommendations, WhatIf, Skus, Doctor, Incidents, PlanPage,
)  # fmt: skip
_CLOCK_SECONDS = 5.0
_BASE = 2  # screens below those that are pushed: Textual's first one, and a page of the menu

_SCREENS: dict[str, Callable[..., Screen[Any]]] = {"workload": WorkloadPage, "whatif": WhatIf, "text": TextViewer}


class SkuwiseApp(App[None]):
    """`loader` gives all data; `clock` gives Unix seconds. `workload`: opened when the data are there.

    `monochrome`: begin without colors, whatever is remembered. `memory`: what an earlier run chose; `warning`: a
    sentence about it.
    """

    TITLE = "skuwise"
    CSS_PATH = "skuwise.tcss"
    # Not as modes: for each new one Textual parses all styles again, which doubles the time of a first visit.
    SCREENS = {page.NAME: page for page in MENU}  # noqa: RUF012 - as Textual declares it
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide"), (200, "-vast")]  # noqa: RUF012 - as Textual declares it
    VERTICAL_BREAKPOINTS = [(0, "-low"), (14, "-middle"), (45, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "window", "Window"),
        Binding("c", "custom_window", "Custom window", show=False),
        Binding("r", "reload", "Read again"),
        Binding("b", "query", "Queries behind the numbers", show=False),
        Binding("exclamation_mark", "why", "Why reading failed", show=False, key_display="!"),
        Binding("t", "theme", "Colors on or off", show=False),
        Binding("e", "export", "Export", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        *(Binding(str(number), f"page('{page.NAME}')", page.LABEL, show=False) for number, page in enumerate(MENU, 1)),
    ]

    def __init__(
        self, loader: Loader, *, clock: Callable[[], float], monochrome: bool = False, workload: str | None = None,
        memory: Preferences | None = None, warning: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        memory = memory or Preferences()
        self._loader, self._clock, self._wanted, self._warning = loader, clock, workload, warning
        # `monochrome` is not chosen, so that the theme remembered is kept.
        self._forced_theme, self._recalled_theme = monochrome, memory.theme
        self.sub_title = clean(loader.name)
        self.jobs = Jobs(self.post_message)
        self.state = State(window=window_of(memory.window_seconds), now=clock(), progress="starting")
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = MONOCHROME.name if monochrome or memory.theme == MONOCHROME.name else COLOURS.name
        TopBar.tabs = tuple((page.NAME, page.LABEL) for page in MENU)
        self._begin = memory.page if memory.page in self.SCREENS else MENU[0].NAME

    def on_mount(self) -> None:
        self.push_screen(self._begin)
        if self._warning is not None:
            self.notify(clean(self._warning), severity="warning", markup=False)
        # The first paint comes before the first byte is read.
        self.call_after_refresh(self._begin_reading)
        self.set_interval(_CLOCK_SECONDS, self._become)

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:  # noqa: ARG002 - the same on all
        """What the command palette offers."""
        for binding in self.BINDINGS:
            if isinstance(binding, Binding):
                yield SystemCommand(binding.description, f"Key {self.get_key_display(binding)}",
                                    partial(self.run_action, binding.action))  # fmt: skip

    @property
    def memory(self) -> Preferences:
        """What to remember."""
        theme = self._recalled_theme if self._forced_theme else self.theme
        return Preferences(theme, self.state.window.seconds, self.current_page)

    @property
    def current_page(self) -> str:
        """Name of the page of the menu that is open, below others perhaps."""
        stack = self.screen_stack  # empty once the app has ended
        page = stack[min(_BASE, len(stack)) - 1] if stack else None
        return page.NAME if isinstance(page, Page) else self._begin

    def _go_to(self, name: str) -> None:
        self._begin = name
        while len(self.screen_stack) > _BASE:
            self.pop_screen()
        self.switch_screen(name)

    # Reading, and the state

    def _begin_reading(self) -> None:
        window = self.state.window

        def show(look: Look | None) -> None:
            if look is not None and self.state.loaded is None and look.window == self.state.window:
                self._become(earlier=look)

        self.jobs.start("recalling", lambda _tell: self._loader.recall(window), show)
        self.action_reload()

    def action_reload(self, kept: Loaded | None = None) -> None:
        """Read again. `kept`: its advice stays, only the chosen window is read."""
        window, advice = self.state.window, kept.advice if kept is not None else None
        self._become(progress="reading", error=None)

        def work(tell: Tell) -> Loaded:
            loaded = self._loader.load(window, advice, tell)
            settle()
            return loaded

        def show(loaded: Loaded) -> None:
            self._become(loaded=loaded, earlier=None, progress=None, error=None)
            self._open_wanted(loaded)
            self.jobs.start("keeping", lambda _tell: self._loader.keep(loaded))

        self.jobs.start("reading", work, show)

    def _become(self, **changes: object) -> None:
        self.state = replace(self.state, now=self._clock(), **changes)  # type: ignore[arg-type] - fields of State
        if self.is_running and isinstance(self.screen, Page):  # there is no screen any more as it ends
            self.screen.update_state(self.state)

    def on_job_message(self, message: JobMessage) -> None:
        if not self.is_running or not self.jobs.current(message):
            return
        reading = message.slot == "reading"
        if message.state == "done":
            message.show()
        elif message.state == "failed" and reading:
            self._stop(message.text)
        elif message.state == "failed":
            self.notify(message.text, severity="error", markup=False)
        elif reading:
            self._become(progress=message.text)

    def _stop(self, error: str | None = None) -> None:
        """Stop reading. A window that was not read is not claimed."""
        if error is None:
            self.jobs.cancel("recalling")
            self.jobs.cancel("reading")
        window = self.state.look.window if self.state.look is not None else self.state.window
        self._become(progress=None, error=error, window=window)

    def _choose(self, window: WindowChoice) -> None:
        self._become(window=window)
        self.action_reload(self.state.loaded)

    def _open_wanted(self, loaded: Loaded) -> None:
        wanted, self._wanted = self._wanted, None
        try:
            if wanted is not None:
                subject = find(loaded.advice, wanted)
                self._open("workload" if isinstance(subject, WorkloadVerdict) else "details", subject.id)
        except SkuwiseError as error:
            self.notify(clean(error), severity="error", markup=False)

    # Keys

    def action_window(self) -> None:
        self._choose(next_window(self.state.window))

    def action_custom_window(self) -> None:
        dialog = InputDialog("Window", "a length until now, such as 3d or 36h", parse_window)
        self.push_screen(dialog, lambda window: window and self._choose(window))

    def action_why(self) -> None:
        if self.state.error is not None:
            self._open("text", "Why reading failed", self.state.error)

    def action_query(self) -> None:
        """Show the queries behind the numbers of what is chosen."""
        look, page = self.state.look, self.screen
        subject = page.subject if isinstance(page, Page) else None
        if look is None or subject is None:
            self.notify("Select a finding, a recommendation or a workload first.")
            return
        show = partial(self._open, "text", "Queries behind the numbers")
        self.jobs.start("query", lambda _tell: self._loader.queries(look, subject), show)

    def action_page(self, name: str) -> None:
        if isinstance(self.screen, Page):
            self._go_to(name)

    def action_help(self) -> None:
        page = self.screen
        if not isinstance(page, Page):
            return
        keys: dict[str, dict[str, None]] = {}  # by what they do
        for binding in (active.binding for active in page.active_bindings.values()):
            if binding.description and not binding.system:
                keys.setdefault(binding.description, {})[self.get_key_display(binding)] = None
        text = [line(page.ABOUT), line("")]
        for description, names in keys.items():
            text.append(Content.assemble(Content.styled(fit(" ".join(names), 12), "bold"), description))
        self.push_screen(TextViewer("Help", lambda _: text))

    def action_theme(self) -> None:
        self._forced_theme = False
        self.theme = (COLOURS if self.theme == MONOCHROME.name else MONOCHROME).name

    def action_export(self) -> None:
        page = self.screen
        if not isinstance(page, Page):
            return
        # What is on the screen now, before the question for a name covers it.
        panels, about, look = page_panels(page), {"page": page.NAME, "source": self.sub_title}, self.state.look
        if look is not None:
            about |= {"window": look.window.name, "read": rfc3339(look.at), "data_to": rfc3339(look.shown.end)}
        focused = page.focused.sheet if isinstance(page.focused, ItemTable) else None

        def write(path: Path | None) -> None:
            if path is None:
                return
            text = render_export(path.suffix.casefold(), panels, about, focused)
            self.jobs.start("exporting", lambda _tell: write_whole(path, text),
                            lambda _: self.notify(f"Wrote {clean(path)}.", markup=False))  # fmt: skip

        hint = f"a file that ends in {', '.join(KINDS)}; CSV contains the focused table"
        self.push_screen(InputDialog("Export this page", hint, path_of, f"skuwise-{page.NAME}.csv"), write)

    # What screens ask for

    async def action_back(self) -> None:
        """Close a search; else stop a reading that has shown nothing; else close the top page; else go to the first."""
        page, reading = self.screen, self.state.progress is not None
        if any(table.forget() for table in page.query(SearchTable)):
            return
        is_top = len(self.screen_stack) == _BASE
        if reading and (is_top or (isinstance(page, Page) and page.newest(self.state) is None)):
            self._stop()
        elif not is_top:
            self.pop_screen()
        else:
            self._go_to(MENU[0].NAME)

    def on_wanted(self, message: Wanted) -> None:
        self._open(message.kind, *message.arguments)

    def on_work_wanted(self, message: WorkWanted) -> None:
        self.jobs.start(message.slot, lambda tell: message.work(self._loader, tell), message.show)

    def _open(self, kind: str, *about: Any) -> None:  # noqa: ANN401 - see `Wanted`
        if kind in _SCREENS:
            self.push_screen(_SCREENS[kind](*about))
        elif kind == "node":
            self.push_screen(NodePage(about[0], about[1], self._clock))
        else:
            {"state": self._become, "details": self._show_details, "decision": self._ask_decision}[kind](*about)

    def _show_details(self, id_: str) -> None:
        if (look := self.state.look) is not None:
            for subject in (*look.advice.findings, *look.advice.recommendations):
                if subject.id == id_:
                    self.push_screen(TextViewer("Details", explained(look.advice, subject, verbose=True)))

    def _ask_decision(self, verb: Verb, id_: str, what: str) -> None:
        if self.state.loaded is None:
            self.notify("These recommendations are of an earlier run: decide when the source has been read.")
            return

        def decide(answer: Answer | None) -> None:
            loaded = self.state.loaded
            if answer is not None and loaded is not None:
                self.jobs.start("deciding", lambda _: self._loader.decide(loaded.advice, id_, verb, *answer),
                                partial(self._decided, id_))  # fmt: skip

        self.push_screen(decision_dialog(verb, what, self._clock()), decide)

    def _decided(self, id_: str, decision: Decision) -> None:
        """Mark it at once; the sums follow, for what is set aside does not count any more."""
        if self.state.loaded is not None:
            self._become(loaded=with_decision(self.state.loaded, id_, decision))
        self.notify(f"{id_} is {decision.state}.", markup=False)
        self.action_reload()
