"""An advice as a page: the story's sections without the week before, then every finding, way out and workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core import formatting as words
from ...core.advice_types import Advice, Recommendation
from ...moves.recommendation_kinds import action_words
from .. import coverage
from ..finding_groups import Case, best, cases, loose
from . import sections
from .mail_document import FABRIC, KINDS, MONEY, brevity_of, headed, kinds_section
from .report_content import Story
from .sections import WHOLE
from .truncate import Brief, brief
from .types import Card, Chart, Page, Section, Sheet

_HEADS = ("way out", "to", "predicted time", "saving", "risk", "blocked")


def whole_page_of(story: Story, charts: Mapping[str, Chart]) -> Page:
    """The page of ``skuwise advise --format html``: nothing is left out of it; only names are cut."""
    brevity = brevity_of(story)
    return headed(
        story,
        (
            kinds_section("What the GPUs did", story, charts.get(KINDS)),
            sections.moves(story, brevity, WHOLE),
            sections.idle(story, WHOLE),
            sections.fabric(story, charts.get(FABRIC), WHOLE),
            sections.coverage(story, brevity, WHOLE),
            _findings(story.advice, brevity),
            *_loose(story.advice, brevity),
            *_market(story.advice, brevity),
            _workloads(story.advice),
            sections.method(story, charts.get(MONEY)),
            sections.prices(story, WHOLE),
        ),
    )


def _findings(advice: Advice, brevity: Brief) -> Section:
    found = cases(advice)
    if not found:
        return Section("Findings", (coverage.nothing_found(advice),))
    names = {w.id: w.name for w in advice.workloads}
    return Section("Findings and ways out", cards=tuple(_case(case, names, brevity) for case in found))


def _case(case: Case, names: Mapping[str, str], brevity: Brief) -> Card:
    f = case.finding
    about = names.get(f.workload or "") or words.listed([brief(n) for n in f.nodes]) or words.NONE
    return Card(
        title=f"{brief(f.rule)} ({f.severity}): {brevity.sentence(about, 160)}",
        sentences=(brevity.sentence(f.text), *((best(case),) if case.ways_out else ())),
        figures=(
            *((("Cost in the window", words.usd(f.cost_usd)),) if f.cost_usd is not None else ()),
            ("GPU-hours", sections.bare_hours(f.gpu_hours)),
            ("Confidence", words.percent(f.confidence)),
            ("Measured", brevity.sentence("; ".join(map(words.evidence_words, f.evidence)) or words.NONE)),
        ),
        wrong_if=sections.wrong_if(f.would_change_if, brevity),
        command=brief(f"skuwise explain {f.id}"),
        sheet=_options(case.ways_out) if case.ways_out else None,
        bullets=tuple(_told(r, brevity) for r in case.ways_out),
    )


def _loose(advice: Advice, brevity: Brief) -> tuple[Section, ...]:
    ways = loose(advice)
    title = "Moves that need no waste to pay"
    return (Section(title, sheet=_options(ways), bullets=tuple(_told(r, brevity) for r in ways)),) if ways else ()


def _market(advice: Advice, brevity: Brief) -> tuple[Section, ...]:
    if advice.market is None:
        return ()
    if not advice.market:
        return (Section(words.MARKET, (words.NO_MARKET,)),)
    told = tuple(_told(r, brevity) for r in advice.market)
    return (Section(words.MARKET, sheet=_options(advice.market), bullets=told),)


def _options(ways: Sequence[Recommendation]) -> Sheet:
    def row(r: Recommendation) -> tuple[str, ...]:
        saving = words.claim_words(r)
        state = r.decision.state if r.decision and r.set_aside else "yes" if r.blocked_by else "no"
        return (
            action_words(r), brief(words.target_words(r)), words.time_words(r.time_ratio), saving, r.risk, state,
        )  # fmt: skip

    return Sheet(_HEADS, tuple(map(row, ways)))


def _told(r: Recommendation, brevity: Brief) -> str:
    told = f"{action_words(r)} ({brief(r.id)}): {brevity.sentence(r.text)}"
    if r.decision is not None:
        told += f" Decided: {brevity.sentence(words.decision_words(r.decision), 160)}."
    wrong = sections.wrong_if(r.would_change_if, brevity)
    return f"{told} {wrong}".rstrip()


def _workloads(advice: Advice) -> Section:
    if not advice.workloads:
        return Section("Workloads", ("No workload was observed in this window.",))
    rows = tuple(
        (
            brief(w.name), f"{w.kind.label} {words.percent(w.kind.confidence)}", w.bottleneck.label,
            f"{len(w.gpus)} {brief(w.gpu_sku or 'unknown GPU')}", sections.bare_hours(w.gpu_hours),
            words.cost(w.cost_usd, w.gpu_hours, priced=True),
        )
        for w in advice.workloads
    )  # fmt: skip
    heads: tuple[str, ...] = ("workload", "kind", "held back by", "GPUs", "GPU-hours", "cost")
    if not words.has_prices(advice.summary):
        heads, rows = (*heads[:-2], sections.IN_HOURS), tuple(row[:-1] for row in rows)
    return Section("Workloads", sheet=Sheet(heads, rows, tuple(range(4, len(heads)))))
