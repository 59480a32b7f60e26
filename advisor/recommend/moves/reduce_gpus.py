"""Fewer GPUs of the same kind: as many as the demand needs, in whole replicas, whole nodes for cash."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ...core.advice_types import Configuration, Recommendation
from ...core.coded_text import CodedText, coded
from ...core.formatting import gpus as gpus_words
from ...core.timestamps import minute
from ...core.verdict_types import WorkloadVerdict
from ..constraints import WHICH_NODES, fewer_gpus_gates
from ..finding import series_label
from ..fleet import Baseline, Fleet, Series, load_words
from ..groups import HOURS_PER_MONTH
from ..move import SAME_SPEED, WEEK_HOURS, Move, Saving, TitleSubject, recommend_for
from ..prediction import risk_of
from ..progress import MoveState, Observation, PredictionSnapshot, hours, stands_on


class ReduceGpus(Move):
    actions = ("reduce-gpus",)
    subject = "Fewer GPUs for the same work"
    brief = "reduce GPUs"
    unasked_hours = WEEK_HOURS
    frees = True

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        for series in fleet.series:
            r = _recommendation(series)
            if r.findings or not r.blocked_by:
                yield r

    def title(self, r: Recommendation, of: TitleSubject) -> str:
        if r.target.gpu_count >= r.source.gpu_count:
            return f"Reduce the {gpus_words(r.source.gpu_count, r.source.gpu_sku)} of {of.name}"
        return f"Reduce {of.name} from {r.source.gpu_count} to {gpus_words(r.target.gpu_count, r.source.gpu_sku)}"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        now, runs = seen.now(snapshot.series_id), seen.series(snapshot.series_id)
        if not now or not all(stands_on(snapshot.source)(w) for w in now):
            return None  # on other hardware its count says nothing
        least, most = snapshot.target.gpu_count, snapshot.source.gpu_count
        count = len({gpu for w in now for gpu in w.gpus})
        if least < count < most:
            return MoveState("between", seen.end, 0.0, f"It holds {count} GPUs.")
        fewer = count <= least
        since = seen.start
        for end, held in _counts(runs):
            if held > least if fewer else 0 < held < most:
                since = max(since, end)
        told = f"It holds {count} GPUs since {minute(since)} (before: {most})."
        return MoveState("target" if fewer else "source", since, hours(runs, since), told)


def _counts(runs: Sequence[WorkloadVerdict]) -> Iterator[tuple[float, int]]:
    """How many GPUs were held up to each moment (Unix seconds) since the one before."""
    changes = sorted([(w.start, 1, w.gpus) for w in runs] + [(w.end, -1, w.gpus) for w in runs], key=lambda c: c[:2])
    held: Counter[str] = Counter()
    for n, (at, by, gpus) in enumerate(changes):
        if n and at > changes[n - 1][0]:
            yield at, sum(1 for count in held.values() if count > 0)
        for gpu in gpus:
            held[gpu] += by


def _recommendation(series: Series) -> Recommendation:
    base, group = series.base, series.group
    sku, freed = group.lead.gpu_sku or "GPUs", base.gpus - base.right_gpus
    blocked = list(fewer_gpus_gates(group, base.right_gpus))
    if base.mixed:
        blocked.append(WHICH_NODES)
    if freed <= 0 and not blocked:
        blocked.append(_nothing_to_take(base))
    saving, limit, risk = None, None, "high"
    if base.demand is not None and freed > 0:
        # How likely the demand needs a tenth more than the GPUs that are left carry at the headroom. Where none can be
        # spared, whoever took one would run that risk.
        risk = risk_of(float(np.mean(base.gpus_needed(base.demand_draws / 1.1) > base.right_gpus)))
    if blocked:
        text = f"Fewer {sku} for the same work are not recommended: {blocked[0]}."
    else:
        whole = base.nodes - base.right_nodes if base.whole else 0
        saving = Saving.of_nodes(base.price, whole, series.fleet.at, base.nodes - base.right_nodes_draws, base.nodes)
        then = f"This frees {freed} GPUs for other work. No cash savings: no whole node becomes free."
        load = None if base.demand is None else base.demand * base.gpus / base.right_gpus
        text = (
            f"{series_label(group)} needs {base.right_gpus} of its {base.gpus} {sku}. At the 95th percentile of "
            f"demand, load rises from {load_words(base.demand)} to {load_words(load)} of what they sustain. "
            f"{saving.sentence if saving else then}"
        )
        if base.demand:
            # The growth of peak demand at which as many GPUs are needed again as are held now.
            growth = base.headroom * (base.gpus - base.unit) / (base.gpus * base.demand)
            limit = f"stops saving above {growth:.2f}x the current peak demand" if math.isfinite(growth) else None
    return recommend_for(
        series, "reduce-gpus", place="count",
        target=Configuration(group.lead.gpu_sku, group.lead.node_sku, base.right_gpus),
        text=text, saving=saving, risk=risk, blocked_by=blocked,
        time_ratio=None if blocked else SAME_SPEED.interval, break_even=limit,
        freed_gpu_hours_per_month=0.0 if blocked else freed * HOURS_PER_MONTH,
        would_change_if=(
            coded("peaks-hidden", "demand peaks last minutes and are invisible in hourly means"),
            coded("replicas-apart", "replicas are separated for availability or tenants"),
        ),
        needs=base.claim(whole=saving is not None, fabric=base.has_fabric),
    )  # fmt: skip


def _nothing_to_take(base: Baseline) -> CodedText:
    load = f"the 95th percentile of demand is {load_words(base.demand)} of what {base.gpus} GPUs"
    fields = {"load": base.demand, "gpus": base.gpus}
    if base.demand is None or base.demand * base.gpus > base.headroom * (base.gpus - 1):
        told = f"{load} sustain (limit for fewer GPUs: {load_words(base.headroom)})"
        return CodedText("load-too-high", told, {**fields, "headroom": base.headroom})
    if base.unit > 1 and base.floor < base.gpus:
        told = f"{load} sustain, and replicas of {base.unit} GPUs are not split"
        return CodedText("replicas-not-split", told, {**fields, "replica_gpus": base.unit})
    told = f"{load} sustain, but the service needs at least {base.floor}"
    return CodedText("least-gpus-held", told, {**fields, "least_gpus": base.floor})
