"""Where the features of workloads come from (`verdicts/features/features.py`), which rules of one's own are made of.

A feature is known of every workload that holds GPUs now; `{pick}` (min or max) is the one that the rule looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...rules.policy.features import FEATURES as MEANINGS
from ..core.number_sources import NumberSource, Reckoned, Sql, in_bins, weighted

_PICK = "{pick}"
# Means over observed time: the feature and the column of judged_rows.
_MEANS = {
    "engine_active": "engine_active", "sm_active": "sm_active", "sm_occupancy": "sm_occupancy",
    "tensor_utilization": "tensor_use", "hbm_utilization": "hbm_use", "nvlink_utilization": "nvlink_use",
    "fabric_utilization": "fabric_use", "pcie_utilization": "pcie_use", "tensor_of_sustained": "tensor_sustained",
    "hbm_of_sustained": "hbm_sustained", "nvlink_of_sustained": "nvlink_sustained",
    "fabric_of_sustained": "fabric_use", "pcie_of_sustained": "pcie_sustained", "duty": "duty",
    "throttled": "throttled", "power_watts": "power_watts", "power_over_idle": "power_over_idle",
    "idle_share": "idle", "fault_share": "fault",
}  # fmt: skip
_BINNED = {
    "tensor_of_sustained_p95": ("tensor", 0.95), "tensor_of_sustained_p99": ("tensor", 0.99),
    "hbm_of_sustained_p95": ("hbm", 0.95), "hbm_of_sustained_p99": ("hbm", 0.99),
    "sm_active_p99": ("sm", 0.99), "nvlink_utilization_p995": ("nvlink", 0.995),
}  # fmt: skip


def _of_each(expression: str, table: str = "used") -> str:
    return f"SELECT {{pick}}(x) FROM (SELECT {expression} AS x FROM {table} WHERE now GROUP BY workload_id)"


def _sources() -> dict[str, NumberSource]:
    known: dict[str, NumberSource] = {name: Sql(("used",), weighted(column, _PICK)) for name, column in _MEANS.items()}
    known |= {
        name: Sql((f"{what}_seconds",), in_bins(f"{what}_seconds", share, _PICK))
        for name, (what, share) in _BINNED.items()
    }
    known |= {
        "hours": Sql(("used",), _of_each("sum(seconds) / 3600")),
        "gpus": Sql(
            (),
            "SELECT {pick}(x) FROM (SELECT count(DISTINCT node || ' ' || gpu_uuid) AS x FROM uses"
            " WHERE workload_id IN ({now}) GROUP BY workload_id)",
        ),
        "nodes": Sql(
            (),
            "SELECT {pick}(x) FROM (SELECT count(DISTINCT node) AS x FROM uses WHERE workload_id IN ({now})"
            " GROUP BY workload_id)",
        ),
        "engine_active_max": Sql(("used",), _of_each("max(engine_active_max)")),
        "mem_max": Sql(("shaped",), _of_each("max(mem_used_max)", "shaped")),
        "clock_ratio": Sql(
            ("shaped",),
            "SELECT {pick}(x) FROM (SELECT sum(clock_ratio * seconds) / sum(CASE WHEN clock_ratio IS NOT NULL THEN"
            " seconds END) AS x FROM shaped WHERE now AND NOT idle AND NOT fault GROUP BY workload_id)",
        ),
    }
    for name, (unit, meaning) in MEANINGS.items():
        rows = (
            "SELECT workload_id, node, gpu_uuid, ts, seconds, idle, engine_active, sm_active, tensor_use, hbm_use,"
            " nvlink_use, pcie_use, mem_used FROM used WHERE now"
        )
        known.setdefault(name, Reckoned(f"{meaning} ({unit}), of the rows' minutes and hours", ("used",), rows))
    return known


FEATURES: Mapping[str, NumberSource] = _sources()
