"""The advice as a page: on a terminal two screens whatever the fleet, single sections in full, or the whole."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import formatting as words
from ...core.advice_types import Advice, Finding
from ...core.ids import short_ids
from ...core.scalars import sum_if_all
from ...core.verdict_types import WorkloadVerdict
from ...core.worth import compatible, selected
from .. import coverage
from ..aggregates import blind_spots
from ..document import AsideBlock, Bullets, Document, Figures, Section, Table, brief, section
from ..page_options import SHORT, PageOptions
from ..titles import Row, Titles, fact_of, gain_text, left_out_words, monthly, runs_words, sum_of
from . import sections
from .energy import energy_section
from .explain import activity_sentence, claim_block
from .story import Story, page_heading, price_basis, story_of, tiles, window_words, written_words

_NAME, _NOTE, _TITLE = 28, 200, 200  # characters
_ALL = 10**9
_HOUR = 3600.0


def advice_page(advice: Advice, options: PageOptions = SHORT, team: str | None = None) -> Document:
    """The page with the sections that `options` ask for. `team`: whose part of an advice it is; None: the fleet's."""
    story = story_of(advice, team=team)
    builders = {
        "recommendations": lambda: recommendations(story, options),
        "findings": lambda: findings(story, options),
        "workloads": lambda: workloads(advice, options),
        "notes": lambda: notes(advice, options),
        "coverage": lambda: sections.coverage(advice),
        "energy": lambda: energy_section(advice, team),
        "idle": lambda: sections.idle(advice),
        "fabric": lambda: sections.fabric(advice, team),
        "kinds": lambda: sections.kinds(advice),
        "levers": lambda: sections.levers(advice),
        "market": lambda: market(advice, options),
        "method": lambda: sections.method(advice, team),
        "prices": lambda: sections.prices(advice.prices),
    }
    parts = [build() for name, build in builders.items() if options.shows(name)]
    if options.verbose:
        by_size = sorted(advice.findings, key=lambda f: (_size([f]), f.id))
        parts += [
            section("Recommendations in detail", *(claim_block(advice, row.recommendation) for row in story.rows)),
            section("Findings in detail", *(claim_block(advice, f) for f in by_size)),
        ]
    return Document(
        title=page_heading(story),
        heading=page_heading(story),
        window=window_words(story),
        summary=price_basis(story),
        tiles=tiles(story, _ALL if options.whole else 2),
        sections=tuple(part for part in (*parts, _next(story, options)) if part.blocks),
        footer=(written_words(story),) if options.whole else (),
    )


def recommendations(story: Story, options: PageOptions = SHORT) -> Section:
    """What to do, in the order of every list: the action with its gain and its risk, and the id for ``explain``. Those
    left out are counted on a short page, else listed by reason."""
    shown, every = story.listed, not options.short or options.verbose
    most = len(shown) if every else options.rows.recommendations
    groups: dict[str, list[Row]] = {}
    for row in story.rows if every else ():
        if row.left_out:
            groups.setdefault(row.left_out, []).append(row)
    left = "" if every else left_out_words(story.rows, len(shown) - most)
    return section(
        "Recommendations",
        "" if shown else no_recommendation(story),
        _figures(shown[:most]),
        f"{left} For these, see --all." if left else "",
        *(section(f"{why[:1].upper()}{why[1:]} ({len(same)})", _figures(same)) for why, same in groups.items()),
    )


def _figures(rows: Sequence[Row]) -> Figures:
    return Figures(tuple((brief(row.id, 20), f"{brief(row.title, _TITLE)} ({row.remarks})") for row in rows))


def no_recommendation(story: Story) -> str:
    """That there is none, in sentences that claim no more than was judged."""
    s = story.advice.summary
    if story.empty:
        return "No GPU was observed in this window, so there is nothing to recommend."
    if s.nothing_judged and s.gpu_count:
        return f"No recommendation yet. {coverage.why_not_judged(s)}"
    if s.partly_judged:
        return f"No recommendation for the GPUs that were judged ({coverage.judged_of(s)})."
    if small := selected(story.advice).small:
        return f"No recommendation saves enough by itself; {words.counted(len(small), 'smaller one')} not listed."
    return "No open recommendation: nothing saves enough now."


def findings(story: Story, options: PageOptions = SHORT) -> Section:
    """Findings by rule: how many, in which sum they are and what they cost a month; the largest of each with their ids
    and the recommendation that answers them."""
    advice = story.advice
    groups: dict[str, list[Finding]] = {}
    for f in advice.findings:
        groups.setdefault(f.rule, []).append(f)
    if not groups:
        return section("Findings", coverage.nothing_found_words(advice))
    ordered = sorted(groups.items(), key=lambda group: (_size(group[1]), group[0]))
    kept = ordered[: options.rows.rules] if options.short else ordered
    each = max((options.rows.findings - len(kept)) // len(kept), 0) if options.short else len(advice.findings)
    short, titles = short_ids(f.id for f in advice.findings), Titles(advice)
    answers: dict[str, Row] = {}
    for row in story.rows:
        for id_ in row.recommendation.findings:
            answers.setdefault(id_, row)
    over = {note.fields.get("workload") for note in advice.notes if note.code == "work-is-over"}
    ended = {w.id for w in advice.workloads if w.name in over and w.end < advice.end - _HOUR}

    def answer(f: Finding) -> str:
        if f.id in answers:
            return brief(answers[f.id].left_out or answers[f.id].id, 40)
        return "none: work ended" if f.workload in ended else words.NONE

    rows: list[tuple[str, ...]] = []
    sums: list[int] = []
    for rule, same in kept:
        answered = sum(f.id in answers and not answers[f.id].left_out for f in same)
        name = f"{brief(fact_of(rule), _NAME + 8)} ({len(same):,})"
        sums.append(len(rows))
        rows.append((name, brief(rule, 20), sum_of(rule), _cost(same, advice), f"{answered:,} of {len(same):,}"))
        largest = sorted(same, key=lambda f: (_size([f]), f.id))[: each or (1 if len(same) == 1 else 0)]
        rows += [
            (brief(titles.resource(f), _NAME), brief(short[f.id], 20), "", _cost([f], advice), answer(f))
            for f in largest
        ]
    left = len(ordered) - len(kept)
    more = f"and {left} more rules: --section findings" if left > 0 else ""
    heads = ("finding", "id", "sum", "cost/month", "recommendation")
    return section(
        "Findings",
        Table(heads, tuple(rows), (3,), more, groups=tuple(sums)),
        "Findings can overlap; the sums count each GPU-hour once." if len(groups) > 1 else "",
    )


def _size(same: Sequence[Finding | WorkloadVerdict]) -> tuple[float, float]:
    """US dollars and GPU-hours, negative: the largest sorts first."""
    return -sum(f.cost_usd or 0.0 for f in same), -sum(f.gpu_hours for f in same)


def _cost(same: Sequence[Finding], advice: Advice) -> str:
    """US dollars a month where any are known, else GPU-hours."""
    usd, hours = (-size for size in _size(same))
    if any(f.cost_usd is not None for f in same):
        return words.usd(monthly(usd, advice) or 0.0)
    return words.hours(monthly(hours, advice) or hours)


def workloads(advice: Advice, options: PageOptions) -> Section:
    """The workloads that cost most; replicas and restarts of one series in a row, with their nodes on a whole page."""
    if not advice.workloads:
        return section("Workloads", "No workload was observed in this window.")
    priced = advice.summary.cost_usd is not None
    groups: dict[tuple[str | None, ...], list[WorkloadVerdict]] = {}
    for w in sorted(advice.workloads, key=lambda w: -w.gpu_hours):
        groups.setdefault((w.series_id, w.name, w.kind.label, w.bottleneck.label, w.gpu_sku), []).append(w)
    lines = sorted(groups.values(), key=lambda same: (_size(same), same[0].id))
    shown = lines[: options.rows.workloads] if options.short else lines
    short = short_ids(w.id for w in advice.workloads)

    def cost(same: Sequence[WorkloadVerdict]) -> str:
        if (usd := sum_if_all(w.cost_usd for w in same)) is not None:
            return words.usd(monthly(usd, advice))
        hours = monthly(sum(w.gpu_hours for w in same), advice) or 0.0
        return words.hours(hours) if priced else words.bare_hours(hours)

    def row(same: Sequence[WorkloadVerdict]) -> tuple[str, ...]:
        first, gpus = same[0], len({gpu for w in same for gpu in w.gpus})
        nodes = (words.listed(sorted({n for w in same for n in w.nodes})),) if options.whole else ()
        return (
            f"{brief(first.name, _NAME)}{runs_words(same)}", brief(short[first.id], 20), first.kind.label,
            first.bottleneck.label, f"{gpus:,} {words.gpu_name(first.gpu_sku)}", cost(same), *nodes,
        )  # fmt: skip

    left = len(lines) - len(shown)
    heads = ("workload", "id", "kind", "bottleneck", "GPUs", "cost/month" if priced else "GPU-hours/month")
    more = f"and {left:,} more: --section workloads" if left > 0 else ""
    return section(
        f"Workloads by {'cost' if priced else 'GPU-hours'}",
        Table((*heads, *(("nodes",) if options.whole else ())), tuple(map(row, shown)), (5,), more),
        Bullets(() if options.short else tuple(filter(None, (activity_sentence(same[0]) for same in shown)))),
    )


def notes(advice: Advice, options: PageOptions = SHORT) -> Section:
    """What limits the verdicts: on a short page by code and counted, else each note."""
    dark = [
        brief(f"{gpus} {'GPU' if gpus == '1' else 'GPUs'} not observed on {nodes}: {reason}", _NOTE)
        for nodes, gpus, reason, _ in coverage.unobserved_rows(advice.summary)
    ]
    if not options.short or options.verbose:
        lines = [*dark, *(note.text for note in advice.notes), *sections.missing_metrics(advice)]
        return section("Notes", Bullets(tuple(lines)))
    # Without any price the head has the notes on prices already.
    skip = words.PRICE_NOTES if advice.summary.cost_usd is None else frozenset[str]()
    lines = dark + [brief(text, _NOTE) for code, text in sections.note_groups(advice.notes) if code not in skip]
    if metrics := list(dict.fromkeys(metric for metric, *_ in blind_spots(advice))):
        count = words.counted(sum(bool(w.coverage.missing) for w in advice.workloads), "workload")
        lines.append(f"{count} without some measures: {words.listed(metrics)}.")
    more = len(lines) - options.rows.notes
    rest = (f"{words.counted(more, 'more kind')} of notes",) if more > 0 else ()
    return section("Notes", Bullets((*lines[: options.rows.notes], *rest)))


def market(advice: Advice, options: PageOptions) -> Section:
    """What other providers would charge; empty where it was not asked for."""
    if advice.market is None:
        return section(words.MARKET)
    titles = Titles(advice)
    lines = [f"{brief(titles.of(r), _TITLE)} ({gain_text(r)})" for r in compatible(advice.market)]
    most = 3 if options.short else len(lines)
    more = [f"{len(lines) - most} more"] if len(lines) > most else []
    return section(words.MARKET, Bullets((*lines[:most], *more)) if lines else words.NO_MARKET)


def _next(story: Story, options: PageOptions) -> Section:
    again, advice, rows = options.again, story.advice, []
    ids = (*(row.id for row in story.listed[:1]), *(f.id for f in advice.findings[:1]))
    if again is not None and ids:
        rows.append(AsideBlock("Evidence and calculation of one id:", again.command("explain", ids[0])))
    if again is not None and options.short and advice.workloads:
        text = "All sections (--section NAME for one, --verbose for the evidence of each finding):"
        rows.append(AsideBlock(text, again.command("advise", "--all")))
    return section("Next", *rows)
