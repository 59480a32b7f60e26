"""Sums over an advice: GPU-hours by kind, idle GPUs by owner, coverage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ..core.advice_types import Advice, Finding, Recommendation
from ..core.formatting import owner_words
from ..core.scalars import sum_if_all
from ..core.worth import Worth
from .titles import waste_of

NO_WORKLOAD, DRAINED, NOT_OBSERVED = "no workload", "drained", "not observed"


class IdleGpus(NamedTuple):
    """Idle GPUs of an owner (None: no workload held them). `names`: of workloads or nodes; `cost_usd` None: unknown."""

    owner: str | None
    names: tuple[str, ...]
    gpus: int
    gpu_hours: float
    cost_usd: float | None


def hours_by_kind(advice: Advice) -> dict[str, float]:
    """GPU-hours by kind, then those of no workload. Shared GPUs count for each workload that shares them."""
    return _summed(((w.kind.label, w.gpu_hours) for w in advice.workloads), advice)


def hours_by_bottleneck(advice: Advice) -> dict[str, float]:
    """GPU-hours by bottleneck, by the shares of each workload's time, then those of no workload."""
    shares = ((w, w.bottleneck.time_shares or {w.bottleneck.label: 1.0}) for w in advice.workloads)
    return _summed(((label, share * w.gpu_hours) for w, parts in shares for label, share in parts.items()), advice)


def _summed(parts: Iterable[tuple[str, float]], advice: Advice) -> dict[str, float]:
    """The sums by label, then GPU-hours of no workload; less than a tenth of a percent is a rounding difference."""
    sums: dict[str, float] = defaultdict(float)
    for label, hours in parts:
        sums[label] += hours
    by_size = dict(sorted(sums.items(), key=lambda label_hours: -label_hours[1]))
    if (uses := advice.summary.gpu_hours_by_use) is not None:
        rest = {NO_WORKLOAD: uses.unallocated, DRAINED: uses.drained, NOT_OBSERVED: uses.unobserved}
        least = 0.001 * advice.summary.gpu_hours
        by_size |= {name: hours for name, hours in rest.items() if hours is not None and hours > least}
    return by_size


def holdings(advice: Advice) -> tuple[IdleGpus, ...]:
    """Idle GPUs by owner, the highest cost first."""
    workloads = {w.id: w for w in advice.workloads}
    by_owner: dict[str | None, list[tuple[str, Finding]]] = {}
    for f in advice.findings:
        if waste_of(f.rule) == "unused":
            w = workloads.get(f.workload or "")
            owner = (owner_words(w.owner) or "owner unknown") if w is not None else None
            by_owner.setdefault(owner, []).append((w.name if w is not None else ", ".join(f.nodes), f))
    rows = []
    for owner, held in by_owner.items():
        names, findings = dict.fromkeys(name for name, _ in held), [f for _, f in held]
        gpus, hours = sum(len(f.gpus) for f in findings), sum(f.gpu_hours for f in findings)
        rows.append(IdleGpus(owner, tuple(names), gpus, hours, sum_if_all(f.cost_usd for f in findings)))
    return tuple(sorted(rows, key=lambda h: (-(h.cost_usd or 0.0), -h.gpu_hours, h.owner or "")))


def observed_share(advice: Advice) -> float | None:
    """Share of the workloads' GPU time that was observed; None without workloads."""
    hours = sum(w.gpu_hours for w in advice.workloads)
    # A workload's GPU-hours are observed hours; it held its GPUs longer by what its coverage lacks.
    held = sum(w.gpu_hours / w.coverage.fraction for w in advice.workloads if w.coverage.fraction > 0)
    return min(hours / held, 1.0) if held > 0 else 0.0 if advice.workloads else None


def blind_spots(advice: Advice) -> tuple[tuple[str, str, int], ...]:
    """A metric that workloads lack, why, and how many of them, those of the most workloads first."""
    counts = Counter(missing for w in advice.workloads for missing in w.coverage.missing.items())
    return tuple((*spot, count) for spot, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def answered_findings(advice: Advice) -> list[tuple[Finding, Recommendation | None]]:
    """Findings, each with the first recommendation that gains something, in their order; then by cost."""
    worth, best = Worth(advice), dict[str, Recommendation]()
    for r in sorted(advice.recommendations, key=lambda r: r.rank):
        if not r.blocked_by and not r.set_aside and worth.usd(r).p50 > 0:
            for finding in r.findings:
                best.setdefault(finding, r)

    def order(f: Finding) -> tuple[object, ...]:
        r, severity = best.get(f.id), ("high", "medium", "low").index(f.severity)
        return r is None, r.rank if r else (), severity, -(f.cost_usd or 0.0), f.id

    return [(f, best.get(f.id)) for f in sorted(advice.findings, key=order)]
