"""Quantities as bars: each with its name, its value and its share of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from ...advisor.core.formatting import hours, percent
from ..cell_text import bar, fit, lines
from .exportable import Sheet

_NAME_MAX, _VALUE, _SHARE = 20, 12, 6


def hours_short(value: float | None) -> str:
    """GPU-hours, where the heading says so."""
    return hours(value, "h")


class Bars(Widget):
    """`set_data` gives it names and values; `words` writes a value with its unit. Shares are of the sum."""

    DEFAULT_CSS = "Bars { height: auto; }"

    def __init__(self, words: Callable[[float | None], str], *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._words, self._empty = words, empty
        self._quantities: tuple[tuple[str, float], ...] = ()

    def set_data(self, quantities: Iterable[tuple[str, float]]) -> None:
        self._quantities = tuple(quantities)
        self.refresh(layout=True)

    def _shares(self) -> list[tuple[str, float, float]]:
        whole = sum(value for _, value in self._quantities)
        return [(name, value, value / whole if whole > 0 else 0.0) for name, value in self._quantities]

    def sheet(self, title: str) -> Sheet:
        rows = [(name, self._words(value), percent(share)) for name, value, share in self._shares()]
        return Sheet(title, ("name", "value", "share"), lambda: rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        return max(len(self._quantities), 1)

    def render(self) -> Content:
        if not self._quantities:
            return Content.styled(self._empty, "$foreground-muted")
        named = min(max(len(name) for name, _ in self._quantities), _NAME_MAX)
        room = max(self.size.width - named - _VALUE - _SHARE - 3, 0)
        told = []
        for name, value, share in self._shares():
            told.append(
                Content.assemble(
                    fit(name, named), " ", Content.styled(bar(share, room), "$primary"), " ",
                    fit(self._words(value), _VALUE, right=True), fit(percent(share), _SHARE, right=True),
                )
            )  # fmt: skip
        return lines(*told)
