"""Patches of Kubernetes objects: the difference of two states as a patch, and a patch applied, to prove an undo.

Of the built-in kinds a strategic merge patch (https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/):
lists of containers and of variables are merged by name, all other lists are replaced. Of all others a JSON merge patch
(RFC 7396), which replaces every list: the API server offers no strategic one for custom resources.
"""

from __future__ import annotations

import copy
from typing import Any, TypeGuard

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
