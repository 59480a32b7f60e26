"""Fits text from outside into cells of a terminal. Nothing here is read as markup."""

import math
from collections.abc import Sequence
from os.path import commonprefix

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from ..rules.base.sanitize import clean

CUT = "…"
_SEPARATORS = "-_./ "
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_FULL, _PARTS = "█", " ▏▎▍▌▋▊▉"


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return `text`, cleaned and exactly `width` cells wide; a cut ends in a sign."""
    plain = clean(text)
    taken = cell_len(plain)
    if taken > width:
        return set_cell_size(plain, max(width - 1, 0)) + CUT if width > 0 else ""
    room = " " * (width - taken)
    return room + plain if right else plain + room


def fit_middle(text: str, width: int) -> str:
    """Return `text`, cleaned and exactly `width` cells wide, cut in its middle: names differ in their ends."""
    plain = clean(text)
    if cell_len(plain) <= width or width < 4:
        return fit(plain, width)
    head, tail = (width - 1) // 2, width - 1 - (width - 1) // 2
    end = plain
    while cell_len(end) > tail:
        end = end[max(len(end) - tail, 1) :]
    return fit(set_cell_size(plain, head) + CUT + end, width)


def fit_apart(texts: Sequence[str], width: int) -> list[str]:
    """Return the texts as `fit_middle` does; where that hides the word in which a text differs from the most similar
    other one, its beginning is cut instead."""
    plain = [clean(text) for text in texts]
    cells = {text: fit_middle(text, width) for text in plain}
    cut = sorted(text for text in cells if cell_len(text) > width)
    head = (width - 1) // 2
    for text, before, after in zip(cut, ["", *cut], [*cut[1:], ""], strict=False):
        shared = max(len(commonprefix((text, other))) for other in (before, after))  # noqa: RUF071 - of characters
        start = max(text.rfind(separator, 0, shared) for separator in _SEPARATORS) + 1
        end = min((at for separator in _SEPARATORS if (at := text.find(separator, shared)) >= 0), default=len(text))
        start = start if shared - start <= width // 2 else shared  # in a long word, from the character
        if end > head and 0 < start < len(text) - (width - 1 - head):
            cells[text] = fit(CUT + text[start:], width)
    return [cells[text] for text in plain]


def spark(values: Sequence[float | None], top: float, width: int) -> str:
    """Return the newest `width` values as bars from 0 to `top`. A missing value is a gap; zero an eighth of a cell."""
    bars = [
        " " if value is None else _HEIGHTS[min(max(round(value / top * 8) if top > 0 else 0, 1), 8)]
        for value in (list(values)[-width:] if width > 0 else [])
    ]
    return "".join(bars).rjust(max(width, 0))


def nice(value: float, steps: Sequence[float] = (1.0, 2.0, 5.0, 10.0)) -> float:
    """Return the end of a scale: the next of these steps times a power of ten; 1 where there is nothing to scale."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in steps if value <= step * power * (1 + 1e-9))


def bar(share: float, width: int) -> str:
    """Return a bar of `share` (0..1) of `width` cells. A share above zero shows at least an eighth of a cell."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    return (_FULL * whole + (_PARTS[rest] if rest else "")).ljust(width)


def line(text: object, style: str = "") -> Content:
    """Return a line of outside text in a style."""
    return Content.styled(clean(text), style) if style else Content(clean(text))


def lines(*parts: Content) -> Content:
    """Join contents as lines."""
    return Content("\n").join(parts)
