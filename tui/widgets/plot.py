"""Plots in braille: measures over time. Without colours each line has a mark of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static
from textual_plotext import PlotextPlot

from ...advisor.core.timestamps import minute
from ...rules.base.sanitize import clean
from ..cell_text import line, nice
from ..themes import LINE_COLOURS, MONOCHROME

if TYPE_CHECKING:
    from ...advisor.show.series.workload_timeline import Level, MeasureLine

MARKS = ("dot", "x", "+", "o")
_SHOWN = ("•", "x", "+", "o")  # how these marks look
_LEVEL = "┄"
_MUTED = (140, 148, 158)
_TICKS = 4
_UP = 3
_LABEL = 5  # cells of the labels at the left, so that plots below one another share their time axis
_ENDS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class Drawing(Vertical):
    """A plot below its legend, whose lines keep apart in both themes: by colour, or by a mark of their own."""

    DEFAULT_CSS = """
    Drawing { height: auto; }
    Drawing > Static { height: auto; }
    """

    def compose(self) -> ComposeResult:
        yield Static()
        yield PlotextPlot()

    def on_mount(self) -> None:
        self.watch(self.app, "theme", self.draw, init=False)

    def draw(self) -> None:
        """Draw what was put, with its legend."""
        raise NotImplementedError

    @property
    def mono(self) -> bool:
        return self.app.current_theme.name == MONOCHROME.name

    def look(self, n: int) -> tuple[str, str | tuple[int, int, int]]:
        """Mark and colour of line `n`, as plotext takes them."""
        if self.mono:
            return MARKS[n % len(MARKS)], "default"
        return "braille", LINE_COLOURS[n % len(LINE_COLOURS)]

    def sign(self, n: int, name: str) -> Content:
        """The line's mark and its name, for a legend."""
        if self.mono:
            return Content(clean(f"{_SHOWN[n % len(_SHOWN)]} {name}"))
        red, green, blue = LINE_COLOURS[n % len(LINE_COLOURS)]
        return Content.assemble(Content.styled("⠶ ", f"rgb({red},{green},{blue})"), line(name))


class TimePlot(Drawing):
    """`set_data` gives it lines of one unit and what they are held against. `top`: the axis' upper end, None: what the
    values need.
    """

    DEFAULT_CSS = "TimePlot > PlotextPlot { height: 9; }"

    def __init__(self, top: float | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = top
        self._drawn: tuple[Sequence[float], Sequence[MeasureLine], Sequence[Level]] = ((), (), ())

    def set_data(self, ends: Sequence[float], lines: Sequence[MeasureLine], levels: Sequence[Level] = ()) -> None:
        """`ends`: Unix seconds. Gaps stay gaps. Of `levels` those of these lines are drawn."""
        names = {one.name for one in lines}
        levels = [level for level in levels if level.of in names]
        self._drawn = (ends, lines, levels)
        self.draw()

    def draw(self) -> None:
        ends, measures, levels = self._drawn
        drawing = self.query_one(PlotextPlot)
        plot = drawing.plt
        plot.clear_figure()
        for level in levels if ends else ():
            plot.plot(
                [ends[0], ends[-1]], [level.value, level.value], marker=_LEVEL, color="default" if self.mono else _MUTED
            )
        for n, one in enumerate(measures):
            known = [(x, y) for x, y in zip(ends, one.values, strict=True)]
            marker, colour = self.look(n)
            for told, run in groupby(known, key=lambda point: point[1] is not None):
                points = list(run)
                if told:
                    plot.plot([x for x, _ in points], [y for _, y in points], marker=marker, color=colour)
        if ends:
            first, last = ends[0], ends[-1]
            ticks = [first + (last - first) * n / (_TICKS - 1) for n in range(_TICKS)]
            plot.xticks(ticks, [minute(x)[5:16] for x in ticks])
        values = [y for measure in measures for y in measure.values if y is not None]
        top = self._top or nice(max([*values, *(level.value for level in levels)], default=1.0), _ENDS)
        plot.ylim(0, top)
        up = [top * n / (_UP - 1) for n in range(_UP)]
        plot.yticks(up, [f"{y:.3g}".rjust(_LABEL) for y in up])
        drawing.refresh()
        # The lines' names and unit, then the levels with their values.
        parts = [self.sign(n, f"{one.name}, {one.unit}") for n, one in enumerate(measures)]
        parts += [Content.styled(clean(f"{_LEVEL} {one.name}: {one.value:.4g}"), "$foreground-muted") for one in levels]
        self.query_one(Static).update(Content("   ").join(parts))
