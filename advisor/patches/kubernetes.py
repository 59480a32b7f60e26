"""Patches of Kubernetes objects. Built-in kinds take a strategic merge patch, which merges lists of containers and of
variables by name (https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/); all
others only a JSON merge patch (RFC 7396), which replaces every list."""

import copy
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted
from ..recommend.moves.clocks import VARIABLE
from .change import (
    BY_HAND,
    GPU_PRODUCT,
    INSTANCE_TYPE,
    Change,
    Document,
    Patch,
    checked,
    patch_of_files,
    read_documents,
    write_document,
)

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
_EXPORT = "Export the workload with 'kubectl get KIND NAME -n NAMESPACE -o yaml'."
# Kinds that a strategic merge patch works for: those that are part of Kubernetes.
_BUILT_IN = frozenset({
    *(("apps/v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    ("batch/v1", "Job"), ("batch/v1", "CronJob"), ("v1", "Pod"), ("v1", "ReplicationController"),
})  # fmt: skip
# Kinds that have one replica where the manifest does not say how many.
_REPLICATED = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
# API group and kind -> has spec.suspend.
_SUSPENDED = frozenset({
    ("batch", "Job"), ("batch", "CronJob"), ("ray.io", "RayCluster"), ("ray.io", "RayJob"),
    ("jobset.x-k8s.io", "JobSet"), ("trainer.kubeflow.org", "TrainJob"),
})  # fmt: skip
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# Labels by which nodes of a type are asked for; the second is the name of the first before Kubernetes 1.17.
_TYPES = {INSTANCE_TYPE, "beta.kubernetes.io/instance-type", GPU_PRODUCT}


def kubernetes_patch(change: Change) -> Patch:
    """Raises UsageError where the manifest is not one of the workload, or cannot be changed so."""
    if change.node:
        return _cordon(change)
    notes: list[str] = []
    if change.manifest is None:
        document = _outline(change)
        unchecked = "Made without the manifest: what else it asks of its nodes is not checked, and the undo removes"
        notes.append(f"{unchecked} what the patch adds. With --manifest FILE both are exact.")
        if "replicas" not in change.typed and (change.action == "release" or change.gpus_before != change.gpus_after):
            notes.append(f"Replicas today: {change.replicas}, as last observed. Check with 'kubectl get'.")
    else:
        document = _workload_of(read_documents(change.manifest), change)
    for owner in document["metadata"].get("ownerReferences") or []:
        if owner.get("controller") is True:
            notes.append(f"{clean(owner['kind'])} {clean(owner['name'])} controls this object and may undo the change.")
    wanted = copy.deepcopy(document)
    notes += _edit(wanted, change)
    return patch_between(document, wanted, notes, change)


def _cordon(change: Change) -> Patch:
    names = " ".join(change.node)
    return patch_of_files("nodes.sh", (f"kubectl cordon {names}\n", f"kubectl uncordon {names}\n"), "sh", (
        "The nodes take no new pods. Empty them with 'kubectl drain NODE --ignore-daemonsets', which moves the pods.",
        "The undo makes all of them schedulable, also those that were cordoned before ('kubectl get nodes').",
    ))  # fmt: skip


def _outline(change: Change) -> Document:
    replicas = change.replicas or (change.gpus_before if change.action == "mig-slice" else 1)
    each, rest = divmod(change.gpus_before, replicas)
    if rest or not each:
        raise UsageError(f"{change.gpus_before} GPUs are not {replicas} replicas alike.", f"Set --manifest. {_EXPORT}")
    # Requests of GPUs equal their limits; where the object has none, those of the undo mean the same.
    held = {part: {change.gpu_resource: each} for part in ("limits", "requests")}
    pod = {"nodeSelector": {}, "containers": [{"name": change.container or "gpu", "env": [], "resources": held}]}
    return {
        "apiVersion": "apps/v1", "kind": change.kind,
        "metadata": {"name": change.name, "namespace": change.namespace},
        "spec": {"replicas": replicas, "template": {"spec": pod}},
    }  # fmt: skip


def _workload_of(documents: list[Document], change: Change) -> Document:
    pods = [document for document in documents if pod_groups(document)]
    matching = [pod for pod in pods if pod["metadata"].get("name") == change.name] or pods
    about = [(document["metadata"].get("namespace"), document["metadata"].get("name")) for document in matching]
    if len(matching) != 1:
        names = ", ".join(quoted(f"{space}/{name}") for space, name in about[:5]) or "no object with pods"
        raise UsageError(f"Which object to change is not clear: {names}.", f"Name it alone. {_EXPORT}")
    ((space, name),) = about
    elsewhere = None not in (space, change.namespace) and space != change.namespace and "name" not in change.typed
    if change.name not in (None, name) or elsewhere:
        expected, its = quoted(f"{change.namespace}/{change.name}"), quoted(f"{space}/{name}")
        remedy = "Set --manifest to that of the workload, or --name if it is the same."
        raise UsageError(f"The recommendation is for {expected}, the manifest for {its}.", remedy)
    return matching[0]


def _edit(document: Document, change: Change) -> list[str]:
    if change.action in ("move-sku", "reduce-gpus"):
        _resize(document, change)
    match change.action:
        case "move-sku":
            return _place(document, change)
        case "swap-placement":
            partner = clean(change.partner or "the training")
            note = f"A swap has two sides: move {partner} to the nodes that this workload leaves."
            return [*_place(document, change), note]
        case "release":
            _stop(document)
            return ["It stays stopped until the undo is applied."]
        case "mig-slice":
            resource = f"nvidia.com/mig-{change.mig_profile}".replace("+", ".")
            for container in _gpu_containers(document):
                if gpus_of(container) != 1:
                    raise UsageError("A MIG instance takes the place of one GPU; a container asks for more.", BY_HAND)
                for held, name in _held(container):
                    held[resource] = held.pop(name)
            return [f"Nodes offer {resource} with the MIG strategy 'mixed'."]
        case "rest-clocks":
            for container in _gpu_containers(document):
                variable, old = {"name": VARIABLE, "value": "1"}, container.get("env") or []
                if variable not in old:  # first, where a strategic merge puts what is new
                    container["env"] = [variable, *(entry for entry in old if entry["name"] != VARIABLE)]
    return []


def _place(document: Document, change: Change) -> list[str]:
    """GPU pods (all, where none asks for GPUs) on nodes with the target's labels. Returns what else they ask for."""
    groups, stale = pod_groups(document), _TYPES | set(change.labels)
    others: set[str] = set()
    for spec in [group.spec for group in groups if group.gpus] or [group.spec for group in groups]:
        spec.pop("nodeName", None)  # of an exported pod: it goes around the scheduler
        kept = {key: value for key, value in (spec.get("nodeSelector") or {}).items() if key not in stale}
        spec["nodeSelector"] = {**kept, **change.labels}
        others |= set(kept)
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        terms = []
        for term in (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []:
            fields, wanted = term.get("matchFields"), term.get("matchExpressions") or []
            wanted = [expression for expression in wanted if expression["key"] not in stale]
            others |= {*(str(expression["key"]) for expression in wanted), *(["name"] if fields else [])}
            terms.append({**term, "matchExpressions": wanted} if wanted or fields else {})
        # Terms are alternatives: one that asks for the type of the nodes alone leaves the choice to the selector.
        if terms and all(terms):
            affinity[_REQUIRED]["nodeSelectorTerms"] = [term for n, term in enumerate(terms) if term not in terms[:n]]
        elif terms:
            del affinity[_REQUIRED]
    keys = ", ".join(sorted(map(clean, others)))
    more = [f"The pods still ask for nodes by: {keys}. Check that the nodes of the target fit."] if keys else []
    return [change.label_note, *more]


def _stop(document: Document) -> None:
    """Its pods gone. Raises UsageError for a kind that has no field for that."""
    group, kind, spec = document["apiVersion"].rpartition("/")[0], document["kind"], document["spec"]
    if (group, kind) in _SUSPENDED:
        spec["suspend"] = True
    elif spec.get("runPolicy") or (group == "kubeflow.org" and kind.endswith("Job")):  # PyTorchJob, not Notebook
        spec["runPolicy"] = {**(spec.get("runPolicy") or {}), "suspend": True}
    elif (group in ("apps", "") and kind in _REPLICATED) or "replicas" in spec:
        spec["replicas"] = 0
    else:
        raise UsageError(f"A {quoted(f'{kind} {group}')} has no field that stops it.", "Stop it with what started it.")


class PodGroup(NamedTuple):
    """Pods alike of one object. `spec`, `holder` (of how many there are; None: nothing says it, as of a bare pod) are
    parts of the document: what is changed there is changed."""

    spec: dict[str, Any]
    holder: dict[str, Any] | None = None

    @property
    def count_key(self) -> str:
        return "parallelism" if self.holder is not None and "parallelism" in self.holder else "replicas"

    @property
    def pods(self) -> int:
        count = self.holder.get(self.count_key) if self.holder is not None else None
        return count if type(count) is int else 1

    @property
    def gpus(self) -> int:
        """Of each pod."""
        return sum(map(gpus_of, self.spec["containers"]))


def pod_groups(document: Document) -> list[PodGroup]:
    """All descriptions of pods in an object, of whatever kind: mappings with containers under a ``template``, or the
    specification of a bare pod."""

    def find(value: Any) -> Iterator[PodGroup]:  # noqa: ANN401
        for key, child in value.items() if isinstance(value, dict) else [("", item) for item in value]:
            spec = child.get("spec") if isinstance(child, dict) and key.lower().endswith("template") else None
            if isinstance(spec, dict) and spec.get("containers"):
                yield PodGroup(spec, value if key == "template" else None)
            elif isinstance(child, dict | list):
                yield from find(child)

    spec = document.get("spec") or {}
    return [PodGroup(spec)] if document["kind"] == "Pod" else list(find(spec))


def _held(container: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    resources = container.get("resources") or {}
    parts = [resources.get(part) or {} for part in ("limits", "requests")]
    return [(held, name) for held in parts for name in GPU_RESOURCES if name in held]


def gpus_of(container: dict[str, Any]) -> int:
    """Whole GPUs that a container asks for; 0: none."""
    return max((int(count) for held, name in _held(container) if (count := str(held[name])).isdecimal()), default=0)


def _gpu_containers(document: Document) -> list[dict[str, Any]]:
    containers = [c for group in pod_groups(document) for c in group.spec["containers"] if gpus_of(c)]
    if not containers:
        raise UsageError("No container in the manifest asks for a GPU.", _EXPORT)
    return containers


def _resize(document: Document, change: Change) -> None:
    groups = [pod_group for pod_group in pod_groups(document) if pod_group.gpus > 0]
    label = quoted(f"{document['kind']} {document['metadata'].get('name')}")
    total = sum(group.pods * group.gpus for group in groups)
    change.check_size(label, total)
    if total == change.gpus_after:
        return
    group, *more = [group for group in groups if group.pods > 1] or groups
    holder, inside = group.holder, [container for container in group.spec["containers"] if gpus_of(container)]
    left = change.gpus_after - total + group.pods * group.gpus
    counted = holder is not None and (group.count_key in holder or document["kind"] in _REPLICATED)
    if not more and left > 0 and counted and holder is not None and left % group.gpus == 0:
        holder[group.count_key] = count = left // group.gpus
        for bound, limit in (("minReplicas", min), ("maxReplicas", max)):  # of a RayCluster's group
            if type(holder.get(bound)) is int:
                holder[bound] = limit(holder[bound], count)
    elif not more and left > 0 and group.pods == 1 and len(inside) == 1 and document["kind"] != "DaemonSet":
        for held, name in _held(inside[0]):
            held[name] = left
    else:
        shape = " + ".join(f"{group.pods} x {group.gpus}" for group in groups)
        raise UsageError(f"{label} has {shape} GPUs, which cannot become {change.gpus_after}.", BY_HAND)


# Lists of the pod specification that a strategic merge patch merges, all by name (patchMergeKey in the OpenAPI).
_KEYED = frozenset({"containers", "initContainers", "env"})


def difference(before: dict[str, Any], after: dict[str, Any], strategic: bool) -> dict[str, Any]:
    """The patch that makes `after` of `before`; empty where they are the same. None in it deletes a key."""
    patch: dict[str, Any] = dict.fromkeys(key for key in before if key not in after)
    for key, new in after.items():
        old = before.get(key)
        if key in before and old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            patch[key] = difference(old, new, strategic)
        elif strategic and key in _KEYED and isinstance(old, list):
            was, wanted = ({item["name"]: item for item in some} for some in (old, new))
            patch[key] = [
                {"name": name, **difference(was[name], item, strategic)} if name in was else item
                for name, item in wanted.items()
                if was.get(name) != item
            ] + [{"name": name, "$patch": "delete"} for name in was if name not in wanted]
        else:
            patch[key] = new
    return patch


def patch_between(document: Document, wanted: Document, notes: list[str], change: Change) -> Patch:
    """The patches between an object and what is wanted of it. Raises UsageError where it has that already."""
    metadata, kind, version = document["metadata"], checked("kind", document["kind"]), document["apiVersion"]
    names = {"name": checked("name", str(metadata.get("name")))}
    if metadata.get("namespace") is not None:
        names["namespace"] = checked("namespace", str(metadata["namespace"]))
    if document == wanted:
        raise UsageError(f"{kind} {names['name']} has what the recommendation asks for already.", "Nothing to do.")
    strategic = (version, kind) in _BUILT_IN
    there = dict(names)
    if not strategic:
        notes = [*notes, "Lists are replaced whole: if the object has changed since its export, make a new patch."]
        # The server refuses the patch for a later version. The undo names none: the patch itself makes a new one.
        if isinstance(metadata.get("resourceVersion"), str):
            there["resourceVersion"] = metadata["resourceVersion"]
    there_and_back = [
        write_document({"apiVersion": version, "kind": kind, "metadata": about, **difference(old, new, strategic)})
        for about, old, new in ((there, document, wanted), (names, wanted, document))
    ]
    who = shlex.quote(f"{kind}.{version.rpartition('/')[0]}".rstrip(".").lower())
    where = f" -n {names['namespace']}" if "namespace" in names else ""
    how = f"--type {'strategic' if strategic else 'merge'} --patch-file"
    name, command = f"{kind.lower()}-{names['name'][:180]}.yaml", f"kubectl patch {who} {names['name']}{where} {how}"
    made = patch_of_files(name, there_and_back, command, notes)
    template = document["spec"].get("template") != wanted["spec"].get("template")
    if change.manifest is None or not (kind == "Pod" or (kind == "Job" and template)):
        return made
    path = shlex.quote(str(change.manifest.path.absolute()))
    note = f"The pods of a {kind} cannot change while it exists: submit what the command prints instead."
    apply = f"kubectl patch --local -o yaml -f {path} {how} {made.patch.name}"
    return replace(made, apply=apply, revert=f"cat {path}", notes=(*made.notes, note))


def kueue_patch(change: Change) -> Patch:
    """GPU quotas of the flavors of a ClusterQueue, as in Kueue's API types (clusterqueue_types.go of v1beta1, commit
    00b014c). Raises UsageError where the manifest is not the ClusterQueue of the workload, or a flavor is not clear."""
    assert change.manifest is not None
    queues = [
        document
        for document in read_documents(change.manifest)
        if document["kind"] == "ClusterQueue" and document["apiVersion"].startswith("kueue.")
        and ("name" not in change.typed or document["metadata"].get("name") == change.name)
    ]  # fmt: skip
    if len(queues) != 1:
        what = f"{len(queues)} ClusterQueues" if queues else "no such ClusterQueue"
        export = "Set --manifest to the output of 'kubectl get clusterqueue NAME -o yaml'."
        raise UsageError(f"The manifest has {what}.", "Select one with --name." if queues else export)
    wanted = copy.deepcopy(queues[0])
    flavor, resource = _flavor(wanted, change.flavor, "--flavor")
    before, after = change.gpus_before, change.gpus_after
    if change.action == "move-sku":
        other, its = _flavor(wanted, change.target_flavor, "--target-flavor")
        if other is flavor:
            what = f"{quoted(flavor['name'])} is the flavor of today and of the target."
            raise UsageError(what, "Set --target-flavor.")
        notes = [*_add(flavor, resource, -before), *_add(other, its, after)]
    else:
        notes = _add(flavor, resource, after - before)
    notes.append("A lower quota evicts nothing: work that is admitted keeps its GPUs until it ends.")
    return patch_between(queues[0], wanted, notes, change)


def _flavor(queue: dict[str, Any], name: str | None, option: str) -> tuple[dict[str, Any], str]:
    quotas = [
        (flavor, resource)
        for group in queue["spec"]["resourceGroups"]
        for resource in GPU_RESOURCES
        if resource in group["coveredResources"]
        for flavor in group["flavors"]
    ]
    chosen = [pair for pair in quotas if name in (None, pair[0]["name"])]
    if len(chosen) != 1:
        names = ", ".join(quoted(str(pair["name"])) for pair, _ in quotas[:5]) or "no flavor"
        raise UsageError(f"The ClusterQueue has GPU quotas for: {names}.", f"Set {option} to one of them.")
    return chosen[0]


def _add(flavor: dict[str, Any], resource: str, count: int) -> list[str]:
    """Another quota, and with a lower one a lower lendingLimit, which Kueue's webhook takes up to the quota alone."""
    (entry,) = [entry for entry in flavor["resources"] if entry["name"] == resource]
    quota, name = _whole(entry["nominalQuota"]), quoted(str(flavor["name"]))
    if quota + count < 0:
        what = f"The {resource} quota of {name} is {quota}; the recommendation frees {-count}."
        raise UsageError(what, "Name the ClusterQueue that the workload runs in.")
    entry["nominalQuota"] = quota + count
    notes = [f"The {resource} quota of {name} changes from {quota} to {quota + count}."]
    if entry.get("lendingLimit") is not None and (lent := _whole(entry["lendingLimit"])) > quota + count:
        entry["lendingLimit"] = quota + count
        notes.append(f"The lendingLimit of {name} falls from {lent} to {quota + count}: it cannot exceed the quota.")
    return notes


def _whole(value: object) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or len(str(value)) > 9:
        raise UsageError(f"The quota {quoted(str(value))} is not a whole number.", BY_HAND)
    return int(str(value))
