"""Patches of Kubernetes objects: node affinity, GPUs, MIG resources, variables, replicas, and nodes cordoned.

With the object's manifest the undo has every value of before, and both ways are applied here and compared. Without it
a patch changes only what it can take back by itself, or what was typed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted
from ..recommend.moves.rest_clocks import VARIABLE
from .bare_patches import bare_parts
from .kustomize import overlay
from .labels import GPU_PRODUCT, INSTANCE_TYPE, target_labels
from .model import PatchFile, PatchSet
from .objects import ORIGINAL, is_fixed, owner_of, part_of
from .pods import gpus_of, pod_groups, replace_resource, resized
from .subject import Subject
from .yaml_documents import Document, read_documents

# The name of the instance type before Kubernetes 1.17, which still means the same.
_ALSO = {INSTANCE_TYPE: ("beta.kubernetes.io/instance-type",)}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_INVALID, _EXPORT = "The node affinity of the manifest is not valid.", "Export it with 'kubectl get -o yaml'."


def place(document: Document, labels: Mapping[str, tuple[str, ...]]) -> Document:
    """The object with its GPU pods (all, where none asks for GPUs) on nodes with these labels."""
    new = copy.deepcopy(document)
    groups = pod_groups(new)
    for group in [one for one in groups if one.gpus] or groups:
        _place(group.spec, labels)
    return new


def other_keys(document: Document, labels: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What the nodes of placed pods must have beside these labels: keys of node selectors and of node affinity."""
    groups = pod_groups(document)
    found: set[str] = set()
    for group in [one for one in groups if one.gpus] or groups:
        selector = group.spec.get("nodeSelector")
        found |= set(selector) if isinstance(selector, dict) else set()
        for term in group.spec["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]:
            found |= {str(one["key"]) for one in term["matchExpressions"]}
            found |= {"the node's name"} if term.get("matchFields") else set()
    return tuple(sorted(found - set(labels)))


def _place(spec: dict[str, Any], labels: Mapping[str, tuple[str, ...]]) -> None:
    spec.pop("nodeName", None)  # of an exported pod: it goes around the scheduler, and so around the affinity
    selector = spec.get("nodeSelector")
    stale = {old for key in (INSTANCE_TYPE, GPU_PRODUCT) for old in (key, *_ALSO.get(key, ()))} | set(labels)
    if isinstance(selector, dict):
        for key in stale & set(selector):
            del selector[key]
        if not selector:
            del spec["nodeSelector"]
    wanted = [{"key": key, "operator": "In", "values": list(values)} for key, values in labels.items()]
    required = _mapping(_mapping(_mapping(spec, "affinity"), "nodeAffinity"), _REQUIRED)
    terms = required.setdefault("nodeSelectorTerms", [])
    if not isinstance(terms, list) or not all(isinstance(one, dict) for one in terms):
        raise UsageError(_INVALID, _EXPORT)
    if not terms:
        terms.append({})
    # Terms are alternatives: each has to lead to the target.
    for term in terms:
        told = term.get("matchExpressions") or []
        if not isinstance(told, list) or not all(isinstance(e, dict) and isinstance(e.get("key"), str) for e in told):
            raise UsageError(_INVALID, _EXPORT)
        kept = [one for one in told if one["key"] not in stale]
        term["matchExpressions"] = [*kept, *copy.deepcopy(wanted)]
    required["nodeSelectorTerms"] = [one for n, one in enumerate(terms) if one not in terms[:n]]


def _mapping(holder: dict[str, Any], key: str) -> dict[str, Any]:
    if holder.get(key) is None:
        holder[key] = {}
    if not isinstance(holder[key], dict):
        raise UsageError(f"{key} of the manifest is not a mapping.", _EXPORT)
    return holder[key]


def workload_of(documents: Sequence[Document], subject: Subject) -> Document:
    """The object of a manifest that runs the workload: the only one with pods, else the one that is named.

    Raises UsageError where it is not clear, or is another than the ledger's and nobody named it.
    """
    found = [one for one in documents if pod_groups(one)]
    asked, known = subject.asked, subject.address
    named = [
        one
        for one in found
        if one["metadata"].get("name") == (asked.name or known.name)
        and asked.kind in (None, one["kind"])
        and asked.namespace in (None, one["metadata"].get("namespace"))
    ]
    chosen = named or (found if not (asked.name or asked.kind or asked.namespace) else [])
    if len(chosen) != 1:
        names = ", ".join(f"{quoted(str(o['kind']))} {quoted(str(o['metadata'].get('name')))}" for o in found[:5])
        what = "no object with pods" if not found else f"{names}; which one to change is not clear"
        raise UsageError(
            f"The manifest has {what}.",
            "Set --kind, --name or --namespace."
            if found
            else "Export the workload with 'kubectl get KIND NAME -o yaml'.",
        )
    _check_address(chosen[0], subject)
    return chosen[0]


def _check_address(document: Document, subject: Subject) -> None:
    """Raises UsageError for an object that is not the ledger's, unless its name was typed."""
    known, metadata = subject.address, document["metadata"]
    if subject.asked.name is not None or known.scheduler != "kubernetes":
        return
    name, namespace = str(metadata.get("name")), metadata.get("namespace")
    elsewhere = None not in (namespace, known.namespace) and namespace != known.namespace
    if name != known.name or (elsewhere and subject.asked.namespace is None):
        mine, its = (f"{space}/{one}" if space else one for space, one in (
            (known.namespace, known.name), (namespace, name)))  # fmt: skip
        raise UsageError(
            f"The recommendation is for {quoted(mine)}, the manifest for {quoted(its)}.",
            "Use --manifest FILE with the manifest of the workload, or set --name if it is the same.",
        )


# API group and kind -> has spec.suspend.
_SUSPENDED = frozenset({
    ("batch", "Job"), ("batch", "CronJob"), ("ray.io", "RayCluster"), ("ray.io", "RayJob"),
    ("jobset.x-k8s.io", "JobSet"), ("trainer.kubeflow.org", "TrainJob"),
})  # fmt: skip
# Training jobs of Kubeflow, which have spec.runPolicy.suspend; its other kinds (Notebook, Profile) have not.
_RUN_POLICY = frozenset(
    ("kubeflow.org", kind)
    for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
)  # fmt: skip
_REPLICATED = frozenset(
    {("apps", kind) for kind in ("Deployment", "StatefulSet", "ReplicaSet")} | {("", "ReplicationController")}
)


def stopped(document: Document) -> Document:
    """The object with its pods gone. Raises UsageError for a kind that has no field for that."""
    new = copy.deepcopy(document)
    kind = (str(document["apiVersion"]).rpartition("/")[0], document["kind"])
    spec = new["spec"]
    if kind in _SUSPENDED:
        spec["suspend"] = True
    elif isinstance(spec.get("runPolicy"), dict) or kind in _RUN_POLICY:
        policy = spec.get("runPolicy")
        spec["runPolicy"] = {**(policy if isinstance(policy, dict) else {}), "suspend": True}
    elif kind in _REPLICATED or "replicas" in spec:
        spec["replicas"] = 0
    else:
        of = f" of {kind[0]}" if kind[0] else ""
        raise UsageError(
            f"A {document['kind']}{of} cannot be stopped by a patch.",
            "Stop it with the tool it was started with, or delete it with kubectl.",
        )
    return new


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
