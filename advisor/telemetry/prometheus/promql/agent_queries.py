"""What is asked of our agent's page: integrals, whose differences are exact means however rarely they are scraped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .....agent.service.exporter.metric_families import FABRIC_INTEGRALS, GPU_INTEGRALS, HOST_INTEGRALS, Integral
from ..client.range_planner import Ask
from .labels import AGENT_GPU_LABELS, AGENT_NODE_LABELS, AGENT_WORK_LABELS, PORT_LABELS
from .promql import AGENT_ANCHOR, AGENT_SERIES, WITHIN, row_range, selector

_RATIOS = ("gpu_util", "sm_active", "tensor_active", "dram_active")
_FABRIC_UTIL = "skuwise_fabric_util_distribution_ratio"
_FABRIC_LABELS = (*AGENT_NODE_LABELS, *PORT_LABELS)
_INFO_LABELS = (*AGENT_GPU_LABELS, "gpu_index", "sku", "kind", "name", "parent_uuid", "mig_profile", "driver_version")
_NODE_LABELS = (
    *AGENT_NODE_LABELS, "cluster", "exported_cluster", "node_sku", "node_sku_source", "provider", "region",
    "exported_region", "instance_type",
)  # fmt: skip
_MOMENTS = (
    "tensor_seconds", "traffic_bytes", "tensor_squared_seconds", "traffic_squared_seconds", "product_bytes",
)  # fmt: skip
# Measures of GPUs: what is formed over a row, of which series, without ``skuwise_gpu_``. Two series: the growth of the
# first over that of the second. The page's totals begin anew with the agent, which `increase` allows for.
_GPU = (
    ("n", "increase", "gpu_util_distribution_ratio_count"),
    ("duty", "share", "busy_seconds_total sm_active_observed_seconds_total"),
    ("sm_squared", "share", "sm_active_squared_seconds_total sm_active_observed_seconds_total"),
    ("throttled_fraction", "share", "throttled_seconds_total throttle_reasons_observed_seconds_total"),
    ("energy_joules", "increase", "energy_joules_total"),
    ("energy_seconds", "increase", "energy_observed_seconds_total"),
    ("mem_used_bytes_max", "max_over_time", "mem_used_bytes"),
    ("idle_run_seconds", "max_over_time", "idle_run_seconds"),
    ("period_seconds", "median", "period_seconds"),
    ("period_strength", "median", "period_strength_ratio"),
    *((f"{name}_max", "max_over_time", f"{name.removeprefix('gpu_')}_ratio") for name in _RATIOS),
    *((f"{way}_bytes_per_second_p95", "p95 of rates", f"{way}_bytes_total")
      for way in ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")),
    *((f"{pair}_{part}", "share", f"tensor_{pair}_{part}_total tensor_{pair}_seconds_total")
      for pair in ("nvlink", "fabric") for part in _MOMENTS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rows:
    """Expressions over the time of each row, of the series that `matches` select."""

    matches: Sequence[str]
    step: float

    def of(self, how: str, series: str, prefix: str = "") -> str:
        chosen, row = selector(self.matches), row_range(self.step)
        names = [prefix + name for name in series.split()]
        rates = f"rate({names[0]}{chosen}[{WITHIN}])[{self.step:g}s:{WITHIN}]"
        match how:
            case "share":
                return " / ".join(f"rate({name}{chosen}{row})" for name in names)
            case "median":
                return f"quantile_over_time(0.5, {names[0]}{chosen}{row})"
            case "p95 of rates":
                return f"quantile_over_time(0.95, {rates})"
            case "max of rates":
                return f"max_over_time({rates})"
        return f"{how}({names[0]}{chosen}{row})"

    def means(self, integrals: Iterable[Integral], present: Collection[str]) -> list[tuple[str, str]]:
        return [
            (f"{one.metric}_mean", self.of("share", f"{one.total.series} {one.observed.series}"))
            for one in integrals
            if one.total.series in present
        ]


def agent_gpu_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """Means, maxima and rhythm of what our agent's page says of GPUs."""
    rows = _Rows(matches, step)
    queries = [("observed", rows.of("increase", AGENT_ANCHOR)), *rows.means(GPU_INTEGRALS, present)]
    queries += [(name, rows.of(how, series, "skuwise_gpu_")) for name, how, series in _GPU]
    return [Ask(name, query, AGENT_GPU_LABELS) for name, query in queries]


def agent_about_asks(matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says a GPU is, by row: which can change over a window."""
    rows, gauges = _Rows(matches, step), ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second")
    asks = [Ask(name, rows.of("last_over_time", f"skuwise_gpu_{name}"), AGENT_GPU_LABELS) for name in gauges]
    return [Ask("gpus", rows.of("count_over_time", "skuwise_gpu_info"), _INFO_LABELS), *asks]


def agent_node_asks(matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of nodes, and the roles of their ports."""
    rows, ports = _Rows(matches, step), (*_FABRIC_LABELS, "role", "link_layer")
    return [
        Ask("nodes", rows.of("count_over_time", "skuwise_node_info"), _NODE_LABELS),
        Ask("node GPUs", rows.of("last_over_time", "skuwise_node_gpus"), AGENT_NODE_LABELS),
        Ask("ports", rows.of("count_over_time", "skuwise_fabric_port_info"), ports),
    ]


def agent_bin_asks(matches: Sequence[str], step: float) -> list[Ask]:
    """The distributions of the agent's page: how many ticks fell up to each edge."""
    rows, kept = _Rows(matches, step), (*AGENT_GPU_LABELS, "le")
    families = ((name, f"skuwise_gpu_{name}_distribution_ratio_bucket") for name in (*_RATIOS, "nvlink"))
    return [Ask(name, rows.of("increase", family), kept) for name, family in families]


def agent_fabric_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of ports."""
    rows, port = _Rows(matches, step), "skuwise_fabric_"
    queries = [
        ("observed", rows.of("increase", f"{port}state_observed_seconds_total")),
        *rows.means(FABRIC_INTEGRALS, present),
        ("util_mean", rows.of("share", f"{_FABRIC_UTIL}_sum {_FABRIC_UTIL}_count")),
        ("util_n", rows.of("increase", f"{_FABRIC_UTIL}_count")),
        ("active_fraction", rows.of("share", "active_seconds_total state_observed_seconds_total", port)),
        ("line_rate", rows.of("last_over_time", f"{port}line_rate_bytes_per_second")),
    ]
    asks = [Ask(f"fabric {name}", query, _FABRIC_LABELS) for name, query in queries]
    return [*asks, Ask("fabric util", rows.of("increase", f"{_FABRIC_UTIL}_bucket"), (*_FABRIC_LABELS, "le"))]


def agent_host_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of hosts."""
    rows = _Rows(matches, step)
    queries = [("observed", rows.of("increase", "skuwise_host_observed_seconds_total"))]
    queries += rows.means(HOST_INTEGRALS, present)
    for way in ("read", "write"):
        most = rows.of("max of rates", f"skuwise_host_disk_{way}_bytes_total")
        queries.append((f"disk_{way}_bytes_per_second_max", most))
    return [Ask(f"host {name}", query, AGENT_NODE_LABELS) for name, query in queries]


def agent_work_ask(matches: Sequence[str], step: float) -> Ask:
    """Seconds that each workload had held each GPU by the end of each row."""
    return Ask("workloads", _Rows(matches, step).of("last_over_time", AGENT_SERIES), AGENT_WORK_LABELS)
