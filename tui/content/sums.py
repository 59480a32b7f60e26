"""Sums over an advice that the overview shows."""

from __future__ import annotations

from collections.abc import Iterable

from ...advisor.core.advice_types import Advice, WorkloadVerdict
from ...advisor.views.coverage import unobserved_hours
from ...advisor.views.document.aggregates import observed_share
from ..widgets.bars import Quantity

NO_WORKLOAD = "no workload"
NOT_OBSERVED = "not observed"


def hours_by_kind(advice: Advice) -> tuple[Quantity, ...]:
    """GPU-hours by kind of workload, the most first; what no workload held comes last."""
    return _sums(advice, ((w.kind.label, w.gpu_hours) for w in advice.workloads))


def hours_by_bottleneck(advice: Advice) -> tuple[Quantity, ...]:
    """GPU-hours by what held the work back, by the shares of each workload's time; the most first."""
    return _sums(advice, (part for w in advice.workloads for part in _parts(w)))


def money(advice: Advice) -> tuple[Quantity, ...]:
    """Where the dollars went, as the reconciliation says; parts of nothing are left out."""
    r = advice.summary.reconciliation
    parts = (
        ("workloads", r.workloads), ("shared", r.shared), ("allocated but idle", r.allocated_idle),
        ("unallocated", r.unallocated), ("drained", r.drained), ("not observed", r.unobserved),
    )  # fmt: skip
    return tuple(Quantity(name, value) for name, value in parts if value)


def observed(advice: Advice) -> float | None:
    """Share of the workloads' GPU time that was observed; None: there was none."""
    return observed_share(advice)


def _parts(w: WorkloadVerdict) -> Iterable[tuple[str, float]]:
    shares = w.bottleneck.time_shares or {w.bottleneck.label: 1.0}
    return ((label, share * w.gpu_hours) for label, share in shares.items())


def _sums(advice: Advice, parts: Iterable[tuple[str, float]]) -> tuple[Quantity, ...]:
    sums: dict[str, float] = {}
    for label, hours in parts:
        sums[label] = sums.get(label, 0.0) + hours
    told = [Quantity(label, hours) for label, hours in sorted(sums.items(), key=lambda item: -item[1]) if hours > 0]
    # GPUs that workloads share count for each of them, so that nothing may be left.
    rest = advice.summary.gpu_hours - sum(w.gpu_hours for w in advice.workloads)
    dark = min(unobserved_hours(advice), max(rest, 0.0))
    left = ((NO_WORKLOAD, rest - dark), (NOT_OBSERVED, dark))
    return (*told, *(Quantity(name, hours) for name, hours in left if hours > 0.005 * advice.summary.gpu_hours))
