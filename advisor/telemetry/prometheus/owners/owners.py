"""What kube-state-metrics tells of pods that held GPUs: owners, UIDs, times, images and labels.

Only those pods are asked for, by name, so many in a query. Most of them are there at the end of the window, where one
sample answers; the whole window is searched for the others, and for what had a pod's name before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from .....agent.inventory.kubernetes.pods import OPERATOR_LABELS, Objects, Pod, PodOwner, spelled, spellings_of
from ....core.frame import Window
from ..client.response import Labels, SeriesAnswer
from ..promql import promql as queries
from .kube import PODS_A_QUERY

Instants = Callable[[Sequence[str], Sequence[str]], Sequence[SeriesAnswer]]
"""Asks several queries at the window's end, and keeps some labels."""
Key = tuple[str, str, str]
"""Cluster as a series names it, namespace and pod."""
Held = tuple[float, float]
"""When something first and last held a GPU, Unix seconds."""
_PLAIN = re.compile(r"[a-z0-9.-]{1,253}")
_SPACE, _POD = ("cluster", "exported_namespace", "namespace"), ("exported_pod", "pod")
_NOBODY = ("", "<none>")
_RECENT_SECONDS = 3600.0
# A pod that was made so long after its name held a GPU is not the first of that name.
_LATE_SECONDS = 300.0
_EARLIEST, _LATEST = 1.4e9, 4e9  # Unix seconds; beyond lies no pod's life
_MOST_TEXT = 256
_OWNER = ("owner_kind", "owner_name", "owner_is_controller")
_FACTS: Mapping[str, tuple[str, ...]] = {
    "kube_pod_owner": _OWNER,
    "kube_pod_info": ("created_by_kind", "created_by_name"),
    "kube_pod_created": (),
    "kube_pod_start_time": (),
    "kube_pod_container_info": ("exported_container", "container", "image", "image_spec"),
}
_LABELS = "kube_pod_labels"
# Kind -> its owner series and the label that names it.
_ABOVE = {
    "ReplicaSet": ("kube_replicaset_owner", "replicaset"),
    "Job": ("kube_job_owner", "job_name"),
    "Deployment": ("kube_deployment_owner", "deployment"),
}
_PARALLELISM = "kube_job_spec_parallelism"
_VALUES = frozenset({"kube_pod_created", "kube_pod_start_time", _PARALLELISM})
SERIES = frozenset(
    {*_FACTS, _LABELS, *(name for name, _ in _ABOVE.values()), _PARALLELISM, "kube_namespace_labels"}
)  # fmt: skip


@dataclass(frozen=True)
class Life:
    """A pod, and the images of its containers."""

    pod: Pod
    images: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KubeOwners:
    """`lives`: what had a name, the oldest first; `objects`: by cluster."""

    lives: Mapping[Key, tuple[Life, ...]] = field(default_factory=dict)
    objects: Mapping[str, Objects] = field(default_factory=dict)

    @cached_property
    def _clusters(self) -> Mapping[tuple[str, str], Sequence[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        for cluster, namespace, pod in self.lives:
            found.setdefault((namespace, pod), []).append(cluster)
        return found

    def cluster_of(self, cluster: str, namespace: str, pod: str) -> str | None:
        """The cluster under which a pod is told that a GPU's series names; None where it is not told. One of the two
        may be without a cluster's name; a pod of several clusters is then nobody's."""
        told = self._clusters.get((namespace, pod), ())
        if cluster in told:
            return cluster
        if "" in told:
            return ""
        return told[0] if cluster == "" and len(told) == 1 else None


def read_owners(
    instants: Instants, names: Iterable[str], matches: Sequence[str], held: Mapping[tuple[str, str], Held], *,
    window: Window, team_labels: Sequence[str] = (),
) -> KubeOwners:  # fmt: skip
    """Ask. `held`: namespace and name of pods -> when they held GPUs.

    Empty where kube-state-metrics is not scraped.
    """
    known = SERIES.intersection(names)
    if not known & {"kube_pod_owner", "kube_pod_info"}:
        return KubeOwners()
    labels = tuple(dict.fromkeys((*OPERATOR_LABELS, *team_labels)))
    asking = _Asking(instants, known, matches, labels)
    seconds = window.seconds
    spans = tuple(dict.fromkeys((min(seconds, _RECENT_SECONDS), seconds)))
    lives: dict[Key, tuple[Life, ...]] = {}
    # Who held a GPU until shortly before the end is most likely still there.
    wanted = {pod for (_, pod), (_, last) in held.items() if last > window.end - 2 * _RECENT_SECONDS}
    for span in spans:
        lives |= asking.pods(wanted, span)
        wanted = {pod for _, pod in _partly_known(lives, held)}
    # The leader of a LeaderWorkerSet's group may ask for no GPU.
    leaders = {
        one.pod.owner.name for own in lives.values() for one in own
        if one.pod.owner is not None and one.pod.owner.kind in ("StatefulSet", "Pod")
    } - {pod for _, _, pod in lives}  # fmt: skip
    for key, own in asking.pods({one for one in leaders if one[-1:].isdigit()}, seconds, small=True).items():
        lives[key] = tuple(replace(one, pod=replace(one.pod, has_gpus=False)) for one in own)
    return KubeOwners(lives, asking.objects(lives, spans))


def _partly_known(
    lives: Mapping[Key, Sequence[Life]], held: Mapping[tuple[str, str], Held]
) -> Iterator[tuple[str, str]]:
    """Pods of which nothing is told, or nothing of what had their name when it first held a GPU."""
    told: dict[tuple[str, str], list[float]] = {}
    for (_, namespace, pod), several in lives.items():
        own = told.setdefault((namespace, pod), [])
        own += [one.pod.created_seconds for one in several if one.pod.created_seconds is not None]
    for key, (first, _) in held.items():
        created = told.get(key)
        if created is None or (created and min(created) > first + _LATE_SECONDS):
            yield key


@dataclass(frozen=True)
class _Asking:
    instants: Instants
    known: frozenset[str]
    matches: Sequence[str]
    labels: tuple[str, ...]

    def pods(self, names: Iterable[str], seconds: float, *, small: bool = False) -> dict[Key, tuple[Life, ...]]:
        """Lives of pods of these names within so many seconds before the end. `small`: owners and times alone."""
        told: dict[Key, dict[str, _Told]] = {}
        wanted = {name: kept for name, kept in _FACTS.items() if name in self.known}
        if small:
            wanted.pop("kube_pod_container_info", None)
        elif _LABELS in self.known:
            wanted[_LABELS] = tuple(f"label_{one}" for name in self.labels for one in spellings_of(spelled(name)))
        for name, kept in wanted.items():
            for labels, value in self._answers(name, _POD, (*_POD, "uid", *kept), names, seconds):
                pod = labels.get("exported_pod") or labels.get("pod", "")
                own = told.setdefault((*_space(labels), pod), {}).setdefault(labels.get("uid", ""), _Told())
                own.take(name, labels, value)
        return {key: _lives(key, by_uid) for key, by_uid in told.items()}

    def objects(self, lives: Mapping[Key, Sequence[Life]], spans: Sequence[float]) -> dict[str, Objects]:
        """What is told of the owners of pods and of their namespaces, by cluster."""
        owners: dict[str, dict[tuple[str, str, str], PodOwner | None]] = {}
        parallelism: dict[str, dict[tuple[str, str], int]] = {}
        near = {
            (cluster, namespace, one.pod.owner)
            for (cluster, namespace, _), several in lives.items() for one in several if one.pod.owner is not None
        }  # fmt: skip
        for kind in (*_ABOVE, *_ABOVE):  # once more: an owner may be of a kind that was asked for before
            near |= {
                (cluster, namespace, owner)
                for cluster, told in owners.items() for (_, namespace, _), owner in told.items() if owner is not None
            }  # fmt: skip
            wanted = {
                (cluster, space, owner.name) for cluster, space, owner in near
                if owner.kind == kind and (kind, space, owner.name) not in owners.get(cluster, {})
            }  # fmt: skip
            for key, owner in self._owners_of(kind, wanted, spans).items():
                owners.setdefault(key[0], {})[kind, key[1], key[2]] = owner
        jobs = {owner.name for _, _, owner in near if owner.kind == "Job"}
        if _PARALLELISM in self.known:
            for labels, value in self._answers(_PARALLELISM, ("job_name",), ("job_name",), jobs, spans[-1]):
                cluster, namespace = _space(labels)
                if value >= 0:
                    parallelism.setdefault(cluster, {})[namespace, labels.get("job_name", "")] = round(value)
        spaces = self._namespaces({namespace for _, namespace, _ in lives}, spans[-1])
        clusters = {cluster for cluster, _, _ in lives}
        return {
            one: Objects(owners.get(one, {}), parallelism.get(one, {}), spaces.get(one, {})) for one in sorted(clusters)
        }

    def _owners_of(self, kind: str, wanted: set[Key], spans: Sequence[float]) -> dict[Key, PodOwner | None]:
        series, label = _ABOVE[kind]
        found: dict[Key, _Told] = {}
        for span in spans if series in self.known else ():
            left = {key[2] for key in wanted if key not in found}
            for labels, value in self._answers(series, (label,), (label, *_OWNER), left, span):
                key = (*_space(labels), labels.get(label, ""))
                found.setdefault(key, _Told()).take("kube_pod_owner", labels, value)
        return {key: told.owner for key, told in found.items()}

    def _namespaces(self, wanted: Iterable[str], seconds: float) -> dict[str, dict[str, dict[str, str]]]:
        found: dict[str, dict[str, dict[str, str]]] = {}
        if "kube_namespace_labels" not in self.known:
            return found
        kept = tuple(f"label_{one}" for name in self.labels for one in spellings_of(spelled(name)))
        own = ("exported_namespace", "namespace")
        for labels, _ in self._answers("kube_namespace_labels", own, kept, wanted, seconds):
            cluster, namespace = _space(labels)
            found.setdefault(cluster, {}).setdefault(namespace, {}).update(_kubernetes_labels(labels))
        return found

    def _answers(
        self, name: str, at: Sequence[str], kept: Sequence[str], wanted: Iterable[str], seconds: float
    ) -> Iterable[tuple[Labels, float]]:
        """Series of a metric that name one of `wanted` by one of the labels `at`, each once whatever tells it."""
        by = tuple(dict.fromkeys((*_SPACE, *kept)))
        # What is no name of an object is left out: nothing of a label gets into a pattern.
        plain = sorted(one for one in wanted if _PLAIN.fullmatch(one))
        asked = []
        for first in range(0, len(plain), PODS_A_QUERY):
            pattern = "|".join(one.replace(".", "[.]") for one in plain[first : first + PODS_A_QUERY])
            chosen = [queries.selector(self.matches, f'{label}=~"{pattern}"') for label in at]
            # Of what is told of an owner the value says how often: an old copy of kube-state-metrics is outvoted.
            how = "last_over_time" if name in _VALUES else "count_over_time"
            parts = [f"{how}({name}{one}[{seconds:.0f}s])" for one in chosen]
            asked.append(f"max by ({', '.join(by)}) ({' or '.join(parts)})")
        for answer in self.instants(asked, by) if asked else ():
            yield from zip(answer.labels, (float(row[0]) for row in answer.values), strict=True)


@dataclass
class _Told:
    """What series tell of one object, as they come."""

    owners: dict[PodOwner, tuple[bool, float]] = field(default_factory=dict)
    is_told: bool = False
    creator: PodOwner | None = None
    times: dict[str, float] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, labels: Labels, value: float) -> None:
        if name == "kube_pod_owner":
            self.is_told = True
            owner = _owner(labels, "owner")
            if owner is not None:
                is_controller, often = self.owners.get(owner, (False, 0.0))
                is_controller |= labels.get("owner_is_controller") == "true"
                self.owners[owner] = is_controller, max(often, value)
        elif name == "kube_pod_info":
            self.is_told = self.is_told or "created_by_kind" in labels
            self.creator = self.creator or _owner(labels, "created_by")
        elif name == "kube_pod_container_info":
            image = labels.get("image_spec") or labels.get("image", "")
            container = labels.get("exported_container") or labels.get("container", "")
            if container:
                self.images.setdefault(container, image[:_MOST_TEXT])
        elif name == _LABELS:
            self.labels |= _kubernetes_labels(labels)
        elif _EARLIEST < value < _LATEST:
            self.times[name] = value

    @property
    def owner(self) -> PodOwner | None:
        """The controller, of several the one that is told most; else the only owner there is."""
        controllers = [(-often, one.kind, one.name, one) for one, (controls, often) in self.owners.items() if controls]
        if controllers or self.creator is not None:
            return min(controllers)[3] if controllers else self.creator
        return next(iter(self.owners)) if len(self.owners) == 1 else None


def _lives(key: Key, by_uid: Mapping[str, _Told]) -> tuple[Life, ...]:
    """Older releases tell the UID in some of the series alone: what comes without one is of every pod of the name."""
    common = by_uid.get("") or _Told()
    lives = []
    for uid, own in by_uid.items():
        if uid == "" and len(by_uid) > 1:
            continue
        told = own if own.is_told or uid == "" else common
        images, labels = own.images or common.images, own.labels or common.labels
        times = {**(common.times if len(by_uid) <= 2 else {}), **own.times}
        started = times.get("kube_pod_start_time")
        pod = Pod(
            key[1], key[2], uid or None, told.owner, told.is_told or common.is_told,
            times.get("kube_pod_created", started), started, containers=frozenset(images), labels=labels,
        )  # fmt: skip
        lives.append(Life(pod, images))
    return tuple(sorted(lives, key=lambda one: (one.pod.created_seconds or 0.0, one.pod.uid or "")))


def _owner(labels: Labels, prefix: str) -> PodOwner | None:
    kind, name = labels.get(f"{prefix}_kind", ""), labels.get(f"{prefix}_name", "")
    return None if kind in _NOBODY or name in _NOBODY else PodOwner(kind[:_MOST_TEXT], name[:_MOST_TEXT])


def _space(labels: Labels) -> tuple[str, str]:
    return labels.get("cluster", ""), labels.get("exported_namespace") or labels.get("namespace", "")


def _kubernetes_labels(labels: Labels) -> dict[str, str]:
    return {
        name.removeprefix("label_"): value[:_MOST_TEXT] for name, value in labels.items() if name.startswith("label_")
    }
