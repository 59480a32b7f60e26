"""Measures as sparklines, one a line: its name, its course, its last value with the unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from ...advisor.core.formatting import figure
from ..cell_text import fit, lines, spark

if TYPE_CHECKING:
    from ...advisor.show.series.device_series import DeviceGauge

_NAME, _VALUE = 16, 18
_ROOMY = 45  # lines of a terminal from which on a course takes two


class Sparklines(Widget):
    """`set_data` gives it courses."""

    DEFAULT_CSS = "Sparklines { height: auto; }"

    def __init__(self, *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._empty = empty
        self._courses: tuple[DeviceGauge, ...] = ()

    def set_data(self, courses: Sequence[DeviceGauge]) -> None:
        told = tuple(courses)
        if told != self._courses:
            lengths, self._courses = (len(self._courses), len(told)), told
            self.refresh(layout=lengths[0] != lengths[1])

    @property
    def _rows(self) -> int:
        return 2 if self.app.size.height >= _ROOMY else 1

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        return max(len(self._courses) * self._rows, 1)

    def render(self) -> Content:
        if not self._courses:
            return Content.styled(self._empty, "$foreground-muted")
        room = max(self.size.width - _NAME - _VALUE - 2, 0)
        told = []
        for course in self._courses:
            *above, last = spark(course.values, top_of(course.values, course.top), room, self._rows)
            told += [Content.assemble(" " * (_NAME + 1), Content.styled(bars, "$primary")) for bars in above]
            name, value = fit(course.name, _NAME), fit(last_words(course), _VALUE)
            told.append(Content.assemble(name, " ", Content.styled(last, "$primary"), " ", value))
        return lines(*told)


def top_of(values: Sequence[float | None], top: float | None) -> float:
    """Where the bars end: at what the device can do, or else at the largest value."""
    return top or max((value for value in values if value is not None), default=0.0) or 1.0


def last_words(course: DeviceGauge) -> str:
    """``85 % of 100``, ``280 W of 700``; without an upper end the value alone."""
    value = course.last
    if value is None:
        return "not measured"
    of = f" of {short(course.top)}" if course.top is not None and course.unit != "%" else ""
    return f"{short(value)} {course.unit}{of}"


def short(value: float) -> str:
    """To three digits: it changes every second."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return figure(float(f"{value:.3g}")) if abs(value) >= 1 else f"{value:.2f}".rstrip("0").rstrip(".") or "0"
