"""The checks of ``skuwise doctor``: what a source lacks, its effect on the advice, and the remedy; the weightiest
first."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ...rules.catalog.price_files import GPU_FLAG
from ..classify.features.soundness import NO_PIPE
from ..core.formatting import counted, percent
from ..core.frame import blind_nodes
from ..core.scalars import records, text
from ..core.timestamps import minute, span
from ..core.verdict_types import INFERRED
from ..recommend.fleet import ready_at, when_possible
from ..show.coverage import observed_fabrics
from .coverage import (
    GPU_MEASURES,
    HOUR,
    OTHER_PIPES,
    WINDOW_SHARE,
    Diagnosis,
    MetricCoverage,
    NodeState,
    TelemetryGap,
    can_be_profiled,
    models_of,
)

DCGM_FILE = "dcgm-exporter's counters CSV (-f, or the Helm value customMetrics)"
KUBE_SERIES = (
    "metric_relabel_configs: [{source_labels: [__name__], action: keep, regex: "
    "kube_pod_(owner|info|created|start_time|labels|container_info|container_resource_requests|status_phase)"
    "|kube_(replicaset|job|deployment)_owner|kube_job_spec_parallelism|kube_namespace_labels|kube_node_.+}]"
)
KUBE_REMEDY = ("the scrape configuration of kube-state-metrics (and its --metric-allowlist if set)", KUBE_SERIES)
KUBE_LABELS = (
    "the flags of kube-state-metrics, if the nodes have these labels",
    "--metric-labels-allowlist=nodes=[topology.kubernetes.io/region,node.kubernetes.io/instance-type]",
)
NODE_LABELS = (
    "/etc/skuwise/node-labels on the nodes",
    'topology.kubernetes.io/region="REGION"\nnode.kubernetes.io/instance-type="INSTANCE-TYPE"',
)
INFINIBAND_FLAG = "--collector.infiniband"
ETHERNET_FLAG = "--collector.netdev --collector.netclass"
NODE_EXPORTER = "the flags of node_exporter (in a container also --path.sysfs=/host/sys)"

# Samples that lie farther apart than this hide the changes between work and waiting.
_COARSE_SECONDS = 90.0
# Of GPU-hours of work, or of workloads: a larger share without a name is a gap.
_UNNAMED_SHARE = 0.1
_MODELS_MAX = 3  # in a line to copy
_EXAMPLE_USD = "2.10"
_RESTART = "restart dcgm-exporter and its host engine on these nodes"
_AGENT_DOCTOR = "run 'skuwise agent doctor' on these nodes"
_NO_DOLLARS = "Cost and savings are shown in GPU-hours, not in dollars."
# Kubernetes ends the names of a DaemonSet's pods in letters and digits of its choice.
_EXPORTER_POD = re.compile(r".*dcgm-exporter-[a-z0-9]{4,10}")
# Code of unobserved GPUs -> cause and remedy, on a server.
_CAUSES = {
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
        "their time series have no values", "check the log of dcgm-exporter; restart it and its host engine",
    ),
}  # fmt: skip
Gaps = Iterator[TelemetryGap]
Remedy = tuple[str, str]  # where to add, and what


def _gap(code: str, what: str, loses: str, remedy: Remedy | str, nodes: Iterable[NodeState | str] = ()) -> TelemetryGap:
    """`remedy`: also what to do, without a place."""
    where, add = ("", remedy) if isinstance(remedy, str) else remedy
    names = (node if isinstance(node, str) else node.node for node in nodes)
    return TelemetryGap(code, what, loses, where, add, tuple(dict.fromkeys(names)))


def _with_dcgm(d: Diagnosis) -> bool:
    return "dcgm-exporter" in d.exporters


def _in_kubernetes(d: Diagnosis) -> bool:
    return "kube-state-metrics" in d.exporters or d.kubernetes["observed"] > 0


def _unobserved_gpus(d: Diagnosis) -> Gaps:
    if renamed := [node for node in d.nodes if _EXPORTER_POD.fullmatch(node.node)]:
        yield _gap(
            "hostname-is-a-pod",
            f"dcgm-exporter reports {counted(len(renamed), 'node')} under the name of its pod.",
            "Each new pod looks like a new node, which matches no time series of node_exporter or Kubernetes.",
            ("the env of the dcgm-exporter container",
             "NODE_NAME: {valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}"), renamed,
        )  # fmt: skip
    blind = blind_nodes(d.frame.absences)
    whole = d.frame.absences[d.frame.absences["metric"].isin(["*", "gpu"])]
    absences = {(str(row["node"]), str(row["reason"])): text(row["remedy"]) or "" for row in records(whole)}
    by_cause: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
    for node in d.nodes:
        if not node.observed and node.node in blind:
            why = blind[node.node]
            code = "no-driver" if why.reason == "no-driver" else "gpus-unobserved"
            cause = (code, f"cannot be read: {why.detail}", why.remedy or _AGENT_DOCTOR)
            by_cause.setdefault(cause, []).append((node.node, node.inventory.gpu_count))
            continue
        for part in node.inventory.unobserved:
            dark = not node.observed and part.code in ("not-named", "no-samples")
            words, remedy = _CAUSES.get("no-exporter" if dark else part.code, ("", ""))
            if not words:  # the agent reports the cause
                remedy = absences.get((node.node, part.code), "")
                words = f"cannot be read: {part.reason.removesuffix(remedy).rstrip()}"
            elif not d.on_server:
                remedy = _AGENT_DOCTOR
            cause = ("gpus-unobserved", words, remedy or _AGENT_DOCTOR)
            by_cause.setdefault(cause, []).append((node.node, len(part.gpus)))
    for (code, words, remedy), counts in by_cause.items():
        count = sum(number for _, number in counts)
        yield _gap(
            code, f"{counted(count, 'GPU') if count else 'GPUs'} not observed: {words.rstrip('.')}.",
            "Their cost is shown as unobserved. Nodes with such a GPU are not recommended for release.", remedy,
            (name for name, _ in counts),
        )  # fmt: skip


def _too_little_data(d: Diagnosis) -> Gaps:
    floor, at, window = d.advice.summary.floor_hours or 0.0, d.advice.generated_at, d.frame.window
    short = [
        node for node in d.nodes
        if not node.judged and 0 < node.facts.hours_observed < floor and node.inventory.end is None
    ]  # fmt: skip
    if short:
        most = max((node.facts for node in short), key=lambda facts: facts.hours_observed)
        ready = ready_at(most.hours_observed, floor, window, at, most)
        then = f"wait until {minute(ready)}" if ready is not None else ""
        held = f"{'at most ' if len(short) > 1 else ''}{span(most.hours_observed * HOUR)}"
        yield _gap(
            "too-little-data", f"Too little data on {counted(len(short), 'node')}: {held} in the window.",
            f"No waste detection below {floor:g} h.",
            then or when_possible(most.hours_observed, floor, window, at, most), short,
        )  # fmt: skip
    observed, hours = d.verdicts.inventory.observed_hours, d.verdicts.inventory.hours
    if 0 < observed < WINDOW_SHARE * hours:
        alerts = ("alerts of the monitoring server", "alert on up == 0 for the jobs of the exporters")
        yield _gap(
            "window-has-holes",
            f"Gaps in the data: {span(observed * HOUR)} observed of {span(hours * HOUR)} since telemetry began.",
            "Activity in the gaps is unknown. Recommendations that need the whole window are withheld.",
            alerts if d.on_server else "on these nodes, see 'journalctl -u skuwise-agent' for the times without data",
        )  # fmt: skip


def _measures(d: Diagnosis) -> Gaps:
    for metric in d.metrics:
        if metric.metric in GPU_MEASURES and metric.lacking:
            yield from _measure(d, metric)
    models, unprofiled = models_of(d.frame), dict[str, list[str]]()
    for node in d.verdicts.inventory.nodes.values():
        for gpu in node.observed:
            model = models.get((gpu.node, gpu.gpu_uuid), "")
            if not can_be_profiled(gpu, model, d.catalog):
                unprofiled.setdefault(model, []).append(node.node)
    add = f"DCGM profiles data-center GPUs only: if 'dcgmi profile --list' lists metrics, add them to {DCGM_FILE}"
    for model, nodes in unprofiled.items():
        what = f"No profiling metrics of {model or 'GPUs of an unknown model'}."
        loses = GPU_MEASURES["tensor_active"].loses
        yield _gap("not-profiled", what, loses, add if _with_dcgm(d) else "", sorted(nodes))


def _measure(d: Diagnosis, metric: MetricCoverage) -> Gaps:
    title, columns, csv, loses = GPU_MEASURES[metric.metric]
    what = f"{title[0].upper()}{title[1:]}: measured on {metric.having} of {metric.of} GPUs."
    # Of several doubts about a node the first counts.
    doubts = {of.node: of for of in reversed(d.verdicts.doubts) if set(columns) & set(of.metric.split(", "))}
    absent = {str(row["node"]): row for row in records(d.frame.absences[d.frame.absences["metric"].isin(columns)])}
    by_cause: dict[tuple[str, Remedy | str], list[str]] = {}
    for node in metric.lacking:
        doubt, row, remedy = doubts.get(node), absent.get(node, {}), _RESTART
        detail = "" if doubt is None else f"Readings not believed: {doubt.text}"
        if doubt is not None and not _with_dcgm(d):
            remedy = _AGENT_DOCTOR
        elif doubt is not None and doubt.code == NO_PIPE:
            remedy = (DCGM_FILE, "\n".join(OTHER_PIPES))
        elif doubt is None and row.get("reason") == "counter-never-moved":
            detail = "Its counters read 0 on every GPU while they worked, which counts as missing."
        elif doubt is None and _with_dcgm(d):
            remedy = (DCGM_FILE, "\n".join(csv))
        elif doubt is None:
            detail, remedy = text(row.get("detail")) or "", text(row.get("remedy")) or _AGENT_DOCTOR
        by_cause.setdefault((detail, remedy), []).append(node)
    for (detail, remedy), nodes in by_cause.items():
        yield _gap(f"no-{metric.metric.replace('_', '-')}", f"{what} {detail}".strip(), loses, remedy, nodes)


def _networks_and_hosts(d: Diagnosis) -> Gaps:
    rows = d.frame.absences
    unread = {str(r["node"]): r for r in records(rows[(rows["scope"] == "fabric") | (rows["device"] == "infiniband")])}
    fabrics = observed_fabrics(d.advice)[0]
    unseen: dict[tuple[str, str], list[NodeState]] = {}
    silent: dict[str, list[NodeState]] = {}
    for node in d.nodes:
        sku = d.catalog.node(node.facts.node_sku) if node.facts.node_sku else None
        why, ports, fabric = unread.get(node.node), node.hours.get("infiniband"), node.facts.fabric
        missing = sku is not None and sku.fabric.kind == "infiniband" and not (ports and node.node in fabrics)
        if missing and (why is None or why["reason"] != "no-fabric"):
            cause = ("", "") if why is None else (text(why["detail"]) or "", text(why["remedy"]) or "")
            if why is None and ports and fabric is not None:  # ports that the advice cannot use
                unnamed = fabric.code == "no-compute-port"
                do = "set fabric_roles for the ports of the compute fabric" if unnamed else "check these ports"
                cause = (fabric.reason or "", do)
            unseen.setdefault(cause, []).append(node)
        elif not node.network_observed:
            # A node on which InfiniBand was looked for has its flag already.
            flags = ETHERNET_FLAG if why is not None else f"{INFINIBAND_FLAG} {ETHERNET_FLAG}"
            silent.setdefault(flags, []).append(node)

    def flag(flags: str) -> Remedy | str:
        return (NODE_EXPORTER, flags) if d.on_server else _AGENT_DOCTOR

    for (detail, remedy), nodes in unseen.items():
        what = f"No usable InfiniBand metrics on {counted(len(nodes), 'node')} of a type with InfiniBand. {detail}"
        loses = "Idle fabrics are not detected. Network-bound and launch-bound work cannot be distinguished."
        yield _gap("no-infiniband", what.strip(), loses, remedy or flag(INFINIBAND_FLAG), nodes)
    for flags, nodes in silent.items():
        loses = "Fabric presence and use are unknown. Multi-GPU jobs that wait get no bottleneck verdict."
        yield _gap("no-network", f"No network counters on {counted(len(nodes), 'node')}.", loses, flag(flags), nodes)
    if without := [node for node in d.nodes if node.inventory.host_hours <= 0]:
        yield _gap(
            "no-host", f"No CPU counters on {counted(len(without), 'node')}.",
            "Work that waits for CPU or disk is not detected, and the provider is not detected from firmware.",
            flag("--collector.cpu --collector.uname --collector.dmi"), without,
        )  # fmt: skip


def _names_of_work(d: Diagnosis) -> Gaps:
    busy = d.labels["busy_gpu_hours"]
    missing = busy - d.labels["labeled_gpu_hours"]
    if missing > _UNNAMED_SHARE * busy:
        slurm = (
            "the flags of dcgm-exporter, with the directory to which Slurm's prolog writes job ids",
            "--hpc-job-mapping-dir=/run/dcgm-job-mapping",
        )
        pods = ("the environment of the dcgm-exporter container", "DCGM_EXPORTER_KUBERNETES=true")
        on_server = pods if _in_kubernetes(d) else slurm
        yield _gap(
            "no-workload-labels", f"{percent(missing / busy)} of the busy GPU-hours have no pod or job label.",
            "The owner of that work is unknown. It is inferred from activity ('unattributed on NODE'), its verdicts "
            "are less certain, and its recommendations are blocked until the owner is confirmed.",
            on_server if d.on_server else _AGENT_DOCTOR,
            sorted({node for w in d.verdicts.workloads if w.basis == INFERRED for node in w.nodes}),
        )  # fmt: skip
    observed, named = d.kubernetes["observed"], d.kubernetes["named"]
    if d.on_server and observed and "kube-state-metrics" not in d.exporters:
        yield _gap(
            "no-kube-state-metrics", "Pods have names, but kube-state-metrics is not scraped.",
            "GPUs that pods request on nodes without an exporter are not counted. Regions and owners are unknown.",
            ("scrape_configs of the Prometheus server", "job_name: kube-state-metrics"),
        )  # fmt: skip
    elif d.on_server and named < observed:
        yield _gap(
            "pod-owners-unknown", f"No owner from kube-state-metrics for {observed - named} of {observed} workloads.",
            "Their work is named after its pods. Pods that train together count as several workloads; owner, image "
            "and start are unknown.",
            KUBE_REMEDY,
        )  # fmt: skip
    observed, unnamed = d.slurm["observed"], d.slurm["observed"] - d.slurm["named"]
    if unnamed > _UNNAMED_SHARE * observed:
        imported = "skuwise slurm import --since 14d"
        yield _gap(
            "slurm-jobs-unnamed", f"{unnamed} of {counted(observed, 'Slurm job')} have a number only.",
            "Name, user and account are unknown. Runs of one job script do not form a series, and requeued runs count "
            "as one workload.",
            ("a host with Slurm's commands",
             f"{imported} --output jobs.txt, then --jobs jobs.txt" if d.on_server
             else f"{imported} on each node, or skuwise agent install --with-slurm"),
        )  # fmt: skip


def _prices(d: Diagnosis) -> Gaps:
    unpriced = [node for node in d.nodes if node.price is None and node.inventory.gpu_count]
    models = {sku.gpu for sku in d.catalog.nodes.values()}
    labels: Remedy | str = NODE_LABELS
    if d.on_server:
        do = "set the price of a GPU-hour, or run the skuwise agent there, which reads type and region"
        labels = KUBE_LABELS if _in_kubernetes(d) else do
    untyped, unplaced = [], []
    for node in unpriced:
        facts = node.facts
        # No label names a type that the catalog lacks.
        if facts.node_sku is None and node.instance_type is None and facts.gpu_sku in models:
            untyped.append(node)
        elif facts.node_sku in d.catalog.nodes and not facts.region:
            unplaced.append(node)
    assumed = [node for node in d.nodes if node.assumed_region is not None]
    or_price = " or no price for it" if any(node.facts.region is not None for node in assumed) else ""
    assuming = "Costs use the provider's reference region (region assumed). Savings use the lowest price of any region."
    for code, what, loses, nodes in (
        ("node-sku-unknown", "Unknown node type", _NO_DOLLARS, untyped),
        ("region-unknown", "Unknown region", _NO_DOLLARS, unplaced),
        ("region-unknown", f"Unknown region{or_price}", assuming, assumed),
    ):
        if nodes:
            yield _gap(code, f"{what} on {counted(len(nodes), 'node')}.", loses, labels, nodes)
    count = Counter(model for node in unpriced if (model := node.facts.gpu_sku or node.facts.gpu_name))
    if count:
        often = sorted(count, key=lambda model: (-count[model], model))[:_MODELS_MAX]
        flags = " ".join(f"{GPU_FLAG} {shlex.quote(f'{model}={_EXAMPLE_USD}')}" for model in often)
        lines = ", ".join(f"{json.dumps(model)} = {_EXAMPLE_USD}" for model in often)
        settings = (f"skuwise.toml, with your prices (or pass {flags})", f"[prices]\ngpu_hour_usd = {{ {lines} }}")
        priced = [node for node in unpriced if node.facts.gpu_sku or node.facts.gpu_name]
        yield _gap("no-price", f"No price for {counted(len(priced), 'node')}.", _NO_DOLLARS, settings, priced)
    if mixed := [node for node in unpriced if not (node.facts.gpu_sku or node.facts.gpu_name)]:
        what = f"No price for {counted(len(mixed), 'node')} with GPUs of several or unknown models."
        yield _gap("no-price", what, _NO_DOLLARS, "", mixed)


def _sampling(d: Diagnosis) -> Gaps:
    seconds = d.frame.source.get("scrape_seconds")
    if d.on_server and isinstance(seconds, (int, float)) and seconds > _COARSE_SECONDS:
        where = "scrape_configs of the Prometheus server, for the jobs of the exporters"
        loses = "Changes between work and waiting that are shorter are not visible."
        what = f"GPUs are sampled every {span(float(seconds))}."
        yield _gap("coarse-samples", what, loses, (where, "scrape_interval: 30s"))


CHECKS: tuple[Callable[[Diagnosis], Gaps], ...] = (
    _unobserved_gpus, _too_little_data, _measures, _networks_and_hosts, _names_of_work, _prices, _sampling,
)  # fmt: skip
