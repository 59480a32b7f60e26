"""A card, or a list of cards, as an HTML page that needs nothing else. All that comes from outside is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from ....rules.base.sanitize import clean
from ...core.card_types import Card
from ...core.timestamps import minute
from ...views.card_rows import CardList, CardRow, card_rows, card_title, owner_line

_STEP, _HEIGHT = 10, 100


def card_html(card: Card) -> str:
    """One card as a page."""
    title = _text(card_title(card))
    rows = card_rows(card)
    body = "\n".join(_row(row) for row in rows[:-1])
    return _page(
        title,
        f"<h1>{title}</h1>\n<p>{_text(owner_line(card))}</p>\n"
        f'<p class="next"><strong>Next step:</strong> {_text(rows[-1].text)}</p>\n'
        f'<table class="card">\n{body}\n</table>\n'
        f"<p>Workload {_text(card.id)}, written {_text(minute(card.generated_at))}</p>",
    )


def list_html(listed: CardList) -> str:
    """A list as a page."""
    heads = "".join(f"<th{_side(at, listed.right)}>{_text(head)}</th>" for at, head in enumerate(listed.heads))
    rows = "\n".join(
        f"<tr>{''.join(f'<td{_side(at, listed.right)}>{_text(cell)}</td>' for at, cell in enumerate(row))}</tr>"
        for row in listed.rows
    )
    return _page(
        "Jobs", f'<h1>Jobs, the most idle first</h1>\n<table class="list">\n<tr>{heads}</tr>\n{rows}\n</table>\n'
        f"<p>{_text(listed.total)}</p>",
    )  # fmt: skip


def _row(row: CardRow) -> str:
    chart = _bars(row.label, row.course) if row.course else ""
    return f"<tr><th>{_text(row.label)}</th><td>{chart}{_text(row.text)}</td></tr>"


def _bars(label: str, levels: Sequence[float | None]) -> str:
    """A bar for each span of its life; a thin line where there is no data."""
    bars = []
    for at, level in enumerate(levels):
        height = 2.0 if level is None else max(min(max(level, 0.0), 1.0) * _HEIGHT, 1.0)
        kind = ' class="none"' if level is None else ""
        bars.append(f'<rect{kind} x="{at * _STEP}" y="{_HEIGHT - height:g}" width="{_STEP - 1}" height="{height:g}"/>')
    width = max(len(levels) * _STEP, 1)
    return (
        f'<svg viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{_text(label)} from start to end">{"".join(bars)}</svg>'
    )


def _side(at: int, right: Sequence[int]) -> str:
    return ' class="right"' if at in right else ""


def _text(text: str) -> str:
    return escape(clean(text), quote=True)


@cache
def _style() -> str:
    return files("skuwise.advisor.render").joinpath("templates", "card.css").read_text("utf-8")


def _page(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_style()}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
