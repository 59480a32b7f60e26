"""One object of Kubernetes changed: the patch, its undo, and the commands."""

from __future__ import annotations

import copy
import shlex

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import quoted
from .merge import apply, difference, same
from .model import PatchFile, PatchPart
from .names import file_slug, namespace_name, object_kind, object_name
from .pods import is_built_in
from .yaml_documents import Document, write_document

ANNOTATION = "skuwise.dev/recommendation"
ORIGINAL = "original.yaml"
_UNDO_OF_LISTS = (
    "The undo puts back whole lists as they are in the manifest, whatever changed since: compare them before you apply "
    "it."
)


def is_fixed(document: Document, wanted: Document) -> bool:
    """Whether what is wanted changes pods that Kubernetes lets nobody change: it has to be created anew."""
    return document["kind"] == "Pod" or (
        document["kind"] == "Job" and document["spec"].get("template") != wanted["spec"].get("template")
    )


def part_of(document: Document, wanted: Document, id_: str) -> tuple[PatchPart, tuple[str, ...]]:
    """The two patches between an object and what is wanted of it, proven; and what is to be known of them.

    Raises UsageError where the object has it already, cannot be created anew, or has a name that Kubernetes does not
    take.
    """
    if same(document, wanted):
        raise UsageError(
            f"{document['kind']} {quoted(str(document['metadata'].get('name', '')))} has what the recommendation asks "
            "for already.",
            f"Run 'skuwise ledger show {id_}'.",
        )
    wanted = copy.deepcopy(wanted)
    annotations = wanted["metadata"].get("annotations") or {}
    if not isinstance(annotations, dict):
        raise UsageError("The annotations of the manifest are not a mapping.", "Export it with 'kubectl get -o yaml'.")
    wanted["metadata"]["annotations"] = {**annotations, ANNOTATION: id_}
    strategic = is_built_in(document)
    head = identity(document)
    there = difference(document, wanted, strategic=strategic)
    back = difference(wanted, document, strategic=strategic)
    after = apply(document, there, strategic=strategic)
    if not same(after, wanted) or not same(apply(after, back, strategic=strategic), document):
        raise SkuwiseError("No exact undo of this manifest can be made.", "Change it by hand.")
    name = f"{file_slug(document['kind'])}-{file_slug(str(head['metadata']['name']))}"
    notes: tuple[str, ...] = ()
    if not strategic and _has_list(there):
        notes = (_guard(document, there), _UNDO_OF_LISTS)
    patch = PatchFile(f"patch-{name}.yaml", write_document(under(head, there)))
    undo = PatchFile(f"undo-{name}.yaml", write_document(under(head, back)))
    how, who = "strategic" if strategic else "merge", target_words(head)
    steps = [(f"kubectl patch {who} --type {how} --patch-file {file.name}",) for file in (patch, undo)]
    if is_fixed(document, wanted):
        _check_anew(document)
        local = f"kubectl patch --local -f {ORIGINAL} --type {how} --patch-file {patch.name} -o yaml"
        steps = [(f"{local} | kubectl replace --force -f -",), (f"kubectl replace --force -f {ORIGINAL}",)]
    return PatchPart(f"{document['kind']} {head['metadata']['name']}", patch, undo, steps[0], steps[1]), notes


def _has_list(change: Document) -> bool:
    return any(isinstance(one, list) or (isinstance(one, dict) and _has_list(one)) for one in change.values())


def _guard(document: Document, there: Document) -> str:
    """The patch made for this version of the object alone, where it is known: the server refuses it for a later one.

    The undo has none: the patch itself makes a new version.
    """
    version = document["metadata"].get("resourceVersion")
    if not isinstance(version, str):
        return "The patch replaces whole lists: make it from the manifest as it is now."
    there["metadata"]["resourceVersion"] = version
    return (
        "The patch replaces whole lists. If the object has changed since the manifest was exported, the server answers "
        "with a conflict: export it again and make a new patch."
    )


def owner_of(document: Document) -> str | None:
    """``ReplicaSet chat-1``: what made the object, and changes it as it was; None: people did."""
    owners = document["metadata"].get("ownerReferences")
    for one in owners if isinstance(owners, list) else []:
        if isinstance(one, dict) and one.get("controller") is True:
            return f"{one.get('kind')} {one.get('name')}"
    return None


def _check_anew(document: Document) -> None:
    """Raises UsageError for an object that would be deleted and could not be created again, or not by its manifest."""
    kind, spec = document["kind"], document["spec"]
    if (owner := owner_of(document)) is not None:
        raise UsageError(
            f"{quoted(owner)} controls this {kind} and makes a new one when it is deleted.",
            "Use --manifest FILE with the manifest of its owner.",
        )
    if kind == "Job" and spec.get("manualSelector") is not True and (spec.get("selector") or _is_labelled(spec)):
        raise UsageError(
            "This Job is an export: its selector and labels fit only the Job that runs, so it cannot be created again.",
            "Use --manifest FILE with the file that the Job was made from.",
        )


def _is_labelled(spec: Document) -> bool:
    """Whether the pods of a Job have the labels that Kubernetes gives those of one Job alone."""
    template = spec.get("template")
    metadata = template.get("metadata") if isinstance(template, dict) else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return isinstance(labels, dict) and any(key.rpartition("/")[2] == "controller-uid" for key in labels)


def identity(document: Document) -> Document:
    """What names an object. Raises UsageError for a name that Kubernetes does not take."""
    metadata = document["metadata"]
    kept = {"name": object_name(str(metadata.get("name", "")))}
    if metadata.get("namespace") is not None:
        kept["namespace"] = namespace_name(str(metadata["namespace"]))
    object_kind(str(document["kind"]))
    return {"apiVersion": str(document["apiVersion"]), "kind": document["kind"], "metadata": kept}


def target_words(head: Document) -> str:
    """``deployments.apps chat -n llm``: how kubectl names an object."""
    group = str(head["apiVersion"]).rpartition("/")[0]
    kind = f"{head['kind']}.{group}".rstrip(".").lower()
    where = f" -n {shlex.quote(head['metadata']['namespace'])}" if "namespace" in head["metadata"] else ""
    return f"{shlex.quote(kind)} {shlex.quote(head['metadata']['name'])}{where}"


def under(head: Document, change: Document) -> Document:
    """A change with the names that kustomize finds its object by."""
    rest = {key: value for key, value in change.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**head, "metadata": {**head["metadata"], **change.get("metadata", {})}, **rest}
