"""Another GPU for the same work: every node the same provider sells in the same region, gated, predicted, priced.

Services keep up with demand, so their count follows the prediction; jobs keep their count and run longer or shorter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ....rules.catalog.types import GpuSku, NodeSku, Price
from ...core.advice_types import COUNTED_RISKS, Configuration, Recommendation, Rejected, Yardstick
from ...core.coded_text import CodedText, all_of, coded
from ...core.formatting import usd
from ...core.ids import stable_id
from ..base.constraints import NODES_SHARED, gates
from ..base.prediction import Array, Link, Prediction, Refusal, percentiles
from ..base.pricing import realisation
from ..base.workload_groups import HOURS_PER_MONTH
from ..context.evidence import WORK, Claim
from ..context.finding_context import called
from ..context.move_context import Baseline, Option, Scene, gpus_needed, nodes_for, saving_sentence

PRICE_UNKNOWN = coded("price-of-its-node-unknown", "the price of its node is not known")
# Demand at which a break-even is looked for, as shares of today's peak.
DEMANDS = tuple(round(0.05 * i, 2) for i in range(1, 61))

# What no price of a node tells of a move to another provider.
ELSEWHERE = "data, egress, terms or capacity"


@dataclass(frozen=True)
class Candidate:
    """One node that nothing forbids, with its predicted time, the GPUs and nodes it takes, and its saving."""

    node: NodeSku
    price: Price
    prediction: Prediction
    gpus: int
    nodes: int
    draws: Array

    @cached_property
    def saving(self) -> float:
        return float(np.median(self.draws))

    @property
    def safe(self) -> bool:
        """Whether it saves at a risk that is recommended."""
        return self.saving > 0 and self.prediction.risk in COUNTED_RISKS


def other_gpu(
    scene: Scene, base: Baseline, findings: tuple[str, ...], skip: frozenset[str]
) -> tuple[Option | None, tuple[Rejected, ...]]:
    """The best other node of the same provider and region, and why every other was rejected.

    `skip`: node SKUs that another way out covers. The option is None where no candidate could be predicted and priced;
    where the best one saves nothing, it stands with what it would cost and is blocked.
    """
    node = base.group.nodes[0]
    source = scene.catalog.gpu(base.group.lead.gpu_sku) if base.group.lead.gpu_sku else None
    if source is None:
        return None, ()
    if not node.provider:
        return None, (Rejected("any other GPU", coded("provider-unknown", "the provider of its nodes is not known")),)
    if base.price is None or base.mixed:
        why = PRICE_UNKNOWN if base.price is None else coded("nodes-mixed", "its nodes are of several kinds")
        return None, (Rejected("any other GPU", why),)
    sold = [
        (n, scene.book.beside(node, n.name))
        for n in scene.book.for_sale(node)
        if n.name not in skip and n.name != base.group.lead.node_sku
    ]
    kept, rejected = candidates(scene, base, source, sold)
    if not kept:
        return None, tuple(rejected.values())
    best = kept[0]
    rejected.pop(best.node.gpu, None)
    seen = {best.node.gpu}
    for candidate in kept[1:]:
        if candidate.node.gpu not in seen:
            seen.add(candidate.node.gpu)
            rejected[candidate.node.gpu] = Rejected(candidate.node.name, _worse(candidate, best))
    return move_option(scene, base, best, findings, tuple(rejected.values())), ()


def candidates(
    scene: Scene, base: Baseline, source: GpuSku, sold: Iterable[tuple[NodeSku, Price | None]]
) -> tuple[list[Candidate], dict[str, Rejected]]:
    """The nodes that nothing forbids, what saves at no great risk first, and by GPU why the others are out of the
    question."""
    predicted: dict[tuple[str, Link], Prediction | Refusal] = {}
    rejected: dict[str, Rejected] = {}
    fewest: dict[str, int] = {}
    kept: list[Candidate] = []
    for target, price in sold:
        candidate = _weigh(scene, base, source, target, price, predicted)
        if isinstance(candidate, tuple):
            # One line a GPU: the node of it that least speaks against.
            if target.gpu not in fewest or len(candidate) < fewest[target.gpu]:
                fewest[target.gpu] = len(candidate)
                rejected[target.gpu] = Rejected(target.name, all_of(candidate))
        else:
            kept.append(candidate)
    kept.sort(key=lambda c: (not c.safe, -c.saving, c.node.name))
    return kept, rejected


def _weigh(  # noqa: PLR0917
    scene: Scene,
    base: Baseline,
    source: GpuSku,
    target: NodeSku,
    price: Price | None,
    predicted: dict[tuple[str, Link], Prediction | Refusal],
) -> Candidate | tuple[CodedText, ...]:
    """The candidate, or every reason against it.

    `predicted`: what is known already of a GPU behind a link, for nodes that differ in neither.
    """
    gpu = scene.catalog.gpu(target.gpu)
    if gpu is None:
        return (no_figures(target.gpu),)
    closed = gates(base.group, source, base.sku, gpu, target)
    if closed:
        return closed
    if price is None:
        return (coded("no-price-in-region", "no price is known in this region"),)
    link = link_of(target)
    prediction = predicted.get((gpu.name, link))
    if prediction is None:
        prediction = scene.predicted(source, gpu, base.group, (link_of(base.sku), link))
        predicted[gpu.name, link] = prediction
    if isinstance(prediction, Refusal):
        return (prediction.reason,)
    ratio = prediction.draw(scene.draws("move", base.group.series_id, target.name), len(base.demand_draws))
    assert base.price is not None
    if base.group.phase == "training":
        gpus = base.gpus
        nodes = int(nodes_for(gpus, target.gpu_count))
        here = base.nodes * base.price.usd_per_hour
        draws = (here - nodes * price.usd_per_hour * ratio) * job_hours(scene, base)
    else:
        if base.demand is None:
            return (coded("demand-not-measured", "the demand was not measured"),)
        gpus = int(gpus_needed(base, np.array([base.demand * prediction.median]), scene.headroom)[0])
        nodes = int(nodes_for(gpus, target.gpu_count))
        drawn = nodes_for(gpus_needed(base, base.demand_draws * ratio, scene.headroom), target.gpu_count)
        draws = (base.right_nodes_draws * base.price.usd_per_hour - drawn * price.usd_per_hour) * HOURS_PER_MONTH
    return Candidate(target, price, prediction, gpus, nodes, draws)


def job_hours(scene: Scene, base: Baseline) -> float:
    """Hours a month in which a recurring job holds its nodes, from its share of the window."""
    held = base.group.gpu_hours / max(base.gpus, 1)
    return HOURS_PER_MONTH * min(held / scene.window_hours, 1.0) if scene.window_hours > 0 else 0.0


def no_figures(gpu: str) -> CodedText:
    return coded("gpu-not-in-catalog", "the catalog has no figures for {gpu}", gpu=gpu)


def paid_on_top(base: Baseline) -> CodedText:
    basis = base.price.basis if base.price is not None else "unknown"
    return coded("paid-on-top", "the present nodes are {basis}: others would be paid on top", basis=basis)


def link_of(sku: NodeSku | None) -> Link:
    """What each GPU of a node has of its fabric."""
    if sku is None or not sku.fabric.bytes_per_second:
        return Link(None)
    return Link(sku.fabric.bytes_per_second / max(sku.gpu_count, 1))


def _worse(candidate: Candidate, best: Candidate) -> CodedText:
    told = f"x{candidate.prediction.median:.2f} the time, {candidate.gpus} GPUs needed"
    fields = {
        "time_ratio": candidate.prediction.median,
        "gpus": candidate.gpus,
        "saving_usd_per_month": candidate.saving,
    }
    if candidate.saving > best.saving:
        more = f"would save {usd(candidate.saving)} a month"
        risk = f"at {candidate.prediction.risk} risk of being slower by more than a tenth"
        return CodedText("riskier", f"{told}, {more}, {risk}", {**fields, "risk": candidate.prediction.risk})
    if candidate.saving <= 0:
        dearer = f"{usd(-candidate.saving)} a month dearer than the right-sized present"
        return CodedText("dearer", f"{told}, {dearer}", fields)
    return CodedText("saves-less", f"{told}, saves less ({usd(candidate.saving)} a month)", fields)


def move_option(
    scene: Scene, base: Baseline, best: Candidate, findings: tuple[str, ...], rejected: tuple[Rejected, ...]
) -> Option:
    """The recommendation to move to a candidate; blocked where nothing is saved by it."""
    group = base.group
    realised, date = realisation(base.price, base.right_nodes if base.whole else 0, scene.at)
    blocked: list[CodedText] = []
    if not base.whole:
        blocked.append(NODES_SHARED)
    elif realised == "capacity-freed":
        blocked.append(paid_on_top(base))
    claims = not blocked
    saving = percentiles(best.draws) if claims else None
    if saving is not None and saving.p50 <= 0:
        blocked.append(coded("nothing-saved", "nothing saves: it costs as much or more than the right-sized present"))
    ratio = best.prediction.median
    speed = "the same time" if abs(ratio - 1) < 0.005 else f"{ratio:.2f} of the time"
    text = (
        f"{called(group)} on {best.gpus} {best.node.gpu} ({best.nodes} x {best.node.name}): a step takes {speed} "
        f"({best.prediction.basis}), credited beyond the present SKU at {base.right_gpus} GPUs."
    )
    if saving is not None:
        text += f" {saving_sentence(saving, [base.price, best.price], realised, date)}"
    if best.prediction.risk not in COUNTED_RISKS:
        text += " An experiment, not a recommendation: it may well be slower by more than a tenth."
    return Option(
        Recommendation(
            id=stable_id("r", group.identity, "move-sku", group.lead.node_sku, best.node.name),
            findings=findings,
            workload=group.lead.id,
            action="move-sku",
            source=base.configuration,
            target=Configuration(best.node.gpu, best.node.name, best.gpus),
            time_ratio=best.prediction.interval,
            saving_usd_per_month=saving,
            freed_gpu_hours_per_month=0.0,
            realisation=realised if claims else "capacity-freed",
            risk=best.prediction.risk,
            blocked_by=tuple(blocked),
            rejected=rejected,
            would_change_if=(
                coded("work-changes", "batch size, precision or model changes: a figure of one never predicts another"),
                coded(
                    "host-is-the-limit",
                    "the host is the limit on the faster GPU, which counters of the slower one do not show",
                ),
            ),
            prices=tuple(p.id for p in (base.price, best.price) if p is not None) if saving is not None else (),
            text=text,
            break_even=break_even(scene, base, best),
            available_from=date if claims else None,
            yardstick=Yardstick(usd_per_month=_paid(scene, base) if claims else None, site_factor=scene.site.factor),
        ),
        best.draws if claims else None,
        exclusive=f"place:{group.series_id}",
        claim=_claim(base),
    )


def _claim(base: Baseline) -> Claim:
    """What a move to other nodes rests on. Every use that may rule a node out, or prefer another: where one is missing,
    which of them fits best is not known, and none is claimed to."""
    links = {"pcie"} | ({"nvlink"} if base.group.gpus_per_replica > 1 and base.has_nvlink else set())
    claim = base.claim(whole=True, fabric=base.has_fabric, measures=WORK | links)
    return replace(claim, host=base.sku is not None and bool(base.sku.vcpus))


def _paid(scene: Scene, base: Baseline) -> float | None:
    """What a month of the present costs that a move is credited against, US dollars; None: no price is known."""
    if base.group.phase == "training":
        return base.month_usd(base.nodes, job_hours(scene, base))
    return base.month_usd(base.right_nodes)


def no_other_gpu(base: Baseline, findings: tuple[str, ...], rejected: tuple[Rejected, ...]) -> Option:
    """The way out that is none: every other GPU was looked at, and why it does not fit."""
    group, node = base.group, base.group.nodes[0]
    where = f"{node.provider} in {node.region or 'an unknown region'}" if node.provider else "an unknown provider"
    why = coded("no-other-gpu", "none of the other GPUs at {where} fits or can be predicted and priced", where=where)
    return Option(
        Recommendation(
            id=stable_id("r", group.identity, "move-sku", group.lead.node_sku, "another-gpu"),
            findings=findings,
            workload=group.lead.id,
            action="move-sku",
            source=base.configuration,
            target=Configuration(None, None, base.right_gpus),
            time_ratio=None,
            saving_usd_per_month=None,
            freed_gpu_hours_per_month=0.0,
            realisation="capacity-freed",
            risk="high",
            blocked_by=(why,),
            rejected=rejected,
            would_change_if=(
                coded(
                    "needs-become-known",
                    "the memory and the precision that the work needs become known, or a missing figure does",
                ),
            ),
            prices=(),
            text=f"Another GPU is not advised: {why}.",
        ),
        None,
        exclusive=f"place:{group.series_id}",
    )


def break_even(scene: Scene, base: Baseline, candidate: Candidate) -> str | None:
    """At which demand (times today's peak) the candidate stops saving, or would begin to. None: at any, or none."""
    if base.group.phase == "training" or base.demand is None or base.price is None:
        return None
    here = _cost(base, np.array(DEMANDS), base.demand, scene.headroom, base.gpus_per_node) * base.price.usd_per_hour
    there = (
        _cost(
            base, np.array(DEMANDS), base.demand * candidate.prediction.median, scene.headroom, candidate.node.gpu_count
        )
        * candidate.price.usd_per_hour
    )
    saves = here - there > 1e-9
    today = DEMANDS.index(1.0)
    if saves[today]:
        above = next((d for d, s in zip(DEMANDS[today:], saves[today:], strict=True) if not s), None)
        below = next((d for d, s in zip(DEMANDS[today::-1], saves[today::-1], strict=True) if not s), None)
        # From where it stops saving.
        told = [f"above {above:.2f} x" if above else "", f"at or below {below:.2f} x" if below else ""]
        limits = " and ".join(t for t in told if t)
        return f"stops saving {limits} today's peak demand" if limits else None
    lower = [d for d, s in zip(DEMANDS[:today], saves[:today], strict=True) if s]
    higher = [d for d, s in zip(DEMANDS[today:], saves[today:], strict=True) if s]
    if lower:
        return f"would save at {max(lower):.2f} x today's peak demand"
    if higher:
        return f"would save at {min(higher):.2f} x today's peak demand"
    return f"saves at no demand up to {DEMANDS[-1]:g} x today's peak"


def _cost(base: Baseline, demands: Array, peak: float, headroom: float, per_node: int) -> Array:
    nodes = nodes_for(gpus_needed(base, demands * peak, headroom), per_node)
    assert math.isfinite(float(nodes.sum()))
    return nodes
