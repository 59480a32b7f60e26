"""Training that waits for links its nodes lack: a fabric between them, or NVLink within."""

from __future__ import annotations

from collections.abc import Iterable

from ....rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Finding
from ...core.coded_text import coded
from ..finding import as_percent
from ..fleet import Fleet
from ..groups import Group
from ..rule import Verdict, Why, WorkloadRule, kind_chance

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
