"""A card, or a list of cards, as Markdown. All outside text is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.card_types import Card
from ...views.card_list import CardList
from ...views.card_rows import card_rows, card_title, owner_line
from ..formats.markdown import escape
from .text import sparkline


def card_markdown(card: Card) -> str:
    """A table of two columns."""
    lines = [f"# {escape(card_title(card))}", "", escape(owner_line(card)), "", f"Workload `{escape(card.id)}`", ""]
    lines += ["| | |", "|---|---|"]
    for row in card_rows(card):
        course = sparkline(row.course, ascii_only=False)
        lines.append(_row((row.label, f"{course} {row.text}" if course else row.text)))
    return "\n".join(lines) + "\n"


def list_markdown(listed: CardList) -> str:
    """The list as a table."""
    rules = "|".join("---:" if index in listed.right else "---" for index in range(len(listed.heads)))
    lines = [_row(listed.heads), f"|{rules}|", *(_row(row) for row in listed.rows), "", escape(listed.total)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escape(cell) for cell in cells)} |"
