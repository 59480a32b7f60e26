"""What a source does not tell, each with what the advice loses by it and the line that adds it; weightiest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ....rules.catalog.hour_prices import GPU_FLAG
from ....rules.catalog.loader import Catalog
from ...core.formatting import percent
from ...core.timestamps import span
from .. import remedies
from ..facts import GPU_MEASURES, NodeCoverage, SourceCoverage, applies
from ..types import Labels, MetricCoverage, NodeState, Readiness, TelemetryGap
from .kubernetes import owner_gaps

# Samples that lie farther apart than this are worth a line: shorter turns of work and waiting are not seen.
_COARSE_SECONDS = 90.0
# Below this share of a window something is said of its holes.
WINDOW_SHARE = 0.9
# Of busy GPU-hours: so many may be without a label before a line is written.
_UNLABELED_SHARE = 0.1
# Of Slurm's jobs: so many may be without a name before a line is written.
_UNNAMED_SHARE = 0.1
# In a line that people copy.
_SKUS_SHOWN = 3
_DOCTOR = "run skuwise agent doctor on these nodes"


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
    loses = "Their cost is shown as unobserved, and no node that has one of them is recommended for release."
    for (code, reason), found in by_reason.items():
        names = tuple(dict.fromkeys(name for name, _ in found))
        count = sum(number for _, number in found)
        what = f"{_counted(count, 'GPU')} not observed"
        if code == "no-exporter":
            gap = (
                f"{what}: no exporter or agent reports them.",
                "run dcgm-exporter on these nodes (a DaemonSet that tolerates their taints), or skuwise agent run",
            )
        elif code == "not-named":
            gap = (
                f"{what}: their nodes have more GPUs than any series names.",
                "on these nodes compare nvidia-smi -L with dcgm-exporter's page; restart it where a GPU is missing",
            )
        elif code == "no-samples":
            gap = (
                f"{what}: series name them without any value.",
                "look into dcgm-exporter's log; restart it and its host engine",
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
                        f"The GPUs of this node cannot be read: {one.detail or one.reason}", loses, "",
                        one.remedy or _DOCTOR, (node.node,),
                    )  # fmt: skip
                    break


def _data(told: SourceCoverage, readiness: Readiness) -> Iterator[TelemetryGap]:
    if readiness.hours_left > 0 and told.observed_hours:
        yield TelemetryGap(
            "too-little-data",
            f"The window holds {span(readiness.best_hours * 3600)} of data of a node at most.",
            f"No verdict on waste is given below {readiness.floor_hours:g} h.",
            "",
            "choose a longer window with --since"
            if told.window.hours < readiness.floor_hours
            else f"let {span(readiness.hours_left * 3600)} more of data come in",
        )
    hours = max((told.window.end - told.begin) / 3600, 1e-9)
    if told.observed_hours and told.observed_hours < WINDOW_SHARE * hours:
        yield TelemetryGap(
            "window-has-holes",
            f"Of {span(hours * 3600)} since telemetry began, {span(told.observed_hours * 3600)} are observed.",
            "What happened in the holes is unknown; recommendations that need the whole window are withheld.",
            "alerts of the monitoring server", "alert on up == 0 of the exporters' jobs",
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
        what = f"{one.title[0].upper()}{one.title[1:]} is measured on {one.having} of {one.of} GPUs."
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
    where = "node_exporter's flags (in a container also --path.sysfs=/host/sys)" if on_server else ""
    if unseen:
        yield TelemetryGap(
            "no-infiniband",
            f"No InfiniBand port is observed on {_counted(len(unseen), 'node')} whose type has InfiniBand.",
            "Idle fabrics are not found, and network-bound work cannot be told from launch-bound work.",
            where, remedies.INFINIBAND_FLAG if on_server else _DOCTOR, tuple(unseen),
        )  # fmt: skip
    if silent:
        yield TelemetryGap(
            "no-network", f"No network counters of {_counted(len(silent), 'node')}.",
            "Whether they have a fabric and use it is unknown: multi-GPU jobs that wait stay without a bottleneck.",
            where,
            f"{remedies.INFINIBAND_FLAG} {remedies.ETHERNET_FLAG}" if on_server else _DOCTOR,
            tuple(silent),
        )  # fmt: skip


def _host(told: SourceCoverage) -> Iterator[TelemetryGap]:
    without = tuple(sorted(node.node for node in told.nodes if not node.known.get("host")))
    if without and told.source.get("kind") == "prometheus":
        yield TelemetryGap(
            "no-host", f"No CPU counters of {_counted(len(without), 'node')}.",
            "Work that waits for CPU or disk is not found, and firmware does not tell the provider.",
            "node_exporter's flags, on these nodes", remedies.HOST_FLAG, without,
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
            ("the environment of dcgm-exporter's container", remedies.PODS_FLAG)
            if told.kubernetes
            else ("dcgm-exporter's flags, where Slurm's prolog writes job ids there", remedies.SLURM_FLAG)
        )
    else:
        where, add = "", _DOCTOR
    yield TelemetryGap(
        "no-workload-labels", f"{percent(share)} of the busy GPU-hours name no pod and no job.",
        "Whose work that is remains unknown: it is found by its activity alone ('unattributed on NODE'), its verdicts "
        "are less sure, and its recommendations wait until somebody asked who uses the node.",
        where, add, nodes,
    )  # fmt: skip


def _slurm(told: SourceCoverage) -> Iterator[TelemetryGap]:
    slurm = told.slurm
    unnamed = slurm.jobs - slurm.named
    if unnamed > _UNNAMED_SHARE * slurm.jobs:
        is_server = told.source.get("kind") == "prometheus"
        yield TelemetryGap(
            "slurm-jobs-unnamed",
            f"{unnamed} of {_counted(slurm.jobs, 'Slurm job')} are known by number only.",
            "No name, user or account; runs of one job script are not one series, and requeued runs are one workload.",
            "where Slurm's commands are",
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
    loses = "Their cost and their savings are in GPU-hours, not in dollars."
    on_server = told.source.get("kind") == "prometheus"
    if told.kubernetes and on_server:
        allow = ("kube-state-metrics' flags", remedies.ALLOW_LIST)
    elif on_server:
        allow = ("", "set the price of a GPU-hour, or run skuwise agent run there: it reads type and region")
    else:
        allow = ("/etc/skuwise/node-labels on the nodes", remedies.NODE_LABELS)
    if unnamed:
        yield TelemetryGap(
            "node-sku-unknown", f"The type of {_counted(len(unnamed), 'node')} is unknown.", loses, *allow, unnamed
        )
    if regionless:
        what = f"The region of {_counted(len(regionless), 'node')} is unknown."
        yield TelemetryGap("region-unknown", what, loses, *allow, regionless)
    if assumed:
        named = any(node.region is not None for node in nodes if node.assumed_region is not None)
        yield TelemetryGap(
            "region-unknown",
            f"The region of {_counted(len(assumed), 'node')} is unknown{' or has no price' if named else ''}.",
            "Costs use the provider's reference region (region assumed); savings use the lowest price of any region.",
            *allow, assumed,
        )  # fmt: skip
    if not unpriced:
        return
    counts = Counter(gpu.sku for node in told.nodes if node.node in names for gpu in node.gpus if gpu.sku)
    skus = sorted(counts, key=lambda sku: (-counts[sku], sku))[:_SKUS_SHOWN]
    flags = " ".join(f"{GPU_FLAG} {sku}=2.10" for sku in skus or ["H100-SXM5"])
    yield TelemetryGap(
        "no-price", f"No price for {_counted(len(unpriced), 'node')}.", loses,
        f"skuwise.toml, with your prices (or {flags})", remedies.price_line(skus), names,
    )  # fmt: skip


def _exporters(told: SourceCoverage, metrics: Sequence[MetricCoverage]) -> Iterator[TelemetryGap]:
    renamed = tuple(sorted(node.node for node in told.nodes if node.renamed_from))
    if renamed:
        yield TelemetryGap(
            "hostname-is-a-pod", f"dcgm-exporter calls {_counted(len(renamed), 'node')} by the name of its own pod.",
            "A node gets a new name whenever the pod is replaced, and joins no series of node_exporter or Kubernetes.",
            "env of dcgm-exporter's container", remedies.HOSTNAME_ENV, renamed,
        )  # fmt: skip
    on_server = told.source.get("kind") == "prometheus"
    names = {one.name for one in told.exporters}
    if on_server and told.kubernetes and "kube-state-metrics" not in names:
        yield TelemetryGap(
            "no-kube-state-metrics", "Pods are named, and kube-state-metrics is not scraped.",
            "GPUs that pods request on nodes without any exporter are not counted; regions and owners are unknown.",
            "scrape_configs of the server", "job_name: kube-state-metrics",
        )  # fmt: skip
    slowest = max(
        (one.resolution_seconds for one in metrics if one.metric in GPU_MEASURES and one.resolution_seconds),
        default=0.0,
    )
    if on_server and slowest > _COARSE_SECONDS:
        yield TelemetryGap(
            "coarse-samples", f"GPUs are sampled every {span(slowest)}.",
            "Turns of work and waiting that are shorter than that are not seen.",
            "scrape_configs of the server, at the exporters' jobs", remedies.SCRAPE_LINE,
        )  # fmt: skip


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
