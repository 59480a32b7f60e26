"""Training that waits for links its nodes lack: a fabric between them, or NVLink within."""

from __future__ import annotations

from collections.abc import Iterable

from ....rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ...core.advice_types import Evidence
from ...core.coded_text import coded
from ..finding import as_percent
from ..fleet import Fleet
from ..groups import Group
from ..rule import Verdict, Why, WorkloadRule, busy_share, finding_of, kind_chance, measured_percentile, too_short


class UnderTier(WorkloadRule):
    """Training bound by the network on nodes without RDMA, or by PCIe on nodes without NVLink."""

    id = "under-tier"
    waste = "slowed"
    fact = "waits for a slow link"
    answered_by = {"swap-placement": 2, "move-sku": 4}

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in super().scope(fleet) if group.kind in (*TRAINING_KINDS, "unknown"))

    def judge(self, fleet: Fleet, group: Group) -> Verdict:
        limits, node = self.limits(fleet, group), group.nodes[0]
        if short := too_short(fleet, limits, group):
            return short
        least = limits.value("share_min")
        network = busy_share(group, "network")
        inside = busy_share(group, "pcie") + busy_share(group, "nvlink")
        slow_network, slow_inside = fleet.without_rdma(node), fleet.without_nvlink(node)
        sku = fleet.sku_of(node)
        may_be_slow_network = slow_network or (node.fabric is None and (sku is None or sku.fabric.rdma is None))
        may_be_slow_inside = slow_inside or (sku is None and not fleet.has_nvlink(node))
        most = network * may_be_slow_network + inside * may_be_slow_inside
        network, inside = network * slow_network, inside * slow_inside
        share = network + inside
        if share < least:
            if most >= least:
                return coded("links-unknown", "the links of its nodes are unknown")
            unknown = busy_share(group, "unknown") if may_be_slow_network or may_be_slow_inside else 0.0
            return Why.BOTTLENECK_UNKNOWN if most + unknown >= least else None
        # Work of unknown kind waits in collectives as training does, unless it is likelier to answer requests.
        trains = kind_chance(group, *TRAINING_KINDS)
        if group.kind == "unknown" and trains <= kind_chance(group, *ON_DEMAND_KINDS):
            return Why.KIND_UNKNOWN
        link, use = ("the network", group.use.u_i) if network >= inside else ("PCIe", group.use.u_p)
        # The use of the line is the least share of the time that it takes; the rest of the wait may overlap with work.
        line = measured_percentile(use, 50)
        lost = None if line is None else group.gpu_hours * min(line, share)
        finding = finding_of(
            fleet, limits, group,
            evidence=(
                Evidence("bound_by_link", share, least, "ratio of busy time"),
                Evidence("link_use_p50", line, None, "ratio of line rate"),
                Evidence("hours_observed", group.observed_hours, limits.value("coverage_hours"), "hours"),
            ),
            gpu_hours=group.gpu_hours if lost is None else lost,
            cost=None if lost is None else fleet.cost(lost, group.nodes),
            values={"share": as_percent(share), "link": link, "lost": None if lost is None else f"{lost:,.0f}"},
            sure=trains * group.lead.bottleneck.confidence,
        )  # fmt: skip
        return self.found(finding, group, group.nodes)
