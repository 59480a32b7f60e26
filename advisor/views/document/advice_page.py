"""The page of ``skuwise advise`` on a terminal: two screens whatever the fleet, and single sections in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...core import formatting as words
from ...core.advice_types import Advice, Finding, Recommendation
from ...core.coded_text import all_of
from ...core.exclusions import compatible
from ...core.ids import short_ids
from ...core.verdict_types import WorkloadVerdict
from ...core.worth import Worth
from .. import coverage
from ..aggregates import blind_spots
from ..move_words import fact_of
from ..note_groups import note_groups
from ..titles import Titles, gain_text, monthly, rounded_usd
from ..worth import Folded, folded, is_open, shown_recommendations, small_recommendations
from . import advice_head as head
from . import advice_sections as parts
from . import sections
from .energy_section import energy_section
from .model import AsideBlock, Block, Bullets, Document, Figures, Section, Table, section
from .page_options import SHORT, Again, PageOptions
from .report_content import Story, story_of
from .truncate import SCREEN, Lengths, brief

_NAME, _NOTE, _TITLE = 28, 200, 200


def advice_page(advice: Advice, options: PageOptions = SHORT, lengths: Lengths = SCREEN) -> Document:
    """The page with the sections that `options` ask for; without any, the short one."""
    every = (
        ("recommendations", lambda: (recommendations(advice, options),)),
        ("findings", lambda: (findings(advice, options), *(_details(advice, options, lengths)))),
        ("workloads", lambda: (workloads(advice, options),)),
        ("notes", lambda: notes(advice, options)),
    )
    shown = [one for name, build in every if options.short or options.shows(name) for one in build()]
    if not options.short:
        shown += _more(advice, options, lengths)
    elif advice.market is not None:
        shown += [_market(advice)]
    return Document(
        title=head.heading(advice),
        heading=head.heading(advice),
        window=f"{coverage.window_words(advice)}: {coverage.size_words(advice.summary)}",
        summary=head.basis(advice),
        tiles=head.figures(advice),
        sections=(*shown, *_next(advice, options)),
    )


def _more(advice: Advice, options: PageOptions, lengths: Lengths) -> list[Section]:
    """The sections that only `options` bring."""
    story: Story = story_of(advice, None)
    every = {
        "coverage": lambda: (sections.coverage(story, lengths, notes=False),),
        "energy": lambda: energy_section(story, lengths),
        "idle": lambda: (sections.idle(story, lengths),),
        "fabric": lambda: (sections.fabric(story, None, lengths),),
        "kinds": lambda: (sections.kinds("GPU-hours by kind", story, None),),
        "levers": lambda: parts.levers(advice, lengths),
        "market": lambda: parts.market(advice, lengths),
        "method": lambda: (sections.method(story, None),),
        "prices": lambda: (sections.prices(advice.prices, lengths),),
    }
    return [one for name, build in every.items() if options.shows(name) for one in build()]


def recommendations(advice: Advice, options: PageOptions = SHORT) -> Section:
    """What to do, worth most first: the action with its gain and its risk, and the id that ``explain`` takes."""
    shown, rest = shown_recommendations(advice), folded(advice)
    most = options.rows.recommendations if options.short else len(shown)
    small = () if options.short else small_recommendations(advice)
    blocked = [r for r in advice.recommendations if r.blocked_by]
    decided = [r for r in advice.recommendations if not is_open(r) and not r.blocked_by]
    listed = [*shown[:most], *small, *(() if options.short else decided), *(blocked if options.verbose else ())]
    short, titles = short_ids(r.id for r in advice.recommendations), Titles(advice)

    worth = Worth(advice)

    def row(r: Recommendation) -> tuple[str, str]:
        more = [gain_text(r, advice)]
        if r.saving_usd_per_month is None and r.freed_gpu_hours_per_month > 0 and worth.gpu_hour_usd(r) is not None:
            more.append(f"worth {head.short_usd(worth.usd(r).p50)}")
        more.append(f"{r.risk.replace('-', ' ')} risk")
        if r.blocked_by:
            return brief(short[r.id], 20), f"{brief(titles.of(r), _TITLE)}. Blocked: {all_of(r.blocked_by).text}"
        if r.decision is not None and r.decision.state != "proposed":
            more.append(words.decision_words(r.decision))
        return brief(short[r.id], 20), f"{brief(titles.of(r), _TITLE)} ({', '.join(more)})"

    return section(
        "Recommendations",
        "" if shown else _no_recommendation(advice),
        Figures(tuple(map(row, listed))),
        _left_out(len(shown) - most, "" if small else _small_words(rest), 0 if options.verbose else len(blocked)),
        _decisions(decided) if options.short else "",
    )


def _no_recommendation(advice: Advice) -> str:
    s = advice.summary
    if not s.gpu_count and not advice.workloads:
        return "No GPU was observed in this window, so there is nothing to recommend."
    if s.nothing_judged and s.gpu_count:
        return f"No recommendation yet. {coverage.why_not_judged(s)}"
    if s.partly_judged:
        return f"No recommendation for the GPUs that were judged ({coverage.judged_of(s)})."
    return "No recommendation: nothing saves enough now."


def _decisions(decided: Sequence[Recommendation]) -> str:
    """``Decided: 2 accepted, 1 dismissed.``; empty where nothing was."""
    states = Counter(r.decision.state for r in decided if r.decision is not None)
    return f"Decided: {', '.join(f'{count:,} {state}' for state, count in sorted(states.items()))}." if states else ""


def _small_words(rest: Folded) -> str:
    if not rest.count:
        return ""
    sums = [
        f"{words.usd(rest.usd_per_month)}/month" if rest.usd_per_month > 0 else "",
        f"{words.hours(rest.gpu_hours_per_month)}/month" if rest.gpu_hours_per_month > 0 else "",
        f"{rest.kwh_per_month:,.0f} kWh/month" if rest.kwh_per_month > 0 else "",
    ]
    return f"{rest.count:,} below {words.usd(rest.minimum)}/month or uncertain (total {', '.join(filter(None, sums))})"


def _left_out(more: int, small: str, blocked: int) -> str:
    left = [f"{more:,} more" if more > 0 else "", small, f"{blocked:,} blocked" if blocked else ""]
    told = "; ".join(filter(None, left))
    return f"Not shown: {told}." if told else ""


def findings(advice: Advice, options: PageOptions = SHORT) -> Section:
    """Findings by rule: how many and what they cost a month, the largest of each with their ids."""
    groups: dict[str, list[Finding]] = {}
    for f in advice.findings:
        groups.setdefault(f.rule, []).append(f)
    if not groups:
        return section("Findings", coverage.nothing_found_words(advice))
    ordered = sorted(groups.items(), key=lambda one: (-_usd(one[1]), -_hours(one[1]), one[0]))
    kept = ordered[: options.rows.rules] if options.short else ordered
    each = max((options.rows.findings - len(kept)) // len(kept), 0) if options.short else len(advice.findings)
    short, titles = short_ids(f.id for f in advice.findings), Titles(advice)
    rows: list[tuple[str, ...]] = []
    for rule, same in kept:
        rows.append((f"{brief(fact_of(rule), _NAME + 8)} ({len(same):,})", brief(rule, 20), _cost(same, advice)))
        largest = sorted(same, key=lambda f: (-_usd([f]), -f.gpu_hours, f.id))[: each or (1 if len(same) == 1 else 0)]
        rows += [(f"  {brief(titles.resource(f), _NAME)}", brief(short[f.id], 20), _cost([f], advice)) for f in largest]
    left = len(ordered) - len(kept)
    more = f"and {left} more rules: --section findings" if left > 0 else ""
    return section(
        "Findings",
        Table(("finding", "id", "cost/month"), tuple(rows), (2,), more),
        "Costs of different findings can overlap; 'Wasted' counts each GPU-hour once." if len(groups) > 1 else "",
    )


def _usd(same: Sequence[Finding]) -> float:
    return sum(f.cost_usd or 0.0 for f in same)


def _hours(same: Sequence[Finding]) -> float:
    return sum(f.gpu_hours for f in same)


def _cost(same: Sequence[Finding], advice: Advice) -> str:
    """Dollars where any are known, else GPU-hours, with its unit."""
    if any(f.cost_usd is not None for f in same):
        return rounded_usd(monthly(_usd(same), advice) or 0.0)
    hours = monthly(_hours(same), advice)
    return words.hours(_hours(same) if hours is None else hours)


def _details(advice: Advice, options: PageOptions, lengths: Lengths) -> tuple[Section, ...]:
    """Each finding with its evidence and its recommendations; only where asked."""
    return parts.findings(advice, lengths, options.again) if options.verbose else ()


def workloads(advice: Advice, options: PageOptions = SHORT, lengths: Lengths = SCREEN) -> Section:
    """The workloads that cost most; replicas and restarts of one series in a line."""
    if not advice.workloads:
        return section("Workloads", "No workload was observed in this window.")
    priced = words.has_prices(advice.summary)
    alike = sorted(parts.alike(advice.workloads), key=lambda same: (-_workload_key(same, priced), same[0].id))
    shown = alike[: options.rows.workloads] if options.short else alike
    short = short_ids(w.id for w in advice.workloads)

    def row(same: Sequence[WorkloadVerdict]) -> tuple[str, ...]:
        first = same[0]
        runs = f" ({len(same)} runs)" if len(same) > 1 else ""
        gpus = len({gpu for w in same for gpu in w.gpus})
        return (
            f"{brief(first.name, _NAME)}{runs}", brief(short[first.id], 20), first.kind.label, first.bottleneck.label,
            f"{gpus:,} {words.gpu_name(first.gpu_sku)}", _workload_cost(same, advice),
        )  # fmt: skip

    left = len(alike) - len(shown)
    heads = ("workload", "id", "kind", "bottleneck", "GPUs", "cost/month" if priced else "GPU-hours/month")
    return section(
        f"Workloads by {'cost' if priced else 'GPU-hours'}",
        Table(heads, tuple(map(row, shown)), (5,), f"and {left:,} more: --section workloads" if left > 0 else ""),
        *(() if options.short else parts.remarks(shown, lengths)),
    )


def _workload_key(same: Sequence[WorkloadVerdict], priced: bool) -> float:
    return sum((w.cost_usd or 0.0) if priced else w.gpu_hours for w in same)


def _workload_cost(same: Sequence[WorkloadVerdict], advice: Advice) -> str:
    costs = [w.cost_usd for w in same if w.cost_usd is not None]
    if costs and len(costs) == len(same):
        return words.usd(monthly(sum(costs), advice))
    hours = monthly(sum(w.gpu_hours for w in same), advice) or 0.0
    return words.hours(hours, "GPU-hours" if words.has_prices(advice.summary) else "").rstrip()


def notes(advice: Advice, options: PageOptions = SHORT) -> tuple[Section, ...]:
    """What limits the verdicts: notes by code, counted; all of them where asked. None where there is nothing."""
    missing = _missing(advice)
    dark = [
        brief(f"{gpus} {'GPU' if gpus == '1' else 'GPUs'} not observed on {nodes}: {reason}", _NOTE)
        for nodes, gpus, reason, _ in coverage.unobserved_rows(advice.summary)
    ]
    if options.verbose:
        spots = [f"{b.why} ({b.what} of {words.counted(b.workloads, 'workload')})" for b in blind_spots(advice)]
        told = [*dark, *(note.text for note in advice.notes), *spots]
    else:
        # Without any price, the head has the note on prices already.
        skip = words.PRICE_NOTES if advice.summary.cost_usd is None else frozenset[str]()
        groups = [brief(group.text, _NOTE) for group in note_groups(advice.notes) if group.code not in skip]
        told = [*dark, *groups, *([missing] if missing else [])]
    most = options.rows.notes if options.short and not options.verbose else len(told)
    more = f"{len(told) - most} more kinds of notes" if len(told) > most else ""
    return (section("Notes", Bullets((*told[:most], *((more,) if more else ())))),) if told else ()


def _missing(advice: Advice) -> str:
    spots = blind_spots(advice)
    if not spots:
        return ""
    names = list(dict.fromkeys(b.what for b in spots))
    count = sum(bool(w.coverage.missing) for w in advice.workloads)
    return f"{words.counted(count, 'workload')} without some measures: {words.listed(names)}."


def _market(advice: Advice) -> Section:
    titles = Titles(advice)
    told = [f"{brief(titles.of(r), _TITLE)} ({gain_text(r, advice)})" for r in compatible(advice.market or ())]
    more = [f"{len(told) - 3} more"] if len(told) > 3 else []
    return section(words.MARKET, Bullets((*told[:3], *more)) if told else words.NO_MARKET)


def _next(advice: Advice, options: PageOptions) -> tuple[Section, ...]:
    """Commands to paste; none where the source of the advice is not at hand."""
    again = options.again
    if again is None:
        return ()
    rows: list[Block] = []
    first = next((r.id for r in shown_recommendations(advice)), None) or next((f.id for f in advice.findings), None)
    if first is not None:
        rows.append(_command("Evidence and calculation of one id:", again, "explain", _short_of(first, advice)))
    if options.short and advice.workloads:
        rows.append(
            _command("All sections (--section NAME for one, --verbose for every reason):", again, "advise", "--all")
        )
    return (section("Next", *rows),) if rows else ()


def _short_of(full: str, advice: Advice) -> str:
    return short_ids(one.id for one in (*advice.recommendations, *advice.findings))[full]


def _command(what: str, again: Again, *rest: str) -> Block:
    return AsideBlock(what, again.command(*rest))
