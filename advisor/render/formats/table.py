"""The advice as a person reads it in a terminal or a pipe."""

from __future__ import annotations

from ...core.advice_types import Advice
from ...views.document.advice_document import advice_document
from ...views.document.truncate import SCREEN
from ..format import Format, Screen
from ..text import document_text


def _render(advice: Advice, screen: Screen) -> str:
    return document_text(advice_document(advice, SCREEN), width=screen.width, color=screen.color)


FORMAT = Format("text/plain", ".txt", _render)
