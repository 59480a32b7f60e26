"""One workload, finding or recommendation with everything that is known about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ....rules.catalog.loader import Catalog
from ....rules.policy.custom import load_features
from ....rules.policy.thresholds import WasteRule
from ...core import formatting as words
from ...core.advice_types import Advice, Configuration, Finding, Recommendation
from ...core.coded_text import CodedText
from ...core.formatting import latency_words
from ...core.timestamps import minute, span
from ...core.verdict_types import INFERRED, WorkloadVerdict
from ...core.worth import HOURS_PER_MONTH
from ..document import Bullets, Section, Table, section
from ..energy_shares import workload_words
from ..phases import phase_reasons, phase_rows
from ..series.roofline import Roofline
from ..subjects import Subject, workload_of
from ..titles import finding_title, recommendation_title, titled

# How its hold on the GPUs is known.
_BASIS = {
    "allocation": "allocated by a scheduler", "process": "held by processes", INFERRED: "inferred from activity",
}  # fmt: skip
SHOWN_PHASES = 14  # of a workload that turns often, the newest


def explain_sections(
    advice: Advice,
    subject: Subject,
    catalog: Catalog | None = None,
    rules: Mapping[str, WasteRule] = MappingProxyType({}),
    drawn: Roofline | None = None,
) -> tuple[Section, ...]:
    """Everything about `subject`. `rules`: as they hold for its owner, for the reasons of thresholds; `catalog`: for
    the arithmetic of its dollars; `drawn`: the roofline of the workload that it is about."""
    if isinstance(subject, WorkloadVerdict):
        told = [
            *_workload(subject),
            _findings(advice, [f for f in advice.findings if f.workload == subject.id]),
            _recommendations(advice, [r for r in advice.recommendations if r.workload == subject.id]),
        ]
    elif isinstance(subject, Finding):
        rule = rules.get(subject.rule)
        heads = ("threshold", "value", "set by", "reason")
        limits = tuple(
            (name, f"{words.figure(t.value)} {t.unit}", t.origin, f"{t.reason} Source: {t.source}.")
            for name, t in (rule.thresholds if rule else {}).items()
        )
        told = [
            *finding_sections(advice, subject),
            section("Thresholds", Table(heads, limits, (1,)) if rule else None),
            _listed("Calculation", finding_arithmetic(advice, subject, catalog) if catalog else ()),
            _recommendations(advice, [r for r in advice.recommendations if subject.id in r.findings]),
            *_workload(workload_of(advice, subject.workload)),
        ]
    else:
        told = [
            *recommendation_sections(advice, subject),
            _listed("Calculation", recommendation_arithmetic(advice, subject, catalog) if catalog else ()),
            _findings(advice, [f for f in advice.findings if f.id in subject.findings]),
            *_workload(workload_of(advice, subject.workload)),
        ]
    told.append(_listed("Roofline", drawn.sentences() if drawn is not None else ()))
    return tuple(one for one in told if one.blocks)


def _listed(title: str, items: Iterable[object]) -> Section:
    return section(title, Bullets(tuple(map(str, items))))


def _workload(w: WorkloadVerdict | None) -> Iterable[Section]:
    if w is None:
        return
    gpus = f"{words.counted(len(w.gpus), 'GPU')} ({w.gpu_sku or 'unknown SKU'})"
    shared = ", shared with other work" if w.shared else ""
    scheduled = words.scheduled_words(w.scheduled)
    yield section(
        f"Workload {w.name}",
        f"id {w.id}, series {w.series_id}; {words.whose_words(w)}.",
        f"{scheduled}." if scheduled else "",
        f"{gpus} on {', '.join(w.nodes) or 'no node'} ({w.node_sku or 'node SKU unknown'}), "
        f"{_BASIS.get(w.basis, w.basis)}{shared}.",
        f"{minute(w.start)} to {minute(w.end)}: {words.hours(w.gpu_hours)}{_cost(w.cost_usd)}."
        + (f" Engine or framework: {w.framework}." if w.framework else ""),
        workload_words(w.energy) if w.energy is not None else "",
    )
    others = ", ".join(f"{a.label} {words.percent(a.confidence)}" for a in w.kind.alternatives)
    yield _listed(
        f"Kind: {w.kind.label}, confidence {words.percent(w.kind.confidence)}",
        (*w.kind.evidence, *((f"It could also be: {others}.",) if others else ())),
    )
    shares = sorted(w.bottleneck.time_shares.items(), key=lambda item: -item[1])
    yield section(
        f"Bottleneck: {w.bottleneck.label}, confidence {words.percent(w.bottleneck.confidence)}",
        Bullets(tuple(map(str, w.bottleneck.evidence))),
        Table(
            ("share of its time", "bottleneck"), tuple((words.percent(value), label) for label, value in shares), (0,)
        ),
    )
    if w.latency is not None:
        yield section(f"Latency class: {latency_words(w.latency)}", Bullets(tuple(map(str, w.latency.evidence))))
    shown = w.phases[-SHOWN_PHASES:]
    more = len(w.phases) - len(shown)
    yield section(
        "Phases",
        Table(("kind", "bottleneck", "share of the time", "times", "last start"), tuple(phase_rows(w.phases)), (2,)),
        Table(
            ("from", "to", "kind", "bottleneck"),
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
    unknown = (f"Not evaluated: {w.levers_unknown}.",) if w.levers_unknown is not None else ()
    yield _listed("Lower precision (not included in any sum)", (*w.levers, *unknown))
    features = load_features()
    told = ((n, words.figure(value), features.get(n)) for n, value in w.features.items())
    rows = tuple((n, value, one.unit if one else "", one.meaning if one else "") for n, value, one in told)
    yield section("Measurements", Table(("feature", "value", "unit", "meaning"), rows, (1,)))


def _cost(usd: float | None) -> str:
    """Nothing where no price is known: the GPU-hours before it are the cost then."""
    return "" if usd is None else f", cost {words.usd(usd)}"


def finding_sections(advice: Advice, f: Finding) -> Iterator[Section]:
    """A finding with its evidence, what would change it and the prices of its dollars."""
    rows = tuple((e.metric, words.figure(e.value), words.figure(e.threshold), e.unit) for e in f.evidence)
    yield section(
        finding_title(f, advice),
        f"Finding {f.id}, rule {f.rule}, severity {f.severity}, confidence {words.percent(f.confidence)}; "
        f"{', '.join(f.nodes) or f.node or 'no node named'}; {words.counted(len(f.gpus), 'GPU')}.",
        f.text,
        f"{words.hours(f.gpu_hours)}{_cost(f.cost_usd)} in the window.",
        Table(("measured", "value", "threshold", "unit"), rows, (1, 2)),
    )
    yield from _overturned(advice, f.would_change_if, (f.price,) if f.price else ())


def recommendation_sections(advice: Advice, r: Recommendation, rejected: int = 1000) -> Iterator[Section]:
    """A recommendation with what speaks for and against it; what it does not change has no row. `rejected`: so many
    node types with their reasons."""
    more = len(r.rejected) - rejected
    projected = r.saving_usd_per_month or r.freed_gpu_hours_per_month or r.energy_saving_kwh_per_month
    rows = (
        ("from", _configuration(r.source)),
        ("to", _configuration(r.target)),
        ("predicted time", words.time_words(r.time_ratio)),
        ("saving", words.saving_words(r.saving_usd_per_month, r.freed_gpu_hours_per_month, r.realisation)),
        ("freed", f"{words.hours(r.freed_gpu_hours_per_month)}/month" if r.freed_gpu_hours_per_month else words.NONE),
        ("energy saved/month", words.energy_words(r)),
        ("projected from", f"{r.observed_hours:,.0f} h of data" if r.observed_hours and projected else words.NONE),
        ("cash from", r.available_from or words.NONE),
        ("break-even demand", r.break_even or words.NONE),
        ("changes", "; ".join(map(str, r.changes)) or words.NONE),
        ("excludes", ", ".join(r.excludes) or words.NONE),
        ("decision", words.decision_words(r.decision) if r.decision else words.NONE),
    )
    yield section(
        _titled(r, advice),
        f"Recommendation {r.id}, action {r.action}, {r.realisation}, {r.risk} risk.",
        r.text,
        Table(("field", "value"), tuple((name, value) for name, value in rows if value != words.NONE)),
    )
    lists = (
        _listed("Blocked by", r.blocked_by),
        _listed("Lower precision (not included in any sum)", r.levers),
        _listed(
            "Rejected",
            [
                *(f"{one.sku}: {one.reason}" for one in r.rejected[:rejected]),
                *([f"{more} more node types rejected; reasons in --format json."] if more > 0 else []),
            ],
        ),
    )
    yield from (one for one in lists if one.blocks)
    yield from _overturned(advice, r.would_change_if, r.prices)


def _findings(advice: Advice, findings: Sequence[Finding]) -> Section:
    return _listed("Findings", (f"{finding_title(f, advice)} [{f.severity}, {f.id}]. {f.text}" for f in findings))


def _recommendations(advice: Advice, recommendations: Sequence[Recommendation]) -> Section:
    return _listed(
        "Recommendations", (f"{_titled(r, advice)} [{r.risk} risk, {r.id}]. {r.text}" for r in recommendations)
    )


def _titled(r: Recommendation, advice: Advice) -> str:
    return f"{recommendation_title(r, advice)} (blocked)" if r.blocked_by else titled(r, advice)


def _overturned(advice: Advice, conditions: Sequence[CodedText], prices: Sequence[str]) -> Iterable[Section]:
    """What would overturn it, and what its dollars rest on."""
    known = (f"{p.sku} in {p.region}, {words.price_words(p)}" for p in advice.prices if p.id in prices)
    lists = (_listed("This would change if", conditions), _listed("Prices", known))
    return (one for one in lists if one.blocks)


def _configuration(c: Configuration) -> str:
    if c.gpu_count == 0:
        return "no GPUs"
    return f"{c.gpu_count} x {c.gpu_sku or 'unknown GPU'} on {c.node_sku or 'an unknown node'}"


# A product that differs by more from what was claimed is not how it was calculated.
_SAME = 0.005


def finding_arithmetic(advice: Advice, finding: Finding, catalog: Catalog) -> Iterator[str]:
    """How a finding's cost comes about, where hours times a price is all there is to it."""
    price = next((p for p in advice.prices if p.id == finding.price), None)
    cost = finding.cost_usd
    if price is None or cost is None:
        return
    told = {e.metric: e.value for e in finding.evidence}
    premium, node = told.get("fabric_premium"), catalog.node(price.sku)
    if isinstance(premium, float):
        hours = cost / premium if premium else 0.0
        yield (
            f"{hours:,.1f} node-hours observed x {words.usd(premium)} a node-hour for the fabric = "
            f"{words.usd(cost)} in the window."
        )
    elif node is not None:
        reckoned = finding.gpu_hours * price.usd_per_hour / node.gpu_count
        if abs(reckoned - cost) <= _SAME * abs(cost):
            yield (
                f"{words.hours(finding.gpu_hours)} x {words.usd(price.usd_per_hour)} a node-hour / {node.gpu_count} "
                f"GPUs a node = {words.usd(cost)} in the window."
            )


def recommendation_arithmetic(advice: Advice, r: Recommendation, catalog: Catalog) -> Iterator[str]:
    """What both sides cost a month at their prices, and the interval of what is saved."""
    for what, side in (("Now", r.source), ("Then", r.target)):
        told = _month(advice, side, r.prices, catalog)
        if told:
            yield f"{what}: {told}"
    saving = r.saving_usd_per_month
    if saving is not None:
        yield (
            f"Savings a month: {words.usd(saving.p50)} (median; 10th percentile {words.usd(saving.p10)}, 90th "
            f"percentile {words.usd(saving.p90)}). The baseline is the same SKU at its right-sized count."
        )


def _month(advice: Advice, side: Configuration, prices: tuple[str, ...], catalog: Catalog) -> str:
    node = catalog.node(side.node_sku) if side.node_sku else None
    price = next((p for p in advice.prices if p.id in prices and p.sku == side.node_sku), None)
    if side.gpu_count == 0 or node is None or price is None:
        return ""
    nodes = -(-side.gpu_count // node.gpu_count)
    month = nodes * price.usd_per_hour * HOURS_PER_MONTH
    return (
        f"{nodes} x {node.name} for {side.gpu_count} GPUs x {words.usd(price.usd_per_hour)} a node-hour x "
        f"{HOURS_PER_MONTH:.0f} h = {words.usd(month)} a month where it runs all the time."
    )
