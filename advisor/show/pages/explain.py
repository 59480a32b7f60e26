"""One workload, finding or recommendation: the claim, the facts behind it, what would change it, and its money."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import Price
from ....rules.policy.thresholds import WasteRule, load_features
from ...core import formatting as words
from ...core.advice_types import Advice, Configuration, Evidence, Finding, Interval, Recommendation
from ...core.coded_text import CodedText
from ...core.ids import short_id, short_ids
from ...core.timestamps import minute, span
from ...core.verdict_types import INFERRED, Phase, WorkloadVerdict
from ...core.worth import HOURS_PER_MONTH
from ..document import AsideBlock, Bullets, Document, Figures, Section, Table, section
from ..reader_links import ReaderCommands
from ..subjects import Subject, replicas_of, workload_of
from ..titles import Titles, finding_title, runs_noun, titled
from .energy import drawn_words
from .story import price_line

_BASIS = {"allocation": "allocated by a scheduler", "process": "held by processes", INFERRED: "inferred from activity"}
_FACTS, _CONDITIONS, _REPLICAS, _ALL = 5, 3, 10, 10**9
_METRIC_WORDS = {"util": "utilization", "max": "maximum", "dram": "DRAM", "nvlink": "NVLink", "sku": "SKU"}
_COUNTS = ("count", "GPUs", "nodes", "ports", "requests")  # units that the metric names
_SAME = 0.005  # a product that differs more from the claimed cost is not how it was calculated


def explain_page(
    advice: Advice,
    subject: Subject,
    catalog: Catalog | None = None,
    rules: Mapping[str, WasteRule] = MappingProxyType({}),
    *,
    verbose: bool = False,
    again: ReaderCommands | None = None,
) -> Document:
    """What is claimed of `subject`, and why. `catalog`: for the calculation of dollars; `rules`: as they apply to its
    owner, for the reasons of thresholds; `verbose`: all evidence, limits, rejected nodes and measurements too."""
    most = _ALL if verbose else _FACTS
    workload = subject if isinstance(subject, WorkloadVerdict) else workload_of(advice, subject.workload)
    if isinstance(subject, WorkloadVerdict):
        title, text = _kind(subject), _use(subject)
        findings = [f for f in advice.findings if f.workload == subject.id]
        facts = (*subject.kind.evidence, *subject.bottleneck.evidence, *(e for f in findings for e in f.evidence))
        lines = [e.text if isinstance(e, CodedText) else words.evidence_words(e) for e in facts]
        moves = [r for r in advice.recommendations if r.workload == subject.id and (verbose or not r.blocked_by)]
        shown = [_listed("Evidence", lines[:most])]
        shown.append(_claims("Findings and recommendations", advice, (*findings, *moves)))
        conditions, details = dict.fromkeys(c for f in findings for c in f.would_change_if), []
    elif isinstance(subject, Finding):
        title, text, conditions = finding_title(subject, advice), subject.text, subject.would_change_if
        findings = [subject]
        shown = [_evidence(advice, findings, most)]
        answers = [r for r in advice.recommendations if subject.id in r.findings]
        details = [_thresholds(rules.get(subject.rule)), _claims("Recommendations", advice, answers)]
    else:
        title, text, conditions = titled(subject, advice), subject.text, subject.would_change_if
        findings = [f for f in advice.findings if f.id in subject.findings]
        shown = [_listed("Blocked by", subject.blocked_by), _evidence(advice, findings, most, subject.time_ratio)]
        rejected = (f"{node.sku}: {node.reason}" for node in subject.rejected)
        details = [
            section("Figures", _figures(subject)), _listed("Lower precision (not included in any sum)", subject.levers),
            _listed("Rejected", rejected), _claims("Findings", advice, findings),
        ]  # fmt: skip
    shown += [
        _listed("This would change if", list(conditions)[: most if verbose else _CONDITIONS]),
        _calculation(advice, subject, findings, catalog),
    ]
    if verbose:
        if workload is not None and workload is not subject:
            details.append(section(_kind(workload), _identity(workload), _use(workload)))
        shown += [*details, *(_workload_details(workload) if workload is not None else ())]
    elif again is not None:
        command = again.advice("explain", "--verbose", short_id(subject.id))
        shown.append(section("Next", AsideBlock("Limits, rejected nodes and all measurements:", command)))
    return Document(
        title=title,
        lead=text,
        window=_identity(subject),
        summary=_replicas(advice, subject, findings, _ALL if verbose else _REPLICAS),
        sections=tuple(part for part in shown if part.blocks),
    )


def claim_block(advice: Advice, subject: Finding | Recommendation) -> Section:
    """What ``explain`` prints of a finding or a recommendation, as a block of a page; without the calculation."""
    page = explain_page(advice, subject)
    figures = _figures(subject) if isinstance(subject, Recommendation) else None
    return section(page.title, page.window, page.lead, page.summary, figures, *page.sections, id=subject.id)


def _identity(subject: Subject) -> str:
    if isinstance(subject, Finding):
        of = f", workload {subject.workload}" if subject.workload else ""
        return (
            f"Finding {subject.id}: rule {subject.rule}{of}, severity {subject.severity}, confidence "
            f"{words.percent(subject.confidence)}. {words.counted(len(subject.gpus), 'GPU')} on "
            f"{', '.join(subject.nodes) or subject.node or 'no node named'}."
        )
    if isinstance(subject, Recommendation):
        decision = f", {words.decision_words(subject.decision)}" if subject.decision else ""
        risk = subject.risk.replace("-", " ")
        return f"Recommendation {subject.id}: {subject.action}, {subject.realisation}, {risk} risk{decision}."
    parts = (words.whose_words(subject), words.scheduled_words(subject.scheduled))
    return f"Workload {subject.id}, series {subject.series_id}; {'; '.join(filter(None, parts))}."


def _listed(title: str, lines: Iterable[object]) -> Section:
    return section(title, Bullets(tuple(map(str, lines))))


def _kind(w: WorkloadVerdict) -> str:
    kind, bottleneck = (f"{verdict.label} ({words.percent(verdict.confidence)})" for verdict in (w.kind, w.bottleneck))
    return f"{w.name}: {kind}, bottleneck {bottleneck}"


def _use(w: WorkloadVerdict) -> str:
    gpus = f"{words.counted(len(w.gpus), 'GPU')} ({w.gpu_sku or 'unknown SKU'})"
    return (
        f"{gpus} on {', '.join(w.nodes) or 'no node'} ({w.node_sku or 'node SKU unknown'}), "
        f"{_BASIS.get(w.basis, w.basis)}{', shared with other work' if w.shared else ''}. {minute(w.start)} to "
        f"{minute(w.end)}: {words.hours(w.gpu_hours)}{'' if w.cost_usd is None else f', {words.usd(w.cost_usd)}'}."
    )


def _replicas(advice: Advice, subject: Subject, findings: Sequence[Finding], most: int) -> str:
    replicas = replicas_of(advice, subject, {gpu for f in findings for gpu in f.gpus})
    if len(replicas) < 2:
        return ""
    short, names = short_ids(w.id for w in advice.workloads), list(dict.fromkeys(w.name for w in replicas))
    ids = ", ".join(short[w.id] for w in replicas[:most])
    more = f" and {len(replicas) - most} more (--verbose)" if len(replicas) > most else ""
    return f"{len(replicas)} {runs_noun(replicas)} of {words.listed(names)}: {ids}{more}."


def _claims(title: str, advice: Advice, claims: Sequence[Finding | Recommendation]) -> Section:
    lines = (f"{finding_title(c, advice) if isinstance(c, Finding) else titled(c, advice)} [{c.id}]" for c in claims)
    return _listed(title, tuple(lines))


def _evidence(advice: Advice, findings: Sequence[Finding], most: int, time_ratio: Interval | None = None) -> Section:
    rows = [("predicted time", words.time_words(time_ratio), words.NONE, "")] if time_ratio else []
    titles = Titles(advice)
    facts = [(titles.resource(f), e) for f in findings for e in f.evidence]
    for resource, e in sorted(facts, key=lambda fact: fact[1].threshold is None):
        of = f" ({resource})" if len({resource for resource, _ in facts}) > 1 else ""
        metric, value, threshold, unit = _fact_cells(e)
        rows.append((f"{metric}{of}", value, threshold, unit))
    return section("Evidence", Table(("measured", "value", "threshold", "unit"), tuple(rows[:most]), (1, 2)))


def _fact_cells(e: Evidence) -> tuple[str, str, str, str]:
    """Metric, value, threshold and unit in words: ratios as percent, or as multiples where one is above 2."""
    metric = re.sub(r"_p(\d\d)(\d?)\b", lambda p: f" p{p[1]}{p[2] and '.'}{p[2]}", e.metric)
    metric = " ".join(_METRIC_WORDS.get(word, word) for word in re.split("[_ ]", metric))
    unit = "" if e.unit in _COUNTS else e.unit
    if unit != "ratio" and not unit.startswith("ratio of "):
        return metric, words.figure(e.value), words.figure(e.threshold), unit
    is_multiple = "_over_" in e.metric or any(isinstance(v, float) and v > 2 for v in (e.value, e.threshold))

    def ratio(value: float | str | None) -> str:
        if value is None or isinstance(value, str):
            return words.figure(value)
        return f"{words.figure(value)} times" if is_multiple else f"{words.figure(round(value * 100, 2))} %"

    return metric, ratio(e.value), ratio(e.threshold), unit.removeprefix("ratio").strip()


def _thresholds(rule: WasteRule | None) -> Section:
    rows = tuple(
        (name, f"{words.figure(t.value)} {t.unit}", t.origin, f"{t.reason} Source: {t.source}.")
        for name, t in (rule.thresholds if rule else {}).items()
    )
    return section("Thresholds", Table(("threshold", "value", "set by", "reason"), rows, (1,)))


def _figures(r: Recommendation) -> Figures:
    def configuration(c: Configuration) -> str:
        gpus = f"{c.gpu_count} x {c.gpu_sku or 'unknown GPU'} on {c.node_sku or 'an unknown node'}"
        return gpus if c.gpu_count else "no GPUs"

    projected = r.saving_usd_per_month or r.freed_gpu_hours_per_month or r.energy_saving_kwh_per_month
    rows = (
        ("from", configuration(r.source)),
        ("to", configuration(r.target)),
        ("predicted time", words.time_words(r.time_ratio)),
        ("saving", words.saving_words(r.saving_usd_per_month, r.freed_gpu_hours_per_month, r.realisation)),
        ("energy saved/month", words.energy_words(r)),
        ("projected from", f"{r.observed_hours:,.0f} h of data" if r.observed_hours and projected else ""),
        ("cash from", r.available_from),
        ("break-even demand", r.break_even),
        ("changes", "; ".join(map(str, r.changes))),
        ("excludes", ", ".join(r.excludes)),
    )
    return Figures(tuple((name, value) for name, value in rows if value and value != words.NONE))


def _workload_details(w: WorkloadVerdict) -> Iterator[Section]:
    others = ", ".join(f"{a.label} {words.percent(a.confidence)}" for a in w.kind.alternatives)
    yield _listed("Kind", (*w.kind.evidence, *((f"It could also be: {others}.",) if others else ())))
    shares = sorted(w.bottleneck.time_shares.items(), key=lambda share: -share[1])
    rows = Table(("share of its time", "bottleneck"), tuple((words.percent(n), label) for label, n in shares), (0,))
    yield section("Bottleneck", Bullets(tuple(map(str, w.bottleneck.evidence))), rows)
    if w.latency is not None:
        yield _listed(f"Latency class: {words.latency_words(w.latency)}", w.latency.evidence)
    yield _phases(w.phases)
    yield section(
        "Coverage",
        f"{words.percent(w.coverage.fraction)} of its GPU time was observed, a sample every "
        f"{span(w.coverage.resolution_seconds)}.",
        Bullets(tuple(f"{metric} is missing: {reason}" for metric, reason in w.coverage.missing.items())),
        drawn_words(w.energy, "the workload") if w.energy is not None else "",
    )
    unknown = (f"Not evaluated: {w.levers_unknown}.",) if w.levers_unknown is not None else ()
    yield _listed("Lower precision (not included in any sum)", (*w.levers, *unknown))
    rows = ((name, words.figure(value), load_features().get(name)) for name, value in w.features.items())
    measured = tuple((name, value, f.unit if f else "", f.meaning if f else "") for name, value, f in rows)
    yield section("Measurements", Table(("feature", "value", "unit", "meaning"), measured, (1,)))


def _phases(phases: Sequence[Phase]) -> Section:
    groups: dict[tuple[str, str, tuple[CodedText, ...]], list[Phase]] = {}
    for phase in phases:
        groups.setdefault((phase.kind, phase.bottleneck, phase.evidence), []).append(phase)
    total, rows, reasons = _seconds(phases) or 1.0, [], []
    for (kind, bottleneck, evidence), same in sorted(groups.items(), key=lambda group: -_seconds(group[1])):
        seconds, last = _seconds(same), max(p.start for p in same)
        times = f"{'once' if len(same) == 1 else f'{len(same)} times'} for {span(seconds / len(same))}"
        rows.append((kind, bottleneck, words.percent(seconds / total), times, minute(last)))
        reasons += [f"{kind}, {bottleneck}: {' '.join(map(str, evidence))}"] if evidence else []
    heads = ("kind", "bottleneck", "share of the time", "times", "last start")
    return section("Phases", Table(heads, tuple(rows), (2,)), Bullets(tuple(reasons)))


def _seconds(phases: Sequence[Phase]) -> float:
    return sum(phase.end - phase.start for phase in phases)


def _calculation(advice: Advice, subject: Subject, findings: Sequence[Finding], catalog: Catalog | None) -> Section:
    move = subject if isinstance(subject, Recommendation) else None
    ids = {*(move.prices if move else ())} or {f.price for f in findings}
    prices = [p for p in advice.prices if p.id in ids]
    lines: list[str] = []
    if isinstance(subject, WorkloadVerdict):
        prices = prices or [p for p in advice.prices if p.sku == subject.node_sku]
        lines += _hours_times_price(subject, prices, catalog)
    if move is not None and move.saving_usd_per_month is not None:
        lines, findings = list(_months(move, move.saving_usd_per_month, prices, catalog)), ()
    for f in findings:
        premium = next((e.value for e in f.evidence if e.metric == "fabric_premium"), None)
        if isinstance(premium, float) and premium and f.cost_usd is not None:
            each = f"{f.cost_usd / premium:,.1f} node-hours observed x {words.usd(premium)} a node-hour for the fabric"
            lines.append(f"{each} = {words.usd(f.cost_usd)} in the window.")
        else:
            lines += _hours_times_price(f, prices, catalog)
    return _listed("Calculation", dict.fromkeys((*lines, *map(price_line, prices))))


def _months(r: Recommendation, saving: Interval, prices: Sequence[Price], catalog: Catalog | None) -> Iterator[str]:
    for what, side in (("Now", r.source), ("Then", r.target)):
        node = catalog.node(side.node_sku) if catalog is not None and side.node_sku else None
        price = next((p for p in prices if p.sku == side.node_sku), None)
        if side.gpu_count and node is not None and price is not None:
            nodes = -(-side.gpu_count // node.gpu_count)
            usd = words.usd(nodes * price.usd_per_hour * HOURS_PER_MONTH)
            each = f"{words.usd(price.usd_per_hour)} a node-hour x {HOURS_PER_MONTH:.0f} h"
            size = f"{nodes} x {node.name} for {side.gpu_count} GPUs"
            yield f"{what}: {size} x {each} = {usd} a month where it runs all the time."
    spread = f"{words.spread(saving)}, 10th to 90th percentile" if words.spread(saving) else ""
    yield f"Savings: {words.usd(saving.p50)}/month{spread}. The baseline is the same SKU at its right-sized count."


def _hours_times_price(of: Finding | WorkloadVerdict, prices: Sequence[Price], catalog: Catalog | None) -> list[str]:
    """Empty where no price times the hours gives the cost."""
    usd = of.cost_usd or 0.0
    for price in prices:
        node = catalog.node(price.sku) if catalog is not None else None
        if node is not None and abs(of.gpu_hours * price.usd_per_hour / node.gpu_count - usd) <= _SAME * abs(usd):
            each = f"{words.usd(price.usd_per_hour)} a node-hour / {node.gpu_count} GPUs a node"
            return [f"{words.hours(of.gpu_hours)} x {each} = {words.usd(usd)} in the window."]
    return []
