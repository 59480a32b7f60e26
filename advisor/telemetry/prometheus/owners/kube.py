"""GPUs by kube-state-metrics: how many a node offers, which pods request them, and those of vendors that are not read.

Its replicas report everything twice, so series are joined by what they name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from ....core.coded_text import CodedText, coded
from ..client.range_planner import Ask
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..promql.labels import CLUSTER_LABELS, cluster_of
from ..promql.promql import selector

Ranges = Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]]
_Resources = dict["NodeKey", dict[str, Floats]]
NodeKey = tuple[str, str]
"""A node's cluster (empty: no label names one) and its name there."""
REQUESTS = ["node", "namespace", "pod", "container", "resource", "count", "ts_start", "ts_end"]
KUBE_NODE = ("exported_node", "node", *CLUSTER_LABELS)
_POD = ("exported_namespace", "namespace", "exported_pod", "pod")
# The device plugin adds "shared" where time slicing renames resources (renameByDefault).
_NVIDIA = "nvidia_com_(gpu|mig_.+)(_shared)?"
_OTHERS = {"amd_com_gpu": "AMD", "gpu_intel_com_i915": "Intel", "gpu_intel_com_xe": "Intel", "habana_ai_gaudi": "Intel"}
_SHARED = "_shared"
_MIG = re.compile(r"nvidia_com_mig_([1-7])g_.+")
_MOST_GPUS = 1024  # no node comes near
# A row's end is looked back from so far: a scrape or two may be missing.
BACK = "15m"
_HANDOVER_SECONDS = 3600.0
_PLAIN_POD = re.compile(r"[a-z0-9.-]{1,253}")
PODS_A_QUERY = 150


@dataclass(frozen=True)
class KubeNode:
    """A node that Kubernetes gives GPUs to. `gpus`: the most at once under their own names, which time slicing and HAMi
    multiply; `shares`: the most under names of shares. `first`, `last`: begin and end of the rows that say so, Unix
    seconds. `divided`: whether it offers instances."""

    gpus: int
    first: float
    last: float
    divided: bool = False
    shares: int = 0


@dataclass(frozen=True)
class KubeState:
    """`nodes`: nodes with GPUs, by capacity, else by what their pods requested; `requests`: the frame's table, and the
    ``cluster`` of each; `notes`: GPUs of other vendors."""

    nodes: Mapping[NodeKey, KubeNode] = field(default_factory=dict)
    requests: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["cluster", *REQUESTS]))
    notes: tuple[CodedText, ...] = ()


def read_kube(ranges: Ranges, names: Collection[str], matches: Sequence[str], grid: Grid, series: int) -> KubeState:
    """Ask; empty where the server does not scrape kube-state-metrics. `names`: metrics that the server has; `series`:
    how many are expected of a measure."""

    def ask(name: str, metrics: Sequence[str], resources: str, by: Sequence[str]) -> SeriesAnswer:
        metric = next((metric for metric in metrics if metric in names), None)
        if metric is None:
            return SeriesAnswer.nothing(grid.count)
        chosen = selector(matches, f'resource=~"{resources}"')
        query = f"max by ({', '.join(by)}) (max_over_time({metric}{chosen}[{BACK}]))"
        return ranges([Ask(name, query, tuple(by))], series)[name]

    offered: _Resources = {}
    metrics = ("kube_node_status_capacity", "kube_node_status_allocatable")
    answer = ask("GPUs of nodes", metrics, "|".join((_NVIDIA, *_OTHERS)), (*KUBE_NODE, "resource"))
    for (key, resource), values in _joined(answer, lambda labels: (node_key(labels), labels.get("resource", ""))):
        if key[1]:
            offered.setdefault(key, {})[resource] = _counts(values)
    # Of a GPU the two are the same; a cluster may keep one of them alone.
    metrics = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
    by = (*_POD, "exported_container", "container", *KUBE_NODE, "resource")
    answer = ask("GPUs requested", metrics, _NVIDIA, by)
    running = _running(ranges, names, matches, {_pod(labels)[2] for labels in answer.labels}, series)
    requested: _Resources = {}
    rows: list[tuple[object, ...]] = []
    for (key, pod, container, resource), values in _joined(
        answer,
        lambda labels: (node_key(labels), _pod(labels), _label(labels, "container"), labels.get("resource", "")),
    ):
        if not key[1]:
            continue
        count = np.where(running.get(pod, np.ones(grid.count)) >= 1, _counts(values), 0.0)
        own = requested.setdefault(key, {})
        own[resource] = own.get(resource, 0.0) + count
        about = (*key, pod[1] or None, pod[2] or None, container or None, resource)
        rows += [
            (*about, value, grid.start + (first - 1) * grid.step, grid.start + last * grid.step)
            for first, last, value in _runs(count)
        ]
    nodes = {}
    for key in sorted({*offered, *requested}):
        known = [node for part in (offered, requested) if (node := _node(part.get(key, {}), grid)) is not None]
        if known:
            first, last = min(node.first for node in known), max(node.last for node in known)
            nodes[key] = replace(known[0], first=first, last=last, divided=any(node.divided for node in known))
    return KubeState(nodes, pd.DataFrame(rows, columns=["cluster", *REQUESTS]), tuple(_other_vendors(offered)))


def _node(resources: Mapping[str, Floats], grid: Grid) -> KubeNode | None:
    whole, slices, shares = (np.zeros(grid.count) for _ in range(3))
    for resource, counts in resources.items():
        profile = _MIG.fullmatch(resource)
        if resource.endswith(_SHARED):
            shares += counts
        elif profile is not None:
            slices += int(profile.group(1)) * counts
        elif resource not in _OTHERS:
            whole += counts
    at = np.flatnonzero(whole + slices + shares > 0)
    if not len(at):
        return None
    gpus = whole + np.ceil(slices / 7 - 1e-9)  # as few as can hold the instances
    first, last = grid.start + (at[0] - 1) * grid.step, grid.start + at[-1] * grid.step
    divided = any(_MIG.fullmatch(resource) and counts.any() for resource, counts in resources.items())
    return KubeNode(int(gpus.max()), float(first), float(last), divided, int(shares.max()))


def _other_vendors(offered: _Resources) -> Iterable[CodedText]:
    """GPUs that exist and that no part of skuwise reads."""
    found: dict[str, dict[NodeKey, int]] = {}
    for key, resources in offered.items():
        for resource, counts in resources.items():
            if resource in _OTHERS and counts.any():
                own = found.setdefault(_OTHERS[resource], {})
                own[key] = own.get(key, 0) + int(counts.max())
    for vendor, nodes in found.items():
        yield vendor_note(vendor, sum(nodes.values()), sorted(name for _, name in nodes))


def vendor_note(vendor: str, gpus: int, nodes: Sequence[str] = ()) -> CodedText:
    where = f" on {', '.join(nodes[:3])}{f' and {len(nodes) - 3} more' if len(nodes) > 3 else ''}" if nodes else ""
    return coded(
        "vendor-not-read",
        "{gpus} {vendor} GPUs{where} are not evaluated: only NVIDIA GPUs are. They are not part of any total.",
        vendor=vendor, gpus=gpus, where=where,
    )  # fmt: skip


def shared_in_time(uses: pd.DataFrame) -> set[str]:
    """Nodes on which several workloads held a GPU at once for longer than a handover takes."""
    if uses.empty:
        return set()
    rows = uses.sort_values("ts_start")
    device = [rows["node"], rows["gpu_uuid"]]
    before = rows["ts_end"].groupby(device).cummax().groupby(device).shift()
    overlap = np.minimum(before, rows["ts_end"]) - rows["ts_start"]
    return set(rows.loc[overlap > _HANDOVER_SECONDS, "node"].astype(str))


def _running(
    ranges: Ranges, names: Collection[str], matches: Sequence[str], pods: Iterable[str], series: int
) -> dict[tuple[str, str, str], Floats]:
    """When each pod was in its running phase; without the series every listed pod counts."""
    if "kube_pod_status_phase" not in names:
        return {}
    plain = sorted(pod for pod in pods if _PLAIN_POD.fullmatch(pod))
    by, out = (*_POD, *CLUSTER_LABELS), {}
    for at in range(0, len(plain), PODS_A_QUERY):
        some = "|".join(pod.replace(".", "[.]") for pod in plain[at : at + PODS_A_QUERY])
        chosen = [selector(matches, 'phase="Running"', f'{label}=~"{some}"') for label in ("pod", "exported_pod")]
        parts = [f"max_over_time(kube_pod_status_phase{one}[{BACK}])" for one in chosen]
        query = f"max by ({', '.join(by)}) ({' or '.join(parts)})"
        out |= _joined(ranges([Ask("pods running", query, by)], series)["pods running"], _pod)
    return out


def _joined(answer: SeriesAnswer, key_of: Callable[[Labels], tuple]) -> Iterable[tuple[tuple, Floats]]:
    """Values by what the series name, the largest where several name it."""
    out: dict[tuple, Floats] = {}
    for labels, values in zip(answer.labels, answer.values, strict=True):
        key = key_of(labels)
        out[key] = np.fmax(out[key], values) if key in out else values
    return out.items()


def _counts(values: Floats) -> Floats:
    """Counts of GPUs: in parts, or beyond all that nodes have, they are no reading."""
    with np.errstate(invalid="ignore"):
        return np.where((values >= 0) & (values <= _MOST_GPUS) & (values % 1 == 0), values, 0.0)


def node_key(labels: Labels) -> NodeKey:
    return cluster_of(labels), _label(labels, "node")


def _pod(labels: Labels) -> tuple[str, str, str]:
    return cluster_of(labels), _label(labels, "namespace"), _label(labels, "pod")


def _label(labels: Labels, name: str) -> str:
    return labels.get(f"exported_{name}") or labels.get(name, "")


def _runs(count: Floats) -> list[tuple[int, int, float]]:
    """First and last row of each run of one count above 0; one row that is missing within a run is bridged."""
    filled = count.copy()
    for at in range(1, len(count) - 1):
        if filled[at] == 0 and filled[at - 1] == count[at + 1] > 0:
            filled[at] = filled[at - 1]
    bounds = [0, *(np.flatnonzero(np.diff(filled)) + 1).tolist(), len(filled)]
    return [(a, b - 1, float(filled[a])) for a, b in pairwise(bounds) if filled[a] > 0]
