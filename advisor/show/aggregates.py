"""What a report sums up over an advice: GPU-hours by kind, what stood idle by owner, fabrics by node SKU, coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..core.advice_types import Advice, FabricUse, Finding
from ..core.formatting import owner_words
from ..core.totals import sum_if_all
from .titles import waste_of

NO_WORKLOAD, DRAINED, NOT_OBSERVED = "no workload", "drained", "not observed"


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """GPUs of one owner that did nothing. `owner` None: no workload held them.

    `names`: the workloads, or the nodes. `cost_usd` None: a price is not known.
    """

    owner: str | None
    names: tuple[str, ...]
    gpus: int
    gpu_hours: float
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class FabricSum:
    """The fabrics of one node SKU. `silent` of the `nodes` carried nothing that needs a fabric; of `unseen` nothing can
    be told, for `reasons`; `judged` were observed long enough to say. `util_p995`: the busiest node's; dollars are of
    the window (None: no price is known).
    """

    node_sku: str | None
    kind: str | None
    nodes: int
    cost_usd: float | None
    util_p995: float | None
    silent: int
    silent_usd: float | None
    unseen: int
    unseen_usd: float | None
    reasons: tuple[str, ...]
    assumed: bool
    judged: int


@dataclass(frozen=True, slots=True)
class MissingMetric:
    """One thing that could not be seen, why, and for how many workloads."""

    what: str
    why: str
    workloads: int


def hours_by_kind(advice: Advice) -> dict[str, float]:
    """GPU-hours of the workloads by kind, the most first, then those of no workload. GPUs that workloads share count
    for each of them."""
    return _summed(((w.kind.label, w.gpu_hours) for w in advice.workloads), advice)


def hours_by_bottleneck(advice: Advice) -> dict[str, float]:
    """GPU-hours by what held the work back, by the shares of each workload's time, then those of no workload."""
    shares = ((w, w.bottleneck.time_shares or {w.bottleneck.label: 1.0}) for w in advice.workloads)
    return _summed(((label, share * w.gpu_hours) for w, parts in shares for label, share in parts.items()), advice)


def _summed(parts: Iterable[tuple[str, float]], advice: Advice) -> dict[str, float]:
    sums: dict[str, float] = {}
    for label, hours in parts:
        sums[label] = sums.get(label, 0.0) + hours
    return dict(sorted(sums.items(), key=lambda item: -item[1])) | hours_without_workload(advice)


def hours_without_workload(advice: Advice) -> dict[str, float]:
    """GPU-hours that nobody held, that were out of service, and that nobody observed, as the accounting of GPU-hours
    has them; parts of nothing, or of what rounding leaves, are left out."""
    uses = advice.summary.gpu_hours_by_use
    if uses is None:  # one team's part
        return {}
    parts = {NO_WORKLOAD: uses.unallocated, DRAINED: uses.drained, NOT_OBSERVED: uses.unobserved}
    least = 0.001 * advice.summary.gpu_hours
    return {name: part for name, part in parts.items() if part is not None and part > least}


def holdings(advice: Advice) -> tuple[IdleGpus, ...]:
    """What stood idle, by owner, the dearest first."""
    workloads = {w.id: w for w in advice.workloads}
    found: dict[str | None, list[tuple[str, Finding]]] = {}
    for f in advice.findings:
        if waste_of(f.rule) == "unused":
            w = workloads.get(f.workload or "")
            owner = (owner_words(w.owner) or "owner unknown") if w is not None else None
            found.setdefault(owner, []).append((w.name if w is not None else ", ".join(f.nodes), f))
    rows = [
        IdleGpus(
            owner, tuple(dict.fromkeys(name for name, _ in own)), sum(len(f.gpus) for _, f in own),
            sum(f.gpu_hours for _, f in own), sum_if_all(f.cost_usd for _, f in own),
        )
        for owner, own in found.items()
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda h: (-(h.cost_usd or 0.0), -h.gpu_hours, h.owner or "")))


def fabric_sums(advice: Advice) -> tuple[FabricSum, ...]:
    """The fabrics by node SKU, what costs most first."""
    silent = {node for f in advice.findings if waste_of(f.rule) == "fabric" for node in f.nodes}
    floor = advice.summary.floor_hours or 0.0
    by_sku: dict[tuple[str | None, str | None], list[FabricUse]] = {}
    for use in advice.fabrics:
        by_sku.setdefault((use.node_sku, use.kind), []).append(use)
    sums = []
    for (sku, kind), uses in by_sku.items():
        quiet, dark = [use for use in uses if use.node in silent], [use for use in uses if use.util_p995 is None]
        seen = [(use, use.util_p995) for use in uses if use.util_p995 is not None]
        judged = len(quiet) + sum(use.hours >= floor and use.node not in silent for use, _ in seen)
        sums.append(
            FabricSum(
                node_sku=sku, kind=kind, nodes=len(uses), cost_usd=sum_if_all(use.cost_usd for use in uses),
                util_p995=max((util for _, util in seen), default=None), silent=len(quiet),
                silent_usd=sum_if_all(use.cost_usd for use in quiet), unseen=len(dark),
                unseen_usd=sum_if_all(use.cost_usd for use in dark),
                reasons=tuple(dict.fromkeys(use.unseen for use in uses if use.unseen is not None)),
                assumed=any(use.assumed for use in uses), judged=judged,
            )
        )  # fmt: skip
    return tuple(sorted(sums, key=lambda s: (-(s.cost_usd or 0.0), -s.nodes, s.node_sku or "")))


def observed_share(advice: Advice) -> float | None:
    """Share of the GPU time of the workloads that was observed; None: there is none."""
    hours = sum(w.gpu_hours for w in advice.workloads)
    # Hours of a workload are observed ones: what it held is as much more as its coverage lacks.
    held = sum(w.gpu_hours / w.coverage.fraction for w in advice.workloads if w.coverage.fraction > 0)
    return min(hours / held, 1.0) if held > 0 else 0.0 if advice.workloads else None


def blind_spots(advice: Advice) -> tuple[MissingMetric, ...]:
    """What the workloads' telemetry lacks, what concerns most of them first."""
    counts = Counter(missing for w in advice.workloads for missing in w.coverage.missing.items())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(MissingMetric(what, why, count) for (what, why), count in ordered)
