"""A frame with a title."""

from __future__ import annotations

from textual.containers import Vertical
from textual.widget import Widget

from .movement import Scroll


def panel(
    title: str, *inside: Widget, id: str | None = None, classes: str = "", scrolls: bool = False
) -> Vertical | Scroll:
    """Widgets below one another in a frame, which may scroll."""
    box = (Scroll if scrolls else Vertical)(*inside, id=id, classes=f"panel {classes}")
    box.border_title = title
    return box
