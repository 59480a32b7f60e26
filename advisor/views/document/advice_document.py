"""An advice as a page: what was found, what each workload is, every finding with its ways out, and the prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...core.advice_types import Advice
from .. import coverage
from ..finding_groups import best, cases
from ..move_words import action_words
from . import advice_sections as parts
from . import head, mail_sections, sections
from .energy_section import energy_section
from .model import Bullets, Chart, Document, Section, section
from .reader_commands import ReaderCommands
from .report_content import FABRIC, KINDS, MONEY, Story, story_of
from .truncate import SCREEN, Lengths

Draw = Callable[[Story], Mapping[str, Chart]]


def advice_document(advice: Advice, lengths: Lengths, draw: Draw = lambda _: {}) -> Document:
    """The page of ``skuwise advise``. A whole one (`Lengths.whole`) has the parts of a report too; `draw`: its charts
    by name."""
    story = story_of(advice, None)
    charts = draw(story)
    told = sections.coverage(story, lengths)
    missing = bool(advice.notes or advice.summary.unobserved)
    return Document(
        title=head.subject(story, f"{head.whose(story)}: {head.headline(story)}"),
        heading=f"Advice for {coverage.window_words(advice)}: {coverage.size_words(advice.summary, ' (see below)')}",
        window="",
        summary=head.summary(story),
        tiles=head.tiles(story),
        sections=(
            *((told,) if missing else ()),
            parts.findings_table(advice, lengths),
            parts.workloads(advice, lengths),
            *(_report(story, charts, lengths) if lengths.whole else ()),
            *energy_section(story, lengths),
            *parts.findings(advice, lengths),
            *parts.unprompted(advice, lengths),
            *parts.levers(advice, lengths),
            *parts.market(advice, lengths),
            *(() if missing else (told,)),
            sections.method(story, charts.get(MONEY)),
            sections.prices(advice.prices, lengths),
        ),
        footer=(head.written(story),),
    )


def _report(story: Story, charts: Mapping[str, Chart], lengths: Lengths) -> tuple[Section, ...]:
    return (
        sections.kinds("What the GPUs did", story, charts.get(KINDS)),
        mail_sections.recommendations(story, lengths, ReaderCommands()),
        sections.idle(story, lengths),
        sections.fabric(story, charts.get(FABRIC), lengths),
    )


def overview_document(advice: Advice) -> Document:
    """The first page: the money, what was found in a line each, and what each workload is."""
    whole = advice_document(advice, SCREEN)
    first = (parts.findings_table(advice, SCREEN), parts.workloads(advice, SCREEN))
    return replace(whole, sections=first, footer=())


def case_sections(advice: Advice, rule: str) -> tuple[Section, ...]:
    """The dearest case of one rule as plain prose: what was found, each way out in a sentence. Empty: no such case."""
    found = [case for case in cases(advice) if case.finding.rule == rule]
    if not found:
        return ()
    case = max(found, key=lambda c: c.finding.cost_usd or 0.0)
    told = section(
        f"In words: the case of {rule} that costs most",
        case.finding.text,
        Bullets(tuple(f"{action_words(way)}: {way.text}" for way in case.ways_out)),
        best(case),
        sections.wrong_if(case.finding.would_change_if, SCREEN),
    )
    return (told,)
