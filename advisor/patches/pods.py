"""Where the pods of an object of Kubernetes are described, how many there are, and which GPUs they ask for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted
from .yaml_documents import Document

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
# Kinds that a strategic merge patch works for: those that are part of Kubernetes.
BUILT_IN = frozenset(
    {("apps/v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")}
    | {("batch/v1", "Job"), ("batch/v1", "CronJob"), ("v1", "Pod"), ("v1", "Node"), ("v1", "ReplicationController")}
)
_DEPTH_MAX = 40
# Kinds that have one replica where the manifest does not say how many.
_REPLICATED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})
_COUNTS = ("replicas", "parallelism")


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods alike of one object. `spec`: their specification; `holder`: the mapping that says how many there are, None
    where nothing does (a bare pod, a DaemonSet). Both are parts of the document: what is changed there is changed."""

    spec: dict[str, Any]
    holder: dict[str, Any] | None

    @property
    def count_key(self) -> str:
        return next((key for key in _COUNTS if self.holder is not None and key in self.holder), "replicas")

    @property
    def count(self) -> int:
        """How many pods; 1 where none is said, which is Kubernetes' default."""
        held = self.holder.get(self.count_key) if self.holder is not None else None
        return held if isinstance(held, int) and not isinstance(held, bool) else 1

    @property
    def gpu_containers(self) -> list[dict[str, Any]]:
        return [one for one in _containers(self.spec) if gpus_of(one)]

    @property
    def gpus(self) -> int:
        """GPUs of one pod."""
        return sum(gpus_of(one) for one in self.gpu_containers)


def is_built_in(document: Document) -> bool:
    return (document["apiVersion"], document["kind"]) in BUILT_IN


def pod_groups(document: Document) -> list[PodGroup]:
    """All descriptions of pods in an object, of whatever kind: mappings with containers under a ``template``, or the
    specification of a bare pod."""
    spec = document.get("spec")
    if document["kind"] == "Pod" and isinstance(spec, dict):
        return [PodGroup(spec, None)]
    return list(_found(spec, 0)) if isinstance(spec, dict) else []


def _found(value: Any, depth: int) -> Iterator[PodGroup]:  # noqa: ANN401
    if depth > _DEPTH_MAX:
        return
    if isinstance(value, list):
        for one in value:
            yield from _found(one, depth + 1)
    if not isinstance(value, dict):
        return
    for key, child in value.items():
        spec = child.get("spec") if isinstance(child, dict) and key.lower().endswith("template") else None
        if isinstance(spec, dict) and _containers(spec):
            yield PodGroup(spec, value if key == "template" else None)
        else:
            yield from _found(child, depth + 1)


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    found = spec.get("containers")
    named = isinstance(found, list) and all(isinstance(c, dict) and isinstance(c.get("name"), str) for c in found)
    return found if named and isinstance(found, list) else []


def gpus_of(container: dict[str, Any]) -> int:
    """Whole GPUs that a container asks for; 0: none, or its resources are no mapping."""
    return max((_whole(held.get(name)) for held in resources_of(container) for name in GPU_RESOURCES), default=0)


def resources_of(container: dict[str, Any]) -> list[dict[str, Any]]:
    """Its limits and requests, as far as they are there."""
    told = container.get("resources")
    if not isinstance(told, dict):
        return []
    return [held for part in ("limits", "requests") if isinstance(held := told.get(part), dict)]


def _whole(value: Any) -> int:  # noqa: ANN401
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 7 else 0


def set_gpus(container: dict[str, Any], count: int) -> None:
    """The same resource with another count, written as it was: a number, or a number in quotes."""
    for held in resources_of(container):
        for name in GPU_RESOURCES:
            if name in held:
                held[name] = str(count) if isinstance(held[name], str) else count


def replace_resource(container: dict[str, Any], resource: str) -> None:
    """Its GPUs by as many of another resource."""
    for held in resources_of(container):
        for name in GPU_RESOURCES:
            if name in held:
                held[resource] = held.pop(name)


def resized(document: Document, before: int, after: int) -> Document:
    """The object with `after` GPUs instead of `before`, in whole replicas where it has several.

    Raises UsageError where it asks for another number today, or cannot be resized so.
    """
    new = copy.deepcopy(document)
    groups = [one for one in pod_groups(new) if one.gpus > 0]
    label = f"{document['kind']} {quoted(str(document['metadata'].get('name', '')))}"
    total = sum(one.count * one.gpus for one in groups)
    if total != before:
        raise UsageError(
            f"{label} asks for {total} GPUs; the recommendation starts from {before}.",
            "Name the manifest of the whole workload, as it runs today.",
        )
    if document["kind"] == "DaemonSet" or (document["kind"] != "Pod" and any(one.holder is None for one in groups)):
        raise UsageError(f"The number of pods of {label} is not in its manifest.", "Change its size by hand.")
    several = [one for one in groups if one.count > 1] or groups
    if len(several) == 1:
        group = several[0]
        left = after - (total - group.count * group.gpus)
        counted = group.holder is not None and (group.count_key in group.holder or document["kind"] in _REPLICATED)
        if group.holder is not None and counted and left > 0 and left % group.gpus == 0:
            _set_count(new, group.holder, group.count_key, group.count, left // group.gpus)
            return new
        if group.count == 1 and left > 0 and len(group.gpu_containers) == 1:
            set_gpus(group.gpu_containers[0], left)
            return new
    shape = " + ".join(f"{one.count} x {one.gpus}" for one in groups)
    raise UsageError(
        f"{label} has {shape} GPUs, which cannot become {after} by a change of replicas or of one container.",
        "Change its size by hand.",
    )


def _set_count(document: Document, holder: dict[str, Any], key: str, before: int, after: int) -> None:
    """Another number of pods, with what is bound to it."""
    holder[key] = after
    # Completions of a Job cannot change unless its pods are indexed, and then only together with its parallelism.
    if key == "parallelism" and holder.get("completionMode") == "Indexed" and holder.get("completions") == before:
        holder["completions"] = after
    # Bounds within which an autoscaler moves it: of a group (RayCluster), or of the whole job (PyTorchJob).
    for bounds in (holder, document["spec"].get("elasticPolicy")):
        for bound, limit in (("minReplicas", min), ("maxReplicas", max)):
            if isinstance(bounds, dict) and type(bounds.get(bound)) is int:
                bounds[bound] = limit(bounds[bound], after)
