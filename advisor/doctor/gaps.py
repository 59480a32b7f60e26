"""What a source lacks, each gap with what the advice loses by it and what adds it; weightiest first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...rules.catalog.hour_prices import GPU_FLAG
from ...rules.catalog.loader import Catalog
from ..classify.features.soundness import NO_PIPE
from ..classify.types import Verdicts
from ..core.formatting import counted, percent
from ..core.frame import Frame
from ..core.scalars import records, text
from ..core.timestamps import minute, span
from ..core.unobservable import blind_nodes
from ..core.verdict_types import INFERRED
from ..recommend.finding import ready_at, when_possible
from ..show.coverage import observed_fabrics
from . import remedies
from .coverage import HOUR, WINDOW_SHARE, unprofiled
from .types import Diagnosis, MetricCoverage, NodeState, TelemetryGap

# Samples that lie farther apart than this hide the turns of work and waiting between them.
_COARSE_SECONDS = 90.0
# Of GPU-hours of work, or of workloads: so many may be without a name before a gap is said.
_UNNAMED_SHARE = 0.1
# In a line that people copy.
_MODELS_SHOWN = 3
_RESTART = "restart dcgm-exporter and its host engine on these nodes"
_AGENT_DOCTOR = "run 'skuwise agent doctor' on these nodes"
_NO_DOLLARS = "Cost and savings are shown in GPU-hours, not in dollars."
_UNNAMED_WORK = (
    "The owner of that work is unknown. It is inferred from activity ('unattributed on NODE'), its verdicts are less "
    "certain, and its recommendations are blocked until the owner is confirmed."
)
# Kubernetes ends the names of a DaemonSet's pods in letters and digits of its choice.
_EXPORTER_POD = re.compile(r".*dcgm-exporter-[a-z0-9]{4,10}")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "engine_active": ("gpu_util",), "mem_used": ("mem_used_bytes",), "power": ("power_watts",),
    "clocks": ("sm_clock_hertz",), "nvlink": ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"),
    "pcie": ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"),
}  # fmt: skip


def gaps_of(found: Diagnosis, frame: Frame, verdicts: Verdicts, catalog: Catalog) -> tuple[TelemetryGap, ...]:
    """All gaps of a diagnosis that has none yet."""
    at = _Gaps(found, frame, verdicts, catalog)
    return (
        *at.names(), *at.unobserved(), *at.too_little_data(), *at.measures(), *at.networks(),
        *at.labels(), *at.owners(), *at.money(), *at.sampling(),
    )  # fmt: skip


@dataclass(frozen=True)
class _Gaps:
    found: Diagnosis
    frame: Frame
    verdicts: Verdicts
    catalog: Catalog

    @property
    def with_dcgm(self) -> bool:
        return "dcgm-exporter" in self.found.exporters

    @property
    def in_kubernetes(self) -> bool:
        return "kube-state-metrics" in self.found.exporters or self.found.kubernetes.observed > 0

    def names(self) -> Iterator[TelemetryGap]:
        """Nodes that are named after a pod of their exporter."""
        renamed = [node for node in self.found.nodes if _EXPORTER_POD.fullmatch(node.node)]
        if renamed:
            yield TelemetryGap(
                "hostname-is-a-pod",
                f"dcgm-exporter reports {counted(len(renamed), 'node')} under the name of its own pod.",
                "Each new pod looks like a new node, and the node does not match time series of node_exporter or "
                "Kubernetes.",
                "the env of the dcgm-exporter container", remedies.HOSTNAME_ENV, _names(renamed),
            )  # fmt: skip

    def unobserved(self) -> Iterator[TelemetryGap]:
        """GPUs that exist and of which nothing is known."""
        blind, rows = blind_nodes(self.frame.absences), records(self.frame.absences)
        # By node and reason, of what is absent of its GPUs as a whole.
        whole = (row for row in rows if row["metric"] in ("*", "gpu"))
        absences = {(str(row["node"]), str(row["reason"])): text(row["remedy"]) or "" for row in whole}
        loses = "Their cost is shown as unobserved. Nodes with such a GPU are not recommended for release."
        by_cause: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
        for node in self.found.nodes:
            if not node.observed and node.node in blind:
                why = blind[node.node]
                code = "no-driver" if why.reason == "no-driver" else "gpus-unobserved"
                by_cause.setdefault((code, f"cannot be read: {why.detail}", why.remedy or _AGENT_DOCTOR), []).append(
                    (node.node, node.expected)
                )
                continue
            for one in node.counted.unobserved:
                dark = not node.observed and one.code in ("not-named", "no-samples")
                known = _CAUSES.get("no-exporter" if dark else one.code)
                if known is not None:
                    said, remedy = known[0], known[1] if self.found.on_server else _AGENT_DOCTOR
                else:  # the agent says why
                    remedy = absences.get((node.node, one.code), "")
                    said = f"cannot be read: {one.reason.removesuffix(remedy).rstrip()}"
                cause = "gpus-unobserved", said, remedy or _AGENT_DOCTOR
                by_cause.setdefault(cause, []).append((node.node, len(one.gpus)))
        for (code, why_not, remedy), counts in by_cause.items():
            count = sum(number for _, number in counts)
            what = f"{counted(count, 'GPU') if count else 'GPUs'} not observed: {why_not.rstrip('.')}."
            names = tuple(dict.fromkeys(name for name, _ in counts))
            yield TelemetryGap(code, what, loses, "", remedy, names)

    def too_little_data(self) -> Iterator[TelemetryGap]:
        """Nodes that were not observed for the hours that a verdict on waste takes; hours since telemetry began in
        which nothing was observed."""
        advice = self.found.advice
        floor = advice.summary.floor_hours or 0.0
        short = [
            node for node in self.found.nodes
            if not node.judged and 0 < node.facts.hours_observed < floor and node.counted.end is None
        ]  # fmt: skip
        if short:
            most = max(short, key=lambda node: node.facts.hours_observed).facts
            at = advice.generated_at
            ready = ready_at(most.hours_observed, floor, self.frame.window, at, most)
            held = f"{'at most ' if len(short) > 1 else ''}{span(most.hours_observed * HOUR)}"
            yield TelemetryGap(
                "too-little-data", f"Too little data on {counted(len(short), 'node')}: {held} in the window.",
                f"No waste detection below {floor:g} h.", "",
                when_possible(most.hours_observed, floor, self.frame.window, at, most) if ready is None
                else f"wait until {minute(ready)}", _names(short),
            )  # fmt: skip
        observed, hours = self.verdicts.inventory.observed_hours, self.verdicts.inventory.hours
        if 0 < observed < WINDOW_SHARE * hours:
            yield TelemetryGap(
                "window-has-holes",
                f"Gaps in the data: {span(observed * HOUR)} observed of {span(hours * HOUR)} since telemetry began.",
                "Activity in the gaps is unknown. Recommendations that need the whole window are withheld.",
                *(
                    ("alerts of the monitoring server", "alert on up == 0 for the jobs of the exporters")
                    if self.found.on_server
                    else ("", "on these nodes, see 'journalctl -u skuwise-agent' for the times without data")
                ),
            )

    def measures(self) -> Iterator[TelemetryGap]:
        """Measures that some GPUs lack and could have."""
        for metric in self.found.metrics:
            if metric.scope == "gpu" and metric.lacking:
                yield from self._measure(metric)
        unknown = unprofiled(self.frame, self.verdicts.inventory, self.catalog)
        for model, nodes in unknown.items():
            yield TelemetryGap(
                "not-profiled", f"No profiling metrics of {model or 'GPUs of an unknown model'}.",
                remedies.LOSES["tensor_active"], "",
                "DCGM profiles data-center GPUs only: if 'dcgmi profile --list' on these nodes lists metrics, add them "
                f"to {remedies.DCGM_FILE}" if self.with_dcgm else "", nodes,
            )  # fmt: skip

    def _measure(self, one: MetricCoverage) -> Iterator[TelemetryGap]:
        code, loses = f"no-{one.metric.replace('_', '-')}", remedies.LOSES[one.metric]
        what = f"{one.title[0].upper()}{one.title[1:]}: measured on {one.having} of {one.of} GPUs."
        columns = _COLUMNS.get(one.metric, (one.metric,))
        doubts = [doubt for doubt in self.verdicts.doubts if not set(columns).isdisjoint(doubt.metric.split(", "))]
        first = {doubt.code: doubt for doubt in reversed(doubts)}
        disbelieved = {doubt.node: first[doubt.code] for doubt in doubts}
        rows = self.frame.absences[self.frame.absences["metric"].isin(columns)]
        causes = {str(row["node"]): (text(row["detail"]) or "", text(row["remedy"]) or "") for row in records(rows)}
        still = set(rows.loc[rows["reason"] == "counter-never-moved", "node"])
        by_cause: dict[tuple[str, str, str], list[str]] = {}
        for node in one.lacking:
            doubt = disbelieved.get(node)
            if doubt is not None:
                where, add = "", f"{_RESTART}; look for an XID before that time" if self.with_dcgm else _AGENT_DOCTOR
                if self.with_dcgm and doubt.code == NO_PIPE:
                    where, add = remedies.DCGM_FILE, "\n".join(remedies.OTHER_PIPES)
                cause = (f"Readings not believed: {doubt.text}", where, add)
            elif node in still:
                cause = ("Its counters read 0 on every GPU while they worked, which counts as missing.", "", _RESTART)
            elif self.with_dcgm:
                cause = ("", remedies.DCGM_FILE, "\n".join(remedies.CSV[one.metric]))
            else:
                detail, remedy = causes.get(node, ("", ""))
                cause = (detail, "", remedy or _AGENT_DOCTOR)
            by_cause.setdefault(cause, []).append(node)
        for (detail, where, add), nodes in by_cause.items():
            yield TelemetryGap(code, f"{what} {detail}".strip(), loses, where, add, tuple(nodes))

    def networks(self) -> Iterator[TelemetryGap]:
        """Nodes without counters of the network that they have, or of any; nodes without those of their processors."""
        about = self.frame.absences
        rows = about[(about["scope"] == "fabric") | (about["device"] == "infiniband")]
        unread = {str(row["node"]): row for row in records(rows)}
        unseen: dict[tuple[str, str], list[NodeState]] = {}
        silent: dict[str, list[NodeState]] = {}
        fabrics = observed_fabrics(self.found.advice)[0]
        for node in self.found.nodes:
            sku = self.catalog.node(node.facts.node_sku) if node.facts.node_sku else None
            why = unread.get(node.node)
            has_none = why is not None and why["reason"] == "no-fabric"
            observed = node.known.get("infiniband") and node.node in fabrics
            if sku is not None and sku.fabric.kind == "infiniband" and not observed and not has_none:
                cause = (text(why["detail"]) or "", text(why["remedy"]) or "") if why is not None else ("", "")
                if why is None and node.known.get("infiniband") and node.facts.fabric is not None:
                    # Ports are there, and the advice cannot use them.
                    unnamed = node.facts.fabric.code == "no-compute-port"
                    do = "set fabric_roles for the ports of the compute fabric" if unnamed else "check these ports"
                    cause = (node.facts.fabric.reason or "", do)
                unseen.setdefault(cause, []).append(node)
            elif not node.network_observed:
                # Where InfiniBand was looked for, its flag is set already.
                flags = remedies.ETHERNET_FLAG if why is not None else remedies.ALL_NETWORKS
                silent.setdefault(flags, []).append(node)
        where = remedies.NODE_EXPORTER if self.found.on_server else ""
        for (detail, remedy), nodes in unseen.items():
            what = f"No usable InfiniBand metrics on {counted(len(nodes), 'node')} of a type with InfiniBand."
            yield TelemetryGap(
                "no-infiniband", f"{what} {detail}".strip(),
                "Idle fabrics are not detected. Network-bound and launch-bound work cannot be distinguished.",
                "" if remedy else where, remedy or (remedies.INFINIBAND_FLAG if where else _AGENT_DOCTOR),
                _names(nodes),
            )  # fmt: skip
        for flags, nodes in silent.items():
            yield TelemetryGap(
                "no-network", f"No network counters on {counted(len(nodes), 'node')}.",
                "Fabric presence and use are unknown. Multi-GPU jobs that wait get no bottleneck verdict.",
                where, flags if where else _AGENT_DOCTOR, _names(nodes),
            )  # fmt: skip
        without = [node for node in self.found.nodes if node.counted.host_hours <= 0]
        if without:
            yield TelemetryGap(
                "no-host", f"No CPU counters on {counted(len(without), 'node')}.",
                "Work that waits for CPU or disk is not detected, and the provider is not detected from firmware.",
                "the flags of node_exporter on these nodes" if self.found.on_server else "",
                remedies.HOST_FLAG if self.found.on_server else _AGENT_DOCTOR, _names(without),
            )  # fmt: skip

    def labels(self) -> Iterator[TelemetryGap]:
        """Work that no scheduler names."""
        hours = self.found.labels
        missing = hours.busy_gpu_hours - hours.labeled_gpu_hours
        if missing <= _UNNAMED_SHARE * hours.busy_gpu_hours:
            return
        unnamed = [workload for workload in self.verdicts.workloads if workload.basis == INFERRED]
        where, add = "", _AGENT_DOCTOR
        if self.found.on_server and self.in_kubernetes:
            where, add = "the environment of the dcgm-exporter container", remedies.PODS_FLAG
        elif self.found.on_server:
            where = "the flags of dcgm-exporter, with the directory to which Slurm's prolog writes job ids"
            add = remedies.SLURM_FLAG
        nodes = tuple(sorted({node for one in unnamed for node in one.nodes}))
        what = f"{percent(missing / hours.busy_gpu_hours)} of the busy GPU-hours have no pod or job label."
        yield TelemetryGap("no-workload-labels", what, _UNNAMED_WORK, where, add, nodes)

    def owners(self) -> Iterator[TelemetryGap]:
        """Pods of which nobody says what made them, and jobs of Slurm that have a number only."""
        pods = self.found.kubernetes
        if self.found.on_server and pods.observed and "kube-state-metrics" not in self.found.exporters:
            yield TelemetryGap(
                "no-kube-state-metrics", "Pods have names, but kube-state-metrics is not scraped.",
                "GPUs that pods request on nodes without an exporter are not counted. Regions and owners are unknown.",
                "scrape_configs of the Prometheus server", "job_name: kube-state-metrics",
            )  # fmt: skip
        elif self.found.on_server and pods.named < pods.observed:
            yield TelemetryGap(
                "pod-owners-unknown",
                f"No owner from kube-state-metrics for {pods.observed - pods.named} of {pods.observed} workloads.",
                "Their work is named after its pods. Pods that train together count as several workloads; owner, image "
                "and start are unknown.",
                remedies.KUBE_FILE, remedies.KUBE_SERIES,
            )  # fmt: skip
        jobs = self.found.slurm
        unnamed = jobs.observed - jobs.named
        if unnamed > _UNNAMED_SHARE * jobs.observed:
            yield TelemetryGap(
                "slurm-jobs-unnamed", f"{unnamed} of {counted(jobs.observed, 'Slurm job')} have a number only.",
                "Name, user and account are unknown. Runs of one job script do not form a series, and requeued runs "
                "count as one workload.",
                "a host with Slurm's commands",
                "skuwise slurm import --since 14d --output jobs.txt, then --jobs jobs.txt" if self.found.on_server
                else "skuwise slurm import --since 14d on each node, or skuwise agent install --with-slurm",
            )  # fmt: skip

    def money(self) -> Iterator[TelemetryGap]:
        """Nodes without a price, and why."""
        unpriced = [node for node in self.found.nodes if node.price is None and node.expected]
        assumed = [node for node in self.found.nodes if node.assumed_region is not None]
        models = {sku.gpu for sku in self.catalog.nodes.values()}
        # What the catalog lacks no label names.
        untyped = [
            node for node in unpriced
            if node.facts.node_sku is None and node.instance_type is None and node.facts.gpu_sku in models
        ]  # fmt: skip
        unplaced = [node for node in unpriced if node.facts.node_sku in self.catalog.nodes and not node.facts.region]
        if self.found.on_server and self.in_kubernetes:
            labels = ("the flags of kube-state-metrics, if the nodes have these labels", remedies.ALLOW_LIST)
        elif self.found.on_server:
            labels = ("", "set the price of a GPU-hour, or run the skuwise agent there, which reads type and region")
        else:
            labels = ("/etc/skuwise/node-labels on the nodes", remedies.NODE_LABELS)
        if untyped:
            what = f"Unknown node type on {counted(len(untyped), 'node')}."
            yield TelemetryGap("node-sku-unknown", what, _NO_DOLLARS, *labels, _names(untyped))
        if unplaced:
            what = f"Unknown region on {counted(len(unplaced), 'node')}."
            yield TelemetryGap("region-unknown", what, _NO_DOLLARS, *labels, _names(unplaced))
        if assumed:
            named = any(node.facts.region is not None for node in assumed)
            yield TelemetryGap(
                "region-unknown",
                f"Unknown region{(' or no price for it' if named else '')} on {counted(len(assumed), 'node')}.",
                "Costs use the provider's reference region (region assumed). Savings use the lowest price of any "
                "region.",
                *labels, _names(assumed),
            )  # fmt: skip
        priced_by_gpu = [node for node in unpriced if node.facts.gpu_sku or node.facts.gpu_name]
        if priced_by_gpu:
            counts = Counter(node.facts.gpu_sku or node.facts.gpu_name or "" for node in priced_by_gpu)
            often = sorted(counts, key=lambda model: (-counts[model], model))[:_MODELS_SHOWN]
            yield TelemetryGap(
                "no-price", f"No price for {counted(len(priced_by_gpu), 'node')}.", _NO_DOLLARS,
                f"skuwise.toml, with your prices (or pass {remedies.price_flags(GPU_FLAG, often)})",
                remedies.price_line(often), _names(priced_by_gpu),
            )  # fmt: skip
        mixed = [node for node in unpriced if node not in priced_by_gpu]
        if mixed:
            what = f"No price for {counted(len(mixed), 'node')} with GPUs of several models, or of none that is known."
            yield TelemetryGap("no-price", what, _NO_DOLLARS, "", "", _names(mixed))

    def sampling(self) -> Iterator[TelemetryGap]:
        """Samples that lie far apart."""
        seconds = self.frame.source.get("scrape_seconds")
        if self.found.on_server and isinstance(seconds, (int, float)) and seconds > _COARSE_SECONDS:
            yield TelemetryGap(
                "coarse-samples", f"GPUs are sampled every {span(float(seconds))}.",
                "Changes between work and waiting that are shorter are not visible.",
                "scrape_configs of the Prometheus server, for the jobs of the exporters", remedies.SCRAPE_LINE,
            )  # fmt: skip


_CAUSES: Mapping[str, tuple[str, str]] = {
    "no-exporter": (
        "no exporter or agent reports them",
        "run dcgm-exporter on these nodes (a DaemonSet that tolerates their taints), or run the skuwise agent",
    ),
    "not-named": (
        "their nodes have more GPUs than the time series name",
        "run nvidia-smi -L on these nodes: restart dcgm-exporter where it lists a GPU that the metrics lack; a GPU "
        "that it does not list has failed",
    ),
    "no-samples": (
        "their time series have no values",
        "check the log of dcgm-exporter; restart it and its host engine",
    ),
}


def _names(nodes: Sequence[NodeState]) -> tuple[str, ...]:
    return tuple(node.node for node in nodes)
