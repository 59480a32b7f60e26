"""A report as plain text, 72 columns wide: for a terminal's mail reader, and for whoever reads no HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ..views.document.types import Card, Page, Section, Sheet

WIDTH = 72
_CELL_MIN = 8


def page_text(page: Page) -> str:
    """The whole report; no line is wider than WIDTH."""
    lines = [*_wrapped(page.heading), "=" * min(max(map(len, _wrapped(page.heading))), WIDTH), page.window, ""]
    lines += _wrapped(page.summary)
    if page.tiles:
        width = max(len(tile.label) for tile in page.tiles)
        lines.append("")
        for tile in page.tiles:
            change = f"  ({tile.change})" if tile.change else ""
            lines += _wrapped(f"{tile.label:<{width}}  {tile.value}{change}", "  ", "  " + " " * (width + 2))
    for section in page.sections:
        lines += ["", *_section(section)]
    lines += ["", "-- ", *(line for sentence in page.footer for line in _wrapped(sentence))]
    return "\n".join(line.rstrip() if line != "-- " else line for line in lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield section.title
    yield "-" * len(section.title)
    for sentence in section.sentences:
        yield from _wrapped(sentence)
    if section.chart is not None:
        yield from _wrapped(section.chart.alt)
    for number, card in enumerate(section.cards, 1):
        if number > 1 or section.sentences:
            yield ""
        yield from _card(card, number)
    if section.sheet is not None:
        if section.sentences or section.chart:
            yield ""
        yield from _sheet(section.sheet)
    if section.bullets and (section.cards or section.sheet):
        yield ""
    for bullet in section.bullets:
        yield from _wrapped(bullet, "- ", "  ")


def _card(card: Card, number: int) -> Iterator[str]:
    lead = f"{number}. "
    yield from _wrapped(card.title, lead, " " * len(lead))
    for sentence in card.sentences:
        yield from _wrapped(sentence, "   ", "   ")
    width = max((len(name) for name, _ in card.figures), default=0)
    for name, said in card.figures:
        yield from _wrapped(f"{name:<{width}}  {said}", "   ", "   " + " " * (width + 2))
    if card.wrong_if:
        yield from _wrapped(card.wrong_if, "   ", "   ")
    yield from _wrapped(f"Look closer: {card.command}", "   ", "   ")


def _sheet(sheet: Sheet) -> Iterator[str]:
    """Columns as wide as they need be; where that is too much for a line, the widest fold."""
    rows = [sheet.heads, *sheet.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(sheet.heads))]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > _CELL_MIN:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    for number, row in enumerate(rows):
        yield from _row(row, widths, sheet.right)
        if number == 0:
            yield "  ".join("-" * width for width in widths)
    if sheet.more:
        yield from _wrapped(sheet.more)


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> Iterator[str]:
    cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
    for line in range(max(map(len, cells))):
        parts = [cell[line] if line < len(cell) else "" for cell in cells]
        yield "  ".join(
            part.rjust(width) if column in right else part.ljust(width)
            for column, (part, width) in enumerate(zip(parts, widths, strict=True))
        ).rstrip()


def _wrapped(text: str, lead: str = "", then: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=then, break_on_hyphens=False) or [""]
