"""From a pod to the work it belongs to, by what Kubernetes says of owners: the agent and the Prometheus path use this.

A pod's chain of owners is followed as far as one stands for one piece of work: pod, ReplicaSet, Deployment; pod, Job,
CronJob or JobSet. The series is whatever the chain ends in. Pods that work together on several nodes (a gang:
PyTorchJob, a group of a LeaderWorkerSet, a parallel Job, a pod group of Kueue) are one workload; every other pod is
one. Names are read (`_NAMES`) only where nothing shows an owner, and for what kube-state-metrics cannot show without
configuration.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .ids import gang_id, series_id, workload_id

# Kinds whose pods work together. A Job is one where several of its pods run at a time.
GANGS = frozenset({
    "PyTorchJob", "MPIJob", "TFJob", "MXJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob", "JobSet",
    "LeaderWorkerSet", "RayCluster", "RayJob", "SparkApplication",
})  # fmt: skip
# Which owners of an object stand for the same work. None: any. What is not here is the end of the chain.
_ABOVE: Mapping[str, frozenset[str] | None] = {
    "ReplicaSet": None,
    "Job": None,
    "Deployment": frozenset({"InferenceService"}),
    "StatefulSet": frozenset({"Notebook", "LeaderWorkerSet", "Pod"}),
    "Pod": frozenset({"StatefulSet", "SparkApplication"}),
    "JobSet": frozenset({"TrainJob"}),
    "RayCluster": frozenset({"RayJob", "RayService"}),
}
_MOST_LINKS = 8
_REPLICATED = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"})
KSERVE_CONTAINER = "kserve-container"
# Labels that operators put on pods; they count where present.
_LWS_NAME, _LWS_GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
_KSERVE, _NOTEBOOK = "serving.kserve.io/inferenceservice", "notebook-name"
# Kueue labels the pods of StatefulSets as well; those are replicas, and what has an operator is that operator's gang.
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
OPERATOR_LABELS = (_LWS_NAME, _LWS_GROUP, _KSERVE, _NOTEBOOK, KUEUE_GROUP)
# Pods of KAI Scheduler and Run:ai that hold a GPU for the pods that share it (label `runai-gpu-group` of both).
RESERVATION_NAMESPACES = frozenset({"kai-resource-reservation", "runai-reservation"})
RESERVED = "reserved for shared use"
# A gang that is made again begins while the last of its old pods end.
_HANDOVER_SECONDS, _HANDOVER_SHARE = 120.0, 0.1
_SPELLED, _CAPITAL = re.compile(r"[^a-zA-Z0-9_]"), re.compile(r"([a-z0-9])([A-Z])")
# Random parts of names have no vowels (k8s.io/apimachinery/pkg/util/rand).
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_ORDINAL = r"(.+)-\d{1,5}"
# How names are made that hold another one: a pod's of its controller's, others' of their owner's.
_NAMES = {
    "Pod": (rf"(.+)-[{_SAFE}]{{6,10}}-[{_SAFE}]{{5}}", rf"(.+?)(?:-\d{{1,10}})?-[{_SAFE}]{{5}}", _ORDINAL),
    "ReplicaSet": (rf"(.+)-[{_SAFE}]{{6,10}}",),
    # Minutes since 1970 from 2017 to 2034; dates such as 20260101 are none of them.
    "Job": (r"(.+)-(?:2[5-9]|3[0-3])\d{6}",),
    "RayCluster": (rf"(.+?)(?:-raycluster)?-[{_SAFE}]{{5}}",),
    # KServe's, or of a Knative revision; older releases add -default.
    "Deployment": (r"(.+)-predictor(?:-default)?(?:-\d{5}-deployment)?",),
}
_OWNER_IN_NAME = {"ReplicaSet": "Deployment", "Job": "CronJob"}


@dataclass(frozen=True, slots=True)
class PodOwner:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, or one life of a name that several pods had one after the other. Times are Unix seconds. `owner` None: it
    has none, or (`is_told` False) nothing shows. `ended_seconds`: infinite while it is there. `labels`: as
    kube-state-metrics names them (`spelled`). `has_gpus`: whether it asks for any."""

    namespace: str
    name: str
    uid: str | None = None
    owner: PodOwner | None = None
    is_told: bool = True
    created_seconds: float | None = None
    started_seconds: float | None = None
    ended_seconds: float = math.inf
    image: str | None = None
    containers: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    has_gpus: bool = True


@dataclass(frozen=True, slots=True)
class Objects:
    """The related objects of pods. `owners`: (kind, namespace, name) -> owner, None: it has none; `labels`: of
    namespaces; `parallelism`: (namespace, Job) -> how many of its pods run at a time."""

    owners: Mapping[tuple[str, str, str], PodOwner | None] = field(default_factory=dict)
    parallelism: Mapping[tuple[str, str], int] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodWork:
    """The work of a pod. `kind`: of `name`, None where the pod's name alone shows it."""

    workload_id: str
    series_id: str
    name: str
    kind: str | None


def works_of(cluster: str, pods: Sequence[Pod], objects: Objects) -> tuple[PodWork, ...]:
    """The work of each pod, in their order. All of one cluster; of a gang all pods that are known should be there. A
    gang's run is named by the UID of the oldest of its pods that ask for GPUs (else by when that was created), the same
    on every node. What begins when all its pods are over is the next run."""
    owners_known = _Known(pods, objects)
    pod_works = [owners_known.work(pod) for pod in pods]
    members: dict[tuple[str, PodOwner], list[Pod]] = {}
    for pod, (_, _, gang) in zip(pods, pod_works, strict=True):
        if gang is not None:
            members.setdefault((pod.namespace, gang), []).append(pod)
    ids: dict[int, str] = {}
    for (namespace, gang), several in members.items():
        if gang.kind == "Job" and not _is_parallel(several, objects.parallelism.get((namespace, gang.name))):
            continue
        for run in _runs(several):
            asking = [pod for pod in run if pod.has_gpus] or run
            dated = [
                (at, pod.name, pod.uid or f"{at:.0f}") for pod in asking if (at := pod.created_seconds) is not None
            ]
            oldest = min(dated, default=(0.0, "", ""))
            ids |= dict.fromkeys(map(id, run), gang_id(cluster, namespace, gang.kind, gang.name, oldest[2]))
    works = []
    for pod, (kind, name, _) in zip(pods, pod_works, strict=True):
        parts = (pod.uid,) if pod.uid else ("pod", pod.namespace, pod.name)
        key = ids.get(id(pod)) or workload_id(cluster, "kubernetes", *parts)
        series = series_id(cluster, pod.namespace or None, None, name)
        works.append(PodWork(key, series, name, kind))
    return tuple(works)


def controller_of(pod: str) -> str:
    """The name of what made the pod, as far as its own name shows: Deployment, Job, DaemonSet or StatefulSet."""
    return _inner("Pod", pod) or pod


def team_of_pod(pod: Pod, objects: Objects, names: Iterable[str]) -> str | None:
    """The first of these labels that the pod has, else that its namespace has."""
    spellings = [spelled(name) for name in names]
    for labels in (pod.labels, objects.labels.get(pod.namespace, {})):
        for name in spellings:
            # Labels that are spelled alike are numbered by kube-state-metrics: which is which is unknown.
            values = {v for key in spellings_of(name) if (v := labels.get(key))}
            if len(values) == 1:
                return values.pop()
    return None


def spelled(label: str) -> str:
    """How kube-state-metrics spells a label (`SanitizeLabelName` and `toSnakeCase`), without its prefix ``label_``."""
    return _CAPITAL.sub(r"\1_\2", _SPELLED.sub("_", label)).lower()


def spellings_of(name: str) -> tuple[str, ...]:
    """A spelled label, and the same where two labels of an object are spelled alike."""
    return (name, f"{name}_conflict1", f"{name}_conflict2")


class _Known:
    """The objects of all pods of a cluster. `owning`: what owns pods, by namespace."""

    def __init__(self, pods: Sequence[Pod], objects: Objects) -> None:
        self.owners = objects.owners
        self.pods: dict[tuple[str, str], list[Pod]] = {}
        for pod in pods:
            self.pods.setdefault((pod.namespace, pod.name), []).append(pod)
        self.owning = {(pod.namespace, pod.owner) for pod in pods}

    def work(self, pod: Pod) -> tuple[str | None, str, PodOwner | None]:
        """Kind and name of what the pod is work of, and the gang that it is in if that is one."""
        labels = {name: pod.labels.get(spelled(name)) for name in OPERATOR_LABELS}
        pod_group = labels[KUEUE_GROUP]
        if pod.namespace in RESERVATION_NAMESPACES:
            return "Pod", RESERVED, None
        if not pod.is_told:
            return None, controller_of(pod.name), None
        if pod.owner is None or pod.owner.kind == "Node":
            itself = PodOwner("PodGroup", pod_group) if pod_group else PodOwner("Pod", pod.name)
            is_gang = pod_group or (pod.namespace, itself) in self.owning
            return itself.kind, itself.name, itself if is_gang else None
        chain = self._chain(pod, pod.owner)
        kind, name = chain[-1].kind, chain[-1].name
        gang = next((pod_owner for pod_owner in chain if pod_owner.kind in GANGS), None)
        group = self._group(pod, pod.owner.name, gang, labels) if pod.owner.kind == "StatefulSet" else None
        if group is not None:
            return "LeaderWorkerSet", group[0], PodOwner("LeaderWorkerSet", group[1])
        if kind == "Deployment":
            service = labels[_KSERVE] or (_inner(kind, name) if KSERVE_CONTAINER in pod.containers else None)
            return ("InferenceService", service, None) if service else (kind, name, None)
        if kind == "InferenceService":
            # Its transformer and its explainer are other work than its predictor.
            below = chain[-2].name if len(chain) > 1 else name
            return kind, _inner("Deployment", below) or below, None
        if kind == "StatefulSet" and (notebook := labels[_NOTEBOOK]):
            return "Notebook", notebook, None
        if kind == "RayCluster":
            return kind, _inner(kind, name) or name, gang
        if gang is None and pod_group and kind not in _REPLICATED:
            gang = PodOwner("PodGroup", pod_group)
        return kind, name, gang or next((pod_owner for pod_owner in chain if pod_owner.kind in ("Job", "Pod")), None)

    def _chain(self, pod: Pod, first: PodOwner) -> tuple[PodOwner, ...]:
        """The owners that stand for the pod's work, the nearest first; it alone where they go round in a circle."""
        chain = [first]
        while len(chain) < _MOST_LINKS:
            last = chain[-1]
            above, allowed = self._above(last, pod.namespace), _ABOVE.get(last.kind, frozenset())
            if above is None or (allowed is not None and above.kind not in allowed):
                return tuple(chain)
            if above in chain or above == PodOwner("Pod", pod.name):
                break
            chain.append(above)
        return (first,)

    def _above(self, owner: PodOwner, namespace: str) -> PodOwner | None:
        key = (owner.kind, namespace, owner.name)
        if key in self.owners:
            return self.owners[key]
        if owner.kind == "Pod":
            return next((pod.owner for pod in self.pods.get(key[1:], ()) if pod.owner is not None), None)
        kind = _OWNER_IN_NAME.get(owner.kind)
        name = _inner(owner.kind, owner.name) if kind else None
        return PodOwner(kind, name) if kind and name else None

    def _group(
        self, pod: Pod, first: str, gang: PodOwner | None, labels: Mapping[str, str | None]
    ) -> tuple[str, str] | None:
        """The LeaderWorkerSet and the group of it that a pod of the StatefulSet `first` is in; None: it is in none."""
        if (name := labels[_LWS_NAME]) and (index := labels[_LWS_GROUP]):
            return name, f"{name}-{index}"
        if gang is not None and gang.kind == "LeaderWorkerSet":
            return gang.name, pod.name if first == gang.name else first
        # Where only StatefulSets are given: the workers' StatefulSet is named like the leader's pod, which is a pod of
        # the StatefulSet that has the LeaderWorkerSet's name.
        for leader in (*self.pods.get((pod.namespace, first), ()), pod):
            base, match = leader.owner, re.fullmatch(_ORDINAL, leader.name)
            leads = (pod.namespace, PodOwner("StatefulSet", leader.name)) in self.owning
            if leads and base and match and base == PodOwner("StatefulSet", match[1]):
                return base.name, leader.name
        return None


def _is_parallel(pods: Sequence[Pod], parallelism: int | None) -> bool:
    if parallelism is not None:
        return parallelism > 1
    reach = -math.inf
    for begin, end in sorted((pod.created_seconds or 0.0, pod.ended_seconds) for pod in pods if pod.has_gpus):
        if min(reach, end) - begin > _HANDOVER_SECONDS:
            return True
        reach = max(reach, end)
    return False


def _runs(pods: Sequence[Pod]) -> list[list[Pod]]:
    runs: list[list[Pod]] = []
    begin = reach = -math.inf
    for pod in sorted(pods, key=lambda pod: (pod.created_seconds or -math.inf, pod.name, pod.uid or "")):
        created = pod.created_seconds
        slack = min(_HANDOVER_SECONDS, _HANDOVER_SHARE * (reach - begin)) if math.isfinite(reach - begin) else 0.0
        if not runs or (created is not None and created >= reach - slack):
            runs.append([])
            begin, reach = created or 0.0, -math.inf
        runs[-1].append(pod)
        reach = max(reach, pod.ended_seconds)
    return runs


def _inner(kind: str, name: str) -> str | None:
    return next((match[1] for pattern in _NAMES[kind] if (match := re.fullmatch(pattern, name))), None)
