"""Fewer GPUs of the same kind: as many as the demand needs, in whole replicas, whole nodes for cash."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ...core.advice_types import Configuration, Recommendation
from ...core.coded_text import CodedText, coded
from ...core.formatting import gpus as gpus_words
from ...core.timestamps import minute
from ...core.worth import HOURS_PER_MONTH
from ..constraints import WHICH_NODES, fewer_gpus_gates
from ..finding import series_label
from ..fleet import Baseline, Series, load_words
from ..move import SAME_SPEED, WEEK_HOURS, Fields, Move, Saving, recommend_for
from ..prediction import risk_of
from ..progress import MoveState, Observation, PredictionSnapshot, hours, stands_on


class ReduceGpus(Move):
    actions = ("reduce-gpus",)
    subject = "Fewer GPUs for the same work"
    unasked_hours = WEEK_HOURS
    frees = True

    def of(self, series: Series) -> Iterator[Recommendation]:
        base, group = series.base, series.group
        sku, freed = group.lead.gpu_sku or "GPUs", base.gpus - base.right_gpus
        blocked = [*fewer_gpus_gates(group, base.right_gpus), *([WHICH_NODES] if base.mixed else [])]
        if freed <= 0 and not blocked:
            blocked.append(_nothing_to_take(base))
        saving, limit, risk = None, None, "high"
        if base.demand is not None and freed > 0:
            # How likely the demand needs a tenth more than the GPUs that are left carry at the headroom.
            risk = risk_of(float(np.mean(base.gpus_needed(base.demand_draws / 1.1) > base.right_gpus)))
        if blocked:
            text = f"Fewer {sku} for the same work are not recommended: {blocked[0]}."
        else:
            whole = base.nodes - base.right_nodes if base.whole else 0
            draws = base.nodes - base.right_nodes_draws
            saving = Saving.of_nodes(base.price, whole, series.fleet.at, draws, base.nodes)
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
        r = recommend_for(
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
        if r.findings or not r.blocked_by:
            yield r

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        if r.target.gpu_count >= r.source.gpu_count:
            return f"Reduce the {gpus_words(r.source.gpu_count, r.source.gpu_sku)} of {of}"
        return f"Reduce {of} from {r.source.gpu_count} to {gpus_words(r.target.gpu_count, r.source.gpu_sku)}"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        now, runs = seen.now(snapshot.series_id), seen.series(snapshot.series_id)
        if not now or not all(stands_on(w, snapshot.source) for w in now):
            return None  # on other hardware its count says nothing
        least, most = snapshot.target.gpu_count, snapshot.source.gpu_count
        count, since = len({gpu for w in now for gpu in w.gpus}), seen.start
        if least < count < most:
            return None
        fewer, moments = count <= least, sorted({at for w in runs for at in (w.start, w.end)}, reverse=True)
        for end, start in pairwise(moments):
            held = len({gpu for w in runs if w.start <= start and end <= w.end for gpu in w.gpus})
            if held > least if fewer else 0 < held < most:
                since = max(since, end)
                break
        text = f"It holds {count} GPUs since {minute(since)} (before: {most})."
        return MoveState("target" if fewer else "source", since, hours(runs, since), text)


def _nothing_to_take(base: Baseline) -> CodedText:
    if base.demand is None or base.demand * base.gpus > base.headroom * (base.gpus - 1):
        code, why = "load-too-high", f" (limit for fewer GPUs: {load_words(base.headroom)})"
        more = {"headroom": base.headroom}
    elif base.unit > 1 and base.floor < base.gpus:
        code, why = "replicas-not-split", f", and replicas of {base.unit} GPUs are not split"
        more = {"replica_gpus": base.unit}
    else:
        code, why, more = (
            "least-gpus-held",
            f", but the service needs at least {base.floor}",
            {"least_gpus": base.floor},
        )
    load = f"the 95th percentile of demand is {load_words(base.demand)} of what {base.gpus} GPUs sustain"
    return CodedText(code, f"{load}{why}", {"load": base.demand, "gpus": base.gpus, **more})
