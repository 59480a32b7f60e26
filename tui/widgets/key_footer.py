"""The main keys of a screen in one line.

Textual's footer makes a widget for each key, which takes most of the time of a new page, and scrolls its last keys out
of sight.
"""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

from ..cell_text import CUT

_GAP = "  "
_LAST = "question_mark"  # help lists all keys, so it is always there


class KeyFooter(Widget):
    """As many keys as fit, and a sign where some do not. A click on a key presses it."""

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
        joint, cut = Content(_GAP), Content.styled(CUT, "$foreground-muted")
        while rest and cell_len(joint.join([*rest, *last]).plain) > self.size.width:
            rest = [*(rest[:-2] if rest[-1] is cut else rest[:-1]), cut]
            if rest == [cut]:
                break
        return joint.join([*rest, *last])
