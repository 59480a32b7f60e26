"""One workload, finding or recommendation with everything that is known about it, as plain lines.

All outside text passes through `clean` (`columns` cleans its cells itself).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ...rules.base.sanitize import clean
from ...rules.base.text_table import columns
from ...rules.catalog.loader import Catalog
from ...rules.policy.features import FEATURES
from ...rules.policy.thresholds import WasteRule
from ..core import formatting as words
from ..core.advice_types import Advice, Configuration, Finding, Recommendation, WorkloadVerdict
from ..core.coded_text import CodedText
from ..core.timestamps import minute, span
from ..moves.recommendation_kinds import action_words
from ..views.roofline import Roofline
from . import roofline as roofline_lines
from .arithmetic import finding_arithmetic, recommendation_arithmetic, threshold_rows
from .phases import phase_reasons, phase_rows

Subject = WorkloadVerdict | Finding | Recommendation
SHOWN_PHASES = 14  # of a workload that turns often, the newest


def render_explained(
    advice: Advice,
    subject: Subject,
    drawn: Roofline | None,
    *,
    width: int = 100,
    catalog: Catalog | None = None,
    rules: Mapping[str, WasteRule] = MappingProxyType({}),
) -> str:
    """Everything about `subject`. `drawn`: the roofline of the workload it is about, None where it is about none.

    `rules`: as they hold for its owner, for the reasons of thresholds; `catalog`: for the arithmetic of its dollars.
    """
    page = _Page(max(width, 60))
    if isinstance(subject, WorkloadVerdict):
        _workload(page, subject)
        _findings(page, [f for f in advice.findings if f.workload == subject.id])
        _ways_out(page, [r for r in advice.recommendations if r.workload == subject.id])
    elif isinstance(subject, Finding):
        _finding(page, advice, subject)
        if subject.rule in rules and rules[subject.rule].thresholds:
            page.head("Thresholds")
            page.table(("threshold", "value", "whose", "why"), threshold_rows(rules[subject.rule]), right=(1,))
        _reckoned(page, finding_arithmetic(advice, subject, catalog) if catalog else ())
        _ways_out(page, [r for r in advice.recommendations if subject.id in r.findings])
        _about(page, advice, subject.workload)
    else:
        _recommendation(page, advice, subject)
        _reckoned(page, recommendation_arithmetic(advice, subject, catalog) if catalog else ())
        _findings(page, [f for f in advice.findings if f.id in subject.findings])
        _about(page, advice, subject.workload)
    text = page.text()
    if drawn is not None:
        text += "\nRoofline\n" + roofline_lines.render_text(drawn)
    return text


def _reckoned(page: _Page, sentences: Iterable[str]) -> None:
    told = list(sentences)
    if told:
        page.head("Reckoned")
        page.items(told)


class _Page:
    """Collects lines no wider than `width`; what cannot be broken (an id, a cell) is never cut."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def head(self, title: str) -> None:
        self._lines += [*([""] if self._lines else []), clean(title)]

    def say(self, sentence: str, indent: int = 2) -> None:
        lead = " " * indent
        self._lines += textwrap.wrap(
            clean(str(sentence)), self._width, initial_indent=lead, subsequent_indent=lead
        )  # fmt: skip

    def items(self, sentences: Iterable[CodedText | str]) -> None:
        for sentence in sentences:
            self._lines += textwrap.wrap(
                clean(str(sentence)), self._width, initial_indent="  - ", subsequent_indent="    "
            )  # fmt: skip

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """The last column is wrapped into what the width leaves."""
        if not rows:
            return
        taken = sum(max(len(clean(row[i])) for row in (header, *rows)) + 2 for i in range(len(header) - 1)) + 2
        wrapped = []
        for *cells, last in rows:
            first, *more = textwrap.wrap(clean(last), max(self._width - taken, 24)) or [""]
            wrapped += [[*cells, first], *([*[""] * len(cells), line] for line in more)]
        self._lines += ["  " + line for line in columns(header, wrapped, right=right).split("\n")]


def _workload(page: _Page, w: WorkloadVerdict) -> None:
    page.head(f"Workload {w.name}")
    page.say(f"id {w.id}, series {w.series_id}; {words.whose_words(w)}.")
    if told := words.scheduled_words(w.scheduled):
        page.say(f"{told}.")
    gpus = f"{words.counted(len(w.gpus), 'GPU')} ({w.gpu_sku or 'not one known SKU'})"
    shared = ", shared with other work" if w.shared else ""
    page.say(
        f"{gpus} on {', '.join(w.nodes) or 'no node'} ({w.node_sku or 'node SKU not known'}), "
        f"{words.basis_words(w)}{shared}."
    )
    page.say(
        f"{minute(w.start)} to {minute(w.end)}: {words.hours(w.gpu_hours)}{_cost(w.cost_usd)}."
        + (f" Engine or framework: {w.framework}." if w.framework else "")
    )
    page.head(f"Kind: {w.kind.label}, confidence {words.percent(w.kind.confidence)}")
    page.items(w.kind.evidence)
    if w.kind.alternatives:
        others = ", ".join(f"{a.label} {words.percent(a.confidence)}" for a in w.kind.alternatives)
        page.items([f"It could also be: {others}."])
    page.head(f"Held back by: {w.bottleneck.label}, confidence {words.percent(w.bottleneck.confidence)}")
    page.items(w.bottleneck.evidence)
    shares = sorted(w.bottleneck.time_shares.items(), key=lambda item: -item[1])
    page.table(("share of its time", "limit"), [(words.percent(value), label) for label, value in shares], right=(0,))
    if w.phases:
        page.head("Phases")
        heads = ("kind", "held back by", "share of the time", "how often", "last began")
        page.table(heads, phase_rows(w.phases), right=(2,))
        shown = w.phases[-SHOWN_PHASES:]
        page.table(
            ("from", "to", "kind", "held back by"),
            [(minute(p.start), minute(p.end), p.kind, p.bottleneck) for p in shown],
        )
        if len(w.phases) > len(shown):
            page.say(f"and {len(w.phases) - len(shown)} before: --format json lists them all.")
        page.items(phase_reasons(w.phases))
    page.head("Coverage")
    page.say(
        f"{words.percent(w.coverage.fraction)} of its GPU time was observed, a sample every "
        f"{span(w.coverage.resolution_seconds)}."
    )
    page.items(f"{metric} is missing: {reason}" for metric, reason in w.coverage.missing.items())
    page.head("Measured")
    rows = [(n, words.figure(value), *FEATURES.get(n, ("", ""))) for n, value in w.features.items()]
    page.table(("feature", "value", "unit", "meaning"), rows, right=(1,))


def _cost(usd: float | None) -> str:
    """Nothing where no price is known: the GPU-hours before it are the cost then."""
    return "" if usd is None else f", cost {words.usd(usd)}"


def _finding(page: _Page, advice: Advice, f: Finding) -> None:
    page.head(f"Finding {f.rule}: severity {f.severity}, confidence {words.percent(f.confidence)}")
    page.say(f"id {f.id}; {', '.join(f.nodes) or f.node or 'no node named'}; {len(f.gpus)} GPUs.")
    page.say(f.text)
    page.say(f"{words.hours(f.gpu_hours)}{_cost(f.cost_usd)} in the window.")
    page.table(
        ("measured", "value", "threshold", "unit"),
        [(e.metric, words.figure(e.value), words.figure(e.threshold), e.unit) for e in f.evidence],
        right=(1, 2),
    )
    _overturned(page, f.would_change_if)
    _priced(page, advice, [f.price] if f.price else [])


def _recommendation(page: _Page, advice: Advice, r: Recommendation) -> None:
    page.head(f"Recommendation {action_words(r)}: risk {r.risk}, {r.realisation}")
    page.say(f"id {r.id}, action {r.action}.")
    page.say(r.text)
    page.table(
        ("what", "comes to"),
        [
            ("from", _configuration(r.source)),
            ("to", _configuration(r.target)),
            ("predicted time", words.time_words(r.time_ratio)),
            ("saving", words.saving_words(r.saving_usd_per_month, r.freed_gpu_hours_per_month, r.realisation)),
            ("freed", f"{words.hours(r.freed_gpu_hours_per_month)} a month"),
            ("cash from", r.available_from or words.NONE),
            ("break-even demand", r.break_even or words.NONE),
            ("excludes", ", ".join(r.excludes) or words.NONE),
            ("decided", words.decision_words(r.decision) if r.decision else "nobody did"),
        ],
    )
    if r.blocked_by:
        page.head("Blocked by")
        page.items(r.blocked_by)
    if r.rejected:
        page.head("Not chosen")
        page.items(f"{one.sku}: {one.reason}" for one in r.rejected)
    _overturned(page, r.would_change_if)
    _priced(page, advice, r.prices)


def _about(page: _Page, advice: Advice, workload: str | None) -> None:
    found = next((w for w in advice.workloads if w.id == workload), None)
    if found is not None:
        _workload(page, found)


def _findings(page: _Page, found: Sequence[Finding]) -> None:
    if found:
        page.head("Findings")
        page.items(f"{f.rule} ({f.severity}, id {f.id}): {f.text}" for f in found)


def _ways_out(page: _Page, ways: Sequence[Recommendation]) -> None:
    if ways:
        page.head("Ways out")
        page.items(f"{action_words(r)} (risk {r.risk}, id {r.id}): {r.text}" for r in ways)


def _overturned(page: _Page, conditions: Sequence[CodedText]) -> None:
    if conditions:
        page.head("This would be wrong if")
        page.items(conditions)


def _priced(page: _Page, advice: Advice, ids: Sequence[str]) -> None:
    known = [p for p in advice.prices if p.id in ids]
    if known:
        page.head("Prices")
        page.items(f"{p.sku} in {p.region}, {words.price_words(p)}" for p in known)


def _configuration(c: Configuration) -> str:
    if c.gpu_count == 0:
        return "nothing held"
    return f"{c.gpu_count} x {c.gpu_sku or 'unknown GPU'} on {c.node_sku or 'a node not known'}"
