"""One workload, finding or recommendation with everything that is known about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ....rules.catalog.loader import Catalog
from ....rules.policy.features import FEATURES
from ....rules.policy.thresholds import WasteRule
from ...core import formatting as words
from ...core.advice_types import Advice, Configuration, Finding, Recommendation
from ...core.coded_text import CodedText
from ...core.latency_words import latency_words
from ...core.timestamps import minute, span
from ...core.verdict_types import WorkloadVerdict
from ..move_words import action_words
from ..phases import phase_reasons, phase_rows
from ..subjects import Subject, workload_of
from .arithmetic import finding_arithmetic, recommendation_arithmetic, threshold_rows
from .energy_section import energy_line
from .model import Bullets, Section, Table, section

SHOWN_PHASES = 14  # of a workload that turns often, the newest


def explain_sections(
    advice: Advice,
    subject: Subject,
    *,
    catalog: Catalog | None = None,
    rules: Mapping[str, WasteRule] = MappingProxyType({}),
) -> tuple[Section, ...]:
    """Everything about `subject`. `rules`: as they hold for its owner, for the reasons of thresholds; `catalog`: for
    the arithmetic of its dollars."""
    if isinstance(subject, WorkloadVerdict):
        told = [
            *_workload(subject),
            _findings(f for f in advice.findings if f.workload == subject.id),
            _ways_out(r for r in advice.recommendations if r.workload == subject.id),
        ]
    elif isinstance(subject, Finding):
        rule = rules.get(subject.rule)
        heads = ("threshold", "value", "whose", "why")
        told = [
            *_finding(advice, subject),
            section("Thresholds", Table(heads, tuple(threshold_rows(rule)), (1,)) if rule else None),
            _listed("Reckoned", finding_arithmetic(advice, subject, catalog) if catalog else ()),
            _ways_out(r for r in advice.recommendations if subject.id in r.findings),
            *_workload(workload_of(advice, subject.workload)),
        ]
    else:
        told = [
            *_recommendation(advice, subject),
            _listed("Reckoned", recommendation_arithmetic(advice, subject, catalog) if catalog else ()),
            _findings(f for f in advice.findings if f.id in subject.findings),
            *_workload(workload_of(advice, subject.workload)),
        ]
    return tuple(one for one in told if one.blocks)


def _listed(title: str, items: Iterable[object]) -> Section:
    return section(title, Bullets(tuple(map(str, items))))


def _workload(w: WorkloadVerdict | None) -> Iterable[Section]:
    if w is None:
        return
    gpus = f"{words.counted(len(w.gpus), 'GPU')} ({w.gpu_sku or 'not one known SKU'})"
    shared = ", shared with other work" if w.shared else ""
    scheduled = words.scheduled_words(w.scheduled)
    yield section(
        f"Workload {w.name}",
        f"id {w.id}, series {w.series_id}; {words.whose_words(w)}.",
        f"{scheduled}." if scheduled else "",
        f"{gpus} on {', '.join(w.nodes) or 'no node'} ({w.node_sku or 'node SKU not known'}), "
        f"{words.basis_words(w)}{shared}.",
        f"{minute(w.start)} to {minute(w.end)}: {words.hours(w.gpu_hours)}{_cost(w.cost_usd)}."
        + (f" Engine or framework: {w.framework}." if w.framework else ""),
        energy_line(w),
    )
    others = ", ".join(f"{a.label} {words.percent(a.confidence)}" for a in w.kind.alternatives)
    yield _listed(
        f"Kind: {w.kind.label}, confidence {words.percent(w.kind.confidence)}",
        (*w.kind.evidence, *((f"It could also be: {others}.",) if others else ())),
    )
    shares = sorted(w.bottleneck.time_shares.items(), key=lambda item: -item[1])
    yield section(
        f"Held back by: {w.bottleneck.label}, confidence {words.percent(w.bottleneck.confidence)}",
        Bullets(tuple(map(str, w.bottleneck.evidence))),
        Table(("share of its time", "limit"), tuple((words.percent(value), label) for label, value in shares), (0,)),
    )
    if w.latency is not None:
        yield section(f"Latency class: {latency_words(w.latency)}", Bullets(tuple(map(str, w.latency.evidence))))
    shown = w.phases[-SHOWN_PHASES:]
    more = len(w.phases) - len(shown)
    yield section(
        "Phases",
        Table(
            ("kind", "held back by", "share of the time", "how often", "last began"), tuple(phase_rows(w.phases)), (2,)
        ),
        Table(
            ("from", "to", "kind", "held back by"),
            tuple((minute(p.start), minute(p.end), p.kind, p.bottleneck) for p in shown),
            (),
            f"and {more} before: --format json lists them all." if more else "",
        ),
        Bullets(tuple(phase_reasons(w.phases))),
    )
    yield section(
        "Coverage",
        f"{words.percent(w.coverage.fraction)} of its GPU time was observed, a sample every "
        f"{span(w.coverage.resolution_seconds)}.",
        Bullets(tuple(f"{metric} is missing: {reason}" for metric, reason in w.coverage.missing.items())),
    )
    unknown = (f"Not weighed: {w.levers_unknown}.",) if w.levers_unknown is not None else ()
    yield _listed("Levers, in no sum", (*w.levers, *unknown))
    rows = tuple((n, words.figure(value), *FEATURES.get(n, ("", ""))) for n, value in w.features.items())
    yield section("Measured", Table(("feature", "value", "unit", "meaning"), rows, (1,)))


def _cost(usd: float | None) -> str:
    """Nothing where no price is known: the GPU-hours before it are the cost then."""
    return "" if usd is None else f", cost {words.usd(usd)}"


def _finding(advice: Advice, f: Finding) -> Iterable[Section]:
    rows = tuple((e.metric, words.figure(e.value), words.figure(e.threshold), e.unit) for e in f.evidence)
    yield section(
        f"Finding {f.rule}: severity {f.severity}, confidence {words.percent(f.confidence)}",
        f"id {f.id}; {', '.join(f.nodes) or f.node or 'no node named'}; {len(f.gpus)} GPUs.",
        f.text,
        f"{words.hours(f.gpu_hours)}{_cost(f.cost_usd)} in the window.",
        Table(("measured", "value", "threshold", "unit"), rows, (1, 2)),
    )
    yield from _overturned(advice, f.would_change_if, (f.price,) if f.price else ())


def _recommendation(advice: Advice, r: Recommendation) -> Iterable[Section]:
    yield section(
        f"Recommendation {action_words(r)}: risk {r.risk}, {r.realisation}",
        f"id {r.id}, action {r.action}.",
        r.text,
        Table(
            ("what", "comes to"),
            (
                ("from", _configuration(r.source)),
                ("to", _configuration(r.target)),
                ("predicted time", words.time_words(r.time_ratio)),
                ("saving", words.saving_words(r.saving_usd_per_month, r.freed_gpu_hours_per_month, r.realisation)),
                ("freed", f"{words.hours(r.freed_gpu_hours_per_month)} a month"),
                ("energy not drawn a month", words.energy_words(r)),
                ("cash from", r.available_from or words.NONE),
                ("break-even demand", r.break_even or words.NONE),
                ("excludes", ", ".join(r.excludes) or words.NONE),
                ("decided", words.decision_words(r.decision) if r.decision else "nobody did"),
            ),
        ),
    )
    yield _listed("Blocked by", r.blocked_by)
    yield _listed("Levers, in no sum", r.levers)
    yield _listed("Not chosen", (f"{one.sku}: {one.reason}" for one in r.rejected))
    yield from _overturned(advice, r.would_change_if, r.prices)


def _findings(findings: Iterable[Finding]) -> Section:
    return _listed("Findings", (f"{f.rule} ({f.severity}, id {f.id}): {f.text}" for f in findings))


def _ways_out(ways: Iterable[Recommendation]) -> Section:
    return _listed("Ways out", (f"{action_words(r)} (risk {r.risk}, id {r.id}): {r.text}" for r in ways))


def _overturned(advice: Advice, conditions: Sequence[CodedText], prices: Sequence[str]) -> Iterable[Section]:
    """What would overturn it, and what its dollars rest on."""
    yield _listed("This would be wrong if", conditions)
    known = [p for p in advice.prices if p.id in prices]
    yield _listed("Prices", (f"{p.sku} in {p.region}, {words.price_words(p)}" for p in known))


def _configuration(c: Configuration) -> str:
    if c.gpu_count == 0:
        return "nothing held"
    return f"{c.gpu_count} x {c.gpu_sku or 'unknown GPU'} on {c.node_sku or 'a node not known'}"
