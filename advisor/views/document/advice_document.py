"""The whole advice as a page: recommendations, findings, workloads, and every finding in detail."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...core.advice_types import Advice
from .. import coverage
from . import advice_head as top
from . import advice_page as page
from . import advice_sections as parts
from . import footer, sections
from .energy_section import energy_section
from .model import Chart, Document
from .page_options import Again, PageOptions
from .report_content import FABRIC, KINDS, MONEY, Story, story_of
from .truncate import Lengths

Draw = Callable[[Story], Mapping[str, Chart]]
_WHOLE = PageOptions(whole=True)


def advice_document(
    advice: Advice, lengths: Lengths, draw: Draw = lambda _: {}, again: Again | None = None
) -> Document:
    """The page of the formats that stand alone, with every section. `draw`: its charts by name; `again`: how to run a
    command on the same telemetry."""
    story = story_of(advice, None)
    charts = draw(story)
    return Document(
        title=top.heading(advice),
        heading=top.heading(advice),
        window=f"{coverage.window_words(advice)}: {coverage.size_words(advice.summary)}",
        summary=top.basis(advice),
        tiles=top.figures(advice),
        sections=(
            page.recommendations(advice, _WHOLE),
            page.findings(advice, _WHOLE),
            parts.workloads(advice, lengths),
            *page.notes(advice, _WHOLE),
            sections.kinds("GPU-hours by kind", story, charts.get(KINDS)),
            sections.idle(story, lengths),
            sections.fabric(story, charts.get(FABRIC), lengths),
            *energy_section(story, lengths),
            *parts.findings(advice, lengths, again),
            *parts.unprompted(advice, lengths),
            *parts.levers(advice, lengths),
            *parts.market(advice, lengths),
            sections.coverage(story, lengths, notes=False),
            sections.method(story, charts.get(MONEY)),
            sections.prices(advice.prices, lengths),
        ),
        footer=(footer.written(story),),
    )
