"""A report as HTML: the mail, its styles inlined, and the page that stands alone. All that it is given is escaped."""

from __future__ import annotations

import base64
import re
from functools import cache

import css_inline
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ....rules.base.sanitize import clean
from ..document import Chart, Document

_BLANKS = re.compile(r"\s*\n\s*")
_TEXT = re.compile(r"(?<=>)[^<>]+(?=<)")  # between two tags
# What a browser may break behind a slash or hyphen, or apart from its percent sign. Names from outside have to break:
# they may be longer than a screen.
_WHOLE = re.compile(
    r"(?<![\w-])(?:\d{4}-\d\d-\d\d|[+-]?\$?\d[\d,.]*[kM]?(?:/(?:month|hour)| %)|(?:GPU-hours|kWh)(?:/month)?"
    r"|[a-z]-[0-9a-f]{8,16}(?![\w-])|--[a-z]{1,16})"
)


def mail_html(page: Document) -> str:
    """The HTML part of a mail. Its figures, dates, ids and options are never broken, however narrow the screen."""
    head, body = _render("mail.html", page, ("style.css",)).split("<body>", 1)
    whole = _TEXT.sub(lambda text: _WHOLE.sub(r'<span class="whole">\g<0></span>', text[0]), body)
    return _inliner().inline(f"{head}<body>{whole}")


def page_html(page: Document) -> str:
    """A page that needs nothing else: no script, no address outside, charts within it."""
    return _render("page.html", page, ("style.css", "page.css"))


def _data(chart: Chart) -> str:
    return f"data:image/png;base64,{base64.b64encode(chart.png).decode('ascii')}"


def _render(template: str, page: Document, styles: tuple[str, ...]) -> str:
    style = Markup("".join(_style(name) for name in styles))  # noqa: S704 - our own files, nothing from outside
    html = _environment().get_template(template).render(page=page, style=style)
    return _BLANKS.sub("\n", html)


@cache
def _environment() -> Environment:
    loader = PackageLoader("skuwise.advisor.show.writers", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_plain
    )
    environment.globals.update(kind_of=lambda block: type(block).__name__, data=_data)
    return environment


def _plain(value: object) -> object:
    """Text as it may stand in a page; what is markup already stays."""
    return clean(value) if type(value) is str else value


@cache
def _style(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0]


@cache
def _inliner() -> css_inline.CSSInliner:
    # What asks for the reader's screen cannot be inlined, and stays. Nothing is ever fetched.
    return css_inline.CSSInliner(keep_at_rules=True, load_remote_stylesheets=False)
