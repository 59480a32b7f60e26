"""Plots over time: measures of a workload, and waste by rule. Without colors, lines differ by their marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static
from textual_plotext import PlotextPlot

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute
from ...advisor.show.document import Table
from ...rules.base.sanitize import clean
from ..cell_text import line, nice
from ..themes import LINE_COLOURS, MONOCHROME

if TYPE_CHECKING:
    from ...advisor.show.series.waste_history import WasteHistory
    from ...advisor.show.series.workload_timeline import Level, MeasureLine

_MARKS = (("dot", "•"), ("x", "x"), ("+", "+"), ("o", "o"))  # plotext's name of a mark, and the mark
_LEVEL = "┄"
_MUTED = (140, 148, 158)
_TIMES = 4  # labels of the time axis
_LABEL_WIDTH = 5  # cells of the labels at the left, so that plots below one another share their time axis
_ENDS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_WASTE_POINTS = 112  # of a line of waste: three hours each in 14 days

Lines = Sequence[tuple[str, Sequence[float | None]]]


class Plot(Vertical):
    """Lines over time below their legend."""

    DEFAULT_CSS = """
    Plot { height: auto; }
    Plot > Static { height: auto; }
    Plot > PlotextPlot { height: 1fr; min-height: 9; }
    """

    def compose(self) -> ComposeResult:
        yield Static()
        yield PlotextPlot()

    def on_mount(self) -> None:
        self.watch(self.app, "theme", self.draw, init=False)

    def draw(self) -> None:
        """Draw the data again."""
        raise NotImplementedError

    def plot_lines(
        self, ends: Sequence[float], lines: Lines, levels: Sequence[tuple[str, float]] = (), top: float | None = None
    ) -> None:
        """Plot lines by their labels; missing values are gaps. `ends`: Unix seconds. `levels`: labels of dotted lines
        with their values. `top`: the upper end of the axis, None: what the values need."""
        drawing, mono = self.query_one(PlotextPlot), self.app.current_theme.name == MONOCHROME.name
        plot = drawing.plt
        plot.clear_figure()
        for _, level in levels if ends else ():
            plot.plot([ends[0], ends[-1]], [level, level], marker=_LEVEL, color="default" if mono else _MUTED)
        legend = []
        for n, (label, values) in enumerate(lines):
            (marker, sign), color = _MARKS[n % len(_MARKS)], LINE_COLOURS[n % len(LINE_COLOURS)]
            for is_measured, run in groupby(zip(ends, values, strict=True), key=lambda point: point[1] is not None):
                times, known_values = zip(*run, strict=True)
                if is_measured:
                    marker, shade = (marker, "default") if mono else ("braille", color)
                    plot.plot(list(times), list(known_values), marker=marker, color=shade)
            sign = Content(sign) if mono else Content.styled("⠶", f"rgb{color}")
            legend.append(Content.assemble(sign, " ", line(label)))
        if ends:
            times = [ends[0] + (ends[-1] - ends[0]) * n / (_TIMES - 1) for n in range(_TIMES)]
            plot.xticks(times, [minute(time)[5:16] for time in times])
        highest = max([value for _, values in lines for value in values if value is not None], default=1.0)
        top = top or nice(max([highest, *(level for _, level in levels)]), _ENDS)
        plot.ylim(0, top)
        ticks = [0.0, top / 2, top]
        plot.yticks(ticks, [(f"{tick:,.0f}" if tick >= 100 else f"{tick:.3g}").rjust(_LABEL_WIDTH) for tick in ticks])
        drawing.refresh()
        legend += [Content.styled(clean(f"{_LEVEL} {label}"), "$foreground-muted") for label, _ in levels]
        self.query_one(Static).update(Content("   ").join(legend))


class TimePlot(Plot):
    """Measures of one unit. `top`: the upper end of the axis, None: what the values need."""

    def __init__(self, top: float | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = top
        self._drawn: tuple[Sequence[float], Sequence[MeasureLine], Sequence[Level]] = ((), (), ())

    def set_data(self, ends: Sequence[float], lines: Sequence[MeasureLine], levels: Sequence[Level] = ()) -> None:
        """Plot measures with the levels of them. `ends`: Unix seconds."""
        self._drawn = (ends, lines, levels)
        self.draw()

    def draw(self) -> None:
        ends, measures, levels = self._drawn
        names = {measure.name for measure in measures}
        labelled = [(f"{measure.name}, {measure.unit}", measure.values) for measure in measures]
        dotted = [(f"{level.name}: {level.value:.4g}", level.value) for level in levels if level.of in names]
        self.plot_lines(ends, labelled, dotted, self._top)


class WasteChart(Plot):
    """The waste of a window over time: a line per rule, the smallest rules as one."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._history: WasteHistory | None = None
        self._empty = ""

    def set_data(self, history: WasteHistory | None, empty: str) -> None:
        """Plot a history. `empty`: the text shown where there is no waste to plot."""
        self._history, self._empty = history, empty
        self.draw()

    def _amount(self, value: float) -> str:
        priced = self._history is not None and self._history.priced
        return words.usd(value) if priced else words.hours(value, "GPU-h")

    def sheet(self) -> Table:
        rules = self._history.rules if self._history is not None else ()
        return Table(("rule", "wasted in the window"), tuple((rule.rule, self._amount(rule.total)) for rule in rules))

    def draw(self) -> None:
        history = self._history
        self.query_one(PlotextPlot).display = history is not None and bool(history.rules)
        if history is None or not history.rules:
            self.query_one(Static).update(line(self._empty, "$foreground-muted"))
            return
        rules = [(rule.rule, rule.values) for rule in history.rules]
        if len(rules) > len(_MARKS):
            rest = rules[len(_MARKS) - 1 :]
            sums = tuple(map(sum, zip(*(values for _, values in rest), strict=True)))
            rules[len(_MARKS) - 1 :] = [(f"{len(rest)} other rules", sums)]
        hours = max(math.ceil(len(rules[0][1]) / _WASTE_POINTS), 1)
        starts = range(0, len(rules[0][1]), hours)
        labelled = [
            (f"{name} {self._amount(sum(values))}", [_per_day(values[at : at + hours]) for at in starts])
            for name, values in rules
        ]
        self.plot_lines([history.start + at * 3600 for at in starts], labelled)


def _per_day(hourly: Sequence[float]) -> float:
    """What 24 hours like these would waste."""
    return sum(hourly) / len(hourly) * 24
