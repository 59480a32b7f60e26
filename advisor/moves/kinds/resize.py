"""Ways out that keep the GPU: release it, hold fewer of it, or hold it on a node without the fabric."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....rules.catalog.fabric_premium import twins_without_fabric
from ....rules.catalog.types import NodeSku, Price
from ...core.advice_types import Configuration, Recommendation, Risk, Yardstick
from ...core.coded_text import CodedText, all_of, coded
from ...core.formatting import usd
from ...core.ids import stable_id
from ...verdicts.types import BareGpu, NodeFacts
from ..base.constraints import NODES_MIXED, NODES_SHARED, WHICH_NODES, fewer_gpus_gates
from ..base.prediction import SIGMA_SAME_GPU, Prediction, percentiles
from ..base.pricing import realisation
from ..base.workload_groups import HOURS_PER_MONTH, Group
from ..context.evidence import GAP_MAX, REST, Claim
from ..context.finding_context import Found, called, node_words
from ..context.move_context import DRAWS, Baseline, Option, Scene, gpus_needed, load_words, nodes_for, saving_sentence

SAME_SPEED = Prediction(1.0, SIGMA_SAME_GPU, "same GPU")
# A GPU that nobody used in this share of its node's hours is free, not between two jobs.
FREE_SHARE = 0.9
# Instances that divide a GPU wholly add up to all of it, but for rounding.
WHOLE = 0.999


def reduce_gpus(scene: Scene, base: Baseline, findings: tuple[str, ...]) -> Option:
    """Fewer GPUs of the same kind: as many as the demand needs, in whole replicas, whole nodes for cash."""
    group = base.group
    blocked = list(fewer_gpus_gates(group, base.right_gpus))
    if base.mixed:
        blocked.append(WHICH_NODES)
    freed = base.gpus - base.right_gpus
    if freed <= 0 and not blocked:
        blocked.append(_nothing_to_take(base, scene.headroom))
    nodes_freed = base.nodes - base.right_nodes if base.whole else 0
    realised, date = realisation(base.price, nodes_freed, scene.at)
    draws = None
    if realised in ("cash-now", "cash-at") and base.price is not None and nodes_freed > 0 and not blocked:
        draws = (base.nodes - base.right_nodes_draws) * base.price.usd_per_hour * HOURS_PER_MONTH
    saving = percentiles(draws) if draws is not None else None
    load = None if base.demand is None else base.demand * base.gpus / base.right_gpus
    text = f"{called(group)} keeps {base.right_gpus} of {base.gpus} {group.lead.gpu_sku or 'GPUs'}"
    if blocked:
        text = f"Fewer {group.lead.gpu_sku or 'GPUs'} for the same work is not advised: {blocked[0]}."
    else:
        text += (
            f": at the 95th percentile of demand the load rises from {load_words(base.demand)} to {load_words(load)} "
            "of what they sustain. "
        )
        text += (
            saving_sentence(saving, [base.price], realised, date)
            if saving is not None
            else f"No whole node falls free to be given back: {freed} GPUs are freed for other work, no dollars."
        )
    return Option(
        Recommendation(
            id=stable_id("r", group.identity, "reduce-gpus", group.lead.node_sku),
            findings=findings,
            workload=group.lead.id,
            action="reduce-gpus",
            source=base.configuration,
            target=Configuration(group.lead.gpu_sku, group.lead.node_sku, base.right_gpus),
            time_ratio=None if blocked else SAME_SPEED.interval,
            saving_usd_per_month=saving,
            freed_gpu_hours_per_month=0.0 if blocked else freed * HOURS_PER_MONTH,
            realisation=realised if draws is not None else "capacity-freed",
            risk=_count_risk(scene, base),
            blocked_by=tuple(blocked),
            rejected=(),
            would_change_if=(
                coded("peaks-hidden", "demand peaks within minutes that an hour's mean hides"),
                coded("replicas-apart", "replicas are kept apart for availability or for tenants"),
            ),
            prices=(base.price.id,) if base.price and draws is not None else (),
            text=text.strip(),
            break_even=None if blocked else _growth_limit(scene, base),
            available_from=date if draws is not None else None,
            yardstick=Yardstick(usd_per_month=base.month_usd(base.nodes) if draws is not None else None),
        ),
        draws,
        exclusive=f"count:{group.series_id}",
        claim=base.claim(whole=draws is not None, fabric=base.has_fabric),
    )


def without_fabric(scene: Scene, base: Baseline, found: Found, findings: tuple[str, ...]) -> Option:
    """The same GPU on a node without the fabric, at the right-sized count."""
    group, node = base.group, found.nodes[0]
    twins = no_fabric_twins(scene, base)
    priced = [(t, p) for t in twins if (p := scene.book.beside(node, t.name)) is not None]
    twin, price = min(priced, key=lambda pair: (pair[1].usd_per_hour, pair[0].name), default=(None, None))
    blocked = _move_blocks(base)
    if twin is None:
        blocked = (*blocked, _no_twin(base, node, twins))
    gpus = base.right_gpus
    realised, date = realisation(base.price, base.right_nodes if base.whole else 0, scene.at)
    draws = None
    if price is not None and base.price is not None and realised in ("cash-now", "cash-at") and not blocked:
        draws = base.right_nodes_draws * (base.price.usd_per_hour - price.usd_per_hour) * HOURS_PER_MONTH
    saving = percentiles(draws) if draws is not None else None
    if saving is None and twin is not None and not blocked:
        blocked = (*blocked, _bound(base, realised))
    text = _twin_text(base, twin, price, found)
    if saving is not None:
        text += f" {saving_sentence(saving, [base.price, price], realised, date)}"
        if saving.p50 <= 0:
            blocked = (
                *blocked,
                coded("fabric-costs-nothing", "nothing saves: the fabric adds nothing to the price here"),
            )
    elif blocked:
        text += f" Not possible today: {all_of(blocked).text}."
    return Option(
        Recommendation(
            id=stable_id("r", group.identity, "move-sku", group.lead.node_sku, twin.name if twin else "no-fabric"),
            findings=findings,
            workload=group.lead.id,
            action="move-sku",
            source=base.configuration,
            target=Configuration(group.lead.gpu_sku, twin.name if twin else None, gpus),
            time_ratio=SAME_SPEED.interval,
            saving_usd_per_month=saving,
            freed_gpu_hours_per_month=0.0,
            realisation=realised if saving is not None else "capacity-freed",
            risk=SAME_SPEED.risk,
            blocked_by=blocked,
            rejected=(),
            would_change_if=(
                coded("fabric-comes-to-use", "the service comes to share experts or key-value caches between nodes"),
                coded("twin-not-to-be-had", "the node without the fabric is not to be had in the numbers needed"),
            ),
            prices=tuple(p.id for p in (base.price, price) if p is not None) if saving is not None else (),
            text=text,
            break_even=None if blocked else "saves at any demand",
            available_from=date if saving is not None else None,
            yardstick=Yardstick(usd_per_month=base.month_usd(base.right_nodes) if saving is not None else None),
        ),
        draws,
        exclusive=f"place:{group.series_id}",
        claim=base.claim(whole=True, fabric=True),
    )


def no_fabric_twins(scene: Scene, base: Baseline) -> list[NodeSku]:
    """The same node without an RDMA fabric, as far as the catalog knows."""
    return list(twins_without_fabric(scene.catalog, base.sku)) if base.sku else []


def release(scene: Scene, found: Found, span_end: float) -> Option | None:
    """Give back GPUs that nobody uses. None: they are used at other times, or no longer held."""
    if found.group is not None:
        return _release_held(scene, found, found.group)
    return _release_bare(scene, found, span_end)


def _release_bare(scene: Scene, found: Found, span_end: float) -> Option | None:
    node = found.nodes[0]
    free = [
        b for b in found.bare if b.idle_hours >= FREE_SHARE * b.part * node.span_hours and b.last_ts >= span_end - 86400
    ]
    if free_gpus(free) < node.gpu_count:
        # Somebody's memory lies on it, whom no label names. Of a whole node the gate says so.
        free = [b for b in free if b.held_hours <= GAP_MAX * b.hours]
    if not free or not node.span_hours:
        return None
    gpus = free_gpus(free)
    whole = 1 if gpus >= node.gpu_count else 0
    cut = sum(1 for b in free if b.part < 1)
    parts = [f"{len(free) - cut} {'GPU' if len(free) - cut == 1 else 'GPUs'}"] if len(free) > cut else []
    parts += [f"{cut} MIG {'instance' if cut == 1 else 'instances'}"] if cut else []
    who = f"{node.node} did nothing" if whole else f"{' and '.join(parts)} of {node.node} did nothing"
    what = f"{who} in {node.span_hours / 24:.0f} days."
    released, parts_held = frozenset(b.gpu_uuid for b in free), sum(b.part for b in free)
    return _release(scene, found, None, (node,), released=released, gpus=parts_held, whole=whole, what=what)


def free_gpus(free: Sequence[BareGpu]) -> int:
    """How many GPUs are free as wholes: those that are no instances, and those whose instances are all of them free."""
    parts: dict[str, float] = {}
    for b in free:
        if b.parent_uuid is not None:
            parts[b.parent_uuid] = parts.get(b.parent_uuid, 0.0) + b.part
    return sum(1 for b in free if b.parent_uuid is None) + sum(1 for part in parts.values() if part >= WHOLE)


def _release_held(scene: Scene, found: Found, group: Group) -> Option | None:
    if not group.current:
        return None
    whole = 0 if group.shared else sum(1 for n in group.nodes if n.node in group.alone)
    one = "MIG instance" if group.sliced else "GPU"
    held = f"{group.gpu_count} {one}" + ("s" if group.gpu_count != 1 else "")
    them = "it" if group.gpu_count == 1 else "them"
    what = f"{called(group)} holds {held} on {node_words(group.nodes)} and does not use {them}."
    released, parts_held = frozenset(group.gpus), group.gpu_equivalents
    return _release(scene, found, group, group.nodes, released=released, gpus=parts_held, whole=whole, what=what)


def _release(
    scene: Scene,
    found: Found,
    group: Group | None,
    nodes: Sequence[NodeFacts],
    *,
    released: frozenset[str],
    gpus: float,
    whole: int,
    what: str,
) -> Option:
    node = nodes[0]
    price = scene.book.saving_price(node)
    realised, date = realisation(price, whole, scene.at)
    draws = None
    if realised in ("cash-now", "cash-at") and price is not None:
        draws = np.full(DRAWS, whole * price.usd_per_hour * HOURS_PER_MONTH)
    saving = percentiles(draws) if draws is not None else None
    text = f"{what} "
    if saving is not None:
        text += f"Give {'it' if whole == 1 else 'them'} back. {saving_sentence(saving, [price], realised, date)}"
    else:
        text += f"Free {'it' if gpus == 1 else 'them'} for other work: {_count(gpus)}. {_no_cash(price, whole)}"
    key = group.identity if group else f"{node.cluster}/{node.node}"
    sku = node.gpu_sku or node.gpu_name
    return Option(
        Recommendation(
            id=stable_id("r", key, "release", node.node_sku, "nothing"),
            findings=(found.finding.id,),
            workload=group.lead.id if group else None,
            action="release",
            # Of instances, the GPUs that they are parts of.
            source=Configuration(sku, node.node_sku, math.ceil(gpus - 1e-9)),
            target=Configuration(None, None, 0),
            time_ratio=None,
            saving_usd_per_month=saving,
            freed_gpu_hours_per_month=gpus * HOURS_PER_MONTH,
            realisation=realised,
            risk="low" if group else "very-low",
            blocked_by=(),
            rejected=(),
            would_change_if=found.finding.would_change_if,
            prices=(price.id,) if price is not None and saving is not None else (),
            text=text,
            available_from=date,
            yardstick=Yardstick(
                usd_per_month=whole * price.usd_per_hour * HOURS_PER_MONTH if price and saving is not None else None,
                nodes=tuple(sorted(n.node for n in nodes)),
            ),
        ),
        draws,
        exclusive=f"release:{key}",
        claim=Claim(tuple(n.node for n in nodes), REST, released, whole=draws is not None),
    )


def _count(gpus: float) -> str:
    """GPUs to be freed; parts of them where instances are."""
    if abs(gpus - round(gpus)) < 0.005:
        return f"{round(gpus)} {'GPU' if round(gpus) == 1 else 'GPUs'}"
    return f"{gpus:.2f} GPUs, as parts"


def _no_cash(price: Price | None, whole: int) -> str:
    if price is None:
        return "The price of the node is not known, so no dollars are stated."
    if not whole:
        return "Nodes are rented whole and none falls free, so no dollars are claimed."
    return f"The node is {price.basis} ({price.source}, {price.as_of}), so no dollars come back."


def _move_blocks(base: Baseline) -> tuple[CodedText, ...]:
    reasons: list[CodedText] = []
    if base.mixed:
        reasons.append(NODES_MIXED)
    if not base.whole:
        reasons.append(NODES_SHARED)
    if base.price is None:
        reasons.append(coded("present-price-unknown", "the price of the present node is not known"))
    return tuple(reasons)


def _bound(base: Baseline, realised: str) -> CodedText:
    basis = base.price.basis if base.price else "unknown"
    if realised == "capacity-freed":
        return coded("rented-on-top", "the present nodes are {basis}: renting others would be paid on top", basis=basis)
    return coded("present-price-basis", "{basis}", basis=basis)


def _no_twin(base: Baseline, node: NodeFacts, twins: list[NodeSku]) -> CodedText:
    where = f"{node.provider or 'this provider'} in {node.region or 'this region'}"
    if base.sku is None:
        return coded("node-sku-unknown", "the node's SKU is not known, so neither is its twin without the fabric")
    if twins:
        return coded(
            "twin-without-price", "{where} has no known price for {sku}, the same node without the fabric",
            where=where, sku=twins[0].name,
        )  # fmt: skip
    return coded(
        "no-twin", "{where} sells no node with {gpu} and without the fabric that the catalog knows",
        where=where, gpu=base.group.lead.gpu_sku,
    )  # fmt: skip


def _twin_text(base: Baseline, twin: NodeSku | None, price: Price | None, found: Found) -> str:
    gpu = base.group.lead.gpu_sku or "GPU"
    if twin is None or price is None:
        premium = found.premium
        assumed = (
            f" If there were one, it would cost about {premium.share * 100:.1f} % less than today's "
            f"{usd(premium.price.usd_per_hour)} an hour (assumed, from pairs at other providers)."
            if premium is not None and premium.assumed
            else ""
        )
        return f"The same {gpu} on a node without the fabric runs the work at the same speed.{assumed}"
    return (
        f"The same {gpu} on {twin.name}, without the fabric, runs the work at the same speed; reckoned for "
        f"{base.right_gpus} GPUs at {usd(price.usd_per_hour)} against "
        f"{usd(base.price.usd_per_hour if base.price else None)} a node-hour."
    )


def _nothing_to_take(base: Baseline, headroom: float) -> CodedText:
    peak = f"the 95th percentile of demand is {load_words(base.demand)}"
    load = f"nothing can be taken away: {peak} of what {base.gpus} GPUs"
    fields = {"load": base.demand, "gpus": base.gpus}
    if base.demand is not None and base.demand * base.gpus <= headroom * (base.gpus - 1):
        if base.unit > 1 and base.floor < base.gpus:
            text = f"{load} sustain, and they come in replicas of {base.unit} that are not split"
            return CodedText("replicas-not-split", text, {**fields, "replica_gpus": base.unit})
        text = f"{load} sustain, but {base.floor} are the least that keep the service up"
        return CodedText("least-gpus-held", text, {**fields, "least_gpus": base.floor})
    text = f"{load} sustain, and {load_words(headroom)} is the most they should carry"
    return CodedText("load-too-high", text, {**fields, "headroom": headroom})


def _growth_limit(scene: Scene, base: Baseline) -> str | None:
    """The growth of peak demand at which as many GPUs are needed again as are held now."""
    if base.demand is None or base.demand <= 0:
        return None
    limit = scene.headroom * (base.gpus - base.unit) / (base.gpus * base.demand)
    return f"stops saving above {limit:.2f} x today's peak demand" if math.isfinite(limit) else None


def _count_risk(scene: Scene, base: Baseline) -> Risk:
    """How likely the demand needs a tenth more than the GPUs that are left carry at the headroom. Where none can be
    spared, whoever took one would run that risk: it is high."""
    if base.demand is None or base.right_gpus >= base.gpus:
        return "high"
    needed = gpus_needed(base, base.demand_draws / 1.1, scene.headroom)
    short = float(np.mean(nodes_for(needed, 1) > base.right_gpus))
    return "very-low" if short < 0.02 else "low" if short < 0.10 else "medium" if short < 0.25 else "high"
