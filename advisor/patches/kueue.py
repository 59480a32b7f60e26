"""Kueue: a ResourceFlavor for the nodes that work moves to, and the quotas of a ClusterQueue.

Fields and rules as in Kueue's API types (apis/kueue/v1beta1/clusterqueue_types.go, commit 00b014c, read 2026-11-25):
every flavor of a resource group lists all of its resources, in their order; a resource is in one group only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted
from .kustomize import overlay
from .labels import target_labels
from .model import PatchFile, PatchPart, PatchSet
from .names import file_slug, object_name
from .objects import ANNOTATION, ORIGINAL, part_of, target_words
from .pods import GPU_RESOURCES
from .subject import Subject
from .text_diff import text_of
from .yaml_documents import Document, read_documents, write_document

GROUP = "kueue.x-k8s.io"
_VERSION = f"{GROUP}/v1beta1"
_REMEDY = "Use --manifest FILE with the output of 'kubectl get clusterqueue NAME -o yaml'."


def kueue_patch(subject: Subject) -> PatchSet:
    """Raises UsageError where something is missing that only the user knows."""
    moves = subject.action == "move-sku"
    if len(subject.asked.manifests) > 1:
        raise UsageError("--manifest is given twice.", "Put the objects into one file, separated by '---'.")
    documents = [one for given in subject.asked.manifests for one in read_documents(given.raw, given.name)]
    queues = [one for one in documents if one["kind"] == "ClusterQueue" and one["apiVersion"].startswith(GROUP)]
    if subject.asked.name is not None:
        queues = [one for one in queues if one["metadata"].get("name") == subject.asked.name]
    if len(queues) > 1:
        raise UsageError(f"The manifest has {len(queues)} ClusterQueues.", "Select one with --name.")
    if documents and not queues:
        raise UsageError("The manifest has no such ClusterQueue.", _REMEDY)
    if not queues and not moves:
        raise UsageError("Quotas are changed in a ClusterQueue, and its manifest is not given.", _REMEDY)
    if not queues and subject.asked.target_flavor is not None:
        raise UsageError(
            f"The quota of {quoted(flavor_name(subject))} is in a ClusterQueue, which is not given.", _REMEDY
        )
    if not queues:
        part, flavor_notes = _new_flavor(subject, _VERSION)
        return PatchSet((part,), (*flavor_notes, f"The ClusterQueue has no quota for this flavor yet. {_REMEDY}"))
    return _with_queue(subject, queues[0], documents)


def _with_queue(subject: Subject, queue: Document, documents: Sequence[Document]) -> PatchSet:
    wanted, notes = _requoted(queue, subject)
    part, part_notes = part_of(queue, wanted, subject.id)
    parts, resources, notes = [part], [ORIGINAL], [*notes, *part_notes]
    if subject.action == "move-sku" and not _is_there(subject, queue, documents):
        flavor, flavor_notes = _new_flavor(subject, str(queue["apiVersion"]))
        parts.insert(0, flavor)
        resources.append(flavor.patch.name)
        notes += flavor_notes
    notes.append("A lower quota evicts nothing: work that is admitted keeps its GPUs until it ends.")
    original = PatchFile(ORIGINAL, text_of(subject.asked.manifests[0]))
    return PatchSet(tuple(parts), tuple(notes), (original,), (overlay(resources, (parts[-1].patch.name,)),))


def flavor_name(subject: Subject) -> str:
    """What the target's flavor is called. Raises UsageError."""
    target = subject.ground.target
    name = subject.asked.target_flavor or file_slug(target.node_sku or target.gpu_sku or "target")
    return object_name(name, "flavor name")


def _is_there(subject: Subject, queue: Document, documents: Sequence[Document]) -> bool:
    """Whether the target's flavor is an object already, of this queue or others: it is named with --target-flavor, has
    a quota, or is in the manifest."""
    known = {str(one["name"]) for group in _groups(queue) for one in group["flavors"]}
    known |= {str(one["metadata"].get("name")) for one in documents if one["kind"] == "ResourceFlavor"}
    return subject.asked.target_flavor is not None or flavor_name(subject) in known


def _new_flavor(subject: Subject, version: str) -> tuple[PatchPart, tuple[str, ...]]:
    """A ResourceFlavor of the target's nodes: the object, where its labels come from, and what if there is one."""
    labels, note = target_labels(subject)
    if any(len(values) > 1 for values in labels.values()):
        raise UsageError(
            "A ResourceFlavor takes one value of a label, and the target's GPU has several names.",
            "Set --node-label KEY=VALUE to a label of these nodes.",
        )
    name = flavor_name(subject)
    head: Document = {
        "apiVersion": version, "kind": "ResourceFlavor",
        "metadata": {"name": name, "annotations": {ANNOTATION: subject.id}},
        "spec": {"nodeLabels": {key: values[0] for key, values in labels.items()}},
    }  # fmt: skip
    bare = {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": name}}
    patch = PatchFile(f"resourceflavor-{file_slug(name)}.yaml", write_document(head))
    undo = PatchFile(f"undo-resourceflavor-{file_slug(name)}.yaml", write_document(bare))
    part = PatchPart(
        f"ResourceFlavor {name} (new)", patch, undo, (f"kubectl create -f {patch.name}",),
        (f"kubectl delete {target_words(bare)}",),
    )  # fmt: skip
    taken = (
        f"Check with 'kubectl get {target_words(bare)}' that this flavor does not exist yet: 'kubectl apply -k' "
        f"overwrites it, and the undo deletes it. If it exists, set --target-flavor {name}."
    )
    return part, (note, taken)


def _requoted(queue: Document, subject: Subject) -> tuple[Document, list[str]]:
    """The ClusterQueue with the quotas that the recommendation leaves, and what is to be known of them."""
    new = copy.deepcopy(queue)
    resource, group, own = _own_quota(new, subject)
    notes: list[str] = []
    before, after = subject.ground.source.gpu_count, subject.ground.target.gpu_count
    quota = _quota(own, resource)
    name = quoted(str(own["name"]))
    match subject.action:
        case "move-sku":
            wanted = flavor_name(subject)
            notes.append(
                f"The {resource} quota of {name} falls from {quota} by {before}; that of {wanted} rises by {after}."
            )
            notes += _lower(own, resource, before)
            there = next((one for one in group["flavors"] if one["name"] == wanted), None)
            if there is own:
                raise UsageError(f"{name} is the flavor of today and of the target.", "Set --target-flavor.")
            if there is None and any(one["name"] == wanted for other in _groups(new) for one in other["flavors"]):
                raise UsageError(f"{wanted} is in another resource group, without GPUs.", "Set --target-flavor.")
            if there is not None:
                _set_quota(there, resource, _quota(there, resource) + after)
                return new, notes
            made = copy.deepcopy(own)
            made["name"] = wanted
            _set_quota(made, resource, after)
            for one in made["resources"]:
                one.pop("borrowingLimit", None)
                one.pop("lendingLimit", None)
            group["flavors"].insert(group["flavors"].index(own), made)
            notes.append(f"Kueue tries {wanted} before {name}.")
            if len(group["coveredResources"]) > 1:
                notes.append(f"Its other quotas are those of {name}: set them to what the new nodes have.")
            return new, notes
        case "mig-slice":
            mig = f"nvidia.com/mig-{subject.mig_profile().replace('+', '.')}"
            if mig in group["coveredResources"]:
                raise UsageError(f"The ClusterQueue has a quota for {mig} already.", "Change it by hand.")
            for one in group["flavors"]:
                one["resources"].append({"name": mig, "nominalQuota": 0})
            group["coveredResources"].append(mig)
            _set_quota(own, mig, after * subject.mig_per_gpu())
            notes.append(f"{after} GPUs of {name} become {after * subject.mig_per_gpu()} instances {mig}.")
            return new, notes + _lower(own, resource, after)
        case _:
            notes.append(f"The {resource} quota of {name} falls from {quota} by {before - after}.")
            return new, notes + _lower(own, resource, before - after)


def _own_quota(queue: Document, subject: Subject) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The GPU resource, its group, and the flavor that has the GPUs of today. Raises UsageError where that is not
    clear."""
    found = [
        (resource, group, one)
        for group in _groups(queue)
        for resource in GPU_RESOURCES
        if resource in group["coveredResources"]
        for one in group["flavors"]
    ]
    if not found:
        raise UsageError("The ClusterQueue has no quota of GPUs.", _REMEDY)
    asked = subject.asked.flavor
    chosen = [one for one in found if asked is None or one[2]["name"] == asked]
    if len(chosen) != 1:
        names = ", ".join(quoted(str(one[2]["name"])) for one in found[:5])
        raise UsageError(f"Which flavor has the GPUs of today is not clear: {names}.", "Set --flavor to one of them.")
    return chosen[0]


def _groups(queue: Document) -> list[dict[str, Any]]:
    """Its resource groups. Raises UsageError for one that is not valid."""
    spec = queue.get("spec")
    groups = spec.get("resourceGroups") if isinstance(spec, dict) else None
    found = groups if isinstance(groups, list) else []
    for group in found:
        _check_group(group)
    return found


def _check_group(group: object) -> None:
    fits = (
        isinstance(group, dict)
        and isinstance(group.get("coveredResources"), list)
        and isinstance(group.get("flavors"), list)
        and all(
            isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("resources"), list)
            and all(isinstance(r, dict) and "name" in r and "nominalQuota" in r for r in one["resources"])
            for one in group["flavors"]
        )
    )  # fmt: skip
    if not fits:
        raise UsageError("A resource group of the ClusterQueue is not valid.", _REMEDY)


def _quota(flavor: dict[str, Any], resource: str) -> int:
    for one in flavor["resources"]:
        if one["name"] == resource:
            return _whole(one, "nominalQuota", flavor)
    raise UsageError(f"The flavor {quoted(str(flavor['name']))} has no quota of {resource}.", _REMEDY)


def _whole(entry: dict[str, Any], key: str, flavor: dict[str, Any]) -> int:
    text = str(entry[key])
    if not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise UsageError(
            f"The {key} of {entry['name']} in {quoted(str(flavor['name']))} is not a whole number.",
            "Change it by hand.",
        )
    return int(text)


def _set_quota(flavor: dict[str, Any], resource: str, count: int) -> None:
    for one in flavor["resources"]:
        if one["name"] == resource:
            _set(one, "nominalQuota", count)


def _set(entry: dict[str, Any], key: str, count: int) -> None:
    """Written as it was: a number, or a number in quotes."""
    entry[key] = str(count) if isinstance(entry[key], str) else count


def _lower(flavor: dict[str, Any], resource: str, by: int) -> list[str]:
    """A quota that falls, and with it a lendingLimit, which Kueue's webhook takes up to the quota alone."""
    quota, name = _quota(flavor, resource), quoted(str(flavor["name"]))
    if by > quota:
        raise UsageError(
            f"The {resource} quota of {name} is {quota}; the recommendation frees {by}.",
            "Name the ClusterQueue that the workload runs in.",
        )
    _set_quota(flavor, resource, quota - by)
    for one in flavor["resources"]:
        if one["name"] == resource and one.get("lendingLimit") is not None:
            lent = _whole(one, "lendingLimit", flavor)
            if lent > quota - by:
                _set(one, "lendingLimit", quota - by)
                return [
                    f"The lendingLimit of {name} falls from {lent} to {quota - by}, since it cannot exceed the quota."
                ]
    return []
