"""Other nodes for the same work: the same GPU without the fabric, or another GPU that the provider sells there."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from ....rules.catalog.loader import twins_without_fabric
from ....rules.catalog.types import GpuSku, NodeSku, Price
from ...core.advice_types import COUNTED_RISKS, Configuration, Recommendation, Rejected, SavingsBaseline
from ...core.coded_text import CodedText, all_of, coded
from ...core.formatting import counted, gpus, usd
from ...core.worth import FABRIC_REASONS, HOURS_PER_MONTH
from ..constraints import NODES_MIXED, NODES_SHARED, NVLINK, WORK, gates
from ..fleet import WEAK, Baseline, Fleet, Found, Series, baseline_for, nodes_for, series_label
from ..move import SAME_SPEED, Fields, Move, Saving, held_to_class, recommend_for
from ..prediction import Array, Prediction
from ..pricing import cash_of

# Demand at which a break-even is looked for, as shares of today's peak.
DEMANDS = tuple(round(0.05 * i, 2) for i in range(20, 61))


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
        return self.saving > 0 and self.prediction.risk in COUNTED_RISKS


def candidates(
    fleet: Fleet, base: Baseline, source: GpuSku, sold: Iterable[tuple[NodeSku, Price | None]]
) -> tuple[list[Candidate], dict[str, Rejected]]:
    """The nodes that nothing forbids, what saves at no great risk first, and by GPU why the others are rejected."""
    group, today = base.group, base.price
    assert today is not None

    @cache  # nodes that differ in neither have one answer
    def predicted(gpu: str, link: float | None) -> Prediction | CodedText:
        return fleet.predicted(source, fleet.catalog.gpus[gpu], group, (link_of(base.sku), link))

    def weighed(node: NodeSku, price: Price | None) -> Candidate | tuple[CodedText, ...]:
        if (gpu := fleet.catalog.gpu(node.gpu)) is None:
            return (no_figures(node.gpu),)
        closed = gates(group, source, base.sku, gpu, node)
        if closed or price is None:
            return closed or (coded("no-price-in-region", "no price in this region"),)
        if isinstance(prediction := predicted(gpu.name, link_of(node)), CodedText):
            return (prediction,)
        ratio = prediction.draw(fleet.draws("move", group.series_id, node.name), len(base.demand_draws))
        if group.phase == "training":
            gpus, held, hours = base.gpus, base.nodes, job_hours(fleet, base)
            there = nodes_for(gpus, node.gpu_count) * ratio
        elif base.sized_demand is None:
            return (coded("demand-not-measured", "no demand data"),)
        else:
            gpus = int(base.gpus_needed(np.array([base.sized_demand * prediction.median]))[0])
            held, hours = base.right_nodes_draws, HOURS_PER_MONTH
            there = nodes_for(base.gpus_needed(base.demand_draws * ratio), node.gpu_count)
        draws = (held * today.usd_per_hour - there * price.usd_per_hour) * hours
        return Candidate(node, price, prediction, gpus, int(nodes_for(gpus, node.gpu_count)), draws)

    weighed_targets = [(target, weighed(target, price)) for target, price in sold]
    kept = [candidate for _, candidate in weighed_targets if isinstance(candidate, Candidate)]
    rejected: dict[str, Rejected] = {}
    # One line a GPU: the node of it that least speaks against.
    closed = ((node, why) for node, why in weighed_targets if isinstance(why, tuple))
    for target, why in sorted(closed, key=lambda entry: len(entry[1])):
        rejected.setdefault(target.gpu, Rejected(target.name, all_of(why)))
    order = dict.fromkeys(target.gpu for target, _ in weighed_targets if target.gpu in rejected)
    return sorted(kept, key=lambda c: (not c.safe, -c.saving, c.node.name)), {gpu: rejected[gpu] for gpu in order}


def job_hours(fleet: Fleet, base: Baseline) -> float:
    """Hours a month in which a recurring job holds its nodes."""
    return min(fleet.monthly(base.group, base.group.gpu_hours / max(base.gpus, 1)), HOURS_PER_MONTH)


def no_figures(gpu: str) -> CodedText:
    return coded("gpu-not-in-catalog", "the catalog has no data for {gpu}", gpu=gpu)


def link_of(sku: NodeSku | None) -> float | None:
    """What each GPU of a node has of its fabric, bytes per second one way; None: unknown or none."""
    rate = sku.fabric.bytes_per_second if sku is not None else None
    return rate / max(sku.gpu_count, 1) if sku is not None and rate else None


def break_even(base: Baseline, candidate: Candidate) -> str | None:
    """From which demand on (times today's peak) the candidate stops saving. None: at none, or it saves nothing."""
    if base.group.phase == "training" or base.demand is None or base.price is None:
        return None
    demands = np.array(DEMANDS) * base.demand
    here = nodes_for(base.gpus_needed(demands), base.gpus_per_node) * base.price.usd_per_hour
    needed = base.gpus_needed(demands * candidate.prediction.median)
    there = nodes_for(needed, candidate.node.gpu_count) * candidate.price.usd_per_hour
    saves = dict(zip(DEMANDS, here - there > 1e-9, strict=True))
    above = min((d for d in DEMANDS if d > 1.0 and not saves[d]), default=None)
    return f"stops saving above {above:.2f}x the current peak demand" if saves[1.0] and above else None


_KINDS = {
    "infiniband": "InfiniBand", "ethernet": "Ethernet", "roce": "RoCE", "efa": "EFA", "tcpx": "TCPX",
    "none": "no fabric", "unknown": "an unknown network",
}  # fmt: skip
# Line rates of one kind that differ by less are the same fabric.
_SAME_RATE = 1.1
PRICE_UNKNOWN = coded("price-of-its-node-unknown", "no price for its node")
# What the price of a node does not show of a move to another provider.
ELSEWHERE = "data, egress, terms or capacity"
_TERMS = coded("terms-elsewhere", "{terms} at the other provider cost more than the savings", terms=ELSEWHERE)
SHOWN = 3  # so many other providers for each workload


class MoveSku(Move):
    actions = ("move-sku",)
    subject = "A move to other nodes"
    calibrates = True

    def of(self, series: Series) -> Iterator[Recommendation]:
        twins: Sequence[NodeSku] = ()
        for waste in (waste for waste in series.asking("move-sku") if waste.waste == "fabric"):
            twins = twins_without_fabric(series.fleet.catalog, series.base.sku) if series.base.sku else ()
            yield _without_fabric(series, waste, twins)
        other, rejected = _other_gpu(series, {twin.name for twin in twins})
        if other is not None and (other.findings or other.worth_telling):
            yield other
        # A weak reason alone is none to list every GPU that does not fit either.
        if rejected and any(waste.answered_by["move-sku"] < WEAK for waste in series.asking("move-sku")):
            node, text = series.group.nodes[0], "no other GPU at {where} fits, or its speed or price is unknown"
            place = f"{node.provider} in {node.region or 'an unknown region'}"
            why = coded("no-other-gpu", text, where=place if node.provider else "an unknown provider")
            unknown = "the required memory and precision, or another missing value, become known"
            yield recommend_for(
                series, "move-sku", "another-gpu", target=Configuration(None, None, series.base.right_gpus),
                text=f"Another GPU is not recommended: {why}.", risk="high", blocked_by=(why,), rejected=rejected,
                would_change_if=(coded("needs-become-known", unknown),),
            )  # fmt: skip

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        """``Move chat from azure/A to azure/B (same GPU, no InfiniBand)``: source, target, and what differs."""
        here, there = r.source, r.target
        same = there.gpu_sku == here.gpu_sku
        if there.node_sku is None:
            is_known = same and there.gpu_sku is not None
            return f"Move {of} to {'a node without the fabric' if is_known else 'another GPU type'}"
        differs = [change.text for change in r.changes if change.code not in FABRIC_REASONS]
        reasons = [f". Reason: {reason.text}" for reason in r.changes if reason.code in FABRIC_REASONS]
        if here.gpu_count != there.gpu_count:
            differs.append(f"{gpus(there.gpu_count, there.gpu_sku)} instead of {gpus(here.gpu_count, here.gpu_sku)}")
        elif not differs:
            differs.append("same GPU" if same else f"{there.gpu_sku} instead of {here.gpu_sku}")
        why = f" ({', '.join(differs)}){''.join(reasons)}"
        return f"Move {of} from {here.node_sku or here.gpu_sku or 'its nodes'} to {there.node_sku}{why}"


def _differences(source: NodeSku | None, gpu: str | None, target: NodeSku) -> tuple[CodedText, ...]:
    """What changes at `target`, the GPU first, then the fabric. `source` None: the present node's SKU is unknown."""
    other = coded("same-gpu", "same GPU")
    if gpu != target.gpu:
        other = coded("other-gpu", "{gpu} instead of {of}", gpu=target.gpu, of=gpu)
    if source is None:
        return (other,)
    here, there = _kind(source), _kind(target)
    if source.fabric.rdma and not target.fabric.rdma:
        return other, coded("fabric-dropped", "no {fabric}", fabric=here)
    if _dearer_fabric(source, target):
        more = "with RDMA" if _rated(source) == _rated(target) else f"instead of {_rated(source)}"
        return other, coded("fabric-added", "fabric {to}", to=f"{_rated(target)} {more}")
    return (other,) if here == there else (other, coded("fabric-other", "{to} instead of {of}", to=there, of=here))


def _dearer_fabric(source: NodeSku | None, target: NodeSku) -> bool:
    """Whether the target's fabric is the dearer kind: RDMA where the present node has none, or a faster one of RDMA."""
    if source is None or not target.fabric.rdma:
        return False
    here, there = source.fabric.bytes_per_second, target.fabric.bytes_per_second
    return not source.fabric.rdma or (here is not None and there is not None and there > here * _SAME_RATE)


def _fabric_reason(
    source: NodeSku | None, target: NodeSku, sold: Collection[NodeSku], fits: Collection[NodeSku]
) -> tuple[CodedText, ...]:
    """Why a dearer fabric is right; empty: it is not dearer. `sold`: priced nodes; `fits`: without a gate."""
    if not _dearer_fabric(source, target):
        return ()
    plain, fabric = [n for n in sold if n.gpu == target.gpu and not _dearer_fabric(source, n)], _kind(target)
    if not plain:
        return (coded("fabric-included", "{gpu} is sold only with {fabric} here", gpu=target.gpu, fabric=fabric),)
    if any(n in fits for n in plain):
        return (coded("fabric-cheaper", "{fabric} at no extra cost", fabric=fabric),)
    return (coded("fabric-needed", "the work needs {fabric}", fabric=fabric),)


def _kind(node: NodeSku) -> str:
    return _KINDS.get(node.fabric.kind.lower(), node.fabric.kind)


def _rated(node: NodeSku) -> str:
    rate = node.fabric.bytes_per_second
    return f"{_kind(node)} {rate * 8 / 1e9:g} Gb/s" if rate is not None else _kind(node)


def _other_gpu(series: Series, skip: Collection[str]) -> tuple[Recommendation | None, tuple[Rejected, ...]]:
    """The best other node of the same provider and region (blocked where it saves nothing), or why every other was
    rejected. `skip`: node SKUs that another recommendation covers."""
    fleet, base, node = series.fleet, series.base, series.group.nodes[0]
    source, why = fleet.gpu_of(series.group), NODES_MIXED if base.mixed else None
    if source is None:
        return None, ()
    if not node.provider or base.price is None:
        why = PRICE_UNKNOWN if node.provider else coded("provider-unknown", "provider of its nodes unknown")
    if why is not None:
        return None, (Rejected("any other GPU", why),)
    others = (n for n in fleet.book.for_sale(node) if n.name not in skip and n.name != series.group.lead.node_sku)
    sold = [(n, fleet.book.beside(node, n.name)) for n in others]
    kept, rejected = candidates(fleet, base, source, sold)
    if not kept:
        return None, tuple(rejected.values())
    best, of_each = kept[0], dict[str, Candidate]()
    for candidate in kept:
        of_each.setdefault(candidate.node.gpu, candidate)
    rejected |= {gpu: Rejected(c.node.name, _worse(c, best)) for gpu, c in of_each.items()}
    del rejected[best.node.gpu]
    priced = [n for n, price in sold if price is not None]
    why = _fabric_reason(base.sku, best.node, priced, [c.node for c in kept])
    return move_to(series, best, tuple(rejected.values()), why), ()


def paid_on_top(base: Baseline) -> CodedText:
    basis = base.price.basis if base.price is not None else "unknown"
    return coded("paid-on-top", "the current nodes are {basis}; other nodes would cost extra", basis=basis)


def _worse(candidate: Candidate, best: Candidate) -> CodedText:
    time, saving = candidate.prediction, candidate.saving
    fields = {"time_ratio": time.median, "gpus": candidate.gpus, "saving_usd_per_month": saving, "risk": time.risk}
    code, more = "saves-less", f"saves less ({usd(saving)}/month)"
    if saving > best.saving:
        code, more = "riskier", f"would save {usd(saving)}/month, {time.risk} risk of a slowdown above 10 %"
    elif saving <= 0:
        code, more = "dearer", f"{usd(-saving)}/month more expensive than the current GPUs after right-sizing"
    return CodedText(code, f"{time.median:.2f}x the time, {candidate.gpus} GPUs needed, {more}", fields)


def move_to(
    series: Series, best: Candidate, rejected: tuple[Rejected, ...] = (), fabric: tuple[CodedText, ...] = ()
) -> Recommendation:
    """The recommendation to move to a candidate; blocked where it saves nothing. `fabric`: why it may be dearer."""
    fleet, base, group, prediction = series.fleet, series.base, series.group, best.prediction
    cash = cash_of(base.price, base.right_nodes if base.whole else 0, fleet.at)
    speed = "the same time" if abs(prediction.median - 1) < 0.005 else f"{prediction.median:.2f}x the time"
    text = (
        f"{series_label(group)} on {best.gpus} {best.node.gpu} ({best.nodes} x {best.node.name}): a step takes "
        f"{speed} ({prediction.basis}). Baseline: {counted(base.right_gpus, 'GPU')} now (right-sized)."
    )
    blocked, saving = [], None
    if not base.whole or cash is None:
        blocked.append(paid_on_top(base) if base.whole else NODES_SHARED)
    else:
        training = group.phase == "training"
        paid = base.month_usd(base.nodes, job_hours(fleet, base)) if training else base.month_usd(base.right_nodes)
        saving = Saving(best.draws, (base.price, best.price), paid, *cash)
        text += f" {saving.sentence}"
        if saving.interval.p50 <= 0:
            reason = "no savings: its price is not below that of the current GPUs after right-sizing"
            blocked.append(coded("nothing-saved", reason))
    for why in fabric:
        text += f" Its fabric is faster than the current one: {why}."
    if prediction.risk not in COUNTED_RISKS:
        text += " This is an experiment, not a recommendation: the slowdown may exceed 10 %."
    # Every use that may rule a node out or prefer another: where one is missing, none is claimed to fit best.
    joined = group.gpus_per_replica > 1 and (base.sku is None or base.sku.intra_node_link in NVLINK)
    links = {"pcie", "nvlink"} if joined else {"pcie"}
    needs = base.claim(whole=True, fabric=base.has_fabric, measures=WORK | links)
    return recommend_for(
        series, "move-sku", best.node.name,
        target=Configuration(best.node.gpu, best.node.name, best.gpus),
        text=text, saving=saving, time_ratio=prediction.interval, risk=prediction.risk,
        blocked_by=blocked, rejected=rejected, break_even=break_even(base, best),
        changes=(*_differences(base.sku, group.lead.gpu_sku, best.node), *fabric),
        would_change_if=(
            coded("work-changes", "the batch size, precision or model changes"),
            coded("host-is-the-limit", "the host limits the faster GPU, which counters of the slower one do not show"),
        ),
        yardstick=SavingsBaseline(site_factor=fleet.site.factor),
        needs=replace(needs, host=base.sku is not None and bool(base.sku.vcpus)),
    )  # fmt: skip


def market_recommendations(fleet: Fleet) -> tuple[Recommendation, ...]:
    """For each recurring workload at known prices the best node elsewhere: arbitrage, shown apart and never summed."""
    out: list[Recommendation] = []
    for group in fleet.groups:
        source = fleet.gpu_of(group)
        if source is None or not group.recurs or not group.nodes or group.kind in ("idle", "unknown"):
            continue
        base, here = baseline_for(fleet, group), group.nodes[0].provider
        if base.price is None or base.mixed or here is None:
            continue
        # Every node of the other providers, each at its lowest list price.
        others = (n for n in fleet.catalog.nodes.values() if n.provider != here and n.prices)
        sold = [(n, min(n.prices, key=lambda p: (p.usd_per_hour, p.region))) for n in others]
        targets, _ = candidates(fleet, base, source, sold)
        best = list({c.node.provider: c for c in reversed(targets) if c.saving > 0}.values())
        for candidate in sorted(best, key=lambda c: (not c.safe, -c.saving))[:SHOWN]:
            r = held_to_class(move_to(Series(fleet, base, {}), candidate), base)
            out.append(replace(r, would_change_if=(_TERMS, *r.would_change_if)))
    return tuple(out)


def _without_fabric(series: Series, waste: Found, twins: Sequence[NodeSku]) -> Recommendation:
    """The same GPU on a node without the fabric, at the right-sized count. `twins`: such nodes of the catalog."""
    fleet, base, node = series.fleet, series.base, waste.nodes[0]
    gpu, saving = series.group.lead.gpu_sku, None
    priced = [(t, p) for t in twins if (p := fleet.book.beside(node, t.name)) is not None]
    twin, price = min(priced, key=lambda pair: (pair[1].usd_per_hour, pair[0].name), default=(None, None))
    against = ((NODES_MIXED, base.mixed), (NODES_SHARED, not base.whole), (PRICE_UNKNOWN, base.price is None))
    blocked = [why for why, holds in against if holds]
    where = f"{node.provider or 'this provider'} in {node.region or 'this region'}"
    if base.sku is None:
        reason = "the node's SKU is unknown, so no equivalent node without the fabric can be found"
        blocked.append(coded("node-sku-unknown", reason))
    elif twin is None:
        reason = "no {gpu} node without the fabric, or no price for one, is known at {where}"
        blocked.append(coded("no-twin", reason, where=where, gpu=gpu))
    if twin is not None and price is not None:
        now = usd(base.price.usd_per_hour if base.price else None)
        text = f"The same {gpu or 'GPU'} on {twin.name}, without the fabric, runs the work at the same speed. "
        text += f"{base.right_gpus} GPUs needed, at {usd(price.usd_per_hour)} instead of {now} per node-hour."
    else:
        text = f"The same {gpu or 'GPU'} on a node without the fabric runs the work at the same speed."
    cash = cash_of(base.price, base.right_nodes if base.whole else 0, fleet.at)
    if price is not None and base.price is not None and cash is not None and not blocked:
        draws = base.right_nodes_draws * (base.price.usd_per_hour - price.usd_per_hour) * HOURS_PER_MONTH
        saving = Saving(draws, (base.price, price), base.month_usd(base.right_nodes), *cash)
        text += f" {saving.sentence}"
        if saving.interval.p50 <= 0:
            blocked.append(coded("fabric-costs-nothing", "no savings: the fabric adds nothing to the price here"))
    else:
        blocked = blocked or [paid_on_top(base)]
        text += f" Not possible now: {all_of(blocked).text}."
    return recommend_for(
        series, "move-sku", twin.name if twin else "no-fabric",
        findings=(waste.finding.id,),
        target=Configuration(gpu, twin.name if twin else None, base.right_gpus),
        text=text, saving=saving, time_ratio=SAME_SPEED.interval, risk=SAME_SPEED.risk, blocked_by=blocked,
        changes=_differences(base.sku, gpu, twin) if twin is not None else (),
        would_change_if=(
            coded("fabric-comes-to-use", "the service will share experts or key-value caches between nodes"),
            coded("twin-not-to-be-had", "the node without the fabric is not available in sufficient numbers"),
        ),
        break_even=None if blocked else "saves at any demand",
        needs=base.claim(whole=True, fabric=True),
    )  # fmt: skip
