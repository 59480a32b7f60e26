"""The sections of an advice's page in full: each finding with its recommendations, and remarks on workloads."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import formatting as words
from ...core.advice_types import Advice, Recommendation
from ...core.coded_text import CodedText
from ...core.latency_words import latency_words
from ...core.verdict_types import WorkloadVerdict
from ..finding_groups import FindingGroup, cases
from ..move_words import fact_of
from ..phases import phase_sentence
from ..titles import Titles, finding_cost, gain_text
from .model import AsideBlock, Block, Bullets, Figures, Section, section
from .page_options import Again
from .truncate import Lengths

_REJECTED = 3  # node types of one recommendation, with their reasons


def findings(advice: Advice, lengths: Lengths, again: Again | None = None) -> tuple[Section, ...]:
    """Every finding with its evidence and its recommendations; none where nothing was found."""
    titles = Titles(advice)
    told = [_case(number, case, advice, titles, lengths, again) for number, case in enumerate(cases(advice), 1)]
    return (section("Findings in detail", *told),) if told else ()


def _case(  # noqa: PLR0917
    number: int, case: FindingGroup, advice: Advice, titles: Titles, lengths: Lengths, again: Again | None
) -> Section:
    f = case.finding
    cost = (("Cost in the window", words.usd(f.cost_usd)),) if f.cost_usd is not None else ()
    return section(
        f"{number}. {lengths.name(titles.resource(f))}: {fact_of(f.rule)} ({finding_cost(f, advice)})",
        f.text,
        Figures(
            (
                ("Rule, severity", f"{f.rule}, {f.severity}"),
                *cost,
                ("GPU-hours", words.bare_hours(f.gpu_hours)),
                ("Confidence", words.percent(f.confidence)),
                ("Measured", "; ".join(map(words.evidence_words, f.evidence)) or words.NONE),
                ("Id", f.id),
            )
        ),
        *_conditions(f.would_change_if, lengths),
        AsideBlock("Details:", again.command("explain", f.id)) if again is not None else None,
        *options_of(case.recommendations, advice, titles, lengths),
    )


def unprompted(advice: Advice, lengths: Lengths) -> tuple[Section, ...]:
    """Recommendations that follow from no finding; none where there are none."""
    ways = [r for r in advice.recommendations if not r.findings]
    return (section("Other recommendations", *options_of(ways, advice, Titles(advice), lengths)),) if ways else ()


def market(advice: Advice, lengths: Lengths) -> tuple[Section, ...]:
    """What other providers would charge; none where nobody asked."""
    if advice.market is None:
        return ()
    told = options_of(advice.market, advice, Titles(advice), lengths)
    return (section(words.MARKET, *(told or (words.NO_MARKET,))),)


def options_of(ways: Sequence[Recommendation], advice: Advice, titles: Titles, lengths: Lengths) -> tuple[Block, ...]:
    """Recommendations, each with what speaks for and against it."""
    return tuple(_option(r, advice, titles, lengths) for r in ways)


def _option(r: Recommendation, advice: Advice, titles: Titles, lengths: Lengths) -> Section:
    rejected = [f"Rejected {one.sku}: {one.reason}." for one in r.rejected[:_REJECTED]]
    more = len(r.rejected) - _REJECTED
    if more > 0:
        rejected.append(f"{more} more node types rejected; reasons in --format json.")
    figures = (
        ("Predicted time", words.time_words(r.time_ratio)), ("Break-even", r.break_even or words.NONE),
        ("Risk", r.risk), ("Id", r.id),
    )  # fmt: skip
    return section(
        f"{titles.of(r)} ({'blocked' if r.blocked_by else gain_text(r, advice)})",
        r.text,
        Figures(tuple((name, value) for name, value in figures if value != words.NONE)),
        f"Blocked by: {'; '.join(map(str, r.blocked_by))}." if r.blocked_by else "",
        f"Decision: {words.decision_words(r.decision)}." if r.decision is not None else "",
        _levers_in_short(r),
        *_conditions(r.would_change_if, lengths),
        Bullets(tuple(rejected)),
    )


def _conditions(conditions: Sequence[CodedText], lengths: Lengths) -> tuple[Block, ...]:
    """What would change a verdict, one a line; none where nothing is known to."""
    told = [words.clause(str(one)) for one in conditions[: lengths.conditions]]
    return ("This would change if:", Bullets(tuple(told))) if told else ()


def _levers_in_short(r: Recommendation) -> str:
    """Where another precision would lead, for a section of its own has the rest; empty where there is none."""
    told = [one.fields for one in r.levers]
    ways = [f"in {str(f.get('precision')).upper()} {f.get('gpus')} x {f.get('sku')} a copy" for f in told]
    return f"Lower precision, not included in any sum: {', '.join(ways)}; see below." if ways else ""


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
