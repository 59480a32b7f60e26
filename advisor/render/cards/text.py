"""A card as text: at most 25 lines of at most 100 columns, without escape sequences."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from ....rules.base.sanitize import clean
from ...cards.card_json import card_values
from ...core.card_types import Card
from ...core.timestamps import rfc3339
from ...views.card_rows import CardList, CardRow, card_rows, card_title, owner_line
from ..csv import csv_text
from ..markdown import escape, table_row

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


LIST_SCHEMA = "skuwise.cards/1"
_WIDTHS = {"Job": 24, "Name": 24, "State": 20}
_CSV = (
    "id", "job_id", "name", "user", "account", "namespace", "state", "start", "end", "gpu_sku", "gpus", "gpu_hours",
    "sm_active", "idle_gpu_hours", "energy_kwh", "cost_usd", "idle_usd", "next_step",
)  # fmt: skip


def list_text(listed: CardList, width: int) -> str:
    """A table; its last column is cut at the width of the terminal."""
    last = len(listed.heads) - 1
    cells = [[clipped(cell, _WIDTHS.get(head, 200)) for head, cell in zip(listed.heads, row, strict=True)]
             for row in (listed.heads, *listed.rows)]  # fmt: skip
    widths = [max(len(row[at]) for row in cells) for at in range(len(listed.heads))]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(widths[at]) if at in listed.right else cell if at == last else cell.ljust(widths[at])
            for at, cell in enumerate(row)
        ]
        lines.append(clipped("  ".join(parts).rstrip(), max(width, 60)))
    return "\n".join([*lines, "", clean(listed.total)]) + "\n"


def list_csv(cards: Sequence[Card]) -> str:
    """One line a card, with units in the heads; what is missing is empty. Safe to open in a spreadsheet."""
    return csv_text(_CSV, [_csv_row(card) for card in cards])


def _csv_row(card: Card) -> dict[str, object]:
    return {
        "id": card.id, "job_id": card.job_id, "name": card.name, "user": card.owner.user,
        "account": card.owner.account, "namespace": card.namespace, "state": card.state, "start": rfc3339(card.start),
        "end": rfc3339(card.end), "gpu_sku": card.gpu_sku, "gpus": card.gpu_count, "gpu_hours": card.gpu_hours,
        "sm_active": card.use.sm_active, "idle_gpu_hours": card.use.idle_gpu_hours, "energy_kwh": card.kwh,
        "cost_usd": card.cost_usd, "idle_usd": card.idle_usd, "next_step": card.next_step.text,
    }  # fmt: skip


def list_json(cards: Sequence[Card]) -> str:
    """A document of all cards, in their order."""
    document = {"schema": LIST_SCHEMA, "cards": [card_values(card) for card in cards]}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def card_markdown(card: Card) -> str:
    """A table of two columns."""
    lines = [f"# {escape(card_title(card))}", "", escape(owner_line(card)), "", f"Workload `{escape(card.id)}`", ""]
    lines += ["| | |", "|---|---|"]
    for row in card_rows(card):
        course = sparkline(row.course, ascii_only=False)
        lines.append(table_row((row.label, f"{course} {row.text}" if course else row.text)))
    return "\n".join(lines) + "\n"


def list_markdown(listed: CardList) -> str:
    """The list as a table."""
    rules = "|".join("---:" if index in listed.right else "---" for index in range(len(listed.heads)))
    lines = [table_row(listed.heads), f"|{rules}|", *map(table_row, listed.rows), "", escape(listed.total)]
    return "\n".join(lines) + "\n"
