"""A workload's place under the roofs of its GPU and of others, on logarithmic axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from textual.content import Content

from ..cell_text import lines
from .plot import Drawing

if TYPE_CHECKING:
    from ...advisor.views.roofline import Roofline

PLACE = "◆"


class RooflinePlot(Drawing):
    """`set_data` gives it a roofline whose own GPU has roofs. Sustained roofs are drawn, else the printed ones."""

    DEFAULT_CSS = "RooflinePlot { height: 16; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawn: Roofline | None = None

    def set_data(self, drawn: Roofline) -> None:
        self._drawn = drawn
        self.draw()

    def _legend(self) -> Content:
        """What each GPU sustains, with its mark, one a line, and the workload's."""
        drawn = self._drawn
        if drawn is None or drawn.source is None:
            return Content("")
        told = [self.sign(n, roof.words()) for n, roof in enumerate(drawn.roofs)]
        return lines(*told, *([Content(f"{PLACE} this workload")] if drawn.place is not None else []))

    def draw(self) -> None:
        from ...advisor.views.roofline import amount  # noqa: PLC0415 - it need not be there at the start

        drawn, plot = self._drawn, self.plt
        plot.clear_figure()
        if drawn is None or drawn.source is None:
            return
        roofs, place = drawn.roofs, drawn.place
        # Logarithmic axes that hold the place and the ridges of the printed roofs.
        ridges = [roof.peak_flop_per_second / roof.peak_bytes_per_second for roof in roofs]
        peaks = [roof.peak_flop_per_second for roof in roofs]
        own = [place.intensity_flop_per_byte] if place is not None else []
        reached = [place.flop_per_second, *(roof.peak_at(own[0]) for roof in roofs)] if place is not None else []
        x0, x1 = min([*own, min(ridges) / 10]) / 2, max([*own, max(ridges) * 2]) * 2
        y0, y1 = min([*reached, min(peaks) / 10]) / 2, max(peaks) * 1.8
        for n, roof in reversed(list(enumerate(roofs))):  # its own comes last and stands above the others
            flops = roof.sustained_flop_per_second or roof.peak_flop_per_second
            moved = roof.sustained_bytes_per_second or roof.peak_bytes_per_second
            start = max(x0, y0 / moved)
            corners = ((start, min(flops, start * moved)), (flops / moved, flops), (x1, flops))
            marker, colour = self.look(n)
            xs, ys = zip(*((math.log10(x), math.log10(y)) for x, y in corners), strict=True)
            plot.plot(xs, ys, marker=marker, color=colour)
        if place is not None:
            x, y = math.log10(place.intensity_flop_per_byte), math.log10(place.flop_per_second)
            plot.scatter([x], [y], marker=PLACE, color="default")
        x0, x1, y0, y1 = map(math.log10, (x0, x1, y0, y1))
        across, up = (range(math.ceil(low), math.floor(high) + 1) for low, high in ((x0, x1), (y0, y1)))
        plot.xlim(x0, x1)
        plot.ylim(y0, y1)
        plot.xticks(list(across), [f"{10.0**power:g}" for power in across])
        plot.yticks(list(up), [amount(10.0**power, "FLOP/s") for power in up])
        plot.xlabel("FLOP per byte of device memory")
        self.refresh()
        self.post_message(self.Drawn(self._legend()))
