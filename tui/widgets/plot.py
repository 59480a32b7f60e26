"""Measures over time, in braille on one time axis; without colours each line has a mark of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from textual_plotext import PlotextPlot

from ...advisor.moments import minute
from ...rules.plain import clean
from ..themes import LINE_COLOURS, MONOCHROME

if TYPE_CHECKING:
    from ...advisor.telemetry.history import Line

_MARKS = ("dot", "x", "+", "o")
_TICKS = 4


class TimePlot(PlotextPlot):
    """`put` gives it lines of one unit. `top`: the axis' upper end, None: what the values need."""

    DEFAULT_CSS = "TimePlot { height: 10; }"

    def __init__(self, top: float | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = top
        self._drawn: tuple[Sequence[float], Sequence[Line]] = ((), ())

    def on_mount(self) -> None:
        self.watch(self.app, "theme", lambda: self.put(*self._drawn), init=False)

    def put(self, ends: Sequence[float], lines: Sequence[Line]) -> None:
        """`ends`: Unix seconds. Gaps stay gaps. The lines' names and unit stand above the plot."""
        self._drawn = (ends, lines)
        mono = self.app.current_theme.name == MONOCHROME.name
        plot = self.plt
        plot.clear_figure()
        for n, line in enumerate(lines):
            known = [(x, y) for x, y in zip(ends, line.values, strict=True)]
            name = clean(f"{line.name}, {line.unit}")
            for told, run in groupby(known, key=lambda point: point[1] is not None):
                points = list(run)
                if told:
                    plot.plot(
                        [x for x, _ in points], [y for _, y in points], label=name,
                        marker=_MARKS[n % len(_MARKS)] if mono else "braille",
                        color="default" if mono else LINE_COLOURS[n % len(LINE_COLOURS)],
                    )  # fmt: skip
                    name = None  # one label a line
        if ends:
            first, last = ends[0], ends[-1]
            ticks = [first + (last - first) * n / (_TICKS - 1) for n in range(_TICKS)]
            plot.xticks(ticks, [minute(x)[5:16] for x in ticks])
        plot.ylim(0, self._top)
        self.refresh()
