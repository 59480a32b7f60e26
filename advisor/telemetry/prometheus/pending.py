"""Pods that want GPUs and have no node at the end of a window, as kube-state-metrics has them: the queue of Kubernetes.

A pod with a node holds its GPUs, also while its images are pulled. Pods of one group wait together and are one row;
each pod of a Job is a separate row. Jobs that Kueue suspends have no pods yet and are missing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ....agent.jobs.pods import GANGS, KUEUE_GROUP, OPERATOR_LABELS, Objects, Pod, spelled, spellings_of, works_of
from ...core.frame import Frame
from ..waiting import blocked_by, waiting_table
from .client.response import Labels, SeriesAnswer
from .owners import MIG, MOST_GPUS, NVIDIA, OF_PODS, KubeServer, with_fact
from .promql import CLUSTER_LABELS, cluster_of, label_of, selector
from .questions import Questions

_SPACE = (*CLUSTER_LABELS, "exported_namespace", "namespace")
_POD = (*_SPACE, "exported_pod", "pod", "uid")
_CONTAINER = ("exported_container", "container", "resource")
_FACTS = ("kube_pod_owner", "kube_pod_created", "kube_pod_labels")
_PHASE, _SCHEDULED = "kube_pod_status_phase", "kube_pod_status_scheduled"
_GATED, _CLAIMS = "SchedulingGated", "kube_pod_spec_volumes_persistentvolumeclaims_info"
_CLAIM_PHASE, _CLAIM_INFO = "kube_persistentvolumeclaim_status_phase", "kube_persistentvolumeclaim_info"
_CLASSES, _LATER = "kube_storageclass_info", 'volume_binding_mode="WaitForFirstConsumer"'
_RECENT_SECONDS = 3600.0
_PodKey = tuple[str, str, str, str]


def with_pending(frame: Frame, asked: Questions) -> Frame:
    """The frame with what waits; without where the server does not say, at the window's end, which pods have a node."""
    names = asked.survey.names
    kind = next((kind for kind in ("requests", "limits") if f"kube_pod_container_resource_{kind}" in names), None)
    if kind is None or not {_PHASE, _SCHEDULED} <= names:
        return frame
    queue, metrics = _Queue(names, asked.matches), (f"kube_pod_{of}container_resource_{kind}" for of in ("", "init_"))
    expressions = [queue.of(name, *_CONTAINER, chosen=(f'resource=~"{NVIDIA}"',)) for name in metrics if name in names]
    # With the number of pods, so that no answer and none that waits differ.
    expressions[0] = f"({expressions[0]}) or count({_PHASE}{selector(asked.matches)})"
    containers, *init = asked.instants(expressions, (*_POD, *_CONTAINER))
    if not containers.labels:
        return frame
    gpus = _gpus(containers, *init)
    if not gpus:
        return replace(frame, waiting_at=asked.survey.window.end)
    operators = tuple(f"label_{spelling}" for name in OPERATOR_LABELS for spelling in spellings_of(spelled(name)))
    facts = {name: OF_PODS[name] or operators * name.endswith("labels") for name in _FACTS if name in names}
    questions = {name: queue.of(name, *kept) for name, kept in facts.items()} | queue.reasons()
    kept = (*_POD, *(label for labels in facts.values() for label in labels))
    pods = {key: Pod(key[1], key[2], key[3] or None, is_told=False) for key in gpus}
    reasons: dict[_PodKey, str] = {}
    for name, answer in zip(questions, asked.instants(list(questions.values()), kept), strict=True):
        for labels, value in zip(answer.labels, answer.values[:, 0].tolist(), strict=True):
            if name in facts and (key := _key(labels)) in pods:
                pods[key] = with_fact(pods[key], name, labels, value)
            elif name not in facts and value:
                reasons[_key(labels)] = name
    server = KubeServer(asked.instants, names, asked.matches, operators, {})
    objects = server.objects({key[:3]: (pod,) for key, pod in pods.items()}, _RECENT_SECONDS)
    table = waiting_table(pd.DataFrame(list(_rows(pods, gpus, reasons, objects))))
    return replace(frame, waiting=table, waiting_at=asked.survey.window.end)


@dataclass(frozen=True)
class _Queue:
    """Expressions about the pods that wait. `names`: of the server's metrics."""

    names: frozenset[str]
    matches: Sequence[str]

    def most(self, metric: str, by: Sequence[str], *chosen: str, how: str = "max") -> str:
        return f"{how} by ({', '.join(by)}) ({metric}{selector(self.matches, *chosen)})"

    def of(self, metric: str, *by: str, chosen: Sequence[str] = ()) -> str:
        """A metric of pods that wait, by these labels too."""
        # Copies of kube-state-metrics may differ for a scrape: the one that has the node is right.
        pending = self.most(_PHASE, _POD, 'phase="Pending"', how="min")
        bound, asked = self.most(_SCHEDULED, _POD, 'condition="true"'), self.most(metric, (*_POD, *by), *chosen)
        return f"{asked} and on ({', '.join(_POD)}) (({pending} == 1) unless ({bound} == 1))"

    def reasons(self) -> dict[str, str]:
        """Why a pod waits for something else than GPUs: the word, and which pods (above 0)."""
        asked = {}
        if "kube_pod_status_reason" in self.names:
            asked[_GATED] = self.of("kube_pod_status_reason", chosen=(f'reason="{_GATED}"',))
        if {_CLAIM_PHASE, _CLAIMS} <= self.names:
            claim = (*_SPACE, "persistentvolumeclaim")
            on, bound = f"unless on ({', '.join(claim)})", self.most(_CLAIM_PHASE, claim, 'phase="Bound"')
            asked["PersistentVolumeClaim"] = f"{self.of(_CLAIMS, claim[-1])} {on} ({bound} == 1)"
            if {_CLAIM_INFO, _CLASSES} <= self.names:
                # Such a volume waits for the pod to get a node.
                of_class = (*CLUSTER_LABELS, "storageclass")
                later = f"{self.most(_CLAIM_INFO, (*claim, of_class[-1]))} and on ({', '.join(of_class)})"
                asked["PersistentVolumeClaim"] += f" {on} ({later} {self.most(_CLASSES, of_class, _LATER)})"
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
