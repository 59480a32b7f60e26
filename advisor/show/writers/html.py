"""A page as HTML: the mail, its styles inlined, and the page that stands alone. Everything it is given is escaped."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import css_inline
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ....rules.base.sanitize import clean
from ..document import Block, Document, Section

_TEMPLATES = Path(__file__).parent / "templates"
_BLANKS = re.compile(r"\s*\n\s*")
_TEXT = re.compile(r"(?<=>)[^<>]+(?=<)")  # between two tags
# What a browser may break after a slash or hyphen, or before a percent sign. Outside names have to break: they may be
# longer than a screen.
_WHOLE = re.compile(
    r"(?<![\w-])(?:\d{4}-\d\d-\d\d|[+-]?\$?\d[\d,.]*[kM]?(?:/(?:month|hour)| %)|(?:GPU-hours|kWh)(?:/month)?"
    r"|[a-z]-[0-9a-f]{8,16}(?![\w-])|--[a-z]{1,16})"
)
_SHORT = 10  # characters of a short id
_ID = re.compile(r"(?<![\w-])[a-z]-[0-9a-f]{8,16}(?![\w-])")


def mail_html(page: Document) -> str:
    """The HTML part of a mail. Its figures, dates, ids and options are never broken, however narrow the screen."""
    head, body = _render("mail.html", page, ("style.css",)).split("<body>", 1)
    whole = _TEXT.sub(lambda text: _WHOLE.sub(r'<span class="whole">\g<0></span>', text[0]), body)
    # Media queries cannot be inlined and stay. Nothing is fetched.
    inliner = css_inline.CSSInliner(keep_at_rules=True, load_remote_stylesheets=False)
    return inliner.inline(f"{head}<body>{whole}")


def page_html(page: Document) -> str:
    """A page that needs nothing else: no script, no address outside; ids link to their block within it."""
    anchors = {id_[:_SHORT]: id_ for id_ in _section_ids(page.sections)}  # by the short form of the id

    def link(match: re.Match[str]) -> str:
        anchor = anchors.get(match[0][:_SHORT], "")
        return f'<a class="link whole" href="#{escape(anchor)}">{match[0]}</a>' if anchor else match[0]

    def linked(text: str) -> Markup:
        return Markup(_ID.sub(link, str(escape(clean(text)))))  # noqa: S704 - escaped before

    return _render("page.html", page, ("style.css", "page.css"), linked=linked)


def _section_ids(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Section):
            yield from (block.id,) if block.id else ()
            yield from _section_ids(block.blocks)


def _render(template: str, page: Document, styles: tuple[str, ...], linked: Callable[[str], str] = str) -> str:
    style = Markup("".join((_TEMPLATES / name).read_text() for name in styles))  # noqa: S704 - files of the package
    html = _environment().get_template(template).render(page=page, style=style, linked=linked)
    return _BLANKS.sub("\n", html)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: clean(value) if type(value) is str else value,
    )  # fmt: skip
    environment.globals["kind_of"] = lambda block: type(block).__name__
    return environment
