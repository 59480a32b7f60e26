"""The advice in its shapes: text, JSON, CSV, Markdown, HTML. Each renderer is loaded when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.advice_types import Advice

FORMATS = ("table", "json", "csv", "markdown", "html")


def render(advice: Advice, form: str, *, width: int = 100, color: bool = False) -> str:
    """The advice in one of FORMATS. `width` and `color` concern the table only."""
    if form == "json":
        from .json import render_json  # noqa: PLC0415

        return render_json(advice)
    if form == "csv":
        from .csv import render_csv  # noqa: PLC0415

        return render_csv(advice)
    if form == "markdown":
        from .markdown import render_markdown  # noqa: PLC0415

        return render_markdown(advice)
    if form == "html":
        from .html import render_html  # noqa: PLC0415

        return render_html(advice)
    from .text import render_text  # noqa: PLC0415

    return render_text(advice, width=width, color=color)
