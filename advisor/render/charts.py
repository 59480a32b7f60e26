"""The charts of a report as small PNGs, and in words for whoever does not see them. No outside text is drawn.

Their ground is transparent and their ink a grey of middle lightness: it keeps 4.2:1 on white and on a dark page alike,
so that a mail client may turn the colours around it as it likes.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font, LoadFlags
from numpy.typing import NDArray
from PIL import Image

from ..core import formatting as words
from ..core.advice_types import Advice
from ..views.aggregates import NOT_OBSERVED, FabricSum, fabric_sums
from ..views.document.model import Chart
from ..views.document.sections import FABRIC, KINDS, MONEY, kinds_words, ordered_kinds

_STRENGTHS = 64  # of the ink, the full one among them; index 0 of the palette is the ground
_BASELINE = 5.0  # CSS px from the middle of a word of nine points down to its baseline


@dataclass(frozen=True, slots=True)
class _Word:
    """`mask`: strength of the ink by pixel; `down`: lines of it above the baseline; `left`: where it begins, `width`:
    how far the next word would stand, both in pixels."""

    mask: NDArray[np.uint8]
    down: int
    left: float
    width: float


class Words:
    """Words in one size, each drawn once: a page's charts have some in common. `points`: the size; `density`: device
    pixels to a CSS pixel."""

    def __init__(self, points: int = 9, density: int = 2) -> None:
        self.density = density
        # A font of its own: what matplotlib shares keeps the place of the glyph that it drew last.
        self._font = FT2Font(font_manager.findfont(font_manager.FontProperties()))
        self._font.set_size(points, 96 * density)
        self._drawn: dict[str, _Word] = {}

    def word(self, text: str) -> _Word:
        known = self._drawn.get(text)
        if known is None:
            known = self._drawn[text] = self._draw(text)
        return known

    def _draw(self, text: str) -> _Word:
        font = self._font
        font.set_text(text, 0.0, flags=LoadFlags.DEFAULT)
        font.draw_glyphs_to_bitmap(antialiased=True)
        shades = np.asarray(font.get_image(), dtype=np.uint16)
        mask = ((shades * (_STRENGTHS - 1) + 127) // 255).astype(np.uint8)
        return _Word(
            mask, mask.shape[0] - round(font.get_descent() / 64), font.get_bitmap_offset()[0] / 64,
            font.get_width_height()[0] / 64,
        )  # fmt: skip


class Ink:
    """A picture, in CSS pixels from its upper left. `ink`: the colour of the words."""

    def __init__(self, width: int, height: int, ink: str, words: Words) -> None:
        self._words, self._colors = words, [ink]
        self._pixels = np.zeros((height * words.density, width * words.density), dtype=np.uint8)

    def box(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """A filled box with its edges on whole device pixels."""
        if color not in self._colors[1:]:
            self._colors.append(color)
        left, right = self._device(x), self._device(x + width)
        self._pixels[self._device(y) : self._device(y + height), left:right] = (
            _STRENGTHS + self._colors.index(color, 1) - 1
        )

    def word(self, x: float, y: float, text: str, align: str = "left") -> None:
        """A word that begins, or with `align` "right" ends, at `x`, and has its middle at `y`. It wants a free
        ground."""
        word, density = self._words.word(text), self._words.density
        left = math.ceil(x * density + word.left - (word.width if align == "right" else 0.0))
        top = self._device(y + _BASELINE) - word.down
        rows, columns = self._pixels.shape
        up, over = max(-top, 0), max(-left, 0)  # what would stand outside
        place = self._pixels[top + up : rows, left + over : columns]
        mask = word.mask[up:, over:][: place.shape[0], : place.shape[1]]
        place = place[: mask.shape[0], : mask.shape[1]]
        np.maximum(place, mask, out=place)

    def png(self) -> bytes:
        """The same boxes and words give the same bytes."""
        palette, strengths = _palette(self._colors)
        image = Image.fromarray(self._pixels, "P")
        image.putpalette(palette)
        out = io.BytesIO()
        dots = 96 * self._words.density
        image.save(out, format="PNG", transparency=strengths, dpi=(dots, dots))
        return out.getvalue()

    def _device(self, length: float) -> int:
        return max(math.floor(length * self._words.density + 0.5), 0)


def _palette(colors: Sequence[str]) -> tuple[bytes, bytes]:
    """Colours by their index, and how strong each is: the ink's strengths come first."""
    ink, *others = (bytes.fromhex(color.removeprefix("#")) for color in colors)
    strengths = bytes(round(255 * n / (_STRENGTHS - 1)) for n in range(_STRENGTHS))
    return ink * _STRENGTHS + b"".join(others), strengths + b"\xff" * len(others)


_INK = "#7b7b7b"
# Blue and vermilion of the Okabe-Ito palette, which colour-blind readers can tell apart; each keeps 3:1 on white and on
# dark, and so does the grey.
_NOW, _WASTE, _GREY = "#0072b2", "#d55e00", "#8a9099"
_PARTS = {
    "workloads": _NOW, "shared": "#5b8fd6", "allocated but idle": _WASTE, "unallocated": "#b8860b",
    "drained": "#a569a0", "not observed": _GREY,
}  # fmt: skip
_WIDTH = 420  # CSS px, near a phone's width, so that the words stay legible there
_KINDS_MAX = 8
_LEGEND = 3  # entries in a line


def charts_of(advice: Advice, team: str | None) -> dict[str, Chart]:
    """The charts that say something about an advice, by name. A team's other figures are few, and stand in
    sentences."""
    whole, lettering = team is None, Words()
    spend = [(part, value, _PARTS[part]) for part, value in words.money_parts(advice.summary.reconciliation)]
    drawn = {
        KINDS: _kinds_chart(ordered_kinds(advice), lettering),
        FABRIC: _fabric_chart(fabric_sums(advice), lettering) if whole else None,
        MONEY: _bar(spend, MONEY, "Cost breakdown", lettering) if whole else None,
    }
    return {name: chart for name, chart in drawn.items() if chart is not None}


def _kinds_chart(kinds: Mapping[str, float], lettering: Words) -> Chart | None:
    """GPU-hours by kind. None: there are not two kinds to compare."""
    top = max(kinds.values(), default=0.0)
    rows = [(kind, hours) for kind, hours in kinds.items() if hours > top / 1000][:_KINDS_MAX]
    if len(rows) < 2:
        return None
    row, head, left, room = 32, 4, 122, _WIDTH - 122 - 54
    ink = _Drawing(head + row * len(rows), lettering)
    for place, (kind, hours) in enumerate(rows):
        y = head + row * place
        ink.box(left, y + 4, room * hours / top, 16, _NOW if kind != NOT_OBSERVED else _GREY)
        ink.word(left - 8, y + 13, kind, align="right")
        ink.word(left + room * hours / top + 6, y + 12, words.hours(hours, "").strip())
    return ink.chart(KINDS, kinds_words(kinds))


def _fabric_chart(fabrics: Sequence[FabricSum], lettering: Words) -> Chart | None:
    """What was paid for the fabrics, by whether they carried anything. None: no price is known, or all did the same."""
    priced = [f for f in fabrics if f.cost_usd is not None]
    paid, silent, unseen = (
        sum(getattr(f, part) or 0.0 for f in priced) for part in ("cost_usd", "silent_usd", "unseen_usd")
    )
    used = paid - silent - unseen
    parts = [("in use", used, _NOW), ("no traffic", silent, _WASTE), ("not observed", unseen, _GREY)]
    return _bar(parts, FABRIC, "Fabric cost", lettering)


def _bar(parts: Sequence[tuple[str, float, str]], name: str, title: str, lettering: Words) -> Chart | None:
    """One bar of parts with their dollars and colours. None: there are not two of them to compare."""
    total = sum(value for _, value, _ in parts)
    shown = [part for part in parts if part[1] > 0.005 * total]
    if total <= 0 or len(shown) < 2:
        return None
    head = 8 + 18 * -(-len(shown) // _LEGEND)
    ink, left = _Drawing(head + 28, lettering), 0.0
    ink.legend([(part, color) for part, _, color in shown])
    for _, value, color in parts:
        ink.box(left, head, _WIDTH * value / total, 24, color)
        left += _WIDTH * value / total
    told = "; ".join(f"{part} {words.usd(value)} ({words.percent(value / total)})" for part, value, _ in parts if value)
    return ink.chart(name, f"{title}: {told} (total {words.usd(total)}).")


class _Drawing:
    """A chart as wide as all of them, in CSS pixels from its upper left."""

    def __init__(self, height: int, lettering: Words) -> None:
        self._height = height
        self._ink = Ink(_WIDTH, height, _INK, lettering)
        self.box, self.word = self._ink.box, self._ink.word

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        for place, (name, color) in enumerate(entries):
            x, y = _WIDTH / _LEGEND * (place % _LEGEND), 18 * (place // _LEGEND)
            self.box(x, y + 4, 10, 10, color)
            self.word(x + 15, y + 9, name)

    def chart(self, name: str, alt: str) -> Chart:
        return Chart(name, self._ink.png(), alt, _WIDTH, self._height)
