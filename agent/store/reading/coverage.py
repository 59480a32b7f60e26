"""The SELECTs that say how much of what a database holds: counts and seconds by device, no rows of time.

What is rolled up is asked of hours, what came after of minutes, then of samples. ``:start`` and ``:end`` bound `ts` as
(start, end].
"""

from __future__ import annotations

from collections.abc import Mapping

# Measure -> the metrics of which one is enough to tell it, the one whose samples are counted first.
GPU_METRICS: Mapping[str, list[str]] = {
    "engine_active": ["gpu_util", "sm_active"],
    "sm_active": ["sm_active"],
    "tensor_active": ["tensor_active"],
    "dram_active": ["dram_active"],
    "mem_used": ["mem_used_bytes"],
    "power": ["power_watts"],
    "clocks": ["sm_clock_hertz"],
    "nvlink": ["nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"],
    "pcie": ["pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"],
}
# The families of a device, the coarsest first, and how long their rows are (s); 0: single samples.
FAMILIES: Mapping[str, float] = {"hours": 3600.0, "minutes": 60.0, "samples": 0.0}

NODES = (
    "SELECT node, provider, region, node_sku, node_sku_source, gpu_count, agent_version, first_seen, last_seen"
    " FROM nodes"
)
ABSENCES = (
    "SELECT node, gpu_uuid, metric, reason, detail, remedy, scope, device FROM absences"
    " WHERE since < :end AND (until IS NULL OR until > :start)"
)


def gpus(family: str, busy_level: str = ":busy") -> str:
    """By node and GPU: first and last moment, seconds observed, seconds above ``:busy``, then for each of `GPU_METRICS`
    the seconds in which it was told and its samples."""
    rolled = FAMILIES[family] > 0
    seconds = "observed_seconds" if rolled else "interval_seconds"
    ending = "_mean" if rolled else ""
    parts = [
        "node", "gpu_uuid", "min(ts - interval_seconds)", "max(ts)", f"sum({seconds})",
        f"sum(CASE WHEN coalesce(gpu_util{ending}, sm_active{ending}) > {busy_level} THEN {seconds} END)",
    ]  # fmt: skip
    for metrics in GPU_METRICS.values():
        known = (
            f"coalesce({', '.join(f'{one}{ending}' for one in metrics)})" if len(metrics) > 1 else metrics[0] + ending
        )
        parts.append(f"sum(CASE WHEN {known} IS NOT NULL THEN {seconds} END)")
        parts.append(f"sum({metrics[0]}_n)" if rolled else f"count({metrics[0]})")
    return _grouped(parts, f"gpu_{family}", "node, gpu_uuid")


def ports(family: str) -> str:
    """By port: node, device, port, role, link layer, seconds observed."""
    seconds = "observed_seconds" if FAMILIES[family] > 0 else "interval_seconds"
    parts = ["node", "device", "port", "role", "link_layer", f"sum({seconds})"]
    return _grouped(parts, f"fabric_{family}", "node, device, port, role, link_layer")


def hosts(family: str) -> str:
    """By node: seconds in which the use of the processors was told."""
    rolled = FAMILIES[family] > 0
    seconds, ending = ("observed_seconds", "_mean") if rolled else ("interval_seconds", "")
    return _grouped(
        ["node", f"sum(CASE WHEN cpu_util{ending} IS NOT NULL THEN {seconds} END)"], f"host_{family}", "node"
    )


def _grouped(parts: list[str], view: str, by: str) -> str:
    columns = ", ".join(parts)
    return f"SELECT {columns} FROM {view} WHERE ts > :start AND ts <= :end GROUP BY {by}"  # noqa: S608 - constants
