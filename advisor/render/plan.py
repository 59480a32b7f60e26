"""A plan in each of its formats."""

from __future__ import annotations

import json

from ..core.advice_json import document
from ..core.advice_types import Advice
from ..plan.result import SCHEMA, Plan
from ..views.document.page_options import Again
from ..views.document.plan_document import plan_document
from .html import page_html
from .markdown import document_markdown
from .text import document_text


def plan_json(plan: Plan) -> str:
    """The plan in the order of its fields."""
    return json.dumps(document(SCHEMA, plan), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def render_plan(
    plan: Plan,
    advice: Advice,
    format_name: str,
    *,
    again: Again | None = None,
    rows: int | None = None,
    width: int = 100,
    color: bool = False,
) -> str:
    """`rows`: of each list at most, in a table for a terminal."""
    match format_name:
        case "json":
            return plan_json(plan)
        case "markdown":
            return document_markdown(plan_document(plan, advice, again))
        case "html":
            return page_html(plan_document(plan, advice, again))
        case _:
            return document_text(plan_document(plan, advice, again, rows), width=width, color=color)
