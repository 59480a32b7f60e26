"""Patches of Kubernetes objects: node affinity, GPUs, MIG resources, variables, replicas, and nodes cordoned.

With the object's manifest the undo has every value of before, and both ways are applied here and compared. Without it
a patch changes only what it can take back by itself, or what was typed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ..moves.kinds.rest_clocks import VARIABLE
from .affinity import other_keys, place
from .bare_patches import bare_parts
from .kustomize import overlay
from .labels import target_labels
from .model import PatchFile, PatchSet
from .objects import ORIGINAL, is_fixed, owner_of, part_of
from .pods import gpus_of, pod_groups, replace_resource, resized
from .stopping import stopped
from .subject import Subject
from .workload import workload_of
from .yaml_documents import Document, read_documents

_ANEW = (
    "The pods of a {kind} cannot be changed while it exists: the command deletes it and creates it again, which ends "
    "its pods."
)
_MIG_PREFIX = "nvidia.com/mig-"

Edit = Callable[[Document], Document]


def kubernetes_patch(subject: Subject) -> PatchSet:
    """Raises UsageError where something is missing that only the user knows."""
    if subject.of_nodes or subject.action == "consolidate":
        return bare_parts(subject)
    edit, notes = _edit_of(subject)
    if not subject.asked.manifests:
        return bare_parts(subject)
    given, *others = subject.asked.manifests
    if others:
        raise UsageError("--manifest is given twice.", "Put the objects into one file, separated by '---'.")
    documents = read_documents(given.raw, given.name)
    document = workload_of(documents, subject)
    wanted = edit(document)
    part, part_notes = part_of(document, wanted, subject.id)
    notes = (*notes, *part_notes, *_left_as_is(document, wanted, subject))
    if is_fixed(document, wanted):
        if len(documents) > 1:
            raise UsageError(
                f"A {document['kind']} must be deleted and created again, and the manifest has more objects.",
                f"Name a manifest with this {document['kind']} alone.",
            )
        notes = (*notes, _ANEW.format(kind=document["kind"]))
    if any(one["kind"] == "HorizontalPodAutoscaler" for one in documents):
        notes = (*notes, "The manifest has an autoscaler, which sets replicas itself: check its bounds.")
    original = PatchFile(ORIGINAL, given.raw.decode("utf-8"))
    return PatchSet((part,), notes, (original,), (overlay((original.name,), (part.patch.name,)),))


def _edit_of(subject: Subject) -> tuple[Edit, tuple[str, ...]]:
    """How the manifest is changed, and what is to be known of it."""
    source, target = subject.ground.source.gpu_count, subject.ground.target.gpu_count
    match subject.action:
        case "move-sku" | "swap-placement":
            labels, note = target_labels(subject)
            notes = [note]
            if subject.action == "swap-placement":
                partner = subject.told.partner or "the training"
                notes.append(f"A swap has two sides: move {partner} to the nodes that this workload leaves.")
                return lambda one: place(one, labels), tuple(notes)
            return lambda one: place(resized(one, source, target), labels), tuple(notes)
        case "reduce-gpus":
            return lambda one: resized(one, source, target), ()
        case "mig-slice":
            resource = _MIG_PREFIX + subject.mig_profile().replace("+", ".")
            note = f"Nodes offer {resource} with the MIG strategy 'mixed'."
            return lambda one: _sliced(one, resource), (note,)
        case "rest-clocks":
            return _with_variable, ()
        case "release":
            return stopped, ("It stays stopped until the undo is applied.",)
        case _:
            raise AssertionError(subject.action)


def _left_as_is(document: Document, wanted: Document, subject: Subject) -> tuple[str, ...]:
    """What the patch does not change and whoever applies it has to check."""
    notes: list[str] = []
    if (owner := owner_of(document)) is not None:
        notes.append(
            f"{clean(owner)} controls this {document['kind']} and may take the change back: check its manifest."
        )
    if subject.action in ("move-sku", "swap-placement"):
        others = other_keys(wanted, target_labels(subject)[0])
        if others:
            keys = ", ".join(map(clean, others))
            notes.append(f"The pods still ask for nodes by: {keys}. Check that the target's nodes fit.")
    completions, pods = (wanted["spec"].get(key) for key in ("completions", "parallelism"))
    if document["kind"] == "Job" and pods != document["spec"].get("parallelism") and completions not in (None, pods):
        notes.append(f"The Job keeps its {clean(str(completions))} completions, which cannot change while it exists.")
    return tuple(notes)


def _sliced(document: Document, resource: str) -> Document:
    new = copy.deepcopy(document)
    containers = [one for group in pod_groups(new) for one in group.gpu_containers]
    if not containers or any(gpus_of(one) != 1 for one in containers):
        raise UsageError(
            "A MIG instance takes the place of one GPU, and the manifest asks for another number a container.",
            "Name the manifest of the workload that the recommendation is about.",
        )
    for one in containers:
        replace_resource(one, resource)
    return new


def _with_variable(document: Document) -> Document:
    new = copy.deepcopy(document)
    containers = [one for group in pod_groups(new) for one in group.gpu_containers]
    if not containers:
        raise UsageError("No container in the manifest asks for a GPU.", "Name the manifest of the workload itself.")
    for one in containers:
        old = one.get("env") or []
        if not isinstance(old, list):
            raise UsageError("The env of a container is not a list.", "Export the manifest with 'kubectl get -o yaml'.")
        own = {"name": VARIABLE, "value": "1"}
        is_own = [isinstance(v, dict) and v.get("name") == VARIABLE for v in old]
        # First, where a strategic merge puts what is new.
        one["env"] = [own if mine else v for v, mine in zip(old, is_own, strict=True)] if any(is_own) else [own, *old]
    return new
