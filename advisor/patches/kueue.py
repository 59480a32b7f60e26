"""Kueue: GPU quotas of the flavors of a ClusterQueue.

Fields and rules as in Kueue's API types (apis/kueue/v1beta1/clusterqueue_types.go, commit 00b014c, read 2026-11-25).
"""

from __future__ import annotations

import copy
from typing import Any

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted
from .change import Change, Patch
from .documents import read_documents
from .kubernetes import GPU_RESOURCES, patch_between

_EXPORT = "Set --manifest to the output of 'kubectl get clusterqueue NAME -o yaml'."


def kueue_patch(change: Change) -> Patch:
    """Raises UsageError where the manifest is not the ClusterQueue of the workload, or a flavor is not clear."""
    assert change.manifest is not None
    documents = read_documents(change.manifest)
    queues = [one for one in documents if one["kind"] == "ClusterQueue" and one["apiVersion"].startswith("kueue.")]
    if "name" in change.typed:
        queues = [one for one in queues if one["metadata"].get("name") == change.name]
    if len(queues) != 1:
        what = f"{len(queues)} ClusterQueues" if queues else "no such ClusterQueue"
        raise UsageError(f"The manifest has {what}.", "Select one with --name." if queues else _EXPORT)
    wanted = copy.deepcopy(queues[0])
    own, resource = _flavor(wanted, change.flavor, "--flavor")
    before, after = change.gpus_before, change.gpus_after
    if change.action == "move-sku":
        other, its = _flavor(wanted, change.target_flavor, "--target-flavor")
        if other is own:
            raise UsageError(f"{quoted(own['name'])} is the flavor of today and of the target.", "Set --target-flavor.")
        notes = [*_add(own, resource, -before), *_add(other, its, after)]
    else:
        notes = _add(own, resource, after - before)
    notes.append("A lower quota evicts nothing: work that is admitted keeps its GPUs until it ends.")
    return patch_between(queues[0], wanted, notes, change)


def _flavor(queue: dict[str, Any], name: str | None, option: str) -> tuple[dict[str, Any], str]:
    """The flavor of this name (None: the only one) that has a quota of GPUs, and what the GPUs are called there."""
    found = [
        (flavor, resource)
        for group in queue["spec"]["resourceGroups"]
        for resource in GPU_RESOURCES
        if resource in group["coveredResources"]
        for flavor in group["flavors"]
    ]
    chosen = [one for one in found if name in (None, one[0]["name"])]
    if len(chosen) != 1:
        names = ", ".join(quoted(str(one["name"])) for one, _ in found[:5])
        raise UsageError(
            f"The ClusterQueue has GPU quotas for: {names or 'no flavor'}.", f"Set {option} to one of them."
        )
    return chosen[0]


def _add(flavor: dict[str, Any], resource: str, count: int) -> list[str]:
    """Another quota, and with a lower one a lower lendingLimit, which Kueue's webhook takes up to the quota alone."""
    (entry,) = [one for one in flavor["resources"] if one["name"] == resource]
    quota, name = _whole(entry["nominalQuota"]), quoted(str(flavor["name"]))
    if quota + count < 0:
        raise UsageError(
            f"The {resource} quota of {name} is {quota}; the recommendation frees {-count}.",
            "Name the ClusterQueue that the workload runs in.",
        )
    entry["nominalQuota"] = quota + count
    notes = [f"The {resource} quota of {name} changes from {quota} to {quota + count}."]
    if entry.get("lendingLimit") is not None and (lent := _whole(entry["lendingLimit"])) > quota + count:
        entry["lendingLimit"] = quota + count
        notes.append(f"The lendingLimit of {name} falls from {lent} to {quota + count}: it cannot exceed the quota.")
    return notes


def _whole(value: object) -> int:
    """A quantity, which Kubernetes takes as a number or as text."""
    if isinstance(value, bool) or not str(value).isdecimal() or len(str(value)) > 9:
        raise UsageError(f"The quota {quoted(str(value))} is not a whole number.", "Change it by hand.")
    return int(str(value))
