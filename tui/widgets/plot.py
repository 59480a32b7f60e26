"""Plots over time: measures of a workload, and waste by rule. Without colors, lines differ by their marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    from ...advisor.show.series.device_series import DeviceGauge, Level
    from ...advisor.show.series.waste_history import WasteHistory

_MARKS = (("dot", "•"), ("x", "x"), ("+", "+"), ("o", "o"))  # plotext's name of a mark, and the mark
_LEVEL = "┄"
_MUTED = (140, 148, 158)
_TIMES = 4  # labels of the time axis
_LABEL_WIDTH = 5  # cells of the labels at the left, so that plots below one another share their time axis
_ENDS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_WASTE_POINTS = 112  # of a line of waste: three hours each in 14 days

Lines = Sequence[tuple[str, Sequence[float | None]]]


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
        self.watch(self.app, "theme", self._redraw, init=False)

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
            return words.usd(value) if history.priced else words.hours(value, "GPU-h")

        totals = tuple((rule.rule, amount(rule.total)) for rule in history.rules)
        self.sheet = Table(("rule", "wasted in the window"), totals)
        rules = [(rule.rule, rule.values) for rule in history.rules]
        if len(rules) > len(_MARKS):
            rest = rules[len(_MARKS) - 1 :]
            sums = tuple(map(sum, zip(*(values for _, values in rest), strict=True)))
            rules[len(_MARKS) - 1 :] = [(f"{len(rest)} other rules", sums)]
        count = len(rules[0][1])
        hours = max(math.ceil(count / _WASTE_POINTS), 1)
        starts, labelled = range(0, count, hours), []
        for name, values in rules:  # what 24 hours like these would waste
            rates = [sum(part) / len(part) * 24 for part in (values[at : at + hours] for at in starts)]
            labelled.append((f"{name} {amount(sum(values))}", rates))
        self._show(lambda: self._plot([history.start + at * 3600 for at in starts], labelled))

    def _show(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        draw()

    def _redraw(self) -> None:
        self._draw()

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
        plot.yticks(ticks, [(f"{tick:,.0f}" if tick >= 100 else f"{tick:.3g}").rjust(_LABEL_WIDTH) for tick in ticks])
        drawing.refresh()
        legend += [Content.styled(clean(f"{_LEVEL} {label}"), "$foreground-muted") for label, _ in levels]
        self.query_one(Static).update(Content("   ").join(legend))
