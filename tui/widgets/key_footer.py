"""The keys of a screen in one line. Drawn as text: a widget for each key took most of the time a new page needs."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from ..cell_text import CUT

_GAP = 2
LAST = "question_mark"  # help tells all the others, so it is always there


@dataclass(frozen=True, slots=True)
class _Key:
    key: str
    shown: str
    label: str

    @property
    def width(self) -> int:
        return cell_len(self.shown) + 1 + cell_len(self.label) + _GAP


class KeyFooter(Widget):
    """As many keys as fit, and a sign where some do not. A click on one presses it."""

    DEFAULT_CSS = "KeyFooter { height: 1; dock: bottom; background: $panel; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._keys: tuple[_Key, ...] = ()

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)
        self._look()

    def _changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self._look()

    def _look(self) -> None:
        found: dict[str, _Key] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled and not binding.system and binding.description:
                found.setdefault(
                    binding.action, _Key(binding.key, self.app.get_key_display(binding), binding.description)
                )
        keys = tuple(found.values())
        if keys != self._keys:
            self._keys = keys
            self.refresh()

    def _fitting(self) -> tuple[list[_Key], bool]:
        """Those that are drawn, and whether others are not."""
        last = [key for key in self._keys if key.key == LAST]
        rest = [key for key in self._keys if key.key != LAST]
        room = self.size.width + _GAP
        if sum(key.width for key in self._keys) <= room:
            return [*rest, *last], False
        room -= sum(key.width for key in last) + cell_len(CUT) + _GAP
        drawn: list[_Key] = []
        for key in rest:
            if key.width > room:
                break
            room -= key.width
            drawn.append(key)
        return [*drawn, *last], True

    def render(self) -> Content:
        drawn, cut = self._fitting()
        parts: list[Content] = []
        for key in drawn:
            if cut and key is drawn[-1]:
                parts.append(Content.styled(CUT + " " * _GAP, "$foreground-muted"))
            parts += [Content.styled(key.shown, "bold $accent"), Content(f" {key.label}" + " " * _GAP)]
        return Content.assemble(*parts) if parts else Content("")

    def on_click(self, event: events.Click) -> None:
        """Press the key below the pointer."""
        event.stop()
        drawn, cut = self._fitting()
        at = event.x - self.styles.padding.left
        for key in drawn:
            if cut and key is drawn[-1]:
                at -= cell_len(CUT) + _GAP
            if 0 <= at < key.width - _GAP:
                self.app.simulate_key(key.key)
                return
            at -= key.width
