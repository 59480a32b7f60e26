"""One workload, finding or recommendation: the claim, the facts behind it, what would change it, and its money."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import Price
from ....rules.policy.features import load_features
from ....rules.policy.thresholds import WasteRule
from ...core import formatting as words
from ...core.advice_types import Advice, Configuration, Finding, Recommendation
from ...core.coded_text import CodedText
from ...core.ids import short_ids
from ...core.timestamps import minute, span
from ...core.verdict_types import INFERRED, WorkloadVerdict
from ...core.worth import HOURS_PER_MONTH
from ..document import AsideBlock, Block, Bullets, Document, Section, Table, section
from ..energy_shares import workload_words
from ..page_options import Again
from ..phases import phase_reasons, phase_table
from ..subjects import Subject, replicas_of, workload_of
from ..titles import finding_title, recommendation_title, runs_noun, titled
from .sections import price_line

_BASIS = {
    "allocation": "allocated by a scheduler", "process": "held by processes", INFERRED: "inferred from activity",
}  # fmt: skip
_FACTS, _REPLICAS, _REJECTED = 5, 48, 3  # rows, unless all are asked for
_ALL = 10**9
_SAME = 0.005  # a product that differs more from the claimed cost is not how it was calculated


def explain_page(
    advice: Advice,
    subject: Subject,
    catalog: Catalog | None = None,
    rules: Mapping[str, WasteRule] = MappingProxyType({}),
    *,
    verbose: bool = False,
    again: Again | None = None,
) -> Document:
    """What is claimed of `subject`, and why. `catalog`: for the calculation of dollars; `rules`: as they apply to its
    owner, for the reasons of thresholds; `verbose`: all evidence, limits, rejected nodes and measurements too."""
    most = _ALL if verbose else _FACTS
    workload = subject if isinstance(subject, WorkloadVerdict) else workload_of(advice, subject.workload)
    if isinstance(subject, Recommendation):
        findings = [f for f in advice.findings if f.id in subject.findings]
        title, identity, lead = _titled(subject, advice), _recommendation_identity(subject), subject.text
        main = (*_blocked(subject), _evidence(advice, findings, most, subject))
        rest = (*_recommendation_details(subject), _claims("Findings", advice, findings))
        conditions = subject.would_change_if
    elif isinstance(subject, Finding):
        findings, answers = [subject], [r for r in advice.recommendations if subject.id in r.findings]
        title, identity, lead = finding_title(subject, advice), _finding_identity(subject), subject.text
        main = (_evidence(advice, findings, most),)
        rest = (_thresholds(rules.get(subject.rule)), _claims("Recommendations", advice, answers))
        conditions = subject.would_change_if
    else:
        findings = [f for f in advice.findings if f.workload == subject.id]
        answers = [r for r in advice.recommendations if r.workload == subject.id]
        title, identity, lead = _kind(subject), _workload_identity(subject), _use(subject)
        facts = (*subject.kind.evidence, *subject.bottleneck.evidence, *(e for f in findings for e in f.evidence))
        lines = (e.text if isinstance(e, CodedText) else words.evidence_words(e) for e in facts[:most])
        open_answers = [r for r in answers if verbose or not r.blocked_by]
        main = (
            section("Evidence", Bullets(tuple(lines))),
            _claims("Findings and recommendations", advice, [*findings, *open_answers]),
        )
        rest, conditions = (), tuple(dict.fromkeys(c for f in findings for c in f.would_change_if))
    shown = [*main, _conditions(conditions), _calculation(advice, subject, findings, catalog)]
    if verbose:
        shown += [*rest, *(_workload_details(workload) if workload is not None else ())]
    elif again is not None:
        command = again.command("explain", "--verbose", short_ids([subject.id])[subject.id])
        shown.append(section("Next", AsideBlock("Limits, rejected nodes and all measurements:", command)))
    return Document(
        title=title,
        heading=title,
        lead=lead,
        window=identity,
        summary=_replicas(advice, subject, findings, verbose),
        tiles=(),
        sections=tuple(part for part in shown if part.blocks),
    )


def finding_block(advice: Advice, f: Finding, *more: Block | None) -> Section:
    """A finding within a page, with all its evidence."""
    parts = (_evidence(advice, [f], _ALL), _conditions(f.would_change_if), _calculation(advice, f, [f], None))
    shown = (part for part in parts if part.blocks)
    return section(finding_title(f, advice), _finding_identity(f), f.text, *shown, *more, id=f.id)


def recommendation_block(advice: Advice, r: Recommendation) -> Section:
    """A recommendation within a page, with its figures and what argues against it."""
    figures, *lists = _recommendation_details(r, _REJECTED)
    parts = (*_blocked(r), *lists, _conditions(r.would_change_if), _calculation(advice, r, (), None))
    shown = (part for part in parts if part.blocks)
    return section(_titled(r, advice), _recommendation_identity(r), r.text, *figures.blocks, *shown, id=r.id)


def _listed(title: str, lines: Sequence[object]) -> Section:
    return section(title, Bullets(tuple(map(str, lines))))


def _finding_identity(f: Finding) -> str:
    where = ", ".join(f.nodes) or f.node or "no node named"
    return (
        f"Finding {f.id}: rule {f.rule}, severity {f.severity}, confidence {words.percent(f.confidence)}. "
        f"{words.counted(len(f.gpus), 'GPU')} on {where}."
    )


def _recommendation_identity(r: Recommendation) -> str:
    decision = f", {words.decision_words(r.decision)}" if r.decision else ""
    return f"Recommendation {r.id}: {r.action}, {r.realisation}, {r.risk.replace('-', ' ')} risk{decision}."


def _workload_identity(w: WorkloadVerdict) -> str:
    scheduled = words.scheduled_words(w.scheduled)
    return f"Workload {w.id}, series {w.series_id}; {words.whose_words(w)}{f'; {scheduled}' if scheduled else ''}."


def _kind(w: WorkloadVerdict) -> str:
    kind, bottleneck = w.kind, w.bottleneck
    return (
        f"{w.name}: {kind.label} ({words.percent(kind.confidence)}), bottleneck {bottleneck.label} "
        f"({words.percent(bottleneck.confidence)})"
    )


def _use(w: WorkloadVerdict) -> str:
    gpus = f"{words.counted(len(w.gpus), 'GPU')} ({w.gpu_sku or 'unknown SKU'})"
    return (
        f"{gpus} on {', '.join(w.nodes) or 'no node'} ({w.node_sku or 'node SKU unknown'}), "
        f"{_BASIS.get(w.basis, w.basis)}{', shared with other work' if w.shared else ''}. {minute(w.start)} to "
        f"{minute(w.end)}: {words.hours(w.gpu_hours)}{'' if w.cost_usd is None else f', {words.usd(w.cost_usd)}'}."
    )


def _replicas(advice: Advice, subject: Subject, findings: Sequence[Finding], verbose: bool) -> str:
    """All replicas or runs that a claim is about; empty for a single one."""
    replicas = replicas_of(advice, subject, {gpu for f in findings for gpu in f.gpus})
    if len(replicas) < 2:
        return ""
    short = short_ids(w.id for w in advice.workloads)
    shown = replicas if verbose else replicas[:_REPLICAS]
    ids: dict[str, list[str]] = {}
    for w in shown:
        ids.setdefault(w.name, []).append(short[w.id])
    more = f" and {len(replicas) - len(shown)} more (--verbose)" if len(replicas) > len(shown) else ""
    listed = "; ".join(f"{name} ({', '.join(same)})" for name, same in ids.items())
    return f"{len(replicas)} {runs_noun(replicas)}: {listed}{more}."


def _titled(r: Recommendation, advice: Advice) -> str:
    return f"{recommendation_title(r, advice)} (blocked)" if r.blocked_by else titled(r, advice)


def _claims(title: str, advice: Advice, claims: Sequence[Finding | Recommendation]) -> Section:
    lines = (f"{finding_title(c, advice) if isinstance(c, Finding) else _titled(c, advice)} [{c.id}]" for c in claims)
    return _listed(title, tuple(lines))


def _evidence(advice: Advice, findings: Sequence[Finding], most: int, r: Recommendation | None = None) -> Section:
    """The measured values, those with a threshold first; of a recommendation also the predicted time."""
    rows = [("predicted time", words.time_words(r.time_ratio), words.NONE, "")] if r and r.time_ratio else []
    titles = {f.id: f" ({finding_title(f, advice).partition(':')[0]})" if len(findings) > 1 else "" for f in findings}
    facts = sorted(((f, e) for f in findings for e in f.evidence), key=lambda fact: fact[1].threshold is None)
    rows += [(f"{e.metric}{titles[f.id]}", words.figure(e.value), words.figure(e.threshold), e.unit) for f, e in facts]
    return section("Evidence", Table(("measured", "value", "threshold", "unit"), tuple(rows[:most]), (1, 2)))


def _conditions(conditions: Sequence[CodedText]) -> Section:
    return _listed("This would change if", conditions)


def _blocked(r: Recommendation) -> tuple[Section, ...]:
    return (_listed("Blocked by", r.blocked_by),) if r.blocked_by else ()


def _thresholds(rule: WasteRule | None) -> Section:
    rows = tuple(
        (name, f"{words.figure(t.value)} {t.unit}", t.origin, f"{t.reason} Source: {t.source}.")
        for name, t in (rule.thresholds if rule else {}).items()
    )
    return section("Thresholds", Table(("threshold", "value", "set by", "reason"), rows, (1,)))


def _recommendation_details(r: Recommendation, rejected: int = _ALL) -> tuple[Section, ...]:
    """Its figures, without those that it does not change, then lists of levers and of rejected node types."""
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
    )
    lines = [f"{node.sku}: {node.reason}" for node in r.rejected[:rejected]]
    more = len(r.rejected) - len(lines)
    lines += [f"{more} more node types rejected; reasons in --format json."] if more > 0 else []
    return (
        section("Figures", Table(("field", "value"), tuple(row for row in rows if row[1] != words.NONE))),
        _listed("Lower precision (not included in any sum)", r.levers),
        _listed("Rejected", lines),
    )


def _configuration(c: Configuration) -> str:
    if c.gpu_count == 0:
        return "no GPUs"
    return f"{c.gpu_count} x {c.gpu_sku or 'unknown GPU'} on {c.node_sku or 'an unknown node'}"


def _workload_details(w: WorkloadVerdict) -> Iterator[Section]:
    """Everything measured and judged of a workload."""
    yield section(_kind(w), _workload_identity(w), _use(w), workload_words(w.energy) if w.energy is not None else "")
    others = ", ".join(f"{a.label} {words.percent(a.confidence)}" for a in w.kind.alternatives)
    yield _listed("Kind", (*w.kind.evidence, *((f"It could also be: {others}.",) if others else ())))
    shares = sorted(w.bottleneck.time_shares.items(), key=lambda share: -share[1])
    rows = tuple((words.percent(value), label) for label, value in shares)
    yield section(
        "Bottleneck",
        Bullets(tuple(map(str, w.bottleneck.evidence))),
        Table(("share of its time", "bottleneck"), rows, (0,)),
    )
    if w.latency is not None:
        yield section(f"Latency class: {words.latency_words(w.latency)}", Bullets(tuple(map(str, w.latency.evidence))))
    yield section("Phases", phase_table(w.phases), Bullets(tuple(phase_reasons(w.phases))))
    yield section(
        "Coverage",
        f"{words.percent(w.coverage.fraction)} of its GPU time was observed, a sample every "
        f"{span(w.coverage.resolution_seconds)}.",
        Bullets(tuple(f"{metric} is missing: {reason}" for metric, reason in w.coverage.missing.items())),
    )
    unknown = (f"Not evaluated: {w.levers_unknown}.",) if w.levers_unknown is not None else ()
    yield _listed("Lower precision (not included in any sum)", (*w.levers, *unknown))
    features = load_features()
    measured = tuple(
        (name, words.figure(value), features[name].unit, features[name].meaning)
        if name in features
        else (name, words.figure(value), "", "")
        for name, value in w.features.items()
    )
    yield section("Measurements", Table(("feature", "value", "unit", "meaning"), measured, (1,)))


def _calculation(advice: Advice, subject: Subject, findings: Sequence[Finding], catalog: Catalog | None) -> Section:
    """How the money comes about, with the prices it rests on; without `catalog` the prices alone."""
    prices = [p for p in advice.prices if p.id in _price_ids(advice, subject, findings)]
    lines = list(_arithmetic(subject, findings, prices, catalog)) if catalog is not None else []
    return _listed("Calculation" if lines else "Prices", (*lines, *map(price_line, prices)))


def _price_ids(advice: Advice, subject: Subject, findings: Sequence[Finding]) -> set[str]:
    if isinstance(subject, Recommendation) and subject.prices:
        return set(subject.prices)
    if isinstance(subject, WorkloadVerdict) and not findings:
        return {p.id for p in advice.prices if p.sku == subject.node_sku}
    return {f.price for f in findings if f.price is not None}


def _arithmetic(
    subject: Subject, findings: Sequence[Finding], prices: Sequence[Price], catalog: Catalog
) -> Iterator[str]:
    if not isinstance(subject, Recommendation) or subject.saving_usd_per_month is None:
        if isinstance(subject, WorkloadVerdict):
            yield from _hours_times_price(subject.gpu_hours, subject.cost_usd, prices, catalog)
        for f in findings:
            premium = next((e.value for e in f.evidence if e.metric == "fabric_premium"), None)
            if isinstance(premium, float) and premium and f.cost_usd is not None:
                yield (
                    f"{f.cost_usd / premium:,.1f} node-hours observed x {words.usd(premium)} a node-hour for the "
                    f"fabric = {words.usd(f.cost_usd)} in the window."
                )
            else:
                yield from _hours_times_price(f.gpu_hours, f.cost_usd, [p for p in prices if p.id == f.price], catalog)
    if not isinstance(subject, Recommendation):
        return
    for what, side in (("Now", subject.source), ("Then", subject.target)):
        node = catalog.node(side.node_sku) if side.node_sku else None
        price = next((p for p in prices if p.sku == side.node_sku), None)
        if side.gpu_count and node is not None and price is not None and subject.saving_usd_per_month is not None:
            nodes = -(-side.gpu_count // node.gpu_count)
            yield (
                f"{what}: {nodes} x {node.name} for {side.gpu_count} GPUs x {words.usd(price.usd_per_hour)} a "
                f"node-hour x {HOURS_PER_MONTH:.0f} h = {words.usd(nodes * price.usd_per_hour * HOURS_PER_MONTH)} a "
                "month where it runs all the time."
            )
    saving, freed = subject.saving_usd_per_month, subject.source.gpu_count - subject.target.gpu_count
    if saving is not None:
        spread = words.spread(saving)
        yield (
            f"Savings: {words.usd(saving.p50)}/month{f'{spread}, 10th to 90th percentile' if spread else ''}. The "
            "baseline is the same SKU at its right-sized count."
        )
    elif abs(freed * HOURS_PER_MONTH - subject.freed_gpu_hours_per_month) < 1 <= freed:
        yield f"{freed} GPUs x {HOURS_PER_MONTH:.0f} h = {words.hours(freed * HOURS_PER_MONTH)}/month freed."


def _hours_times_price(
    gpu_hours: float, cost: float | None, prices: Sequence[Price], catalog: Catalog
) -> Iterator[str]:
    for price in prices:
        node = catalog.node(price.sku)
        if node is None or cost is None:
            continue
        if abs(gpu_hours * price.usd_per_hour / node.gpu_count - cost) <= _SAME * abs(cost):
            yield (
                f"{words.hours(gpu_hours)} x {words.usd(price.usd_per_hour)} a node-hour / {node.gpu_count} GPUs a "
                f"node = {words.usd(cost)} in the window."
            )
            return
