"""The advice as a page: on a terminal two screens whatever the fleet, and single sections in full; or the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...core import formatting as words
from ...core.advice_types import Advice, Finding, Recommendation
from ...core.formatting import latency_words
from ...core.ids import short_ids
from ...core.verdict_types import WorkloadVerdict
from ...core.worth import compatible, selected
from .. import coverage
from ..aggregates import blind_spots
from ..document import AsideBlock, Block, Bullets, Chart, Document, Figures, Section, Table, section
from ..finding_groups import cases
from ..page_options import SHORT, Again, PageOptions
from ..phases import phase_sentence
from ..titles import Row, Titles, fact_of, gain_text, is_waste, left_out_words, monthly, rounded_usd, waste_of
from ..truncate import SCREEN, Lengths, brief
from . import head, sections
from .energy import energy_section
from .explain import finding_sections, recommendation_sections
from .sections import FABRIC, KINDS, MONEY, note_groups
from .story import Story, story_of

_NAME, _NOTE, _TITLE = 28, 200, 200
_HOUR = 3600.0


def advice_page(advice: Advice, options: PageOptions = SHORT) -> Document:
    """The page with the sections that `options` ask for; without any, the short one."""
    story, lengths = story_of(advice), SCREEN
    every = {
        "recommendations": lambda: (recommendations(story, options),),
        "findings": lambda: (
            findings(story, options), *(findings_in_full(advice, options.again) if options.verbose else ()),
        ),
        "workloads": lambda: (workloads(advice, options, lengths),),
        "notes": lambda: notes(advice, options),
        "coverage": lambda: (sections.coverage(advice, lengths),),
        "energy": lambda: energy_section(advice, lengths),
        "idle": lambda: (sections.idle(advice, lengths),),
        "fabric": lambda: (sections.fabric(advice, None, lengths),),
        "kinds": lambda: (sections.kinds(advice, None),),
        "levers": lambda: levers(advice, lengths),
        "market": lambda: market(advice),
        "method": lambda: (sections.method(advice, None),),
        "prices": lambda: (sections.prices(advice.prices, lengths),),
    }  # fmt: skip
    first = ("recommendations", "findings", "workloads", "notes")
    shown = [one for name, build in every.items()
             if (name in first if options.short else options.shows(name)) for one in build()]  # fmt: skip
    if options.short and advice.market is not None:
        titles = Titles(advice)
        told = [f"{brief(titles.of(r), _TITLE)} ({gain_text(r, advice)})" for r in compatible(advice.market)]
        more = [f"{len(told) - 3} more"] if len(told) > 3 else []
        shown.append(section(words.MARKET, Bullets((*told[:3], *more)) if told else words.NO_MARKET))
    return _page(story, (*shown, *_next(story, options)))


def whole_page(
    advice: Advice,
    lengths: Lengths,
    draw: Callable[[Advice, str | None], Mapping[str, Chart]] | None = None,
    again: Again | None = None,
    team: str | None = None,
) -> Document:
    """The page of the formats that stand alone, with every section. `draw`: its charts by name; `again`: how to run a
    command on the same telemetry; `team`: whose part of an advice it is, None: the whole fleet."""
    story, options = story_of(advice, team=team), PageOptions(whole=True)
    charts = draw(advice, team) if draw is not None else {}
    every = (
        recommendations(story, options),
        findings(story, options),
        workloads(advice, options, lengths),
        *notes(advice, options),
        sections.kinds(advice, charts.get(KINDS)),
        sections.idle(advice, lengths),
        sections.fabric(advice, charts.get(FABRIC), lengths, team),
        *energy_section(advice, lengths, team),
        *findings_in_full(advice, again),
        *unprompted(advice),
        *levers(advice, lengths),
        *market(advice),
        sections.coverage(advice, lengths),
        sections.method(advice, charts.get(MONEY), team),
        sections.prices(advice.prices, lengths),
    )
    return _page(story, every, (head.written(story),))


def _page(story: Story, shown: tuple[Section, ...], footer: tuple[str, ...] = ()) -> Document:
    return Document(
        title=head.heading(story), heading=head.heading(story), window=head.window(story), summary=head.basis(story),
        tiles=head.tiles(story), sections=shown, footer=footer,
    )  # fmt: skip


def recommendations(story: Story, options: PageOptions = SHORT) -> Section:
    """What to do, in the order of every list: the action with its gain and its risk, and the id that ``explain`` takes;
    what is left out of a list, by the reason, unless the page is short."""
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
    """That lists have none, in a sentence that does not claim more than was judged."""
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
    ordered = sorted(groups.items(), key=lambda one: (-_usd(one[1]), -_hours(one[1]), one[0]))
    kept = ordered[: options.rows.rules] if options.short else ordered
    each = max((options.rows.findings - len(kept)) // len(kept), 0) if options.short else len(advice.findings)
    short, titles = short_ids(f.id for f in advice.findings), Titles(advice)
    answers: dict[str, Row] = {}
    for answer in story.rows:
        for id_ in answer.recommendation.findings:
            answers.setdefault(id_, answer)

    over = {note.fields.get("workload") for note in advice.notes if note.code == "work-is-over"}
    ended = {w.id for w in advice.workloads if w.name in over and w.end < advice.end - _HOUR}

    rows: list[tuple[str, ...]] = []
    for rule, same in kept:
        kind = "wasted" if is_waste(rule) else "slowed" if waste_of(rule) == "slowed" else words.NONE
        answered = sum(f.id in answers and not answers[f.id].left_out for f in same)
        count = f"{brief(fact_of(rule), _NAME + 8)} ({len(same):,})"
        rows.append((count, brief(rule, 20), kind, _cost(same, advice), f"{answered:,} of {len(same):,}"))
        largest = sorted(same, key=lambda f: (-_usd([f]), -f.gpu_hours, f.id))[: each or (1 if len(same) == 1 else 0)]
        rows += [
            (
                f"  {brief(titles.resource(f), _NAME)}",
                brief(short[f.id], 20),
                "",
                _cost([f], advice),
                brief(answers[f.id].left_out or answers[f.id].id, 40)
                if f.id in answers
                else "none: work ended"
                if f.workload in ended
                else words.NONE,
            )
            for f in largest
        ]
    left = len(ordered) - len(kept)
    more = f"and {left} more rules: --section findings" if left > 0 else ""
    return section(
        "Findings",
        Table(("finding", "id", "sum", "cost/month", "recommendation"), tuple(rows), (3,), more),
        "Findings can overlap; the sums count each GPU-hour once." if len(groups) > 1 else "",
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


def workloads(advice: Advice, options: PageOptions, lengths: Lengths) -> Section:
    """The workloads that cost most; replicas and restarts of one series in a line, with their nodes on a whole page."""
    if not advice.workloads:
        return section("Workloads", "No workload was observed in this window.")
    priced = words.has_prices(advice.summary)

    def size(same: Sequence[WorkloadVerdict]) -> float:
        return sum((w.cost_usd or 0.0) if priced else w.gpu_hours for w in same)

    lines = sorted(alike(advice.workloads), key=lambda same: (-size(same), same[0].id))
    shown = lines[: options.rows.workloads] if options.short else lines
    short = short_ids(w.id for w in advice.workloads)

    def cost(same: Sequence[WorkloadVerdict]) -> str:
        costs = [w.cost_usd for w in same if w.cost_usd is not None]
        if len(costs) == len(same):
            return words.usd(monthly(sum(costs), advice))
        hours = monthly(sum(w.gpu_hours for w in same), advice) or 0.0
        return words.hours(hours, "GPU-hours" if priced else "").rstrip()

    def row(same: Sequence[WorkloadVerdict]) -> tuple[str, ...]:
        first = same[0]
        runs = f" ({len(same)} runs)" if len(same) > 1 else ""
        gpus = len({gpu for w in same for gpu in w.gpus})
        nodes = (words.listed(sorted({n for w in same for n in w.nodes})),) if options.whole else ()
        return (
            f"{brief(first.name, _NAME)}{runs}", brief(short[first.id], 20), first.kind.label, first.bottleneck.label,
            f"{gpus:,} {words.gpu_name(first.gpu_sku)}", *nodes, cost(same),
        )  # fmt: skip

    left = len(lines) - len(shown)
    heads = ("workload", "id", "kind", "bottleneck", "GPUs", *(("nodes",) if options.whole else ()),
             "cost/month" if priced else "GPU-hours/month")  # fmt: skip
    return section(
        f"Workloads by {'cost' if priced else 'GPU-hours'}",
        Table(heads, tuple(map(row, shown)), (len(heads) - 1,),
              f"and {left:,} more: --section workloads" if left > 0 else ""),
        *(() if options.short else remarks(shown, lengths)),
    )  # fmt: skip


def notes(advice: Advice, options: PageOptions = SHORT) -> tuple[Section, ...]:
    """What limits the verdicts: notes by code, counted; all of them where asked. None where there is nothing."""
    spots = blind_spots(advice)
    dark = [
        brief(f"{gpus} {'GPU' if gpus == '1' else 'GPUs'} not observed on {nodes}: {reason}", _NOTE)
        for nodes, gpus, reason, _ in coverage.unobserved_rows(advice.summary)
    ]
    if options.verbose:
        every = [f"{b.why} ({b.what} of {words.counted(b.workloads, 'workload')})" for b in spots]
        told = [*dark, *(note.text for note in advice.notes), *every]
    else:
        # Without any price, the head has the note on prices already.
        skip = words.PRICE_NOTES if advice.summary.cost_usd is None else frozenset[str]()
        groups = [brief(text, _NOTE) for code, text in note_groups(advice.notes) if code not in skip]
        count = words.counted(sum(bool(w.coverage.missing) for w in advice.workloads), "workload")
        names = words.listed(list(dict.fromkeys(b.what for b in spots)))
        told = [*dark, *groups, *([f"{count} without some measures: {names}."] if spots else [])]
    most = options.rows.notes if options.short and not options.verbose else len(told)
    more = f"{len(told) - most} more kinds of notes" if len(told) > most else ""
    return (section("Notes", Bullets((*told[:most], *((more,) if more else ())))),) if told else ()


def _next(story: Story, options: PageOptions) -> tuple[Section, ...]:
    """Commands to paste; none where the source of the advice is not at hand."""
    again, advice = options.again, story.advice
    if again is None:
        return ()
    ids = (*(row.recommendation.id for row in story.listed[:1]), *(f.id for f in advice.findings[:1]))
    short = short_ids(recommendation.id for recommendation in (*advice.recommendations, *advice.findings))
    rows = [AsideBlock("Evidence and calculation of one id:", again.command("explain", short[ids[0]]))] if ids else []
    if options.short and advice.workloads:
        told = "All sections (--section NAME for one, --verbose for every reason):"
        rows.append(AsideBlock(told, again.command("advise", "--all")))
    return (section("Next", *rows),) if rows else ()


def findings_in_full(advice: Advice, again: Again | None = None) -> tuple[Section, ...]:
    """Every finding with its evidence and its recommendations, as ``skuwise explain`` tells them; none where nothing
    was found."""
    told = []
    for number, case in enumerate(cases(advice), 1):
        first, *rest = finding_sections(advice, case.finding)
        details = AsideBlock("Details:", again.command("explain", case.finding.id)) if again is not None else None
        ways = (recommendation_block(advice, r) for r in case.recommendations)
        told.append(section(f"{number}. {first.title}", *first.blocks, *rest, details, *ways))
    return (section("Findings in detail", *told),) if told else ()


def unprompted(advice: Advice) -> tuple[Section, ...]:
    """Recommendations that follow from no finding; none where there are none."""
    ways = [recommendation_block(advice, r) for r in advice.recommendations if not r.findings]
    return (section("Other recommendations", *ways),) if ways else ()


def market(advice: Advice) -> tuple[Section, ...]:
    """What other providers would charge; none where nobody asked."""
    if advice.market is None:
        return ()
    told = [recommendation_block(advice, r) for r in advice.market]
    return (section(words.MARKET, *(told or (words.NO_MARKET,))),)


def recommendation_block(advice: Advice, r: Recommendation) -> Section:
    """One recommendation within a page: what speaks for and against it, as one section."""
    first, *rest = recommendation_sections(advice, r, rejected=3)
    return section(first.title, *first.blocks, *rest)


def levers(advice: Advice, lengths: Lengths) -> tuple[Section, ...]:
    """What a lower precision would change, service by service; none where there is nothing to tell."""
    told = [f"{w.name}: {lever}" for w in advice.workloads for lever in w.levers]
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
