"""Where the features of workloads come from (`verdicts/features/features.py`), which rules of one's own are made of.

A feature is told of every workload that holds GPUs now; `{pick}` (min or max) is the one that the rule looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...rules.policy.features import FEATURES as MEANINGS
from ..core.number_sources import NumberSource, Reckoned, Sql, in_bins, weighted

_PICK = "{pick}"
_MEANS = (
    "g", "sm", "o", "c", "m", "n", "i", "p", "u_c", "u_m", "u_n", "u_i", "u_p", "duty", "throttled",
)  # fmt: skip
_BINNED = {
    "u_c_p95": ("tensor_seconds", 0.95), "u_c_p99": ("tensor_seconds", 0.99), "u_m_p95": ("dram_seconds", 0.95),
    "u_m_p99": ("dram_seconds", 0.99), "sm_p99": ("sm_seconds", 0.99), "n_p995": ("nvlink_seconds", 0.995),
}  # fmt: skip


def _of_each(expression: str, table: str = "used") -> str:
    return f"SELECT {{pick}}(x) FROM (SELECT {expression} AS x FROM {table} WHERE now GROUP BY workload_id)"


def _told() -> dict[str, NumberSource]:
    told: dict[str, NumberSource] = {name: Sql(("used",), weighted(name, _PICK)) for name in _MEANS}
    told |= {name: Sql((table, "edges"), in_bins(table, share, _PICK)) for name, (table, share) in _BINNED.items()}
    told |= {
        "power_watts": Sql(("used",), weighted("power", _PICK)),
        "power_over_idle": Sql(("used",), weighted("over_idle", _PICK)),
        "idle_share": Sql(("used",), weighted("idle", _PICK)),
        "fault_share": Sql(("used",), weighted("fault", _PICK)),
        "hours": Sql(("used",), _of_each("sum(seconds) / 3600")),
        "gpus": Sql(
            ("uses",),
            "SELECT {pick}(x) FROM (SELECT count(DISTINCT node || ' ' || gpu_uuid) AS x FROM uses"
            " WHERE workload_id IN ({now}) GROUP BY workload_id)",
        ),
        "nodes": Sql(
            ("uses",),
            "SELECT {pick}(x) FROM (SELECT count(DISTINCT node) AS x FROM uses WHERE workload_id IN ({now})"
            " GROUP BY workload_id)",
        ),
        "g_max": Sql(("used",), _of_each("max(g_max)")),
        "mem_max": Sql(("shaped",), _of_each("max(mem_max)", "shaped")),
        "clock_ratio": Sql(
            ("shaped",),
            "SELECT {pick}(x) FROM (SELECT sum(clock_ratio * seconds) / sum(CASE WHEN clock_ratio IS NOT NULL THEN"
            " seconds END) AS x FROM shaped WHERE now AND NOT idle AND NOT fault GROUP BY workload_id)",
        ),
    }
    for name, (unit, meaning) in MEANINGS.items():
        rows = "SELECT workload_id, node, gpu_uuid, ts, seconds, idle, g, sm, c, m, n, p, mem FROM used WHERE now"
        told.setdefault(name, Reckoned(f"{meaning} ({unit}), of the rows' minutes and hours", ("used",), rows))
    return told


FEATURES: Mapping[str, NumberSource] = _told()
