"""The pages of the menu: built, laid out and drawn off screen before their first visit, so that no key waits for it.

Everything here happens in steps of a few milliseconds between which the event loop takes keys; a key puts the next
step off. A page that is visited before its turn is built then, as ever.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence

from textual import events
from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.geometry import Region
from textual.timer import Timer
from textual.widget import AwaitMount, Widget

from .app_base import HabitsApp
from .data.preferences import Preferences
from .screens.base_page import Page
from .themes import THEMES

_MOST_SOURCES = 512  # Textual remembers 64: fewer than there are kinds of widgets here


class KeptStylesheet(Stylesheet):
    """Textual reads all rules anew whenever a page comes up that is newer than the theme. They say the same for as long
    as the theme's variables do."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._parse_cache = LRUCache(_MOST_SOURCES)
        self._read: dict[tuple[tuple[str, str], ...], KeptStylesheet] = {}

    def set_variables(self, variables: dict[str, str]) -> None:
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        other = self._of(self._variables)
        for _ in self._read_into(other):
            pass
        self._rules, self._rules_map, self._require_parse = other.rules, None, False

    def read_ahead(self, variables: dict[str, str]) -> Iterator[None]:
        """Read the rules with other variables, one source a step."""
        other = self._of(variables)
        for _ in self._read_into(other):
            _ = other.rules
            yield

    def _of(self, variables: dict[str, str]) -> KeptStylesheet:
        """What was read with these variables."""
        told = tuple(sorted(variables.items()))
        if told not in self._read:
            self._read[told] = KeptStylesheet(variables=dict(variables))
        return self._read[told]

    def _read_into(self, other: KeptStylesheet) -> Iterator[None]:
        """Give it the sources that it does not have."""
        for read_from, source in tuple(self.source.items()):
            if other.source.get(read_from) != source:
                other.add_source(source.content, read_from, source.is_defaults, source.tie_breaker, source.scope)
                yield


_PAUSE_SECONDS = 0.02  # between two steps
_SHORT_SECONDS = 0.005  # where the last step was a short one
_QUIET_SECONDS = 0.25  # without a key, before the next step
_MOST_LAYOUTS = 4  # what a layout makes known may ask for another one


class PagesApp(HabitsApp):
    """`pages`: how each page is made, by its name."""

    def __init__(
        self, memory: Preferences, source_key: str, forced: bool, pages: Sequence[tuple[str, Callable[[], Page]]]
    ) -> None:
        super().__init__(memory, source_key, forced)
        self.stylesheet = self._sheet = KeptStylesheet(variables=self.get_css_variables())
        self._makers, self._pages = dict(pages), dict[str, Page]()
        self._begun, self._masked = False, True
        self._steps: Iterator[float] | None = None
        self._step_timer: Timer | None = None
        for name, _ in pages:
            self.add_mode(name, lambda name=name: self._page(name))

    @property
    def prepared(self) -> bool:
        """Whether nothing is left to be prepared."""
        return self._steps is None

    def shaped(self, page: Page, *, empty: bool = True) -> Page:
        """A new page in the shape of the terminal, before it has widgets whose styles would have to follow. `empty`:
        its widgets come up with its data; what takes the focus before scrolls nothing."""
        page.shape(self.size, empty=empty)
        # No rule was applied to it yet, so none is outdated: Textual would style it, and the page in front, once more.
        page._css_update_count = self._css_update_count
        return page

    def _page(self, name: str) -> Page:
        if name not in self._pages:
            page = self._makers[name]()
            self._pages[name] = self.shaped(page, empty=page.newest(self.state) is None)
        return self._pages[name]

    # Going to a page

    def switch_mode(self, mode: str) -> AwaitMount:
        self._masked = mode not in self._pages or not self._pages[mode].laid_out
        return super().switch_mode(mode)

    def delay_update(self, delay: float = 0.05) -> None:
        """Textual paints nothing for a while where a page comes up; one that stands already has nothing to hide."""
        if self._masked:
            super().delay_update(delay)

    def refresh_css(self, animate: bool = True) -> None:
        super().refresh_css(animate)
        if self._begun:
            self.prepare()

    # Preparing

    def prepare(self) -> None:
        """Begin to prepare what is not prepared, or not with the newest data."""
        self._steps, self._begun = self._prepared_steps(), True
        self._next_step(_QUIET_SECONDS)

    def _next_step(self, seconds: float) -> None:
        if self._step_timer is not None:
            self._step_timer.stop()
        self._step_timer = self.set_timer(seconds, self._step, name="preparing")

    async def on_event(self, event: events.Event) -> None:
        if self._steps is not None and isinstance(event, events.InputEvent) and not event.is_forwarded:
            self._next_step(_QUIET_SECONDS)
        await super().on_event(event)

    def _step(self) -> None:
        if self._steps is None or not self.is_running:
            return
        wait = next(self._steps, None)
        if wait is None:
            self._steps = self._step_timer = None
            gc.freeze()  # the collector looks through all these widgets at no key
        else:
            self._next_step(wait)

    def _prepared_steps(self) -> Iterator[float]:
        """Each step gives the seconds until the next one."""
        for name in self._makers:
            if name not in self._screen_stacks:
                # What Textual does for a mode that is gone to, without waiting for the widgets and without showing it.
                page = self._page(name)
                self._screen_stacks[name] = [page]
                self._register(self, page)
                yield _PAUSE_SECONDS
            page = self._page(name)
            while not page.stands:
                yield _PAUSE_SECONDS
            if page not in self.screen_stack and page._css_update_count != self._css_update_count:
                self.stylesheet.update(page)  # another theme
                page._css_update_count = self._css_update_count
                page.refresh(layout=True)
                yield _PAUSE_SECONDS
            if page.renew(self.state):
                yield _PAUSE_SECONDS
            for _ in range(_MOST_LAYOUTS):
                if page in self.screen_stack or not page.lay_out(self.size):
                    break
                yield _PAUSE_SECONDS
            for widget in list(page.walk_children(Widget)):
                if page in self.screen_stack:
                    break
                if widget.is_attached and widget.display and widget.region:
                    # It keeps the lines that it has drawn, until they change.
                    widget.render_lines(Region(0, 0, *widget.outer_size))
                    yield _SHORT_SECONDS
        for theme in THEMES:
            variables = {**self.get_theme_variable_defaults(), **theme.to_color_system().generate(), **theme.variables}
            for _ in self._sheet.read_ahead(variables):
                yield _SHORT_SECONDS
