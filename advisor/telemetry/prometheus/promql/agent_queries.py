"""What is asked of our agent's page: integrals, whose differences are exact means however rarely they are scraped.

The signs in expressions are those of `asks_of`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from .....agent.metrics import FABRIC_INTEGRALS, GPU_INTEGRALS, HOST_INTEGRALS, Integral
from ..client.range_planner import Ask
from .promql import (
    AGENT_ANCHOR,
    AGENT_GPU_LABELS,
    AGENT_NODE_LABELS,
    PORT_LABELS,
    asks_of,
)

_FABRIC_LABELS = (*AGENT_NODE_LABELS, *PORT_LABELS)
_INFO_LABELS = (*AGENT_GPU_LABELS, "gpu_index", "sku", "kind", "name", "parent_uuid", "mig_profile", "driver_version")
_NODE_LABELS = (
    *AGENT_NODE_LABELS, "cluster", "exported_cluster", "node_sku", "node_sku_source", "provider", "region",
    "exported_region", "instance_type",
)  # fmt: skip
_RATIOS = ("gpu_util", "sm_active", "tensor_active", "dram_active")
_GPU, _FABRIC = "skuwise_gpu_", "skuwise_fabric_"
_UTIL = f"{_FABRIC}util_distribution_ratio"
_MOMENTS = (
    "seconds", "tensor_seconds", "traffic_bytes", "tensor_squared_seconds", "traffic_squared_seconds", "product_bytes",
)  # fmt: skip


def _share(total: str, observed: str) -> str:
    """The growth of one total over that of another. Both restart with the agent, which `rate` allows for."""
    return f"rate({total}@) / rate({observed}@)"


def _correlation(pair: str) -> str:
    """Of tensor activity with traffic; none of what does not vary, but for rounding."""
    seconds, first, second, first_squared, second_squared, product = (
        f"rate({_GPU}tensor_{pair}_{part}_total@)" for part in _MOMENTS
    )
    varies = f"({first_squared} * {seconds} - {first} ^ 2 > 1e-9 * {seconds} ^ 2)"
    other = f"({second_squared} * {seconds} - {second} ^ 2 > 1e-9 * {second_squared} * {seconds})"
    quotient = f"({product} * {seconds} - {first} * {second}) / sqrt({varies} * {other})"
    return f"clamp_min(clamp_max({quotient}, 1), -1)"


_ACTIVE, _ACTIVE_SECONDS = f"rate({_GPU}sm_active_seconds_total@)", f"rate({_GPU}sm_active_observed_seconds_total@)"
_SAMPLES = f"increase({_GPU}gpu_util_distribution_ratio_count@)"
_WITH_ENERGY = f"clamp_max(increase({_GPU}energy_observed_seconds_total@) / increase({AGENT_ANCHOR}@), 1) * {_SAMPLES}"
_GPU_QUERIES = {
    "observed": f"increase({AGENT_ANCHOR}@)",
    "n": _SAMPLES,
    "duty": _share(f"{_GPU}busy_seconds_total", f"{_GPU}sm_active_observed_seconds_total"),
    "sm_active_cv": (
        f"sqrt(clamp_min(rate({_GPU}sm_active_squared_seconds_total@) * {_ACTIVE_SECONDS} - {_ACTIVE} ^ 2, 0))"
        f" / {_ACTIVE}"
    ),
    "throttled_fraction": _share(f"{_GPU}throttled_seconds_total", f"{_GPU}throttle_reasons_observed_seconds_total"),
    "energy_joules_mean": f"increase({_GPU}energy_joules_total@) / ({_WITH_ENERGY}) > 0",  # of a sample
    "energy_joules_n": f"{_WITH_ENERGY} > 0",
    **{f"{name}_max": f"max_over_time({_GPU}{name.removeprefix('gpu_')}_ratio@)" for name in _RATIOS},
    "mem_used_bytes_max": f"max_over_time({_GPU}mem_used_bytes@)",
    "idle_run_seconds": f"max_over_time({_GPU}idle_run_seconds@)",
    "period_seconds": f"quantile_over_time(0.5, {_GPU}period_seconds@)",
    "period_strength": f"quantile_over_time(0.5, {_GPU}period_strength_ratio@)",
    **{
        f"{direction}_bytes_per_second_p95": f"quantile_over_time(0.95, rate({_GPU}{direction}_bytes_total#)%)"
        for direction in ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")
    },
    **{f"tensor_{pair}_correlation": _correlation(pair) for pair in ("nvlink", "fabric")},
    **{
        name: f"last_over_time({_GPU}{name}@)"
        for name in ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second")
    },
}


def _means(integrals: Iterable[Integral], present: Collection[str]) -> dict[str, str]:
    available = (integral for integral in integrals if integral.total in present)
    return {f"{integral.metric}_mean": _share(integral.total, integral.observed) for integral in available}


def agent_gpu_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """Means, maxima and rhythm of what our agent's page says of GPUs, and by row what each is, which may change."""
    asks = asks_of({**_means(GPU_INTEGRALS, present), **_GPU_QUERIES}, AGENT_GPU_LABELS, matches, step)
    return [*asks, *asks_of({"gpus": f"count_over_time({_GPU}info@)"}, _INFO_LABELS, matches, step)]


def agent_node_asks(matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of nodes, and the roles of their ports."""
    queries = (
        ("nodes", "count_over_time(skuwise_node_info@)", _NODE_LABELS),
        ("node GPUs", "last_over_time(skuwise_node_gpus@)", AGENT_NODE_LABELS),
        ("ports", f"count_over_time({_FABRIC}port_info@)", (*_FABRIC_LABELS, "role", "link_layer")),
    )
    return [ask for name, query, kept in queries for ask in asks_of({name: query}, kept, matches, step)]


def agent_bin_asks(matches: Sequence[str], step: float) -> list[Ask]:
    """The distributions of the agent's page: how many ticks fell up to each edge."""
    queries = {name: f"increase({_GPU}{name}_distribution_ratio_bucket@)" for name in (*_RATIOS, "nvlink")}
    return asks_of(queries, (*AGENT_GPU_LABELS, "le"), matches, step)


def agent_fabric_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of ports."""
    observed = f"{_FABRIC}state_observed_seconds_total"
    queries = {
        "observed": f"increase({observed}@)",
        **_means(FABRIC_INTEGRALS, present),
        "util_mean": _share(f"{_UTIL}_sum", f"{_UTIL}_count"),
        "util_n": f"increase({_UTIL}_count@)",
        "active_fraction": _share(f"{_FABRIC}active_seconds_total", observed),
        "line_rate": f"last_over_time({_FABRIC}line_rate_bytes_per_second@)",
    }
    bins = asks_of({"util": f"increase({_UTIL}_bucket@)"}, (*_FABRIC_LABELS, "le"), matches, step, "fabric ")
    return [*asks_of(queries, _FABRIC_LABELS, matches, step, "fabric "), *bins]


def agent_host_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of hosts."""
    queries = {"observed": "increase(skuwise_host_observed_seconds_total@)", **_means(HOST_INTEGRALS, present)}
    for kind in ("read", "write"):
        queries[f"disk_{kind}_bytes_per_second_max"] = f"max_over_time(rate(skuwise_host_disk_{kind}_bytes_total#)%)"
    return asks_of(queries, AGENT_NODE_LABELS, matches, step, "host ")
