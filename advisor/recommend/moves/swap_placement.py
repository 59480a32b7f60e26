"""The swap: serving on an idle fabric trades nodes with training that needs one. Nothing is bought."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ....rules.policy.labels import TRAINING_KINDS
from ...classify.types import NodeFacts
from ...core.advice_types import Configuration, Recommendation, SavingsBaseline
from ...core.coded_text import CodedText, coded
from ..evidence import WORK, EvidenceClaim
from ..finding_context import FindingContext, node_words, series_label
from ..fleet_context import FleetContext, recommend
from ..groups import HOURS_PER_MONTH, Group
from ..move_context import DrawnRecommendation, MoveContext
from ..prediction import SIGMA_ACHIEVED_KNOWN, Prediction
from ..recommendation_kind import RecommendationKind, TitleSubject
from .move_sku import KIND as MOVE

STARVES = 0.2  # share of its time that training waits for the network (communication takes 0.15 to 0.30 of large jobs)
_WAITS = ("network", "pcie")


def _build(fleet: FleetContext) -> Iterator[DrawnRecommendation]:
    """For each series of serving on a silent fabric: its best swap, or why there is none.

    A training changes places once: the largest service comes first, and takes the partner that gains most.
    """
    asking = [f for f in fleet.found if f.group is not None and "swap-placement" in f.answered_by]
    starved = {f.group.series_id: f.finding.id for f in asking if f.group is not None and f.waste != "fabric"}
    taken: set[str] = set()
    swaps: dict[str, DrawnRecommendation] = {}
    for found in asking:
        group = found.group
        if group is None or found.waste != "fabric" or not group.recurs:
            continue
        if not group.nodes or group.kind in ("idle", "unknown"):
            continue
        partner, option = _best(fleet, group, found, taken)
        if partner is not None:
            taken.add(partner)
            both = (found.finding.id, *((starved[partner],) if partner in starved else ()))
            option = replace(option, recommendation=replace(option.recommendation, findings=both))
        swaps[group.series_id] = option
    for series in fleet.movable:
        if series.group.series_id in swaps:
            yield swaps[series.group.series_id]


def _best(
    fleet: FleetContext, group: Group, found: FindingContext, taken: set[str]
) -> tuple[str | None, DrawnRecommendation]:
    """The partner of the swap that frees most, and the swap; None with the reason where there is no partner."""
    reasons: list[tuple[str, CodedText]] = []
    open_: list[tuple[float, str, DrawnRecommendation]] = []
    for training in fleet.groups:
        if training.kind not in TRAINING_KINDS or not training.recurs or not training.nodes:
            continue
        reason = _unfit(fleet.scene, group, training, fleet.groups)
        if reason is None and training.series_id in taken:
            reason = coded("swaps-already", "it is part of another swap")
        if reason is not None:
            reasons.append((training.lead.name, reason))
            continue
        option = _option(fleet, group, found, training)
        open_.append((option.recommendation.freed_gpu_hours_per_month, training.series_id, option))
    if open_:
        _, partner, option = max(open_, key=lambda one: (one[0], one[1]))
        return partner, option
    why = "no training workload in this fleet waits for a missing fabric"
    codes = " ".join(reason.code for _, reason in reasons[:3])
    more = "".join(f". Not {name}: {reason.text}" for name, reason in reasons[:3])
    return None, _no_partner(group, found, CodedText("no-swap-partner", f"{why}{more}", {"because": codes or None}))


def _unfit(scene: MoveContext, serving: Group, training: Group, groups: Sequence[Group]) -> CodedText | None:
    here, there = serving.nodes[0], training.nodes[0]
    waits = _waits(training)
    if _fabric_rate(scene, there) is not None and _has_rdma(scene, there):
        return coded("has-a-fabric", "its nodes have a fabric")
    if waits < STARVES:
        return CodedText(
            "hardly-waits",
            f"it waits for the network or PCIe in only {waits * 100:.0f} % of its time",
            {"share": waits},
        )
    if (here.provider, here.region) != (there.provider, there.region):
        return coded("runs-elsewhere", "it runs at a different provider or in a different region")
    if here.gpu_sku != there.gpu_sku:
        return coded(
            "other-gpus", "it runs on {gpu}, not on {wanted}",
            gpu=there.gpu_sku or "unknown GPUs", wanted=here.gpu_sku or "the same GPUs",
        )  # fmt: skip
    if {n.gpu_count for n in serving.nodes} != {n.gpu_count for n in training.nodes}:
        return coded("other-gpu-count", "its nodes have a different number of GPUs")
    if len(training.nodes) > len(serving.nodes):
        return coded(
            "more-nodes", "it needs {nodes} nodes, but the service has {held}",
            nodes=len(training.nodes), held=len(serving.nodes),
        )  # fmt: skip
    if any(n.node not in serving.alone for n in serving.nodes) or _others(training, groups):
        return coded("swapped-nodes-shared", "other work runs on the nodes to swap")
    return None


def _others(training: Group, groups: Sequence[Group]) -> bool:
    """Whether anything but training ran on its nodes: other training only gains by a fabric."""
    names = {n.node for n in training.nodes}
    return any(names.intersection(w.nodes) for g in groups if g.kind not in TRAINING_KINDS for w in g.workloads)


def _waits(training: Group) -> float:
    return sum(training.bottleneck_shares.get(label, 0.0) for label in _WAITS)


def _has_rdma(scene: MoveContext, node: NodeFacts) -> bool:
    sku = scene.catalog.node(node.node_sku) if node.node_sku else None
    if sku is not None and sku.fabric.rdma is not None:
        return sku.fabric.rdma
    return node.fabric is not None and node.fabric.link_layer == "InfiniBand"


def _fabric_rate(scene: MoveContext, node: NodeFacts) -> float | None:
    """Bytes per second one way of the whole node: what its ports said, else what the catalog says."""
    if node.fabric is not None and node.fabric.line_rate_bytes_per_second:
        return node.fabric.line_rate_bytes_per_second
    sku = scene.catalog.node(node.node_sku) if node.node_sku else None
    return sku.fabric.bytes_per_second if sku else None


def _predicted(scene: MoveContext, serving: Group, training: Group) -> Prediction | None:
    now, then = _fabric_rate(scene, training.nodes[0]), _fabric_rate(scene, serving.nodes[0])
    if not now or not then:
        return None
    busy = training.use.u_i[np.isfinite(training.use.u_i)]
    if not busy.size or float(busy.mean()) < 0.01:
        return None
    # The mean use of the line is the least share of the time that the network takes; only that shrinks, by the rates.
    waits = min(float(busy.mean()), _waits(training))
    return Prediction(
        1.0 - waits * max(1.0 - now / then, 0.0), SIGMA_ACHIEVED_KNOWN, "network time at the fabric's rate"
    )


def _starved_hours(training: Group, groups: Sequence[Group]) -> tuple[float, int]:
    """GPU-hours of the window in which training on these nodes waited for the network, and how many other trainings."""
    names = {n.node for n in training.nodes}
    starved = [
        (w.gpu_hours, g is training)
        for g in groups
        if g.kind in TRAINING_KINDS
        for w in g.workloads
        if names.issuperset(w.nodes) and w.bottleneck.label in _WAITS
    ]
    return sum(hours for hours, _ in starved), sum(not own for _, own in starved)


def _option(fleet: FleetContext, serving: Group, found: FindingContext, training: Group) -> DrawnRecommendation:
    prediction = _predicted(fleet.scene, serving, training)
    count = len(training.nodes)
    gpus = count * max(serving.nodes[0].gpu_count, 1)
    starved_hours, others = _starved_hours(training, fleet.groups)
    month = starved_hours / fleet.scene.window_hours * HOURS_PER_MONTH if fleet.scene.window_hours > 0 else 0.0
    freed = month * max(1.0 - prediction.median, 0.0) if prediction else 0.0
    more = f" (assumed for {others} more training workloads there)" if others else ""
    told = (
        f"the training takes {prediction.median:.2f}x the time ({prediction.interval.p10:.2f} to "
        f"{prediction.interval.p90:.2f}) where it waited for the network{more}"
        if prediction
        else "the speed-up of the training is unknown because its network was not measured"
    )
    name = series_label(serving)
    text = (
        f"Swap the nodes of {name[:1].lower()}{name[1:]} and training {training.lead.name}. The training gets "
        f"{node_words(found.nodes[:count])} with the fabric; the service gets {node_words(training.nodes)}. The "
        f"service keeps its speed (1.00x the time); {told}. The swap costs nothing and saves GPU-hours, not cash."
    )
    return recommend(
        "swap-placement", serving.series_id, serving.series_id, training.series_id,
        findings=(found.finding.id,),
        workload=serving.lead.id,
        source=Configuration(serving.lead.gpu_sku, serving.lead.node_sku, gpus),
        target=Configuration(training.lead.gpu_sku, training.lead.node_sku, gpus),
        changes=(coded("partner", "the training {training} moves to its nodes", training=training.lead.name),),
        text=text, time_ratio=prediction.interval if prediction else None, freed_gpu_hours_per_month=freed,
        risk=prediction.risk if prediction else "medium",
        would_change_if=(
            coded("training-ends", "the training ends and does not run again"),
            coded(
                "places-apart",
                "the service and the training may not share a tenant, a network zone or a data set's location",
            ),
        ),
        yardstick=SavingsBaseline(partner=training.lead.name),
        exclusive=f"place:{serving.series_id}",
        claim=EvidenceClaim(
            tuple(dict.fromkeys(n.node for n in (*serving.nodes, *training.nodes))), WORK, whole=True,
            fabric=frozenset(n.node for n in serving.nodes),
        ),
    )  # fmt: skip


def _no_partner(group: Group, found: FindingContext, why: CodedText) -> DrawnRecommendation:
    held = Configuration(group.lead.gpu_sku, group.lead.node_sku, group.gpu_count)
    return recommend(
        "swap-placement", group.series_id, group.series_id, "nobody",
        findings=(found.finding.id,),
        workload=group.lead.id,
        source=held, target=held,
        text=f"No swap possible: {why}.",
        risk="very-low", blocked_by=(why,),
        would_change_if=(
            coded("training-comes", "multi-node training without a fabric will run at the same provider and region"),
        ),
        exclusive=f"place:{group.series_id}",
    )  # fmt: skip


def _title(r: Recommendation, of: TitleSubject) -> str:
    partner = next((one.fields["training"] for one in r.changes if one.code == "partner"), None)
    return f"Swap the nodes of {of.name} and " + (f"the training {partner}" if partner else "a training")


KIND = RecommendationKind(
    actions=("swap-placement",),
    rank=3,
    build=_build,
    title=_title,
    words=lambda _: "swap with training",
    subject="A swap of nodes",
    state=MOVE.state,
    of_another=True,  # the time is the training's
)
