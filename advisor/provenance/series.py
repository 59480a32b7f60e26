"""Which columns of which view each number is made of: the rules' metrics, and the features of rules of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Series(NamedTuple):
    """Columns of one view of the node database (``docs/reference/views.md``)."""

    view: str
    columns: tuple[str, ...]


_ENGINE = ("gpu_util_mean", "sm_active_mean")
_TENSOR = ("tensor_active_mean", "sm_clock_hertz_mean")
_HBM = ("dram_active_mean", "mem_clock_hertz_mean")
_NVLINK = ("nvlink_tx_bytes_per_second_mean", "nvlink_rx_bytes_per_second_mean")
_PCIE = ("pcie_tx_bytes_per_second_mean", "pcie_rx_bytes_per_second_mean")
_POWER = ("power_watts_mean",)
_MEMORY = ("mem_used_bytes_mean", "mem_used_bytes_max", "mem_total_bytes")
_LABELS = (*_ENGINE, *_TENSOR, *_HBM, *_NVLINK, *_PCIE, "throttled_fraction")
_UTIL = ("util_mean", "util_max", "util_p95")
_HELD = Series("workload_gpus", ("workload_id", "ts_start", "ts_end", "shared"))

_BY_SERIES: Mapping[Series, str] = {
    Series("gpu_hours", ("observed_seconds",)): "hours hours_observed hours_without_workload resolution_seconds",
    Series("gpu_hours", _ENGINE): (
        "engine_active engine_active_row_p95 idle_hours idle_share gpu_hours held_idle last_worked sm_active "
        "active_share active_engine active_fill active_swing rest_hours_max rests_per_day between_share "
        "working_hours_share night_level day_before weekend_level idle_stretch_hours diurnal_share "
        "diurnal_amplitude swing drift"
    ),
    Series("gpu_hours", ("gpu_util_max", "sm_active_max")): "engine_active_max",
    Series("gpu_hours", ("sm_active_bins",)): "sm_active_p99",
    Series("gpu_hours", ("sm_active_mean", "sm_active_cv")): "sm_active_cv sync",
    Series("gpu_hours", ("sm_occupancy_mean",)): "sm_occupancy",
    Series("gpu_hours", _TENSOR): "tensor_active tensor_utilization tensor_of_sustained tensor_of_sustained_busy_p95",
    Series("gpu_hours", ("tensor_active_bins",)): "compute_use_p95 tensor_of_sustained_p95 tensor_of_sustained_p99",
    Series("gpu_hours", ("fp64_active_mean", "fp32_active_mean", "sm_clock_hertz_mean")): "vector_utilization",
    Series("gpu_hours", _HBM): "dram_active hbm_utilization hbm_of_sustained hbm_of_sustained_busy_p95",
    Series("gpu_hours", ("dram_active_bins",)): "hbm_of_sustained_p95 hbm_of_sustained_p99",
    Series("gpu_hours", (*_TENSOR, *_HBM)): "memory_over_compute",
    Series("gpu_hours", (*_ENGINE, *_TENSOR)): "tensor_per_engine tensor_per_sm",
    Series("gpu_hours", (*_ENGINE, *_HBM)): "hbm_per_engine",
    Series("gpu_hours", _NVLINK): "nvlink_util_mean nvlink_utilization nvlink_of_sustained nvlink_symmetry",
    Series("gpu_hours", ("nvlink_bins",)): "nvlink_util_p995 nvlink_utilization_p995",
    Series("gpu_hours", _PCIE): "pcie_utilization pcie_of_sustained",
    Series("gpu_hours", _MEMORY): (
        "mem_used mem_used_max mem_flat mem_cv mem_level mem_max mem_swing_in_hour mem_hourly_cv mem_changes_share "
        "mem_kept_at_rest"
    ),
    Series("gpu_hours", _POWER): "power_watts power_at_work power_over_idle rest_watts",
    Series("gpu_hours", (*_POWER, *_TENSOR, *_HBM)): (
        "power_after energy_saved energy_saved_per_month energy_saving_kwh_per_month slowdown_expected"
    ),
    Series("gpu_hours", ("sm_clock_hertz_mean",)): "clock_ratio",
    Series("gpu_hours", ("throttled_fraction",)): "throttled",
    Series("gpu_hours", ("duty",)): "duty",
    Series("gpu_hours", ("idle_run_seconds",)): "idle_run_hours",
    Series("gpu_hours", ("period_seconds", "period_strength")): "period_share period_seconds period_strength",
    Series("gpu_hours", ("tensor_nvlink_correlation",)): "tensor_nvlink_correlation",
    Series("gpu_hours", ("tensor_fabric_correlation",)): "tensor_fabric_correlation",
    Series("gpu_hours", _LABELS): (
        "bound_by_memory bound_by_link link_use_p50 use_p99 demand_p95 held_back lost_at_most bottleneck time_ratio "
        "freed_gpu_hours_per_month"
    ),
    Series("gpu_hours", (*_ENGINE, *_TENSOR, *_HBM, *_POWER)): (
        "contradiction contradiction_hours contradiction_since fault_share"
    ),
    Series("fabric_hours", (*_UTIL, "util_bins")): "fabric_util_p995 fabric_util_max fabric_utilization_p995",
    Series("fabric_hours", ("observed_seconds",)): "fabric_hours fabric_hours_known compute_ports",
    Series("fabric_hours", ("tx_bytes_per_second_mean", "rx_bytes_per_second_mean", "line_rate_bytes_per_second")): (
        "fabric_utilization fabric_of_sustained fabric_symmetry"
    ),
    Series("fabric_hours", ("xmit_wait_per_second_mean",)): "fabric_wait_ticks_per_second",
    Series("host_hours", ("cpu_util_mean", "io_wait_mean")): "cpu io_wait",
    Series("host_hours", ("disk_write_bytes_per_second_mean", "disk_write_bytes_per_second_max")): "write_bursts",
    Series("serving_samples", ("workload_id", "kv_cache_usage")): "kv_cache_used_p95",
    Series("serving_samples", ("workload_id", "generation_tokens_per_second")): "generated_tokens",
    _HELD: (
        "gpus_held gpus nodes elapsed_hours span_hours chain_hours series_runs series_run_hours "
        "series_start_spread_hours ended"
    ),
}  # fmt: skip
SERIES: Mapping[str, Series] = {name: series for series, names in _BY_SERIES.items() for name in names.split()}

# Numbers that telemetry does not hold.
ELSEWHERE: Mapping[str, str] = {
    "cost_usd": "the GPU-hours at the price of their node",
    "saving_usd_per_month": "the prices of the nodes",
    "mem_total": "the GPU catalog",
    "cheaper_sku": "the GPU catalog and the prices",
    "cheaper_sku_bandwidth": "the GPU catalog",
    "price_less": "the prices of the nodes",
    "fabric_premium": "the prices of the nodes, or rules/premiums.yaml",
    "nvlink_premium": "the prices of the nodes, or rules/premiums.yaml",
}
