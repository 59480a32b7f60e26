"""Uses of GPUs by pods, with what kube-state-metrics reports of the pods: workload, team, image, start.

A series of a GPU names a pod by its name, which several pods may have had one after the other: a use is cut where the
next one was created. Without kube-state-metrics a use stays as the exporter's labels name it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd

from .....agent.inventory.identity.ids import workload_id
from .....agent.inventory.kubernetes.pods import Objects, Pod, PodWork, pod_parts, team_of_pod, works_of
from ....core.records import records, text
from ..client.response import Grid, Labels
from .owners import Held, KubeOwners, Life, label_of

# An exporter may name a pod for so long after its end.
_LAG_SECONDS = 120.0
Holders = Mapping[tuple[str, str], frozenset[str]]
"""(namespace, pod) -> the containers that hold its GPUs."""
_Record = dict[str, Any]
_LifeKey = tuple[str, str, str]


def pods_held(uses: pd.DataFrame) -> dict[tuple[str, str], Held]:
    """(namespace, pod) -> when it first and last held a GPU, of the uses by pods."""
    if uses.empty or "pod" not in uses:
        return {}
    pods = uses[(uses["scheduler"] == "kubernetes") & uses["pod"].notna()]
    spans = pods.assign(namespace=pods["namespace"].fillna("")).groupby(["namespace", "pod"])
    found = spans.agg(first=("ts_start", "min"), last=("ts_end", "max")).astype(float)
    return {(str(row.Index[0]), str(row.Index[1])): (row.first, row.last) for row in found.itertuples()}  # type: ignore[attr-defined, misc]


def holders_of(requests: pd.DataFrame, exporters: Iterable[Labels]) -> Holders:
    """The containers that request a pod's GPUs, else those that dcgm-exporter names."""
    asked: dict[tuple[str, str], set[str]] = {}
    for namespace, pod, container in zip(requests["namespace"], requests["pod"], requests["container"], strict=True):
        if pod and container:
            asked.setdefault((namespace or "", pod), set()).add(container)
    named: dict[tuple[str, str], set[str]] = {}
    for labels in exporters:
        pod, container = label_of(labels, "pod"), label_of(labels, "container")
        if pod and container:
            named.setdefault((label_of(labels, "namespace"), pod), set()).add(container)
    return {key: frozenset(one) for key, one in {**named, **asked}.items()}


def owned(
    uses: pd.DataFrame, owners: KubeOwners, holders: Holders, grid: Grid, team_labels: Sequence[str], *,
    requesting: Collection[tuple[str, str]] = (),
) -> pd.DataFrame:  # fmt: skip
    """The same uses with the workloads, names, kinds, images and teams that pods have by what owns them, without those
    of an exporter's own pods. `requesting`: namespace and name of the pods that request GPUs, empty: unknown."""
    if uses.empty or not owners.lives:
        return uses
    out: list[_Record] = []
    by_cluster: dict[tuple[str, str], list[tuple[_Record, Life]]] = {}
    for row in map(dict, records(uses)):
        namespace, pod, cluster = (text(row.get(name)) or "" for name in ("namespace", "pod", "cluster"))
        found = owners.cluster_of(cluster, namespace, pod) if row["scheduler"] == "kubernetes" and pod else None
        if found is None:
            out.append(row)
        else:
            lives = owners.lives[found, namespace, pod]
            if not _is_exporter(lives[-1], requesting):
                by_cluster.setdefault((cluster, found), []).extend(_pieces(row, lives, cluster, grid))
    for (cluster, found), parts in by_cluster.items():
        objects = owners.objects.get(found, Objects())
        leaders = [
            life.pod for (of, _, _), several in owners.lives.items() if of == found for life in several
            if not life.pod.has_gpus
        ]  # fmt: skip
        works = _works(cluster, parts, leaders, objects)
        out += [
            {
                **row, "workload_id": work.workload_id, "series_id": work.series_id, "name": work.name,
                "controller_kind": work.kind, "image": _image(life, holders),
                "team": team_of_pod(life.pod, objects, team_labels),
            }
            for row, life in parts if (work := works[_key(life)])
        ]  # fmt: skip
    return pd.DataFrame(out)


def _is_exporter(life: Life, requesting: Collection[tuple[str, str]]) -> bool:
    """Whether a pod is an exporter's: a DaemonSet's pod that requests no GPUs; where requests are unknown, one with
    dcgm-exporter's DaemonSet or image."""
    owner = life.pod.owner
    if owner is None or owner.kind != "DaemonSet" or (life.pod.namespace, life.pod.name) in requesting:
        return False
    return bool(requesting) or any("dcgm-exporter" in name for name in (owner.name, *life.images.values()))


def _pieces(row: _Record, lives: Sequence[Life], cluster: str, grid: Grid) -> list[tuple[_Record, Life]]:
    """A use by the pods that had its pod's name, the oldest first."""
    ids = ((workload_id(cluster, "kubernetes", *pod_parts(life.pod)), life) for life in lives if life.pod.uid)
    by_uid = next((life for id_, life in ids if id_ == row["workload_id"]), None)
    if by_uid is not None:
        return [_from_its_start(row, by_uid, grid)]
    start, end = float(row["ts_start"]), float(row["ts_end"])
    first = lives[0].pod.created_seconds
    if first is not None and first > start + grid.step:
        # Nothing is known of what had the name before; a StatefulSet's pod has the same owner every time.
        earlier = replace(lives[0].pod, uid=None, created_seconds=None, started_seconds=None)
        lives = [Life(earlier, lives[0].images), *lives]
    row_end = _row_end(start, end, grid)
    # Where in a row a shorter use was is not known: it is of the pod that had the name for most of the row.
    since, until = (start, end) if row_end is None else (row_end - grid.step, row_end)
    begins = [-math.inf, *(life.pod.created_seconds or -math.inf for life in lives[1:]), math.inf]
    spans = [(max(since, a), min(until, b), life) for life, (a, b) in zip(lives, pairwise(begins), strict=True)]
    longest = max(spans, key=lambda span: span[1] - span[0])
    if row_end is not None:
        return [_from_its_start(row, longest[2], grid)]
    kept = [span for span in spans if span[1] - span[0] > _LAG_SECONDS] or [longest]
    return [_from_its_start({**row, "ts_start": a, "ts_end": b}, life, grid) for a, b, life in kept]


def _from_its_start(row: _Record, life: Life, grid: Grid) -> tuple[_Record, Life]:
    """A use with its pod's own start where the two are within a row: a pod's GPUs are its own from its start on."""
    start, end = float(row["ts_start"]), float(row["ts_end"])
    row_end, began = _row_end(start, end, grid), life.pod.started_seconds
    if began is None or began >= (row_end or end):
        return {**row, "began": None}, life
    if abs(began - start) <= grid.step:
        end = min(row_end, end + began - start) if row_end is not None and began > start else end
        start = began
    return {**row, "ts_start": start, "ts_end": end, "began": began}, life


def _row_end(start: float, end: float, grid: Grid) -> float | None:
    """The end of the row in which a use lies as a whole; None: it does not lie in one."""
    row_end = grid.start + math.ceil((end - grid.start) / grid.step - 1e-9) * grid.step
    return row_end if start >= row_end - grid.step and end < row_end else None


def _key(life: Life) -> _LifeKey:
    pod = life.pod
    return pod.namespace, pod.name, pod.uid or ("?" if pod.created_seconds is None else "")


def _works(
    cluster: str, parts: Iterable[tuple[_Record, Life]], leaders: Sequence[Pod], objects: Objects
) -> dict[_LifeKey, PodWork]:
    """The work of each pod of one cluster. `leaders`: pods that hold no GPU, but own others."""
    pods: dict[_LifeKey, Pod] = {}
    for row, life in parts:
        key = _key(life)
        last = pods[key].ended_seconds if key in pods else -math.inf
        pods[key] = replace(life.pod, ended_seconds=max(last, float(row["ts_end"])))
    others = [pod for pod in leaders if _key(Life(pod)) not in pods]
    return dict(zip(pods, works_of(cluster, [*pods.values(), *others], objects), strict=False))


def _image(life: Life, holders: Holders) -> str | None:
    """The image of the container that holds the GPUs; None where that is in doubt."""
    containers = holders.get((life.pod.namespace, life.pod.name), frozenset())
    images = {life.images[name] for name in containers if name in life.images} or set(life.images.values())
    return images.pop() or None if len(images) == 1 else None
