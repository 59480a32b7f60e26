"""Which source each metric of each rule has: the only place that a new rule is added to (see the package)."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.advice_types import Evidence, Finding
from .features import FEATURES
from .source_kinds import Outside, Reckoned, Source, Sql, in_bins, percentile, weighted


def _mean_of_gpus(column: str) -> str:
    """The mean over GPUs of each one's mean over the time that nobody held it."""
    known = f"sum(CASE WHEN {column} IS NOT NULL THEN seconds * part END)"
    return (
        f"SELECT avg(x) FROM (SELECT sum({column} * seconds * part) / {known} AS x FROM spare GROUP BY node, gpu_uuid)"
    )


_OVER_IDLE = f"SELECT ({_mean_of_gpus('power_watts')}) / ({_mean_of_gpus('idle_power_watts')})"
_IDLE_HOURS = "SELECT sum(seconds * part) / 3600 FROM spare WHERE idle"
_GPU_HOURS = Sql(("used",), "SELECT sum(seconds * part) / 3600 FROM used")
_GPU_COUNT = "SELECT count(DISTINCT node || ' ' || gpu_uuid) FROM uses WHERE workload_id IN ({now})"
_HOURS_OBSERVED = Sql(("used",), f"SELECT sum(seconds * part) / 3600 / ({_GPU_COUNT}) FROM used")
_NODE_HOURS = Sql(("nodehours",), "SELECT min(hours) FROM nodehours")
# What stood idle at the end of a job that has worked; all of it where nothing ever worked.
_HELD_IDLE = Sql(
    ("held_idle", "trailing"),
    "SELECT sum(CASE WHEN {never_worked} THEN h.hours ELSE min(t.hours, h.hours) END)"
    " FROM held_idle h JOIN trailing t ON t.workload_id = h.workload_id",
)
_LABELLED = (
    "SELECT workload_id, node, gpu_uuid, ts, seconds, bottleneck, fault, engine_active, sm_active, sm_occupancy,"
    " tensor_sustained, hbm_sustained, nvlink_sustained, network_sustained, pcie_sustained, clock_ratio, throttled"
    " FROM used WHERE now ORDER BY workload_id, node, gpu_uuid, ts"
)
_BY_LABELS = (
    "each row has the label (bottleneck) of the first question of rules/bottlenecks.yaml that its measures answer, or "
    "another that the kind of work settles (docs/method.md); the number is"
)
_ENERGY = (
    "SELECT workload_id, node, gpu_uuid, ts, seconds, power_watts, tensor_sustained, hbm_sustained, clock_ratio"
    " FROM used WHERE now AND NOT idle"
)


def _labelled(what: str) -> Reckoned:
    return Reckoned(f"{_BY_LABELS} {what}", ("used",), _LABELLED)


def _power_model(what: str) -> Reckoned:
    return Reckoned(f"{what}, by the published curve of power over clock (docs/moves.md)", ("used",), _ENERGY)


def _reached(what: str, share: float) -> str:
    """Use of compute or memory that a share of seconds does not exceed: by bins, else by rows."""
    rows = percentile("used", f"{what}_sustained", share)
    return f"coalesce(({in_bins(f'{what}_seconds', share)}), ({rows}))"


def _peaks() -> str:
    known = [
        f"SELECT {_reached('tensor', 0.99)} AS peak", f"SELECT {_reached('hbm', 0.99)}",
        *(percentile("used", f"{link}_sustained", 0.99) for link in ("nvlink", "network", "pcie")),
    ]  # fmt: skip
    return "SELECT max(peak) FROM (\n" + "\nUNION ALL\n".join(known) + ")"


def _group_fault() -> dict[str, Source]:
    return {
        "contradiction": Sql(("used",), weighted("fault")),
        "engine_active": Sql(("used",), weighted("engine_active")),
        "tensor_active": Sql(("used",), weighted("tensor_use")),
        "gpu_hours": Sql(("used",), f"SELECT sum(seconds * part) / 3600 * ({weighted('fault')}) FROM used"),
    }


RULES: Mapping[str, Mapping[str, Source]] = {
    "idle": {
        "engine_active": Sql(("spare",), _mean_of_gpus("engine_active")),
        "dram_active": Sql(("spare",), _mean_of_gpus("hbm_use")),
        "power_over_idle": Sql(("spare",), _OVER_IDLE),
        "idle_hours": Sql(("spare",), _IDLE_HOURS),
        "hours_observed": _NODE_HOURS,
        "gpu_hours": Sql(("spare",), _IDLE_HOURS),
        "cost_usd": Sql(
            ("spare", "nodehours"),
            f"SELECT ({_IDLE_HOURS}) * {{node_usd}} / gpu_count FROM nodehours",
        ),
    },
    "held-idle": {
        "engine_active": Sql(("used",), "SELECT avg(engine_active) FROM used WHERE bottleneck = 'idle'"),
        "dram_active": Sql(("used",), "SELECT avg(hbm_use) FROM used WHERE bottleneck = 'idle'"),
        "power_over_idle": Sql(
            ("used",),
            f"SELECT coalesce(({weighted('power_over_idle')}), (SELECT avg(power_watts) / max(idle_power_watts)"
            " FROM used WHERE bottleneck = 'idle'))",
        ),
        "mem_used": Sql(("used",), "SELECT avg(mem_used) FROM used WHERE bottleneck = 'idle'"),
        "held_idle": _HELD_IDLE,
        "last_worked": Sql(
            ("used",),
            "SELECT strftime('%Y-%m-%dT%H:%M:%SZ', max(ts), 'unixepoch') FROM used WHERE now AND bottleneck <> 'idle'",
        ),
        "gpu_hours": _HELD_IDLE,
    },
    "idle-fabric": {
        "fabric_util_p995": Sql(
            ("fabrics",),
            "SELECT max(CASE WHEN highest IS NULL THEN p995 ELSE min(p995, highest) END) FROM fabrics",
        ),
        "fabric_util_max": Sql(("fabrics",), "SELECT max(highest) FROM fabrics"),
        "fabric_hours": Sql(("fabrics",), "SELECT min(hours) FROM fabrics"),
        "fabric_hours_known": Sql((), "SELECT min(hours) FROM port_history WHERE node IN ({finding_nodes})"),
        "compute_ports": Sql(("fabrics",), "SELECT sum(ports) FROM fabrics"),
        "fabric_premium": Outside(
            "the node's price less that of the same node without the fabric, at the same provider and region; the "
            "finding says which, or which share was assumed (rules/premiums.yaml)"
        ),
    },
    "too-many-gpus": {
        "use_p99": Sql(("tensor_seconds", "hbm_seconds", "used"), _peaks()),
        "demand_p95": Sql(("load",), percentile("load", "load", 0.95)),
        "gpus_held": Sql((), _GPU_COUNT),
    },
    "over-tier": {
        "compute_use_p95": Sql(("tensor_seconds", "used"), f"SELECT {_reached('tensor', 0.95)}"),
        "bound_by_memory": _labelled("the hours labelled hbm-bandwidth over all that are not idle"),
        "cheaper_sku": Outside("the catalog and the prices: the cheapest such node of this provider and region"),
        "cheaper_sku_bandwidth": Outside(
            "the catalog: memory bandwidth times its sustained share (achieved.mem), of the cheaper GPU over this one"
        ),
        "price_less": Outside("the prices: of a node over its GPUs, here less there"),
        "gpu_hours": _GPU_HOURS,
    },
    "under-tier": {
        "bound_by_link": _labelled("the hours labelled network, or pcie and nvlink, over all that are not idle"),
        "link_use_p50": Sql(("used",), percentile("used", "{link}", 0.5)),
        "hours_observed": _HOURS_OBSERVED,
    },
    "memory-unused": {
        "mem_used_max": Sql(
            ("shaped",),
            "SELECT max(coalesce((SELECT max(mem_used) FROM used), 0),"
            " coalesce((SELECT max(mem_used_max) FROM shaped WHERE now), 0))",
        ),
        "mem_total": Outside("the catalog's size of this GPU's memory"),
        "hours_observed": _HOURS_OBSERVED,
        "gpu_hours": _GPU_HOURS,
    },
    "idle-nvlink": {
        "nvlink_util_p995": Sql(("link_p995",), "SELECT max(p995) FROM link_p995"),
        "hours_observed": _NODE_HOURS,
        "nvlink_premium": Outside("the prices of this node and of one without NVLink, or rules/premiums.yaml"),
        "gpu_hours": _GPU_HOURS,
    },
    "energy": {
        "power_at_work": Sql(
            ("used",),
            "SELECT sum(power_watts * seconds) / sum(seconds) FROM used"
            " WHERE now AND NOT idle AND power_watts IS NOT NULL",
        ),
        "power_after": _power_model("the power that the same rows would draw"),
        "energy_saved": _power_model("energy of the same work, 1 less after over before"),
        "energy_saved_per_month": _power_model("that share of the energy of a month at this power"),
        "slowdown_expected": _power_model("the time that the same work takes longer"),
        "gpu_hours": _GPU_HOURS,
    },
    "fix-first": {
        "held_back": _labelled("the hours with this label over all that are not idle"),
        "lost_at_most": _labelled("the part of each such row that the engine (or the clock) rested, over all hours"),
        "bottleneck": _labelled("the one of host-input, latency, straggler and throttled with most hours"),
    },
    "telemetry-fault": {
        **_group_fault(),
        "contradiction_hours": Outside("the rows of the one GPU whose two signals disagree longest (docs/method.md)"),
        "contradiction_since": Outside("the first of the rows of that GPU in which its two signals disagree"),
        "power_over_idle": Sql(
            ("used", "spare"),
            f"SELECT coalesce(({weighted('power_over_idle')}), ({_OVER_IDLE}))",
        ),
        "hours_without_workload": Sql(("spare",), "SELECT sum(seconds * part) / 3600 FROM spare"),
    },
}


def source_of(finding: Finding, metric: str) -> Source | None:
    """Where a metric of a finding comes from; None: nobody said so, which a test keeps from happening.

    A rule of one's own is made of features.
    """
    known = RULES.get(finding.rule)
    return FEATURES.get(metric) if known is None else known.get(metric)


def numbers_of(finding: Finding) -> tuple[Evidence, ...]:
    """Every number that a finding rests on: its evidence, then GPU-hours and cost where the registry tells them."""
    told = {e.metric for e in finding.evidence}
    sums = (
        Evidence("gpu_hours", finding.gpu_hours, None, "GPU-hours"),
        Evidence("cost_usd", finding.cost_usd, None, "USD"),
    )
    extra = (s for s in sums if s.metric not in told and s.value is not None)
    return (*finding.evidence, *(s for s in extra if source_of(finding, s.metric) is not None))
