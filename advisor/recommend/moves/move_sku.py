"""Other nodes for the same work: the same GPU without the fabric, or another GPU that the provider sells there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ....rules.catalog.fabric_premium import twins_without_fabric
from ....rules.catalog.types import NodeSku, Price
from ...classify.types import NodeFacts
from ...core.advice_types import COUNTED_RISKS, Configuration, Recommendation, Rejected, SavingsBaseline
from ...core.coded_text import CodedText, all_of, coded
from ...core.formatting import gpus, usd
from ...core.worth import FABRIC_REASONS
from ..constraints import NODES_MIXED, NODES_SHARED
from ..evidence import WORK, EvidenceClaim
from ..finding_context import FindingContext, series_label
from ..fleet_context import SAME_SPEED, FleetContext, GroupContext, Saving
from ..groups import HOURS_PER_MONTH
from ..move_context import Baseline, DrawnRecommendation, MoveContext
from ..other_nodes import Candidate, break_even, candidates, job_hours
from ..pricing import cash_of
from ..progress import MoveState, Observation, PredictionSnapshot, by_runs, stands_on
from ..recommendation_kind import RecommendationKind, TitleSubject

_KINDS = {
    "infiniband": "InfiniBand", "ethernet": "Ethernet", "roce": "RoCE", "efa": "EFA", "tcpx": "TCPX",
    "none": "no fabric", "unknown": "an unknown network",
}  # fmt: skip
# Line rates of one kind that differ by less are the same fabric.
_SAME_RATE = 1.1


def differences(source: NodeSku | None, gpu: str | None, target: NodeSku) -> tuple[CodedText, ...]:
    """What changes at `target`, the GPU first, then the fabric. `source` None: the present node's SKU is unknown."""
    same = gpu == target.gpu
    told = [
        coded("same-gpu", "same GPU") if same else coded("other-gpu", "{gpu} instead of {of}", gpu=target.gpu, of=gpu)
    ]
    if source is None:
        return tuple(told)
    here, there = _kind(source), _kind(target)
    if source.fabric.rdma and not target.fabric.rdma:
        told.append(coded("fabric-dropped", "no {fabric}", fabric=here))
    elif dearer_fabric(source, target):
        alike = _rated(source) == _rated(target)
        to = f"{_rated(target)} with RDMA" if alike else f"{_rated(target)} instead of {_rated(source)}"
        told.append(coded("fabric-added", "fabric {to}", to=to))
    elif here != there:
        told.append(coded("fabric-other", "{to} instead of {of}", to=there, of=here))
    return tuple(told)


def dearer_fabric(source: NodeSku | None, target: NodeSku) -> bool:
    """Whether the target's fabric is the dearer kind: RDMA where the present node has none, or a faster one of RDMA."""
    if source is None or not target.fabric.rdma:
        return False
    here, there = source.fabric.bytes_per_second, target.fabric.bytes_per_second
    return not source.fabric.rdma or (here is not None and there is not None and there > here * _SAME_RATE)


def fabric_reason(
    source: NodeSku | None, target: NodeSku, sold: Collection[NodeSku], fits: Collection[NodeSku]
) -> CodedText | None:
    """Why a target with the dearer fabric is right. None: the target's fabric is not dearer.

    `sold`: the nodes with a known price at this provider and region; `fits`: those among them that nothing forbids.
    """
    if not dearer_fabric(source, target):
        return None
    plain = [n for n in sold if n.gpu == target.gpu and not dearer_fabric(source, n)]
    if not plain:
        return coded("fabric-included", "{gpu} is sold only with {fabric} here", gpu=target.gpu, fabric=_kind(target))
    if any(n in fits for n in plain):
        return coded("fabric-cheaper", "{fabric} at no extra cost", fabric=_kind(target))
    return coded("fabric-needed", "the work needs {fabric}", fabric=_kind(target))


def _kind(node: NodeSku) -> str:
    return _KINDS.get(node.fabric.kind.lower(), node.fabric.kind)


def _rated(node: NodeSku) -> str:
    rate = node.fabric.bytes_per_second
    return f"{_kind(node)} {rate * 8 / 1e9:g} Gb/s" if rate is not None else _kind(node)


PRICE_UNKNOWN = coded("price-of-its-node-unknown", "no price for its node")


def _build(fleet: FleetContext) -> Iterator[DrawnRecommendation]:
    for series in fleet.movable:
        twins: frozenset[str] = frozenset()
        for found in series.asking("move-sku"):
            if found.waste == "fabric":
                yield without_fabric(series, found)
                twins = frozenset(t.name for t in no_fabric_twins(series.scene, series.base))
        other, rejected = other_gpu(series, twins)
        if other is not None and (other.recommendation.findings or other.worth_telling):
            yield other
        # A weak reason alone is none to list every GPU that does not fit either.
        if rejected and series.has_reason("move-sku"):
            yield _no_other_gpu(series, rejected)


def other_gpu(series: GroupContext, skip: frozenset[str]) -> tuple[DrawnRecommendation | None, tuple[Rejected, ...]]:
    """The best other node of the same provider and region, and why every other was rejected.

    `skip`: node SKUs that another recommendation covers. None where no candidate could be predicted and priced; where
    the best one saves nothing, it has what it would cost and is blocked.
    """
    scene, base, node = series.scene, series.base, series.group.nodes[0]
    source = scene.catalog.gpu(base.group.lead.gpu_sku) if base.group.lead.gpu_sku else None
    if source is None:
        return None, ()
    if not node.provider:
        return None, (Rejected("any other GPU", coded("provider-unknown", "provider of its nodes unknown")),)
    if base.price is None or base.mixed:
        why = PRICE_UNKNOWN if base.price is None else coded("nodes-mixed", "its nodes have several types")
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
    priced = [n for n, price in sold if price is not None]
    why = fabric_reason(base.sku, best.node, priced, [c.node for c in kept])
    return move_option(series, best, tuple(rejected.values()), why), ()


def paid_on_top(base: Baseline) -> CodedText:
    basis = base.price.basis if base.price is not None else "unknown"
    return coded("paid-on-top", "the current nodes are {basis}; other nodes would cost extra", basis=basis)


def _worse(candidate: Candidate, best: Candidate) -> CodedText:
    told = f"{candidate.prediction.median:.2f}x the time, {candidate.gpus} GPUs needed"
    fields = {
        "time_ratio": candidate.prediction.median,
        "gpus": candidate.gpus,
        "saving_usd_per_month": candidate.saving,
    }
    if candidate.saving > best.saving:
        more = f"would save {usd(candidate.saving)}/month"
        risk = f"{candidate.prediction.risk} risk of a slowdown above 10 %"
        return CodedText("riskier", f"{told}, {more}, {risk}", {**fields, "risk": candidate.prediction.risk})
    if candidate.saving <= 0:
        dearer = f"{usd(-candidate.saving)}/month more expensive than the current GPUs after right-sizing"
        return CodedText("dearer", f"{told}, {dearer}", fields)
    return CodedText("saves-less", f"{told}, saves less ({usd(candidate.saving)}/month)", fields)


def move_option(
    series: GroupContext, best: Candidate, rejected: tuple[Rejected, ...] = (), fabric: CodedText | None = None
) -> DrawnRecommendation:
    """The recommendation to move to a candidate; blocked where nothing is saved by it. `fabric`: why its fabric may be
    dearer than the present one."""
    scene, base = series.scene, series.base
    cash = cash_of(base.price, base.right_nodes if base.whole else 0, scene.at)
    blocked: list[CodedText] = []
    saving = None
    if not base.whole:
        blocked.append(NODES_SHARED)
    elif cash is None:
        blocked.append(paid_on_top(base))
    else:
        saving = Saving.in_cash(cash, best.draws, _paid(scene, base), best.price)
        if saving.interval.p50 <= 0:
            blocked.append(
                coded("nothing-saved", "no savings: its price is not below that of the current GPUs after right-sizing")
            )
    ratio = best.prediction.median
    speed = "the same time" if abs(ratio - 1) < 0.005 else f"{ratio:.2f}x the time"
    text = (
        f"{series_label(series.group)} on {best.gpus} {best.node.gpu} ({best.nodes} x {best.node.name}): a step takes "
        f"{speed} ({best.prediction.basis}). Baseline: {_gpus(base.right_gpus)} now (right-sized)."
    )
    if saving is not None:
        text += f" {saving.sentence}"
    if fabric is not None:
        text += f" Its fabric is faster than the current one: {fabric}."
    if best.prediction.risk not in COUNTED_RISKS:
        text += " This is an experiment, not a recommendation: the slowdown may exceed 10 %."
    return series.recommend(
        "move-sku", best.node.name,
        target=Configuration(best.node.gpu, best.node.name, best.gpus),
        text=text, saving=saving, time_ratio=best.prediction.interval, risk=best.prediction.risk,
        blocked_by=blocked, rejected=rejected,
        changes=(
            *differences(base.sku, series.group.lead.gpu_sku, best.node),
            *((fabric,) if fabric is not None else ()),
        ),
        would_change_if=(
            coded("work-changes", "the batch size, precision or model changes"),
            coded(
                "host-is-the-limit",
                "the host is the bottleneck on the faster GPU, which counters of the slower one do not show",
            ),
        ),
        break_even=break_even(scene, base, best),
        yardstick=SavingsBaseline(site_factor=scene.site.factor),
        claim=_claim(base),
    )  # fmt: skip


def _gpus(count: int) -> str:
    return f"{count} {'GPU' if count == 1 else 'GPUs'}"


def _claim(base: Baseline) -> EvidenceClaim:
    """What a move to other nodes rests on. Every use that may rule a node out, or prefer another: where one is missing,
    which of them fits best is not known, and none is claimed to."""
    links = {"pcie"} | ({"nvlink"} if base.group.gpus_per_replica > 1 and base.has_nvlink else set())
    claim = base.claim(whole=True, fabric=base.has_fabric, measures=WORK | links)
    return replace(claim, host=base.sku is not None and bool(base.sku.vcpus))


def _paid(scene: MoveContext, base: Baseline) -> float | None:
    """What a month of the present costs that a move is credited against, US dollars; None: no price is known."""
    if base.group.phase == "training":
        return base.month_usd(base.nodes, job_hours(scene, base))
    return base.month_usd(base.right_nodes)


def _no_other_gpu(series: GroupContext, rejected: tuple[Rejected, ...]) -> DrawnRecommendation:
    """Why none of the other GPUs fits."""
    node = series.group.nodes[0]
    where = f"{node.provider} in {node.region or 'an unknown region'}" if node.provider else "an unknown provider"
    why = coded("no-other-gpu", "no other GPU at {where} fits, or its speed or price is unknown", where=where)
    return series.recommend(
        "move-sku", "another-gpu",
        target=Configuration(None, None, series.base.right_gpus),
        text=f"Another GPU is not recommended: {why}.",
        risk="high", blocked_by=(why,), rejected=rejected,
        would_change_if=(
            coded(
                "needs-become-known",
                "the required memory and precision, or another missing value, become known",
            ),
        ),
    )  # fmt: skip


def without_fabric(series: GroupContext, found: FindingContext) -> DrawnRecommendation:
    """The same GPU on a node without the fabric, at the right-sized count."""
    scene, base, group, node = series.scene, series.base, series.group, found.nodes[0]
    twins = no_fabric_twins(scene, base)
    priced = [(t, p) for t in twins if (p := scene.book.beside(node, t.name)) is not None]
    twin, price = min(priced, key=lambda pair: (pair[1].usd_per_hour, pair[0].name), default=(None, None))
    blocked = _move_blocks(base)
    if twin is None:
        blocked.append(_no_twin(base, node, twins))
    cash = cash_of(base.price, base.right_nodes if base.whole else 0, scene.at)
    text, saving = _twin_text(base, twin, price, found), None
    if price is not None and cash is not None and not blocked:
        draws = base.right_nodes_draws * (cash.price.usd_per_hour - price.usd_per_hour) * HOURS_PER_MONTH
        saving = Saving.in_cash(cash, draws, base.month_usd(base.right_nodes), price)
        text += f" {saving.sentence}"
        if saving.interval.p50 <= 0:
            blocked.append(coded("fabric-costs-nothing", "no savings: the fabric adds nothing to the price here"))
    else:
        if not blocked:
            basis = base.price.basis if base.price else "unknown"
            blocked.append(
                coded("rented-on-top", "the current nodes are {basis}; renting others would cost extra", basis=basis)
            )
        text += f" Not possible now: {all_of(blocked).text}."
    return series.recommend(
        "move-sku", twin.name if twin else "no-fabric",
        findings=(found.finding.id,),
        target=Configuration(group.lead.gpu_sku, twin.name if twin else None, base.right_gpus),
        text=text, saving=saving, time_ratio=SAME_SPEED.interval, risk=SAME_SPEED.risk, blocked_by=blocked,
        changes=differences(base.sku, group.lead.gpu_sku, twin) if twin is not None else (),
        would_change_if=(
            coded("fabric-comes-to-use", "the service will share experts or key-value caches between nodes"),
            coded("twin-not-to-be-had", "the node without the fabric is not available in sufficient numbers"),
        ),
        break_even=None if blocked else "saves at any demand",
        claim=base.claim(whole=True, fabric=True),
    )  # fmt: skip


def no_fabric_twins(scene: MoveContext, base: Baseline) -> list[NodeSku]:
    """The same node without an RDMA fabric, as far as the catalog knows."""
    return list(twins_without_fabric(scene.catalog, base.sku)) if base.sku else []


def _move_blocks(base: Baseline) -> list[CodedText]:
    reasons: list[CodedText] = []
    if base.mixed:
        reasons.append(NODES_MIXED)
    if not base.whole:
        reasons.append(NODES_SHARED)
    if base.price is None:
        reasons.append(coded("present-price-unknown", "no price for the current node"))
    return reasons


def _no_twin(base: Baseline, node: NodeFacts, twins: list[NodeSku]) -> CodedText:
    where = f"{node.provider or 'this provider'} in {node.region or 'this region'}"
    if base.sku is None:
        return coded(
            "node-sku-unknown", "the node's SKU is unknown, so no equivalent node without the fabric can be found"
        )
    if twins:
        return coded(
            "twin-without-price", "no price at {where} for {sku}, the same node without the fabric",
            where=where, sku=twins[0].name,
        )  # fmt: skip
    return coded(
        "no-twin", "the catalog has no {gpu} node without the fabric at {where}",
        where=where, gpu=base.group.lead.gpu_sku,
    )  # fmt: skip


def _twin_text(base: Baseline, twin: NodeSku | None, price: Price | None, found: FindingContext) -> str:
    gpu = base.group.lead.gpu_sku or "GPU"
    if twin is None or price is None:
        premium = found.premium
        assumed = (
            f" Such a node would cost about {premium.share * 100:.1f} % less than the current "
            f"{usd(premium.price.usd_per_hour)}/hour (assumed, from node pairs at other providers)."
            if premium is not None and premium.assumed
            else ""
        )
        return f"The same {gpu} on a node without the fabric runs the work at the same speed.{assumed}"
    return (
        f"The same {gpu} on {twin.name}, without the fabric, runs the work at the same speed. {base.right_gpus} GPUs "
        f"needed, at {usd(price.usd_per_hour)} instead of "
        f"{usd(base.price.usd_per_hour if base.price else None)} per node-hour."
    )


def _state(snapshot: PredictionSnapshot, seen: Observation, _: bool) -> MoveState | None:
    there, here = snapshot.target, snapshot.source
    if there.node_sku is None or there.node_sku == here.node_sku:
        return None
    return by_runs(snapshot, seen, stands_on(there), stands_on(here), there.node_sku)


def _words(r: Recommendation) -> str:
    return "move to other nodes" if r.target.gpu_sku == r.source.gpu_sku else "move to other GPUs"


def _title(r: Recommendation, of: TitleSubject) -> str:
    """``Move chat from azure/A to azure/B (same GPU, no InfiniBand)``: source, target, and what differs."""
    here, there = r.source, r.target
    if there.node_sku is None:
        same = there.gpu_sku is not None and there.gpu_sku == here.gpu_sku
        return f"Move {of.name} to {'a node without the fabric' if same else 'another GPU type'}"
    differs = [one.text for one in r.changes if one.code not in FABRIC_REASONS]
    reasons = [f". Reason: {one.text}" for one in r.changes if one.code in FABRIC_REASONS]
    if here.gpu_count != there.gpu_count:
        differs.append(f"{gpus(there.gpu_count, there.gpu_sku)} instead of {gpus(here.gpu_count, here.gpu_sku)}")
    elif not differs:
        same = here.gpu_sku == there.gpu_sku
        differs.append("same GPU" if same else f"{there.gpu_sku} instead of {here.gpu_sku}")
    why = f" ({', '.join(differs)}){''.join(reasons)}"
    return f"Move {of.name} from {here.node_sku or here.gpu_sku or 'its nodes'} to {there.node_sku}{why}"


KIND = RecommendationKind(
    actions=("move-sku",),
    rank=6,
    build=_build,
    title=_title,
    words=_words,
    subject="A move to other nodes",
    state=_state,
    calibrates=True,
)
