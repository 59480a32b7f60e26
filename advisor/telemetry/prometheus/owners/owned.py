"""Uses of GPUs by pods, with what kube-state-metrics tells of the pods: whose work it is, since when, by which image.

A series of a GPU names a pod by its name alone, which several pods may have had one after the other: a use is cut where
the next one was made. Without kube-state-metrics a use stays as the exporter's labels tell it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from .....agent.inventory.identity.ids import workload_id
from .....agent.inventory.kubernetes.pods import Objects, Pod, PodWork, pod_parts, team_of_pod, works_of
from ..client.response import Grid, Labels
from .owners import Held, KubeOwners, Life

# An exporter may name a pod for so long after its end.
_LAG_SECONDS = 120.0
Record = dict[str, object]
_PodName = tuple[str, str]
_LifeKey = tuple[str, str, str]
_Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Holders:
    """Containers that asked for GPUs, or that an exporter names: (namespace, pod) -> names."""

    containers: Mapping[_PodName, frozenset[str]]


def pods_held(uses: pd.DataFrame) -> dict[_PodName, Held]:
    """(namespace, pod) -> when it first and last held a GPU, of the uses by pods."""
    if uses.empty or "pod" not in uses:
        return {}
    pods = uses[(uses["scheduler"] == "kubernetes") & uses["pod"].notna()]
    grouped = pods.assign(namespace=pods["namespace"].fillna("")).groupby(["namespace", "pod"])
    first, last = grouped["ts_start"].min(), grouped["ts_end"].max()
    spans = zip(first.index, first.to_numpy(float).tolist(), last.to_numpy(float).tolist(), strict=True)
    return {(str(namespace), str(pod)): (begin, end) for (namespace, pod), begin, end in spans}


def holders_of(requests: pd.DataFrame, exporters: Sequence[Labels]) -> Holders:
    """Who holds the GPUs of a pod: the containers that request them, else those that dcgm-exporter names."""
    asked: dict[_PodName, set[str]] = {}
    for namespace, pod, container in zip(requests["namespace"], requests["pod"], requests["container"], strict=True):
        if pod and container:
            asked.setdefault((namespace or "", pod), set()).add(container)
    named: dict[_PodName, set[str]] = {}
    for labels in exporters:
        pod, container = (labels.get(f"exported_{name}") or labels.get(name, "") for name in ("pod", "container"))
        if pod and container and "exporter" not in container:
            namespace = labels.get("exported_namespace") or labels.get("namespace", "")
            named.setdefault((namespace, pod), set()).add(container)
    return Holders({key: frozenset(one) for key, one in {**named, **asked}.items()})


def owned(
    uses: pd.DataFrame, owners: KubeOwners, holders: Holders, grid: Grid, team_labels: Sequence[str]
) -> pd.DataFrame:
    """The same uses with the workloads, names, kinds, images and teams that pods have by what owns them."""
    if uses.empty or not owners.lives:
        return uses
    rows: list[Record] = uses.to_dict("records")  # type: ignore[assignment]
    out: list[Record] = []
    held: dict[tuple[str, str], list[tuple[Record, Sequence[Life]]]] = {}
    for row in rows:
        namespace, pod = _text(row.get("namespace")), _text(row.get("pod"))
        own, told = _text(row.get("cluster")), None
        if row["scheduler"] == "kubernetes" and pod:
            told = owners.cluster_of(own, namespace, pod)
        if told is None:
            out.append(row)
            continue
        held.setdefault((own, told), []).append((row, owners.lives[told, namespace, pod]))
    for (own, told), some in held.items():
        objects = owners.objects.get(told, Objects())
        parts = _aligned(_parted(some, own, grid), grid)
        out += [
            {
                **row, "workload_id": work.workload_id, "series_id": work.series_id, "name": work.name,
                "controller_kind": work.kind, "image": _image(life, holders),
                "team": team_of_pod(life.pod, objects, team_labels),
            }
            for row, life, work in _worked(own, parts, _leaders(owners, told), objects)
        ]  # fmt: skip
    return pd.DataFrame(out)


def _parted(uses: Sequence[tuple[Record, Sequence[Life]]], cluster: str, grid: Grid) -> list[tuple[Record, Life]]:
    """Each use with the pod whose it is, of those that had its name; one that was several pods' is cut."""
    parts: list[tuple[Record, Life]] = []
    within: list[tuple[Record, Sequence[Life], float]] = []
    for row, lives in uses:
        row_end = _row_end(row, grid)
        if row_end is not None:
            within.append((row, lives, row_end))
        elif (life := _named(row, lives, cluster)) is not None:
            parts.append((row, life))
        else:
            parts += _cut(row, lives, grid)
    known = {_key(life) for _, life in parts}
    for row, lives, row_end in within:
        life = _named(row, lives, cluster) or _life_within(row, lives, (row_end - grid.step, row_end), known)
        parts.append((row, life))
    return parts


def _named(row: Record, lives: Sequence[Life], cluster: str) -> Life | None:
    """The pod that a use names by its UID, as our agent does."""
    ids = ((workload_id(cluster, "kubernetes", *pod_parts(life.pod)), life) for life in lives if life.pod.uid)
    return next((life for id_, life in ids if id_ == row["workload_id"]), None)


def _cut(row: Record, lives: Sequence[Life], grid: Grid) -> list[tuple[Record, Life]]:
    """A use by the pods that had the name, the oldest first."""
    start, end = _span(row)
    parts: list[tuple[Record, Life]] = []
    current = lives[0]
    first = current.pod.created_seconds
    if first is not None and first > start + grid.step:
        # What had the name before is not told; a StatefulSet's pod has the same owner every time.
        current = Life(replace(current.pod, uid=None, created_seconds=None, started_seconds=None), current.images)
        following = lives
    else:
        following = lives[1:]
    for life in following:
        made = life.pod.created_seconds
        if made is None or made > end - _LAG_SECONDS:
            continue
        if made > start + _LAG_SECONDS:
            parts.append(({**row, "ts_start": start, "ts_end": made}, current))
            start = made
        current = life
    parts.append(({**row, "ts_start": start, "ts_end": end}, current))
    return parts


def _aligned(parts: Sequence[tuple[Record, Life]], grid: Grid) -> list[tuple[Record, Life]]:
    """The uses with their pods' own start where it lies within a row of the first: rows tell it to a row. A pod's GPUs
    are its own from its start on."""
    first: dict[_LifeKey, float] = {}
    for row, life in parts:
        key = _key(life)
        first[key] = min(first.get(key, math.inf), _span(row)[0])
    out = []
    for row, life in parts:
        start, end = _span(row)
        row_end, begin = _row_end(row, grid), life.pod.started_seconds
        began = begin if begin is not None and begin < (row_end or end) else None
        if began is not None and start <= first[_key(life)] + grid.step and abs(began - start) <= grid.step:
            if row_end is not None and began > start:
                end = min(row_end, end + began - start)
            start = began
        if end > start:
            out.append(({**row, "ts_start": start, "ts_end": end, "began": began}, life))
    return out


def _life_within(use: Record, lives: Sequence[Life], within: _Span, known: Collection[_LifeKey]) -> Life:
    """Whose a use is that lies within one row. `known`: pods that held GPUs for more than a row.

    Of the pods of one name it is one that had so long in the row until the next was made; rather one that is not known,
    as a pod holds all its GPUs for all its life; and the one it fills best.
    """
    start, end = within
    since, until = _span(use)
    held = until - since
    began = [one for one in lives if (one.pod.created_seconds or 0.0) < end] or [lives[0]]
    made = [max(one.pod.created_seconds or 0.0, start) for one in began]
    had = [(one, after - at) for one, at, after in zip(began, made, [*made[1:], end], strict=True)]
    fitting = [(abs(time - held), one) for one, time in had if time > 0 and time - held >= -_LAG_SECONDS]
    free = [each for each in fitting if _key(each[1]) not in known]
    return min(reversed(free or fitting), key=lambda each: each[0], default=(0.0, began[-1]))[1]


def _row_end(row: Record, grid: Grid) -> float | None:
    """The end of the row in which a use lies as a whole: then its length is known, and not where in the row it was."""
    start, end = _span(row)
    row_end = grid.start + math.ceil((end - grid.start) / grid.step - 1e-9) * grid.step
    return row_end if start >= row_end - grid.step and end < row_end else None


def _span(row: Record) -> _Span:
    return float(row["ts_start"]), float(row["ts_end"])  # type: ignore[arg-type]


def _key(life: Life) -> _LifeKey:
    pod = life.pod
    return pod.namespace, pod.name, pod.uid or ("?" if pod.created_seconds is None else "")


def _worked(
    cluster: str, parts: Sequence[tuple[Record, Life]], leaders: Sequence[Pod], objects: Objects
) -> list[tuple[Record, Life, PodWork]]:
    """The uses of one cluster with the work that each is part of. `leaders`: pods that hold no GPU, but own others."""
    lives: dict[_LifeKey, Life] = {}
    ends: dict[_LifeKey, float] = {}
    for row, life in parts:
        key = _key(life)
        lives[key] = life
        ends[key] = max(ends.get(key, -math.inf), _span(row)[1])
    keys = list(lives)
    pods = [replace(lives[key].pod, ended_seconds=ends[key]) for key in keys]
    others = [one for one in leaders if _key(Life(one)) not in lives]
    works = dict(zip(keys, works_of(cluster, [*pods, *others], objects), strict=False))
    return [(row, life, works[_key(life)]) for row, life in parts]


def _image(life: Life, holders: Holders) -> str | None:
    """Of the container that holds the GPUs, where that is beyond doubt."""
    asking = holders.containers.get((life.pod.namespace, life.pod.name), frozenset())
    images = {life.images[name] for name in asking if name in life.images} or set(life.images.values())
    return images.pop() or None if len(images) == 1 else None


def _leaders(owners: KubeOwners, cluster: str) -> list[Pod]:
    return [
        life.pod for (own, _, _), several in owners.lives.items() if own == cluster for life in several
        if not life.pod.has_gpus
    ]  # fmt: skip


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
