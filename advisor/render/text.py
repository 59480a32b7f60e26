"""The advice as a person reads it in a terminal or a pipe: what was found, what it costs, the ways out compared.

All outside text passes through `clean` and enters as `rich.text.Text`, which knows no markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from ..core import formatting as words
from ..core.advice_types import Advice, Recommendation, WorkloadVerdict
from ..core.coded_text import CodedText
from ..moves.recommendation_kinds import action_words
from ..moves.waste_rules import wasted_hours
from ..views import coverage
from ..views.finding_groups import Case, best, best_way, cases, loose
from .console import console_of, indented, line, table, written
from .phases import phase_sentence

SHOWN_WORKLOADS = 30
SHOWN_UNOBSERVED = 12
SHOWN_REJECTED = 3
SHOWN_PHASES = 8


def render_text(advice: Advice, *, width: int = 100, color: bool = False) -> str:
    """The whole advice for a screen `width` columns wide; without `color` it holds no escape sequence at all."""
    out, console = console_of(width, color)
    _overview(console, advice)
    for number, case in enumerate(cases(advice), 1):
        _case(console, number, case)
    _loose(console, advice)
    _market(console, advice)
    _prices(console, advice)
    return written(out)


def render_overview(advice: Advice, *, width: int = 100, color: bool = False) -> str:
    """The first page: the money, what was found in a line each, and what each workload is."""
    out, console = console_of(width, color)
    _overview(console, advice)
    return written(out)


def render_story(advice: Advice, rule: str, *, width: int = 100, color: bool = False) -> str:
    """The dearest case of one rule as plain prose: what was found, each way out in a sentence. Empty: no such case."""
    found = [case for case in cases(advice) if case.finding.rule == rule]
    if not found:
        return ""
    case = max(found, key=lambda c: c.finding.cost_usd or 0.0)
    out, console = console_of(width, color)
    line(console, f"In words: the case of {rule} that costs most", "bold")
    line(console, case.finding.text)
    console.print()
    for way in case.ways_out:
        indented(console, f"- {action_words(way)}: {way.text}")
    console.print()
    line(console, best(case))
    if case.finding.would_change_if:
        line(console, f"All this would be wrong if {_or(case.finding.would_change_if)}.")
    return written(out)


def _overview(console: Console, advice: Advice) -> None:
    _head(console, advice)
    found = cases(advice)
    if found:
        line(console, "Found", "bold")
        rows = [(str(number), *_found_row(advice, case)) for number, case in enumerate(found, 1)]
        head = words.cost_head("cost so far", words.has_prices(advice.summary))
        console.print(table(("", "finding", "of", head, "best way out", "comes to"), rows))
    else:
        line(console, coverage.nothing_found(advice))
    console.print()
    _workloads(console, advice)


def _found_row(advice: Advice, case: Case) -> tuple[str, ...]:
    f = case.finding
    names = {w.id: w.name for w in advice.workloads}
    of = names.get(f.workload or "", "") or ", ".join(f.nodes) or f.node or words.NONE
    cost = words.cost(f.cost_usd, f.gpu_hours, words.has_prices(advice.summary))
    way = best_way(case)
    if way is None:
        return f.rule, of, cost, "none that saves", words.NONE
    saving = words.saving_words(way.saving_usd_per_month, way.freed_gpu_hours_per_month, way.realisation)
    return f.rule, of, cost, action_words(way), saving


def _head(console: Console, advice: Advice) -> None:
    s = advice.summary
    told = coverage.size_words(s, " (see below)")
    line(console, f"Advice for {coverage.window_words(advice)}: {told}", "bold")
    note = words.price_note(advice.prices)
    if s.nothing_judged and s.wasted_usd is None:
        line(console, f"Cost {words.cost(s.cost_usd, s.gpu_hours, priced=True)} ({note}).")
        line(console, f"Waste and recoverable cash: {coverage.not_judged(s)}.")
    elif words.has_prices(s):
        of = f"; {coverage.judged_of(s)}" if s.partly_judged else ""
        line(console, f"Cost {words.usd(s.cost_usd)}, of it wasted {words.usd(s.wasted_usd)} ({note}{of}).")
        line(console, f"Recoverable in cash: {coverage.recoverable_words(s)}.")
    else:
        of = f"; {coverage.judged_of(s)}" if s.partly_judged else ""
        wasted = words.hours(wasted_hours(advice.findings))
        line(console, f"Cost in GPU-hours ({note}{of}): {words.hours(s.gpu_hours)}, of it wasted {wasted}.")
    r = s.reconciliation
    if r.total is not None:
        told = ", ".join(f"{name} {words.usd(value)}" for name, value in words.money_parts(r))
        line(console, f"Where it went: {told}; together {words.usd(r.total)}." if told else "Nothing was spent.")
    for note in advice.notes:
        line(console, f"Note: {note}")
    console.print()
    _unobserved(console, advice)


def _unobserved(console: Console, advice: Advice) -> None:
    rows = coverage.unobserved_rows(advice.summary)
    if not rows:
        return
    line(console, coverage.NOT_OBSERVED, "bold")
    console.print(table(coverage.HEADS, rows[:SHOWN_UNOBSERVED]))
    if len(rows) > SHOWN_UNOBSERVED:
        line(console, f"and {len(rows) - SHOWN_UNOBSERVED} more reasons: --format json lists them all.")
    console.print()


def _case(console: Console, number: int, case: Case) -> None:
    f = case.finding
    line(console, f"{number}. {f.rule} ({f.severity}, confidence {words.percent(f.confidence)}, id {f.id})", "bold")
    indented(console, f.text)
    if f.evidence:
        told = "; ".join(map(words.evidence_words, f.evidence))
        indented(console, f"Measured: {told}.")
    if f.would_change_if:
        indented(console, f"This would be wrong if {_or(f.would_change_if)}.")
    if case.ways_out:
        console.print()
        _options(console, case.ways_out)
        indented(console, best(case))
    console.print()


def _loose(console: Console, advice: Advice) -> None:
    ways = loose(advice)
    if ways:
        line(console, "Moves that need no waste to pay", "bold")
        _options(console, ways)
        console.print()


def _market(console: Console, advice: Advice) -> None:
    if advice.market is None:
        return
    line(console, words.MARKET, "bold")
    if advice.market:
        _options(console, advice.market)
    else:
        line(console, words.NO_MARKET)
    console.print()


def _options(console: Console, ways: Sequence[Recommendation]) -> None:
    console.print(Padding(_ways_out(ways), (0, 0, 0, 2)))
    for letter, r in zip(_letters(), ways, strict=False):
        indented(console, f"{letter}) {r.text} (id {r.id})")
        if r.decision is not None:
            indented(console, f"   Decided: {words.decision_words(r.decision)}.")
        if r.would_change_if:
            indented(console, f"   Wrong if {_or(r.would_change_if)}.")
        for rejected in r.rejected[:SHOWN_REJECTED]:
            indented(console, f"   Not {rejected.sku}: {rejected.reason}.")
        if len(r.rejected) > SHOWN_REJECTED:
            more = len(r.rejected) - SHOWN_REJECTED
            indented(console, f"   Nor {more} other nodes, each for its reason: --format markdown or json tells.")


def _letters() -> Iterable[str]:
    return (chr(ord("a") + i % 26) for i in range(10_000))


def _or(conditions: Sequence[CodedText]) -> str:
    return ", or if ".join(words.clause(c.text) for c in conditions)


def _ways_out(ways: Sequence[Recommendation]) -> Table:
    rows = []
    for letter, r in zip(_letters(), ways, strict=False):
        rows.append((
            f"{letter}) {action_words(r)}", words.target_words(r), words.time_words(r.time_ratio),
            words.claim_words(r),
            r.break_even or words.NONE, r.risk,
            r.decision.state if r.decision and r.set_aside else f"yes, see {letter})" if r.blocked_by else "no",
        ))  # fmt: skip
    return table(("way out", "to", "predicted time", "saving", "break-even demand", "risk", "blocked"), rows)


def _workloads(console: Console, advice: Advice) -> None:
    if not advice.workloads:
        line(console, "No workload was observed in this window.")
        return
    line(console, "Workloads", "bold")
    alike = _alike(advice.workloads)
    heads: tuple[str, ...] = ("workload", "kind", "held back by", "GPUs", "held", "cost")
    rows = [_row(w) for w in alike[:SHOWN_WORKLOADS]]
    if not words.has_prices(advice.summary):  # then the hours held are the cost, and told once
        heads, rows = (*heads[:-2], "cost (GPU-hours)"), [(*row[:-2], row[-2].partition(" ")[0]) for row in rows]
    console.print(table(heads, rows))
    if len(alike) > SHOWN_WORKLOADS:
        line(console, f"and {len(alike) - SHOWN_WORKLOADS} smaller ones: --format json lists them all.")
    turning = [told for same in alike[:SHOWN_WORKLOADS] if (told := phase_sentence(same[0])) is not None]
    for told in turning[:SHOWN_PHASES]:
        line(console, told)
    if len(turning) > SHOWN_PHASES:
        line(console, f"{len(turning) - SHOWN_PHASES} others change, too: --format json lists their phases.")
    console.print()


def _alike(workloads: Sequence[WorkloadVerdict]) -> list[list[WorkloadVerdict]]:
    """Replicas and restarts of one series with the same verdict on the same GPU, the largest first."""
    rows: dict[tuple[str | None, ...], list[WorkloadVerdict]] = {}
    for w in workloads:
        rows.setdefault((w.series_id, w.name, w.kind.label, w.bottleneck.label, w.gpu_sku), []).append(w)
    return sorted(rows.values(), key=lambda same: -sum(w.gpu_hours for w in same))


def _row(same: Sequence[WorkloadVerdict]) -> tuple[str, ...]:
    first = same[0]
    gpus = len({gpu for w in same for gpu in w.gpus})
    costs = [w.cost_usd for w in same if w.cost_usd is not None]
    return (
        first.name if len(same) == 1 else f"{first.name} ({len(same)} runs)",
        f"{first.kind.label} {words.percent(min(w.kind.confidence for w in same))}", first.bottleneck.label,
        f"{gpus} {first.gpu_sku or 'unknown GPU'}", words.hours(sum(w.gpu_hours for w in same)),
        words.cost(sum(costs) if len(costs) == len(same) else None, sum(w.gpu_hours for w in same), priced=True),
    )  # fmt: skip


def _prices(console: Console, advice: Advice) -> None:
    for price in advice.prices:
        line(console, f"Price: {price.sku} in {price.region}, {words.price_words(price)}")
