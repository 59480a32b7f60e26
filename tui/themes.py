"""Colors: two themes, one of them without colors, and how a value is painted on a map.

Colors are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which people of every color vision distinguish.
The ramp is cividis, whose lightness rises evenly (Nunez, Anderton, Renslow 2018,
https://doi.org/10.1371/journal.pone.0199239), here at eleven steps. No screen conveys anything by color alone.
"""

from functools import cache
from typing import NamedTuple

from rich.color import Color
from rich.style import Style
from textual.theme import Theme

SKY, ORANGE, VERMILLION, GREEN, PURPLE = "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7"

COLOURS = Theme(
    name="skuwise",
    primary=SKY,
    secondary=PURPLE,
    accent=ORANGE,
    warning=ORANGE,
    error=VERMILLION,
    success=GREEN,
    foreground="#D7DDE4",
    background="#0F1318",
    surface="#161B22",
    panel="#222A34",
    dark=True,
)
MONOCHROME = Theme(
    name="skuwise-mono",
    primary="#E0E0E0",
    secondary="#C0C0C0",
    accent="#FFFFFF",
    warning="#FFFFFF",
    error="#FFFFFF",
    success="#E0E0E0",
    foreground="#D8D8D8",
    background="#101010",
    surface="#181818",
    panel="#2A2A2A",
    dark=True,
)
THEMES = (COLOURS, MONOCHROME)
LINE_COLOURS = ((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167))  # of a plot, as RGB

_CIVIDIS = (
    (0, 34, 78), (8, 51, 112), (53, 69, 108), (79, 87, 108), (102, 105, 112), (125, 124, 120), (148, 142, 119),
    (174, 163, 113), (200, 184, 102), (229, 207, 82), (254, 232, 56),
)  # fmt: skip
_SHADES = "▁░▒▓█"
MISSING = "·"
UNOBSERVED = "×"  # a GPU that exists and of which nothing was observed
_DARK_TEXT_FROM = 5  # steps from here on are so light that text on them is dark
# Kind of work -> letter, color (Okabe and Ito).
KINDS = {
    "training": ("T", (86, 180, 233)),
    "fine-tuning": ("F", (0, 114, 178)),
    "online-inference": ("O", (230, 159, 0)),
    "batch-inference": ("B", (240, 228, 66)),
    "interactive": ("I", (204, 121, 167)),
    "idle": ("-", (110, 110, 110)),
    "unknown": ("?", (70, 76, 84)),
}


class Mark(NamedTuple):
    """The text of a cell, with the style that is laid over its background."""

    text: str
    style: Style


def value_mark(share: float | None, text: str, width: int, *, mono: bool) -> Mark:
    """Paint a value at `share` (0..1) of its scale; None: not measured. `text`: the number, written where it fits."""
    if share is None:
        return Mark(MISSING.center(width), Style.null())
    share = min(max(share, 0.0), 1.0)
    label = text if len(text) + 2 <= width else ""
    if mono:  # the lowest shade is a value near zero, as against a dot for what is missing
        shade = _SHADES[min(int(share * (len(_SHADES) - 1) + 0.95), len(_SHADES) - 1)]
        return Mark(f"{label} ".rjust(width, shade) if label else shade * width, Style.null())
    step = round(share * (len(_CIVIDIS) - 1))
    return Mark(label.center(width), _style(_CIVIDIS[step], dark=step >= _DARK_TEXT_FROM))


def unobserved_mark(width: int, *, mono: bool) -> Mark:
    """Paint a GPU of which nothing was observed."""
    return Mark(UNOBSERVED.center(width), Style(color=None if mono else VERMILLION, bold=True))


def kind_mark(kind: str | None, width: int, *, mono: bool) -> Mark:
    """Paint a kind of work as its letter; None: no work."""
    letter, color = KINDS.get(kind, KINDS["unknown"]) if kind is not None else (MISSING, None)
    style = Style.null() if mono or color is None else _style(color, dark=sum(color) > 330)
    return Mark(letter.center(width), style)


@cache
def _style(color: tuple[int, int, int], *, dark: bool) -> Style:
    return Style(color=Color.from_rgb(*((0,) * 3 if dark else (255,) * 3)), bgcolor=Color.from_rgb(*color))
