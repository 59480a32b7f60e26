"""Text in a place that is as high as the text."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


def put(place: Static, told: Content) -> None:
    """Show a text. Only what is new is painted, and the page is laid out anew only where it takes other lines: that
    costs more than all else that a key does."""
    before = place.content
    if isinstance(before, Content) and before.is_same(told):
        return
    width = place.content_region.width
    place.update(told, layout=False)
    if not width or told.get_height({}, width) != place.content_region.height:
        place.refresh(layout=True)
