"""Pods placed on nodes with a label: required node affinity, and what stands against it today."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ...rules.base.errors import UsageError
from .labels import GPU_PRODUCT, INSTANCE_TYPE
from .pods import pod_groups
from .yaml_documents import Document

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
