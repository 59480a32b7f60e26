"""The queries as data: each measure of the frame as an expression whose value at a moment is of a row.

Rows are as long as the step, so the engine reads each sample once a statistic and answers with one number a row. What
exporters export are gauges, of which a mean is that of the samples; what our agent exports are integrals, whose
differences are exact means however rarely they are scraped. Where the recording rules of `deploy/prometheus` have run
for the whole window, their five-minute means and maxima replace the samples.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....agent.metrics import FABRIC_INTEGRALS, GPU_INTEGRALS, HOST_INTEGRALS, Integral
from ....agent.sources.dcgm import FIELDS, MOST
from .client.range_planner import Ask
from .client.response import Labels

_VIRTUAL = re.compile(
    r"(?P<gpu>GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-|::|/vgpu)[0-9]{1,4}", re.ASCII | re.IGNORECASE
)
# Best first. `Hostname` in older dcgm-exporters, `hostname` in newer; the rest is relabelling, by OpenTelemetry's
# collector as well.
NODE_LABELS = (
    "exported_Hostname", "Hostname", "exported_hostname", "hostname", "exported_node", "node", "nodename",
    "kubernetes_node", "node_name", "kubernetes_node_name", "k8s_node_name", "host_name", "instance",
)  # fmt: skip
# Of clusters behind one server: Prometheus Operator and Mimir first, then OpenTelemetry, Kubecost and what sites use.
CLUSTER_LABELS = ("cluster", "cluster_name", "k8s_cluster_name", "kubernetes_cluster", "k8s_cluster", "cluster_id")
HOST_LABELS = (*NODE_LABELS, *CLUSTER_LABELS)
_WORKLOAD = ("pod", "namespace", "container", "pod_uid", "hpc_job")
WORKLOAD_LABELS = (*_WORKLOAD, *(f"exported_{name}" for name in _WORKLOAD))
# The label with the driver's version on every series of dcgm-exporter.
DRIVER_LABEL = "DCGM_FI_DRIVER_VERSION"
DCGM_LABELS = (
    "UUID", "gpu", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "pci_bus_id", *HOST_LABELS, *WORKLOAD_LABELS, "job",
    DRIVER_LABEL,
)  # fmt: skip
# `cluster` in the page is the agent's own; an external label of this name would be the same for all.
AGENT_NODE_LABELS = ("exported_node", "node", "instance")
AGENT_GPU_LABELS = (*AGENT_NODE_LABELS, "gpu_uuid")
AGENT_WORK_LABELS = (
    *AGENT_GPU_LABELS, "workload_id", "series_id", "scheduler", "job_id", "namespace", "pod", "exported_namespace",
    "exported_pod", "framework", "basis", "shared",
)  # fmt: skip
PORT_LABELS = ("device", "port")


def cluster_of(labels: Labels) -> str:
    """The cluster that a series names; empty where no label does."""
    return next((labels[name] for name in CLUSTER_LABELS if labels.get(name)), "")


def label_of(labels: Labels, name: str) -> str:
    """A label of the object that a series is about: ``exported_NAME`` where a target has a label of its name."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def agent_node(labels: Labels) -> str | None:
    """The node of a series of our agent."""
    return labels.get("exported_node") or labels.get("node") or host_of(labels.get("instance", "")) or None


def host_of(instance: str) -> str:
    """The host of ``host:port``; IPv6 has brackets."""
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else instance


def gpu_of(labels: Labels) -> tuple[str, str | None] | None:
    """The id of a GPU or MIG instance and its parent's; None for a series of no GPU.

    dcgm-exporter gives an instance its parent's UUID and a number: ours is both. Virtual devices are one GPU,
    counted once: time slicing calls them ``GPU-...::3``, HAMi ``GPU-...-3``, GKE ``GPU-.../vgpu3``."""
    uuid, instance = labels.get("UUID", ""), labels.get("GPU_I_ID")
    uuid = match["gpu"] if (match := _VIRTUAL.fullmatch(uuid)) else uuid
    return ((f"{uuid}/gi{instance}", uuid) if instance else (uuid, None)) if uuid else None


MIB = 1024.0**2
MOST_MEMORY_BYTES = 1e13  # beyond lie blank sentinels
# Range of the rates within a row: four scrapes of a minute, and one more.
WITHIN = "5m"
RULE_SECONDS = 300.0
AGENT_ANCHOR = "skuwise_gpu_observed_seconds_total"
AGENT_ABSENCE = "skuwise_absence"
AGENT_SERIES = "skuwise_workload_gpu_seconds_total"
ENERGY = "energy_joules_mean"
_ENERGY_COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # millijoules since the driver was loaded


@dataclass(frozen=True, slots=True)
class DcgmGauge:
    """A gauge of dcgm-exporter: its names (best first), what its unit is in ours, and the most that is a reading."""

    measure: str
    names: tuple[str, ...]
    scale: float
    most: float
    statistics: tuple[str, ...]

    @property
    def is_ratio(self) -> bool:
        return self.most < 2

    @property
    def limit(self) -> str:
        """The most that is a reading, in the exporter's unit."""
        return f"{self.most / self.scale:.10g}"

    def known(self, present: Collection[str]) -> list[str]:
        """Its names that a server has."""
        return [name for name in self.names if name in present]


_EACH = ("mean", "p95", "max")
_ENGINE_NAMES = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO")
# No maxima of activity: what counts of them is whether they are zero, and then the mean is.
_MEAN_ALONE = ("sm_occupancy", "fp64_active", "fp32_active")
DCGM_GAUGES: tuple[DcgmGauge, ...] = (
    DcgmGauge("gpu_util", ("DCGM_FI_DEV_GPU_UTIL",), 0.01, 1.001, _EACH),
    DcgmGauge("mem_used_bytes", ("DCGM_FI_DEV_FB_USED",), MIB, MOST_MEMORY_BYTES, ("mean", "max")),
    DcgmGauge("engine", _ENGINE_NAMES, 1.0, 1.001, _EACH),
    DcgmGauge("power_watts", ("DCGM_FI_DEV_POWER_USAGE",), 1.0, 3e3, ("mean",)),
    DcgmGauge("sm_clock_hertz", ("DCGM_FI_DEV_SM_CLOCK",), 1e6, 1e10, ("mean",)),
    DcgmGauge("mem_clock_hertz", ("DCGM_FI_DEV_MEM_CLOCK",), 1e6, 1e11, ("mean",)),
    *(
        DcgmGauge(f.metric, f.names, 1.0, max(1.001, MOST[f.metric]), _EACH[: 1 if f.metric in _MEAN_ALONE else 2])
        for f in FIELDS
        if f.metric != "fp16_active"
    ),
)
GAUGES = {gauge.measure: gauge for gauge in DCGM_GAUGES}
# Their sum is what a GPU has. Only newer releases separate the driver's reserve.
_MEMORY = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")
_OVER_TIME = {"mean": "avg_over_time(", "max": "max_over_time(", "p95": "quantile_over_time(0.95, "}
# Means far below 95th percentiles show alternating work and waiting, where samples are short enough.
_TURNS = frozenset({"sm_active", "tensor_active", "dram_active"})
_TURN_SECONDS = 30.0
_PLAIN_ID = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
# So many ids of GPUs make one query, more are asked for all.
_MOST_NAMED = 200


def selector(matches: Sequence[str], *more: str) -> str:
    """``{...}`` of the matchers that a user gave and our own; empty for none."""
    inside = ",".join((*more, *matches))
    return f"{{{inside}}}" if inside else ""


def row_range(step: float) -> str:
    """The range of a row, half-open: Prometheus before 3.0 counts a sample at the very start of a range as well."""
    return f"[{step - 1:.0f}s999ms]"


def asks_of(
    queries: Mapping[str, str], kept: tuple[str, ...], matches: Sequence[str], step: float, kind: str = ""
) -> list[Ask]:
    """Expressions by name, in which ``$`` stands for the selector, ``@`` for it with the range of a row, ``#`` for it
    with the range of a rate within a row, and ``%`` for the moments of such rates."""
    chosen = selector(matches)
    meaning = {"$": chosen, "@": chosen + row_range(step), "#": f"{chosen}[{WITHIN}]", "%": f"[{step:g}s:{WITHIN}]"}
    return [Ask(kind + name, query.translate(str.maketrans(meaning)), kept) for name, query in queries.items()]


def rule_name(measure: str, statistic: str) -> str:
    """The recording rule of a gauge of dcgm-exporter: its mean or maximum over five minutes."""
    return f"skuwise:{measure}:{statistic}5m"


def of_gpus(devices: Iterable[str], label: str = "UUID") -> tuple[str, ...]:
    """The matcher of the whole GPUs of some devices; none, for all, where they are too many or too odd to be named."""
    uuids = sorted({device.partition("/gi")[0] for device in devices})
    named = 0 < len(uuids) <= _MOST_NAMED and all(map(_PLAIN_ID.fullmatch, uuids))
    return (f'{label}=~"{"|".join(uuids)}"',) if named else ()


def anchors_of(present: Collection[str]) -> tuple[str, ...]:
    """The series of dcgm-exporter by which GPUs are looked for, the usual ones first; empty without any."""
    return tuple(name for gauge in DCGM_GAUGES for name in gauge.known(present))


@dataclass(frozen=True)
class DcgmQueries:
    """What is asked of dcgm-exporter's series in rows of `step` seconds. `present`: the metrics of the server; `ruled`:
    its recording rules; `scrape_seconds`: how far samples lie apart (None: not known)."""

    present: Collection[str]
    matches: Sequence[str]
    step: float
    ruled: Collection[str] = ()
    scrape_seconds: float | None = None

    def of_all(self) -> list[Ask]:
        """Of all GPUs. The engine's activity replaces a missing utilization."""
        gauges = [g for g in DCGM_GAUGES if g.measure != "engine" or not GAUGES["gpu_util"].known(self.present)]
        # MIG instances lack the first metric by which samples are counted, utilization.
        queries = {"n": " or ".join(f"count_over_time({name}@)" for name in anchors_of(self.present)[:2])}
        if _ENERGY_COUNTER in self.present:
            # Joules a sample, for a GPU's series may change its pod within a row. A counter that goes back (the driver
            # was loaded again, an exporter mixed up two GPUs) has grown by an unknown amount. No board takes more
            # than 3 kW, no sample speaks for more than five minutes.
            grown = f"increase({_ENERGY_COUNTER}@) / count_over_time({_ENERGY_COUNTER}@) / 1000 > 0 <= 900000"
            queries[ENERGY] = f"({grown}) unless (resets({_ENERGY_COUNTER}@) > 0)"
        asks = asks_of(queries, DCGM_LABELS, self.matches, self.step)
        return [*asks, *(ask for g in gauges for ask in self.statistics(g)), *self.beyond(gauges)]

    def statistics(self, gauge: DcgmGauge, *more: str, possible: bool = False) -> list[Ask]:
        """Statistics of a gauge. `more`: matchers. `possible`: of the plausible samples, and how many are not."""
        queries, present, row = dict[str, str](), gauge.known(self.present), row_range(self.step)
        if possible:
            seconds = self.scrape_seconds or 60.0  # intervals of scraping are multiples of five seconds, or short
            row = f"{row[:-1]}:{round(seconds / 5) * 5 or max(1, round(seconds))}s]"
            queries["impossible"] = " or ".join(f"count_over_time(({name}$ > {gauge.limit}){row})" for name in present)
        is_long = self.scrape_seconds is not None and self.scrape_seconds >= _TURN_SECONDS
        for statistic in gauge.statistics:
            if statistic == "p95" and gauge.measure in _TURNS and is_long:
                continue
            # A 95th percentile of means of five minutes is lower than one of samples: rules keep none.
            rule = rule_name(gauge.measure, statistic)
            names = [rule] if rule in self.ruled and statistic != "p95" and not possible else present
            samples = [f"({name}$ <= {gauge.limit})" if possible else f"{name}$" for name in names]
            query = " or ".join(f"{_OVER_TIME[statistic]}{sample}{row})" for sample in samples)
            queries |= {f"{gauge.measure}_{statistic}": query} if names else {}
        return asks_of(queries, DCGM_LABELS, (*more, *self.matches), self.step)

    def memory(self) -> list[Ask]:
        """How much memory a GPU has, by the series that sum up to it. Where a GPU has no reserve, the rest counts."""
        used, free, reserve = (f"{name}$" if name in self.present else "" for name in _MEMORY)
        sums = [" + ".join(parts) for parts in ((used, free, reserve), (used, free)) if all(parts)]
        return asks_of({"mem_total_bytes": " or ".join(sums)} if sums else {}, DCGM_LABELS, self.matches, self.step)

    def beyond(self, gauges: Iterable[DcgmGauge]) -> list[Ask]:
        """The largest samples that are no readings, with their measure: a mean would not show them. Ratios of MIG
        instances may exceed 1 (NVIDIA/DCGM#152); behind a rule for a mean no sample is known."""
        parts = list[str]()
        for gauge in (candidate for candidate in gauges if "_per_second" not in candidate.measure):
            chosen = selector(self.matches, *(['GPU_I_ID=""'] if gauge.is_ratio else [])) + row_range(self.step)
            most, mean = (rule_name(gauge.measure, statistic) for statistic in ("max", "mean"))
            names = [most] if most in self.ruled else [] if mean in self.ruled else gauge.known(self.present)
            larger = (f"max_over_time({name}{chosen}) > {gauge.limit}" for name in names)
            parts += [f'label_replace({query}, "measure", "{gauge.measure}", "", "")' for query in larger]
        return [Ask("beyond", " or ".join(parts), (*DCGM_LABELS, "measure"))] if parts else []


def exporter_fabric_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What node_exporter says of InfiniBand ports."""
    sent, received = (f"node_infiniband_port_data_{direction}_bytes_total" for direction in ("transmitted", "received"))
    queries = {
        "n": f"count_over_time({sent}@)",
        "active": "avg_over_time((node_infiniband_state_id$ == bool 4)%)",
        "xmit_wait_mean": "rate(node_infiniband_port_transmit_wait_total@)",
    }
    for direction, total in (("tx", sent), ("rx", received)):
        queries[f"{direction}_mean"] = f"rate({total}@)"
        queries[f"{direction}_p95"] = f"quantile_over_time(0.95, rate({total}#)%)"
        queries[f"{direction}_max"] = f"max_over_time(rate({total}#)%)"
    asks = asks_of(queries, (*HOST_LABELS, *PORT_LABELS), matches, step, "fabric ")
    return [ask for ask in asks if any(name in ask.query for name in present if name.startswith("node_infiniband"))]


def exporter_host_asks(present: Collection[str], matches: Sequence[str], step: float, *, cores: bool) -> list[Ask]:
    """What node_exporter says of hosts. `cores`: whether the time of each core may be read."""
    by, asks = f"by ({', '.join(HOST_LABELS)})", list[Ask]()
    for name, mode in (("idle_mean", "idle"), ("io_wait_mean", "iowait")) if cores else ():
        query, chosen = f"avg {by} (rate(node_cpu_seconds_total@))", (f'mode="{mode}"', *matches)
        asks += asks_of({name: query}, HOST_LABELS, chosen, step, "host ")
    disks = ('device!~"dm-.*|loop.*|md.*|ram.*|sr.*"', *matches)
    for direction, counter in (("read", "node_disk_read_bytes_total"), ("write", "node_disk_written_bytes_total")):
        mean, most = f"sum {by} (rate({counter}@))", f"max_over_time(sum {by} (rate({counter}#))%)"
        name = f"disk_{direction}_bytes_per_second"
        if counter in present:
            asks += asks_of({f"{name}_mean": mean, f"{name}_max": most}, HOST_LABELS, disks, step, "host ")
    return asks


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
