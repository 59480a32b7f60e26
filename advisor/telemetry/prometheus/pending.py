"""Pods that want GPUs and have no node at the end of a window, as kube-state-metrics has them: the queue of Kubernetes.

A pod with a node holds its GPUs, also while its images are pulled. Pods of one group wait together and are one row; a
pod of a Job that runs several is one of its own. What Kueue suspends has no pods yet, and is not seen.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ....agent.jobs.pods import GANGS, KUEUE_GROUP, OPERATOR_LABELS, Objects, Pod, spelled, spellings_of, works_of
from ..waiting import blocked_by, waiting_table
from .client.response import Labels, SeriesAnswer
from .owners import MIG, MOST_GPUS, NVIDIA, OF_PODS, KubeServer, with_fact
from .promql import CLUSTER_LABELS, cluster_of, label_of, selector
from .questions import Questions

_SPACE = (*CLUSTER_LABELS, "exported_namespace", "namespace")
_POD = (*_SPACE, "exported_pod", "pod", "uid")
_CONTAINER = ("exported_container", "container", "resource")
# Of GPUs requests and limits are the same; a cluster may keep one of them alone.
_REQUESTS = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
_FACTS = ("kube_pod_owner", "kube_pod_created", "kube_pod_labels")
_PHASE, _SCHEDULED, _DELETED = "kube_pod_status_phase", "kube_pod_status_scheduled", "kube_pod_deletion_timestamp"
_PENDING, _BOUND, _GATED = 'phase="Pending"', 'condition="true"', "SchedulingGated"
_CLAIMS, _CLAIM_BOUND = "kube_pod_spec_volumes_persistentvolumeclaims_info", 'phase="Bound"'
_CLAIM_PHASE, _CLAIM_INFO = "kube_persistentvolumeclaim_status_phase", "kube_persistentvolumeclaim_info"
_CLASSES, _LATER = "kube_storageclass_info", 'volume_binding_mode="WaitForFirstConsumer"'
_RECENT_SECONDS = 3600.0
_PodKey = tuple[str, str, str, str]


def read_pending(asked: Questions) -> pd.DataFrame | None:
    """The frame's table of what waits; None: the server does not say, at the window's end, which pods have a node."""
    names = asked.survey.names
    requests = [name for name in _REQUESTS if name in names][:1]
    if not requests or not {_PHASE, _SCHEDULED} <= names:
        return None
    requests += [name for name in (requests[0].replace("pod_", "pod_init_"),) if name in names]
    queue = _Queue(names, asked.matches)
    expressions = [queue.of(name, *_CONTAINER, chosen=f'resource=~"{NVIDIA}"') for name in requests]
    # With the number of pods, so that no answer and none that waits differ.
    expressions[0] = f"({expressions[0]}) or count({_PHASE}{selector(asked.matches)})"
    containers, *init = asked.instants(expressions, (*_POD, *_CONTAINER))
    if not containers.labels:
        return None
    gpus = _gpus(containers, *init)
    if not gpus:
        return waiting_table([])
    operators = tuple(f"label_{spelling}" for name in OPERATOR_LABELS for spelling in spellings_of(spelled(name)))
    facts = {name: OF_PODS[name] or operators * name.endswith("labels") for name in _FACTS if name in names}
    questions = {name: queue.of(name, *kept) for name, kept in facts.items()} | queue.reasons()
    kept = (*_POD, *(label for labels in facts.values() for label in labels))
    said = dict(zip(questions, asked.instants(list(questions.values()), kept), strict=True))
    pods = {key: Pod(key[1], key[2], key[3] or None, is_told=False) for key in gpus}
    for name in facts:
        for labels, value in zip(said[name].labels, said[name].values[:, 0].tolist(), strict=True):
            if (key := _key(labels)) in pods:
                pods[key] = with_fact(pods[key], name, labels, value)
    reasons = {_key(labels): word for word in said if word not in facts for labels in said[word].labels}
    server = KubeServer(asked.instants, names, asked.matches, operators, {})
    objects = server.objects({key[:3]: (pod,) for key, pod in pods.items()}, _RECENT_SECONDS)
    return waiting_table(_rows(pods, gpus, reasons, objects))


@dataclass(frozen=True)
class _Queue:
    """Expressions about the pods that wait. `names`: of the server's metrics."""

    names: Collection[str]
    matches: Sequence[str]

    def most(self, metric: str, by: Sequence[str], chosen: str = "", *, how: str = "max") -> str:
        return f"{how} by ({', '.join(by)}) ({metric}{selector(self.matches, *filter(None, [chosen]))})"

    def of(self, metric: str, *by: str, chosen: str = "", value: str = "") -> str:
        """A metric of pods that wait, by these labels too."""
        # Of two copies of kube-state-metrics that differ for a scrape the one that knows of the node is right.
        pending = self.most(_PHASE, _POD, _PENDING, how="min")
        queue = f"({pending} == 1) unless ({self.most(_SCHEDULED, _POD, _BOUND)} == 1)"
        if _DELETED in self.names:
            queue += f" unless {self.most(_DELETED, _POD)}"
        return f"({self.most(metric, (*_POD, *by), chosen)}{value}) and on ({', '.join(_POD)}) ({queue})"

    def reasons(self) -> dict[str, str]:
        """Why a pod waits for something else than GPUs: the word, and which pods."""
        asked = {}
        if "kube_pod_status_reason" in self.names:
            asked[_GATED] = self.of("kube_pod_status_reason", chosen=f'reason="{_GATED}"', value=" == 1")
        if {_CLAIM_PHASE, _CLAIMS} <= {*self.names}:
            claim = (*_SPACE, "persistentvolumeclaim")
            on = f"on ({', '.join(claim)})"
            unbound = (
                f"({self.of(_CLAIMS, claim[-1])}) unless {on} ({self.most(_CLAIM_PHASE, claim, _CLAIM_BOUND)} == 1)"
            )
            if {_CLAIM_INFO, _CLASSES} <= {*self.names}:
                # Such a volume waits for the pod to get a node.
                of_class = (*CLUSTER_LABELS, "storageclass")
                later = f"{self.most(_CLAIM_INFO, (*claim, of_class[-1]))} and on ({', '.join(of_class)})"
                unbound += f" unless {on} ({later} {self.most(_CLASSES, of_class, _LATER)})"
            asked["PersistentVolumeClaim"] = unbound
        return asked


def _gpus(containers: SeriesAnswer, *init: SeriesAnswer) -> dict[_PodKey, dict[str, float]]:
    """GPUs of each pod by resource. Init containers run one after the other, before the others."""
    gpus: dict[_PodKey, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for answer in (containers, *init):
        for labels, value in zip(answer.labels, answer.values[:, 0].tolist(), strict=True):
            if (resource := labels.get("resource")) and 0 < value <= MOST_GPUS and value % 1 == 0:
                counts = gpus[_key(labels)]
                counts[resource] = counts[resource] + value if answer is containers else max(counts[resource], value)
    return gpus


def _key(labels: Labels) -> _PodKey:
    return cluster_of(labels), label_of(labels, "namespace"), label_of(labels, "pod"), labels.get("uid", "")


def _rows(
    pods: Mapping[_PodKey, Pod], gpus: Mapping[_PodKey, Mapping[str, float]], reasons: Mapping[_PodKey, str],
    objects: Mapping[str, Objects],
) -> Iterator[Mapping[str, object]]:  # fmt: skip
    groups: dict[object, list[_PodKey]] = defaultdict(list)
    names: dict[_PodKey, str] = {}
    for cluster in sorted({key[0] for key in pods}):
        keys = [key for key in pods if key[0] == cluster]
        works = works_of(cluster, [pods[key] for key in keys], objects.get(cluster, Objects()))
        for key, work in zip(keys, works, strict=True):
            pod, names[key] = pods[key], work.name
            is_alone = pod.owner is not None and pod.owner.kind == "Job" and work.kind not in GANGS
            groups[key if is_alone and not pod.labels.get(spelled(KUEUE_GROUP)) else work.workload_id].append(key)
    for keys in groups.values():
        keys.sort(key=lambda key: (pods[key].created_seconds or 0.0, key))
        cluster, namespace, pod, _ = first = keys[0]
        resources = sorted({resource for key in keys for resource in gpus[key]})
        parts = {name: int(match[1]) / 7 if (match := MIG.fullmatch(name)) else 1.0 for name in resources}
        profiles = (name.removeprefix("nvidia_com_mig_").removesuffix("_shared").replace("_", ".") for name in resources
                    if name.startswith("nvidia_com_mig_"))  # fmt: skip
        reason = next((reasons[key] for key in keys if key in reasons), None)
        yield {
            "scheduler": "kubernetes", "cluster": cluster or None, "id": f"{namespace}/{pod}", "namespace": namespace,
            "name": names[first], "jobs": 1, "nodes": len(keys), "gpu_type": ",".join(profiles) or None,
            "gpus": sum(count * parts[name] for key in keys for name, count in gpus[key].items()),
            "since": pods[first].created_seconds, "reason": reason, "blocked": blocked_by(reason),
        }  # fmt: skip
