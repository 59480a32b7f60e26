"""GPUs by kube-state-metrics: how many a node offers, which pods request them, and those of vendors that are not read.

Its replicas report everything twice, so series are joined by what they name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd

from ....core.coded_text import CodedText, coded
from ....core.formatting import listed
from ..client.range_planner import Ask
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..promql import CLUSTER_LABELS, cluster_of, label_of, selector

Ranges = Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]]
_Counts = dict[tuple[str, ...], Floats]
NodeKey = tuple[str, str]
"""A node's cluster (empty: no label names one) and its name there."""
REQUESTS = ["node", "namespace", "pod", "container", "resource", "count", "ts_start", "ts_end"]
KUBE_NODE = ("exported_node", "node", *CLUSTER_LABELS)
_POD = ("exported_namespace", "namespace", "exported_pod", "pod", *CLUSTER_LABELS)
# The device plugin adds "shared" where time slicing renames resources (renameByDefault).
_NVIDIA = "nvidia_com_(gpu|mig_.+)(_shared)?"
_OTHERS = {"amd_com_gpu": "AMD", "gpu_intel_com_i915": "Intel", "gpu_intel_com_xe": "Intel", "habana_ai_gaudi": "Intel"}
_MIG = re.compile(r"nvidia_com_mig_([1-7])g_.+")
MOST_GPUS = 1024  # no node comes near
# A row's end is looked back from so far: a scrape or two may be missing.
BACK = "15m"
PODS_A_QUERY = 150


@dataclass(frozen=True)
class KubeNode:
    """A node with GPUs. `gpus`: the most at once under their own names, which time slicing and HAMi multiply; `shares`:
    the most under names of shares; `first`, `last`: of the rows that say so, Unix seconds; `divided`: into instances.
    """

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

    def ask(name: str, metrics: Sequence[str], resources: str, by: Sequence[str], more: str = "") -> SeriesAnswer:
        metric = next((metric for metric in metrics if metric in names), None)
        if metric is None:
            return SeriesAnswer.nothing(grid.count)
        chosen = selector(matches, f'resource=~"{resources}"')
        query = f"max by ({', '.join(by)}) (max_over_time({metric}{chosen}[{BACK}]){more})"
        return ranges([Ask(name, query, tuple(by))], series)[name]

    metrics = ("kube_node_status_capacity", "kube_node_status_allocatable")
    offered = _counted(ask("GPUs of nodes", metrics, "|".join((_NVIDIA, *_OTHERS)), (*KUBE_NODE, "resource")))
    # Pods that are over keep their requests; without the series of phases every listed pod counts.
    running = selector(matches, 'phase="Running"')
    more = f" and on ({', '.join(_POD)}) (max_over_time(kube_pod_status_phase{running}[{BACK}]) >= 1)"
    more = more if "kube_pod_status_phase" in names else ""
    # Of a GPU requests and limits are the same; a cluster may keep one of them alone.
    metrics = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
    by = (*_POD, "exported_container", "container", "exported_node", "node", "resource")
    columns = ("namespace", "pod", "container")
    requested = _counted(ask("GPUs requested", metrics, _NVIDIA, by, more), *columns)
    rows = []
    for key, counts in requested.items():
        rows += [(*key[:2], *(text or None for text in key[2:]), *run) for run in _runs(counts, grid)]
    requests = pd.DataFrame(rows, columns=["cluster", *REQUESTS])
    nodes = _nodes(requested, grid) | _nodes(offered, grid)
    return KubeState(dict(sorted(nodes.items())), requests, tuple(_other_vendors(offered)))


def _counted(answer: SeriesAnswer, *names: str) -> _Counts:
    """GPUs by cluster, node, labels of these names and resource; the largest where several series say so."""
    out: _Counts = {}
    # In parts, or beyond all that nodes have, they are no reading.
    is_count = (answer.values >= 0) & (answer.values <= MOST_GPUS) & (answer.values % 1 == 0)
    for labels, counts in zip(answer.labels, np.where(is_count, answer.values, 0.0), strict=True):
        key = (*node_key(labels), *(label_of(labels, name) for name in (*names, "resource")))
        if key[1]:
            out[key] = np.maximum(out.get(key, 0.0), counts)
    return out


def _nodes(counted: _Counts, grid: Grid) -> dict[NodeKey, KubeNode]:
    by_node: dict[NodeKey, list[tuple[str, Floats]]] = defaultdict(list)
    for (cluster, node, *_, resource), counts in counted.items():
        if resource not in _OTHERS and counts.any():
            by_node[cluster, node].append((resource, counts))
    nodes = {}
    for key, requests in by_node.items():
        profiles = [_MIG.fullmatch(resource) for resource, _ in requests]
        is_share = np.array([resource.endswith("_shared") for resource, _ in requests])
        sizes = np.array([int(profile[1]) / 7 if profile else 1.0 for profile in profiles])
        counts = np.array([counts for _, counts in requests])
        # As few GPUs as can hold the instances.
        gpus, shares = np.ceil(np.where(is_share, 0.0, sizes) @ counts - 1e-9), is_share @ counts
        at = np.flatnonzero(gpus + shares)
        first, last = grid.start + (at[0] - 1) * grid.step, grid.start + at[-1] * grid.step
        nodes[key] = KubeNode(int(gpus.max()), float(first), float(last), any(profiles), int(shares.max()))
    return nodes


def _other_vendors(offered: _Counts) -> Iterator[CodedText]:
    by_vendor: dict[str, Counter[NodeKey]] = defaultdict(Counter)
    for (cluster, node, resource), counts in offered.items():
        if resource in _OTHERS and counts.any():
            by_vendor[_OTHERS[resource]][cluster, node] += int(counts.max())
    for vendor, nodes in by_vendor.items():
        yield vendor_note(vendor, nodes.total(), sorted(name for _, name in nodes))


def vendor_note(vendor: str, gpus: int, nodes: Sequence[str]) -> CodedText:
    """`nodes`: the names of those that have them."""
    where = f" on {listed(nodes)}" if nodes else ""
    text = "{gpus} {vendor} GPUs{where} are not evaluated: only NVIDIA GPUs are. They are not part of any total."
    return coded("vendor-not-read", text, vendor=vendor, gpus=gpus, where=where)


def node_key(labels: Labels) -> NodeKey:
    return cluster_of(labels), label_of(labels, "node")


def _runs(counts: Floats, grid: Grid) -> list[tuple[float, float, float]]:
    """Count, begin and end of each run of one count above 0; one row that is missing within a run is bridged."""
    filled = counts.copy()
    is_hole = (counts[1:-1] == 0) & (counts[:-2] == counts[2:])
    filled[1:-1][is_hole] = counts[2:][is_hole]
    edges = np.flatnonzero(np.diff(filled, prepend=0.0, append=0.0)).tolist()
    at = grid.start - grid.step
    return [(float(filled[a]), at + a * grid.step, at + b * grid.step) for a, b in pairwise(edges) if filled[a] > 0]
