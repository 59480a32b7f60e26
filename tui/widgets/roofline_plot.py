"""A workload's place under the roofs of its GPU and of others, on logarithmic axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static
from textual_plotext import PlotextPlot

from ..cell_text import lines
from .plot import Drawing

if TYPE_CHECKING:
    from ...advisor.views.roofline import Roofline

PLACE = "◆"


class RooflinePlot(Drawing):
    """`set_data` gives it a roofline whose own GPU has roofs. Sustained roofs are drawn, else the printed ones."""

    DEFAULT_CSS = "RooflinePlot > PlotextPlot { height: 16; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawn: Roofline | None = None

    def set_data(self, drawn: Roofline) -> None:
        self._drawn = drawn
        self.draw()

    def draw(self) -> None:
        from ...advisor.render.roofline import Scale, amount, roof_words, roofs_of  # noqa: PLC0415 - not at the start

        drawn, drawing = self._drawn, self.query_one(PlotextPlot)
        plot = drawing.plt
        plot.clear_figure()
        if drawn is None or drawn.source is None:
            return
        roofs = roofs_of(drawn)
        scale = Scale(drawn.place, roofs, (0, 0, 1, 1))
        for n, roof in reversed(list(enumerate(roofs))):  # its own comes last and stands above the others
            flops = roof.sustained_flop_per_second or roof.peak_flop_per_second
            moved = roof.sustained_bytes_per_second or roof.peak_bytes_per_second
            corners = scale.roof(flops, moved)
            marker, colour = self.look(n)
            xs, ys = zip(*((math.log10(x), math.log10(y)) for x, y in corners), strict=True)
            plot.plot(xs, ys, marker=marker, color=colour)
        if drawn.place is not None:
            x, y = math.log10(drawn.place.intensity_flop_per_byte), math.log10(drawn.place.flop_per_second)
            plot.scatter([x], [y], marker=PLACE, color="default")
        across, up = scale.decades(scale.x0, scale.x1), scale.decades(scale.y0, scale.y1)
        plot.xlim(scale.x0, scale.x1)
        plot.ylim(scale.y0, scale.y1)
        plot.xticks(list(across), [f"{10.0**power:g}" for power in across])
        plot.yticks(list(up), [amount(10.0**power, "FLOP/s") for power in up])
        plot.xlabel("FLOP per byte of device memory")
        drawing.refresh()
        told = [self.sign(n, roof_words(roof)) for n, roof in enumerate(roofs)]
        place = [Content(f"{PLACE} this workload")] if drawn.place is not None else []
        self.query_one(Static).update(lines(*told, *place))
