"""What stands in the advice of several shards under one id, as one: each shard saw a part of it, on its own nodes.

Every function here gives the same whatever the order of the parts and however they were merged before: sums, extremes,
means by GPU-hours, unions. Lists of sentences are cut to the first by name, for a service may lie in a hundred shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, TypeVar

from ..core.advice_types import Configuration, Decision, Finding, Interval, Realisation, Recommendation, Risk, Severity
from ..core.coded_text import CodedText, distinct
from ..core.dominant_label import leading, ruling
from ..core.formatting import hours, saving_words, usd
from ..core.totals import added, added_intervals, sum_if_all
from ..core.verdict_types import (
    Alternative,
    BottleneckVerdict,
    Coverage,
    KindVerdict,
    Latency,
    Owner,
    Phase,
    Scheduled,
    WorkloadVerdict,
)
from .merge_energy import workload_energy

_KEPT = 20  # sentences, or pieces of evidence, of one verdict
_SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high")
_RISKS: tuple[Risk, ...] = ("very-low", "low", "medium", "high")
# From the firmest to the least.
_REALISATIONS: tuple[Realisation, ...] = ("cash-now", "cash-at", "energy", "capacity-freed")

_T = TypeVar("_T")


def one_workload(parts: Sequence[WorkloadVerdict], joined: Sequence[bool], dominant: float) -> WorkloadVerdict:
    """A workload of which each part held other GPUs.

    Its kind is the one that most of its GPU-hours speak for, each with its confidence; the others are alternatives.
    What holds it back follows from its time in all parts. `joined`: whether a part is of several shards itself;
    `dominant`: share of the busy time that a bottleneck needs to rule.
    """
    weights = [w.gpu_hours for w in parts]
    kinds = _means([_voted(w.kind, many) for w, many in zip(parts, joined, strict=True)], weights)
    kind = leading(kinds)
    times = _means([w.bottleneck.time_shares for w in parts], weights)
    said = {w.bottleneck.label for w in parts}
    missing = sorted(
        (
            (metric, reason, w.coverage.missing_codes.get(metric, ""))
            for w in parts
            for metric, reason in w.coverage.missing.items()
        ),
        reverse=True,
    )
    lacks = {metric: (reason, code) for metric, reason, code in missing}
    return WorkloadVerdict(
        id=parts[0].id,
        series_id=min(w.series_id for w in parts),
        name=min(w.name for w in parts),
        owner=Owner(*(_first(values) for values in zip(*(astuple(w.owner) for w in parts), strict=True))),
        basis=_same(w.basis for w in parts) or "process",
        shared=any(w.shared for w in parts),
        scheduled=parts[0].scheduled if len({w.scheduled for w in parts}) == 1 else Scheduled(),
        nodes=_union(w.nodes for w in parts),
        gpus=_union(w.gpus for w in parts),
        gpu_sku=_same(w.gpu_sku for w in parts),
        node_sku=_same(w.node_sku for w in parts),
        start=min(w.start for w in parts),
        end=max(w.end for w in parts),
        gpu_hours=added(weights),
        cost_usd=sum_if_all(w.cost_usd for w in parts),
        kind=KindVerdict(
            kind,  # type: ignore[arg-type]
            kinds[kind],
            _some(w.kind.evidence for w in parts),
            tuple(Alternative(label, share) for label, share in kinds.items() if label != kind and share > 0),
        ),
        bottleneck=BottleneckVerdict(
            said.pop() if len(said) == 1 else ruling(times, dominant),  # type: ignore[arg-type]
            _mean([w.bottleneck.confidence for w in parts], weights),
            times,
            _some(w.bottleneck.evidence for w in parts),
        ),
        phases=_phases(parts),
        coverage=Coverage(
            _mean([w.coverage.fraction for w in parts], weights),
            max(w.coverage.resolution_seconds for w in parts),
            dict(sorted((metric, reason) for metric, (reason, _) in lacks.items())),
            {metric: code for metric, (_, code) in sorted(lacks.items()) if code},
        ),
        latency=_slowest([w.latency for w in parts if w.latency is not None]),
        levers=_some(w.levers for w in parts),
        levers_unknown=next(iter(_some((w.levers_unknown,) for w in parts if w.levers_unknown is not None)), None),
        energy=workload_energy([w.energy for w in parts]),
    )


def one_finding(parts: Sequence[Finding], workloads: Mapping[str, WorkloadVerdict]) -> Finding:
    """A finding about the parts of one series. `workloads`: all there are, by id."""
    workload = _newest((f.workload for f in parts), workloads)
    nodes = _union(f.nodes for f in parts)
    spent, cost = added(f.gpu_hours for f in parts), sum_if_all(f.cost_usd for f in parts)
    rule = min(f.rule for f in parts)
    return Finding(
        id=parts[0].id,
        rule=rule,
        severity=_last(_SEVERITIES, {f.severity for f in parts}),
        workload=workload,
        node=nodes[0] if len(nodes) == 1 else None,
        gpus=_union(f.gpus for f in parts),
        evidence=_first_by(_text, {e for f in parts for e in f.evidence}),
        gpu_hours=spent,
        cost_usd=cost,
        price=_same(f.price for f in parts),
        confidence=min(f.confidence for f in parts),
        would_change_if=_some(f.would_change_if for f in parts),
        text=f"{_called(workload, workloads)} on {len(nodes)} nodes that lie in several shards: {rule}, "
        f"{hours(spent)}, {usd(cost)} in the window. Each shard judged its part by itself.",
        nodes=nodes,
    )


def one_recommendation(parts: Sequence[Recommendation], workloads: Mapping[str, WorkloadVerdict]) -> Recommendation:
    """A way out for the parts of one series. Parts where it is blocked bring nothing where it is open for others.

    The percentiles of savings, in dollars and in energy, are summed, which holds where the parts turn out well or badly
    together; so few figures give no better. The time ratio spans all parts.
    """
    parts = [r for r in parts if not r.blocked_by] or parts
    workload = _newest((r.workload for r in parts), workloads)
    savings = [r.saving_usd_per_month for r in parts if r.saving_usd_per_month is not None]
    saving = added_intervals(savings)
    paying = [r for r in parts if (r.saving_usd_per_month is not None) == bool(savings)]
    realised = _last(_REALISATIONS, {r.realisation for r in paying})
    freed = added(r.freed_gpu_hours_per_month for r in parts)
    ratios = [r.time_ratio for r in parts if r.time_ratio is not None]
    action = min(parts, key=lambda r: r.action).action
    energy = [r.energy_saving_kwh_per_month for r in parts]
    return Recommendation(
        id=parts[0].id,
        findings=_union(r.findings for r in parts),
        workload=workload,
        action=action,
        source=_configuration([r.source for r in parts]),
        target=_configuration([r.target for r in parts]),
        time_ratio=_envelope(ratios, [r.source.gpu_count for r in parts]) if len(ratios) == len(parts) else None,
        saving_usd_per_month=saving,
        freed_gpu_hours_per_month=freed,
        # Of a part whose energy is not known that of the whole is not either.
        energy_saving_kwh_per_month=None if None in energy else added_intervals(e for e in energy if e is not None),
        realisation=realised,
        risk=_last(_RISKS, {r.risk for r in parts}),
        blocked_by=_some(r.blocked_by for r in parts),
        rejected=_first_by(_text, (x for r in parts for x in r.rejected)),
        levers=_some(r.levers for r in parts),
        changes=_some(r.changes for r in parts),
        would_change_if=_some(r.would_change_if for r in parts),
        prices=_union(r.prices for r in parts),
        text=f"{_called(workload, workloads)}, in several shards: {action}, which brings "
        f"{saving_words(saving, freed, realised)}. Each shard reckoned its part by itself.",
        break_even=_same(r.break_even for r in parts),
        excludes=_union(r.excludes for r in parts),
        available_from=max((r.available_from or "" for r in paying if r.realisation == realised), default="") or None,
        decision=_latest([r.decision for r in parts if r.decision is not None]),
    )


def _voted(kind: KindVerdict, joined: bool) -> dict[str, float]:
    """What a part says it is. Only where it was joined before are its alternatives what other shards said."""
    return ({a.label: a.confidence for a in kind.alternatives} if joined else {}) | {kind.label: kind.confidence}


def _phases(parts: Sequence[WorkloadVerdict]) -> tuple[Phase, ...]:
    """The phases of all parts in order; those of one kind and bottleneck that touch or overlap are one.

    Parts may do different things at once: then phases overlap.
    """
    out: list[Phase] = []
    every = sorted((p for w in parts for p in w.phases), key=lambda p: (p.kind, p.bottleneck, p.start, p.end))
    for phase in every:
        last = out[-1] if out else None
        if last and (last.kind, last.bottleneck) == (phase.kind, phase.bottleneck) and phase.start <= last.end:
            said = _some((last.evidence, phase.evidence))
            out[-1] = replace(last, end=max(last.end, phase.end), evidence=said)
        else:
            out.append(phase)
    return tuple(sorted(out, key=lambda p: (p.start, p.end, p.kind, p.bottleneck)))


def _slowest(parts: Sequence[Latency]) -> Latency | None:
    """Percentiles do not add up: what is told is that of the shard where people wait longest."""

    def key(one: Latency) -> tuple[float, float, str]:
        first, token = (figures.at(0.9) if figures else None for figures in (one.first_token, one.output_token))
        return (-1.0 if first is None else first, -1.0 if token is None else token, _text(one))

    return max(parts, key=key, default=None)


def _newest(ids: Iterable[str | None], workloads: Mapping[str, WorkloadVerdict]) -> str | None:
    """The workload that ended last, as advice names a series by its newest run; None: no workload is concerned."""

    def key(one: str) -> tuple[float, float, str]:
        known = workloads.get(one)
        return (known.end, known.start, one) if known else (-math.inf, -math.inf, one)

    return max((one for one in ids if one is not None), key=key, default=None)


def _called(workload: str | None, workloads: Mapping[str, WorkloadVerdict]) -> str:
    known = workloads.get(workload or "")
    return f"The workload {known.name}" if known else "What was found"


def _configuration(parts: Sequence[Configuration]) -> Configuration:
    return Configuration(
        _same(c.gpu_sku for c in parts), _same(c.node_sku for c in parts), sum(c.gpu_count for c in parts)
    )  # fmt: skip


def _envelope(parts: Sequence[Interval], weights: Sequence[float]) -> Interval:
    return Interval(min(i.p10 for i in parts), _mean([i.p50 for i in parts], weights), max(i.p90 for i in parts))


def _latest(decisions: Sequence[Decision]) -> Decision | None:
    return max(decisions, key=lambda d: (d.since, _text(d)), default=None)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Weighted mean; the largest where nothing weighs anything."""
    total = math.fsum(weights)
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / total if total > 0 else max(values)


def _means(parts: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """By label, the weighted mean of what each part says of it; nothing said is zero."""
    labels = sorted({label for part in parts for label in part})
    return {label: _mean([part.get(label, 0.0) for part in parts], weights) for label in labels}


def _last(order: Sequence[_T], among: Collection[_T]) -> _T:
    """Of what is among, what stands last in the order."""
    return [one for one in order if one in among][-1]


def _same(values: Iterable[str | None]) -> str | None:
    """What all say; None where they differ."""
    found = set(values)
    return next(iter(found)) if len(found) == 1 else None


def _first(values: Iterable[str | None]) -> str | None:
    return min((v for v in values if v is not None), default=None)


def _union(parts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({item for part in parts for item in part}))


def _some(parts: Iterable[Iterable[CodedText]]) -> tuple[CodedText, ...]:
    return distinct(one for part in parts for one in part)[:_KEPT]


def _first_by(key: Callable[[Any], str], items: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(sorted(items, key=key)))[:_KEPT]


def _text(value: object) -> str:
    return repr(value)
