"""One object of Kubernetes changed: the patch, its undo, and the commands.

Patches of Kubernetes objects: the difference of two states as a patch, and a patch applied, to prove an undo.

Of the built-in kinds a strategic merge patch (https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/):
lists of containers and of variables are merged by name, all other lists are replaced. Of all others a JSON merge patch
(RFC 7396), which replaces every list: the API server offers no strategic one for custom resources.
"""

from __future__ import annotations

import copy
import shlex
from typing import Any, TypeGuard

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import quoted
from .model import PatchFile, PatchPart
from .names import file_slug, namespace_name, object_kind, object_name
from .pods import is_built_in
from .yaml_documents import Document, write_document

# Lists of the pod specification that are merged, all by this key (patchMergeKey in Kubernetes' OpenAPI).
KEYED = frozenset({"containers", "initContainers", "env"})
_KEY, _DIRECTIVE = "name", "$patch"
# Others add annotations too: the map that was not there is not taken away with the one key that was added. The API
# server stores no empty one.
_SHARED = frozenset({"annotations"})

Value = Any


def difference(before: dict[str, Value], after: dict[str, Value], *, strategic: bool) -> dict[str, Value]:
    """The patch that makes `after` of `before`; empty where they are the same. None in it deletes a key."""
    patch: dict[str, Value] = {}
    for key, new in after.items():
        if key not in before:
            patch[key] = copy.deepcopy(new)
            continue
        old = before[key]
        if equal(old, new):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            patch[key] = difference(old, new, strategic=strategic)
        elif strategic and key in KEYED and _named(old) and _named(new):
            patch[key] = _of_lists(old, new)
        else:
            patch[key] = copy.deepcopy(new)
    for key, old in before.items():
        if key not in after:
            patch[key] = dict.fromkeys(old) if key in _SHARED and isinstance(old, dict) else None
    return patch


def _named(value: Value) -> TypeGuard[list[dict[str, Value]]]:
    return isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get(_KEY), str) for one in value)


def _of_lists(before: list[dict[str, Value]], after: list[dict[str, Value]]) -> list[dict[str, Value]]:
    old, new = ({one[_KEY]: one for one in some} for some in (before, after))
    changed: list[dict[str, Value]] = []
    for name, value in new.items():
        if name not in old:
            changed.append(copy.deepcopy(value))
        elif not equal(old[name], value):
            changed.append({_KEY: name, **difference(old[name], value, strategic=True)})
    return changed + [{_KEY: name, _DIRECTIVE: "delete"} for name in old if name not in new]


def apply(base: dict[str, Value], patch: dict[str, Value], *, strategic: bool) -> dict[str, Value]:
    """`base` with a patch of `difference` applied, as the API server does it; `base` stays as it is."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            own = result.get(key)
            result[key] = apply(own if isinstance(own, dict) else {}, value, strategic=strategic)
        elif strategic and key in KEYED and _named(value) and _named(result.get(key, [])):
            result[key] = _merged(result.get(key, []), value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def _merged(base: list[dict[str, Value]], patch: list[dict[str, Value]]) -> list[dict[str, Value]]:
    kept = {one[_KEY]: one for one in base}
    added: list[dict[str, Value]] = []
    for change in patch:
        name = change[_KEY]
        if change.get(_DIRECTIVE) == "delete":
            kept.pop(name, None)
        elif name in kept:
            kept[name] = apply(kept[name], change, strategic=True)
        else:
            added.append(apply({}, change, strategic=True))
    return [*added, *kept.values()]


def equal(one: Value, other: Value) -> bool:
    """Whether two values are the same as JSON: ``true`` is no 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def same(one: dict[str, Value], other: dict[str, Value]) -> bool:
    """Whether two states are the same field by field; no annotations and an empty map of them are the same."""
    return equal(_bare(one), _bare(other))


def _bare(value: Value) -> Value:
    if isinstance(value, dict):
        return {k: _bare(v) for k, v in value.items() if not (k in _SHARED and v == {})}
    return [_bare(one) for one in value] if isinstance(value, list) else value


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
