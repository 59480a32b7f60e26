"""A card, or a list of cards, as an HTML page that needs nothing else. All that comes from outside is escaped."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ....rules.base.sanitize import clean
from ...core.card_types import Card
from ...core.timestamps import minute
from ..pages.job_rows import CardList, card_rows, card_title, owner_line


def card_html(card: Card) -> str:
    """One card as a page."""
    written = minute(card.generated_at)
    return _page(title=card_title(card), card=card, owner=owner_line(card), rows=card_rows(card), written=written)


def list_html(listed: CardList) -> str:
    """A list as a page."""
    return _page(title="Jobs", card=None, listed=listed)


def _page(**values: object) -> str:
    environment = Environment(
        loader=PackageLoader("skuwise.advisor.show.writers.formats"), autoescape=True, undefined=StrictUndefined,
        keep_trailing_newline=True, finalize=lambda value: clean(value) if type(value) is str else value,
    )  # fmt: skip
    style = files("skuwise.advisor.show.writers").joinpath("templates", "card.css").read_text("utf-8")
    return environment.get_template("card.html").render(style=Markup(style), **values)  # noqa: S704 - our own file
