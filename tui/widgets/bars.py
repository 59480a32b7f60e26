"""Quantities as bars: each with its name, its value and its share of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from ...advisor.core.formatting import hours, percent
from ..cell_text import bar, fit, lines
from .exportable import Sheet

_NAME_MAX, _VALUE, _SHARE = 20, 12, 6


@dataclass(frozen=True, slots=True)
class Quantity:
    """`value` None: not known."""

    name: str
    value: float | None


def quantities(parts: Iterable[tuple[str, float]]) -> tuple[Quantity, ...]:
    """Named values as bars."""
    return tuple(Quantity(name, value) for name, value in parts)


def hours_short(value: float | None) -> str:
    """GPU-hours, where the heading says so."""
    return hours(value, "h")


class Bars(Widget):
    """`set_data` gives it quantities; `words` writes a value with its unit. Shares are of the sum."""

    DEFAULT_CSS = "Bars { height: auto; }"

    def __init__(self, words: Callable[[float | None], str], *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._words, self._empty = words, empty
        self._quantities: tuple[Quantity, ...] = ()

    def set_data(self, quantities: Sequence[Quantity]) -> None:
        self._quantities = tuple(quantities)
        self.refresh(layout=True)

    def sheet(self, title: str) -> Sheet:
        whole = sum(q.value or 0.0 for q in self._quantities)
        rows = [(q.name, self._words(q.value), percent((q.value or 0.0) / whole if whole > 0 else 0.0))
                for q in self._quantities]  # fmt: skip
        return Sheet(title, ("name", "value", "share"), lambda: rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        return max(len(self._quantities), 1)

    def render(self) -> Content:
        if not self._quantities:
            return Content.styled(self._empty, "$foreground-muted")
        whole = sum(q.value or 0.0 for q in self._quantities)
        named = min(max(len(q.name) for q in self._quantities), _NAME_MAX)
        room = max(self.size.width - named - _VALUE - _SHARE - 3, 0)
        told = []
        for q in self._quantities:
            share = (q.value or 0.0) / whole if whole > 0 else 0.0
            told.append(
                Content.assemble(
                    fit(q.name, named), " ", Content.styled(bar(share, room), "$primary"), " ",
                    fit(self._words(q.value), _VALUE, right=True), fit(percent(share), _SHARE, right=True),
                )
            )  # fmt: skip
        return lines(*told)
