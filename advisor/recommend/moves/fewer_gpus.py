"""Fewer GPUs for a demand that fewer carry: a lower count, or a slice of one."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ....rules.catalog.types import GpuSku
from ...core.advice_types import COUNTED_RISKS, Configuration, Recommendation, Rejected, SavingsBaseline
from ...core.coded_text import CodedText, all_of, coded
from ...core.formatting import gpus as gpus_words
from ...core.timestamps import minute
from ...core.verdict_types import WorkloadVerdict
from ...core.worth import HOURS_PER_MONTH
from ..constraints import GPUS_SHARED, WHICH_NODES, fewer_gpus_gates
from ..fleet import Baseline, Series, load_words, nodes_for, series_label
from ..groups import Group
from ..move import SAME_SPEED, WEEK_HOURS, Fields, Move, Saving, recommend_for
from ..predict.mig_model import SliceFit, weigh_slices
from ..prediction import risk_of
from ..progress import MoveState, Observation, Place, PredictionSnapshot, by_runs, hours, stands_on


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
        code, name, limit = "load-too-high", "headroom", base.headroom
        why = f" (limit for fewer GPUs: {load_words(limit)})"
    elif base.unit > 1 and base.floor < base.gpus:
        code, name, limit = "replicas-not-split", "replica_gpus", base.unit
        why = f", and replicas of {limit} GPUs are not split"
    else:
        code, name, limit = "least-gpus-held", "least_gpus", base.floor
        why = f", but the service needs at least {limit}"
    load = f"the 95th percentile of demand is {load_words(base.demand)} of what {base.gpus} GPUs sustain"
    return CodedText(code, f"{load}{why}", {"load": base.demand, "gpus": base.gpus, name: limit})


class MigSlice(Move):
    actions = ("mig-slice",)
    subject = "MIG instances instead of whole GPUs"
    frees = True

    def of(self, series: Series) -> Iterator[Recommendation]:
        """The smallest instance without a gate or much risk, else the one that slows it least; none for larger
        replicas."""
        if not (fits := fitting(series.fleet.gpu_of(series.group), series.group, series.base.headroom)):
            return
        base, group = series.base, series.group
        open_ = [(f, f.prediction) for f in fits if not f.blocked_by and f.prediction is not None and per_gpu(f) > 1]
        sure = [(f, time) for f, time in open_ if time.risk in COUNTED_RISKS]
        fit, time = next(iter(sure or reversed(open_)), (None, None))
        # The bare GPUs that hold the instances of all replicas, packed: what is left of the last one is free as well.
        gpus = base.gpus if fit is None else math.ceil(base.gpus / per_gpu(fit))
        blocked = [WHICH_NODES] if base.mixed else []
        if fit is None:
            # Why the largest instance that is less than the GPU does not do.
            last = next((f for f in reversed(fits) if per_gpu(f) > 1), fits[-1])
            why = all_of(last.blocked_by or (coded("whole-gpu", "it is the whole GPU"),))
            fields = {"instance": last.name, "because": str(why.fields.get("codes", why.code))}
            blocked.insert(0, CodedText("no-instance-fits", f"no MIG instance fits ({last.name}: {why.text})", fields))
        blocked += [why for why in fewer_gpus_gates(group, gpus) if why.code == GPUS_SHARED.code]
        freed, saving, why = 0.0, None, (*blocked, "")[0]
        text = f"A MIG instance instead of a whole {group.lead.gpu_sku or 'GPU'} is not recommended: {why}."
        if fit is not None and time is not None and not blocked:
            # Credited beyond the same GPU at its right-sized count, as every move is.
            freed = max(base.right_gpus - base.gpus / per_gpu(fit), 0.0)
            left = int(nodes_for(gpus, base.gpus_per_node)) if base.whole else base.nodes
            draws = np.maximum(base.right_nodes_draws - left, 0.0)
            saving = Saving.of_nodes(base.price, base.nodes - left, series.fleet.at, draws, base.right_nodes)
            then = f"This frees {freed:.1f} GPUs for other work. No cash savings: no whole node becomes free."
            whole = "a whole GPU" if base.gpus == 1 else f"each of its {base.gpus} GPUs"
            text = (
                f"{series_label(group)} fits on {fit.name} instead of {whole} ({per_gpu(fit)} instances "
                f"per GPU). A step takes {time.median:.2f}x the time; the instance is "
                f"{fit.load * 100:.0f} % busy at the 95th percentile. {saving.sentence if saving else then}"
            )
        r = recommend_for(
            series, "mig-slice",
            target=Configuration(group.lead.gpu_sku, group.lead.node_sku, gpus),
            text=text, saving=saving, time_ratio=time and time.interval, risk=time.risk if time else "high",
            freed_gpu_hours_per_month=freed * HOURS_PER_MONTH, blocked_by=blocked,
            rejected=tuple(Rejected(f.name, all_of(f.blocked_by)) for f in fits if f.blocked_by),
            would_change_if=(
                coded("instance-outgrown", "its demand or memory exceeds the instance"),
                coded("rest-not-taken", "no other work uses the rest of the GPU"),
            ),
            yardstick=SavingsBaseline(mig_profile=fit and fit.name),
            needs=base.claim(whole=saving is not None, fabric=base.has_fabric),
        )  # fmt: skip
        if r.findings or r.worth_telling:
            yield r

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        held, kept = gpus_words(r.source.gpu_count, r.source.gpu_sku), gpus_words(r.target.gpu_count, r.target.gpu_sku)
        return f"Run {of} on MIG instances of {kept} instead of {held}"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        def where(w: WorkloadVerdict) -> Place:  # NVML's ids of instances begin with MIG-
            return "target" if w.gpus and all(gpu.startswith("MIG-") for gpu in w.gpus) else "source"

        return by_runs(snapshot, seen, where, "MIG instances")


def fitting(sku: GpuSku | None, group: Group, headroom: float) -> tuple[SliceFit, ...]:
    """Every instance of its GPU for one replica, the smallest first. Empty: replicas are not one whole GPU each."""
    if sku is None or group.shared or group.gpus_per_replica != 1:
        return ()
    share = group.mem_needed_max
    needed = None if share is None else share * sku.mem_bytes
    return weigh_slices(sku, group.use, group.phase, needed_bytes=needed, headroom=headroom)


def per_gpu(fit: SliceFit) -> int:
    """How many instances of this profile one GPU holds: seven compute slices, eight memory slices."""
    return min(7 // fit.profile.compute_slices, 8 // fit.profile.memory_slices)
