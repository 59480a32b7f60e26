"""The sections of an advice's page in full: each finding with its recommendations, and remarks on workloads."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import formatting as words
from ...core.advice_types import Advice, Recommendation
from ...core.latency_words import latency_words
from ...core.verdict_types import WorkloadVerdict
from ..finding_groups import cases
from ..phases import phase_sentence
from .explain_document import finding_sections, recommendation_sections
from .model import AsideBlock, Block, Section, section
from .page_options import Again
from .truncate import Lengths


def findings(advice: Advice, again: Again | None = None) -> tuple[Section, ...]:
    """Every finding with its evidence and its recommendations, as ``skuwise explain`` tells them; none where nothing
    was found."""
    told = []
    for number, case in enumerate(cases(advice), 1):
        first, *rest = finding_sections(advice, case.finding)
        details = AsideBlock("Details:", again.command("explain", case.finding.id)) if again is not None else None
        ways = (one for r in case.recommendations for one in recommendation_blocks(advice, r))
        told.append(section(f"{number}. {first.title}", *first.blocks, *rest, details, *ways))
    return (section("Findings in detail", *told),) if told else ()


def unprompted(advice: Advice) -> tuple[Section, ...]:
    """Recommendations that follow from no finding; none where there are none."""
    ways = [one for r in advice.recommendations if not r.findings for one in recommendation_blocks(advice, r)]
    return (section("Other recommendations", *ways),) if ways else ()


def market(advice: Advice) -> tuple[Section, ...]:
    """What other providers would charge; none where nobody asked."""
    if advice.market is None:
        return ()
    told = [one for r in advice.market for one in recommendation_blocks(advice, r)]
    return (section(words.MARKET, *(told or (words.NO_MARKET,))),)


def recommendation_blocks(advice: Advice, r: Recommendation) -> tuple[Section, ...]:
    """One recommendation within a page: what speaks for and against it, as one section."""
    first, *rest = recommendation_sections(advice, r, rejected=3)
    return (section(first.title, *first.blocks, *rest),)


def levers(advice: Advice, lengths: Lengths) -> tuple[Section, ...]:
    """What a lower precision would change, service by service; none where there is nothing to tell."""
    told = [f"{lengths.name(w.name)}: {one}" for w in advice.workloads for one in w.levers]
    return (section("Lower precision (not included in any sum)", lengths.bulleted(told, lengths.rows)),) if told else ()


def remarks(same: Sequence[Sequence[WorkloadVerdict]], lengths: Lengths) -> tuple[Block | None, ...]:
    """What a line of a table cannot show: the phases of workloads that change, and measured latency classes."""
    changing = [told for one in same if (told := phase_sentence(one[0])) is not None]
    # What its kind alone tells says nothing of this service: `explain` tells it.
    waiting = {
        w.series_id: f"{w.name}: latency class {latency_words(w.latency)}."
        for w, *_ in same
        if w.latency is not None and w.latency.basis != "kind"
    }
    return lengths.bulleted(changing, lengths.phases), lengths.bulleted(list(waiting.values()), lengths.phases)


def alike(workloads: Sequence[WorkloadVerdict]) -> list[list[WorkloadVerdict]]:
    """Replicas and restarts of one series with the same verdict on the same GPU, the largest first."""
    rows: dict[tuple[str | None, ...], list[WorkloadVerdict]] = {}
    for w in workloads:
        rows.setdefault((w.series_id, w.name, w.kind.label, w.bottleneck.label, w.gpu_sku), []).append(w)
    return sorted(rows.values(), key=lambda same: -sum(w.gpu_hours for w in same))
