"""The program of ``skuwise tui``: it holds the state, runs work on threads, and shows what pages ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ..advisor.core.advice_types import Decision
from ..advisor.core.timestamps import rfc3339
from ..advisor.core.verdict_types import WorkloadVerdict
from ..rules.base.errors import SkuwiseError
from ..rules.base.sanitize import clean
from .data.background_jobs import JobMessage, Jobs, Tell, settle
from .data.loaders import Loader
from .data.preferences import Preferences, View
from .data.time_window import WINDOW_HINT, next_window, parse_window, window_of
from .exports import KINDS, markdown, page_sections, path_of, render_export, tabbed
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
from .screens.dialogs.decision_dialog import Answer, decision_dialog
from .screens.dialogs.input_dialog import InputDialog
from .screens.dialogs.text_viewer import TextViewer, help_text, plain_text
from .screens.menu import MENU
from .screens.node import NodePage
from .screens.recommendations import DecisionWanted
from .screens.whatif import WhatIf
from .screens.workload import WorkloadPage
from .state import WINDOWS, Loaded, Look, State, WindowChoice, with_decision
from .themes import COLOURS, MONOCHROME, THEMES
from .widgets.table import ItemTable
from .widgets.topbar import TopBar

_CLOCK_SECONDS = 5.0
_BASE = 2  # screens below those that are pushed: Textual's first one, and a page of the menu


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
        Binding("w", "window(1)", "Window"),
        Binding("W", "window(-1)", "Shorter window", show=False),
        Binding("c", "custom_window", "Custom window", show=False),
        Binding("r", "reload", "Read again"),
        Binding("b", "query", "Queries behind the numbers", show=False),
        Binding("exclamation_mark", "why", "Why reading failed", show=False, key_display="!"),
        Binding("t", "theme", "Colors on or off", show=False),
        Binding("y", "copy", "Copy the line", show=False),
        Binding("Y", "copy_all", "Copy the page", show=False),
        Binding("e", "export", "Export", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(
        self, loader: Loader, *, clock: Callable[[], float], monochrome: bool = False, workload: str | None = None,
        memory: Preferences | None = None, warning: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        memory = memory or Preferences()
        self._loader, self._clock, self._wanted, self._warning = loader, clock, workload, warning
        self._recalled = memory
        self._forced_theme = monochrome  # not chosen, so that the theme remembered is kept
        self.sub_title = clean(loader.name)
        self.jobs = Jobs(self.post_message)
        view = memory.views.get(loader.key, View())
        self.state = State(window=window_of(view.window_seconds), now=clock(), progress="starting")
        for theme in THEMES:
            self.register_theme(theme)
        remembered = memory.theme if memory.theme in {theme.name for theme in THEMES} else None
        self.theme = MONOCHROME.name if monochrome else remembered or COLOURS.name
        TopBar.tabs = tuple((page.NAME, page.LABEL) for page in MENU)
        self._first = MENU[0].NAME
        self._begin = view.page if view.page in dict(TopBar.tabs) else self._first
        for number, page in enumerate(MENU, 1):
            self.bind(str(number), f"page('{page.NAME}')", description=page.LABEL, show=False)

    def on_mount(self) -> None:
        self.push_screen(self._begin)
        if self._warning is not None:
            self.notify(clean(self._warning), severity="warning", markup=False)
        # The first paint comes before the first byte is read.
        self.call_after_refresh(self._begin_reading)
        self.set_interval(_CLOCK_SECONDS, self._tick)

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:  # noqa: ARG002 - the same on all
        """What the command palette offers."""
        for page, label in TopBar.tabs:
            yield SystemCommand(label, f"Go to {label}", partial(self.action_page, page))
        for window in WINDOWS:
            yield SystemCommand(f"Window {window.name}", "Sums, shares and plots of it", partial(self._choose, window))
        for binding in self.BINDINGS:
            if isinstance(binding, Binding) and binding.action not in ("window(1)", "window(-1)"):
                yield SystemCommand(binding.description, f"Key {self.get_key_display(binding)}",
                                    partial(self.run_action, binding.action))  # fmt: skip

    @property
    def memory(self) -> Preferences:
        """What to remember."""
        window = self.state.window
        # A window of certain days is not kept: it is of no use next week.
        view = View(window.seconds if window.until is None else None, self.current_page)
        theme = self._recalled.theme if self._forced_theme and self.theme == MONOCHROME.name else self.theme
        return Preferences(theme, self._recalled.views).with_view(self._loader.key, view)

    @property
    def current_page(self) -> str:
        """Name of the page of the menu that is open, below others perhaps."""
        page = self.screen_stack[min(_BASE, len(self.screen_stack)) - 1]
        return page.NAME if isinstance(page, Page) else self._begin

    def _go_to(self, name: str) -> None:
        """Close what is on top of the page of the menu and open another page."""
        while len(self.screen_stack) > _BASE:
            self.pop_screen()
        self.switch_screen(name)

    # Reading, and the state

    def _begin_reading(self) -> None:
        """Read, and show what an earlier run read until that is done."""
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
        """Change the state and show it on the page in front; the others ask for it when they come up."""
        self.state = replace(self.state, now=self._clock(), **changes)  # type: ignore[arg-type] - fields of State
        if isinstance(self.screen, Page):
            self.screen.update_state(self.state)

    def _tick(self) -> None:
        if self.is_running:  # there is no screen any more as it ends
            self._become()

    def on_job_message(self, message: JobMessage) -> None:
        if not self.is_running or not self.jobs.current(message):
            return
        reading = message.slot == "reading"
        if message.state == "done":
            message.show()
        elif message.state == "failed" and reading:
            self._become(progress=None, error=message.text, window=self._window_read())
        elif message.state == "failed":
            self.notify(message.text, severity="error", markup=False)
        elif reading:
            self._become(progress=message.text)
        elif isinstance(self.screen, Page):
            self.screen.narrate(message.slot, message.text)

    def _stop(self) -> None:
        self.jobs.cancel("recalling")
        self.jobs.cancel("reading")
        self._become(progress=None, window=self._window_read())

    def _window_read(self) -> WindowChoice:
        """The window of what is shown: a window that could not be read is not claimed."""
        return self.state.look.window if self.state.look is not None else self.state.window

    def _choose(self, window: WindowChoice) -> None:
        self._become(window=window)
        self._load(self.state.loaded)

    def _open_wanted(self, loaded: Loaded) -> None:
        """Open the workload that the command line named, once."""
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        from ..advisor.core.naming import AmbiguousError  # noqa: PLC0415
        from ..advisor.show.subjects import find  # noqa: PLC0415

        try:
            subject = find(loaded.advice, wanted)
        except SkuwiseError as error:
            text = error.brief if isinstance(error, AmbiguousError) else error
            self.notify(clean(text), severity="error", markup=False)
            return
        is_workload = isinstance(subject, WorkloadVerdict)
        self.post_message(WorkloadWanted(subject.id) if is_workload else TextWanted(subject.id))

    # Keys

    def action_reload(self) -> None:
        self._load(None)

    def action_window(self, by: int) -> None:
        self._choose(next_window(self.state.window, by))

    def action_custom_window(self) -> None:
        now = self._clock()
        dialog = InputDialog("Window", WINDOW_HINT, lambda text: parse_window(text, now))
        self.push_screen(dialog, lambda window: self._choose(window) if window is not None else None)

    def action_why(self) -> None:
        if self.state.error is not None:
            self._read_over("Why reading failed", self.state.error)

    def action_query(self) -> None:
        """Show the queries behind the numbers of what is chosen."""
        look, page = self.state.look, self.screen
        subject = page.subject if isinstance(page, Page) else None
        if look is None or subject is None:
            self.notify("Select a finding, a recommendation or a workload first.")
            return
        show = partial(self._read_over, "Queries behind the numbers")
        self.jobs.start("query", lambda _tell: self._loader.queries(look, subject), show)

    def _read_over(self, title: str, text: str) -> None:
        self.push_screen(TextViewer(title, plain_text(text)))

    def action_page(self, name: str) -> None:
        page = self.screen
        if isinstance(page, Page):
            if page.workload is not None and name != page.NAME:
                self.state = replace(self.state, workload=page.workload)
            self._go_to(name)

    def action_help(self) -> None:
        page = self.screen
        if not isinstance(page, Page):
            return
        keys: dict[str, list[str]] = {}  # by what they do
        for active in page.active_bindings.values():
            binding, shown = active.binding, self.get_key_display(active.binding)
            if binding.description and not binding.system and shown not in keys.get(binding.description, ()):
                keys.setdefault(binding.description, []).append(shown)
        listed = [(" ".join(names), description) for description, names in keys.items()]
        self.push_screen(TextViewer("Help", help_text(page.ABOUT, listed)))

    def action_theme(self) -> None:
        self._forced_theme = False
        self.theme = (COLOURS if self.theme == MONOCHROME.name else MONOCHROME).name

    def action_copy(self) -> None:
        """Copy the line under the cursor of the focused table; elsewhere the page."""
        table = self.screen.focused
        if isinstance(table, ItemTable) and table.item is not None:
            self._copy(tabbed(table.cursor_cells()), "Line")
        else:
            self.action_copy_all()

    def action_copy_all(self) -> None:
        if isinstance(self.screen, Page):
            self._copy(markdown(page_sections(self.screen), self._about(self.screen)), "Page (Markdown)")

    def _copy(self, text: str, what: str) -> None:
        self.copy_to_clipboard(text)
        self.notify(f"{what} copied to the terminal's clipboard ({len(text):,} characters).", markup=False)

    def action_export(self) -> None:
        page = self.screen
        if not isinstance(page, Page):
            return
        # What is on the screen now, before the question for a name covers it.
        sections, about = page_sections(page), self._about(page)
        # Without its fonts, which a viewer would fetch from the network.
        svg = re.sub(r"@font-face \{.*?\}", "", self.export_screenshot(title=self.TITLE), flags=re.DOTALL)
        focused = page.focused.sheet() if isinstance(page.focused, ItemTable) else None

        def write(path: Path | None) -> None:
            if path is None:
                return
            from ..rules.base.output import write_whole  # noqa: PLC0415

            kind = path.suffix.casefold()
            text = svg if kind == ".svg" else render_export(kind, sections, about, focused)
            self.jobs.start("exporting", lambda _tell: write_whole(path, text),
                            lambda _: self.notify(f"Wrote {clean(path)}.", markup=False))  # fmt: skip

        hint = f"a file that ends in {', '.join(KINDS)}; CSV contains the focused table"
        self.push_screen(InputDialog("Export this page", hint, path_of, f"skuwise-{page.NAME}.csv"), write)

    def _about(self, page: Page) -> dict[str, str]:
        """What the figures of a page rest on."""
        look = self.state.look
        about = {"page": page.NAME, "source": self.sub_title}
        if look is not None:
            about |= {"window": look.window.name, "read": rfc3339(look.at), "data_to": rfc3339(look.shown.end)}
        return about

    # What screens ask for

    def on_state_wanted(self, message: StateWanted) -> None:
        message.page.update_state(self.state)

    def on_back(self, message: Back) -> None:  # noqa: ARG002 - whichever page asks
        """Stop a reading that has shown nothing yet, then close the page on top, then go to the first page."""
        page = self.screen
        reading = self.state.progress is not None
        if reading and isinstance(page, Page) and page.newest(self.state) is None:
            self._stop()
        elif len(self.screen_stack) > _BASE:
            self.pop_screen()
        elif reading:
            self._stop()
        elif self.current_page != self._first:
            self._go_to(self._first)

    def on_workload_wanted(self, message: WorkloadWanted) -> None:
        self.push_screen(WorkloadPage(message.id))

    def on_node_wanted(self, message: NodeWanted) -> None:
        self.push_screen(NodePage(message.node, message.gpu, self._clock))

    def on_what_if_wanted(self, message: WhatIfWanted) -> None:
        self.push_screen(WhatIf(message.workload, message.node))

    def on_text_wanted(self, message: TextWanted) -> None:
        look = self.state.look
        if look is None:
            return
        from ..advisor.show.pages.explain import explain_page  # noqa: PLC0415 - and this numpy
        from ..advisor.show.writers.text import document_text  # noqa: PLC0415 - it needs rich: not at the start

        advice = look.advice
        subjects = (*advice.findings, *advice.recommendations)
        subject = next((subject for subject in subjects if subject.id == message.id), None)
        if subject is not None:
            page = explain_page(advice, subject, verbose=True)
            self.push_screen(TextViewer("Details", lambda width: plain_text(document_text(page, width=width))(width)))

    def on_work_wanted(self, message: WorkWanted) -> None:
        self.jobs.start(message.slot, lambda tell: message.work(self._loader, tell), message.show)

    def on_reading_wanted(self, message: ReadingWanted) -> None:
        self._read_over(message.title, message.text)

    def on_decision_wanted(self, message: DecisionWanted) -> None:
        if self.state.loaded is None:
            self.notify("These recommendations are of an earlier run: decide when the source has been read.")
            return

        def decide(answer: Answer | None) -> None:
            loaded = self.state.loaded
            if answer is not None and loaded is not None:
                work = partial(self._loader.decide, loaded.advice, message.id, message.act, *answer)
                self.jobs.start("deciding", lambda _tell: work(), partial(self._decided, message.id))

        self.push_screen(decision_dialog(message.act, message.what, self._clock()), decide)

    def _decided(self, id_: str, decision: Decision) -> None:
        """Mark it at once; the sums follow, for what is set aside does not count any more."""
        if self.state.loaded is not None:
            self._become(loaded=with_decision(self.state.loaded, id_, decision))
        self.notify(f"{id_} is {decision.state}.", markup=False)
        self._load(None)
