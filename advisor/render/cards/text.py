"""A card as text: at most 25 lines of at most 100 columns, without escape sequences."""

from __future__ import annotations

import textwrap

from ....rules.base.sanitize import clean
from ...core.card_types import Card
from ...views.card_rows import CardRow, card_rows, card_title, owner_line

MOST_LINES, MOST_COLUMNS = 25, 100
_LABEL = 12
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_NO_DATA, _NO_DATA_ASCII = "·", "?"
_TITLE_MAX = 76
_FOLDS = 2  # lines that one row may take


def sparkline(levels: tuple[float | None, ...], *, ascii_only: bool) -> str:
    """One sign for each level (0..1); a dot, or a question mark, where there is no data."""
    signs, nothing = (_ASCII, _NO_DATA_ASCII) if ascii_only else (_BLOCKS, _NO_DATA)
    return "".join(
        nothing if one is None else signs[min(int(min(max(one, 0.0), 1.0) * len(signs)), len(signs) - 1)]
        for one in levels
    )


def card_text(card: Card, *, width: int = MOST_COLUMNS, ascii_only: bool = False) -> str:
    """The whole card. `ascii_only`: for a terminal that shows nothing else."""
    width = max(60, min(width, MOST_COLUMNS))
    title = clipped(f"{clipped(card_title(card), _TITLE_MAX)}  {card.id}", width)
    lines = [title, *folded(owner_line(card), width, 1), "-" * len(title)]
    for row in card_rows(card):
        lines += _row(row, width, ascii_only=ascii_only)
    if len(lines) > MOST_LINES:
        lines = lines[: MOST_LINES - 1] + lines[-1:]  # the next step is never lost
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text.encode("ascii", "backslashreplace").decode("ascii") if ascii_only else text


def _row(row: CardRow, width: int, *, ascii_only: bool) -> list[str]:
    course = sparkline(row.course, ascii_only=ascii_only)
    text = f"{course}  {clean(row.text)}" if course else clean(row.text)
    return [
        f"{row.label if number == 0 else '':<{_LABEL}}{part}"
        for number, part in enumerate(folded(text, width - _LABEL, _FOLDS))
    ]


def folded(text: str, width: int, most: int) -> list[str]:
    """Outside text in at most so many lines of `width`; what is longer ends in three dots."""
    return textwrap.wrap(
        clean(text), width, max_lines=most, placeholder=" ...", break_long_words=True, break_on_hyphens=False
    ) or [""]


def clipped(text: str, width: int) -> str:
    """Outside text on one line of at most `width` columns."""
    plain = clean(text)
    return plain if len(plain) <= width else f"{plain[: width - 3]}..."
