"""A process of its own that reads what ``kubectl get ... -o json`` wrote, and prints what the agent needs of it.

Such a file holds every pod of a cluster and may take ten times its size in memory while it is read: that stays in here.
Everything in it is somebody else's text: what has another shape than Kubernetes' API is passed over, and every text is
made fit to keep where it is taken up (`_text`).

``pods PATH NODE LABEL...`` prints pods that ask for GPUs, those of the node and those that own others, with what owns
them; ``slices PATH NODE`` prints the devices of the node's ResourceSlices, of all nodes where none is the node's.
"""

from __future__ import annotations

import errno
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ...rules.base.files import read_bounded
from ..base.safe_text import clean_text
from .pods import OPERATOR_LABELS, spelled

SIZE_LIMIT = 64 * 1024 * 1024
MOST_PODS, MOST_DEVICES = 20_000, 50_000
DRIVER = "gpu.nvidia.com"
_GPU_RESOURCES = ("nvidia.com/", "amd.com/gpu")
# The attributes of a device, in small letters, that tell a field of `dra.SliceDevice`.
_ATTRIBUTES = {
    "uuid": ("uuid",), "pci_bus_id": ("pciebusid", "pcibusid"), "parent_uuid": ("parentuuid",), "profile": ("profile",),
}  # fmt: skip
_TEXT = 256
_OVER = frozenset({"Succeeded", "Failed"})

Item = Mapping[str, Any]


class FileError(ValueError):
    """The file is not what kubectl prints."""


def read_items(path: Path) -> list[Item]:
    """The objects of a list, or the one object. Raises OSError, FileError."""
    try:
        raw = read_bounded(path, SIZE_LIMIT)
    except OSError as error:
        if error.errno in (errno.EFBIG, errno.EISDIR, errno.EINVAL):
            raise FileError(error.strerror) from None
        raise
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise FileError("it is not JSON, or a part of some") from None
    if not isinstance(document, dict):
        raise FileError("it is not an object of Kubernetes' API")
    items = document.get("items", [document])
    if not isinstance(items, list):
        raise FileError("its items are not a list")
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("kind"), str)]


def pods_of(items: Sequence[Item], node: str, labels: Sequence[str]) -> dict[str, Any]:
    """What is printed of ``pods``: fields of `pods.Pod`, owners, parallelism, labels of namespaces."""
    wanted = dict.fromkeys((*OPERATOR_LABELS, *labels))
    pods = [(item, row) for item in items if item["kind"] == "Pod" and (row := _pod(item, wanted)) is not None]
    # The leader of a LeaderWorkerSet's group has the name of the StatefulSet of its workers.
    owning = {(row["namespace"], row["owner"][1]) for _, row in pods if row["owner"] and row["has_gpus"]}
    here = [row["has_gpus"] or _part(item, "spec").get("nodeName") == node for item, row in pods]
    kept = [row for is_here, (_, row) in zip(here, pods, strict=True) if is_here or _name(row) in owning][:MOST_PODS]
    owners: dict[tuple[str, str, str], Any] = {}
    objects = {key: item for item in items if item["kind"] != "Pod" and (key := _key(item)) is not None}
    for row in kept:
        near, seen = row["owner"], 0
        while near and seen < 8 and (key := (near[0], row["namespace"], near[1])) in objects and key not in owners:
            near, seen = _owner(objects[key]), seen + 1
            owners[key] = near
    spaces = {
        name: _labels(item, wanted) for item in items if item["kind"] == "Namespace"
        if (name := _text(_part(item, "metadata").get("name")))
    }  # fmt: skip
    return {
        "pods": kept,
        "owners": [[*key, owner] for key, owner in owners.items()],
        "parallelism": [
            [key[1], key[2], int(count)] for key in owners if key[0] == "Job"
            if isinstance(count := _part(objects[key], "spec").get("parallelism", 1), int) and 0 <= count < 1_000_000
        ],
        "namespaces": {name: found for name, found in spaces.items() if found},
    }  # fmt: skip


def slice_devices(items: Sequence[Item], node: str) -> list[dict[str, Any]]:
    """Devices of NVIDIA's driver, each with its pool, name and attributes; of a pool its newest generation alone."""
    found = [item for item in items if item["kind"] == "ResourceSlice" and _part(item, "spec").get("driver") == DRIVER]
    own = [item for item in found if _part(item, "spec").get("nodeName") == node] or found
    newest: dict[str, int] = {}
    for item in own:
        pool = _part(_part(item, "spec"), "pool")
        name = _text(pool.get("name"))
        newest[name] = max(newest.get(name, -1), _whole(pool.get("generation")) or 0)
    out: list[dict[str, Any]] = []
    for item in own:
        spec = _part(item, "spec")
        pool = _part(spec, "pool")
        name = _text(pool.get("name"))
        if (_whole(pool.get("generation")) or 0) == newest[name]:
            out += [{"pool": name, **device} for device in _devices(spec)]
    return out[:MOST_DEVICES]


def _devices(spec: Item) -> Iterator[dict[str, Any]]:
    devices = spec.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if not isinstance(device, dict) or not _text(device.get("name")):
            continue
        # resource.k8s.io/v1beta1 has them one level deeper than v1beta2 and v1.
        attributes = _part(device, "attributes") or _part(_part(device, "basic"), "attributes")
        values = {str(key).rpartition("/")[2].lower(): value for key, value in attributes.items()}
        yield {
            "name": _text(device.get("name")),
            **{field: _attribute(values, *names) for field, names in _ATTRIBUTES.items()},
        }


def _attribute(values: Item, *names: str) -> str | None:
    return next((text for name in names if (text := _text(_part(values, name).get("string")))), None)


def _pod(item: Item, wanted: Mapping[str, None]) -> dict[str, Any] | None:
    about, spec, status = (_part(item, name) for name in ("metadata", "spec", "status"))
    name, namespace = _text(about.get("name")), _text(about.get("namespace"))
    if not name:
        return None
    containers = [one for one in _list(spec.get("containers")) if isinstance(one, dict)]
    asking = [one for one in containers if _asks(one)]
    images = {_text(one.get("image")) for one in asking or containers}
    return {
        "namespace": namespace, "name": name, "uid": _text(about.get("uid")) or None, "owner": _owner(item),
        "created_seconds": _moment(about.get("creationTimestamp")),
        "started_seconds": _moment(status.get("startTime")), "ended_seconds": _ended(status),
        "image": images.pop() or None if len(images) == 1 else None,
        "containers": [found for one in containers if (found := _text(one.get("name")))],
        "labels": _labels(item, wanted), "has_gpus": bool(asking) or any(map(_asks, _list(spec.get("initContainers")))),
    }  # fmt: skip


def _asks(container: object) -> bool:
    """Whether a container asks for a GPU, by a device plugin or by a claim (DRA)."""
    resources = _part(container, "resources") if isinstance(container, dict) else {}
    if _list(resources.get("claims")):
        return True
    return any(
        str(name).startswith(_GPU_RESOURCES) for part in ("requests", "limits") for name in _part(resources, part)
    )


def _owner(item: Item) -> list[str] | None:
    """The controller, else the only owner there is."""
    owners = [one for one in _list(_part(item, "metadata").get("ownerReferences")) if isinstance(one, dict)]
    own = [one for one in owners if one.get("controller") is True] or (owners if len(owners) == 1 else [])
    told = sorted((_text(one.get("kind")), _text(one.get("name"))) for one in own)
    return list(told[0]) if told and all(told[0]) else None


def _name(row: Item) -> tuple[str, str]:
    return row["namespace"], row["name"]


def _key(item: Item) -> tuple[str, str, str] | None:
    about = _part(item, "metadata")
    name = _text(about.get("name"))
    return (_text(item["kind"]), _text(about.get("namespace")), name) if name else None


def _labels(item: Item, wanted: Mapping[str, None]) -> dict[str, str]:
    labels = _part(_part(item, "metadata"), "labels")
    return {spelled(name): value for name in wanted if (value := _text(labels.get(name)))}


def _ended(status: Item) -> float:
    """Infinite while it runs, and where nothing tells when it ended."""
    phase = status.get("phase")
    if not isinstance(phase, str) or phase not in _OVER:
        return math.inf
    times = [
        _moment(_part(_part(one, "state"), "terminated").get("finishedAt"))
        for one in _list(status.get("containerStatuses")) if isinstance(one, dict)
    ]  # fmt: skip
    ended = max((at for at in times if at is not None), default=_moment(status.get("startTime")))
    return math.inf if ended is None else ended


def _moment(value: object) -> float | None:
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) and len(value) < 40 else None
    except (ValueError, OverflowError):
        return None


def _part(item: object, name: str) -> Item:
    found = item.get(name) if isinstance(item, Mapping) else None
    return found if isinstance(found, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return clean_text(value[:_TEXT]) if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def main(what: str, path: str, node: str, *labels: str) -> int:
    """Print one line: the answer, or why there is none."""
    try:
        items = read_items(Path(path))
        answer: dict[str, Any] = (
            pods_of(items, node, labels) if what == "pods" else {"devices": slice_devices(items, node)}
        )
    except OSError as error:
        answer = {"error": f"it cannot be read ({error.strerror})"}
    except (FileError, MemoryError) as error:
        answer = {"error": str(error) or "it does not fit into memory"}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
