"""From a pod to the work it belongs to, by what Kubernetes says of owners: the agent and the Prometheus road use this.

A pod's chain of owners is followed as far as one of them stands for one piece of work: pod, ReplicaSet, Deployment;
pod, Job, CronJob or JobSet; pod, StatefulSet. What owns several Deployments is not followed: they do different work.

* The series is what recurs: whatever the chain ends in. Replicas, rolling updates and the runs of a CronJob are one.
* Pods that work together on several nodes (a gang: PyTorchJob, JobSet, a group of a LeaderWorkerSet, RayCluster, a Job
  with several pods at a time, a pod group of Kueue) are one workload. Every other pod is a workload.

Names are read only where nothing tells an owner (`pod_names`): of a ReplicaSet, a Job or a pod of which nothing is
told; and for what kube-state-metrics cannot tell without configuration: StatefulSets of a LeaderWorkerSet (its group
is the leader's pod and a StatefulSet of the same name), KServe's Deployments (with its container), RayJobs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .ids import gang_id, series_id, workload_id
from .pod_names import controller_of, cron_job_of, deployment_of, inference_service_of, is_ordinal_of, ray_name_of

# Kinds whose pods work together. A Job is one where several of its pods run at a time.
GANGS = frozenset(
    {
        "PyTorchJob", "MPIJob", "TFJob", "MXJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob", "JobSet",
        "LeaderWorkerSet", "RayCluster", "RayJob", "SparkApplication",
    }
)  # fmt: skip
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
# Labels that operators put on pods; they count where they are told.
_LWS_NAME, _LWS_GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
_KSERVE, _NOTEBOOK = "serving.kserve.io/inferenceservice", "notebook-name"
# Kueue labels the pods of StatefulSets as well; those are replicas, and what has an operator is that operator's gang.
_KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
OPERATOR_LABELS = (_LWS_NAME, _LWS_GROUP, _KSERVE, _NOTEBOOK, _KUEUE_GROUP)
# Pods of KAI Scheduler and Run:ai that hold a GPU for the pods that share it (label `runai-gpu-group` of both).
RESERVATION_NAMESPACES = frozenset({"kai-resource-reservation", "runai-reservation"})
RESERVED = "reserved for shared use"
# A gang that is made anew begins while the last of its old pods end.
_HANDOVER_SECONDS, _HANDOVER_SHARE = 120.0, 0.1
_SPELLED, _CAPITAL = re.compile(r"[^a-zA-Z0-9_]"), re.compile(r"([a-z0-9])([A-Z])")


@dataclass(frozen=True, slots=True)
class PodOwner:
    """What controls an object."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, or one life of a name that several pods had one after the other. Times are Unix seconds.

    `owner` None: it has none, or (`is_told` False) nothing tells. `ended_seconds`: infinite while it is there.
    `labels`: by the names that kube-state-metrics gives them (`spelled`). `has_gpus`: whether it asks for any.
    """

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
    """What is told beside pods. `owners`: (kind, namespace, name) -> owner, None: it has none; `labels`: of namespaces;
    `parallelism`: (namespace, Job) -> how many of its pods run at a time."""

    owners: Mapping[tuple[str, str, str], PodOwner | None] = field(default_factory=dict)
    parallelism: Mapping[tuple[str, str], int] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodWork:
    """The work of a pod. `kind`: what `name` names, None where only the pod's name tells it. `gang`: whether other pods
    may be part of the same workload."""

    workload_id: str
    series_id: str
    name: str
    kind: str | None
    gang: bool


@dataclass(frozen=True, slots=True)
class _Found:
    kind: str | None
    name: str
    gang: PodOwner | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """`pods`: by namespace and name; `groups`: see `_groups`; `leaders`: pods that own pods."""

    objects: Objects
    pods: Mapping[tuple[str, str], Sequence[Pod]]
    groups: Mapping[tuple[str, str], str]
    leaders: frozenset[tuple[str, str]]


def works_of(cluster: str, pods: Sequence[Pod], objects: Objects) -> tuple[PodWork, ...]:
    """The work of each pod, in their order. All of one cluster; of a gang all pods that are known should be there.

    A gang's run is named by the UID of the oldest of its pods that ask for GPUs (else by when that was created), so
    every node and every reader gives it one id as long as that pod is known; once it has gone while others went on,
    who comes later gives another id. What begins when all pods of a run are over is the next run.
    """
    by_name: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        by_name.setdefault((pod.namespace, pod.name), []).append(pod)
    known = _Known(objects, by_name, _groups(pods, by_name), _leaders(pods))
    found = [_found(pod, known) for pod in pods]
    members: dict[tuple[str, PodOwner], list[int]] = {}
    for n, (pod, one) in enumerate(zip(pods, found, strict=True)):
        if one.gang is not None:
            members.setdefault((pod.namespace, one.gang), []).append(n)
    ids: dict[int, str] = {}
    for (namespace, gang), at in members.items():
        if gang.kind == "Job" and not _is_parallel(namespace, gang.name, [pods[n] for n in at], objects):
            continue
        for own in _runs(at, pods):
            key = gang_id(cluster, namespace, gang.kind, gang.name, _run_name([pods[n] for n in own]))
            ids |= dict.fromkeys(own, key)
    return tuple(
        PodWork(
            ids.get(n) or workload_id(cluster, "kubernetes", *pod_parts(pod)),
            series_id(cluster, pod.namespace or None, None, one.name), one.name, one.kind, n in ids,
        )
        for n, (pod, one) in enumerate(zip(pods, found, strict=True))
    )  # fmt: skip


def pod_parts(pod: Pod) -> tuple[str, ...]:
    """What names a pod: its UID; where that is not known, its name."""
    return (pod.uid,) if pod.uid else ("pod", pod.namespace, pod.name)


def team_of_pod(pod: Pod, objects: Objects, names: Iterable[str]) -> str | None:
    """The first of these labels that the pod has, else that its namespace has."""
    spellings = [spelled(name) for name in names]
    for labels in (pod.labels, objects.labels.get(pod.namespace, {})):
        for name in spellings:
            # Labels that are spelled alike are numbered by kube-state-metrics: which is which is not told.
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


def _groups(pods: Sequence[Pod], by_name: Mapping[tuple[str, str], Sequence[Pod]]) -> dict[tuple[str, str], str]:
    """(namespace, group) -> LeaderWorkerSet, where only StatefulSets are told: the workers' StatefulSet is named like
    the leader's pod, which is a pod of the StatefulSet that has the LeaderWorkerSet's name."""
    found = {}
    for pod in pods:
        own = pod.owner
        if own is None or own.kind != "StatefulSet":
            continue
        for leader in by_name.get((pod.namespace, own.name), ()):
            base = leader.owner
            if base is not None and base.kind == "StatefulSet" and is_ordinal_of(own.name, base.name):
                found[pod.namespace, own.name] = base.name
    return found


def _leaders(pods: Iterable[Pod]) -> frozenset[tuple[str, str]]:
    """Namespaces and names of pods that own other pods."""
    return frozenset((pod.namespace, pod.owner.name) for pod in pods if pod.owner and pod.owner.kind == "Pod")


def _found(pod: Pod, known: _Known) -> _Found:
    if pod.namespace in RESERVATION_NAMESPACES:
        return _Found("Pod", RESERVED)
    pod_group = pod.labels.get(spelled(_KUEUE_GROUP))
    if not pod.is_told:
        return _Found(None, controller_of(pod.name))
    if pod.owner is None or pod.owner.kind == "Node":
        if pod_group:
            return _Found("PodGroup", pod_group, PodOwner("PodGroup", pod_group))
        leads = (pod.namespace, pod.name) in known.leaders
        return _Found("Pod", pod.name, PodOwner("Pod", pod.name) if leads else None)
    chain = _chain(pod, pod.owner, known)
    top = chain[-1]
    gang = next((one for one in chain if one.kind in GANGS), None)
    labels = {name: pod.labels.get(spelled(name)) for name in OPERATOR_LABELS}
    group = _group(pod, chain, gang, labels, known)
    if group is not None:
        return _Found("LeaderWorkerSet", group[0], PodOwner("LeaderWorkerSet", group[1]))
    if top.kind == "Deployment":
        service = labels[_KSERVE] or (inference_service_of(top.name) if KSERVE_CONTAINER in pod.containers else None)
        return _Found("InferenceService", service) if service else _Found(top.kind, top.name)
    if top.kind == "InferenceService":
        # Its transformer and its explainer are other work than its predictor.
        below = chain[-2].name if len(chain) > 1 else top.name
        return _Found(top.kind, inference_service_of(below) or below)
    if top.kind == "StatefulSet" and labels[_NOTEBOOK]:
        return _Found("Notebook", labels[_NOTEBOOK] or top.name)
    if top.kind == "RayCluster":
        return _Found(top.kind, ray_name_of(top.name), gang)
    if gang is None and pod_group and top.kind not in _REPLICATED:
        gang = PodOwner("PodGroup", pod_group)
    return _Found(top.kind, top.name, gang or next((one for one in chain if one.kind in ("Job", "Pod")), None))


def _chain(pod: Pod, first: PodOwner, known: _Known) -> tuple[PodOwner, ...]:
    """The owners that stand for the pod's work, the nearest first; it alone where they go round in a circle."""
    chain = [first]
    while len(chain) < _MOST_LINKS:
        last = chain[-1]
        above = _above(last, pod.namespace, known)
        allowed = _ABOVE.get(last.kind, frozenset())
        if above is None or (allowed is not None and above.kind not in allowed):
            return tuple(chain)
        if above in chain or above == PodOwner("Pod", pod.name):
            return (first,)
        chain.append(above)
    return (first,)


def _above(owner: PodOwner, namespace: str, known: _Known) -> PodOwner | None:
    key = (owner.kind, namespace, owner.name)
    if key in known.objects.owners:
        return known.objects.owners[key]
    if owner.kind == "ReplicaSet" and (name := deployment_of(owner.name)) is not None:
        return PodOwner("Deployment", name)
    if owner.kind == "Job" and (name := cron_job_of(owner.name)) is not None:
        return PodOwner("CronJob", name)
    if owner.kind == "Pod":
        return next((one.owner for one in known.pods.get((namespace, owner.name), ()) if one.owner is not None), None)
    return None


def _group(
    pod: Pod, chain: Sequence[PodOwner], gang: PodOwner | None, labels: Mapping[str, str | None], known: _Known
) -> tuple[str, str] | None:
    """The LeaderWorkerSet and the group of it that a pod is in; None: it is in none."""
    name, index = labels[_LWS_NAME], labels[_LWS_GROUP]
    if chain[0].kind != "StatefulSet":
        return None
    if name and index:
        return name, f"{name}-{index}"
    if gang is not None and gang.kind == "LeaderWorkerSet":
        return gang.name, pod.name if chain[0].name == gang.name else chain[0].name
    for own in (chain[0].name, pod.name):
        base = known.groups.get((pod.namespace, own))
        if base is not None and (own == chain[0].name or chain[0].name == base):
            return base, own
    return None


def _is_parallel(namespace: str, job: str, pods: Sequence[Pod], objects: Objects) -> bool:
    """Whether a Job's pods run at the same time: as it says, else as its pods show."""
    told = objects.parallelism.get((namespace, job))
    if told is not None:
        return told > 1
    lives = sorted((pod.created_seconds or 0.0, pod.ended_seconds) for pod in pods if pod.has_gpus)
    reach = -math.inf
    for begin, end in lives:
        if min(reach, end) - begin > _HANDOVER_SECONDS:
            return True
        reach = max(reach, end)
    return False


def _runs(at: Sequence[int], pods: Sequence[Pod]) -> list[list[int]]:
    """The pods of one gang's name, by run."""
    runs: list[list[int]] = []
    begin = reach = -math.inf
    for n in sorted(at, key=lambda n: (pods[n].created_seconds or -math.inf, pods[n].name, pods[n].uid or "")):
        created = pods[n].created_seconds
        slack = min(_HANDOVER_SECONDS, _HANDOVER_SHARE * (reach - begin)) if math.isfinite(reach - begin) else 0.0
        if not runs or (created is not None and created >= reach - slack):
            runs.append([])
            begin, reach = created or 0.0, -math.inf
        runs[-1].append(n)
        reach = max(reach, pods[n].ended_seconds)
    return runs


def _run_name(pods: Sequence[Pod]) -> str:
    """The UID of a run's oldest pod, else when it was created; empty where neither is known."""
    asking = [pod for pod in pods if pod.has_gpus] or pods
    dated = [(created, pod.name, pod.uid or "") for pod in asking if (created := pod.created_seconds) is not None]
    if not dated:
        return ""
    created, _, uid = min(dated)
    return uid or f"{created:.0f}"
