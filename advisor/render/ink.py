"""Small pictures of boxes and words as PNGs with a palette: few colours, and one ink in as many strengths as its edges
need.

matplotlib gives the font. Its figures would lay every word out and draw it glyph by glyph, and pack four channels of
colours that a byte tells apart: eight times the work, and hundreds of teams have a chart each.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font, LoadFlags
from numpy.typing import NDArray
from PIL import Image

_STRENGTHS = 64  # of the ink, the full one among them; index 0 of the palette is the ground
_MOST_WORDS = 2000  # kept: some 2 kB each
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
    """Words in one size, each drawn once: the mails of a fleet have most of theirs in common. `points`: the size;
    `density`: device pixels to a CSS pixel."""

    def __init__(self, points: int = 9, density: int = 2) -> None:
        self.density = density
        # A font of its own: what matplotlib shares keeps the place of the glyph that it drew last.
        self._font = FT2Font(font_manager.findfont(font_manager.FontProperties()))
        self._font.set_size(points, 96 * density)
        self._drawn: dict[str, _Word] = {}

    def word(self, text: str) -> _Word:
        known = self._drawn.get(text)
        if known is None:
            if len(self._drawn) >= _MOST_WORDS:
                self._drawn.clear()
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
