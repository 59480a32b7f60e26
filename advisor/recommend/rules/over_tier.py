"""A GPU whose compute is not used by work that waits for memory, where a cheaper one reads its memory as fast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....rules.catalog.types import GpuSku, NodeSku, Price
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ...core.formatting import dated, usd
from ..constraints import gates
from ..finding_context import FindingContext
from ..groups import Group
from ..rule_context import (
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    busy_share,
    finding_of,
    measured_percentile,
)

# What memory-bound work waits for is the same whatever its kind.
_SURE_OF_ANY = 0.8
# The same of a bandwidth that was read off its siblings, whose shares differ by up to an eighth.
_SURE_OF_UNMEASURED = 0.8
_ASSUMED = " (assumed: lowest sustained share measured for its architecture)"


@dataclass(frozen=True, slots=True)
class _Cheaper:
    """`usd_less`: how much less a GPU-hour costs there. `bandwidth`: what its memory sustains, over the present;
    `assumed`: it was not measured there."""

    node: NodeSku
    price: Price
    usd_less: float
    bandwidth: float
    assumed: bool = False


def over_tier(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Groups bound by memory bandwidth whose compute stays low, for which nothing forbids a cheaper GPU as fast."""
    found: list[FindingContext] = []
    for group in scope.seen:
        if group.observed_hours < rule.value("coverage_hours"):
            continue
        compute = group.feature("tensor_of_sustained_p95") or measured_percentile(group.use.u_c, 95)
        bound = busy_share(group, "hbm-bandwidth")
        if compute is None or compute >= rule.value("u_c_p95_max") or bound < rule.value("hbm_share_min"):
            continue
        cheaper = _cheaper(scope, rule, group)
        if cheaper is not None:
            found.append(_finding(scope, rule, group, compute=compute, bound=bound, cheaper=cheaper))
    return found, []


def _cheaper(scope: RuleContext, rule: WasteRule, group: Group) -> _Cheaper | None:
    """The cheapest such node of the same provider and region; None: there is none, or too little is known."""
    here, catalog = group.nodes[0], scope.book.catalog
    source = catalog.gpu(group.lead.gpu_sku) if group.lead.gpu_sku else None
    paid = scope.book.saving_price(here)
    rate = paid.usd_per_hour / here.gpu_count if paid is not None and here.gpu_count else None
    own = _sustained(source)
    if source is None or rate is None or own is None or not here.provider:
        return None
    present = catalog.node(here.node_sku) if here.node_sku else None
    best: _Cheaper | None = None
    for node in scope.book.for_sale(here):
        price, gpu = scope.book.beside(here, node.name), catalog.gpu(node.gpu)
        there = _sustained(gpu) or _sustained_at_least(gpu, catalog.gpus.values())
        if price is None or gpu is None or there is None or gpu.name == source.name:
            continue
        less = rate - price.usd_per_hour / node.gpu_count
        if there < rule.value("bandwidth_min") * own or less < rule.value("price_drop_min") * rate:
            continue
        if (best is None or less > best.usd_less) and not gates(group, source, present, gpu, node):
            best = _Cheaper(node, price, less, there / own, gpu.achieved.mem is None)
    return best


def _sustained(sku: GpuSku | None) -> float | None:
    """Bytes per second that memory-bound work reaches; None: not measured."""
    return sku.mem_bandwidth_bytes_per_second * sku.achieved.mem if sku is not None and sku.achieved.mem else None


def _sustained_at_least(sku: GpuSku | None, known: Iterable[GpuSku]) -> float | None:
    """The same of a GPU without measurement: its bandwidth at the lowest share that one of its architecture reached,
    for memory and its controller come with that. None: none of them was measured."""
    shares = [
        one.achieved.mem
        for one in known
        if sku is not None and one.vendor == sku.vendor and one.architecture == sku.architecture and one.achieved.mem
    ]
    return min(shares) * sku.mem_bandwidth_bytes_per_second if sku is not None and shares else None


def _finding(
    scope: RuleContext, rule: WasteRule, group: Group, *, compute: float, bound: float, cheaper: _Cheaper
) -> FindingContext:
    cost = cheaper.usd_less * group.gpu_hours
    how = _ASSUMED if cheaper.assumed else ""
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("compute_use_p95", compute, rule.value("u_c_p95_max"), "ratio of what the SKU sustains"),
            Evidence("bound_by_memory", bound, rule.value("hbm_share_min"), "ratio of busy time"),
            Evidence("cheaper_sku", cheaper.node.name, None, "node SKU"),
            Evidence(
                "cheaper_sku_bandwidth", cheaper.bandwidth, rule.value("bandwidth_min"),
                "ratio of the current SKU's sustained bandwidth",
            ),
            Evidence("price_less", cheaper.usd_less, None, "USD per GPU-hour"),
        ),
        gpu_hours=group.gpu_hours,
        cost=cost,
        values={"u_max": as_percent(compute), "share": as_percent(bound), "cheaper_sku": cheaper.node.gpu},
        sure=max(group.lead.kind.confidence, _SURE_OF_ANY)
        * group.lead.bottleneck.confidence
        * (_SURE_OF_UNMEASURED if cheaper.assumed else 1.0),
        after=(
            f"{cheaper.node.gpu} ({cheaper.node.name}) has {cheaper.bandwidth:.2f} times the memory bandwidth{how} "
            f"for {usd(cheaper.usd_less)} less per GPU-hour: {usd(cost)} in the window, "
            f"{dated((scope.book.saving_price(group.nodes[0]), cheaper.price))}."
        ),
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes)


RULE = RuleDescription(
    id="over-tier", rank=7, fact="a cheaper GPU is enough", judge=over_tier, answered_by={"move-sku": 3}, waste="tier"
)
