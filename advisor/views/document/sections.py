"""The sections of a report after its head, each in words from the story's figures. Every list has a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core import formatting as words
from ...core.advice_types import INFERRED, Realisation
from ...core.coded_text import CodedText
from ...core.timestamps import minute
from .. import coverage as cover
from .aggregates import FabricSum, Holding
from .report_content import TOLD_IN_FULL, Change, Story, TeamRow
from .select_moves import Move
from .truncate import Brief, brief
from .types import Card, Chart, Section, Sheet

_WRONG = 3  # conditions of one move
AS_BEFORE = "as before"
IN_HOURS = "cost (GPU-hours)"  # the head of a column of costs where no price is known
_ATTACHED = "the attached lists have them all"


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the lists of a report are: of a mail, which clients clip, or of a page, which shows them all."""

    moves: int = 6  # after those that are told in full
    rows: int = 8
    teams: int = 30
    bullets: int = 6

    def halved(self) -> Lengths:
        return Lengths(self.moves // 2, self.rows // 2, self.teams // 2, self.bullets // 2)


WHOLE = Lengths(*[10**9] * 4)


def moves(story: Story, brevity: Brief, lengths: Lengths) -> Section:
    """The moves worth most in full; those told within the cooldown, and all others, in a line each."""
    new = [m for m in story.moves if not m.told]
    others = [*new[TOLD_IN_FULL:], *(m for m in story.moves if m.told)]
    if not story.moves:
        return Section("What to move", (_no_move(story),))

    def row(m: Move) -> tuple[str, ...]:
        return f"{_title(m, brevity)}{' (told before)' if m.told else ''}", gain(m), brief(m.id)

    rows = tuple(map(row, others[: lengths.moves]))
    return Section(
        "What to move",
        () if new else ("Nothing new this week. What was told before is still open:",),
        cards=tuple(_card(m, brevity) for m in new[:TOLD_IN_FULL]),
        sheet=Sheet(("other moves", "gain", "id"), rows, (), more(others, lengths.moves)) if rows else None,
    )


def _no_move(story: Story) -> str:
    s = story.advice.summary
    if s.nothing_judged and s.gpu_count:
        return f"No recommendation yet. {cover.why_not_judged(s)}"
    blocked = sum(bool(r.blocked_by) for r in story.advice.recommendations)
    if story.advice.recommendations:
        of = f"{blocked} of {len(story.advice.recommendations)} blocked; skuwise advise shows the reasons"
        return (
            "No recommendation gains anything today: each is blocked, set aside or saves nothing"
            f"{f' ({of})' if blocked else ''}."
        )
    if s.partly_judged:
        return f"No recommendation that gains anything was found on the GPUs that were judged ({cover.judged_of(s)})."
    return "No recommendation that gains anything was found."


def _card(m: Move, brevity: Brief) -> Card:
    return Card(
        title=_title(m, brevity),
        sentences=tuple(brevity.sentence(text) for text in (m.evidence, m.text) if text),
        figures=(
            ("Gain", gain(m)),
            ("Cash or capacity", realisation_words(m.realisation, m.available_from)),
            ("Predicted time", words.time_words(m.time_ratio)),
            ("Risk", m.risk),
        ),
        wrong_if=wrong_if(m.would_change_if, brevity),
        command=brief(m.command),
    )


def wrong_if(conditions: Sequence[CodedText], brevity: Brief) -> str:
    """What would overturn a verdict, in a sentence; empty where nothing is known to."""
    told = [words.clause(brevity.sentence(condition.text, 240)) for condition in conditions[:_WRONG]]
    return f"Wrong if {', or if '.join(told)}." if told else ""


def _title(m: Move, brevity: Brief) -> str:
    return f"{brevity.sentence(m.about, 120)}: {brevity.sentence(m.title, 120)}"


def gain(m: Move) -> str:
    """What a move brings a month: dollars with their interval, else GPU-hours."""
    if m.saving_usd_per_month is not None and m.saving_usd_per_month.p50 > 0:
        return f"{words.usd(m.saving_usd_per_month.p50)} a month{words.spread(m.saving_usd_per_month)}"
    return f"{words.hours(m.freed_gpu_hours_per_month)} a month"


def realisation_words(realisation: Realisation, available_from: str | None) -> str:
    """How a saving comes back."""
    if realisation == "cash-at":
        return f"cash from {brief(available_from)} on" if available_from else "cash at a later date"
    return {
        "cash-now": "cash, now", "capacity-freed": "capacity for other work, no cash", "energy": "energy",
    }[realisation]  # fmt: skip


def idle(story: Story, lengths: Lengths) -> Section:
    title = "Idle and held GPUs, by owner"
    if not story.holdings:
        return Section(title, (cover.idleness(story.advice.summary), *_unowned(story)))

    def row(h: Holding) -> tuple[str, ...]:
        owner = "nobody held them" if h.owner is None else brief(h.owner)
        return (
            owner,
            words.listed([brief(n) for n in h.names]),
            str(h.gpus),
            bare_hours(h.gpu_hours),
            words.cost(h.cost_usd, h.gpu_hours, priced=True),
        )

    rows = tuple(map(row, story.holdings[: lengths.rows]))
    heads: tuple[str, ...] = ("owner", "what", "GPUs", "GPU-hours", "cost")
    s = story.advice.summary
    if not words.has_prices(s):
        heads, rows = (*heads[:-2], IN_HOURS), tuple(r[:-1] for r in rows)
    of = f"Idleness was {cover.judged_of(s)}; of the others it is not known." if s.partly_judged else ""
    sheet = Sheet(heads, rows, tuple(range(2, len(heads))), more(story.holdings, lengths.rows))
    return Section(title, (*((of,) if of else ()), *_unowned(story)), sheet=sheet)


def _unowned(story: Story) -> tuple[str, ...]:
    """Whom to ask about work that nobody is named for."""
    found = [w for w in story.advice.workloads if w.basis == INFERRED]
    if not found:
        return ()
    held = words.hours(sum(w.gpu_hours for w in found))
    nodes = words.listed([brief(n) for n in sorted({n for w in found for n in w.nodes})])
    count = _count(len(found), "workload")
    return (f"Owner unknown: {count} ({held}), inferred from what the GPUs do. Ask who uses {nodes}.",)


def fabric(story: Story, chart: Chart | None, lengths: Lengths) -> Section:
    title = "The fabric: what was paid and what was used"
    if not story.fabrics:
        where = "in the fleet" if story.team is None else "on the nodes that this team has to itself"
        return Section(title, (f"No fabric was observed {where}.",))
    said = [_silent_words(story.fabrics)]
    open_ = sum(f.nodes - f.judged for f in story.fabrics)
    if open_ and open_ < sum(f.nodes for f in story.fabrics):
        said.append(f"Of {_count(open_, 'fabric')} it is not known: not observed, or not for long enough.")

    def row(f: FabricSum) -> tuple[str, ...]:
        name = brief(f.node_sku or "a node not known")
        return (
            f"{name}, {brief(f.kind, 20)}" if f.kind else name, str(f.nodes), words.usd(f.cost_usd),
            words.percent(f.util_p995) if f.util_p995 is not None else "not observed",
            f"{f.silent}" if f.judged == f.nodes else f"{f.silent} of {f.judged}" if f.judged else "not judged",
        )  # fmt: skip

    unseen = [
        f"{f.unseen} of {f.nodes} {brief(f.node_sku or 'nodes')}: {brief(f.reasons[0], 200)}"
        for f in story.fabrics
        if f.unseen and f.reasons
    ]
    heads: tuple[str, ...] = ("node", "nodes", "paid", "busiest 0.5 %", "silent")
    rows = tuple(map(row, story.fabrics[: lengths.rows]))
    if all(f.cost_usd is None for f in story.fabrics):
        heads, rows = (*heads[:2], *heads[3:]), tuple((*r[:2], *r[3:]) for r in rows)
    sheet = Sheet(heads, rows, tuple(range(1, len(heads))), more(story.fabrics, lengths.rows))
    return Section(title, tuple(said), chart=chart, sheet=sheet, bullets=_cut(unseen, lengths))


def _silent_words(fabrics: Sequence[FabricSum]) -> str:
    """How many of the fabrics that were judged carried nothing, and what that costs."""
    judged, quiet = sum(f.judged for f in fabrics), sum(f.silent for f in fabrics)
    paid = [f.cost_usd for f in fabrics if f.cost_usd is not None]
    assumed = ", in part assumed" if any(f.assumed for f in fabrics) else ""
    unpriced = "what they cost is not known."
    if not judged:
        paid_words = f"the fabrics add {words.usd(sum(paid))} to their nodes' price{assumed}." if paid else unpriced
        return f"Whether a fabric carried anything was not judged; {paid_words}"
    of = f"{judged} fabrics" if judged == sum(f.nodes for f in fabrics) else f"{judged} fabrics that were judged"
    said = f"{quiet} of {of} carried nothing that needs one"
    if not paid:
        return f"{said}; {unpriced}"
    silent = words.usd(sum(f.silent_usd or 0.0 for f in fabrics))
    return f"{said}: {silent} of {words.usd(sum(paid))} that the fabrics add to their nodes' price{assumed}."


def coverage(story: Story, brevity: Brief, lengths: Lengths) -> Section:
    a = story.advice
    said = []
    if a.end > a.generated_at:
        said.append(f"The week is not over: it ends {minute(a.end)}, and this was written {minute(a.generated_at)}.")
    if story.observed is not None:
        # Whoever rounds up to all of it hides that something is missing.
        share = (
            f"{min(story.observed * 100, 99.9):.1f} %" if 0.99 < story.observed < 1 else words.percent(story.observed)
        )
        said.append(f"{share} of the workloads' GPU time was observed.")
    money = a.summary.reconciliation
    if money.unobserved:
        said.append(f"Hours that nobody observed cost {words.usd(money.unobserved)}.")
    unpriced = sum(w.cost_usd is None for w in a.workloads)
    if unpriced and a.summary.cost_usd is not None:
        said.append(
            f"{_count(unpriced, 'workload')} without a cost: the node has no price, or all its GPUs were shared. They "
            "are in no dollar of a team."
        )
    bullets = [
        f"{brevity.sentence(b.why, 240)} ({brief(b.what)} of {_count(b.workloads, 'workload')})"
        for b in story.blind_spots
    ]
    bullets += [brevity.sentence(note.text, 320) for note in a.notes]
    rows = cover.unobserved_rows(a.summary)
    if not bullets and not rows and story.observed is not None and story.observed >= cover.WHOLE_MIN:
        said.append("Every figure that the verdicts need was observed.")
    said.insert(0, f"{cover.observed_time(a)}; {cover.gpus_words(a.summary)}.")
    shown = tuple((brief(who, 96), n, brevity.sentence(why, 240), cost) for who, n, why, cost in rows[: lengths.rows])
    sheet = Sheet(cover.HEADS, shown, (1, 3), more(rows, lengths.rows)) if rows else None
    return Section("What was not observed", tuple(said), sheet=sheet, bullets=_cut(bullets, lengths))


def teams(story: Story, lengths: Lengths) -> Section:
    def row(r: TeamRow) -> tuple[str, ...]:
        name = "(no team)" if r.team is None else brief(r.team, 32)
        change = change_words(r.cost_usd)
        moved = f" ({change})" if change and change != AS_BEFORE else ""
        return (
            name, bare_hours(r.gpu_hours.now), words.cost(r.cost_usd.now, r.gpu_hours.now or 0.0, priced=True) + moved,
            *(words.usd(v) if v is not None or r.judged else "not judged"
              for v in (r.wasted_usd, r.recoverable_usd_per_month)),
        )  # fmt: skip

    heads: tuple[str, ...] = ("team", "GPU-hours", "cost", "wasted", "recoverable a month")
    rows = tuple(map(row, story.teams[: lengths.teams]))
    if not words.has_prices(story.advice.summary):
        heads, rows = ("team", IN_HOURS), tuple(r[:2] for r in rows)
    return Section(
        "Every team",
        (
            "A team's dollars are those of the hours that its workloads held alone. Gains are medians, which do not "
            "add up to the fleet's to the dollar.",
        ),
        sheet=Sheet(heads, rows, tuple(range(1, len(heads))), more(story.teams, lengths.teams)),
    )


def prices(story: Story, lengths: Lengths) -> Section:
    """What every dollar rests on; the sources stand in the lists."""
    known = story.advice.prices
    if not known:
        return Section("Prices", ("No price is known: costs are in GPU-hours.",))
    rows = tuple(
        (
            f"{brief(p.sku)}, {brief(p.region, 24)}",
            words.usd(p.usd_per_hour),
            f"{brief(p.basis, 24)}, {brief(p.as_of, 24)}{', region assumed' if p.region_assumed else ''}",
        )
        for p in known[: lengths.rows]
    )
    return Section("Prices", sheet=Sheet(("node", "an hour", "basis, as of"), rows, (1,), more(known, lengths.rows)))


def method(story: Story, chart: Chart | None) -> Section:
    a = story.advice
    parts = words.money_parts(a.summary.reconciliation)
    total = a.summary.reconciliation.total
    sheet = None
    if story.team is not None:
        money = (
            "This report's dollars are those of the hours that the team's workloads held alone, idle ones included; "
            "shared GPUs, free nodes and hours that nobody observed stand in the fleet's report. The interval of the "
            "cash to gain takes all moves to turn out well or badly together."
        )
    elif total is None:
        money = "No price is known, so no dollar is stated."
    else:
        money = "Every dollar of the nodes is accounted for once; the parts sum to the nodes' prices times their hours."
        rows = (*((name, words.usd(v), words.percent(v / total if total else None)) for name, v in parts),
                ("together", words.usd(total), ""))  # fmt: skip
        sheet = Sheet(("where the money went", "US dollars", "share"), rows, (1, 2))
    return Section(
        "Method and reconciliation",
        (
            money,
            "What a workload is and what holds it back follows from sampled counters; intervals are 10th to 90th "
            "percentiles. Savings are against the same SKU at its right-sized count, and count once where moves "
            "exclude one another. What is owned or bound comes back as capacity, never as cash.",
        ),
        chart=chart if sheet is not None else None,
        sheet=sheet,
    )


def change_words(change: Change) -> str:
    """``+4 %`` on the week before; empty where the two cannot be compared."""
    ratio = change.ratio
    if ratio is None:
        return ""
    return AS_BEFORE if abs(ratio) < 0.005 else f"{ratio * 100:+,.0f} %" if ratio < 10 else "more than tenfold"


def bare_hours(value: float | None) -> str:
    """GPU-hours where the unit stands above."""
    return words.hours(value, "").strip()


def more(every: Sequence[object], shown: int, where: str = _ATTACHED) -> str:
    """How many a list does not show, and where they stand; empty where it shows all."""
    return f"and {len(every) - shown} more: {where}." if len(every) > shown else ""


def _cut(lines: Sequence[str], lengths: Lengths) -> tuple[str, ...]:
    rest = more(lines, lengths.bullets)
    return (*lines[: lengths.bullets], *((rest,) if rest else ()))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
