"""A MIG instance instead of a whole GPU, for work that fits on one and leaves most of the GPU unused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ....rules.catalog.types import GpuSku
from ...core.advice_types import COUNTED_RISKS, Configuration, Recommendation, Rejected, SavingsBaseline
from ...core.coded_text import CodedText, all_of, coded
from ...core.formatting import gpus as gpus_words
from ...core.verdict_types import WorkloadVerdict
from ..constraints import GPUS_SHARED, WHICH_NODES, fewer_gpus_gates
from ..finding_context import series_label
from ..fleet_context import FleetContext, GroupContext, Saving
from ..groups import HOURS_PER_MONTH, Group
from ..move_context import DRAWS, DrawnRecommendation, nodes_for
from ..predict.mig_model import SliceFit, weigh_slices
from ..pricing import cash_of
from ..progress import by_runs
from ..recommendation_kind import RecommendationKind, TitleSubject


def _build(fleet: FleetContext) -> Iterator[DrawnRecommendation]:
    """None where a GPU has no instances, or a replica is no single GPU."""
    for series in fleet.movable:
        group, scene = series.group, series.scene
        sku = scene.catalog.gpu(group.lead.gpu_sku) if group.lead.gpu_sku else None
        fits = fitting(sku, group, scene.headroom)
        option = _option(series, fits) if fits else None
        if option is not None and (option.recommendation.findings or option.worth_telling):
            yield option


def fitting(sku: GpuSku | None, group: Group, headroom: float) -> tuple[SliceFit, ...]:
    """Every instance of its GPU for one replica, evaluated, the smallest first. Empty: it cannot be asked.

    Asked only of replicas that hold one whole GPU each.
    """
    if sku is None or group.shared or group.gpus_per_replica != 1:
        return ()
    share = group.mem_needed_max
    needed = None if share is None else share * sku.mem_bytes
    return weigh_slices(sku, group.use, group.phase, needed_bytes=needed, headroom=headroom)


def chosen(fits: Sequence[SliceFit]) -> SliceFit | None:
    """The smallest instance that nothing forbids and that is not too risky; else the one that slows it least."""
    open_ = [f for f in fits if not f.blocked_by and f.prediction is not None and per_gpu(f) > 1]
    sure = [f for f in open_ if f.prediction is not None and f.prediction.risk in COUNTED_RISKS]
    return next(iter(sure or reversed(open_)), None)


def per_gpu(fit: SliceFit) -> int:
    """How many instances of this profile one GPU holds: seven compute slices, eight memory slices."""
    return min(7 // fit.profile.compute_slices, 8 // fit.profile.memory_slices)


def _option(series: GroupContext, fits: Sequence[SliceFit]) -> DrawnRecommendation:
    """The instance to take for each replica of a group."""
    base, group = series.base, series.group
    fit = chosen(fits)
    time = fit.prediction if fit is not None else None
    # The bare GPUs that hold the instances of all replicas, packed: what is left of the last one is free as well.
    gpus = base.gpus if fit is None else math.ceil(base.gpus / per_gpu(fit))
    blocked = [] if fit is not None else [_none_fits(fits)]
    if base.mixed:
        blocked.append(WHICH_NODES)
    blocked += [why for why in fewer_gpus_gates(group, gpus) if why.code == GPUS_SHARED.code]
    # Credited beyond the same GPU at its right-sized count, as every move is.
    freed = 0.0 if fit is None else max(base.right_gpus - base.gpus / per_gpu(fit), 0.0)
    nodes_freed = base.nodes - int(nodes_for(gpus, base.gpus_per_node)) if base.whole and not base.mixed else 0
    cash, saving = cash_of(base.price, nodes_freed, series.scene.at), None
    if cash is not None and not blocked:
        left = base.nodes - nodes_freed
        draws = np.maximum(base.right_nodes_draws - left, 0.0) * cash.price.usd_per_hour * HOURS_PER_MONTH
        saving = Saving.in_cash(cash, np.broadcast_to(draws, (DRAWS,)), base.month_usd(base.right_nodes))
    if blocked or fit is None or time is None:
        text = f"A MIG instance instead of a whole {group.lead.gpu_sku or 'GPU'} is not recommended: {blocked[0]}."
    else:
        then = f"This frees {freed:.1f} GPUs for other work. No cash savings: no whole node becomes free."
        whole = "a whole GPU" if base.gpus == 1 else f"each of its {base.gpus} GPUs"
        text = (
            f"{series_label(group)} fits on {fit.name} instead of {whole} ({per_gpu(fit)} instances "
            f"per GPU). A step takes {time.median:.2f}x the time; the instance is "
            f"{fit.load * 100:.0f} % busy at the 95th percentile. {saving.sentence if saving else then}"
        )
    return series.recommend(
        "mig-slice",
        target=Configuration(group.lead.gpu_sku, group.lead.node_sku, gpus),
        text=text, saving=saving, time_ratio=time.interval if time else None, risk=time.risk if time else "high",
        freed_gpu_hours_per_month=0.0 if blocked else freed * HOURS_PER_MONTH,
        blocked_by=blocked,
        rejected=tuple(Rejected(f.name, all_of(f.blocked_by)) for f in fits if f.blocked_by),
        would_change_if=(
            coded("instance-outgrown", "its demand or memory exceeds the instance"),
            coded("rest-not-taken", "no other work uses the rest of the GPU"),
        ),
        yardstick=SavingsBaseline(mig_profile=fit.name if fit is not None else None),
        claim=base.claim(whole=saving is not None, fabric=base.has_fabric),
    )  # fmt: skip


def _none_fits(fits: Sequence[SliceFit]) -> CodedText:
    """Why the largest instance that is less than the GPU does not do."""
    parts = [f for f in fits if per_gpu(f) > 1]
    last = parts[-1] if parts else fits[-1]
    why = all_of(last.blocked_by or (coded("whole-gpu", "it is the whole GPU"),))
    return CodedText(
        "no-instance-fits",
        f"no MIG instance fits ({last.name}: {why.text})",
        {"instance": last.name, "because": str(why.fields.get("codes", why.code))},
    )


def _sliced(w: WorkloadVerdict) -> bool:
    """NVML's ids of MIG instances begin so."""
    return bool(w.gpus) and all(gpu.startswith("MIG-") for gpu in w.gpus)


def _title(r: Recommendation, of: TitleSubject) -> str:
    held, kept = gpus_words(r.source.gpu_count, r.source.gpu_sku), gpus_words(r.target.gpu_count, r.target.gpu_sku)
    return f"Run {of.name} on MIG instances of {kept} instead of {held}"


KIND = RecommendationKind(
    actions=("mig-slice",),
    rank=5,
    build=_build,
    title=_title,
    words=lambda _: "use MIG instances",
    subject="MIG instances instead of whole GPUs",
    state=lambda snapshot, seen, _: by_runs(snapshot, seen, _sliced, lambda w: not _sliced(w), "MIG instances"),
    frees=True,
)
