"""Boxes and words as pixels: where they stand, in which colours, and that a word is drawn once for many pictures."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from skuwise.advisor.render.ink import Ink, Words

GREY, BLUE, RED = "#7b7b7b", "#0072b2", "#d55e00"


def pixels(ink: Ink) -> NDArray[np.uint8]:
    """Red, green, blue and strength of each pixel."""
    return np.asarray(Image.open(io.BytesIO(ink.png())).convert("RGBA"))


def extent(ink: Ink) -> tuple[int, int, int, int]:
    """First and last row, first and last column that hold something."""
    rows, columns = np.nonzero(pixels(ink)[..., 3])
    return int(rows.min()), int(rows.max()), int(columns.min()), int(columns.max())


def test_boxes_have_their_colours_and_edges_on_whole_pixels() -> None:
    ink = Ink(20, 10, GREY, Words())
    ink.box(1, 2, 3.2, 4, BLUE)
    ink.box(10, 0, 30, 1, RED)
    ink.box(5, 5, 0, 3, RED)
    seen = pixels(ink)
    assert seen.shape == (20, 40, 4)
    assert [tuple(one) for one in np.unique(seen[4:12, 2:8].reshape(-1, 4), axis=0)] == [(0, 0x72, 0xB2, 255)]
    assert tuple(seen[1, 39]) == (0xD5, 0x5E, 0, 255)
    assert int((seen[..., 3] > 0).sum()) == 8 * 6 + 2 * 20


def test_words_begin_and_end_where_they_are_put_around_their_middle() -> None:
    left, right = Ink(100, 40, GREY, Words()), Ink(100, 40, GREY, Words())
    left.word(30, 20, "idle")
    right.word(70, 20, "idle", align="right")
    top, bottom, first, _ = extent(left)
    assert 60 <= first <= 63
    assert top < 40 < bottom
    assert 136 <= extent(right)[3] <= 141
    strong = pixels(left)
    assert {tuple(one) for one in strong[strong[..., 3] > 0][:, :3]} == {(0x7B, 0x7B, 0x7B)}
    assert strong[..., 3].max() == 255
    assert len(np.unique(strong[..., 3])) > 8  # soft edges


@pytest.mark.parametrize(("x", "y"), [(-10, 20), (95, 20), (50, 0), (50, 39), (-400, -400), (400, 400)])
def test_a_word_that_would_stand_outside_is_cut(x: float, y: float) -> None:
    ink, whole = Ink(100, 40, GREY, Words()), Ink(100, 40, GREY, Words())
    ink.word(x, y, "training")
    whole.word(20, 20, "training")
    assert int((pixels(ink)[..., 3] > 0).sum()) < int((pixels(whole)[..., 3] > 0).sum())
