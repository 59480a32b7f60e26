"""Many cards as text, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ....rules.base.sanitize import clean
from ...cards.card_json import card_values
from ...core.card_types import Card
from ...core.timestamps import rfc3339
from ...views.card_list import CardList
from ...views.card_rows import card_rows, card_title, owner_line
from ..csv import csv_text
from ..markdown import escape
from .text import clipped, sparkline

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
        lines.append(_row((row.label, f"{course} {row.text}" if course else row.text)))
    return "\n".join(lines) + "\n"


def list_markdown(listed: CardList) -> str:
    """The list as a table."""
    rules = "|".join("---:" if index in listed.right else "---" for index in range(len(listed.heads)))
    lines = [_row(listed.heads), f"|{rules}|", *(_row(row) for row in listed.rows), "", escape(listed.total)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escape(cell) for cell in cells)} |"
