"""The advice in its formats; each is loaded when it is asked for."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ...core.advice_types import Advice
from ..page_options import PageOptions

# What ``--format`` takes: (media type, suffix of a file's name).
FORMATS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "csv": ("text/csv", ".csv"), "html": ("text/html", ".html"), "json": ("application/json", ".json"),
    "markdown": ("text/markdown", ".md"), "table": ("text/plain", ".txt"),
})  # fmt: skip
LINES_MAX = 90  # of the short page for a terminal: two screens


def render(
    advice: Advice,
    form: str,
    *,
    width: int = 100,
    color: bool = False,
    page: PageOptions | None = None,
    team: str | None = None,
) -> str:
    """The advice in a format. `width`, `color` and the sections of `page` (None: the short page, without commands)
    apply to the table alone: the other formats are whole. `team`, of HTML: whose part of an advice it is."""
    # ruff: noqa: PLC0415 - pandas, rich and jinja are loaded by the formats that need them
    from ..page_options import SHORT, PageOptions, Rows
    from ..pages.advice import advice_page

    page = page or SHORT
    whole = PageOptions(whole=True, verbose=True, again=page.again)
    match form:
        case "csv":
            from .csv import advice_csv

            return advice_csv(advice)
        case "json":
            import json

            from ...core.advice_json import to_dict

            return json.dumps(to_dict(advice), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
        case "markdown":
            from .markdown import document_markdown

            return document_markdown(advice_page(advice, whole))
        case "html":
            from .html import page_html

            return page_html(advice_page(advice, whole, team))
    from .text import document_text

    text, rows = "", None
    while rows != page.rows:  # lists are cut until the short page fits two screens of this width
        text, rows = document_text(advice_page(advice, page), width=width, color=color), page.rows
        if page.short and not page.verbose and text.count("\n") > LINES_MAX:
            page = replace(page, rows=Rows(*(max(most * 4 // 5, 1) for most in rows)))
    return text
