"""Uses of GPUs by pods, with what kube-state-metrics reports of the pods: workload, team, image, start.

A series of a GPU names a pod by its name, which several pods may have had one after the other: a use is cut where the
next one was created. Without kube-state-metrics a use stays as the exporter's labels name it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd

from .....agent.inventory.identity.ids import workload_id
from .....agent.inventory.kubernetes.pods import Objects, Pod, pod_parts, team_of_pod, works_of
from ....core.records import records, text
from ..client.response import Grid, Labels
from .owners import Held, Holders, KubeOwners, label_of

# An exporter may name a pod for so long after its end.
_LAG_SECONDS = 120.0
_Record = dict[str, Any]
_PodKey = tuple[str, str, str]


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
    uses: pd.DataFrame, owners: KubeOwners, grid: Grid, team_labels: Sequence[str] = (), *,
    requesting: Collection[tuple[str, str]] = (),
) -> pd.DataFrame:  # fmt: skip
    """The same uses with the workloads, names, kinds, images and teams that pods have by what owns them, without those
    of an exporter's own pods. `requesting`: namespace and name of the pods that request GPUs, empty: unknown."""
    if uses.empty or not owners.pods:
        return uses
    out: list[_Record] = []
    by_cluster: dict[tuple[str, str], list[tuple[_Record, Pod]]] = defaultdict(list)
    for row in map(dict, records(uses)):
        namespace, name, cluster = (text(row.get(column)) or "" for column in ("namespace", "pod", "cluster"))
        found = owners.cluster_of(cluster, namespace, name) if row["scheduler"] == "kubernetes" and name else None
        if found is None:
            out.append(row)
            continue
        pods = owners.pods[found, namespace, name]
        if not _is_exporter(pods[-1], requesting):
            by_cluster[cluster, found] += _pieces(row, pods, cluster, grid)
    for (cluster, found), parts in by_cluster.items():
        objects = owners.objects.get(found, Objects())
        members: dict[_PodKey, Pod] = {}
        for row, pod in parts:
            last = members[_key(pod)].ended_seconds if _key(pod) in members else -math.inf
            members[_key(pod)] = replace(pod, ended_seconds=max(last, float(row["ts_end"])))
        for key, several in owners.pods.items():
            if key[0] == found:
                members |= {_key(pod): pod for pod in several if not pod.has_gpus and _key(pod) not in members}
        works = dict(zip(members, works_of(cluster, list(members.values()), objects), strict=True))
        for row, pod in parts:
            work = works[_key(pod)]
            out.append({
                **row, "workload_id": work.workload_id, "series_id": work.series_id, "name": work.name,
                "controller_kind": work.kind, "image": pod.image, "team": team_of_pod(pod, objects, team_labels),
            })  # fmt: skip
    return pd.DataFrame(out)


def _is_exporter(pod: Pod, requesting: Collection[tuple[str, str]]) -> bool:
    """Whether a pod is an exporter's: a DaemonSet's pod that requests no GPUs; where requests are unknown, one with
    dcgm-exporter's DaemonSet or image."""
    if pod.owner is None or pod.owner.kind != "DaemonSet" or (pod.namespace, pod.name) in requesting:
        return False
    return bool(requesting) or any("dcgm-exporter" in name for name in (pod.owner.name, pod.image or ""))


def _pieces(row: _Record, pods: Sequence[Pod], cluster: str, grid: Grid) -> list[tuple[_Record, Pod]]:
    """A use by the pods that had its pod's name, the oldest first."""
    ids = ((workload_id(cluster, "kubernetes", *pod_parts(pod)), pod) for pod in pods if pod.uid)
    by_uid = next((pod for id_, pod in ids if id_ == row["workload_id"]), None)
    if by_uid is not None:
        return [_from_its_start(row, by_uid, grid)]
    start, end = float(row["ts_start"]), float(row["ts_end"])
    first = pods[0].created_seconds
    if first is not None and first > start + grid.step:
        # Nothing is known of what had the name before; a StatefulSet's pod has the same owner every time.
        pods = [replace(pods[0], uid=None, created_seconds=None, started_seconds=None), *pods]
    row_end = _row_end(start, end, grid)
    # Where in a row a shorter use was is not known: it is of the pod that had the name for most of the row.
    since, until = (start, end) if row_end is None else (row_end - grid.step, row_end)
    begins = [-math.inf, *(pod.created_seconds or -math.inf for pod in pods[1:]), math.inf]
    spans = [(max(since, a), min(until, b), pod) for pod, (a, b) in zip(pods, pairwise(begins), strict=True)]
    longest = max(spans, key=lambda span: span[1] - span[0])
    if row_end is not None:
        return [_from_its_start(row, longest[2], grid)]
    kept = [span for span in spans if span[1] - span[0] > _LAG_SECONDS] or [longest]
    return [_from_its_start({**row, "ts_start": a, "ts_end": b}, pod, grid) for a, b, pod in kept]


def _from_its_start(row: _Record, pod: Pod, grid: Grid) -> tuple[_Record, Pod]:
    """A use with its pod's own start where the two are within a row: a pod's GPUs are its own from its start on."""
    start, end = float(row["ts_start"]), float(row["ts_end"])
    row_end, began = _row_end(start, end, grid), pod.started_seconds
    if began is None or began >= (row_end or end):
        return {**row, "began": None}, pod
    if abs(began - start) <= grid.step:
        end = min(row_end, end + began - start) if row_end is not None and began > start else end
        start = began
    return {**row, "ts_start": start, "ts_end": end, "began": began}, pod


def _row_end(start: float, end: float, grid: Grid) -> float | None:
    """The end of the row in which a use lies as a whole; None: it does not lie in one."""
    row_end = grid.start + math.ceil((end - grid.start) / grid.step - 1e-9) * grid.step
    return row_end if start >= row_end - grid.step and end < row_end else None


def _key(pod: Pod) -> _PodKey:
    return pod.namespace, pod.name, pod.uid or ("?" if pod.created_seconds is None else "")
