"""The whole advice as a page that stands alone, with charts."""

from __future__ import annotations

from ...core.advice_types import Advice
from ...views.document.advice_page import whole_page
from ...views.document.truncate import WHOLE
from ..charts import charts_of
from ..format import Format, Screen
from ..html import page_html
from ..ink import Words


def _render(advice: Advice, screen: Screen) -> str:
    return page_html(whole_page(advice, WHOLE, lambda story: charts_of(story, Words()), screen.page.again))


FORMAT = Format("text/html", ".html", _render)
