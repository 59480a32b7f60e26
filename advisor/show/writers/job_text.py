"""A card, or a list of cards, as text, JSON, Markdown and CSV.

The text of a card has at most 25 lines of at most 100 columns, without escape sequences.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from ....rules.base.sanitize import clean
from ...core.advice_json import plain
from ...core.card_types import LIST_SCHEMA, SCHEMA, Card
from ...core.timestamps import rfc3339
from ..pages.job_rows import CardList, card_rows, card_title, owner_line
from .markdown import escape, table_row

MOST_LINES, MOST_COLUMNS = 25, 100
_LABEL = 12
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_NO_DATA, _NO_DATA_ASCII = "·", "?"
_TITLE_MAX = 76
_FOLDS = 2  # lines that one row may take
_WIDTHS = {"Job": 24, "Name": 24, "State": 20}


def sparkline(levels: tuple[float | None, ...], *, ascii_only: bool) -> str:
    """One sign for each level (0..1); a dot, or a question mark, where there is no data."""
    signs, nothing = (_ASCII, _NO_DATA_ASCII) if ascii_only else (_BLOCKS, _NO_DATA)
    return "".join(
        nothing if level is None else signs[min(int(min(max(level, 0.0), 1.0) * len(signs)), len(signs) - 1)]
        for level in levels
    )


def card_text(card: Card, *, width: int = MOST_COLUMNS, ascii_only: bool = False) -> str:
    """The whole card. `ascii_only`: for a terminal that shows nothing else."""
    width = max(60, min(width, MOST_COLUMNS))
    title = _clipped(f"{_clipped(card_title(card), _TITLE_MAX)}  {card.id}", width)
    lines = [title, *_folded(owner_line(card), width, 1), "-" * len(title)]
    for row in card_rows(card):
        course = sparkline(row.course, ascii_only=ascii_only)
        parts = _folded(f"{course}  {clean(row.text)}" if course else row.text, width - _LABEL, _FOLDS)
        lines += [f"{row.label if n == 0 else '':<{_LABEL}}{part}".rstrip() for n, part in enumerate(parts)]
    if len(lines) > MOST_LINES:
        lines = lines[: MOST_LINES - 1] + lines[-1:]  # the next step is never lost
    text = "\n".join(lines) + "\n"
    return text.encode("ascii", "backslashreplace").decode("ascii") if ascii_only else text


def card_json(card: Card) -> str:
    """The card in its contract: RFC 3339 in UTC, base units, null for what is missing."""
    return _document(_values(card))


def card_markdown(card: Card) -> str:
    """A table of two columns."""
    lines = [f"# {escape(card_title(card))}", "", escape(owner_line(card)), "", f"Workload `{escape(card.id)}`", ""]
    lines += ["| | |", "|---|---|"]
    for row in card_rows(card):
        course = sparkline(row.course, ascii_only=False)
        lines.append(table_row((row.label, f"{course} {row.text}" if course else row.text)))
    return "\n".join(lines) + "\n"


def list_text(listed: CardList, width: int) -> str:
    """A table; its last column is cut at the width of the terminal."""
    cells = [[_clipped(cell, _WIDTHS.get(head, 200)) for head, cell in zip(listed.heads, row, strict=True)]
             for row in (listed.heads, *listed.rows)]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(widths[at]) if at in listed.right else cell.ljust(widths[at]) for at, cell in enumerate(row)
        ]
        lines.append(_clipped("  ".join(parts).rstrip(), max(width, 60)))
    return "\n".join([*lines, "", clean(listed.total)]) + "\n"


def list_csv(cards: Sequence[Card]) -> str:
    """One line a card, with units in the heads; what is missing is empty. Safe to open in a spreadsheet."""
    from .csv import csv_text  # noqa: PLC0415 - with what the whole advice needs

    rows: list[dict[str, object]] = [
        {
            "id": card.id, "job_id": card.job_id, "name": card.name, "user": card.owner.user,
            "account": card.owner.account, "namespace": card.namespace, "state": card.state,
            "start": rfc3339(card.start), "end": rfc3339(card.end), "gpu_sku": card.gpu_sku, "gpus": card.gpu_count,
            "gpu_hours": card.gpu_hours, "sm_active": card.use.sm_active, "idle_gpu_hours": card.use.idle_gpu_hours,
            "energy_kwh": card.kwh, "cost_usd": card.cost_usd, "idle_usd": card.idle_usd,
            "next_step": card.next_step.text,
        }
        for card in cards
    ]  # fmt: skip
    return csv_text(tuple(rows[0]), rows)


def list_json(cards: Sequence[Card]) -> str:
    """A document of all cards, in their order."""
    return _document({"schema": LIST_SCHEMA, "cards": [_values(card) for card in cards]})


def list_markdown(listed: CardList) -> str:
    """The list as a table."""
    rules = "|".join("---:" if index in listed.right else "---" for index in range(len(listed.heads)))
    lines = [table_row(listed.heads), f"|{rules}|", *map(table_row, listed.rows), "", escape(listed.total)]
    return "\n".join(lines) + "\n"


def _values(card: Card) -> dict[str, Any]:
    return {"schema": SCHEMA, **plain(card)}


def _document(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, indent=2) + "\n"


def _folded(text: str, width: int, most: int) -> list[str]:
    """Outside text in at most so many lines of `width`; what is longer ends in three dots."""
    return textwrap.wrap(
        clean(text), width, max_lines=most, placeholder=" ...", break_long_words=True, break_on_hyphens=False
    ) or [""]


def _clipped(text: str, width: int) -> str:
    """Outside text on one line of at most `width` columns."""
    text = clean(text)
    return text if len(text) <= width else f"{text[: width - 3]}..."
