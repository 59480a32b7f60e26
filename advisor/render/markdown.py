"""The advice as a full report in Markdown. All outside text is escaped: pipes, HTML, links, emphasis, headings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.advice_types import Advice, Evidence, Finding, Recommendation
from ..core.timestamps import rfc3339
from ..moves.recommendation_kinds import action_words
from ..moves.waste_rules import wasted_hours
from ..views import coverage
from ..views.finding_groups import Case, best, cases, loose

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$<>&=:@-])")


def escape(text: object) -> str:
    """Text that Markdown shows as it is, on one line. HTML's three characters become entities."""
    plain = _SPECIAL.sub(_escaped, clean(text))
    return re.sub(r"^(\s*\d+)\.", r"\1\\.", plain)


def _code(text: str) -> str:
    """Text as code. Merged advice is what a file says: an id in it may be anything."""
    return f"`{clean(text)}`" if "`" not in text else escape(text)


def _escaped(match: re.Match[str]) -> str:
    character = match.group(1)
    # A dash, colon or bracket inside a sentence is harmless and far easier to read unescaped.
    if character in "()+:=-" and match.start() > 0:
        return character
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;", "@": "&#64;"}.get(character, f"\\{character}")


def render_markdown(advice: Advice) -> str:
    lines = ["# GPU advice", ""]
    lines += _head(advice)
    found = cases(advice)
    for number, case in enumerate(found, 1):
        lines += _case(number, case)
    if not found:
        lines += ["## Findings", "", coverage.nothing_found(advice), ""]
    lines += _loose(advice) + _market(advice) + _workloads(advice) + _prices(advice) + _notes(advice)
    return "\n".join(lines).rstrip() + "\n"


def _wasted(advice: Advice) -> str:
    s = advice.summary
    if words.has_prices(s) or s.nothing_judged:
        return coverage.wasted_words(s)
    return words.cost(s.wasted_usd, wasted_hours(advice.findings), priced=True)


def _head(advice: Advice) -> list[str]:
    s, r = advice.summary, advice.summary.reconciliation
    note = words.price_note(advice.prices)
    lines = [
        f"Window: {coverage.window_words(advice)}. Generated: {rfc3339(advice.generated_at)}.",
        "",
        f"- {coverage.size_words(s)}",
        f"- Cost in the window: {words.cost(s.cost_usd, s.gpu_hours, priced=True)} ({escape(note)})",
        f"- Wasted in the window: {_wasted(advice)}",
        f"- Recoverable in cash: {coverage.recoverable_words(s)}",
        "",
    ]
    if not words.has_prices(s):
        return lines
    lines += [
        "| where the money went | US dollars |",
        "|---|---:|",
    ]
    parts = (
        ("workloads", r.workloads), ("shared GPUs", r.shared), ("allocated, idle", r.allocated_idle),
        ("unallocated", r.unallocated), ("drained", r.drained), ("not observed", r.unobserved), ("total", r.total),
    )  # fmt: skip
    lines += [*(f"| {name} | {words.usd(value)} |" for name, value in parts), ""]
    return [*lines, *_unobserved(advice)]


def _unobserved(advice: Advice) -> list[str]:
    rows = coverage.unobserved_rows(advice.summary)
    if not rows:
        return []
    lines = [f"## {coverage.NOT_OBSERVED}", "", f"| {' | '.join(coverage.HEADS)} |", "|---|---:|---|---:|"]
    return [*lines, *(f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows), ""]


def _case(number: int, case: Case) -> list[str]:
    f = case.finding
    lines = [
        f"## {number}. {escape(f.rule)} ({f.severity})",
        "",
        escape(f.text),
        "",
        f"Confidence {words.percent(f.confidence)}; {_cost_so_far(f)}. Finding {_code(f.id)}.",
        "",
        "| measured | value | threshold | unit |",
        "|---|---:|---:|---|",
        *(_evidence(e) for e in f.evidence),
        "",
    ]
    if f.would_change_if:
        lines += ["This would be wrong if:", "", *(f"- {escape(words.clause(w.text))}" for w in f.would_change_if), ""]
    if case.ways_out:
        lines += ["### Ways out", "", best(case), "", *_options(case.ways_out)]
    return lines


def _loose(advice: Advice) -> list[str]:
    ways = loose(advice)
    return ["## Moves that need no waste to pay", "", *_options(ways)] if ways else []


def _market(advice: Advice) -> list[str]:
    if advice.market is None:
        return []
    return [f"## {words.MARKET}", "", *(_options(advice.market) if advice.market else [words.NO_MARKET, ""])]


def _cost_so_far(f: Finding) -> str:
    told = f"{words.hours(f.gpu_hours)} in the window"
    return told if f.cost_usd is None else f"cost in the window {words.usd(f.cost_usd)}; {words.hours(f.gpu_hours)}"


def _options(ways: Sequence[Recommendation]) -> list[str]:
    lines = ["| way out | to | predicted time | saving | break-even demand | risk | blocked by |"]
    lines += ["|---|---|---|---|---|---|---|", *(_way_out(r) for r in ways), ""]
    for r in ways:
        lines += _detail(r)
    return lines


def _evidence(e: Evidence) -> str:
    return f"| {escape(e.metric)} | {_value(e.value)} | {_value(e.threshold)} | {escape(e.unit)} |"


def _value(value: float | str | None) -> str:
    return escape(value) if isinstance(value, str) else words.figure(value)


def _way_out(r: Recommendation) -> str:
    cells = (
        action_words(r), words.target_words(r), words.time_words(r.time_ratio),
        words.claim_words(r),
        r.break_even or words.NONE, r.risk, "; ".join(map(str, r.blocked_by)) or words.NONE,
    )  # fmt: skip
    return "| " + " | ".join(escape(c) for c in cells) + " |"


def _detail(r: Recommendation) -> list[str]:
    lines = [f"**{action_words(r)}** ({r.action}, {_code(r.id)}): {escape(r.text)}", ""]
    if r.decision is not None:
        lines += [f"- decided: {escape(words.decision_words(r.decision))}", ""]
    if r.would_change_if:
        lines += [*(f"- wrong if {escape(words.clause(w.text))}" for w in r.would_change_if), ""]
    if r.rejected:
        lines += [*(f"- not {escape(x.sku)}: {escape(x.reason.text)}" for x in r.rejected), ""]
    return lines


def _workloads(advice: Advice) -> list[str]:
    lines = ["## Workloads", ""]
    if not advice.workloads:
        return [*lines, "No workload was observed in this window.", ""]
    priced = words.has_prices(advice.summary)
    lines += [
        f"| workload | kind | held back by | GPUs | nodes | GPU-hours |{' US dollars |' if priced else ''}",
        f"|---|---|---|---|---|---:|{'---:|' if priced else ''}",
    ]
    for w in advice.workloads:
        cells = (
            w.name, f"{w.kind.label} ({words.percent(w.kind.confidence)})", w.bottleneck.label,
            f"{len(w.gpus)} {w.gpu_sku or 'unknown GPU'}", " ".join(w.nodes),
        )  # fmt: skip
        hours = f"{w.gpu_hours:,.{1 if w.gpu_hours >= 1 else 3}f}"
        dollars = f" {words.usd(w.cost_usd)} |" if priced else ""
        lines.append(f"| {' | '.join(escape(c) for c in cells)} | {hours} |{dollars}")
    return [*lines, ""]


def _prices(advice: Advice) -> list[str]:
    if not advice.prices:
        return ["## Prices", "", "No price is known for these nodes: costs are in GPU-hours, savings are unknown.", ""]
    return [
        "## Prices",
        "",
        *(f"- {escape(p.sku)}, {escape(p.region)}: {escape(words.price_words(p))}" for p in advice.prices),
        "",
    ]


def _notes(advice: Advice) -> list[str]:
    return ["## Notes", "", *(f"- {escape(n.text)}" for n in advice.notes), ""] if advice.notes else []
