"""The sections of a whole page after its lists, each in words from the advice's figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....rules.catalog.types import Price
from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.coded_text import UNSPECIFIED, CodedText
from ...core.verdict_types import INFERRED
from .. import coverage as cover
from ..aggregates import NOT_OBSERVED, FabricSum, blind_spots, fabric_sums, holdings, hours_by_kind, observed_share
from ..document import Bars, Bullets, Section, Table, section

# One sentence for many notes of a code. `{count}`: how many.
_TOGETHER = {
    "work-is-over": "{count} workloads ended, or moved to other nodes, and did not recur: no savings there next month.",
    "signals-contradict": "No verdict on waste of {count} workloads: their signals contradict one another.",
    "idle-not-judged": "No verdict on idle GPUs of {count} nodes: utilization and activity contradict one another.",
    "silenced-by-exception": "{count} exceptions silence findings.",
}
_EXAMPLE_MAX = 160


def note_groups(notes: Iterable[CodedText]) -> tuple[tuple[str, str], ...]:
    """Code and text of the notes, one text for each code, in order of appearance: the note itself, a sentence for all,
    or the first note with the count of the others. Notes without a code stay apart."""
    groups: dict[str, list[str]] = {}
    for number, note in enumerate(notes):
        groups.setdefault(note.code if note.code != UNSPECIFIED else f"{number}", []).append(note.text)
    lines = []
    for code, (first, *others) in groups.items():
        text = first
        if others and code in _TOGETHER:
            text = _TOGETHER[code].format(count=len(others) + 1)
        elif others:
            example = first if len(first) <= _EXAMPLE_MAX else f"{first[: _EXAMPLE_MAX - 1].rstrip()}…"
            text = f"{example} ({len(others)} more {'note' if len(others) == 1 else 'notes'})"
        lines.append((code, text))
    return tuple(lines)


def kinds(advice: Advice) -> Section:
    """What the GPUs did, the most first, what was not observed last."""
    hours = sorted(hours_by_kind(advice).items(), key=lambda kind: (kind[0] == NOT_OBSERVED, -kind[1], kind[0]))
    return section("GPU-hours by kind", Bars(tuple((kind, value, words.bare_hours(value)) for kind, value in hours)))


def idle(advice: Advice) -> Section:
    """Idle GPUs by owner; where no price is known the GPU-hours are the cost."""
    title, s, held = "Idle and held GPUs, by owner", advice.summary, holdings(advice)
    if not held:
        return section(title, cover.idleness(s), _unowned(advice))
    priced = words.has_prices(s)
    heads = ("owner", "what", "GPUs", *(("GPU-hours", "cost") if priced else ("cost (GPU-hours)",)))
    rows = [
        (
            h.owner or "not held", words.listed(h.names), str(h.gpus), words.bare_hours(h.gpu_hours),
            *((words.cost(h.cost_usd, h.gpu_hours, priced=True),) if priced else ()),
        )
        for h in held
    ]  # fmt: skip
    return section(
        title,
        f"Idleness was {cover.judged_of(s)}; no data for the others." if s.partly_judged else "",
        _unowned(advice),
        Table(heads, tuple(rows), tuple(range(2, len(heads)))),
    )


def _unowned(advice: Advice) -> str:
    """Whom to ask about work without an owner."""
    unowned = [w for w in advice.workloads if w.basis == INFERRED]
    if not unowned:
        return ""
    held, count = words.hours(sum(w.gpu_hours for w in unowned)), words.counted(len(unowned), "workload")
    nodes = words.listed(sorted({n for w in unowned for n in w.nodes}))
    return f"Owner unknown: {count} ({held}), inferred from what the GPUs do. Ask who uses {nodes}."


def fabric(advice: Advice, team: str | None = None) -> Section:
    """What compute fabrics cost, and what they carried. `team` None: the whole fleet."""
    title, fabrics = "The fabric: what was paid and what was used", fabric_sums(advice)
    if not fabrics:
        where = "in the fleet" if team is None else "on the nodes that this team has to itself"
        return section(title, f"No fabric was observed {where}.")
    unknown, count = sum(f.nodes - f.judged for f in fabrics), sum(f.nodes for f in fabrics)
    open_verdicts = f"{words.counted(unknown, 'fabric')} without a verdict: not observed, or not for long enough."
    priced = [f for f in fabrics if f.cost_usd is not None]

    def row(f: FabricSum) -> tuple[str, ...]:
        name = f.node_sku or "unknown node"
        peak = words.percent(f.util_p995) if f.util_p995 is not None else "not observed"
        unused = f"{f.silent}" if f.judged == f.nodes else f"{f.silent} of {f.judged}" if f.judged else "not judged"
        cost = (words.usd(f.cost_usd),) if priced else ()
        return (f"{name}, {f.kind}" if f.kind else name, str(f.nodes), *cost, peak, unused)

    heads = ("node", "nodes", *(("cost",) if priced else ()), "99.5th percentile", "unused")
    unseen = (
        f"{f.unseen} of {f.nodes} {f.node_sku or 'nodes'}: {f.reasons[0]}" for f in fabrics if f.unseen and f.reasons
    )
    return section(
        title,
        _silent_words(fabrics),
        open_verdicts if 0 < unknown < count else "",
        _fabric_bars(priced) if team is None else None,
        Table(heads, tuple(map(row, fabrics)), tuple(range(1, len(heads)))),
        Bullets(tuple(unseen)),
    )


def _fabric_bars(priced: Sequence[FabricSum]) -> Bars | None:
    """What was paid for fabrics by use. None: all fabrics did the same."""
    paid, silent = sum(f.cost_usd or 0.0 for f in priced), sum(f.silent_usd or 0.0 for f in priced)
    unseen = sum(f.unseen_usd or 0.0 for f in priced)
    parts = (("in use", paid - silent - unseen), ("no traffic", silent), ("not observed", unseen))
    return _shares([(name, value) for name, value in parts if value > 0.005 * paid])


def _shares(parts: Sequence[tuple[str, float]]) -> Bars | None:
    """Parts of a sum of US dollars with their shares. None: there are not two to compare."""
    total = sum(value for _, value in parts)
    rows = tuple((name, v, f"{words.usd(v)} ({words.percent(v / total if total else None)})") for name, v in parts)
    return Bars(rows) if len(rows) > 1 else None


def _silent_words(fabrics: Sequence[FabricSum]) -> str:
    """How many of the judged fabrics carried no traffic, and what these cost."""
    judged, quiet = sum(f.judged for f in fabrics), sum(f.silent for f in fabrics)
    costs = [f.cost_usd for f in fabrics if f.cost_usd is not None]
    assumed = ", in part assumed" if any(f.assumed for f in fabrics) else ""
    added = f"{words.usd(sum(costs))} that the fabrics add to their nodes' price{assumed}"
    if not judged:
        cost = f"they add {words.usd(sum(costs))} to their nodes' price{assumed}" if costs else "their cost is unknown"
        return f"No verdict on fabric traffic; {cost}."
    of = f"{judged} fabrics" if judged == sum(f.nodes for f in fabrics) else f"{judged} fabrics with a verdict"
    silent = f"{words.usd(sum(f.silent_usd or 0.0 for f in fabrics))} of {added}" if costs else "their cost is unknown"
    return f"{quiet} of {of} carried no traffic that needs one{':' if costs else ';'} {silent}."


def coverage(a: Advice) -> Section:
    """What was observed, and what is missing."""
    share, lost = observed_share(a), a.summary.reconciliation.unobserved
    percent = ""
    if share is not None:  # rounded down: 100 % would hide a gap
        percent = f"{min(share * 100, 99.9):.1f} %" if 0.99 < share < 1 else words.percent(share)
    unpriced = sum(w.cost_usd is None for w in a.workloads) if a.summary.cost_usd is not None else 0
    without_cost = (
        f"{words.counted(unpriced, 'workload')} without a cost: its node has no price, or all its GPUs were shared. "
        "They are not included in any team's cost."
    )
    missing, rows = missing_metrics(a), cover.unobserved_rows(a.summary)
    complete = not missing and not rows and share is not None and share >= cover.WHOLE_MIN
    return section(
        "Coverage",
        f"{cover.observed_time(a)}; {cover.gpus_words(a.summary)}. {cover.extent_words(a)}".rstrip(),
        f"{percent} of the workloads' GPU time was observed." if percent else "",
        f"Hours without telemetry cost {words.usd(lost)}." if lost else "",
        without_cost if unpriced else "",
        "All metrics that the verdicts need were observed." if complete else "",
        Table(cover.HEADS, rows, (1, 3)),
        Bullets(missing),
    )


def missing_metrics(advice: Advice) -> tuple[str, ...]:
    return tuple(f"{b.why} ({b.what} of {words.counted(b.workloads, 'workload')})" for b in blind_spots(advice))


def price_line(p: Price) -> str:
    """``azure/Standard_ND96is_H100_v5, eastus: $88.49 per node-hour at list price, 2026-09-19 (source)``."""
    return f"{p.sku}, {p.region}: {words.price_words(p)}"


def prices(known: Sequence[Price]) -> Section:
    """The price of each node type with its date and its source."""
    without = "No price is known. Costs are in GPU-hours; savings in dollars are unknown."
    return section("Prices", Bullets(tuple(map(price_line, known))) if known else without)


def method(advice: Advice, team: str | None = None) -> Section:
    """How the figures are calculated. `team` None: the whole fleet."""
    total = advice.summary.reconciliation.total
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
            "Every node-hour is counted once; the parts sum to the nodes' prices times their hours "
            f"({words.usd(total)})."
        )
    return section(
        "Method and reconciliation",
        money,
        "Kinds and bottlenecks of workloads follow from sampled counters. Intervals are 10th to 90th percentiles. "
        "The baseline of savings is the same SKU at its right-sized count. Recommendations that exclude one another "
        "count once. Owned and committed nodes free capacity, never cash.",
        _shares(words.money_parts(advice.summary.reconciliation)) if team is None and total is not None else None,
    )
