"""A roofline in sentences, and the axes on which it is drawn."""

from __future__ import annotations

import math

from ...rules.base.sanitize import clean
from ..core.formatting import percent
from ..views.roofline import Roof, Roofline, RooflinePoint

_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_DRAWN = 4


def roofline_sentences(drawn: Roofline) -> list[str]:
    """The figures with their units, what the workload reaches of them, and what is not known."""
    own = [roof_words(roof) for roof in roofs_of(drawn)]
    return [clean(one) for one in (*own, *place_sentences(drawn), *drawn.limits, *drawn.missing)]


def roofs_of(drawn: Roofline) -> list[Roof]:
    """Those that are drawn, its own first: as many as there are marks to tell apart."""
    return [*([drawn.source] if drawn.source else []), *drawn.targets][:_DRAWN]


def place_sentences(drawn: Roofline) -> list[str]:
    """The place in sentences: the first for its own SKU, then one for each target."""
    place, source = drawn.place, drawn.source
    if place is None or source is None:
        return ["It has no place under these roofs." if source else "No roofline can be drawn."]
    intensity = place.intensity_flop_per_byte
    when = "while its engine was active" if place.busy else "over all its time"
    told = (
        f"{amount(place.flop_per_second, 'FLOP/s')} at {amount(place.bytes_per_second, 'B/s')} per GPU {when}: "
        f"{intensity:.3g} FLOP per byte"
    )
    share, ridge = drawn.use_of_sustained, source.sustained_ridge_flop_per_byte
    if share is None or ridge is None:
        told += f", {percent(place.flop_per_second / source.peak_at(intensity))} of the printed roof there."
    else:
        side = "compute" if intensity >= ridge else "memory"
        told += f", {percent(share)} of the {side} roof that {source.sku} sustains."
    out = [told]
    for target in roofs_of(drawn)[1:]:
        bound = drawn.bound_on(target)
        if bound is not None:
            out.append(f"On {target.sku} the roof at this intensity is x{bound:.2f}: a bound, no prediction of time.")
    return out


def roof_words(roof: Roof) -> str:
    """What a GPU sustains, and what is printed of it."""
    precision = roof.precision.upper()
    flops = amount(roof.sustained_flop_per_second, "FLOP/s")
    moved = amount(roof.sustained_bytes_per_second, "B/s")
    printed = f"{amount(roof.peak_flop_per_second, 'FLOP/s')} and {amount(roof.peak_bytes_per_second, 'B/s')}"
    return f"{clean(roof.sku)} sustains {flops} ({precision}) and {moved}; printed {printed}"


def amount(value: float | None, unit: str) -> str:
    """A rate with its unit, to three digits."""
    if value is None:
        return f"unknown {unit}"
    factor, prefix = next(((f, p) for f, p in _UNITS if value >= f), (1.0, ""))
    return f"{value / factor:.3g} {prefix}{unit}"


class Scale:
    """Logarithmic axes that hold the place and the ridges, and where a value stands on them."""

    def __init__(self, place: RooflinePoint | None, roofs: list[Roof], box: tuple[float, float, float, float]) -> None:
        ridges = [roof.ridge_flop_per_byte for roof in roofs]
        own = [place.intensity_flop_per_byte] if place is not None else []
        self.x0 = math.log10(min([*own, min(ridges) / 10]) / 2)
        self.x1 = math.log10(max([*own, max(ridges) * 2]) * 2)
        peaks = [roof.peak_flop_per_second for roof in roofs]
        reached = [place.flop_per_second, *(roof.peak_at(own[0]) for roof in roofs)] if place is not None else []
        self.y0 = math.log10(min([*reached, min(peaks) / 10]) / 2)
        self.y1 = math.log10(max(peaks) * 1.8)
        self.left, self.top, self.width, self.height = box

    def x(self, value: float) -> float:
        """Where an intensity stands on the axis."""
        return self.left + (math.log10(value) - self.x0) / (self.x1 - self.x0) * self.width

    def y(self, value: float) -> float:
        """Where FLOP/s stand on the axis."""
        return self.top + self.height - (math.log10(value) - self.y0) / (self.y1 - self.y0) * self.height

    def decades(self, low: float, high: float) -> range:
        """The powers of ten between two ends of an axis."""
        return range(math.ceil(low), math.floor(high) + 1)

    def roof(self, flops: float, moved: float) -> list[tuple[float, float]]:
        """The corners of a roof within the plot, as intensity and FLOP/s."""
        start = max(10.0**self.x0, 10.0**self.y0 / moved)
        return [(start, min(flops, start * moved)), (flops / moved, flops), (10.0**self.x1, flops)]
