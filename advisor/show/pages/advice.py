"""The advice as a page: on a terminal two screens whatever the fleet, single sections in full, or the whole."""

from collections.abc import Iterable, Sequence

from ....rules.catalog.types import Price
from ...core import formatting as words
from ...core.advice_types import Advice, FabricUse, Finding
from ...core.coded_text import UNSPECIFIED, CodedText
from ...core.ids import short_ids
from ...core.scalars import sum_if_all
from ...core.verdict_types import WorkloadVerdict
from ...core.worth import compatible, selected
from .. import coverage
from ..document import AsideBlock, Bullets, Document, Figures, Section, Table, brief, section
from ..page_options import SHORT, PageOptions
from ..titles import Row, Titles, fact_of, gain_text, left_out_words, monthly, runs_words, sum_of, waste_of
from .energy import energy_section
from .explain import claim_block
from .story import Story, page_heading, price_basis, price_line, story_of, tiles, window_words, written_words

_NAME, _NOTE, _EXAMPLE, _TITLE = 28, 200, 160, 200  # characters
_ALL = 10**9
_MARKET = 3  # moves to other providers on a short page


def advice_page(advice: Advice, options: PageOptions = SHORT, team: str | None = None) -> Document:
    """The page with the sections that `options` ask for. `team`: whose part of an advice it is; None: the fleet's."""
    story = story_of(advice, team=team)
    lowered = tuple(f"{w.name}: {lever}" for w in advice.workloads for lever in w.levers)
    builders = {
        "recommendations": lambda: recommendations(story, options),
        "findings": lambda: findings(story, options),
        "workloads": lambda: workloads(advice, options),
        "notes": lambda: notes(advice, options),
        "coverage": lambda: observed(advice),
        "energy": lambda: energy_section(advice, team),
        "idle": lambda: idle(advice),
        "fabric": lambda: fabric(advice, team),
        "kinds": lambda: kinds(advice),
        "levers": lambda: section("Lower precision (not included in any sum)", Bullets(lowered)),
        "market": lambda: market(advice, options),
        "method": lambda: method(advice, team),
        "prices": lambda: prices(advice.prices),
    }
    parts = [build() for name, build in builders.items() if options.shows(name)]
    if options.verbose:
        ranked = sorted(advice.findings, key=lambda f: (_rank([f]), f.id))
        moves = (claim_block(advice, row.recommendation) for row in story.rows)
        parts.append(section("Recommendations in detail", *moves))
        parts.append(section("Findings in detail", *(claim_block(advice, f) for f in ranked)))
    return Document(
        title=page_heading(story),
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
    def remarks(row: Row) -> str:
        blocked = "; ".join(words.clause(str(reason)) for reason in row.recommendation.blocked_by)
        return f"blocked: {blocked}" if blocked else f"{row.gain}, {row.terms}"

    return Figures(tuple((brief(row.id, 20), f"{brief(row.title, _TITLE)} ({remarks(row)})") for row in rows))


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
    ordered = sorted(groups.items(), key=lambda group: (_rank(group[1]), group[0]))
    kept = ordered[: options.rows.rules] if options.short else ordered
    each = max((options.rows.findings - len(kept)) // len(kept), 0) if options.short else len(advice.findings)
    short, titles = short_ids(f.id for f in advice.findings), Titles(advice)
    answers: dict[str, Row] = {}
    for row in story.rows:
        for id_ in row.recommendation.findings:
            answers.setdefault(id_, row)
    rows: list[tuple[str, ...]] = []
    sums: list[int] = []
    for rule, same in kept:
        answered = sum(f.id in answers and not answers[f.id].left_out for f in same)
        name = f"{brief(fact_of(rule), _NAME + 8)} ({len(same):,})"
        sums.append(len(rows))
        rows.append((name, brief(rule, 20), sum_of(rule), _cost(same, advice), f"{answered:,} of {len(same):,}"))
        largest = sorted(same, key=lambda f: (not f.is_waited_for, _size([f]), f.id))[
            : each or (1 if len(same) == 1 else 0)
        ]
        for f in largest:
            answer = brief(answers[f.id].left_out or answers[f.id].id, 40) if f.id in answers else words.NONE
            rows.append((brief(titles.resource(f), _NAME), brief(short[f.id], 20), "", _cost([f], advice), answer))
    left = len(ordered) - len(kept)
    more = f"and {left} more rules: --section findings" if left > 0 else ""
    heads = ("finding", "id", "sum", "cost/month", "recommendation")
    return section(
        "Findings",
        Table(heads, tuple(rows), (3,), more, groups=tuple(sums)),
        "Findings can overlap; the sums count each GPU-hour once." if len(groups) > 1 else "",
    )


def _rank(same: Sequence[Finding]) -> tuple[object, ...]:
    """Findings whose GPUs a waiting job could use first, then the largest."""
    return not any(f.is_waited_for for f in same), _size(same)


def _size(same: Sequence[Finding | WorkloadVerdict]) -> tuple[float, float]:
    """US dollars and GPU-hours, negative: the largest sorts first."""
    return -sum(f.cost_usd or 0.0 for f in same), -sum(f.gpu_hours for f in same)


def _cost(same: Sequence[Finding], advice: Advice) -> str:
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

    def row(same: Sequence[WorkloadVerdict]) -> tuple[str, ...]:
        first, gpus = same[0], len({gpu for w in same for gpu in w.gpus})
        nodes = (words.listed(sorted({n for w in same for n in w.nodes})),) if options.whole else ()
        usd, hours = sum_if_all(w.cost_usd for w in same), monthly(sum(w.gpu_hours for w in same), advice) or 0.0
        return (
            f"{brief(first.name, _NAME)}{runs_words(same)}", brief(short[first.id], 20), first.kind.label,
            first.bottleneck.label, f"{gpus:,} {words.gpu_name(first.gpu_sku)}",
            words.cost(monthly(usd, advice), hours, priced=priced), *nodes,
        )  # fmt: skip

    left = len(lines) - len(shown)
    heads = ("workload", "id", "kind", "bottleneck", "GPUs", "cost/month" if priced else "GPU-hours/month")
    more = f"and {left:,} more: --section workloads" if left > 0 else ""
    return section(
        f"Workloads by {'cost' if priced else 'GPU-hours'}",
        Table((*heads, *(("nodes",) if options.whole else ())), tuple(map(row, shown)), (5,), more),
    )


def notes(advice: Advice, options: PageOptions = SHORT) -> Section:
    """What limits the verdicts: on a short page by code and counted, else each note."""
    dark = [
        brief(f"{gpus} {'GPU' if gpus == '1' else 'GPUs'} not observed on {nodes}: {reason}", _NOTE)
        for nodes, gpus, reason, _ in coverage.unobserved_rows(advice.summary)
    ]
    if not options.short or options.verbose:
        lines = [*dark, *(note.text for note in advice.notes), *missing_metrics(advice)]
        return section("Notes", Bullets(tuple(lines)))
    # Without any price the head has the notes on prices already.
    skip = words.PRICE_NOTES if advice.summary.cost_usd is None else frozenset[str]()
    lines = dark + [brief(text, _NOTE) for code, text in note_groups(advice.notes) if code not in skip]
    if metrics := list(dict.fromkeys(metric for metric, *_ in coverage.blind_spots(advice))):
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
    if options.short and len(lines) > _MARKET:
        lines[_MARKET:] = [f"{len(lines) - _MARKET} more"]
    return section(words.MARKET, Bullets(tuple(lines)) if lines else words.NO_MARKET)


def _next(story: Story, options: PageOptions) -> Section:
    again, advice = options.again, story.advice
    ids = (*(row.id for row in story.listed[:1]), *(f.id for f in advice.findings[:1]))
    if again is None:
        return section("Next")
    text = "All sections (--section NAME for one, --verbose for the evidence of each finding):"
    return section(
        "Next",
        AsideBlock("Evidence and calculation of one id:", again.advice("explain", ids[0])) if ids else None,
        AsideBlock(text, again.advice("advise", "--all")) if options.short and advice.workloads else None,
    )


def note_groups(notes: Iterable[CodedText]) -> tuple[tuple[str, str], ...]:
    """Code and text of the notes: of a code the first with the count of the others. Notes without a code stay apart."""
    groups: dict[str, list[str]] = {}
    for number, note in enumerate(notes):
        groups.setdefault(note.code if note.code != UNSPECIFIED else f"{number}", []).append(note.text)
    return tuple(
        (code, f"{brief(first, _EXAMPLE)} ({words.counted(len(others), 'more note')})" if others else first)
        for code, (first, *others) in groups.items()
    )


def kinds(advice: Advice) -> Section:
    """What the GPUs did, the most first, then the hours of no workload."""
    hours = coverage.hours_by_kind(advice)
    rows = tuple((kind, words.bare_hours(value)) for kind, value in hours.items())
    return section("GPU-hours by kind", Figures(rows, tuple(hours.values())))


def idle(advice: Advice) -> Section:
    """Idle GPUs by owner; without any price there is no column of costs."""
    s, held = advice.summary, coverage.holdings(advice)
    costs = 1 if s.cost_usd is not None else 0
    rows = (
        (h.owner or "not held", words.listed(h.names), str(h.gpus), words.bare_hours(h.gpu_hours),
         *[words.cost(h.cost_usd, h.gpu_hours, priced=True)] * costs)
        for h in held
    )  # fmt: skip
    heads = ("owner", "what", "GPUs", "GPU-hours", *["cost"] * costs)
    extent = coverage.judged_of(s) if s.partly_judged else ""
    sentence = f"Idleness was {extent}; no data for the others." if extent else ""
    if not held:
        sentence = f"No GPU was idle or held without use{extent and f' ({extent})'}."
        sentence = f"Idle GPUs: {coverage.not_judged(s)}." if s.nothing_judged and s.gpu_count else sentence
    return section("Idle and held GPUs, by owner", sentence, Table(heads, tuple(rows), tuple(range(2, len(heads)))))


def fabric(advice: Advice, team: str | None = None) -> Section:
    """What compute fabrics cost by node SKU, and what they carried. `team` None: the whole fleet."""
    title, fabrics = "The fabric: what was paid and what was used", advice.fabrics
    if not fabrics:
        where = "in the fleet" if team is None else "on the nodes that this team has to itself"
        return section(title, f"No fabric was observed {where}.")
    silent = {node for f in advice.findings if waste_of(f.rule) == "fabric" for node in f.nodes}
    floor = advice.summary.floor_hours or 0.0
    judged = {f.node for f in fabrics if f.util_p995 is not None and f.hours >= floor} | silent
    groups: dict[str, list[FabricUse]] = {}
    for f in fabrics:
        groups.setdefault(f"{f.node_sku or 'unknown node'}{f', {f.kind}' if f.kind else ''}", []).append(f)
    rows = []
    for name, uses in groups.items():
        peaks, cost = [f.util_p995 for f in uses if f.util_p995 is not None], sum_if_all(f.cost_usd for f in uses)
        quiet, verdicts = (sum(f.node in nodes for f in uses) for nodes in (silent, judged))
        unused = f"{quiet}" if verdicts == len(uses) else f"{quiet} of {verdicts}" if verdicts else "not judged"
        peak = words.percent(max(peaks)) if peaks else "not observed"
        rows.append((-(cost or 0.0), -len(uses), (name, str(len(uses)), words.usd(cost), peak, unused)))
    heads = ("node", "nodes", "cost", "99.5th percentile", "unused")
    quiet, verdicts = (sum(f.node in nodes for f in fabrics) for nodes in (silent, judged))
    total = [f.cost_usd for f in fabrics if f.cost_usd is not None]
    unused = words.usd(sum(f.cost_usd or 0.0 for f in fabrics if f.node in silent))
    assumed = ", in part assumed" if any(f.assumed for f in fabrics) else ""
    cost = f"{words.usd(sum(total))} that the fabrics add to their nodes' price{assumed}." if total else ""
    cost = f"{f'{unused} of ' if verdicts else ''}{cost}" if cost else "Their cost is unknown."
    extent = f"{quiet} of {verdicts} fabrics{' with a verdict' if verdicts < len(fabrics) else ''}"
    return section(
        title,
        f"{extent} carried no traffic that needs one: {cost}" if verdicts else f"No verdict on fabric traffic: {cost}",
        Table(heads, tuple(cells for *_, cells in sorted(rows)), (1, 2, 3, 4)),
    )


def observed(a: Advice) -> Section:
    """What was observed, and what is missing."""
    share, lost = coverage.observed_share(a), a.summary.reconciliation.unobserved
    unpriced = sum(w.cost_usd is None for w in a.workloads) if a.summary.cost_usd is not None else 0
    without_cost = "without a cost: its node has no price, or all its GPUs were shared. No team's cost includes them."
    missing, rows = missing_metrics(a), coverage.unobserved_rows(a.summary)
    complete = not missing and not rows and share is not None and share >= coverage.WHOLE_MIN
    return section(
        "Coverage",
        f"{coverage.observed_time(a)}; {coverage.gpus_words(a.summary)}. {coverage.extent_words(a)}".rstrip(),
        f"{coverage.share_words(share)} of the workloads' GPU time was observed." if share is not None else "",
        f"Hours without telemetry cost {words.usd(lost)}." if lost else "",
        f"{words.counted(unpriced, 'workload')} {without_cost}" if unpriced else "",
        "All metrics that the verdicts need were observed." if complete else "",
        Table(coverage.HEADS, rows, (1, 3)),
        Bullets(missing),
    )


def missing_metrics(advice: Advice) -> tuple[str, ...]:
    """Why metrics are missing, and for how many workloads."""
    return tuple(
        f"{why} ({metric} of {words.counted(count, 'workload')})" for metric, why, count in coverage.blind_spots(advice)
    )


def prices(listed: Sequence[Price]) -> Section:
    """The price of each node type with its date and its source."""
    without = "No price is known. Costs are in GPU-hours; savings in dollars are unknown."
    return section("Prices", Bullets(tuple(map(price_line, listed))) if listed else without)


def method(advice: Advice, team: str | None = None) -> Section:
    """How the figures are calculated, and where the money went. `team` None: the whole fleet."""
    total, parts = advice.summary.reconciliation.total, None
    if team is not None:
        money = (
            "This report counts the hours that the team's workloads held alone, idle hours included. Shared GPUs, free "
            "nodes and hours without telemetry are in the fleet's report. The savings interval assumes that all "
            "recommendations turn out well or badly together."
        )
    elif total is None:
        money = "No price is known, so no costs in dollars are shown."
    else:
        money = (
            "Every node-hour is counted once. The parts sum to the nodes' prices times their hours: "
            f"{words.usd(total)}."
        )
        shares = words.money_parts(advice.summary.reconciliation)
        rows = tuple((name, f"{words.usd(usd)} ({words.percent(usd / total)})") for name, usd in shares)
        parts = Figures(rows, tuple(usd for _, usd in shares))
    return section(
        "Method and reconciliation",
        money,
        "Kinds and bottlenecks of workloads follow from sampled counters. Intervals are 10th to 90th percentiles. "
        "The baseline of savings is the same SKU at its right-sized count. Recommendations that exclude one another "
        "count once. Owned and committed nodes free capacity, never cash.",
        parts,
    )
