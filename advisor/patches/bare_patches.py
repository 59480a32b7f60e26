"""Patches of Kubernetes objects without their manifest: of nodes, and of workloads as far as the undo is known."""

from __future__ import annotations

from typing import Any

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted
from ..recommend.moves.rest_clocks import VARIABLE
from .kustomize import component
from .labels import target_labels
from .model import PatchFile, PatchPart, PatchSet
from .names import file_slug, namespace_name, object_kind, object_name
from .objects import ANNOTATION, target_words, under
from .subject import Subject
from .yaml_documents import Document, read_documents, write_document

_API = {**dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet"), "apps/v1"), "CronJob": "batch/v1"}
_UNDO = "The undo was made without the manifest: it removes what the patch adds. With --manifest FILE it is exact."
_REMEDY = "Use --manifest FILE with the output of 'kubectl get KIND NAME -n NAMESPACE -o yaml'."


def bare_parts(subject: Subject) -> PatchSet:
    """Raises UsageError where something is missing that only a manifest or the user knows."""
    if subject.of_nodes or subject.action == "consolidate":
        return _cordoned(subject)
    head = _named_object(subject)
    there, back, notes = _changes(subject, head)
    there["metadata"] = {"annotations": {ANNOTATION: subject.id}}
    back["metadata"] = {"annotations": {ANNOTATION: None}}
    part = _part(head, there, back)
    return PatchSet((part,), (*notes, _UNDO), more=(component((part.patch.name,)),))


def _named_object(subject: Subject) -> Document:
    """The object, by what was typed, else by what the ledger knows. Raises UsageError naming what is missing."""
    asked, known = subject.asked, subject.address
    on_kubernetes = known.scheduler == "kubernetes"
    kind = asked.kind or known.controller_kind
    name = asked.name or (known.name if on_kubernetes else None)
    namespace = asked.namespace or known.namespace
    lacks = [what for what, told in (("--kind", kind), ("--name", name), ("--namespace", namespace)) if told is None]
    if lacks or kind is None or name is None or namespace is None:
        raise UsageError(
            f"The ledger does not know the Kubernetes object of {subject.id}: set {', '.join(lacks)}.", _REMEDY
        )
    if kind not in _API:
        raise UsageError(f"Without its manifest a {object_kind(kind)} cannot be patched.", _REMEDY)
    metadata = {"name": object_name(name), "namespace": namespace_name(namespace)}
    return {"apiVersion": _API[kind], "kind": kind, "metadata": metadata}


def _changes(subject: Subject, head: Document) -> tuple[Document, Document, tuple[str, ...]]:
    """The two changes of an object, and what is to be known of them."""
    match subject.action:
        case "move-sku" | "swap-placement":
            return _placed(subject, head)
        case "reduce-gpus":
            now = _replicas(subject)
            each, rest = divmod(subject.ground.source.gpu_count, now)
            if rest or not each or subject.ground.target.gpu_count % each:
                raise UsageError(f"{subject.ground.source.gpu_count} GPUs are not {now} replicas alike.", _REMEDY)
            return _counts(head, subject.ground.target.gpu_count // each, now)
        case "release":
            return _counts(head, 0, _replicas(subject))
        case "mig-slice":
            mig = f"nvidia.com/mig-{subject.mig_profile().replace('+', '.')}"
            there = {"resources": {"limits": {"nvidia.com/gpu": None, mig: 1}}}
            back = {"resources": {"limits": {"nvidia.com/gpu": 1, mig: None}}}
            return *_in_container(subject, head, there, back), ()
        case "rest-clocks":
            there = {"env": [{"name": VARIABLE, "value": "1"}]}
            back = {"env": [{"name": VARIABLE, "$patch": "delete"}]}
            return *_in_container(subject, head, there, back), ()
        case _:
            raise AssertionError(subject.action)


def _placed(subject: Subject, head: Document) -> tuple[Document, Document, tuple[str, ...]]:
    """A node selector: it is merged by key, where an affinity would replace what nobody showed."""
    labels, note = target_labels(subject)
    if any(len(values) > 1 for values in labels.values()):
        raise UsageError(
            "The target's nodes have several values of one label, which a node selector cannot name.", _REMEDY
        )
    if subject.action == "move-sku" and subject.ground.source.gpu_count != subject.ground.target.gpu_count:
        raise UsageError("The move changes the number of GPUs, so the patch needs the manifest.", _REMEDY)
    there = _pod(head, {"nodeSelector": {key: values[0] for key, values in labels.items()}})
    back = _pod(head, {"nodeSelector": dict.fromkeys(labels)})
    return there, back, (note, "A node affinity that excludes these nodes does not show without the manifest.")


def _counts(head: Document, after: int, now: int) -> tuple[Document, Document, tuple[str, ...]]:
    if head["kind"] == "CronJob":
        raise UsageError("A CronJob has no replicas.", _REMEDY)
    return {"spec": {"replicas": after}}, {"spec": {"replicas": now}}, ("Replicas now are those of --replicas.",)


def _replicas(subject: Subject) -> int:
    if subject.asked.replicas is None:
        raise UsageError(f"Number of replicas of {subject.id} unknown: set --replicas.", _REMEDY)
    return subject.asked.replicas


def _in_container(subject: Subject, head: Document, there: Document, back: Document) -> tuple[Document, Document]:
    if subject.asked.container is None:
        raise UsageError(f"GPU container of {subject.id} unknown: set --container.", _REMEDY)
    name = namespace_name(subject.asked.container)  # a container's name is a label too
    made = [_pod(head, {"containers": [{"name": name, **one}]}) for one in (there, back)]
    return made[0], made[1]


def _pod(head: Document, spec: dict[str, Any]) -> Document:
    pod = {"spec": {"template": {"spec": spec}}}
    return {"spec": {"jobTemplate": pod}} if head["kind"] == "CronJob" else pod


def _part(head: Document, there: Document, back: Document) -> PatchPart:
    slug, who = f"{file_slug(head['kind'])}-{file_slug(head['metadata']['name'])}", target_words(head)
    patch = PatchFile(f"patch-{slug}.yaml", write_document(under(head, there)))
    undo = PatchFile(f"undo-{slug}.yaml", write_document(under(head, back)))
    steps = [f"kubectl patch {who} --type strategic --patch-file {file.name}" for file in (patch, undo)]
    return PatchPart(f"{head['kind']} {head['metadata']['name']}", patch, undo, (steps[0],), (steps[1],))


def _cordoned(subject: Subject) -> PatchSet:
    """Nodes that take no new pods, so that they fall free; the pods on them stay until they are evicted."""
    before = _before(subject)
    parts = []
    for node in subject.nodes_to_change():
        head: Document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": object_name(node, "node")}}
        there = {"metadata": {"annotations": {ANNOTATION: subject.id}}, "spec": {"unschedulable": True}}
        back = {"metadata": {"annotations": {ANNOTATION: None}}, "spec": {"unschedulable": before.get(node)}}
        parts.append(_part(head, there, back))
    notes = [
        "The nodes take no new pods. Empty them with 'kubectl drain NODE --ignore-daemonsets', which restarts their "
        "pods elsewhere."
    ]
    if not subject.asked.manifests:
        notes.append(
            "The undo makes the nodes schedulable. With --manifest FILE (kubectl get nodes -o yaml) it is exact."
        )
    return PatchSet(tuple(parts), tuple(notes))


def _before(subject: Subject) -> dict[str, Any]:
    """Node -> `unschedulable` as it is, for nodes that a manifest shows."""
    found: dict[str, Any] = {}
    for given in subject.asked.manifests:
        for one in read_documents(given.raw, given.name):
            if one["kind"] == "Node":
                spec = one.get("spec") or {}
                if not isinstance(spec, dict):
                    raise UsageError(
                        "A node of the manifest has no valid spec.", "Export it with 'kubectl get nodes -o yaml'."
                    )
                found[str(one["metadata"].get("name"))] = spec.get("unschedulable")
    missing = [node for node in subject.nodes_to_change() if node not in found]
    if subject.asked.manifests and missing:
        raise UsageError(
            f"The manifest has no node {quoted(missing[0])}.", "Export it with 'kubectl get nodes -o yaml'."
        )
    return found
