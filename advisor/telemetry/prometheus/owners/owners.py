"""What kube-state-metrics reports of the pods that held GPUs: owners, times, images and labels.

Every series of a pod has its UID. Pods are asked for by name, many a query: what was there until the window's end by
one recent sample, the rest, and what had a pod's name before it, over the whole window.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from .....agent.inventory.kubernetes.pods import OPERATOR_LABELS, Objects, Pod, PodOwner, spelled, spellings_of
from ....core.frame import Window
from ..client.response import Labels, SeriesAnswer
from ..promql import promql as queries
from ..promql.labels import CLUSTER_LABELS, cluster_of
from .kube import PODS_A_QUERY

Instants = Callable[[Sequence[str], Sequence[str]], Sequence[SeriesAnswer]]
"""Evaluates several queries at the window's end; the second argument: labels to keep."""
Key = tuple[str, str, str]
"""Cluster as a series names it, namespace and pod."""
Held = tuple[float, float]
"""When something first and last held a GPU, Unix seconds."""
Holders = Mapping[tuple[str, str], frozenset[str]]
"""(namespace, pod) -> the containers that hold its GPUs."""
_PLAIN_NAME = re.compile(r"[a-z0-9.-]{1,253}")
_SPACE, _POD = (*CLUSTER_LABELS, "exported_namespace", "namespace"), ("exported_pod", "pod")
_NO_OWNER = ("", "<none>")
_RECENT_SECONDS = 3600.0
# A pod created so long after its name first held a GPU is not the first of that name.
_LATE_SECONDS = 300.0
_EARLIEST, _LATEST = 1.4e9, 4e9  # Unix seconds of creation and start; others are no times
_MAX_TEXT = 256
_OWNER = ("owner_kind", "owner_name", "owner_is_controller")
# Series of pods and the labels that are read of them.
_OF_PODS: Mapping[str, tuple[str, ...]] = {
    "kube_pod_owner": _OWNER,
    "kube_pod_info": ("created_by_kind", "created_by_name"),
    "kube_pod_created": (),
    "kube_pod_start_time": (),
    "kube_pod_container_info": ("exported_container", "container", "image", "image_spec"),
}
_LABELS = "kube_pod_labels"
# Kind of an owner, the series of its own owner and the label with its name; a chain goes in this order.
_OF_OWNERS = (
    ("ReplicaSet", "kube_replicaset_owner", "replicaset"),
    ("Job", "kube_job_owner", "job_name"),
    ("Deployment", "kube_deployment_owner", "deployment"),
)
_PARALLELISM = "kube_job_spec_parallelism"
_NAMESPACES = "kube_namespace_labels"
SERIES = frozenset({*_OF_PODS, _LABELS, *(series for _, series, _ in _OF_OWNERS), _PARALLELISM, _NAMESPACES})


@dataclass(frozen=True)
class KubeOwners:
    """`pods`: those that had a name, the oldest first; `objects`: by cluster."""

    pods: Mapping[Key, tuple[Pod, ...]] = field(default_factory=dict)
    objects: Mapping[str, Objects] = field(default_factory=dict)

    @cached_property
    def _clusters(self) -> Mapping[tuple[str, str], Sequence[str]]:
        clusters: dict[tuple[str, str], list[str]] = {}
        for cluster, namespace, pod in self.pods:
            clusters.setdefault((namespace, pod), []).append(cluster)
        return clusters

    def cluster_of(self, cluster: str, namespace: str, pod: str) -> str | None:
        """The cluster under which kube-state-metrics has a pod that a GPU's series names; None: it has none. One of the
        two may be without a cluster's name; a pod of several clusters is then nobody's."""
        clusters = self._clusters.get((namespace, pod), ())
        if cluster in clusters or "" in clusters:
            return cluster if cluster in clusters else ""
        return clusters[0] if cluster == "" and len(clusters) == 1 else None


def read_owners(
    instants: Instants, names: Iterable[str], matches: Sequence[str], held: Mapping[tuple[str, str], Held], *,
    window: Window, team_labels: Sequence[str] = (), holders: Holders | None = None,
) -> KubeOwners:  # fmt: skip
    """Owners of the pods in `held`: namespace and name -> when they held GPUs. `names`: the server's series; `holders`:
    the containers whose image is read. Empty where kube-state-metrics is not scraped."""
    known = SERIES.intersection(names)
    if not known & {"kube_pod_owner", "kube_pod_info"}:
        return KubeOwners()
    labels = tuple(dict.fromkeys((*OPERATOR_LABELS, *team_labels)))
    server = _Server(instants, known, matches, labels, holders or {})
    recent, seconds = min(window.seconds, _RECENT_SECONDS), window.seconds
    pods = server.pods({pod for (_, pod), (_, last) in held.items() if last > window.end - 2 * recent}, recent)
    # The rest, and pods whose name held a GPU before the oldest known pod of that name was created.
    created: dict[tuple[str, str], float] = {}
    for (_, namespace, name), several in pods.items():
        oldest = several[0].created_seconds or 0.0
        created[namespace, name] = min(oldest, created.get((namespace, name), oldest))
    late = {key[1] for key, (first, _) in held.items() if created.get(key, math.inf) > first + _LATE_SECONDS}
    pods |= server.pods(late, seconds)
    # The leader of a LeaderWorkerSet's group may request no GPU: it has the name of its workers' StatefulSet.
    owners = {pod.owner for several in pods.values() for pod in several if pod.owner is not None}
    leaders = {owner.name for owner in owners if owner.kind in ("StatefulSet", "Pod") and owner.name[-1:].isdigit()}
    for key, several in server.pods(leaders - {pod for _, _, pod in pods}, seconds).items():
        pods[key] = tuple(replace(pod, has_gpus=False) for pod in several)
    return KubeOwners(pods, server.objects(pods, seconds))


@dataclass(frozen=True)
class _Server:
    instants: Instants
    known: frozenset[str]
    matches: Sequence[str]
    labels: tuple[str, ...]
    holders: Holders

    def pods(self, names: Iterable[str], seconds: float) -> dict[Key, tuple[Pod, ...]]:
        """The pods that had these names within so many seconds before the window's end."""
        found: dict[tuple[Key, str], Pod] = {}
        images: dict[tuple[Key, str], dict[str, str]] = defaultdict(dict)
        names = sorted(names)
        for series, kept in {**_OF_PODS, _LABELS: self._label_names()}.items():
            for labels, value in self._series(series, _POD, ("uid", *kept), names, seconds):
                own = (*_space(labels), label_of(labels, "pod")), labels.get("uid", "")
                pod = found.get(own) or Pod(own[0][1], own[0][2], own[1] or None, is_told=False)
                found[own] = _with_fact(pod, series, labels, value)
                if series == "kube_pod_container_info":
                    image = labels.get("image_spec") or labels.get("image", "")
                    images[own][label_of(labels, "container")] = image[:_MAX_TEXT]
        pods: dict[Key, list[Pod]] = defaultdict(list)
        for (key, uid), pod in found.items():
            own_images = images[key, uid]
            # The image of the container that holds the GPUs, where that is beyond doubt.
            holding = self.holders.get(key[1:], frozenset()) & own_images.keys() or own_images.keys()
            distinct = {own_images[name] for name in holding}
            image = next(iter(distinct)) or None if len(distinct) == 1 else None
            created = pod.created_seconds or pod.started_seconds
            pods[key].append(replace(pod, image=image, containers=frozenset(own_images), created_seconds=created))
        return {
            key: tuple(sorted(several, key=lambda pod: (pod.created_seconds or 0.0, pod.uid or "")))
            for key, several in pods.items()
        }

    def objects(self, pods: Mapping[Key, Sequence[Pod]], seconds: float) -> dict[str, Objects]:
        """The owners of pods' owners, Jobs' parallelism and namespaces' labels, by cluster."""
        above: dict[str, dict[tuple[str, str, str], PodOwner | None]] = defaultdict(dict)
        parallelism: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
        spaces: dict[str, dict[str, Mapping[str, str]]] = defaultdict(dict)
        owners = {pod.owner for several in pods.values() for pod in several if pod.owner is not None}
        for kind, series, label in _OF_OWNERS:
            wanted = {owner.name for owner in owners if owner.kind == kind}
            for labels, _ in self._series(series, (label,), _OWNER, wanted, seconds):
                cluster, namespace = _space(labels)
                owner = above[cluster][kind, namespace, labels[label]] = _owner(labels, "owner")
                owners |= {owner} if owner is not None else set()
        jobs = {owner.name for owner in owners if owner.kind == "Job"}
        for labels, value in self._series(_PARALLELISM, ("job_name",), (), jobs, seconds):
            cluster, namespace = _space(labels)
            if value >= 0:
                parallelism[cluster][namespace, labels["job_name"]] = round(value)
        namespaces, named_by = {namespace for _, namespace, _ in pods}, ("exported_namespace", "namespace")
        for labels, _ in self._series(_NAMESPACES, named_by, self._label_names(), namespaces, seconds):
            cluster, namespace = _space(labels)
            spaces[cluster][namespace] = _kubernetes_labels(labels)
        clusters = {cluster for cluster, _, _ in pods}
        return {one: Objects(above[one], parallelism[one], spaces[one]) for one in sorted(clusters)}

    def _label_names(self) -> tuple[str, ...]:
        return tuple(f"label_{one}" for name in self.labels for one in spellings_of(spelled(name)))

    def _series(
        self, name: str, by_labels: Sequence[str], kept: Sequence[str], wanted: Iterable[str], seconds: float
    ) -> Iterator[tuple[Labels, float]]:
        """Series of a metric in which one of `by_labels` names one of `wanted`; replicas of kube-state-metrics once."""
        # Only names of Kubernetes objects: nothing else of a label gets into a pattern.
        plain = sorted(one for one in wanted if _PLAIN_NAME.fullmatch(one)) if name in self.known else []
        by = tuple(dict.fromkeys((*_SPACE, *by_labels, *kept)))
        asked = []
        for first in range(0, len(plain), PODS_A_QUERY):
            pattern = "|".join(one.replace(".", "[.]") for one in plain[first : first + PODS_A_QUERY])
            chosen = [queries.selector(self.matches, f'{label}=~"{pattern}"') for label in by_labels]
            parts = " or ".join(f"last_over_time({name}{one}[{seconds:.0f}s])" for one in chosen)
            asked.append(f"max by ({', '.join(by)}) ({parts})")
        for answer in self.instants(asked, by) if asked else ():
            yield from zip(answer.labels, (float(row[0]) for row in answer.values), strict=True)


def _with_fact(pod: Pod, series: str, labels: Labels, value: float) -> Pod:
    """A pod with what one series says of it. The owner is the controller, where there is one."""
    if series == "kube_pod_owner":
        is_controller = labels.get("owner_is_controller") == "true" or pod.owner is None
        return replace(pod, is_told=True, owner=_owner(labels, "owner") if is_controller else pod.owner)
    if series == "kube_pod_info":
        is_told = pod.is_told or "created_by_kind" in labels
        return replace(pod, is_told=is_told, owner=_owner(labels, "created_by") or pod.owner)
    if series == _LABELS:
        return replace(pod, labels={**pod.labels, **_kubernetes_labels(labels)})
    field_name = {"kube_pod_created": "created_seconds", "kube_pod_start_time": "started_seconds"}.get(series)
    return replace(pod, **{field_name: value}) if field_name and _EARLIEST < value < _LATEST else pod


def label_of(labels: Labels, name: str) -> str:
    """A label of the object that a series is about: where a target label has its name, it is ``exported_NAME``."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def _owner(labels: Labels, prefix: str) -> PodOwner | None:
    kind, name = labels.get(f"{prefix}_kind", ""), labels.get(f"{prefix}_name", "")
    return None if kind in _NO_OWNER or name in _NO_OWNER else PodOwner(kind[:_MAX_TEXT], name[:_MAX_TEXT])


def _space(labels: Labels) -> tuple[str, str]:
    return cluster_of(labels), label_of(labels, "namespace")


def _kubernetes_labels(labels: Labels) -> dict[str, str]:
    return {
        name.removeprefix("label_"): value[:_MAX_TEXT] for name, value in labels.items() if name.startswith("label_")
    }
