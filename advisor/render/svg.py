"""A small writer of SVG: every attribute and every text escaped, legible on light and on dark.

Colours stand in one style sheet, with classes for the ink, the ground and up to four things to tell apart. Those four
are of the Okabe-Ito palette, which colour-blind readers can tell apart, and each has a dash of its own besides.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from ...rules.base.sanitize import clean

# class -> (on light, on dark, dash)
SERIES: tuple[tuple[str, str, str, str], ...] = (
    ("s0", "#1b1b1b", "#f2f2f2", ""),
    ("s1", "#0072b2", "#56b4e9", "10 4"),
    ("s2", "#d55e00", "#f0a04b", "2 4"),
    ("s3", "#007d5a", "#2fc796", "10 3 2 3"),
)
_LIGHT = {"ground": "#ffffff", "ink": "#1b1b1b", "faint": "#d5d5d5", "soft": "#595959"}
_DARK = {"ground": "#16181d", "ink": "#f2f2f2", "faint": "#3c4048", "soft": "#b4b8c0"}


def element(name: str, *children: str, **attributes: object) -> str:
    """``<name ...>children</name>``. `children` are markup already (`text` makes it of text); an underscore at an
    attribute's end is dropped, any other becomes a hyphen; None leaves the attribute out."""
    told = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_plain(value))}"
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{told}>{''.join(children)}</{name}>" if children else f"<{name}{told}/>"


def text(value: object) -> str:
    """Text from anywhere as markup: controls shown, ``<``, ``>`` and ``&`` escaped."""
    return escape(_plain(value))


def document(width: int, height: int, title: str, children: Iterable[str]) -> str:
    """A whole file. `title` is what a screen reader says."""
    return (
        element(
            "svg", "\n", element("title", text(title)), "\n", element("style", _style()), "\n",
            element("rect", width=width, height=height, class_="ground"), "\n",
            *(f"{child}\n" for child in children),
            xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=width, height=height, role="img",
            font_family="system-ui, sans-serif", font_size="13",
        )
        + "\n"
    )  # fmt: skip


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else clean(value)


def _style() -> str:
    def rules(colours: dict[str, str], shade: int) -> str:
        lines = [
            f".ground{{fill:{colours['ground']}}}",
            f"text{{fill:{colours['ink']}}}",
            f"text.soft{{fill:{colours['soft']}}}",
            f".grid{{stroke:{colours['faint']};stroke-width:1}}",
            f".axis{{stroke:{colours['soft']};stroke-width:1;fill:none}}",
        ]
        for name, *shades, _ in SERIES:
            lines.append(f".{name}.sustained,.{name}.printed{{stroke:{shades[shade]};fill:none}}")
            lines.append(f".mark.{name}{{fill:{shades[shade]};stroke:{colours['ground']};stroke-width:2}}")
            lines.append(f".ring.{name}{{fill:{colours['ground']};stroke:{shades[shade]};stroke-width:2}}")
        return "".join(lines)

    dashes = "".join(
        f".{name}.sustained,.{name}.printed{{stroke-dasharray:{dash}}}" for name, *_, dash in SERIES if dash
    )
    widths = ".sustained{stroke-width:2.5}.printed{stroke-width:1;stroke-opacity:.6}"
    return f"{rules(_LIGHT, 0)}{dashes}{widths}@media(prefers-color-scheme:dark){{{rules(_DARK, 1)}}}"
