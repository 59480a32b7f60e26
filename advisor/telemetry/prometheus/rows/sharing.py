"""Pods that share GPUs and that no series of a GPU names: by requests for shares, and by groups of KAI Scheduler.

dcgm-exporter names at most one of the pods that share a device by time slicing or MPS, and only the pod that reserves a
device for fractions of KAI Scheduler or Run:ai.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .....agent.inventory.identity.ids import series_id, workload_id
from .....agent.inventory.kubernetes.pod_names import controller_of
from .....agent.inventory.kubernetes.pods import RESERVATION_NAMESPACES
from ....core.records import records, text
from ..client.range_planner import Ask
from ..client.response import Grid, SeriesAnswer
from ..owners.owners import label_of
from ..promql import promql as queries
from ..promql.labels import CLUSTER_LABELS, cluster_of
from .gpus import About
from .workloads import held_spans

GPU_GROUP = "label_runai_gpu_group"
_POD = (*CLUSTER_LABELS, "exported_namespace", "namespace", "exported_pod", "pod")
_Span = tuple[float, float]


def with_groups(
    uses: pd.DataFrame, ranges: Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]], names: Iterable[str],
    matches: Sequence[str], grid: Grid,
) -> pd.DataFrame:  # fmt: skip
    """The uses with those of pods that reserve a GPU given to the pods of its group, as long as there are any. Without
    the label ``runai-gpu-group`` in kube_pod_labels a GPU stays held by the pod that reserves it."""
    if uses.empty or "kube_pod_labels" not in names or not uses["namespace"].isin(RESERVATION_NAMESPACES).any():
        return uses
    by = (*_POD, GPU_GROUP)
    chosen = queries.selector(matches, f'{GPU_GROUP}!=""')
    query = f"max by ({', '.join(by)}) (last_over_time(kube_pod_labels{chosen}{queries.row_range(grid.step)}))"
    answer = ranges([Ask("GPU groups of pods", query, by)], len(uses))["GPU groups of pods"]
    members: dict[str, list[tuple[str, str, str, _Span]]] = {}
    group_of: dict[tuple[str, str], str] = {}
    for labels, values in zip(answer.labels, answer.values, strict=True):
        pod = label_of(labels, "namespace"), label_of(labels, "pod")
        if pod[0] in RESERVATION_NAMESPACES:
            group_of[pod] = labels[GPU_GROUP]
            continue
        for span in held_spans(np.where(np.isnan(values), 0.0, grid.step), grid):
            members.setdefault(labels[GPU_GROUP], []).append((cluster_of(labels), *pod, span))
    out: list[dict[str, Any]] = []
    for row in map(dict, records(uses)):
        group = group_of.get((text(row["namespace"]) or "", text(row["pod"]) or ""), "")
        start, end = float(row["ts_start"]), float(row["ts_end"])
        shares = [
            (namespace, pod, max(a, start), min(b, end)) for cluster, namespace, pod, (a, b) in members.get(group, ())
            if min(b, end) > max(a, start) and cluster in ("", row["cluster"])
        ]  # fmt: skip
        out += [_shared(row, *share) for share in shares] or [row]
    return pd.DataFrame(out)


def with_requests(
    uses: pd.DataFrame, requests: pd.DataFrame, about: Mapping[str, About], step: float, *, offered: Mapping[str, int]
) -> pd.DataFrame:
    """The uses with pods that request shares of a node's GPUs and that no series names, each on as many GPUs as it
    requests: those with the fewest holders, as NVIDIA's device plugin distributes replicas. The node's GPUs are then
    shared, whoever is named. `requests`: of pods that ran; `step`: seconds of a row; `offered`: GPUs that Kubernetes
    offers by node, at least twice as many where they are replicas."""
    gpus: dict[str, list[str]] = {}
    for key, one in about.items():
        gpus.setdefault(one.node, []).append(one.uuid or key)
    divided = {one.node for one in about.values() if one.kind == "mig"}
    whole = requests[requests["resource"].astype(str).str.startswith("nvidia_com_gpu")]
    added: list[dict[str, Any]] = []
    for node, rows in whole.groupby("node"):
        own = sorted(set(gpus.get(str(node), ())))
        most = _most_at_once(rows, step)
        are_replicas = most > len(own) and max(most, offered.get(str(node), 0)) >= 2 * len(own)
        if not own or node in divided or not (are_replicas or rows["resource"].str.contains("shared").any()):
            continue
        here = uses[uses["node"] == node] if not uses.empty else uses
        named = set(zip(here["namespace"], here["pod"], strict=True)) if len(here) else set()
        unnamed = [row for row in records(rows.sort_values("ts_start")) if (row["namespace"], row["pod"]) not in named]
        if not unnamed:
            continue
        held: dict[str, list[_Span]] = {uuid: [] for uuid in own}
        for row in records(here):
            held.setdefault(row["gpu_uuid"], []).append((row["ts_start"], row["ts_end"]))
        for row in unnamed:
            start, end = float(row["ts_start"]), float(row["ts_end"])
            order = sorted(own, key=lambda uuid: (sum(a < end and b > start for a, b in held[uuid]), uuid))
            for uuid in order[: max(1, int(row["count"]))]:
                held[uuid].append((start, end))
                base = {"node": node, "gpu_uuid": uuid, "basis": "allocation", "scheduler": "kubernetes"}
                base["cluster"] = here["cluster"].iloc[0] if len(here) else ""
                added.append(_shared(base, row["namespace"], row["pod"], start, end))
        if len(here):
            uses = uses.assign(shared=uses["shared"].where(uses["node"] != node, 1.0))
    return pd.concat([uses, pd.DataFrame(added)], ignore_index=True) if added else uses


def _most_at_once(requests: pd.DataFrame, step: float) -> float:
    """The most GPUs that the pods of one node request at a moment. A row in which one pod followed another has both:
    the first row of each is left out."""
    requests = requests[requests["ts_end"] - requests["ts_start"] > step]
    times = np.concatenate([requests["ts_end"], requests["ts_start"] + step]).astype(float)
    counts = np.concatenate([-requests["count"], requests["count"]]).astype(float)
    order = np.argsort(times, kind="stable")  # what ends at a moment ends before what begins there
    return float(np.cumsum(counts[order]).max(initial=0.0))


def _shared(base: Mapping[str, Any], namespace: str | None, pod: str, start: float, end: float) -> dict[str, Any]:
    """A use by a pod that shares the GPU."""
    cluster, name = text(base["cluster"]) or "", controller_of(pod)
    return {
        **base, "workload_id": workload_id(cluster, "kubernetes", "pod", namespace or "", pod),
        "series_id": series_id(cluster, namespace, None, name), "name": name, "namespace": namespace, "pod": pod,
        "ts_start": start, "ts_end": end, "shared": 1.0, "mem_used_bytes": np.nan,
    }  # fmt: skip
