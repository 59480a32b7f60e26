"""The swap: serving on an idle fabric trades nodes with training that needs one. Nothing is bought."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ....rules.policy.labels import TRAINING_KINDS
from ...classify.types import NodeFacts
from ...core.advice_types import Configuration, EvidenceClaim, Recommendation, SavingsBaseline
from ...core.coded_text import CodedText, coded
from ..evidence import WORK
from ..finding import Found, node_words, series_label
from ..fleet import Fleet
from ..groups import Group
from ..move import Fields, Move, recommend
from ..prediction import SIGMA_KNOWN, Prediction

STARVES = 0.2  # share of its time that training waits for the network (communication takes 0.15 to 0.30 of large jobs)
_WAITS = ("network", "pcie")


class SwapPlacement(Move):
    actions = ("swap-placement",)
    subject = "A swap of nodes"
    of_another = True  # the time is the training's

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        """For each series of serving on a silent fabric: its best swap, or why there is none. A training changes places
        once: the largest service comes first, and takes the partner that gains most."""
        starved: dict[str, str] = {}
        for waste in fleet.waste:
            if waste.group is not None and "swap-placement" in waste.answered_by and waste.waste != "fabric":
                starved[waste.group.series_id] = waste.finding.id
        trainings = [g for g in fleet.groups if g.kind in TRAINING_KINDS and g.recurs and g.nodes]
        taken: set[str] = set()
        for series in fleet.series:
            for waste in series.asking("swap-placement"):
                if waste.waste == "fabric":
                    partner, r = _best(fleet, series.group, waste, trainings, taken)
                    taken.add(partner)
                    yield replace(r, findings=(*r.findings, starved[partner])) if partner in starved else r

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        return f"Swap the nodes of {of} and " + (f"the training {fields['training']}" if fields else "a training")


def _best(
    fleet: Fleet, group: Group, waste: Found, trainings: Sequence[Group], taken: set[str]
) -> tuple[str, Recommendation]:
    """The partner of the swap that frees most, and the swap; of no partner ("") the reason why there is none."""
    reasons: list[tuple[str, CodedText]] = []
    open_: list[tuple[str, Recommendation]] = []
    for training in trainings:
        reason = _unfit(fleet, group, training)
        if reason is None and training.series_id in taken:
            reason = coded("swaps-already", "it is part of another swap")
        if reason is None:
            open_.append((training.series_id, _swap(fleet, group, waste, training)))
        else:
            reasons.append((training.lead.name, reason))
    if open_:
        return max(open_, key=lambda swap: (swap[1].freed_gpu_hours_per_month, swap[0]))
    codes = " ".join(reason.code for _, reason in reasons[:3])
    more = "".join(f". Not {name}: {reason.text}" for name, reason in reasons[:3])
    text = f"no training workload in this fleet waits for a missing fabric{more}"
    why = CodedText("no-swap-partner", text, {"because": codes or None})
    held = Configuration(group.lead.gpu_sku, group.lead.node_sku, group.gpu_count)
    comes = "multi-node training without a fabric will run at the same provider and region"
    return "", recommend(
        "swap-placement", group.series_id, group.series_id, "nobody",
        findings=(waste.finding.id,), workload=group.lead.id, source=held, target=held,
        text=f"No swap possible: {why}.", risk="very-low", blocked_by=(why,),
        would_change_if=(coded("training-comes", comes),), claims=(f"place:{group.series_id}",),
    )  # fmt: skip


def _unfit(fleet: Fleet, serving: Group, training: Group) -> CodedText | None:
    here, there = serving.nodes[0], training.nodes[0]
    if _fabric_rate(fleet, there) is not None and not fleet.without_rdma(there):
        return coded("has-a-fabric", "its nodes have a fabric")
    if (waits := _share_waited(training)) < STARVES:
        return coded("hardly-waits", "it waits for the network or PCIe in only {share:.0%} of its time", share=waits)
    if (here.provider, here.region) != (there.provider, there.region):
        return coded("runs-elsewhere", "it runs at a different provider or in a different region")
    if here.gpu_sku != there.gpu_sku:
        gpu, wanted = there.gpu_sku or "unknown GPUs", here.gpu_sku or "the same GPUs"
        return coded("other-gpus", "it runs on {gpu}, not on {wanted}", gpu=gpu, wanted=wanted)
    if {n.gpu_count for n in serving.nodes} != {n.gpu_count for n in training.nodes}:
        return coded("other-gpu-count", "its nodes have a different number of GPUs")
    if len(training.nodes) > len(serving.nodes):
        text = "it needs {nodes} nodes, but the service has {held}"
        return coded("more-nodes", text, nodes=len(training.nodes), held=len(serving.nodes))
    # Other training on its nodes only gains by a fabric.
    names = {n.node for n in training.nodes}
    others = (w for g in fleet.groups if g.kind not in TRAINING_KINDS for w in g.workloads)
    if any(n.node not in serving.alone for n in serving.nodes) or any(names.intersection(w.nodes) for w in others):
        return coded("swapped-nodes-shared", "other work runs on the nodes to swap")
    return None


def _share_waited(training: Group) -> float:
    return sum(training.bottleneck_shares.get(label, 0.0) for label in _WAITS)


def _fabric_rate(fleet: Fleet, node: NodeFacts) -> float | None:
    """Bytes per second one way of the whole node: what its ports said, else what the catalog says."""
    sku, seen = fleet.book.sku_of(node), node.fabric.line_rate_bytes_per_second if node.fabric is not None else None
    return seen or (sku.fabric.bytes_per_second if sku else None)


def _swap(fleet: Fleet, serving: Group, waste: Found, training: Group) -> Recommendation:
    now, then = _fabric_rate(fleet, training.nodes[0]), _fabric_rate(fleet, serving.nodes[0])
    busy = training.use.u_i[np.isfinite(training.use.u_i)]
    mean, prediction = float(busy.mean()) if busy.size else 0.0, None
    if now and then and mean >= 0.01:
        # The mean use of the line is the least share of the time that the network takes; only that shrinks.
        ratio = 1.0 - min(mean, _share_waited(training)) * max(1.0 - now / then, 0.0)
        prediction = Prediction(ratio, SIGMA_KNOWN, "network time at the fabric's rate")
    names, count = {n.node for n in training.nodes}, len(training.nodes)
    gpus = count * max(serving.nodes[0].gpu_count, 1)
    # The training on these nodes that waited for the network, this and other, each run with its GPU-hours.
    starving = [
        (group, w.gpu_hours)
        for group in fleet.groups
        for w in group.workloads
        if group.kind in TRAINING_KINDS and names.issuperset(w.nodes) and w.bottleneck.label in _WAITS
    ]
    freed, text = 0.0, "the speed-up of the training is unknown because its network was not measured"
    if prediction is not None:
        month = sum(fleet.monthly(group, gpu_hours) for group, gpu_hours in starving)
        freed, ratio = month * max(1.0 - prediction.median, 0.0), prediction.interval
        others = sum(group is not training for group, _ in starving)
        more = f" (assumed for {others} more training workloads there)" if others else ""
        text = f"the training takes {ratio.p50:.2f}x the time ({ratio.p10:.2f} to {ratio.p90:.2f}) where it waited"
        text += f" for the network{more}"
    name = series_label(serving)
    return recommend(
        "swap-placement", serving.series_id, serving.series_id, training.series_id,
        findings=(waste.finding.id,), workload=serving.lead.id,
        source=Configuration(serving.lead.gpu_sku, serving.lead.node_sku, gpus),
        target=Configuration(training.lead.gpu_sku, training.lead.node_sku, gpus),
        changes=(coded("partner", "the training {training} moves to its nodes", training=training.lead.name),),
        text=(
            f"Swap the nodes of {name[:1].lower()}{name[1:]} and training {training.lead.name}. The training gets "
            f"{node_words(waste.nodes[:count])} with the fabric; the service gets {node_words(training.nodes)}. The "
            f"service keeps its speed (1.00x the time); {text}. The swap costs nothing and saves GPU-hours, not cash."
        ),
        time_ratio=prediction and prediction.interval, freed_gpu_hours_per_month=freed,
        observed_hours=min((fleet.hours_of(group) for group, _ in starving), default=None),
        risk=prediction.risk if prediction else "medium",
        would_change_if=(
            coded("training-ends", "the training ends and does not run again"),
            coded("places-apart", "the two may not share a tenant, a network zone or a data set's location"),
        ),
        yardstick=SavingsBaseline(partner=training.lead.name), claims=(f"place:{serving.series_id}",),
        needs=EvidenceClaim(
            tuple(dict.fromkeys(n.node for n in (*serving.nodes, *training.nodes))), WORK, whole=True,
            fabric=frozenset(n.node for n in serving.nodes),
        ),
    )  # fmt: skip
