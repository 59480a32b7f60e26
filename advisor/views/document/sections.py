"""The sections of a report after its head, each in words from the story's figures. Every list has a length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....rules.catalog.types import Price
from ...core import formatting as words
from ...core.advice_types import Realisation, Recommendation
from ...core.coded_text import UNSPECIFIED, CodedText
from ...core.timestamps import minute
from ...core.verdict_types import INFERRED
from .. import coverage as cover
from ..aggregates import FabricSum, IdleGpus
from .model import Chart, Section, Table, section
from .report_content import AS_BEFORE, Change, Story, TeamRow
from .truncate import Lengths

# What many notes of one code say together. `{count}`: how many.
_TOGETHER = {
    "work-is-over": "{count} workloads ended, or moved to other nodes, and did not recur: no savings there next month.",
    "signals-contradict": "No verdict on waste of {count} workloads: their signals contradict one another.",
    "idle-not-judged": "No verdict on idle GPUs of {count} nodes: utilization and activity contradict one another.",
    "silenced-by-exception": "{count} exceptions silence findings.",
}
_EXAMPLE_MAX = 160


@dataclass(frozen=True, slots=True)
class NoteGroup:
    """The notes of one code, in their order."""

    code: str
    notes: tuple[CodedText, ...]

    @property
    def text(self) -> str:
        """The note itself where it is the only one; else one sentence, or the first with the count of the others."""
        first, count = self.notes[0].text, len(self.notes)
        if count == 1:
            return first
        together = _TOGETHER.get(self.code)
        if together is not None:
            return together.format(count=count)
        example = first if len(first) <= _EXAMPLE_MAX else f"{first[: _EXAMPLE_MAX - 1].rstrip()}…"
        return f"{example} ({count - 1} more notes like this)"


def note_groups(notes: Iterable[CodedText]) -> tuple[NoteGroup, ...]:
    """The notes by code, in the order in which the codes first appear. Those without a code stay apart."""
    groups: dict[str, list[CodedText]] = {}
    for number, note in enumerate(notes):
        groups.setdefault(note.code if note.code != UNSPECIFIED else f"{number}", []).append(note)
    return tuple(NoteGroup(code, tuple(same)) for code, same in groups.items())


IN_HOURS = "cost (GPU-hours)"  # the head of a column of costs where no price is known


def kinds(title: str, story: Story, chart: Chart | None) -> Section:
    """What the GPUs did, as a chart, or in words where one would show nothing."""
    told = kinds_words(story.hours_by_kind) if chart is None and story.hours_by_kind else ""
    return section(title, told, chart)


def kinds_words(hours_by_kind: Mapping[str, Change]) -> str:
    """GPU-hours by kind in a sentence: what their chart shows."""
    told = "; ".join(
        f"{kind} {words.bare_hours(change.now)}"
        + (f", was {words.bare_hours(change.before)}" if change.before is not None else "")
        for kind, change in hours_by_kind.items()
    )
    return f"GPU-hours by kind: {told}."


def wrong_if(conditions: Sequence[CodedText], lengths: Lengths) -> str:
    """What would overturn a verdict, in a sentence; empty where nothing is known to."""
    told = [words.clause(lengths.sentence(condition, 240)) for condition in conditions[: lengths.conditions]]
    return f"This would change if {'. It would also change if '.join(told)}." if told else ""


def gain(r: Recommendation) -> str:
    """What a recommendation saves: dollars with their interval, else GPU-hours, else energy."""
    saving = r.saving_usd_per_month
    if saving is not None and saving.p50 > 0:
        return f"{words.usd(saving.p50)}/month{words.spread(saving)}"
    if r.freed_gpu_hours_per_month <= 0 and r.energy_saving_kwh_per_month is not None:
        return f"{words.energy_words(r)}/month"
    return f"{words.hours(r.freed_gpu_hours_per_month)}/month"


def realisation_words(realisation: Realisation, available_from: str | None, lengths: Lengths) -> str:
    """How a saving comes back."""
    if realisation == "cash-at":
        return f"cash from {lengths.name(available_from)} on" if available_from else "cash at a later date"
    return {
        "cash-now": "cash, now", "capacity-freed": "capacity for other work, no cash", "energy": "energy",
    }[realisation]  # fmt: skip


def idle(story: Story, lengths: Lengths) -> Section:
    title = "Idle and held GPUs, by owner"
    if not story.holdings:
        return section(title, cover.idleness(story.advice.summary), _unowned(story, lengths))

    def row(h: IdleGpus) -> tuple[str, ...]:
        owner = "not held" if h.owner is None else lengths.name(h.owner)
        what = words.listed([lengths.name(n) for n in h.names])
        cost = words.cost(h.cost_usd, h.gpu_hours, priced=True)
        return owner, what, str(h.gpus), words.bare_hours(h.gpu_hours), cost

    s = story.advice.summary
    heads, rows = costed(
        ("owner", "what", "GPUs", "GPU-hours", "cost"), map(row, story.holdings[: lengths.rows]), words.has_prices(s)
    )
    return section(
        title,
        f"Idleness was {cover.judged_of(s)}; no data for the others." if s.partly_judged else "",
        _unowned(story, lengths),
        Table(heads, rows, tuple(range(2, len(heads))), lengths.more(story.holdings, lengths.rows)),
    )


def costed(
    heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], priced: bool
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """A table whose last columns are GPU-hours and cost. Where no price is known the hours are the cost, told once."""
    if priced:
        return heads, tuple(rows)
    return (*heads[:-2], IN_HOURS), tuple(row[:-1] for row in rows)


def _unowned(story: Story, lengths: Lengths) -> str:
    """Whom to ask about work that nobody is named for."""
    found = [w for w in story.advice.workloads if w.basis == INFERRED]
    if not found:
        return ""
    held = words.hours(sum(w.gpu_hours for w in found))
    nodes = words.listed([lengths.name(n) for n in sorted({n for w in found for n in w.nodes})])
    count = words.counted(len(found), "workload")
    return f"Owner unknown: {count} ({held}), inferred from what the GPUs do. Ask who uses {nodes}."


def fabric(story: Story, chart: Chart | None, lengths: Lengths) -> Section:
    title = "The fabric: what was paid and what was used"
    if not story.fabrics:
        where = "in the fleet" if story.team is None else "on the nodes that this team has to itself"
        return section(title, f"No fabric was observed {where}.")
    unknown, count = sum(f.nodes - f.judged for f in story.fabrics), sum(f.nodes for f in story.fabrics)
    some = f"{words.counted(unknown, 'fabric')} without a verdict: not observed, or not for long enough."

    def row(f: FabricSum) -> tuple[str, ...]:
        name = lengths.name(f.node_sku or "unknown node")
        return (
            f"{name}, {lengths.name(f.kind, 20)}" if f.kind else name, str(f.nodes), words.usd(f.cost_usd),
            words.percent(f.util_p995) if f.util_p995 is not None else "not observed",
            f"{f.silent}" if f.judged == f.nodes else f"{f.silent} of {f.judged}" if f.judged else "not judged",
        )  # fmt: skip

    unseen = [
        f"{f.unseen} of {f.nodes} {lengths.name(f.node_sku or 'nodes')}: {lengths.sentence(f.reasons[0], 200)}"
        for f in story.fabrics
        if f.unseen and f.reasons
    ]
    heads: tuple[str, ...] = ("node", "nodes", "cost", "99.5th percentile", "unused")
    rows = tuple(map(row, story.fabrics[: lengths.rows]))
    if all(f.cost_usd is None for f in story.fabrics):
        heads, rows = (*heads[:2], *heads[3:]), tuple((*r[:2], *r[3:]) for r in rows)
    return section(
        title,
        _silent_words(story.fabrics),
        some if 0 < unknown < count else "",
        chart,
        Table(heads, rows, tuple(range(1, len(heads))), lengths.more(story.fabrics, lengths.rows)),
        lengths.bulleted(unseen),
    )


def _silent_words(fabrics: Sequence[FabricSum]) -> str:
    """How many of the fabrics that were judged carried nothing, and what that costs."""
    judged, quiet = sum(f.judged for f in fabrics), sum(f.silent for f in fabrics)
    paid = [f.cost_usd for f in fabrics if f.cost_usd is not None]
    assumed = ", in part assumed" if any(f.assumed for f in fabrics) else ""
    unpriced = "their cost is unknown."
    if not judged:
        paid_words = f"the fabrics add {words.usd(sum(paid))} to their nodes' price{assumed}." if paid else unpriced
        return f"No verdict on fabric traffic; {paid_words}"
    of = f"{judged} fabrics" if judged == sum(f.nodes for f in fabrics) else f"{judged} fabrics with a verdict"
    said = f"{quiet} of {of} carried no traffic that needs one"
    if not paid:
        return f"{said}; {unpriced}"
    silent = words.usd(sum(f.silent_usd or 0.0 for f in fabrics))
    return f"{said}: {silent} of {words.usd(sum(paid))} that the fabrics add to their nodes' price{assumed}."


def coverage(story: Story, lengths: Lengths, *, notes: bool = True) -> Section:
    """What was observed, and what is missing. `notes`: with the advice's notes, grouped."""
    a = story.advice
    early = (
        f"The week is not over: it ends {minute(a.end)}, and this was written {minute(a.generated_at)}."
        if a.end > a.generated_at
        else ""
    )
    observed = ""
    if story.observed is not None:
        # Whoever rounds up to all of it hides that something is missing.
        share = (
            f"{min(story.observed * 100, 99.9):.1f} %" if 0.99 < story.observed < 1 else words.percent(story.observed)
        )
        observed = f"{share} of the workloads' GPU time was observed."
    lost = a.summary.reconciliation.unobserved
    unpriced = sum(w.cost_usd is None for w in a.workloads) if a.summary.cost_usd is not None else 0
    missing = [
        f"{lengths.sentence(b.why, 240)} ({lengths.name(b.what)} of {words.counted(b.workloads, 'workload')})"
        for b in story.blind_spots
    ]
    missing += [lengths.sentence(group.text, 320) for group in note_groups(a.notes) if notes]
    rows = cover.unobserved_rows(a.summary)
    whole = not missing and not rows and story.observed is not None and story.observed >= cover.WHOLE_MIN
    shown = tuple(
        (lengths.name(who, 96), n, lengths.sentence(why, 240), cost) for who, n, why, cost in rows[: lengths.rows]
    )
    return section(
        "Coverage",
        f"{cover.observed_time(a)}; {cover.gpus_words(a.summary)}. {cover.extent_words(a)}".rstrip(),
        early,
        observed,
        f"Hours without telemetry cost {words.usd(lost)}." if lost else "",
        f"{words.counted(unpriced, 'workload')} without a cost: its node has no price, or all its GPUs were shared. "
        "They are not included in any team's cost."
        if unpriced
        else "",
        "All metrics that the verdicts need were observed." if whole else "",
        Table(cover.HEADS, shown, (1, 3), lengths.more(rows, lengths.rows)),
        lengths.bulleted(missing),
    )


def teams(story: Story, lengths: Lengths) -> Section:
    def row(r: TeamRow) -> tuple[str, ...]:
        name = "(no team)" if r.team is None else lengths.name(r.team, 32)
        change = r.cost_usd.words
        moved = f" ({change})" if change and change != AS_BEFORE else ""
        return (
            name, words.bare_hours(r.gpu_hours.now),
            words.cost(r.cost_usd.now, r.gpu_hours.now or 0.0, priced=True) + moved,
            *(words.usd(v) if v is not None or r.judged else "not judged"
              for v in (r.wasted_usd, r.slowed_usd, r.recoverable_usd_per_month)),
        )  # fmt: skip

    heads: tuple[str, ...] = ("team", "GPU-hours", "cost", "wasted", "slowed", "recoverable a month")
    rows = tuple(map(row, story.teams[: lengths.teams]))
    if not words.has_prices(story.advice.summary):
        heads, rows = ("team", IN_HOURS), tuple(r[:2] for r in rows)
    return section(
        "Every team",
        "A team's dollars are those of the hours that its workloads held alone. Gains are medians, which do not add up "
        "to the fleet's to the dollar.",
        Table(heads, rows, tuple(range(1, len(heads))), lengths.more(story.teams, lengths.teams)),
    )


def prices(known: Sequence[Price], lengths: Lengths) -> Section:
    """What every dollar rests on, with its date and its source."""
    if not known:
        return section("Prices", "No price is known. Costs are in GPU-hours; savings in dollars are unknown.")
    told = [
        f"{lengths.name(p.sku)}, {lengths.name(p.region, 24)}: {lengths.sentence(words.price_words(p), 200)}"
        for p in known
    ]
    return section("Prices", lengths.bulleted(told, lengths.rows))


def method(story: Story, chart: Chart | None) -> Section:
    parts = words.money_parts(story.advice.summary.reconciliation)
    total = story.advice.summary.reconciliation.total
    table = None
    if story.team is not None:
        money = (
            "This report counts the hours that the team's workloads held alone, idle hours included. Shared GPUs, free "
            "nodes and hours without telemetry are in the fleet's report. The savings interval assumes that all "
            "recommendations turn out well or badly together."
        )
    elif total is None:
        money = "No price is known, so no costs in dollars are shown."
    else:
        money = "Every node-hour is counted once; the parts sum to the nodes' prices times their hours."
        rows = (*((name, words.usd(v), words.percent(v / total if total else None)) for name, v in parts),
                ("total", words.usd(total), ""))  # fmt: skip
        table = Table(("cost breakdown", "US dollars", "share"), rows, (1, 2))
    return section(
        "Method and reconciliation",
        money,
        "Kinds and bottlenecks of workloads follow from sampled counters. Intervals are 10th to 90th percentiles. "
        "The baseline of savings is the same SKU at its right-sized count. Recommendations that exclude one another "
        "count once. Owned and committed nodes free capacity, never cash.",
        chart if table is not None else None,
        table,
    )
