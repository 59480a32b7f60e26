"""More GPUs than the demand needs: fewer of them would carry it, or a slice of one."""

from __future__ import annotations

from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ...core.number_sources import GPU_COUNT, Sql, percentile_of, reached
from ..base.workload_groups import TRAINING, Group
from ..context.finding_context import FindingContext
from ..context.rule_context import (
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    finding_of,
    measured_percentile,
)


def too_many_gpus(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Groups of which no resource is used much at any time, and whose demand fewer GPUs would carry."""
    found: list[FindingContext] = []
    for group in scope.judged:
        demand = group.demand_p95
        if group.kind in TRAINING or group.gpu_count < 2 or demand is None:
            continue
        if group.observed_hours < rule.value("coverage_hours"):
            continue
        label, top = peak_use(group)
        needed = group.right_size(demand, rule.value("headroom"))
        if top >= rule.value("u_p99_max") or needed >= group.gpu_count:
            continue
        found.append(_finding(scope, rule, group, label=label, top=top, demand=demand, needed=needed))
    return found, []


def peak_use(group: Group) -> tuple[str, float]:
    """The resource that is used most at the 99th percentile, and by how much of what the SKU sustains."""
    # From the merged bins where they are known: they see the seconds that an hour's mean hides.
    peaks = {
        "compute": group.feature("tensor_of_sustained_p99") or measured_percentile(group.use.u_c, 99),
        "memory bandwidth": group.feature("hbm_of_sustained_p99") or measured_percentile(group.use.u_m, 99),
        "NVLink": measured_percentile(group.use.u_n, 99),
        "the network": measured_percentile(group.use.u_i, 99),
        "PCIe": measured_percentile(group.use.u_p, 99),
    }
    known = {name: value for name, value in peaks.items() if value is not None}
    return max(known.items(), key=lambda item: item[1])


def _finding(
    scope: RuleContext, rule: WasteRule, group: Group, *, label: str, top: float, demand: float, needed: int
) -> FindingContext:
    surplus = group.gpu_hours * (1 - needed / group.gpu_count)
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("use_p99", top, rule.value("u_p99_max"), "ratio of what the SKU sustains"),
            Evidence("demand_p95", demand, rule.value("headroom"), "ratio of what the SKU sustains"),
            Evidence("gpus_held", float(group.gpu_count), float(needed), "GPUs"),
        ),
        gpu_hours=surplus,
        cost=scope.cost(surplus, group.nodes),
        values={
            "gpu_hours": f"{group.gpu_hours:,.0f}", "u_max": as_percent(top), "u_label": label, "count_needed": needed,
            "headroom": as_percent(demand * group.gpu_count / needed),
        },
        # Rows are hours: minutes of a peak hide in them.
        sure=0.9 * group.lead.kind.confidence,
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes)


_PEAKS = (
    f"SELECT ({reached('tensor', 0.99)}) AS peak",
    reached("hbm", 0.99),
    *(percentile_of("used", f"{link}_sustained", 0.99) for link in ("nvlink", "network", "pcie")),
)

RULE = RuleDescription(
    id="too-many-gpus",
    rank=4,
    judge=too_many_gpus,
    answered_by={"reduce-gpus": 1, "mig-slice": 1, "move-sku": 5},
    waste="surplus",
    metrics={
        "use_p99": Sql(
            ("tensor_seconds", "hbm_seconds", "used"),
            "SELECT max(peak) FROM (\n" + "\nUNION ALL\n".join(_PEAKS) + ")",
        ),
        "demand_p95": Sql(("load",), percentile_of("load", "load", 0.95)),
        "gpus_held": GPU_COUNT,
    },
)
