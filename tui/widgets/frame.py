"""What surrounds the data of a page: the bars at its edges, frames, texts drawn for a width, and windows over it."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Input, Static

from ...advisor.core.timestamps import day, minute, parse_moment, span
from ...advisor.show.document import Table
from ...rules.base.errors import SkuwiseError, UsageError
from ..cell_text import CUT, fit, line, lines
from ..state import State

_GAP = "  "
_LAST = "question_mark"  # help lists all keys, so it is always there

Drawing = Callable[[int], Sequence[Content]]  # the lines for a width in cells
Verb = Literal["accepted", "snoozed", "dismissed"]
Answer = tuple[float | None, str | None]  # until when, Unix seconds (None: without an end); the reason (None: none)
_MONTH_SECONDS = 30 * 86400.0
_DECISIONS: dict[Verb, str] = {
    "accepted": "Accept: will be done; its savings count until then.\nReason (optional):",
    "snoozed": "Snooze: not now; its savings do not count until the date.\n"
    "Until (a date, UTC), then a reason (optional):",
    "dismissed": "Dismiss: will not be done; its savings do not count.\nReason (required):",
}


def movement(up: str, down: str, first: str, last: str) -> tuple[Binding, ...]:
    """Return the keys of vi and less, beside the arrows, for these actions and for ``half(-1)``, ``half(1)``."""
    keys = (
        ("up,k", up, "Up"), ("down,j", down, "Down"), ("home,g", first, "First"), ("end,G", last, "Last"),
        ("ctrl+u", "half(-1)", "Half a page up"), ("ctrl+d", "half(1)", "Half a page down"),
    )  # fmt: skip
    return tuple(Binding(*key, show=False) for key in keys)


class Scroll(VerticalScroll):
    """A container that scrolls by keys."""

    BINDINGS: ClassVar[list[BindingType]] = [*movement("scroll_up", "scroll_down", "scroll_home", "scroll_end")]

    def action_half(self, by: int) -> None:
        self.scroll_relative(y=by * max(self.size.height // 2, 1), animate=False)


def panel(
    title: str, *inside: Widget, id: str | None = None, classes: str = "", scrolls: bool = False
) -> Vertical | Scroll:
    """Return widgets below one another in a frame, which may scroll."""
    box = (Scroll if scrolls else Vertical)(*inside, id=id, classes=f"panel {classes}")
    box.border_title = title
    return box


class Drawn(Static):
    """A text that is drawn for the width there is, and again for another width. `empty`: the text without lines."""

    DEFAULT_CSS = "Drawn { height: auto; }"

    def __init__(self, empty: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._empty = empty
        self._drawing: Drawing = lambda _: ()
        self._width = 0  # that it was drawn for
        self.sheet: Table | None = None  # the same as a table, for copies and exports; None: the text

    def set_data(self, drawing: Drawing, sheet: Table | None = None) -> None:
        """Draw something else."""
        self._drawing, self.sheet, self._width = drawing, sheet, 0
        self.on_resize()

    def on_resize(self) -> None:
        """Draw for another width. Only another height lays the page out: that costs most of a key's time."""
        width = self.content_region.width
        if width not in (0, self._width):
            drawn, self._width = self._drawing(width), width
            text = lines(*drawn) if drawn else line(self._empty, "$foreground-muted")
            self.update(text, layout=text.get_height({}, width) != self.content_region.height)


class TopBar(Widget):
    """The pages and what the figures rest on; one widget draws all names, for speed. `here`: the page shown."""

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
        width, state = self.size.width, self._state
        names = [(page, f" {number} {label} ") for number, (page, label) in enumerate(self.tabs, 1)]
        if sum(len(name) for _, name in names) > width:  # the key of the page shown hints at the others
            names = [(page, f"{name[1:] if page == self._here else name[3:]}") for page, name in names]
        tabs = Content.assemble(*(self._tab(page, name) for page, name in names)).truncate(width)
        if state is None:
            return tabs
        status = status_words(state)[: max(width - 2, 0)]
        style = "$error" if state.error else "$warning" if state.stale or state.progress else ""
        source = line(fit(self.app.sub_title, max(width - 2 - len(status), 0)), "$foreground-muted")
        return lines(tabs, Content.assemble(" ", line(status, style), source))

    def _tab(self, page: str, name: str) -> Content:
        if page == self._here:
            return Content.styled(name, "bold $background on $primary")
        return Content.styled(name, "$foreground-muted").stylize(Style.from_meta({"@click": f"app.page('{page}')"}))


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
        parts += [f"read {span(max(state.now - state.look.at, 0.0))} ago", f"data to {minute(state.look.shown.end)}"]
    return " · ".join([*parts, ""])


class KeyFooter(Widget):
    """As many of the main keys as fit, and a sign where some do not. A click on a key presses it.

    With Textual's footer, a widget for each key, a first visit of a page takes twice the CPU (fleet 137 instead of 77
    ms, plan 385 instead of 143), and its last keys are scrolled out of sight.
    """

    DEFAULT_CSS = """
    KeyFooter { height: 1; dock: bottom; background: $panel; padding: 0 1; link-style: none; link-color: $foreground; }
    """

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self.refresh()

    def render(self) -> Content:
        keys: dict[str, tuple[str, Content]] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled and not binding.system and binding.description:
                shown = Content.styled(self.app.get_key_display(binding), "bold $accent")
                press = Style.from_meta({"@click": f"app.simulate_key('{binding.key}')"})
                label = Content.assemble(shown, f" {binding.description}").stylize(press)
                keys.setdefault(binding.action, (binding.key, label))
        rest = [label for key, label in keys.values() if key != _LAST]
        last = [label for key, label in keys.values() if key == _LAST]
        joint, cut = Content(_GAP), [Content.styled(CUT, "$foreground-muted")]
        shown, fitting = joint.join([*rest, *last]), len(rest)
        while fitting and cell_len(shown.plain) > self.size.width:
            fitting -= 1
            shown = joint.join([*rest[:fitting], *cut, *last])
        return shown


class InputDialog(ModalScreen[Any]):
    """Returns what `parse` makes of the text, or None if cancelled.

    `parse` raises SkuwiseError for invalid text; its sentence is shown below the text.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, title: str, hint: str, parse: Callable[[str], Any], text: str = "") -> None:
        super().__init__()
        self._title, self._hint, self._parse, self._text = title, hint, parse, text

    def compose(self) -> ComposeResult:
        with Vertical(classes="window question"):
            yield Static(line(self._title, "bold"))
            yield Static(lines(*(line(part, "$foreground-muted") for part in self._hint.split("\n"))))
            yield Input(self._text, max_length=2000)
            yield Static(classes="wrong")
            yield Static(line("enter confirms, escape cancels", "$foreground-muted"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            value = self._parse(event.value.strip())
        except SkuwiseError as error:
            self.query_one(".wrong", Static).update(line(error))
            return
        self.dismiss(value)


def decision_dialog(verb: Verb, what: str, now: float) -> InputDialog:
    """Return the dialog for a decision. `what`: the recommendation in words; `now`: Unix seconds."""

    def parse(text: str) -> Answer:
        if verb == "dismissed" and not text:
            raise UsageError("The reason is empty.", "Enter one: it is kept with the decision.")
        if verb != "snoozed":
            return None, text or None
        date, _, reason = text.partition(" ")
        until = parse_moment(date)
        if until <= now:
            raise UsageError(f"{day(until)} is in the past.", "Enter a later date.")
        return until, reason.strip() or None

    title, _, hint = _DECISIONS[verb].partition("\n")
    return InputDialog(title, f"{what}\n{hint}", parse, day(now + _MONTH_SECONDS) if verb == "snoozed" else "")


class TextViewer(ModalScreen[None]):
    """Shows a text, or what `text` draws for a width in cells; it may contain outside text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "dismiss", "Close", key_display="esc")]

    def __init__(self, title: str, text: str | Drawing) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Scroll(classes="window") as scroll:
            scroll.border_title = Content(self._title)
            yield Drawn()
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(Scroll).focus()
        text = self._text
        self.query_one(Drawn).set_data(text if callable(text) else lambda _: [line(part) for part in text.split("\n")])
