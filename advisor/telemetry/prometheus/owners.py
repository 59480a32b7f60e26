"""What kube-state-metrics says: GPUs that nodes offer and pods request, those of vendors that are not read, and owners,
times, images and labels of the pods that held GPUs. Its replicas report everything twice, so series are joined by what
they name. A series of a GPU names a pod by its name, which several may have had one after the other: a use is cut where
the next one was created.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from ....agent.jobs import pods as kubernetes
from ....agent.jobs.ids import workload_id
from ....agent.jobs.pods import Objects, Pod, PodOwner
from ...core.coded_text import CodedText, coded
from ...core.formatting import listed
from ...core.frame import Window
from ...core.scalars import records, text
from . import promql as queries
from .client.range_planner import Ask
from .client.response import Floats, Grid, Labels, SeriesAnswer
from .promql import CLUSTER_LABELS, cluster_of, label_of, selector

Ranges = Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]]
_Counts = dict[tuple[str, ...], Floats]
NodeKey = tuple[str, str]
"""A node's cluster (empty: no label names one) and its name there."""
REQUESTS = ["node", "namespace", "pod", "container", "resource", "count", "ts_start", "ts_end"]
KUBE_NODE = ("exported_node", "node", *CLUSTER_LABELS)
_POD = ("exported_namespace", "namespace", "exported_pod", "pod", *CLUSTER_LABELS)
# The device plugin adds "shared" where time slicing renames resources (renameByDefault).
NVIDIA = "nvidia_com_(gpu|mig_.+)(_shared)?"
_OTHERS = {"amd_com_gpu": "AMD", "gpu_intel_com_i915": "Intel", "gpu_intel_com_xe": "Intel", "habana_ai_gaudi": "Intel"}
MIG = re.compile(r"nvidia_com_mig_([1-7])g_.+")
MOST_GPUS = 1024  # no node comes near
# A row's end is looked back from so far: a scrape or two may be missing.
BACK = "15m"
PODS_A_QUERY = 150


@dataclass(frozen=True)
class KubeNode:
    """A node with GPUs. `gpus`: the most at once under their own names, which time slicing and HAMi multiply; `shares`:
    the most under names of shares; `first`, `last`: of the rows that say so, Unix seconds; `divided`: into instances.
    """

    gpus: int
    first: float
    last: float
    divided: bool = False
    shares: int = 0


@dataclass(frozen=True)
class KubeState:
    """`nodes`: nodes with GPUs, by capacity, else by what their pods requested; `requests`: the frame's table, and the
    ``cluster`` of each; `notes`: GPUs of other vendors."""

    nodes: Mapping[NodeKey, KubeNode] = field(default_factory=dict)
    requests: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["cluster", *REQUESTS]))
    notes: tuple[CodedText, ...] = ()


def read_kube(ranges: Ranges, names: Collection[str], matches: Sequence[str], grid: Grid, series: int) -> KubeState:
    """Ask; empty where the server does not scrape kube-state-metrics. `names`: metrics that the server has; `series`:
    how many are expected of a measure."""

    def ask(name: str, metrics: Sequence[str], resources: str, by: Sequence[str], more: str = "") -> SeriesAnswer:
        metric = next((metric for metric in metrics if metric in names), None)
        if metric is None:
            return SeriesAnswer.nothing(grid.count)
        chosen = selector(matches, f'resource=~"{resources}"')
        query = f"max by ({', '.join(by)}) (max_over_time({metric}{chosen}[{BACK}]){more})"
        return ranges([Ask(name, query, tuple(by))], series)[name]

    metrics = ("kube_node_status_capacity", "kube_node_status_allocatable")
    offered = _counted(ask("GPUs of nodes", metrics, "|".join((NVIDIA, *_OTHERS)), (*KUBE_NODE, "resource")))
    # Pods that are over keep their requests; without the series of phases every listed pod counts.
    running = selector(matches, 'phase="Running"')
    phases = f" and on ({', '.join(_POD)}) (max_over_time(kube_pod_status_phase{running}[{BACK}]) >= 1)"
    # Of a GPU requests and limits are the same; a cluster may keep one of them alone.
    metrics = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
    by = (*_POD, "exported_container", "container", "exported_node", "node", "resource")
    answer = ask("GPUs requested", metrics, NVIDIA, by, phases if "kube_pod_status_phase" in names else "")
    requested = _counted(answer, "namespace", "pod", "container")
    rows = []
    for key, counts in requested.items():
        rows += [(*key[:2], *(text or None for text in key[2:]), *run) for run in _runs(counts, grid)]
    requests = pd.DataFrame(rows, columns=["cluster", *REQUESTS])
    nodes = _nodes(requested, grid) | _nodes(offered, grid)
    by_vendor: dict[str, Counter[NodeKey]] = defaultdict(Counter)
    for (cluster, node, resource), counts in offered.items():
        if resource in _OTHERS and counts.any():
            by_vendor[_OTHERS[resource]][cluster, node] += int(counts.max())
    notes = (vendor_note(vendor, of.total(), sorted(name for _, name in of)) for vendor, of in by_vendor.items())
    return KubeState(dict(sorted(nodes.items())), requests, tuple(notes))


def _counted(answer: SeriesAnswer, *names: str) -> _Counts:
    """GPUs by cluster, node, labels of these names and resource; the largest where several series say so."""
    out: _Counts = {}
    # In parts, or beyond all that nodes have, they are no reading.
    is_count = (answer.values >= 0) & (answer.values <= MOST_GPUS) & (answer.values % 1 == 0)
    for labels, counts in zip(answer.labels, np.where(is_count, answer.values, 0.0), strict=True):
        key = (*node_key(labels), *(label_of(labels, name) for name in (*names, "resource")))
        if key[1]:
            out[key] = np.maximum(out.get(key, 0.0), counts)
    return out


def _nodes(counted: _Counts, grid: Grid) -> dict[NodeKey, KubeNode]:
    by_node: dict[NodeKey, list[tuple[str, Floats]]] = defaultdict(list)
    for (cluster, node, *_, resource), counts in counted.items():
        if resource not in _OTHERS and counts.any():
            by_node[cluster, node].append((resource, counts))
    nodes = {}
    for key, requests in by_node.items():
        profiles = [MIG.fullmatch(resource) for resource, _ in requests]
        is_share = np.array([resource.endswith("_shared") for resource, _ in requests])
        sizes = np.array([int(profile[1]) / 7 if profile else 1.0 for profile in profiles])
        counts = np.array([counts for _, counts in requests])
        # As few GPUs as can hold the instances.
        gpus, shares = np.ceil(np.where(is_share, 0.0, sizes) @ counts - 1e-9), is_share @ counts
        at = np.flatnonzero(gpus + shares)
        first, last = grid.start + (at[0] - 1) * grid.step, grid.start + at[-1] * grid.step
        nodes[key] = KubeNode(int(gpus.max()), float(first), float(last), any(profiles), int(shares.max()))
    return nodes


def vendor_note(vendor: str, gpus: int, nodes: Sequence[str]) -> CodedText:
    where = f" on {listed(nodes)}" if nodes else ""
    text = "{gpus} {vendor} GPUs{where} are not evaluated: only NVIDIA GPUs are. They are not part of any total."
    return coded("vendor-not-read", text, vendor=vendor, gpus=gpus, where=where)


def node_key(labels: Labels) -> NodeKey:
    return cluster_of(labels), label_of(labels, "node")


def _runs(counts: Floats, grid: Grid) -> list[tuple[float, float, float]]:
    """Count, begin and end of each run of one count above 0; one row that is missing within a run is bridged."""
    filled = counts.copy()
    is_hole = (counts[1:-1] == 0) & (counts[:-2] == counts[2:])
    filled[1:-1][is_hole] = counts[2:][is_hole]
    edges = np.flatnonzero(np.diff(filled, prepend=0.0, append=0.0)).tolist()
    at = grid.start - grid.step
    return [(float(filled[a]), at + a * grid.step, at + b * grid.step) for a, b in pairwise(edges) if filled[a] > 0]


Instants = Callable[[Sequence[str], Sequence[str]], Sequence[SeriesAnswer]]  # of queries; labels to keep
Key = tuple[str, str, str]  # cluster as a series names it, namespace and pod
_PLAIN_NAME = re.compile(r"[a-z0-9.-]{1,253}")  # of a Kubernetes object: nothing else gets into a pattern
_SPACE, _POD_NAME = (*CLUSTER_LABELS, "exported_namespace", "namespace"), ("exported_pod", "pod")
_RECENT_SECONDS = 3600.0
_LATE_SECONDS = 300.0  # a pod created so long after its name first held a GPU is not the first of that name
_LAG_SECONDS = 120.0  # an exporter may name a pod for so long after its end
_OWNER = ("owner_kind", "owner_name", "owner_is_controller")
# Series of pods and the labels that are read of them.
OF_PODS: Mapping[str, tuple[str, ...]] = {
    "kube_pod_owner": _OWNER,
    "kube_pod_info": ("created_by_kind", "created_by_name"),
    "kube_pod_created": (),
    "kube_pod_start_time": (),
    "kube_pod_container_info": ("exported_container", "container", "image", "image_spec"),
    "kube_pod_labels": (),
}
# Kind of an owner, the series of the next owner and the label with its name; a chain goes in this order.
_OF_OWNERS = (
    ("ReplicaSet", "kube_replicaset_owner", "replicaset"),
    ("Job", "kube_job_owner", "job_name"),
    ("Deployment", "kube_deployment_owner", "deployment"),
)
_PARALLELISM = "kube_job_spec_parallelism"
_NAMESPACES = "kube_namespace_labels"
SERIES = frozenset({*OF_PODS, *(series for _, series, _ in _OF_OWNERS), _PARALLELISM, _NAMESPACES})


@dataclass(frozen=True)
class KubeOwners:
    """`pods`: those that had a name, the oldest first; `objects`: by cluster."""

    pods: Mapping[Key, tuple[Pod, ...]] = field(default_factory=dict)
    objects: Mapping[str, Objects] = field(default_factory=dict)

    def cluster_of(self, cluster: str, namespace: str, pod: str) -> str | None:
        """As which kube-state-metrics has the cluster of a pod. One of the two may not name it; None: unknown."""
        candidates = (cluster, "") if cluster else ("", *self.objects)
        clusters = [candidate for candidate in candidates if (candidate, namespace, pod) in self.pods]
        return clusters[0] if len(clusters) == 1 or clusters[:1] == [cluster] else None


def requesting_pods(requests: pd.DataFrame) -> dict[Any, set[str]]:
    """(namespace, pod) -> the containers that request its GPUs, of the frame's `requests`."""
    named = requests[["namespace", "pod", "container"]].fillna("")
    return named.groupby(["namespace", "pod"])["container"].agg(set).to_dict()


def read_owners(
    instants: Instants, names: Iterable[str], matches: Sequence[str], uses: pd.DataFrame, *, window: Window,
    team_labels: Sequence[str] = (), requests: Mapping[tuple[str, str], Set[str]] | None = None,
) -> KubeOwners:  # fmt: skip
    """Owners of the pods in `uses`. `names`: the server's series; `requests`: `requesting_pods`, for their images."""
    present = SERIES.intersection(names)
    if uses.empty or not present & {"kube_pod_owner", "kube_pod_info"}:
        return KubeOwners()
    pods_only = uses[(uses["scheduler"] == "kubernetes") & uses["pod"].notna()].fillna({"namespace": ""})
    held = pods_only.groupby(["namespace", "pod"]).agg(first=("ts_start", "min"), last=("ts_end", "max"))
    spelled = map(kubernetes.spelled, dict.fromkeys((*kubernetes.OPERATOR_LABELS, *team_labels)))
    labels = tuple(f"label_{spelling}" for name in spelled for spelling in kubernetes.spellings_of(name))
    server = KubeServer(instants, present, matches, labels, requests or {})
    recent, seconds = min(window.seconds, _RECENT_SECONDS), window.seconds
    pods = server.pods(held.index.get_level_values("pod")[held["last"] > window.end - 2 * recent], recent)
    # Over the whole window the rest, and pods whose name held a GPU before the oldest known pod of it was created.
    created = {key[1:]: several[0].created_seconds or 0.0 for key, several in pods.items()}
    late = {key[1] for key, first in held["first"].items() if created.get(key, math.inf) > first + _LATE_SECONDS}  # type: ignore[index, call-overload]
    pods |= server.pods(late, seconds)
    # The leader of a LeaderWorkerSet's group may request no GPU: it has the name of its workers' StatefulSet.
    owners = _owners_of(pods)
    leaders = {owner.name for owner in owners if owner.kind in ("StatefulSet", "Pod") and owner.name[-1:].isdigit()}
    for key, several in server.pods(leaders - {pod for _, _, pod in pods}, seconds).items():
        pods[key] = tuple(replace(pod, has_gpus=False) for pod in several)
    return KubeOwners(pods, server.objects(pods, seconds))


@dataclass(frozen=True)
class KubeServer:
    """What the series of pods and of their owners say."""

    instants: Instants
    present: frozenset[str]
    matches: Sequence[str]
    labels: tuple[str, ...]
    requests: Mapping[tuple[str, str], Set[str]]

    def pods(self, names: Iterable[str], seconds: float) -> dict[Key, tuple[Pod, ...]]:
        """The pods that had these names within so many seconds before the window's end."""
        newest: dict[tuple[Key, str], Pod] = {}
        images: dict[tuple[Key, str], dict[str, str]] = defaultdict(dict)
        names = sorted(names)
        for series, kept in {**OF_PODS, "kube_pod_labels": self.labels}.items():
            for labels, value in self._series(series, _POD_NAME, ("uid", *kept), names, seconds):
                pod_key = (*_space(labels), label_of(labels, "pod")), labels.get("uid", "")
                pod = newest.get(pod_key) or Pod(pod_key[0][1], pod_key[0][2], pod_key[1] or None, is_told=False)
                newest[pod_key] = with_fact(pod, series, labels, value)
                if series == "kube_pod_container_info":
                    images[pod_key][label_of(labels, "container")] = labels.get("image_spec") or labels.get("image", "")
        pods: dict[Key, tuple[Pod, ...]] = {}
        for (key, uid), pod in sorted(newest.items(), key=lambda entry: (entry[1].created_seconds or 0.0, entry[0][1])):
            own_images = images[key, uid]  # that of the container that holds the GPUs counts
            holding = self.requests.get(key[1:], frozenset()) & own_images.keys() or own_images.keys()
            distinct = {own_images[name] for name in holding}
            image = next(iter(distinct)) or None if len(distinct) == 1 else None
            pods[key] = (*pods.get(key, ()), replace(pod, image=image, containers=frozenset(own_images)))
        return pods

    def objects(self, pods: Mapping[Key, Sequence[Pod]], seconds: float) -> dict[str, Objects]:
        """The owners of pods' owners, Jobs' parallelism and namespaces' labels, by cluster."""
        by_cluster: dict[str, tuple[dict[Key, PodOwner | None], dict[tuple[str, str], int], dict[str, Labels]]]
        by_cluster = defaultdict(lambda: ({}, {}, {}))
        owners = _owners_of(pods)
        for kind, series, label in _OF_OWNERS:
            wanted = {owner.name for owner in owners if owner.kind == kind}
            for labels, _ in self._series(series, (label,), _OWNER, wanted, seconds):
                cluster, namespace = _space(labels)
                owner = by_cluster[cluster][0][kind, namespace, labels[label]] = _owner(labels)
                owners |= {owner} if owner is not None else set()
        jobs = {owner.name for owner in owners if owner.kind == "Job"}
        for labels, value in self._series(_PARALLELISM, ("job_name",), (), jobs, seconds):
            cluster, namespace = _space(labels)
            by_cluster[cluster][1][namespace, labels["job_name"]] = round(value)
        for labels, _ in self._series(_NAMESPACES, _SPACE[-2:], self.labels, {key[1] for key in pods}, seconds):
            cluster, namespace = _space(labels)
            by_cluster[cluster][2][namespace] = _kubernetes_labels(labels)
        return {cluster: Objects(*by_cluster[cluster]) for cluster, _, _ in pods}

    def _series(
        self, name: str, by_labels: Sequence[str], kept: Sequence[str], wanted: Iterable[str], seconds: float
    ) -> Iterator[tuple[Labels, float]]:
        """Series of a metric in which one of `by_labels` names one of `wanted`; replicas of kube-state-metrics once."""
        plain = sorted(pod for pod in wanted if _PLAIN_NAME.fullmatch(pod)) if name in self.present else []
        by = tuple(dict.fromkeys((*_SPACE, *by_labels, *kept)))
        asked = []
        for first in range(0, len(plain), PODS_A_QUERY):
            pattern = "|".join(pod.replace(".", "[.]") for pod in plain[first : first + PODS_A_QUERY])
            chosen = [queries.selector(self.matches, f'{label}=~"{pattern}"') for label in by_labels]
            parts = " or ".join(f"last_over_time({name}{matcher}[{seconds:.0f}s])" for matcher in chosen)
            asked.append(f"max by ({', '.join(by)}) ({parts})")
        for answer in self.instants(asked, by) if asked else ():
            yield from zip(answer.labels, answer.values[:, 0].tolist(), strict=True)


def _owners_of(pods: Mapping[Key, Sequence[Pod]]) -> set[PodOwner]:
    return {pod.owner for several in pods.values() for pod in several if pod.owner is not None}


def with_fact(pod: Pod, series: str, labels: Labels, value: float) -> Pod:
    """The pod with what one of `OF_PODS` says of it."""
    match series:
        case "kube_pod_owner":
            is_controller = labels.get("owner_is_controller") == "true" or pod.owner is None
            return replace(pod, is_told=True, owner=_owner(labels) if is_controller else pod.owner)
        case "kube_pod_info":
            is_told = pod.is_told or "created_by_kind" in labels
            return replace(pod, is_told=is_told, owner=_owner(labels, "created_by") or pod.owner)
        case "kube_pod_labels":
            return replace(pod, labels={**pod.labels, **_kubernetes_labels(labels)})
        case "kube_pod_created":
            return replace(pod, created_seconds=value)
        case "kube_pod_start_time":
            return replace(pod, started_seconds=value, created_seconds=pod.created_seconds or value)
    return pod


def _owner(labels: Labels, prefix: str = "owner") -> PodOwner | None:
    kind, name = labels.get(f"{prefix}_kind", ""), labels.get(f"{prefix}_name", "")
    return None if {kind, name} & {"", "<none>"} else PodOwner(kind, name)


def _space(labels: Labels) -> tuple[str, str]:
    return cluster_of(labels), label_of(labels, "namespace")


def _kubernetes_labels(labels: Labels) -> dict[str, str]:
    return {name.removeprefix("label_"): value for name, value in labels.items() if name.startswith("label_")}


def owned(
    uses: pd.DataFrame, owners: KubeOwners, grid: Grid, team_labels: Sequence[str],
    requesting: Mapping[tuple[str, str], Set[str]],
) -> pd.DataFrame:  # fmt: skip
    """The same uses with workloads and teams by what owns the pods, without those of an exporter's own pods.
    `requesting`: `requesting_pods`, empty: unknown."""
    if uses.empty or not owners.pods:
        return uses
    out: list[dict[str, Any]] = []
    by_cluster: dict[tuple[str, str], list[tuple[dict[str, Any], Pod]]] = defaultdict(list)
    for row in map(dict, records(uses)):
        namespace, name, cluster = (text(row.get(column)) or "" for column in ("namespace", "pod", "cluster"))
        pod_cluster = owners.cluster_of(cluster, namespace, name) if row["scheduler"] == "kubernetes" and name else None
        if pod_cluster is None:
            out.append(row)
        elif not _is_exporter((pods := owners.pods[pod_cluster, namespace, name])[-1], requesting):
            by_cluster[cluster, pod_cluster] += _pieces(row, pods, cluster, grid)
    for (cluster, pod_cluster), parts in by_cluster.items():
        objects = owners.objects.get(pod_cluster, Objects())
        of_cluster = [pod for key, several in owners.pods.items() if key[0] == pod_cluster for pod in several]
        members = {_key(pod): pod for pod in of_cluster if not pod.has_gpus}
        for row, pod in sorted(parts, key=lambda part: part[0]["ts_end"]):
            members[_key(pod)] = replace(pod, ended_seconds=float(row["ts_end"]))
        works = dict(zip(members, kubernetes.works_of(cluster, list(members.values()), objects), strict=True))
        for row, pod in parts:
            work, team = works[_key(pod)], kubernetes.team_of_pod(pod, objects, team_labels)
            containers = requesting.get((pod.namespace, pod.name), frozenset())
            out.append({
                **row, "workload_id": work.workload_id, "series_id": work.series_id, "name": work.name,
                "controller_kind": work.kind, "image": pod.image, "team": team,
                "container": next(iter(containers)) or None if len(containers) == 1 else None,
            })  # fmt: skip
    return pd.DataFrame(out)


def _is_exporter(pod: Pod, requesting: Collection[tuple[str, str]]) -> bool:
    """A DaemonSet's pod that requests no GPUs; where requests are unknown, one with dcgm-exporter's name or image."""
    if pod.owner is None or pod.owner.kind != "DaemonSet" or (pod.namespace, pod.name) in requesting:
        return False
    return bool(requesting) or any("dcgm-exporter" in name for name in (pod.owner.name, pod.image or ""))


def _pieces(row: dict[str, Any], pods: Sequence[Pod], cluster: str, grid: Grid) -> Iterator[tuple[dict[str, Any], Pod]]:
    """A use by the pods that had its pod's name; each from its own start where that is near."""
    start, end = float(row["ts_start"]), float(row["ts_end"])
    row_end = grid.start + math.ceil((end - grid.start) / grid.step - 1e-9) * grid.step
    # Where in a row a shorter use was is not known: it is of the pod that had the name for most of the row.
    is_within = start >= row_end - grid.step and end < row_end
    since, until = (row_end - grid.step, row_end) if is_within else (start, end)
    by_uid = [pod for pod in pods if pod.uid and workload_id(cluster, "kubernetes", pod.uid) == row["workload_id"]]
    first = pods[0].created_seconds
    if not by_uid and first is not None and first > start + grid.step:
        # Nothing is known of what had the name before; a StatefulSet's pod has the same owner every time.
        pods = [replace(pods[0], uid=None, created_seconds=None, started_seconds=None), *pods]
    pods = by_uid or pods
    begins = [-math.inf, *(pod.created_seconds or -math.inf for pod in pods[1:]), math.inf]
    spans = [(max(since, a), min(until, b), pod) for pod, (a, b) in zip(pods, pairwise(begins), strict=True)]
    longest = max(spans, key=lambda span: span[1] - span[0])
    kept = [span for span in spans if span[1] - span[0] > _LAG_SECONDS] or [longest]
    for a, b, pod in [(start, end, longest[2])] if is_within else kept:
        started = pod.started_seconds
        began = started if started is not None and started < (row_end if is_within else b) else None
        near = began if began is not None and abs(began - a) <= grid.step else a
        stop = min(row_end, b + max(near - a, 0.0)) if is_within else b
        yield {**row, "ts_start": near, "ts_end": stop, "began": began}, pod


def _key(pod: Pod) -> Key:
    return pod.namespace, pod.name, pod.uid or ("?" if pod.created_seconds is None else "")
