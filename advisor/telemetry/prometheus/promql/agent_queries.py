"""What is asked of our agent's page: integrals, whose differences are exact means however rarely they are scraped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .....agent.service.exporter.metric_families import FABRIC_INTEGRALS, GPU_INTEGRALS, HOST_INTEGRALS, Integral
from ..client.range_planner import Ask
from .labels import AGENT_GPU_LABELS, AGENT_NODE_LABELS, AGENT_WORK_LABELS, PORT_LABELS
from .promql import AGENT_ANCHOR, AGENT_SERIES, WITHIN, row_range, selector

# Bins by column of the frame: the distribution of the agent's page.
_GPU_BIN_FAMILIES = {
    name: f"skuwise_gpu_{name}_distribution_ratio"
    for name in ("gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink")
}
_FABRIC_BIN_FAMILY = "skuwise_fabric_util_distribution_ratio"
_FABRIC_LABELS = (*AGENT_NODE_LABELS, *PORT_LABELS)


@dataclass(frozen=True, slots=True)
class _ByRow:
    """Expressions over the time of each row, of the series that `matches` select."""

    matches: Sequence[str]
    step: float

    def of(self, function: str, series: str) -> str:
        return f"{function}({series}{selector(self.matches)}{row_range(self.step)})"

    def share(self, total: str, known: str) -> str:
        """Growth of one counter over that of another."""
        return f"{self.of('rate', total)} / {self.of('rate', known)}"

    def of_rates(self, function: str, counter: str) -> str:
        """Of the rates over `WITHIN` within the row; `function` ends with what precedes them."""
        return f"{function}rate({counter}{selector(self.matches)}[{WITHIN}])[{self.step:g}s:{WITHIN}])"

    def means(self, integrals: Iterable[Integral], present: Collection[str]) -> list[tuple[str, str]]:
        return [
            (f"{one.metric}_mean", self.share(one.total.series, one.observed.series))
            for one in integrals
            if one.total.series in present
        ]


def agent_gpu_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """Means, maxima and rhythm of what our agent's page says of GPUs."""
    row, gpu = _ByRow(matches, step), "skuwise_gpu_"
    found = [
        ("observed", row.of("increase", AGENT_ANCHOR)),
        *row.means(GPU_INTEGRALS, present),
        ("n", row.of("increase", f"{_GPU_BIN_FAMILIES['gpu_util']}_count")),
        ("duty", row.share(f"{gpu}busy_seconds_total", f"{gpu}sm_active_observed_seconds_total")),
        ("sm_squared", row.share(f"{gpu}sm_active_squared_seconds_total", f"{gpu}sm_active_observed_seconds_total")),
        (
            "throttled_fraction",
            row.share(f"{gpu}throttled_seconds_total", f"{gpu}throttle_reasons_observed_seconds_total"),
        ),
        # The page's total begins anew with the agent, which `increase` allows for; it never goes back otherwise.
        ("energy_joules", row.of("increase", f"{gpu}energy_joules_total")),
        ("energy_seconds", row.of("increase", f"{gpu}energy_observed_seconds_total")),
        ("mem_used_bytes_max", row.of("max_over_time", f"{gpu}mem_used_bytes")),
        ("idle_run_seconds", row.of("max_over_time", f"{gpu}idle_run_seconds")),
        ("period_seconds", row.of("quantile_over_time", f"0.5, {gpu}period_seconds")),
        ("period_strength", row.of("quantile_over_time", f"0.5, {gpu}period_strength_ratio")),
    ]
    found += [
        (f"{one}_max", row.of("max_over_time", f"{gpu}{one.removeprefix('gpu_')}_ratio"))
        for one in ("gpu_util", "sm_active", "tensor_active", "dram_active")
    ]
    found += [
        (f"{way}_bytes_per_second_p95", row.of_rates("quantile_over_time(0.95, ", f"{gpu}{way}_bytes_total"))
        for way in ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")
    ]
    found += [
        (f"{pair}_{part}", row.share(f"{gpu}tensor_{pair}_{part}_total", f"{gpu}tensor_{pair}_seconds_total"))
        for pair in ("nvlink", "fabric")
        for part in (
            "tensor_seconds", "traffic_bytes", "tensor_squared_seconds", "traffic_squared_seconds", "product_bytes",
        )
    ]  # fmt: skip
    return [Ask(name, query, AGENT_GPU_LABELS) for name, query in found]


def agent_about_asks(matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says a GPU is, by row: which can change over a window."""
    row = _ByRow(matches, step)
    info = (*AGENT_GPU_LABELS, "gpu_index", "sku", "kind", "name", "parent_uuid", "mig_profile", "driver_version")
    gauges = ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second")
    return [
        Ask("gpus", row.of("count_over_time", "skuwise_gpu_info"), info),
        *(Ask(name, row.of("last_over_time", f"skuwise_gpu_{name}"), AGENT_GPU_LABELS) for name in gauges),
    ]


def agent_node_asks(matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of nodes, and the roles of their ports."""
    row = _ByRow(matches, step)
    node = (
        *AGENT_NODE_LABELS, "cluster", "exported_cluster", "node_sku", "node_sku_source", "provider", "region",
        "exported_region", "instance_type",
    )  # fmt: skip
    return [
        Ask("nodes", row.of("count_over_time", "skuwise_node_info"), node),
        Ask("node GPUs", row.of("last_over_time", "skuwise_node_gpus"), AGENT_NODE_LABELS),
        Ask("ports", row.of("count_over_time", "skuwise_fabric_port_info"), (*_FABRIC_LABELS, "role", "link_layer")),
    ]


def agent_bin_asks(matches: Sequence[str], step: float) -> list[Ask]:
    """The distributions of the agent's page: how many ticks fell up to each edge."""
    row = _ByRow(matches, step)
    return [
        Ask(name, row.of("increase", f"{family}_bucket"), (*AGENT_GPU_LABELS, "le"))
        for name, family in _GPU_BIN_FAMILIES.items()
    ]


def agent_fabric_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of ports."""
    row, port, family = _ByRow(matches, step), "skuwise_fabric_", _FABRIC_BIN_FAMILY
    found = [
        ("observed", row.of("increase", f"{port}state_observed_seconds_total")),
        *row.means(FABRIC_INTEGRALS, present),
        ("util_mean", row.share(f"{family}_sum", f"{family}_count")),
        ("util_n", row.of("increase", f"{family}_count")),
        ("active_fraction", row.share(f"{port}active_seconds_total", f"{port}state_observed_seconds_total")),
        ("line_rate", row.of("last_over_time", f"{port}line_rate_bytes_per_second")),
    ]
    asks = [Ask(f"fabric {name}", query, _FABRIC_LABELS) for name, query in found]
    return [*asks, Ask("fabric util", row.of("increase", f"{family}_bucket"), (*_FABRIC_LABELS, "le"))]


def agent_host_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What our agent's page says of hosts."""
    row, host = _ByRow(matches, step), "skuwise_host_"
    found = [
        ("observed", row.of("increase", f"{host}observed_seconds_total")),
        *row.means(HOST_INTEGRALS, present),
        *(
            (f"disk_{way}_bytes_per_second_max", row.of_rates("max_over_time(", f"{host}disk_{way}_bytes_total"))
            for way in ("read", "write")
        ),
    ]
    return [Ask(f"host {name}", query, AGENT_NODE_LABELS) for name, query in found]


def agent_work_ask(matches: Sequence[str], step: float) -> Ask:
    """Seconds that each workload had held each GPU by the end of each row."""
    return Ask("workloads", _ByRow(matches, step).of("last_over_time", AGENT_SERIES), AGENT_WORK_LABELS)
