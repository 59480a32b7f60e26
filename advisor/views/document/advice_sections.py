"""The sections of an advice's page: its findings with their ways out, and its workloads."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import formatting as words
from ...core.advice_types import Advice, Recommendation
from ...core.latency_words import latency_words
from ...core.verdict_types import WorkloadVerdict
from .. import coverage
from ..finding_groups import FindingGroup, best, best_recommendation, cases, without_finding
from ..move_words import action_words
from ..phases import phase_sentence
from . import sections
from .model import AsideBlock, Block, Bullets, Figures, Section, Table, section
from .truncate import Lengths


def findings_table(advice: Advice, lengths: Lengths) -> Section:
    """Every finding in a line, numbered as they are told further down."""
    found = cases(advice)
    names, priced = {w.id: w.name for w in advice.workloads}, words.has_prices(advice.summary)

    def row(number: int, case: FindingGroup) -> tuple[str, ...]:
        f, way = case.finding, best_recommendation(case)
        cost = words.cost(f.cost_usd, f.gpu_hours, priced)
        return (
            str(number), lengths.name(f.rule), _about(case, names, lengths), cost,
            action_words(way) if way is not None else "none that saves",
            words.claim_words(way) if way is not None else words.NONE,
        )  # fmt: skip

    heads = ("", "finding", "of", words.cost_head("cost so far", priced), "best way out", "comes to")
    rows = tuple(row(number, case) for number, case in enumerate(found, 1))
    return section("Found", "" if found else coverage.nothing_found_words(advice), Table(heads, rows))


def findings(advice: Advice, lengths: Lengths) -> tuple[Section, ...]:
    """Every finding with its evidence and its ways out; none where nothing was found."""
    names = {w.id: w.name for w in advice.workloads}
    told = [_case(number, case, names, lengths) for number, case in enumerate(cases(advice), 1)]
    return (section("Findings and ways out", *told),) if told else ()


def _about(case: FindingGroup, names: dict[str, str], lengths: Lengths) -> str:
    f = case.finding
    nodes = f.nodes or ((f.node,) if f.node else ())
    return lengths.name(names.get(f.workload or "") or words.listed(nodes) or words.NONE)


def _case(number: int, case: FindingGroup, names: dict[str, str], lengths: Lengths) -> Section:
    f = case.finding
    cost = (("Cost in the window", words.usd(f.cost_usd)),) if f.cost_usd is not None else ()
    return section(
        f"{number}. {f.rule} ({f.severity}): {_about(case, names, lengths)}",
        f.text,
        Figures(
            (
                *cost,
                ("GPU-hours", sections.bare_hours(f.gpu_hours)),
                ("Confidence", words.percent(f.confidence)),
                ("Measured", "; ".join(map(words.evidence_words, f.evidence)) or words.NONE),
            )
        ),
        AsideBlock(sections.wrong_if(f.would_change_if, lengths)),
        AsideBlock("Look closer:", f"skuwise explain {f.id}"),
        *_options(case.ways_out, lengths),
        best(case) if case.ways_out else None,
    )


def unprompted(advice: Advice, lengths: Lengths) -> tuple[Section, ...]:
    """Recommendations that follow from no finding; none where there are none."""
    ways = without_finding(advice)
    return (section("Moves that need no waste to pay", *_options(ways, lengths)),) if ways else ()


def market(advice: Advice, lengths: Lengths) -> tuple[Section, ...]:
    """What other providers would charge; none where nobody asked."""
    if advice.market is None:
        return ()
    return (section(words.MARKET, *(_options(advice.market, lengths) or (words.NO_MARKET,))),)


def _options(ways: Sequence[Recommendation], lengths: Lengths) -> tuple[Block, ...]:
    """Ways out compared in a table, then each with what speaks for and against it."""
    if not ways:
        return ()
    lettered = [(f"{chr(ord('a') + n % 26)})", r) for n, r in enumerate(ways)]

    def row(letter: str, r: Recommendation) -> tuple[str, ...]:
        blocked = f"yes, see {letter}" if r.blocked_by else "no"
        return (
            f"{letter} {action_words(r)}", words.target_words(r), words.time_words(r.time_ratio),
            words.claim_words(r), r.break_even or words.NONE, r.risk,
            r.decision.state if r.decision and r.set_aside else blocked,
        )  # fmt: skip

    heads = ("way out", "to", "predicted time", "saving", "break-even demand", "risk", "blocked")
    return (
        Table(heads, tuple(row(*one) for one in lettered)),
        *(_option(letter, r, lengths) for letter, r in lettered),
    )


def _option(letter: str, r: Recommendation, lengths: Lengths) -> Section:
    rejected = [f"Not {one.sku}: {one.reason}." for one in r.rejected]
    more = len(rejected) - lengths.rejected
    shown = rejected[: lengths.rejected]
    if more > 0:
        shown.append(f"Nor {more} other nodes, each for its reason: --format markdown or json tells.")
    return section(
        f"{letter} {action_words(r)} ({r.action}, {r.id})",
        r.text,
        f"Blocked by: {'; '.join(map(str, r.blocked_by))}." if r.blocked_by and lengths.whole else "",
        f"Decided: {words.decision_words(r.decision)}." if r.decision is not None else "",
        _levers_in_short(r),
        AsideBlock(sections.wrong_if(r.would_change_if, lengths)),
        Bullets(tuple(shown)),
    )


def _levers_in_short(r: Recommendation) -> str:
    """Where another precision would lead, for a section of its own tells the rest; empty where there is none."""
    told = [one.fields for one in r.levers]
    ways = [f"in {str(f.get('precision')).upper()} {f.get('gpus')} x {f.get('sku')} a copy" for f in told]
    return f"Levers, in no sum: {', '.join(ways)}; see below." if ways else ""


def levers(advice: Advice, lengths: Lengths) -> tuple[Section, ...]:
    """What a lower precision would change, service by service; none where there is nothing to tell."""
    told = [f"{lengths.name(w.name)}: {one}" for w in advice.workloads for one in w.levers]
    return (section("Levers, in no sum", lengths.bulleted(told, lengths.rows)),) if told else ()


def workloads(advice: Advice, lengths: Lengths) -> Section:
    """What each workload is; replicas and restarts of one series in a line, unless each run is wanted."""
    if not advice.workloads:
        return section("Workloads", "No workload was observed in this window.")
    alike = [[w] for w in advice.workloads] if lengths.whole else _alike(advice.workloads)
    what = ("workload", "kind", "held back by", "GPUs", *(("nodes",) if lengths.whole else ()))
    heads, rows = sections.costed(
        (*what, "GPU-hours", "cost"),
        (_row(same, with_nodes=lengths.whole) for same in alike[: lengths.rows]),
        words.has_prices(advice.summary),
    )
    right = tuple(range(len(what), len(heads)))
    changing = [told for same in alike[: lengths.rows] if (told := phase_sentence(same[0])) is not None]
    # What its kind alone tells says nothing of this service: `explain` tells it.
    waiting = {
        w.series_id: f"{w.name}: latency class {latency_words(w.latency)}."
        for w, *_ in alike[: lengths.rows] if w.latency is not None and w.latency.basis != "kind"
    }  # fmt: skip
    return section(
        "Workloads",
        Table(heads, rows, right, lengths.more(alike, lengths.rows)),
        lengths.bulleted(changing, lengths.phases),
        lengths.bulleted(list(waiting.values()), lengths.phases),
    )


def _alike(workloads: Sequence[WorkloadVerdict]) -> list[list[WorkloadVerdict]]:
    """Replicas and restarts of one series with the same verdict on the same GPU, the largest first."""
    rows: dict[tuple[str | None, ...], list[WorkloadVerdict]] = {}
    for w in workloads:
        rows.setdefault((w.series_id, w.name, w.kind.label, w.bottleneck.label, w.gpu_sku), []).append(w)
    return sorted(rows.values(), key=lambda same: -sum(w.gpu_hours for w in same))


def _row(same: Sequence[WorkloadVerdict], *, with_nodes: bool) -> tuple[str, ...]:
    first = same[0]
    gpus = len({gpu for w in same for gpu in w.gpus})
    costs = [w.cost_usd for w in same if w.cost_usd is not None]
    hours = sum(w.gpu_hours for w in same)
    return (
        first.name if len(same) == 1 else f"{first.name} ({len(same)} runs)",
        f"{first.kind.label} {words.percent(min(w.kind.confidence for w in same))}", first.bottleneck.label,
        f"{gpus} {first.gpu_sku or 'unknown GPU'}", *((", ".join(first.nodes),) if with_nodes else ()),
        sections.bare_hours(hours),
        words.cost(sum(costs) if len(costs) == len(same) else None, hours, priced=True),
    )  # fmt: skip
