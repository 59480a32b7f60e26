"""Figures of a page: bars of shares, sparklines of measures, two things side by side, and plots over time.

Without colors, the lines of a plot differ by their marks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static
from textual_plotext import PlotextPlot

from ...advisor.core.formatting import figure, hours, percent, usd
from ...advisor.core.timestamps import minute
from ...advisor.show.document import Table
from ...advisor.show.writers.text import document_text
from ...rules.base.sanitize import clean
from ..cell_text import bar, fit, fit_apart, line, nice, spark
from ..themes import LINE_COLOURS, MONOCHROME
from .frame import Drawing, Drawn

if TYPE_CHECKING:
    from ...advisor.core.advice_types import Advice, Finding, Recommendation
    from ...advisor.core.verdict_types import WorkloadVerdict
    from ...advisor.show.document import Document
    from ...advisor.show.series.device_series import DeviceGauge, Level
    from ...advisor.show.series.fleet_map import WasteHistory

_NAME_MAX = 20
_GAUGE_NAME, _GAUGE_VALUE = 16, 18  # cells beside a sparkline
_hours = partial(hours, unit="h")
_MARKS = (("dot", "•"), ("x", "x"), ("+", "+"), ("o", "o"))  # plotext's name of a mark, and the mark
_LEVEL = "┄"
_MUTED = (140, 148, 158)
_TIMES = 4  # labels of the time axis
_AXIS_WIDTH = 5  # cells of the labels at the left, so that plots below one another share their time axis
_ENDS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_WASTE_POINTS = 112  # of a line of waste: three hours each in 14 days

Lines = Sequence[tuple[str, Sequence[float | None]]]


def document_drawing(document: Document) -> Drawing:
    """Return a document as the command line writes it."""

    def draw(width: int) -> list[Content]:
        return [line(part) for part in document_text(document, width=width).strip("\n").split("\n")]

    return draw


def explained(advice: Advice, subject: Finding | Recommendation | WorkloadVerdict, *, verbose: bool = False) -> Drawing:
    """Return what ``skuwise explain`` prints."""
    from ...advisor.show.pages.explain import explain_page  # noqa: PLC0415 - it needs numpy: not at the start

    return document_drawing(explain_page(advice, subject, verbose=verbose))


def show_bars(
    place: Drawn, quantities: Iterable[tuple[str, float]], words: Callable[[float | None], str] = _hours
) -> None:
    """Show quantities with their names and shares of the sum. `words` writes a value with its unit."""
    pairs = list(quantities)
    whole = sum(value for _, value in pairs)
    shares = [value / whole if whole > 0 else 0.0 for _, value in pairs]
    named = min(max((len(name) for name, _ in pairs), default=0), _NAME_MAX)
    rows = tuple((name, words(value), percent(share)) for (name, value), share in zip(pairs, shares, strict=True))

    def draw(width: int) -> list[Content]:
        drawn = []
        for name, share, (_, value, part) in zip(fit_apart([row[0] for row in rows], named), shares, rows, strict=True):
            bars = Content.styled(bar(share, max(width - named - 21, 0)), "$primary")
            drawn.append(Content.assemble(name, " ", bars, " ", fit(value, 12, right=True), fit(part, 6, right=True)))
        return drawn

    place.set_data(draw, Table(("name", "value", "share"), rows))


def show_sparklines(place: Drawn, gauges: Sequence[DeviceGauge]) -> None:
    """Show measures over time: name, sparkline, last value with its unit.

    Textual's own sparkline scales from the smallest value and cannot leave a gap: 84 to 85 % would fill its height, and
    a missing value would be zero.
    """

    def draw(width: int) -> list[Content]:
        drawn: list[Content] = []
        for gauge in gauges:
            of = f" of {short(gauge.top)}" if gauge.top is not None and gauge.unit != "%" else ""
            value = f"{short(gauge.last)} {gauge.unit}{of}" if gauge.last is not None else "not measured"
            bars = spark(gauge.values, top_of(gauge), width - _GAUGE_NAME - _GAUGE_VALUE - 2)
            name = fit(gauge.name, _GAUGE_NAME)
            drawn.append(Content.assemble(name, " ", Content.styled(bars, "$primary"), " ", fit(value, _GAUGE_VALUE)))
        return drawn

    place.set_data(draw)


def top_of(gauge: DeviceGauge) -> float:
    """Return the end of a scale: what the device can do, or else the largest value."""
    return gauge.top or max((value for value in gauge.values if value is not None), default=0.0) or 1.0


def short(value: float) -> str:
    """A value to three digits: it changes every second."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return figure(float(f"{value:.3g}")) if abs(value) >= 1 else f"{value:.2f}".rstrip("0").rstrip(".") or "0"


class Pair(NamedTuple):
    """A value today and after a change. `style`: of the second value, where it says something by itself."""

    name: str
    first: str
    second: str
    style: str = ""


def show_pairs(place: Drawn, pairs: Sequence[Pair]) -> None:
    """Show today and after side by side, line by line. A second value that equals the first is muted."""
    named = min(max((len(pair.name) for pair in pairs), default=0), _NAME_MAX - 2)

    def draw(width: int) -> list[Content]:
        each = max((width - named - 4) // 2, 1)
        heads = "  ".join((fit("", named), fit("today", each), fit("after", each)))
        drawn = [Content.styled(heads, "bold $primary")] if pairs else []
        for pair in pairs:
            first, second = fit_apart((pair.first, pair.second), each)
            style = pair.style or ("$foreground-muted" if pair.first == pair.second else "bold")
            name = Content.styled(fit(pair.name, named), "$foreground-muted")
            drawn.append(Content.assemble(name, "  ", first, "  ", Content.styled(second, style)))
        return drawn

    place.set_data(draw, Table(("", "today", "after"), tuple(pair[:3] for pair in pairs)))


class TimePlot(Vertical):
    """Lines over time below their legend. `top`: the upper end of the axis, None: what the values need."""

    DEFAULT_CSS = """
    TimePlot { height: auto; }
    TimePlot > Static { height: auto; }
    TimePlot > PlotextPlot { height: 1fr; min-height: 9; }
    """

    def __init__(self, top: float | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = top
        self._draw: Callable[[], None] = lambda: None
        self.sheet: Table | None = None

    def compose(self) -> ComposeResult:
        yield Static()
        yield PlotextPlot()

    def on_mount(self) -> None:
        self.watch(self.app, "theme", lambda: self._draw(), init=False)  # noqa: PLW0108 - as it is then

    def set_data(self, ends: Sequence[float], measures: Sequence[DeviceGauge], levels: Sequence[Level] = ()) -> None:
        """Plot measures of one unit with the levels of them. `ends`: Unix seconds."""
        names = {measure.name for measure in measures}
        labelled = [(f"{measure.name}, {measure.unit}", measure.values) for measure in measures]
        dotted = [(f"{level.name}: {level.value:.4g}", level.value) for level in levels if level.of in names]
        self._show(lambda: self._plot(ends, labelled, dotted))

    def set_waste(self, history: WasteHistory | None, empty: str) -> None:
        """Plot the waste of a window: a line per rule, the smallest rules as one. `empty`: the text without waste."""
        is_empty, self.sheet = history is None or not history.rules, None
        self.query_one(PlotextPlot).display = not is_empty
        if history is None or is_empty:
            self._show(lambda: self.query_one(Static).update(line(empty, "$foreground-muted")))
            return

        def amount(value: float) -> str:
            return usd(value) if history.priced else hours(value, "GPU-h")

        totals = tuple((rule.rule, amount(rule.total)) for rule in history.rules)
        self.sheet = Table(("rule", "wasted in the window"), totals)
        rules = [(rule.rule, rule.values) for rule in history.rules]
        if len(rules) > len(_MARKS):
            rest = rules[len(_MARKS) - 1 :]
            sums = tuple(map(sum, zip(*(values for _, values in rest), strict=True)))
            rules[len(_MARKS) - 1 :] = [(f"{len(rest)} other rules", sums)]
        count = len(rules[0][1])
        step = max(math.ceil(count / _WASTE_POINTS), 1)
        starts, labelled = range(0, count, step), []
        for name, values in rules:  # what 24 hours like these would waste
            rates = [sum(part) / len(part) * 24 for part in (values[at : at + step] for at in starts)]
            labelled.append((f"{name} {amount(sum(values))}", rates))
        self._show(lambda: self._plot([history.start + at * 3600 for at in starts], labelled))

    def _show(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        draw()

    def _plot(self, ends: Sequence[float], lines: Lines, levels: Sequence[tuple[str, float]] = ()) -> None:
        """Plot lines by their labels; missing values are gaps. `levels`: labels of dotted lines with their values."""
        drawing, mono = self.query_one(PlotextPlot), self.app.current_theme.name == MONOCHROME.name
        plot = drawing.plt
        plot.clear_figure()
        for _, level in levels if ends else ():
            plot.plot([ends[0], ends[-1]], [level, level], marker=_LEVEL, color="default" if mono else _MUTED)
        legend = []
        for n, (label, values) in enumerate(lines):
            (marker, sign), color = _MARKS[n % len(_MARKS)], LINE_COLOURS[n % len(LINE_COLOURS)]
            style = {"marker": marker, "color": "default"} if mono else {"marker": "braille", "color": color}
            for is_measured, run in groupby(zip(ends, values, strict=True), key=lambda point: point[1] is not None):
                if is_measured:
                    plot.plot(*map(list, zip(*run, strict=True)), **style)
            sign = Content(sign) if mono else Content.styled("⠶", f"rgb{color}")
            legend.append(Content.assemble(sign, " ", line(label)))
        if ends:
            times = [ends[0] + (ends[-1] - ends[0]) * n / (_TIMES - 1) for n in range(_TIMES)]
            plot.xticks(times, [minute(time)[5:16] for time in times])
        highest = max([value for _, values in lines for value in values if value is not None], default=1.0)
        top = self._top or nice(max([highest, *(level for _, level in levels)]), _ENDS)
        plot.ylim(0, top)
        ticks = [0.0, top / 2, top]
        plot.yticks(ticks, [(f"{tick:,.0f}" if tick >= 100 else f"{tick:.3g}").rjust(_AXIS_WIDTH) for tick in ticks])
        drawing.refresh()
        legend += [Content.styled(clean(f"{_LEVEL} {label}"), "$foreground-muted") for label, _ in levels]
        self.query_one(Static).update(Content("   ").join(legend))
