"""A report as HTML: the mail, its styles inlined, and the page that stands alone. All that it is given is escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import cache

import css_inline
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...rules.base.sanitize import clean
from ..views.document.model import Block, Chart, Document

_BLANKS = re.compile(r"\s*\n\s*")


def mail_html(page: Document) -> str:
    """The HTML part of a mail. Its charts are shown as ``cid:NAME``, so each goes with the mail as an image."""
    html = _render("mail.html", page, ("style.css",), lambda chart: f"cid:{chart.name}")
    return _inliner().inline(html)


def page_html(page: Document) -> str:
    """A page that needs nothing else: no script, no address outside, charts within it."""
    return _render("page.html", page, ("style.css", "page.css"), _data)


def _data(chart: Chart) -> str:
    return f"data:image/png;base64,{base64.b64encode(chart.png).decode('ascii')}"


def _render(template: str, page: Document, styles: tuple[str, ...], source: Callable[[Chart], str]) -> str:
    style = Markup("".join(_style(name) for name in styles))  # noqa: S704 - our own files, nothing from outside
    html = _environment().get_template(template).render(page=page, source=source, style=style)
    return _BLANKS.sub("\n", html)


@cache
def _environment() -> Environment:
    loader = PackageLoader("skuwise.advisor.render", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_plain
    )
    environment.globals["kind_of"] = _kind_of
    return environment


def _plain(value: object) -> object:
    """Text as it may stand in a page; what is markup already stays."""
    return clean(value) if type(value) is str else value


def _kind_of(block: Block) -> str:
    return type(block).__name__


@cache
def _style(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0]


@cache
def _inliner() -> css_inline.CSSInliner:
    # What asks for the reader's screen cannot be inlined, and stays. Nothing is ever fetched.
    return css_inline.CSSInliner(keep_at_rules=True, load_remote_stylesheets=False)
