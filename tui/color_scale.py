"""How a value is painted: a ramp that people of every colour vision read, and shades where there are no colours.

The ramp is cividis, whose lightness rises evenly and which looks the same with and without colour vision deficiency
(Nunez, Anderton, Renslow 2018, https://doi.org/10.1371/journal.pone.0199239), here at eleven steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rich.color import Color
from rich.style import Style

_CIVIDIS = (
    (0, 34, 78), (8, 51, 112), (53, 69, 108), (79, 87, 108), (102, 105, 112), (125, 124, 120), (148, 142, 119),
    (174, 163, 113), (200, 184, 102), (229, 207, 82), (254, 232, 56),
)  # fmt: skip
_SHADES = "▁░▒▓█"
MISSING = "·"
UNOBSERVED = "×"  # a GPU that exists and of which nothing was observed
_WARNING = (213, 94, 0)  # vermilion (Okabe and Ito)
_INK_FROM = 5  # steps from here on are so light that dark letters stand on them
_DARK, _LIGHT = Color.from_rgb(0, 0, 0), Color.from_rgb(255, 255, 255)
# Kind of work -> letter, colour (Okabe and Ito).
KINDS = {
    "training": ("T", (86, 180, 233)),
    "fine-tuning": ("F", (0, 114, 178)),
    "online-inference": ("O", (230, 159, 0)),
    "batch-inference": ("B", (240, 228, 66)),
    "interactive": ("I", (204, 121, 167)),
    "idle": ("-", (110, 110, 110)),
    "unknown": ("?", (70, 76, 84)),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands in a cell, to be laid over its background."""

    text: str
    style: Style


def value_mark(share: float | None, told: str, width: int, *, mono: bool) -> Mark:
    """A value at `share` (0..1) of its scale; `told`: the number, written where there is room for it."""
    if share is None:
        return Mark(MISSING.center(width), Style.null())
    share = min(max(share, 0.0), 1.0)
    label = told if len(told) + 2 <= width else ""
    if mono:  # the lowest shade is what is next to nothing, as against a gap for what is missing
        shade = _SHADES[min(int(share * (len(_SHADES) - 1) + 0.95), len(_SHADES) - 1)]
        return Mark(f"{label} ".rjust(width, shade) if label else shade * width, Style.null())
    step = round(share * (len(_CIVIDIS) - 1))
    return Mark(label.center(width), _style(_CIVIDIS[step], dark=step >= _INK_FROM))


def unobserved_mark(width: int, *, mono: bool) -> Mark:
    """A GPU of which nothing was observed: neither a value nor a gap in one."""
    return Mark(
        UNOBSERVED.center(width), Style(bold=True) if mono else Style(color=Color.from_rgb(*_WARNING), bold=True)
    )


def kind_mark(kind: str | None, width: int, *, mono: bool) -> Mark:
    """A kind of work by its letter; None: no work."""
    if kind is None:
        return Mark(MISSING.center(width), Style.null())
    letter, colour = KINDS.get(kind, KINDS["unknown"])
    if mono:
        return Mark(letter.center(width), Style.null())
    return Mark(letter.center(width), _style(colour, dark=sum(colour) > 330))


@cache
def _style(colour: tuple[int, int, int], *, dark: bool) -> Style:
    """Letters on a colour; made once, not for every cell."""
    return Style(color=_DARK if dark else _LIGHT, bgcolor=Color.from_rgb(*colour))
