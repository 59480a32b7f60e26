"""The sections of a whole page after its lists, each in words from the advice's figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....rules.catalog.types import Price
from ...core import formatting as words
from ...core.advice_types import Advice, FabricUse
from ...core.coded_text import UNSPECIFIED, CodedText
from ...core.scalars import sum_if_all
from .. import coverage as cover
from ..aggregates import NOT_OBSERVED, blind_spots, holdings, hours_by_kind, observed_share
from ..document import Bars, Bullets, Section, Table, brief, section
from ..titles import waste_of

_EXAMPLE_MAX = 160


def note_groups(notes: Iterable[CodedText]) -> tuple[tuple[str, str], ...]:
    """Code and text of the notes, in order of appearance: of a code the first with the count of the others. Notes
    without a code stay apart."""
    groups: dict[str, list[str]] = {}
    for number, note in enumerate(notes):
        groups.setdefault(note.code if note.code != UNSPECIFIED else f"{number}", []).append(note.text)
    return tuple(
        (code, f"{brief(first, _EXAMPLE_MAX)} ({words.counted(len(others), 'more note')})" if others else first)
        for code, (first, *others) in groups.items()
    )


def kinds(advice: Advice) -> Section:
    """What the GPUs did, the most first, what was not observed last."""
    hours = sorted(hours_by_kind(advice).items(), key=lambda kind: (kind[0] == NOT_OBSERVED, -kind[1], kind[0]))
    return section("GPU-hours by kind", Bars(tuple((kind, value, words.bare_hours(value)) for kind, value in hours)))


def idle(advice: Advice) -> Section:
    """Idle GPUs by owner; without any price there is no column of costs."""
    s, held = advice.summary, holdings(advice)
    costs = 1 if s.cost_usd is not None else 0
    rows = (
        (h.owner or "not held", words.listed(h.names), str(h.gpus), words.bare_hours(h.gpu_hours),
         *[words.cost(h.cost_usd, h.gpu_hours, priced=True)] * costs)
        for h in held
    )  # fmt: skip
    heads = ("owner", "what", "GPUs", "GPU-hours", *["cost"] * costs)
    sentence = f"Idleness was {cover.judged_of(s)}; no data for the others." if s.partly_judged else ""
    if not held:
        extent = f" ({cover.judged_of(s)})" if s.partly_judged else ""
        sentence = f"No GPU was idle or held without use{extent}."
        sentence = f"Idle GPUs: {cover.not_judged(s)}." if s.nothing_judged and s.gpu_count else sentence
    return section(
        "Idle and held GPUs, by owner",
        sentence,
        Table(heads, tuple(rows), tuple(range(2, len(heads)))),
    )


def fabric(advice: Advice, team: str | None = None) -> Section:
    """What compute fabrics cost by node SKU, and what they carried. `team` None: the whole fleet."""
    title, floor = "The fabric: what was paid and what was used", advice.summary.floor_hours or 0.0
    if not advice.fabrics:
        where = "in the fleet" if team is None else "on the nodes that this team has to itself"
        return section(title, f"No fabric was observed {where}.")
    silent = {node for f in advice.findings if waste_of(f.rule) == "fabric" for node in f.nodes}
    judged = {f.node for f in advice.fabrics if f.util_p995 is not None and f.hours >= floor} | silent
    groups: dict[tuple[str, str | None], list[FabricUse]] = {}
    for f in advice.fabrics:
        groups.setdefault((f.node_sku or "unknown node", f.kind), []).append(f)
    rows, unseen = [], []
    for (sku, kind), uses in groups.items():
        peak = max((f.util_p995 for f in uses if f.util_p995 is not None), default=None)
        quiet, verdicts = (sum(f.node in nodes for f in uses) for nodes in (silent, judged))
        unused = f"{quiet}" if verdicts == len(uses) else f"{quiet} of {verdicts}" if verdicts else "not judged"
        cost, seen = sum_if_all(f.cost_usd for f in uses), words.percent(peak) if peak is not None else "not observed"
        name = f"{sku}, {kind}" if kind else sku
        rows.append((-(cost or 0.0), -len(uses), name, (name, str(len(uses)), words.usd(cost), seen, unused)))
        if reasons := [f.unseen for f in uses if f.unseen is not None]:
            unseen.append(f"{sum(f.util_p995 is None for f in uses)} of {len(uses)} {sku}: {reasons[0]}")
    heads = ("node", "nodes", "cost", "99.5th percentile", "unused")
    table = Table(heads, tuple(row for *_, row in sorted(rows)), (1, 2, 3, 4))
    count, verdicts = len(advice.fabrics), sum(f.node in judged for f in advice.fabrics)
    total = [f.cost_usd for f in advice.fabrics if f.cost_usd is not None]
    unused = sum(f.cost_usd or 0.0 for f in advice.fabrics if f.node in silent)
    assumed = ", in part assumed" if any(f.assumed for f in advice.fabrics) else ""
    cost = "Their cost is unknown."
    if total:
        of = f"{words.usd(unused)} of " if verdicts else ""
        cost = f"{of}{words.usd(sum(total))} that the fabrics add to their nodes' price{assumed}."
    quiet = f"{sum(f.node in silent for f in advice.fabrics)} of {verdicts} fabrics"
    quiet += " with a verdict" if verdicts < count else ""
    return section(
        title,
        f"{quiet} carried no traffic that needs one: {cost}" if verdicts else f"No verdict on fabric traffic: {cost}",
        f"{words.counted(count - verdicts, 'fabric')} without a verdict: not observed, or not for long enough."
        if 0 < verdicts < count
        else "",
        table,
        Bullets(tuple(unseen)),
    )


def coverage(a: Advice) -> Section:
    """What was observed, and what is missing."""
    share, lost = observed_share(a), a.summary.reconciliation.unobserved
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
        f"{cover.share_words(share)} of the workloads' GPU time was observed." if share is not None else "",
        f"Hours without telemetry cost {words.usd(lost)}." if lost else "",
        without_cost if unpriced else "",
        "All metrics that the verdicts need were observed." if complete else "",
        Table(cover.HEADS, rows, (1, 3)),
        Bullets(missing),
    )


def levers(advice: Advice) -> Section:
    """What a lower precision would change, by service."""
    lines = tuple(f"{w.name}: {lever}" for w in advice.workloads for lever in w.levers)
    return section("Lower precision (not included in any sum)", Bullets(lines))


def missing_metrics(advice: Advice) -> tuple[str, ...]:
    """Why metrics are missing, and for how many workloads."""
    return tuple(
        f"{why} ({metric} of {words.counted(count, 'workload')})" for metric, why, count in blind_spots(advice)
    )


def price_line(p: Price) -> str:
    """``azure/Standard_ND96is_H100_v5, eastus: $88.49 per node-hour at list price, 2026-09-19 (source)``."""
    return f"{p.sku}, {p.region}: {words.price_words(p)}"


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
        parts = Bars(tuple((name, usd, f"{words.usd(usd)} ({words.percent(usd / total)})") for name, usd in shares))
    return section(
        "Method and reconciliation",
        money,
        "Kinds and bottlenecks of workloads follow from sampled counters. Intervals are 10th to 90th percentiles. "
        "The baseline of savings is the same SKU at its right-sized count. Recommendations that exclude one another "
        "count once. Owned and committed nodes free capacity, never cash.",
        parts,
    )
