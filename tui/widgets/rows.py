"""Widgets that draw a line for each value: bars of shares, sparklines of measures, two things side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from ...advisor.core.formatting import figure, hours, percent
from ...advisor.show.document import Table
from ..cell_text import bar, fit, fit_apart, lines, spark

if TYPE_CHECKING:
    from ...advisor.show.series.device_series import DeviceGauge

_NAME_MAX = 20
_TALL_FROM = 45  # lines of a terminal from which on a sparkline is two lines high


def hours_short(value: float | None) -> str:
    """GPU-hours, where the heading says so."""
    return hours(value, "h")


class Rows(Widget):
    """Draws what `drawn` returns for a width. `empty`: the text shown without data."""

    DEFAULT_CSS = "Rows { height: auto; }"

    def __init__(self, empty: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._empty = empty
        self._count = 0

    def drawn(self, width: int) -> Sequence[Content]:
        """Return the lines for so many cells."""
        raise NotImplementedError

    def redraw(self, count: int) -> None:
        """Draw again; the page is laid out only where the number of values changed."""
        self.refresh(layout=count != self._count)
        self._count = count

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        return max(len(self.drawn(width)), 1)

    def render(self) -> Content:
        drawn = self.drawn(self.size.width)
        return lines(*drawn) if drawn else Content.styled(self._empty, "$foreground-muted")


class Bars(Rows):
    """Quantities with their names and shares of the sum. `words` writes a value with its unit."""

    def __init__(self, words: Callable[[float | None], str], *, empty: str, id: str | None = None) -> None:
        super().__init__(empty, id=id)
        self._words = words
        self._rows: tuple[tuple[str, float, float], ...] = ()

    def set_data(self, quantities: Iterable[tuple[str, float]]) -> None:
        """Show quantities by name."""
        pairs = list(quantities)
        whole = sum(value for _, value in pairs)
        self._rows = tuple((name, value, value / whole if whole > 0 else 0.0) for name, value in pairs)
        self.redraw(len(pairs))

    def sheet(self) -> Table:
        rows = tuple((name, self._words(value), percent(share)) for name, value, share in self._rows)
        return Table(("name", "value", "share"), rows)

    def drawn(self, width: int) -> Sequence[Content]:
        named = min(max((len(name) for name, _, _ in self._rows), default=0), _NAME_MAX)
        names = fit_apart([name for name, _, _ in self._rows], named)
        return [
            Content.assemble(
                shown, " ", Content.styled(bar(share, max(width - named - 21, 0)), "$primary"), " ",
                fit(self._words(value), 12, right=True), fit(percent(share), 6, right=True),
            )
            for shown, (_, value, share) in zip(names, self._rows, strict=True)
        ]  # fmt: skip


class Sparklines(Rows):
    """Measures over time: name, sparkline, last value with its unit.

    Textual's own sparkline scales from the smallest value and cannot leave a gap: 84 to 85 % would fill its height, and
    a missing value would be zero.
    """

    def __init__(self, *, empty: str, id: str | None = None) -> None:
        super().__init__(empty, id=id)
        self._gauges: tuple[DeviceGauge, ...] = ()

    def set_data(self, gauges: Sequence[DeviceGauge]) -> None:
        """Show measures."""
        if tuple(gauges) != self._gauges:
            self._gauges = tuple(gauges)
            self.redraw(len(gauges))

    def drawn(self, width: int) -> Sequence[Content]:
        name_width, value_width = 16, 18
        rows = 2 if self.app.size.height >= _TALL_FROM else 1
        drawn: list[Content] = []
        for gauge in self._gauges:
            bars = spark(gauge.values, top_of(gauge.values, gauge.top), width - name_width - value_width - 2, rows)
            names = [*[""] * (rows - 1), gauge.name]
            values = [*[""] * (rows - 1), last_words(gauge)]
            for name, part, value in zip(names, bars, values, strict=True):
                bar_line = Content.styled(part, "$primary")
                drawn.append(Content.assemble(fit(name, name_width), " ", bar_line, " ", fit(value, value_width)))
        return drawn


def top_of(values: Sequence[float | None], top: float | None) -> float:
    """Return the end of a scale: what the device can do, or else the largest value."""
    return top or max((value for value in values if value is not None), default=0.0) or 1.0


def last_words(gauge: DeviceGauge) -> str:
    """``85 %``, ``280 W of 700``; without an upper end the value alone."""
    value = gauge.last
    if value is None:
        return "not measured"
    of = f" of {short(gauge.top)}" if gauge.top is not None and gauge.unit != "%" else ""
    return f"{short(value)} {gauge.unit}{of}"


def short(value: float) -> str:
    """A value to three digits: it changes every second."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return figure(float(f"{value:.3g}")) if abs(value) >= 1 else f"{value:.2f}".rstrip("0").rstrip(".") or "0"


@dataclass(frozen=True, slots=True)
class Pair:
    """A line of `SideBySide`. `style`: of the second value, where it says something by itself."""

    name: str
    first: str
    second: str
    style: str = ""


class SideBySide(Rows):
    """Two things with headings, line by line. A second value that equals the first is muted."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._heads: tuple[str, str] = ("", "")
        self._pairs: tuple[Pair, ...] = ()

    def set_data(self, heads: tuple[str, str], pairs: Sequence[Pair]) -> None:
        """Show pairs under two headings."""
        self._heads, self._pairs = heads, tuple(pairs)
        self.redraw(len(pairs))

    def sheet(self) -> Table:
        return Table(("", *self._heads), tuple((pair.name, pair.first, pair.second) for pair in self._pairs))

    def drawn(self, width: int) -> Sequence[Content]:
        if not self._pairs:
            return ()
        named = min(max(len(pair.name) for pair in self._pairs), _NAME_MAX - 2)
        each = max((width - named - 4) // 2, 1)
        heads = "  ".join((fit("", named), *(fit(head, each) for head in self._heads)))
        drawn = [Content.styled(heads, "bold $primary")]
        for pair in self._pairs:
            first, second = fit_apart((pair.first, pair.second), each)
            style = pair.style or ("$foreground-muted" if pair.first == pair.second else "bold")
            name = Content.styled(fit(pair.name, named), "$foreground-muted")
            drawn.append(Content.assemble(name, "  ", first, "  ", Content.styled(second, style)))
        return drawn
