"""Two themes: one whose colors people of every color vision distinguish, and one without colors.

The colors are those of Okabe and Ito (https://jfly.uni-koeln.de/color/). No screen conveys anything by color alone.
"""

from __future__ import annotations

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
# What lines of a plot are drawn in, as RGB.
LINE_COLOURS = ((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167))
