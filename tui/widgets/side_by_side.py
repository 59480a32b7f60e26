"""Two things beside each other, line by line: today and then, one GPU and another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from ..cell_text import fit, fit_middle, lines
from .exportable import Sheet

_NAME_MAX, _GAP = 18, 2


@dataclass(frozen=True, slots=True)
class Pair:
    """One line. `style`: of the second value, where it says something by itself."""

    name: str
    first: str
    second: str
    style: str = ""


class SideBySide(Widget):
    """`set_data` gives it the two headings and the lines. Where both values are the same, the second is muted."""

    DEFAULT_CSS = "SideBySide { height: auto; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._heads: tuple[str, str] = ("", "")
        self._pairs: tuple[Pair, ...] = ()

    def sheet(self, title: str) -> Sheet:
        return Sheet(title, ("", *self._heads), lambda: [(p.name, p.first, p.second) for p in self._pairs])

    def set_data(self, heads: tuple[str, str], pairs: Sequence[Pair]) -> None:
        other_height = len(pairs) != len(self._pairs)
        self._heads, self._pairs = heads, tuple(pairs)
        self.refresh(layout=other_height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        return len(self._pairs) + 1 if self._pairs else 0

    def render(self) -> Content:
        if not self._pairs:
            return Content("")
        named = min(max(len(pair.name) for pair in self._pairs), _NAME_MAX)
        each = max((self.size.width - named - 2 * _GAP) // 2, 1)
        gap = " " * _GAP
        head = Content.styled(gap.join((fit("", named), *(fit(one, each) for one in self._heads))), "bold $primary")
        told = [head]
        for pair in self._pairs:
            style = pair.style or ("$foreground-muted" if pair.first == pair.second else "bold")
            told.append(
                Content.assemble(
                    Content.styled(fit(pair.name, named), "$foreground-muted"), gap, fit_middle(pair.first, each), gap,
                    Content.styled(fit_middle(pair.second, each), style),
                )
            )  # fmt: skip
        return lines(*told)
