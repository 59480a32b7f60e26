"""Which workload held which GPU when: from the labels of dcgm-exporter, or the seconds that our agent's page counts.

Where a target has the same label, Prometheus moves the exporter's to ``exported_NAME`` (honor_labels false): that one
names the workload, the bare one the exporter's own pod. dcgm-exporter may name one of the pods that share a device, and
of a group of KAI Scheduler or Run:ai the pod that reserves it: the others are known by their requests and their group.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .....agent.jobs.ids import series_id, slurm_parts, workload_id
from .....agent.jobs.pods import RESERVATION_NAMESPACES, RESERVED, controller_of
from ....core.frame import Window
from ....core.scalars import records, text
from ... import queries as store
from ...resolution import concat
from .. import promql as queries
from ..client.range_planner import Ask
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..owners import Ranges
from ..promql import CLUSTER_LABELS, agent_node, cluster_of, label_of
from .gpus import About, reporter

_FULL = 0.97  # a row that is this full was held from end to end: samples at its edges may be missing
# The DaemonSets and containers that dcgm-exporter's chart and the GPU operator create (the chart's is "exporter").
_EXPORTER_POD = re.compile(r"(?:.+-)?dcgm-exporter-[a-z0-9]{5}")
_EXPORTER_CONTAINERS = frozenset({"nvidia-dcgm-exporter", "dcgm-exporter"})
_HOST_LABELS = ("Hostname", "hostname", "exported_Hostname", "exported_hostname")
GPU_GROUP = "label_runai_gpu_group"
_Row = dict[str, Any]


class LabelledWork(NamedTuple):
    """A workload as a series names it."""

    workload_id: str
    series_id: str | None
    name: str
    scheduler: str
    job_id: str | None = None
    namespace: str | None = None
    pod: str | None = None
    framework: str | None = None
    basis: str = "allocation"
    shared: bool = False
    cluster: str = ""

    def use(self, node: str, uuid: str, start: float, end: float) -> _Row:
        """A row of uses of GPUs."""
        return {
            **self._asdict(), "shared": float(self.shared), "node": node, "gpu_uuid": uuid, "ts_start": start,
            "ts_end": end, "mem_used_bytes": np.nan, "user": None, "account": None, "command": None,
        }  # fmt: skip


def work_of(labels: Labels, *, exported: bool) -> LabelledWork | None:
    """The workload that a series of dcgm-exporter names, by the labels ``exported_NAME`` or the bare ones."""
    prefix, cluster = "exported_" if exported else "", cluster_of(labels)
    job = labels.get("exported_hpc_job") or labels.get("hpc_job")
    if job and job != "0":  # without a name each job is a separate series
        key = workload_id(cluster, "slurm", *slurm_parts(job, None, None))
        return LabelledWork(key, None, f"job {job}", "slurm", job_id=job)
    pod, namespace, uid = (labels.get(f"{prefix}{name}", "") for name in ("pod", "namespace", "pod_uid"))
    if not pod:
        return None
    is_reserved, space = namespace in RESERVATION_NAMESPACES, namespace or None
    name = RESERVED if is_reserved else controller_of(pod)
    key = workload_id(cluster, "kubernetes", *((uid,) if uid else ("pod", namespace, pod)))
    series = series_id(cluster, space, None, name)
    return LabelledWork(key, series, name, "kubernetes", None, space, pod, shared=is_reserved, cluster=cluster)


def agent_work(labels: Labels) -> LabelledWork | None:
    """The workload of a series ``skuwise_workload_gpu_seconds_total``; its ids are the agent's own."""
    key = labels.get("workload_id")
    if not key:
        return None
    prefix = "exported_" if "exported_pod" in labels or "exported_namespace" in labels else ""
    pod, job = labels.get(f"{prefix}pod"), labels.get("job_id")
    return LabelledWork(
        key, labels.get("series_id"), controller_of(pod) if pod else f"job {job}" if job else key,
        labels.get("scheduler", "process"), job, labels.get(f"{prefix}namespace"), pod, labels.get("framework"),
        labels.get("basis", "process"), labels.get("shared") == "1",
    )  # fmt: skip


def agent_uses(answer: SeriesAnswer, grid: Grid, about: Mapping[str, About]) -> pd.DataFrame:
    """Uses from ``skuwise_workload_gpu_seconds_total`` at the end of each row."""
    rows: list[_Row] = []
    for labels, counted in zip(answer.labels, answer.values, strict=True):
        work, uuid = agent_work(labels), labels.get("gpu_uuid")
        gpu_key = next((key for key in (f"{uuid}@{agent_node(labels)}", uuid) if key in about), None)
        if work is not None and uuid is not None and gpu_key is not None:
            at = np.flatnonzero(~np.isnan(counted))
            values, held = counted[at], np.zeros(grid.count)
            more = np.diff(values, prepend=0.0)
            # A counter that fell was restarted with the agent; its value since was held.
            held[at] = np.minimum(np.where(more < 0, values, more), grid.step)
            spans = held_spans(held, grid)
            if spans and values[0] > grid.step:  # the first span began before the counter's first row
                spans[0] = (spans[0][0] + grid.step - float(values[0]), spans[0][1])
            rows += [work.use(about[gpu_key].node, uuid, *span) for span in spans]
    return pd.DataFrame(rows)


def dcgm_uses(
    counts: SeriesAnswer, grid: Grid, about: Mapping[str, About], *, intervals: Mapping[str, float], taken: set[str],
    key_of: Callable[[Labels], str | None], requesting: Collection[tuple[str, str]] = (),
    pods: SeriesAnswer | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Uses from the labels of dcgm-exporter's series. `key_of`: the key of a series' rows in `about`; `taken`: GPUs
    that our agent reports; `requesting`: pods that request GPUs (namespace, name); `pods`: each pod's own use of GPUs,
    by which the column ``share`` has its part of what the pods use of a GPU (0..1; NaN: unknown)."""
    exported = targets_with_exported(counts.labels)
    own_pods = _exporter_pods(counts.labels, exported, requesting)
    samples: dict[tuple[str, LabelledWork], Floats] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True):
        target = reporter(labels)
        if target not in exported and (target, labels.get("pod", "")) in own_pods and not labels.get("hpc_job"):
            continue
        gpu_key, work = key_of(labels), work_of(labels, exported=target in exported)
        if gpu_key is not None and work is not None and gpu_key in about and about[gpu_key].uuid not in taken:
            samples[gpu_key, work] = np.maximum(samples.get((gpu_key, work), 0.0), np.nan_to_num(values))
    rows: list[_Row] = []
    shares = _shares(pods, key_of, exported) if pods else {}
    for (gpu_key, work), values in samples.items():
        held, gpu = np.minimum(values * intervals.get(gpu_key, 0.0), grid.step), about[gpu_key]
        more = {"share": shares.get((gpu_key, work), np.nan)} if shares else {}
        rows += [work.use(gpu.node, gpu.uuid or gpu_key, *span) | more for span in held_spans(held, grid)]
    return pd.DataFrame(rows)


def _shares(
    answer: SeriesAnswer, key_of: Callable[[Labels], str | None], exported: Collection[str]
) -> dict[tuple[str | None, LabelledWork | None], float]:
    used: dict[str | None, dict[LabelledWork | None, float]] = defaultdict(dict)
    for labels, values in zip(answer.labels, answer.values, strict=True):
        if not np.isnan(values).all():
            uses, work = used[key_of(labels)], work_of(labels, exported=reporter(labels) in exported)
            uses[work] = max(uses.get(work, 0.0), float(np.nanmean(values)))
    return {
        (gpu, work): use / total if (total := sum(uses.values())) > 0 else 1 / len(uses)
        for gpu, uses in used.items() for work, use in uses.items()
    }  # fmt: skip


def targets_with_exported(series: Iterable[Labels]) -> set[str]:
    """Targets on which the labels ``exported_NAME`` name workloads."""
    return {reporter(labels) for labels in series if "exported_pod" in labels or "exported_hpc_job" in labels}


def _exporter_pods(
    series: Sequence[Labels], exported: Collection[str], requesting: Collection[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Targets without ``exported_NAME`` and the exporter's own pod there: it requests no GPU, and is called as one; or
    it stands on every GPU of the target, and on others of its scrape job bare labels are the exporter's."""
    jobs = {target.partition("|")[0] for target in exported}
    pods: dict[str, set[str]] = defaultdict(set)
    for labels in series:
        pods[reporter(labels)].add(labels.get("pod", ""))
    skipped = set()
    for labels in series:
        target, pod, container = reporter(labels), labels.get("pod", ""), labels.get("container")
        if not pod or target in exported or (labels.get("namespace", ""), pod) in requesting:
            continue
        by_name = _EXPORTER_POD.fullmatch(pod) is not None and container in (None, "exporter")
        by_host = any(labels.get(name) == pod for name in _HOST_LABELS)
        alone = len(pods[target]) == 1 and target.partition("|")[0] in jobs
        if container in _EXPORTER_CONTAINERS or by_name or by_host or alone:
            skipped.add((target, pod))
    return skipped


def held_spans(held: Floats, grid: Grid) -> list[tuple[float, float]]:
    """Spans of time from seconds held in each row: rows that follow one another, the first and last cut."""
    edges = np.diff(np.concatenate(([0], (held > 0).astype(np.int8), [0])))
    first, last = np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0] - 1
    missing = np.where(held < _FULL * grid.step, grid.step - held, 0.0)
    begin = grid.start + (first - 1) * grid.step + np.where(first != last, missing[first], 0.0)
    end = grid.start + last * grid.step - missing[last]
    return list(zip(begin.tolist(), end.tolist(), strict=True))


def workloads_of(uses: pd.DataFrame, window: Window) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frame's tables `uses` and `workloads` of rows of uses."""
    if uses.empty:
        return concat([], store.USES.columns), concat([], store.WORKLOADS.columns)
    inside = uses[(uses["ts_start"] < window.end) & (uses["ts_end"] > window.start)].reset_index(drop=True)
    inside = inside.assign(first_seen=inside.reindex(columns=["ts_start", "began"]).astype(float).min(axis=1))
    by_id = inside.groupby("workload_id", sort=True)
    table = by_id.first().assign(first_seen=by_id["first_seen"].min(), last_seen=by_id["ts_end"].max()).reset_index()
    table["series_id"] = table["series_id"].where(table["series_id"].notna(), table["workload_id"])
    columns = [*store.USES.columns, *inside.columns.intersection(["share"])]
    about = [*store.WORKLOADS.columns, *table.columns.intersection(["container"])]
    return inside.reindex(columns=columns), table.reindex(columns=about)


def with_groups(
    uses: pd.DataFrame, ranges: Ranges, names: Iterable[str], matches: Sequence[str], grid: Grid
) -> pd.DataFrame:
    """The uses with those of pods that reserve a GPU given to the pods of its group in kube_pod_labels, if any."""
    if uses.empty or "kube_pod_labels" not in names or not uses["namespace"].isin(RESERVATION_NAMESPACES).any():
        return uses
    by = (*CLUSTER_LABELS, "exported_namespace", "namespace", "exported_pod", "pod", GPU_GROUP)
    chosen = queries.selector(matches, f'{GPU_GROUP}!=""')
    query = f"max by ({', '.join(by)}) (last_over_time(kube_pod_labels{chosen}{queries.row_range(grid.step)}))"
    answer = ranges([Ask("GPU groups of pods", query, by)], len(uses))["GPU groups of pods"]
    members: dict[str, list[tuple[str, str, str, float, float]]] = defaultdict(list)
    group_of: dict[tuple[str, str], str] = {}
    for labels, values in zip(answer.labels, answer.values, strict=True):
        namespace, pod = label_of(labels, "namespace"), label_of(labels, "pod")
        if namespace in RESERVATION_NAMESPACES:
            group_of[namespace, pod] = labels[GPU_GROUP]
        else:
            spans = held_spans(np.where(np.isnan(values), 0.0, grid.step), grid)
            members[labels[GPU_GROUP]] += [(cluster_of(labels), namespace, pod, *span) for span in spans]
    out: list[Mapping[str, Any]] = []
    for row in records(uses):
        group = group_of.get((text(row["namespace"]) or "", text(row["pod"]) or ""), "")
        out += [
            _shared(row, namespace, pod, max(a, row["ts_start"]), end)
            for cluster, namespace, pod, a, b in members.get(group, ())
            if (end := min(b, row["ts_end"])) > max(a, row["ts_start"]) and cluster in ("", row["cluster"])
        ] or [row]
    return pd.DataFrame(out)


def with_requests(
    uses: pd.DataFrame, requests: pd.DataFrame, about: Mapping[str, About], step: float, *, offered: Mapping[str, int]
) -> pd.DataFrame:
    """The uses with pods that request shares of a node's GPUs and that no series names, each on the GPUs with the
    fewest holders, as NVIDIA's device plugin distributes. The node's GPUs are then shared. `step`: seconds of a row;
    `offered`: GPUs that Kubernetes offers by node, at least twice as many where they are replicas."""
    gpus: dict[str, set[str]] = defaultdict(set)
    for key, facts in about.items():
        gpus[facts.node].add(facts.uuid or key)
    divided = {gpu.node for gpu in about.values() if gpu.kind == "mig"}
    added: list[_Row] = []
    for node, rows in requests[requests["resource"].str.startswith("nvidia_com_gpu")].groupby("node"):
        gpu = gpus.get(str(node), set())
        # In a pod's first row another may have preceded it. What ends at a moment ends before what begins there.
        long = rows[rows["ts_end"] - rows["ts_start"] > step]
        count = long["count"].to_numpy(float)
        changes = pd.concat([pd.Series(-count, long["ts_end"]), pd.Series(count, long["ts_start"] + step)])
        most = changes.sort_index(kind="stable").cumsum().to_numpy(float).max(initial=0.0)
        are_replicas = most > len(gpu) and max(most, offered.get(str(node), 0)) >= 2 * len(gpu)
        if not gpu or node in divided or not (are_replicas or rows["resource"].str.contains("shared").any()):
            continue
        here = uses[uses["node"] == node] if len(uses) else pd.DataFrame(columns=["namespace", "pod", "cluster"])
        named = set(zip(here["namespace"], here["pod"], strict=True))
        unnamed = [row for row in records(rows.sort_values("ts_start")) if (row["namespace"], row["pod"]) not in named]
        held = [(row["gpu_uuid"], row["ts_start"], row["ts_end"]) for row in records(here)]
        for row in unnamed:
            start, end = float(row["ts_start"]), float(row["ts_end"])
            holders = Counter(uuid for uuid, a, b in held if a < end and b > start)
            for uuid in sorted(gpu, key=lambda candidate: (holders[candidate], candidate))[: max(1, int(row["count"]))]:
                held.append((uuid, start, end))
                base = {"node": node, "gpu_uuid": uuid, "cluster": next(iter(here["cluster"]), "")}
                added.append(_shared(base, row["namespace"], row["pod"], start, end))
        if unnamed and len(here):
            uses = uses.assign(shared=uses["shared"].where(uses["node"] != node, 1.0))
    return pd.concat([uses, pd.DataFrame(added)], ignore_index=True) if added else uses


def _shared(base: Mapping[str, Any], namespace: str | None, pod: str, start: float, end: float) -> _Row:
    work = work_of({"cluster": text(base["cluster"]) or "", "namespace": namespace or "", "pod": pod}, exported=False)
    return work._replace(shared=True).use(base["node"], base["gpu_uuid"], start, end) if work else dict(base)
