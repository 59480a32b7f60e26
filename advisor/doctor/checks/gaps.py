"""What a source does not tell, each with what the advice loses by it and the line that adds it; weightiest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ....rules.catalog.hour_prices import flag_line
from ....rules.catalog.loader import Catalog
from ...core.formatting import percent
from ...core.timestamps import span
from .. import remedies
from ..facts import GPU_MEASURES, WINDOW_SHARE, NodeCoverage, SourceCoverage, applies
from ..types import Labels, MetricCoverage, NodeState, Readiness, TelemetryGap
from .kubernetes import owner_gaps

# Samples that lie farther apart than this are worth a line: shorter turns of work and waiting are not seen.
_COARSE_SECONDS = 90.0
# Of busy GPU-hours: so many may be without a label before a line is written.
_UNLABELED_SHARE = 0.1
# Of Slurm's jobs: so many may be without a name before a line is written.
_UNNAMED_SHARE = 0.1
# In a line that people copy.
_SKUS_SHOWN = 3
_DOCTOR = "run 'skuwise agent doctor' on these nodes"


def gaps_of(  # noqa: PLR0917
    told: SourceCoverage,
    catalog: Catalog,
    nodes: Sequence[NodeState],
    metrics: Sequence[MetricCoverage],
    labels: Labels,
    readiness: Readiness,
) -> tuple[TelemetryGap, ...]:
    """All gaps of a source."""
    return (
        *_unobserved(told, nodes),
        *_data(told, readiness),
        *_measures(told, catalog, metrics),
        *_networks(told, catalog, nodes),
        *_host(told),
        *_labels(told, labels),
        *owner_gaps(told.pods),
        *_slurm(told),
        *_money(told, catalog, nodes),
        *_exporters(told, metrics),
    )


def _unobserved(told: SourceCoverage, nodes: Sequence[NodeState]) -> Iterator[TelemetryGap]:
    by_reason: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for node in nodes:
        for one in node.unobserved:
            # Counts differ from node to node; what is to be done does not.
            key = (one.code, one.reason if one.code not in ("not-named", "no-exporter", "no-samples") else "")
            by_reason.setdefault(key, []).append((node.node, len(one.gpus)))
    remedy_of = {
        (one.reason, one.detail): one.remedy
        for node in told.nodes
        for one in node.absences
        if one.metric in ("*", "gpu")
    }
    loses = "Their cost is shown as unobserved. Nodes with such a GPU are not recommended for release."
    for (code, reason), found in by_reason.items():
        names = tuple(dict.fromkeys(name for name, _ in found))
        count = sum(number for _, number in found)
        what = f"{_counted(count, 'GPU')} not observed"
        if code == "no-exporter":
            gap = (
                f"{what}: no exporter or agent reports them.",
                (
                    "run dcgm-exporter on these nodes (a DaemonSet that tolerates their taints), or run the "
                    "skuwise agent"
                ),
            )
        elif code == "not-named":
            gap = (
                f"{what}: their nodes have more GPUs than the time series name.",
                (
                    "on these nodes, compare nvidia-smi -L with the metrics of dcgm-exporter; restart "
                    "dcgm-exporter if a GPU is missing"
                ),
            )
        elif code == "no-samples":
            gap = (
                f"{what}: their time series have no values.",
                "check the log of dcgm-exporter; restart it and its host engine",
            )
        else:
            gap = (f"{what} and cannot be read: {reason}", remedy_of.get((code, reason)) or _DOCTOR)  # fmt: skip
        yield TelemetryGap("gpus-unobserved" if code != "no-driver" else "no-driver", gap[0], loses, "", gap[1], names)
    # A node without a driver may not even know how many GPUs it has.
    for node in nodes:
        absent = next((n for n in told.nodes if n.node == node.node), None)
        if node.expected == 0 and absent is not None:
            for one in absent.absences:
                if one.metric in ("*", "gpu"):
                    yield TelemetryGap(
                        "no-driver" if one.reason == "no-driver" else "gpus-unobserved",
                        f"GPUs of this node cannot be read: {one.detail or one.reason}", loses, "",
                        one.remedy or _DOCTOR, (node.node,),
                    )  # fmt: skip
                    break


def _data(told: SourceCoverage, readiness: Readiness) -> Iterator[TelemetryGap]:
    if readiness.hours_left > 0 and told.observed_hours:
        yield TelemetryGap(
            "too-little-data",
            f"Too little data: at most {span(readiness.best_hours * 3600)} per node in the window.",
            f"No waste detection below {readiness.floor_hours:g} h.",
            "",
            "choose a longer window with --since"
            if told.window.hours < readiness.floor_hours
            else f"wait for {span(readiness.hours_left * 3600)} more of data",
        )
    hours = max((told.window.end - told.begin) / 3600, 1e-9)
    if told.observed_hours and told.observed_hours < WINDOW_SHARE * hours:
        yield TelemetryGap(
            "window-has-holes",
            f"Gaps in the data: {span(told.observed_hours * 3600)} observed of {span(hours * 3600)} "
            "since telemetry began.",
            "Activity in the gaps is unknown. Recommendations that need the whole window are withheld.",
            "alerts of the monitoring server", "alert on up == 0 for the jobs of the exporters",
        )  # fmt: skip


def _measures(told: SourceCoverage, catalog: Catalog, metrics: Sequence[MetricCoverage]) -> Iterator[TelemetryGap]:
    agents = {node.node for node in told.nodes if node.agent}
    for one in metrics:
        if one.scope != "gpu":
            continue
        lacking = {node.node: node for node in told.nodes if _lacks(node, one.metric, catalog)}
        if not lacking or one.having >= one.of:
            continue
        behind = tuple(sorted(set(lacking) - agents))
        own = tuple(sorted(set(lacking) & agents))
        what = f"{one.title[0].upper()}{one.title[1:]}: measured on {one.having} of {one.of} GPUs."
        if behind:
            yield TelemetryGap(
                f"no-{one.metric.replace('_', '-')}", what, remedies.LOSES[one.metric], remedies.DCGM_FILE,
                "\n".join(remedies.CSV[one.metric]), behind,
            )  # fmt: skip
        if own:
            why = next((a for node in own for a in lacking[node].absences if a.metric in _columns(one.metric)), None)
            yield TelemetryGap(
                f"no-{one.metric.replace('_', '-')}", f"{what} {why.detail}" if why and why.detail else what,
                remedies.LOSES[one.metric], "",
                (why.remedy if why else "") or _DOCTOR, own,
            )  # fmt: skip


def _lacks(node: NodeCoverage, measure: str, catalog: Catalog) -> bool:
    return any(
        gpu.hours > 0 and gpu.known.get(measure, 0.0) <= 0 and applies(measure, gpu, catalog) for gpu in node.gpus
    )


def _columns(measure: str) -> tuple[str, ...]:
    """How the agent calls the metrics of a measure."""
    return {
        "engine_active": ("gpu_util",), "mem_used": ("mem_used_bytes",), "power": ("power_watts",),
        "clocks": ("sm_clock_hertz",), "nvlink": ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"),
        "pcie": ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"),
    }.get(measure, (measure,))  # fmt: skip


def _networks(told: SourceCoverage, catalog: Catalog, nodes: Sequence[NodeState]) -> Iterator[TelemetryGap]:
    unseen, silent = [], []
    for state, node in zip(nodes, sorted(told.nodes, key=lambda one: one.node), strict=True):
        sku = catalog.node(state.node_sku) if state.node_sku else None
        has_fabric = sku is not None and sku.fabric.kind in ("infiniband", "roce", "efa")
        if has_fabric and not node.known.get("infiniband") and sku is not None and sku.fabric.kind == "infiniband":
            unseen.append(node.node)
        elif not state.fabric_seen:
            silent.append(node.node)
    on_server = told.source.get("kind") == "prometheus"
    where = "the flags of node_exporter (in a container also --path.sysfs=/host/sys)" if on_server else ""
    if unseen:
        yield TelemetryGap(
            "no-infiniband",
            f"No InfiniBand port metrics on {_counted(len(unseen), 'node')} of a type with InfiniBand.",
            "Idle fabrics are not detected. Network-bound and launch-bound work cannot be distinguished.",
            where, remedies.INFINIBAND_FLAG if on_server else _DOCTOR, tuple(unseen),
        )  # fmt: skip
    if silent:
        yield TelemetryGap(
            "no-network", f"No network counters on {_counted(len(silent), 'node')}.",
            "Fabric presence and use are unknown. Multi-GPU jobs that wait get no bottleneck verdict.",
            where,
            f"{remedies.INFINIBAND_FLAG} {remedies.ETHERNET_FLAG}" if on_server else _DOCTOR,
            tuple(silent),
        )  # fmt: skip


def _host(told: SourceCoverage) -> Iterator[TelemetryGap]:
    without = tuple(sorted(node.node for node in told.nodes if not node.known.get("host")))
    if without and told.source.get("kind") == "prometheus":
        yield TelemetryGap(
            "no-host", f"No CPU counters on {_counted(len(without), 'node')}.",
            "Work that waits for CPU or disk is not detected, and the provider is not detected from firmware.",
            "the flags of node_exporter on these nodes", remedies.HOST_FLAG, without,
        )  # fmt: skip


def _labels(told: SourceCoverage, labels: Labels) -> Iterator[TelemetryGap]:
    missing = labels.busy_gpu_hours - labels.labeled_gpu_hours
    if labels.busy_gpu_hours <= 0 or missing <= _UNLABELED_SHARE * labels.busy_gpu_hours:
        return
    nodes = tuple(
        sorted(
            node.node for node in told.nodes
            if any(gpu.busy_hours - gpu.labeled_hours > _UNLABELED_SHARE * gpu.busy_hours > 0 for gpu in node.gpus)
        )
    )  # fmt: skip
    share = missing / labels.busy_gpu_hours
    if told.source.get("kind") == "prometheus":
        where, add = (
            ("the environment of the dcgm-exporter container", remedies.PODS_FLAG)
            if told.kubernetes
            else (
                "the flags of dcgm-exporter, with the directory to which Slurm's prolog writes job ids",
                remedies.SLURM_FLAG,
            )
        )
    else:
        where, add = "", _DOCTOR
    yield TelemetryGap(
        "no-workload-labels", f"{percent(share)} of the busy GPU-hours have no pod or job label.",
        "The owner of that work is unknown. It is inferred from activity ('unattributed on NODE'), its "
        "verdicts are less certain, and its recommendations are blocked until the owner is confirmed.",
        where, add, nodes,
    )  # fmt: skip


def _slurm(told: SourceCoverage) -> Iterator[TelemetryGap]:
    slurm = told.slurm
    unnamed = slurm.jobs - slurm.named
    if unnamed > _UNNAMED_SHARE * slurm.jobs:
        is_server = told.source.get("kind") == "prometheus"
        yield TelemetryGap(
            "slurm-jobs-unnamed",
            f"{unnamed} of {_counted(slurm.jobs, 'Slurm job')} have a number only.",
            "Name, user and account are unknown. Runs of one job script do not form a series, and "
            "requeued runs count as one workload.",
            "a host with Slurm's commands",
            "skuwise slurm import --since 14d --output jobs.txt, then --jobs jobs.txt"
            if is_server
            else "skuwise slurm import --since 14d on each node, or skuwise agent install --with-slurm",
        )


def _money(told: SourceCoverage, catalog: Catalog, nodes: Sequence[NodeState]) -> Iterator[TelemetryGap]:
    unpriced = [node for node in nodes if node.usd_per_hour is None and node.expected]
    names = tuple(node.node for node in unpriced)
    unnamed = tuple(node.node for node in unpriced if node.node_sku is None)
    regionless = tuple(node.node for node in unpriced if node.node_sku in catalog.nodes and node.region is None)
    assumed = tuple(node.node for node in nodes if node.assumed_region is not None)
    loses = "Cost and savings are shown in GPU-hours, not in dollars."
    on_server = told.source.get("kind") == "prometheus"
    if told.kubernetes and on_server:
        allow = ("the flags of kube-state-metrics", remedies.ALLOW_LIST)
    elif on_server:
        allow = ("", "set the price of a GPU-hour, or run the skuwise agent there, which reads type and region")
    else:
        allow = ("/etc/skuwise/node-labels on the nodes", remedies.NODE_LABELS)
    if unnamed:
        yield TelemetryGap(
            "node-sku-unknown", f"Unknown node type on {_counted(len(unnamed), 'node')}.", loses, *allow, unnamed
        )
    if regionless:
        what = f"Unknown region on {_counted(len(regionless), 'node')}."
        yield TelemetryGap("region-unknown", what, loses, *allow, regionless)
    if assumed:
        named = any(node.region is not None for node in nodes if node.assumed_region is not None)
        yield TelemetryGap(
            "region-unknown",
            f"Unknown region{(' or no price for it' if named else '')} on {_counted(len(assumed), 'node')}.",
            "Costs use the provider's reference region (region assumed). Savings use the lowest price of "
            "any region.",
            *allow, assumed,
        )  # fmt: skip
    if not unpriced:
        return
    counts = Counter(gpu.sku for node in told.nodes if node.node in names for gpu in node.gpus if gpu.sku)
    skus = sorted(counts, key=lambda sku: (-counts[sku], sku))[:_SKUS_SHOWN]
    flags = flag_line(skus or ["H100-SXM5"], "2.10")
    yield TelemetryGap(
        "no-price", f"No price for {_counted(len(unpriced), 'node')}.", loses,
        f"skuwise.toml, with your prices (or pass {flags})", remedies.price_line(skus), names,
    )  # fmt: skip


def _exporters(told: SourceCoverage, metrics: Sequence[MetricCoverage]) -> Iterator[TelemetryGap]:
    renamed = tuple(sorted(node.node for node in told.nodes if node.renamed_from))
    if renamed:
        yield TelemetryGap(
            "hostname-is-a-pod",
            f"dcgm-exporter reports {_counted(len(renamed), 'node')} under the name of its own pod.",
            "Each new pod looks like a new node, and the node does not match time series of "
            "node_exporter or Kubernetes.",
            "the env of the dcgm-exporter container", remedies.HOSTNAME_ENV, renamed,
        )  # fmt: skip
    on_server = told.source.get("kind") == "prometheus"
    names = {one.name for one in told.exporters}
    if on_server and told.kubernetes and "kube-state-metrics" not in names:
        yield TelemetryGap(
            "no-kube-state-metrics", "Pods have names, but kube-state-metrics is not scraped.",
            "GPUs that pods request on nodes without an exporter are not counted. Regions and owners are "
            "unknown.",
            "scrape_configs of the Prometheus server", "job_name: kube-state-metrics",
        )  # fmt: skip
    slowest = max(
        (one.resolution_seconds for one in metrics if one.metric in GPU_MEASURES and one.resolution_seconds),
        default=0.0,
    )
    if on_server and slowest > _COARSE_SECONDS:
        yield TelemetryGap(
            "coarse-samples", f"GPUs are sampled every {span(slowest)}.",
            "Changes between work and waiting that are shorter are not visible.",
            "scrape_configs of the Prometheus server, for the jobs of the exporters", remedies.SCRAPE_LINE,
        )  # fmt: skip


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
