"""What Kubernetes' API says, from files that ``kubectl get ... -o json`` wrote: the agent itself asks no API server.

``[kubernetes] pods_file`` describes pods, ``resource_slices_file`` the devices of dynamic resource allocation (DRA). A
file may take ten times its size in memory, so a child process (`main`) reads it when it has changed. Until then, and
where it fails, what was known before holds.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from ...rules.base.files import read_bounded
from ..base.safe_text import clean_text
from ..base.self_command import Answer, Child, ChildError, child_command, say
from ..model import Absence, Workload
from .pods import OPERATOR_LABELS, Objects, Pod, PodOwner, spelled, team_of_pod, works_of
from .scheduler_claims import DRA_DRIVER, GPU_RESOURCE, SliceDevice

SIZE_LIMIT = 64 * 1024 * 1024
_TEXT = 256
_Object = Mapping[str, Any]
_Kind = TypeVar("_Kind", str, int, dict[str, Any], list[dict[str, Any]])


@dataclass(frozen=True)
class KubernetesFacts(Answer):
    """What is known. `by_uid`: pods and what they are work of, the oldest first; `slices`: devices by ``POOL/NAME``."""

    by_uid: Mapping[str, Workload] = field(default_factory=dict)
    slices: Mapping[str, SliceDevice] = field(default_factory=dict)
    absences: frozenset[Absence] = frozenset()


class KubernetesFiles:
    """Looks at the files at each scan; never waits. None: there is no such file. `close` ends what runs."""

    def __init__(
        self, cluster: str, node: str, pods: Path | None, slices: Path | None, team_labels: Sequence[str] = ()
    ) -> None:
        self._pods = _Watched(pods, "pods", node, cluster, *team_labels)
        self._slices = _Watched(slices, "slices", node)

    def read(self) -> KubernetesFacts:
        pods, slices = self._pods.look(), self._slices.look()
        absences: set[Absence] = set()
        for watched, what in ((self._pods, "pods,replicasets,jobs -A"), (self._slices, "resourceslices")):
            detail = f"{watched.path} is not used: {watched.fault}."
            remedy = f"Write it with kubectl get {what} -o json, as a new file that is then renamed."
            if watched.fault:
                absences.add(Absence("source", "allocation", "kubernetes", "kubernetes-file", detail, remedy))
        return KubernetesFacts(by_uid=pods.by_uid, slices=slices.slices, absences=frozenset(absences))

    def close(self) -> None:
        self._pods.child.close()
        self._slices.child.close()


class _Watched:
    """A file, and the child that reads it when it has changed. `fault`: why what it says now is not used."""

    def __init__(self, path: Path | None, what: str, *arguments: str) -> None:
        self.path, self.fault = path, ""
        self.child = Child(child_command("skuwise.agent.jobs.kubernetes_files", what, str(path), *arguments))
        self._seen: tuple[int, ...] | None = None
        self._facts = KubernetesFacts()

    def look(self) -> KubernetesFacts:
        """What its last good answer was."""
        if self.path is None:
            return self._facts
        try:
            answer = self.child.answer(KubernetesFacts)
            if answer is not None:
                self._facts, self.fault = answer, ""
                self.child.close()
                return answer
            about = self.path.stat()
            seen = (about.st_mtime_ns, about.st_size, about.st_ino)
            if seen != self._seen and self.child.ask():
                self._seen = seen
        except ChildError as error:
            self.fault = str(error)
            self.child.close()
        except OSError as error:
            self.fault, self._seen = f"it cannot be read ({error.strerror})", None
        return self._facts


def works_by_uid(items: Sequence[_Object], node: str, cluster: str, labels: Sequence[str]) -> dict[str, Workload]:
    """The pods of the node, of all nodes where none is its, the oldest first. A gang is all of its pods that ask for
    GPUs or own others, wherever they run."""
    wanted = (*OPERATOR_LABELS, *labels)
    objects = {(_at(str, item, "kind"), *_name(item)): item for item in items if item.get("kind") != "Pod"}
    pods = [
        (_pod(item, wanted), _at(str, item, "spec", "nodeName"))
        for item in items if item.get("kind") == "Pod" and _name(item)[1]
    ]  # fmt: skip
    # The leader of a LeaderWorkerSet's group has the name of the StatefulSet of its workers.
    owning = {(pod.namespace, pod.owner.name) for pod, _ in pods if pod.owner and pod.has_gpus}
    pods = [(pod, at) for pod, at in pods if pod.has_gpus or at == node or (pod.namespace, pod.name) in owning]
    pods.sort(key=lambda entry: entry[0].created_seconds or 0.0)
    owners: dict[tuple[str, str, str], PodOwner | None] = {}
    for pod, _ in pods:
        near = pod.owner
        while near and (key := (near.kind, pod.namespace, near.name)) in objects and key not in owners:
            near = owners[key] = _owner(objects[key])
    jobs = {key[1:]: _at(dict, objects[key], "spec") for key in owners if key[0] == "Job"}
    parallelism = {key: _at(int, {"parallelism": 1, **spec}, "parallelism") for key, spec in jobs.items()}
    spaces = {name: _labels(item, wanted) for (kind, _, name), item in objects.items() if kind == "Namespace"}
    related = Objects(owners, parallelism, spaces)
    workloads: dict[str, Workload] = {}
    here: dict[str, Workload] = {}
    for (pod, where), work in zip(pods, works_of(cluster, [pod for pod, _ in pods], related), strict=True):
        if pod.uid:
            (here if where == node else workloads)[pod.uid] = Workload(
                work.workload_id, work.series_id, work.name, "kubernetes", namespace=pod.namespace, pod=pod.name,
                controller_kind=work.kind, image=pod.image, team=team_of_pod(pod, related, labels),
            )  # fmt: skip
    return here or workloads


def slice_devices(items: Iterable[_Object], node: str) -> dict[str, SliceDevice]:
    """Devices of NVIDIA's driver by ``POOL/NAME``; the newest generation of a pool counts."""
    specs = [_at(dict, item, "spec") for item in items if item.get("kind") == "ResourceSlice"]
    slices = [spec for spec in specs if spec.get("driver") == DRA_DRIVER]
    node_slices = [spec for spec in slices if spec.get("nodeName") == node] or slices
    node_slices.sort(key=lambda spec: _at(int, spec, "pool", "generation"))
    devices: dict[str, SliceDevice] = {}
    for spec in node_slices:
        for device in _at(list, spec, "devices"):
            # resource.k8s.io/v1beta1 has them one level deeper than v1beta2 and v1.
            attributes = _at(dict, device, "attributes") or _at(dict, device, "basic", "attributes")
            texts = {key.rpartition("/")[2].lower(): _at(str, of, "string") or None for key, of in attributes.items()}
            bus_id = texts.get("pciebusid") or texts.get("pcibusid")
            if name := _at(str, device, "name"):
                made = SliceDevice(texts.get("uuid"), bus_id, texts.get("parentuuid"), texts.get("profile"))
                devices[f"{_at(str, spec, 'pool', 'name')}/{name}"] = made
    return devices


def _pod(item: _Object, wanted: Iterable[str]) -> Pod:
    containers = _at(list, item, "spec", "containers")
    asking = [container for container in containers if _asks(container)]
    images = {_at(str, container, "image") for container in asking or containers}
    created, started = _moment(item, "metadata", "creationTimestamp"), _moment(item, "status", "startTime")
    ended = math.inf
    if _at(str, item, "status", "phase") in ("Succeeded", "Failed"):
        statuses = _at(list, item, "status", "containerStatuses")
        times = [at for status in statuses if (at := _moment(status, "state", "terminated", "finishedAt")) is not None]
        ended = max(times, default=started or math.inf)
    return Pod(
        *_name(item), _at(str, item, "metadata", "uid") or None, _owner(item), created_seconds=created,
        ended_seconds=ended, image=images.pop() or None if len(images) == 1 else None,
        containers=frozenset(_at(str, container, "name") for container in containers), labels=_labels(item, wanted),
        has_gpus=bool(asking) or any(map(_asks, _at(list, item, "spec", "initContainers"))),
    )  # fmt: skip


def _asks(container: _Object) -> bool:
    asked = [name for part in ("requests", "limits") for name in _at(dict, container, "resources", part)]
    return bool(_at(list, container, "resources", "claims")) or any(map(GPU_RESOURCE.fullmatch, asked))


def _owner(item: _Object) -> PodOwner | None:
    owners = _at(list, item, "metadata", "ownerReferences")
    controllers = [owner for owner in owners if owner.get("controller") is True] or (owners if len(owners) == 1 else [])
    names = sorted((_at(str, owner, "kind"), _at(str, owner, "name")) for owner in controllers)
    return PodOwner(*names[0]) if names and all(names[0]) else None


def _labels(item: _Object, wanted: Iterable[str]) -> dict[str, str]:
    return {spelled(name): value for name in wanted if (value := _at(str, item, "metadata", "labels", name))}


def _name(item: _Object) -> tuple[str, str]:
    return _at(str, item, "metadata", "namespace"), _at(str, item, "metadata", "name")


def _moment(item: _Object, *names: str) -> float | None:
    try:
        return datetime.fromisoformat(_at(str, item, *names)).timestamp()
    except (ValueError, OverflowError):
        return None


def _at(kind: Callable[[], _Kind], item: object, *names: str) -> _Kind:
    """A part of an object, empty where it is not there or of another kind; texts are cleaned, lists keep objects."""
    for name in names:
        item = item.get(name) if isinstance(item, dict) else None
    if isinstance(item, str):
        item = clean_text(item[:_TEXT])
    elif isinstance(item, list):
        item = [part for part in item if isinstance(part, dict)]
    return item if isinstance(item, type(kind())) else kind()


def main(what: str, path: str, node: str, cluster: str = "", *labels: str) -> None:
    """Print one line: ``pods``, devices of ``slices`` (of all nodes where none is the node's), or a fault."""
    try:
        document = json.loads(read_bounded(Path(path), SIZE_LIMIT))
        items = [entry for entry in document.get("items", [document]) if isinstance(entry, dict)]
        if what == "pods":
            answer = KubernetesFacts(by_uid=works_by_uid(items, node, cluster, labels))
        else:
            answer = KubernetesFacts(slices=slice_devices(items, node))
    except OSError as error:
        answer = KubernetesFacts(f"it cannot be read ({error.strerror})")
    except (ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        answer = KubernetesFacts("it is not JSON of Kubernetes' API, or a part of some, or does not fit into memory")
    say(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
