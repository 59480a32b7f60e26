"""The advice as a person reads it in a terminal or a pipe."""

from __future__ import annotations

from dataclasses import replace

from ...core.advice_types import Advice
from ...views.document.advice_page import advice_page
from ..format import Format, Screen
from ..text import document_text

LINES_MAX = 100  # of the short page: two screens


def _render(advice: Advice, screen: Screen) -> str:
    """The page; of the short one, lists are cut until it fits two screens of this width."""
    page = screen.page
    while True:
        text = document_text(advice_page(advice, page), width=screen.width, color=screen.color)
        fewer = page.rows.fewer()
        if not page.short or page.verbose or fewer == page.rows or text.count("\n") <= LINES_MAX:
            return text
        page = replace(page, rows=fewer)


FORMAT = Format("text/plain", ".txt", _render)
