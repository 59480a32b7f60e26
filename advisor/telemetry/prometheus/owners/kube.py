"""What kube-state-metrics says of GPUs: how many a node has, which pods requested them, and where exporters run.

Its replicas tell everything twice, so series are joined by what they speak of. Only pods that request GPUs are asked
for, and of those only rows in which they ran.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd

from ..client.range_planner import Ask
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..discovery import Discovery
from ..promql import promql as queries
from ..promql.labels import NodeNames, host_of, node_of

REQUESTS = ["node", "namespace", "pod", "container", "resource", "count", "ts_start", "ts_end"]
WHOLE = ("nvidia_com_gpu", "amd_com_gpu")
_GPUS = 'resource=~"nvidia_com_gpu|amd_com_gpu|nvidia_com_mig_.+"'
_MIG = re.compile(r"nvidia_com_mig_([1-7])g_.+")
_NODE = ("exported_node", "node")
_POD = ("exported_namespace", "namespace", "exported_pod", "pod")
_MOST_GPUS = 1024  # no node comes near
# A row's end is looked back from so far: a scrape or two may be missing.
_BACK = "15m"
_HANDOVER_SECONDS = 3600.0
_PLAIN_POD = re.compile(r"[a-z0-9.-]{1,253}")
PODS_A_QUERY = 150


@dataclass(frozen=True)
class KubeNode:
    """A node that kube-state-metrics knows to have GPUs. `gpus`: the most at once; under time slicing, or where each
    instance counts as one, more than there are. `first`, `last`: begin and end of the rows that say so, Unix seconds.
    `divided`: whether it offers instances, `shared`: whether several pods hold one of its GPUs."""

    gpus: int
    first: float
    last: float
    divided: bool = False
    shared: bool = False


@dataclass(frozen=True)
class KubeState:
    """`nodes`: by Kubernetes' name; `requests`: the frame's table with the same names; `places`: name or address of an
    exporter's pod -> its node."""

    nodes: Mapping[str, KubeNode] = field(default_factory=dict)
    requests: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=REQUESTS))
    places: Mapping[str, str] = field(default_factory=dict)

    def node_of(self, labels: Labels) -> str | None:
        """The node that a series of dcgm-exporter speaks of; its pod's name is no name of a node."""
        name = node_of(labels)
        return self.places.get(name, name) if name is not None else None

    def named_as(self, known: Iterable[str], series: Iterable[Labels]) -> KubeState:
        """The same with the names that the GPUs' series give the nodes."""
        names = NodeNames(known)
        aliases = {}
        for labels in series:
            place, own = self.places.get(host_of(labels.get("instance", ""))), self.node_of(labels)
            if place is not None and own is not None:
                aliases.setdefault(place, own)

        def named(node: str) -> str:
            return names.matched(node) or aliases.get(node) or node

        nodes: dict[str, KubeNode] = {}
        for name, one in self.nodes.items():
            nodes.setdefault(named(name), one)
        return KubeState(nodes, self.requests.assign(node=self.requests["node"].map(named)), self.places)


def read_kube(
    ranges: Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]],
    instant: Callable[[str, Sequence[str]], SeriesAnswer],
    found: Discovery,
    matches: Sequence[str],
    grid: Grid,
) -> KubeState:
    """Ask. Empty where the server does not scrape kube-state-metrics."""
    names, series = found.names, found.series
    places: dict[str, str] = {}
    if found.dcgm_gpus and "kube_pod_info" in names:
        chosen = queries.selector(matches, 'pod=~".*(dcgm|exporter).*"')
        exported = queries.selector(matches, 'exported_pod=~".*(dcgm|exporter).*"')
        kept = (*_NODE, "pod", "exported_pod", "pod_ip")
        told = instant(
            f"last_over_time(kube_pod_info{chosen}[1h]) or last_over_time(kube_pod_info{exported}[1h])", kept
        )
        for labels in told.labels:
            node = _label(labels, "node")
            for key in (_label(labels, "pod"), labels.get("pod_ip", "")):
                if node and key:
                    places[key] = node
    capacity = next((n for n in ("kube_node_status_capacity", "kube_node_status_allocatable") if n in names), None)
    offered: dict[tuple[str, str], Floats] = {}
    if capacity is not None:
        by = (*_NODE, "resource")
        query = f"max by ({', '.join(by)}) (max_over_time({capacity}{queries.selector(matches, _GPUS)}[{_BACK}]))"
        answer = ranges([Ask("GPUs of nodes", query, by)], series)["GPUs of nodes"]
        offered = _by(answer, lambda labels: (_label(labels, "node"), labels.get("resource", "")))
    nodes = {}
    for name in sorted({node for node, _ in offered if node}):
        nodes[name] = _node({resource: values for (node, resource), values in offered.items() if node == name}, grid)
    known = {name: one for name, one in nodes.items() if one is not None}
    return KubeState(known, _requests(ranges, names, matches, grid, series), places)


def _node(resources: Mapping[str, Floats], grid: Grid) -> KubeNode | None:
    total, divided = _gpus(resources, grid)
    at = np.nonzero(total > 0)[0]
    if not len(at):
        return None
    first = grid.start + (at[0] - 1) * grid.step
    return KubeNode(int(total.max()), float(first), float(grid.start + at[-1] * grid.step), divided)


def _gpus(resources: Mapping[str, Floats], grid: Grid) -> tuple[Floats, bool]:
    """GPUs by row: whole ones, and as few as can hold the instances."""
    whole, slices = np.zeros(grid.count), np.zeros(grid.count)
    for resource, values in resources.items():
        # A count of GPUs in parts, or beyond all that nodes have, is no reading: hours would be invented from it.
        with np.errstate(invalid="ignore"):
            known = np.where((values >= 0) & (values <= _MOST_GPUS) & (values % 1 == 0), values, 0.0)
        profile = _MIG.fullmatch(resource)
        if profile is not None:
            slices += int(profile.group(1)) * known
        else:
            whole += known
    return whole + np.ceil(slices / 7 - 1e-9), bool((slices > 0).any())


def declared_gpus(kube: KubeState, uses: pd.DataFrame, divided: Iterable[str]) -> dict[str, KubeNode]:
    """Node -> GPUs that it offers, or that its pods requested where that is not known. `uses`: who held which GPU;
    `divided`: nodes of which instances are seen."""
    shared, cut = _shared(uses), set(divided)
    out = {}
    for name in sorted({*kube.nodes, *(wanted := requested_gpus(kube.requests))}):
        one, other = kube.nodes.get(name), wanted.get(name)
        first = one or other
        if first is None:
            continue
        spans = [part for part in (one, other) if part is not None]
        out[name] = KubeNode(
            first.gpus, min(part.first for part in spans), max(part.last for part in spans),
            name in cut or any(part.divided for part in spans), name in shared,
        )  # fmt: skip
    return out


def _shared(uses: pd.DataFrame) -> set[str]:
    """Nodes on which several workloads held a GPU at once for longer than a handover takes."""
    if uses.empty:
        return set()
    found = set()
    for (node, _), rows in uses.groupby(["node", "gpu_uuid"]):
        if node in found or len(rows) < 2:
            continue
        ends = -math.inf
        for start, end in sorted(zip(rows["ts_start"], rows["ts_end"], strict=True)):
            if min(ends, end) - start > _HANDOVER_SECONDS:
                found.add(str(node))
                break
            ends = max(ends, end)
    return found


def requested_gpus(requests: pd.DataFrame) -> dict[str, KubeNode]:
    """Node -> GPUs that its pods requested at once, at most, and when; instances as few GPUs as can hold them."""
    out = {}
    for node, rows in requests.groupby("node"):
        edges: list[tuple[float, float, float]] = []
        for resource, count, start, end in zip(
            rows["resource"], rows["count"], rows["ts_start"], rows["ts_end"], strict=True
        ):
            profile = _MIG.fullmatch(str(resource))
            slices = int(profile.group(1)) * float(count) if profile is not None else 0.0
            whole = 0.0 if profile is not None else float(count)
            edges += [(float(start), whole, slices), (float(end), -whole, -slices)]
        most, whole, slices = 0, 0.0, 0.0
        for _, more, cut in sorted(edges, key=lambda edge: (edge[0], edge[1] + edge[2])):
            whole, slices = whole + more, slices + cut
            most = max(most, round(whole) + math.ceil(slices / 7 - 1e-9))
        divided = any(_MIG.fullmatch(str(one)) for one in rows["resource"])
        out[str(node)] = KubeNode(most, float(rows["ts_start"].min()), float(rows["ts_end"].max()), divided)
    return out


def _requests(
    ranges: Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]], names: Iterable[str], matches: Sequence[str],
    grid: Grid, series: int,
) -> pd.DataFrame:  # fmt: skip
    # Of a GPU the two are the same; a cluster may keep one of them alone.
    told = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
    name = next((one for one in told if one in names), None)
    if name is None:
        return pd.DataFrame(columns=REQUESTS)
    by = (*_POD, "exported_container", "container", *_NODE, "resource")
    query = f"max by ({', '.join(by)}) (max_over_time({name}{queries.selector(matches, _GPUS)}[{_BACK}]))"
    asked = ranges([Ask("GPUs requested", query, by)], series)["GPUs requested"]
    ran = _running(ranges, names, matches, {_pod(labels)[1] for labels in asked.labels}, series)
    rows: list[dict[str, object]] = []
    counts: dict[tuple[str, str, str, str, str], Floats] = _by(
        asked,
        lambda labels: (
            _label(labels, "node"), *_pod(labels), _label(labels, "container"), labels.get("resource", ""),
        ),
    )  # fmt: skip
    for (node, namespace, pod, container, resource), values in counts.items():
        with np.errstate(invalid="ignore"):
            count = np.where((values >= 1) & (values <= _MOST_GPUS), values, 0.0)
        if (namespace, pod) in ran:
            count = np.where(ran[namespace, pod] >= 1, count, 0.0)
        if not node:
            continue
        for first, last, value in _runs(count):
            rows.append({
                "node": node, "namespace": namespace or None, "pod": pod or None, "container": container or None,
                "resource": resource, "count": value, "ts_start": grid.start + (first - 1) * grid.step,
                "ts_end": grid.start + last * grid.step,
            })  # fmt: skip
    return pd.DataFrame(rows, columns=REQUESTS)


def _running(
    ranges: Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]], names: Iterable[str], matches: Sequence[str],
    pods: Iterable[str], series: int,
) -> dict[tuple[str, str], Floats]:  # fmt: skip
    """When each pod was in its running phase; without the series every listed pod counts."""
    if "kube_pod_status_phase" not in names:
        return {}
    plain = sorted(pod for pod in pods if _PLAIN_POD.fullmatch(pod))
    out: dict[tuple[str, str], Floats] = {}
    for at in range(0, len(plain), PODS_A_QUERY):
        some = "|".join(pod.replace(".", "[.]") for pod in plain[at : at + PODS_A_QUERY])
        chosen = [
            queries.selector(matches, 'phase="Running"', f'{label}=~"{some}"') for label in ("pod", "exported_pod")
        ]
        parts = [f"max_over_time(kube_pod_status_phase{one}[{_BACK}])" for one in chosen]
        query = f"max by ({', '.join(_POD)}) ({' or '.join(parts)})"
        answer = ranges([Ask("pods running", query, _POD)], series)["pods running"]
        out |= _by(answer, _pod)
    return out


def _by(answer: SeriesAnswer, key_of: Callable[[Labels], tuple[str, ...]]) -> dict:
    """Values by what the series speak of, the largest where several speak of it."""
    out: dict[tuple[str, ...], Floats] = {}
    for labels, values in zip(answer.labels, answer.values, strict=True):
        key = key_of(labels)
        out[key] = np.fmax(out[key], values) if key in out else values
    return out


def _pod(labels: Labels) -> tuple[str, str]:
    return _label(labels, "namespace"), _label(labels, "pod")


def _label(labels: Labels, name: str) -> str:
    return labels.get(f"exported_{name}") or labels.get(name, "")


def _runs(count: Floats) -> list[tuple[int, int, float]]:
    """First and last row of each run of one count above 0; one row that is missing within a run is bridged."""
    filled = count.copy()
    for at in range(1, len(count) - 1):
        if filled[at] == 0 and filled[at - 1] == count[at + 1] > 0:
            filled[at] = filled[at - 1]
    edges = np.nonzero(np.diff(filled))[0] + 1
    bounds = [0, *edges.tolist(), len(filled)]
    return [(a, b - 1, float(filled[a])) for a, b in pairwise(bounds) if filled[a] > 0]
