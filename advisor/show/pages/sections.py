"""The sections of a whole page after its lists, each in words from the advice's figures. Every list has a length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....rules.catalog.types import Price
from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.coded_text import UNSPECIFIED, CodedText
from ...core.verdict_types import INFERRED
from .. import coverage as cover
from ..aggregates import NOT_OBSERVED, FabricSum, blind_spots, fabric_sums, holdings, hours_by_kind, observed_share
from ..document import Chart, Section, Table, section
from ..truncate import Lengths

# What many notes of one code say together. `{count}`: how many.
_TOGETHER = {
    "work-is-over": "{count} workloads ended, or moved to other nodes, and did not recur: no savings there next month.",
    "signals-contradict": "No verdict on waste of {count} workloads: their signals contradict one another.",
    "idle-not-judged": "No verdict on idle GPUs of {count} nodes: utilization and activity contradict one another.",
    "silenced-by-exception": "{count} exceptions silence findings.",
}
_EXAMPLE_MAX = 160
KINDS, MONEY, FABRIC = "kinds", "money", "fabric"  # the charts' names


def note_groups(notes: Iterable[CodedText]) -> tuple[tuple[str, str], ...]:
    """The notes by code, each code with one text, in the order in which the codes first appear: the note itself where
    it is the only one; else one sentence, or the first with the count of the others. Those without a code stay
    apart."""
    groups: dict[str, list[str]] = {}
    for number, note in enumerate(notes):
        groups.setdefault(note.code if note.code != UNSPECIFIED else f"{number}", []).append(note.text)
    told = []
    for code, (first, *others) in groups.items():
        text = first
        if others and code in _TOGETHER:
            text = _TOGETHER[code].format(count=len(others) + 1)
        elif others:
            example = first if len(first) <= _EXAMPLE_MAX else f"{first[: _EXAMPLE_MAX - 1].rstrip()}…"
            text = f"{example} ({len(others)} more notes like this)"
        told.append((code, text))
    return tuple(told)


def kinds(advice: Advice, chart: Chart | None) -> Section:
    """What the GPUs did, as a chart, or in words where one would show nothing."""
    hours = ordered_kinds(advice)
    return section("GPU-hours by kind", kinds_words(hours) if chart is None and hours else "", chart)


def ordered_kinds(advice: Advice) -> Mapping[str, float]:
    """GPU-hours by kind, the most first, what was not observed last."""
    known = hours_by_kind(advice)
    return {kind: known[kind] for kind in sorted(known, key=lambda kind: (kind == NOT_OBSERVED, -known[kind], kind))}


def kinds_words(hours: Mapping[str, float]) -> str:
    """GPU-hours by kind in a sentence: what their chart shows."""
    return f"GPU-hours by kind: {'; '.join(f'{kind} {words.bare_hours(value)}' for kind, value in hours.items())}."


def idle(advice: Advice, lengths: Lengths) -> Section:
    """What stood idle, by owner; where no price is known the hours are the cost, told once."""
    title, s, held = "Idle and held GPUs, by owner", advice.summary, holdings(advice)
    if not held:
        return section(title, cover.idleness(s), _unowned(advice))
    heads: tuple[str, ...] = ("owner", "what", "GPUs", "GPU-hours", "cost")
    rows = [
        ("not held" if h.owner is None else h.owner, words.listed(h.names), str(h.gpus),
         words.bare_hours(h.gpu_hours), words.cost(h.cost_usd, h.gpu_hours, priced=True))
        for h in held[: lengths.rows]
    ]  # fmt: skip
    if not words.has_prices(s):
        heads, rows = (*heads[:-2], "cost (GPU-hours)"), [row[:-1] for row in rows]
    return section(
        title,
        f"Idleness was {cover.judged_of(s)}; no data for the others." if s.partly_judged else "",
        _unowned(advice),
        Table(heads, tuple(rows), tuple(range(2, len(heads))), lengths.more(held, lengths.rows)),
    )


def _unowned(advice: Advice) -> str:
    """Whom to ask about work that nobody is named for."""
    found = [w for w in advice.workloads if w.basis == INFERRED]
    if not found:
        return ""
    held, count = words.hours(sum(w.gpu_hours for w in found)), words.counted(len(found), "workload")
    nodes = words.listed(sorted({n for w in found for n in w.nodes}))
    return f"Owner unknown: {count} ({held}), inferred from what the GPUs do. Ask who uses {nodes}."


def fabric(advice: Advice, chart: Chart | None, lengths: Lengths, team: str | None = None) -> Section:
    """What was paid for compute fabrics, and what they carried. `team` None: the whole fleet."""
    title, fabrics = "The fabric: what was paid and what was used", fabric_sums(advice)
    if not fabrics:
        where = "in the fleet" if team is None else "on the nodes that this team has to itself"
        return section(title, f"No fabric was observed {where}.")
    unknown, count = sum(f.nodes - f.judged for f in fabrics), sum(f.nodes for f in fabrics)
    some = f"{words.counted(unknown, 'fabric')} without a verdict: not observed, or not for long enough."

    def row(f: FabricSum) -> tuple[str, ...]:
        name = f.node_sku or "unknown node"
        return (
            f"{name}, {f.kind}" if f.kind else name, str(f.nodes), words.usd(f.cost_usd),
            words.percent(f.util_p995) if f.util_p995 is not None else "not observed",
            f"{f.silent}" if f.judged == f.nodes else f"{f.silent} of {f.judged}" if f.judged else "not judged",
        )  # fmt: skip

    unseen = [
        f"{f.unseen} of {f.nodes} {f.node_sku or 'nodes'}: {f.reasons[0]}" for f in fabrics if f.unseen and f.reasons
    ]
    heads: tuple[str, ...] = ("node", "nodes", "cost", "99.5th percentile", "unused")
    rows = tuple(map(row, fabrics[: lengths.rows]))
    if all(f.cost_usd is None for f in fabrics):
        heads, rows = (*heads[:2], *heads[3:]), tuple((*r[:2], *r[3:]) for r in rows)
    return section(
        title,
        _silent_words(fabrics),
        some if 0 < unknown < count else "",
        chart,
        Table(heads, rows, tuple(range(1, len(heads))), lengths.more(fabrics, lengths.rows)),
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


def coverage(a: Advice, lengths: Lengths) -> Section:
    """What was observed, and what is missing."""
    share, observed = observed_share(a), ""
    if share is not None:
        # Whoever rounds up to all of it hides that something is missing.
        told = f"{min(share * 100, 99.9):.1f} %" if 0.99 < share < 1 else words.percent(share)
        observed = f"{told} of the workloads' GPU time was observed."
    lost = a.summary.reconciliation.unobserved
    unpriced = sum(w.cost_usd is None for w in a.workloads) if a.summary.cost_usd is not None else 0
    missing = [f"{b.why} ({b.what} of {words.counted(b.workloads, 'workload')})" for b in blind_spots(a)]
    rows = cover.unobserved_rows(a.summary)
    whole = not missing and not rows and share is not None and share >= cover.WHOLE_MIN
    return section(
        "Coverage",
        f"{cover.observed_time(a)}; {cover.gpus_words(a.summary)}. {cover.extent_words(a)}".rstrip(),
        observed,
        f"Hours without telemetry cost {words.usd(lost)}." if lost else "",
        f"{words.counted(unpriced, 'workload')} without a cost: its node has no price, or all its GPUs were shared. "
        "They are not included in any team's cost."
        if unpriced
        else "",
        "All metrics that the verdicts need were observed." if whole else "",
        Table(cover.HEADS, rows[: lengths.rows], (1, 3), lengths.more(rows, lengths.rows)),
        lengths.bulleted(missing),
    )


def prices(known: Sequence[Price], lengths: Lengths) -> Section:
    """What every dollar rests on, with its date and its source."""
    if not known:
        return section("Prices", "No price is known. Costs are in GPU-hours; savings in dollars are unknown.")
    return section(
        "Prices", lengths.bulleted([f"{p.sku}, {p.region}: {words.price_words(p)}" for p in known], lengths.rows)
    )


def method(advice: Advice, chart: Chart | None, team: str | None = None) -> Section:
    """How the figures come about. `team` None: the whole fleet."""
    parts, total = words.money_parts(advice.summary.reconciliation), advice.summary.reconciliation.total
    table = None
    if team is not None:
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
