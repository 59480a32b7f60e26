"""Nodes of the wrong kind: dearer than the work needs, or with links that it waits for."""

from collections.abc import Iterable

from ....rules.catalog.types import GpuSku, NodeSku, Price
from ....rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Finding
from ...core.coded_text import CodedText, coded
from ...core.formatting import dated, usd
from ..constraints import gates
from ..fleet import Fleet, as_percent
from ..groups import Group
from ..rule import Verdict, Why, WorkloadRule, kind_chance

# What memory-bound work waits for is the same whatever its kind.
_SURE_OF_ANY = 0.8
# Gates of a cheaper GPU that one more measurement may open.
_NOT_MEASURED = {
    "memory-not-measured": Why.MEMORY_NOT_MEASURED,
    "nvlink-not-measured": Why.NVLINK_NOT_MEASURED,
    "fabric-not-measured": coded("fabric-not-measured", "its fabric traffic was not measured"),
    "cpu-need-unknown": coded("cpu-not-measured", "its CPU use was not measured"),
}


class OverTier(WorkloadRule):
    """Work bound by memory bandwidth whose compute stays low, for which nothing forbids a cheaper GPU as fast."""

    id = "over-tier"
    fact = "a cheaper GPU is enough"
    answered_by = {"move-sku": 3}
    waste = "tier"
    needs_coverage = True
    contradicted_by = frozenset({"shape-compute-bound", "limited-by-compute"})
    contradicting_limit = "compute"

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        compute, bound, least = group.compute_p95, group.busy_share("hbm-bandwidth"), limits.value("hbm_share_min")
        uses_compute = compute is not None and compute >= limits.value("u_c_p95_max")
        if uses_compute or bound + group.busy_share("unknown") < least:
            return None
        if compute is None:
            return Why.COMPUTE_NOT_MEASURED
        if bound < least:
            return Why.BOTTLENECK_UNKNOWN
        cheaper = _cheaper(fleet, limits, group)
        if not isinstance(cheaper, tuple):
            return cheaper
        node, price, less, bandwidth, assumed = cheaper
        cost, prices = less * group.gpu_hours, (fleet.book.saving_price(group.nodes[0]), price)
        how = " (assumed: lowest sustained share measured for its architecture)" if assumed else ""
        sure = max(group.lead.kind.confidence, _SURE_OF_ANY) * group.lead.bottleneck.confidence
        # The same of a bandwidth that was read off its siblings, whose shares differ by up to an eighth.
        return self.found(
            fleet, group,
            evidence=(
                ("compute_use_p95", compute, "u_c_p95_max", "ratio of what the SKU sustains"),
                ("bound_by_memory", bound, "hbm_share_min", "ratio of busy time"),
                ("cheaper_sku", node.name, None, "node SKU"),
                ("cheaper_sku_bandwidth", bandwidth, "bandwidth_min", "ratio of the current SKU's sustained bandwidth"),
                ("price_less", less, None, "USD per GPU-hour"),
            ),
            gpu_hours=group.gpu_hours, cost=cost,
            values={"u_max": as_percent(compute), "share": as_percent(bound), "cheaper_sku": node.gpu},
            sure=sure * (0.8 if assumed else 1.0),
            after=f"{node.gpu} ({node.name}) has {bandwidth:.2f} times the memory bandwidth{how} for {usd(less)} less "
            f"per GPU-hour: {usd(cost)} in the window, {dated(prices)}.",
        )  # fmt: skip


def _cheaper(
    fleet: Fleet, limits: WasteRule, group: Group
) -> tuple[NodeSku, Price, float, float, bool] | CodedText | None:
    """The cheapest such node of the same provider and region, its price, the dollars that a GPU-hour costs less, what
    its memory sustains over the present, and whether that is assumed. Or why it is unknown; None: there is none."""
    here, gpus, source = group.nodes[0], fleet.catalog.gpus, fleet.gpu_of(group)
    paid, sustained = fleet.book.saving_price(here), _sustained(source)
    if source is None:
        return Why.GPU_UNKNOWN
    if sustained is None:
        return coded("bandwidth-unknown", "no measurement tells the memory bandwidth that its GPU sustains")
    if not here.provider or not here.gpu_count or paid is None:
        return coded("no-price", "the provider or the price of its node is unknown")
    rate = paid.usd_per_hour / here.gpu_count
    best = None
    closed: CodedText | None = None
    for node in fleet.book.for_sale(here):
        price, gpu = fleet.book.beside(here, node.name), fleet.catalog.gpu(node.gpu)
        there = _sustained(gpu, gpus.values())
        if price is None or gpu is None or there is None or gpu.name == source.name:
            continue
        less = rate - price.usd_per_hour / node.gpu_count
        if there < limits.value("bandwidth_min") * sustained or less < limits.value("price_drop_min") * rate:
            continue
        if best is None or less > best[2]:
            if not (against := gates(group, source, fleet.book.sku_of(here), gpu, node)):
                best = node, price, less, there / sustained, gpu.achieved.mem is None
            elif all(reason.code in _NOT_MEASURED for reason in against):
                closed = closed or _NOT_MEASURED[against[0].code]
    return best or closed


def _sustained(sku: GpuSku | None, siblings: Iterable[GpuSku] = ()) -> float | None:
    """Bytes per second that memory-bound work reaches; None: not measured. Where it was not, it is the bandwidth at the
    lowest share that a sibling of the same architecture reached, for memory and its controller come with that."""
    if sku is None:
        return None
    kin = [sibling for sibling in siblings if sibling.vendor == sku.vendor and sibling.architecture == sku.architecture]
    shares = [gpu_sku.achieved.mem for gpu_sku in ([sku] if sku.achieved.mem else kin) if gpu_sku.achieved.mem]
    return sku.mem_bandwidth_bytes_per_second * min(shares) if shares else None


# An exchange at this median use of the line rate takes an eighth of the time at most, by rates of NCCL's all-reduce.
_SILENT = 0.05


class UnderTier(WorkloadRule):
    """Training bound by the network on nodes without RDMA, or by PCIe on nodes without NVLink."""

    id = "under-tier"
    waste = "slowed"
    fact = "waits for a slow link"
    answered_by = {"swap-placement": 2, "move-sku": 4}
    needs_coverage = True
    contradicted_by = frozenset({"ports-quiet", "nvlink-quiet", "limited-by-latency"})

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in super().scope(fleet) if group.kind in (*TRAINING_KINDS, "unknown"))

    def refuted(self, fleet: Fleet, group: Group, finding: Finding) -> str | None:  # noqa: ARG002
        """A link that is waited for carries something."""
        line = next(e.value for e in finding.evidence if e.metric == "link_use_p50")
        return "link-silent" if isinstance(line, float) and line < _SILENT else None

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        node = group.nodes[0]
        least, sku, nvlink = limits.value("share_min"), fleet.book.sku_of(node), fleet.nvlink(node)
        network, inside = group.busy_share("network"), group.busy_share("pcie", "nvlink")
        slow_network, slow_inside = fleet.without_rdma(node), nvlink is False
        may_be_slow_network = slow_network or (node.fabric is None and (sku is None or sku.fabric.rdma is None))
        may_be_slow_inside = slow_inside or (sku is None and nvlink is None)
        most = network * may_be_slow_network + inside * may_be_slow_inside
        network, inside = network * slow_network, inside * slow_inside
        share = network + inside
        if share < least:
            if most >= least:
                return coded("links-unknown", "the links of its nodes are unknown")
            unknown = group.busy_share("unknown") if may_be_slow_network or may_be_slow_inside else 0.0
            return Why.BOTTLENECK_UNKNOWN if most + unknown >= least else None
        # Work of unknown kind waits in collectives as training does, unless it is likelier to answer requests.
        trains = kind_chance(group, *TRAINING_KINDS)
        if group.kind == "unknown" and trains <= kind_chance(group, *ON_DEMAND_KINDS):
            return Why.KIND_UNKNOWN
        link, use = ("the network", "u_i") if network >= inside else ("PCIe", "u_p")
        # The use of the line is the least share of the time that it takes; the rest of the wait may overlap with work.
        line = group.use_percentile(use, 50)
        lost = None if line is None else group.gpu_hours * min(line, share)
        return self.found(
            fleet, group,
            evidence=(
                ("bound_by_link", share, "share_min", "ratio of busy time"),
                ("link_use_p50", line, None, "ratio of line rate"),
                ("hours_observed", group.observed_hours, "coverage_hours", "hours"),
            ),
            gpu_hours=group.gpu_hours if lost is None else lost,
            cost=None if lost is None else fleet.cost(lost, group.nodes),
            values={"share": as_percent(share), "link": link, "lost": None if lost is None else f"{lost:,.0f}"},
            sure=trains * group.lead.bottleneck.confidence,
        )  # fmt: skip
