"""Which node a series is of, decided once from all evidence: labels, Kubernetes, host names, pods and GPUs.

One preferred label is not enough: `Hostname` may be the exporter's pod, EKS calls ``i-0abc`` what its host calls
``ip-10-0-3-1.ec2.internal``, and clusters behind one server have nodes of the same name. A value that Kubernetes or
node_exporter knows as a node counts before one that neither knows, whatever label holds it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ....agent.store.writing.slurm_rows import short_name
from ...core.coded_text import coded
from .client.range_planner import Log
from .client.response import Labels, SeriesAnswer
from .owners.kube import KUBE_NODE, KubeState, NodeKey, node_key
from .promql.agent_queries import agent_node_asks
from .promql.labels import HOST_LABELS, NODE_LABELS, cluster_of, gpu_of, host_of
from .promql.promql import anchors_of, selector
from .questions import Questions
from .rows.nodes import KUBE_LABELS

_Group = tuple[str, tuple[str, ...], str]
"""Series that name their node alike: the cluster, the node's names by `NODE_LABELS`, best first, and the instance."""
# Names of containers, of exporters' pods and of every host: a node only where nothing else names it.
_PLACELESS = re.compile(r".*exporter.*|localhost|127\..*|::1|[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9.]+|[0-9a-f:]*:[0-9a-f:]*", re.IGNORECASE)


@dataclass
class Evidence:
    """What names nodes, as labels of series. `kube`: kube_node_info, kube_node_labels; `hosts`: node_uname_info;
    `exporter_pods`: kube_pod_info of exporters; `targets`: series of dcgm-exporter; `agents`: names by our agent."""

    kube: Sequence[Labels] = ()
    hosts: Sequence[Labels] = ()
    exporter_pods: Sequence[Labels] = ()
    targets: Sequence[Labels] = ()
    agents: Iterable[str] = ()
    state: KubeState = field(default_factory=KubeState)


class NodeIdentity:
    """Nodes by any of their names. Where clusters share a name, a node is called ``cluster/name``.

    `dmi`, `labels`: of node_dmi_info and kube_node_labels by node, as last reported in the window; `present`: when
    Kubernetes had a node, Unix seconds."""

    def __init__(self, evidence: Evidence, log: Log) -> None:
        self.dmi: dict[str, Labels] = {}
        self.labels: dict[str, Labels] = {}
        self.present: dict[str, tuple[float, float]] = {}
        self._aliases: dict[str, set[NodeKey]] = defaultdict(set)
        self._pods: dict[str, set[NodeKey]] = defaultdict(set)
        self._groups: dict[_Group, NodeKey] = {}
        self._gpu_nodes = {key: node.gpus for key, node in evidence.state.nodes.items()}
        self._names: dict[NodeKey, str] = {}
        self._add_kubernetes(evidence)
        for name in evidence.agents:
            key = self._find(name, "") or ("", name)
            self._alias(key, name)
            self._names[key] = name
        for labels in evidence.hosts:
            self._add_host(labels)
        self._add_targets(evidence.targets, log)
        self._names |= _apart({*self._groups.values(), *self._gpu_nodes}, self._names)

    def node_of(self, labels: Labels) -> str | None:
        """The node of a series of an exporter; None where no label names one."""
        group = _group(labels)
        key = self._groups.get(group)
        if key is None:
            key = next(iter(self._known(group)), None) or self._unknown(group)
            if key is None:
                return None
            self._groups[group] = key
        return self._names.get(key, key[1])

    def named(self, cluster: str, name: str) -> str:
        """What a node is called here that Kubernetes calls `name`."""
        key = self._find(name, cluster) or (cluster, name)
        return self._names.get(key, key[1])

    @property
    def clusters(self) -> Mapping[str, str]:
        """Node -> its cluster, of nodes whose series name one."""
        return {self._names.get(key, key[1]): key[0] for key in (*self._gpu_nodes, *self._groups.values()) if key[0]}

    def of_requests(self, requests: pd.DataFrame) -> pd.DataFrame:
        """The frame's table of requests, from that of `KubeState`."""
        names = [self.named(*key) for key in zip(requests["cluster"], requests["node"], strict=True)]
        return requests.assign(node=names).drop(columns="cluster")

    def _add_kubernetes(self, evidence: Evidence) -> None:
        for key in self._gpu_nodes:
            self._alias(key, key[1])
        for labels in evidence.kube:
            key = node_key(labels)
            if key[1]:
                # Providers end with the machine's own name: aws:///us-east-1a/i-0abc, gce://project/zone/name.
                machine = labels.get("provider_id", "").rpartition("/")[2]
                hostname = labels.get("label_kubernetes_io_hostname", "")
                self._alias(key, key[1], hostname, machine, labels.get("internal_ip", ""))
        for labels in evidence.exporter_pods:
            for name in (labels.get("exported_pod") or labels.get("pod", ""), labels.get("pod_ip", "")):
                if name and node_key(labels)[1]:
                    self._pods[name].add(node_key(labels))
        rows = evidence.state.requests
        for cluster, node, pod in zip(rows["cluster"], rows["node"], rows["pod"], strict=True):
            if pod:
                self._pods[pod].add((cluster, node))

    def _add_host(self, labels: Labels) -> None:
        name, cluster, instance = labels.get("nodename", ""), cluster_of(labels), labels.get("instance", "")
        if name and not _PLACELESS.fullmatch(name):
            key = self._find(name, cluster) or self._find(host_of(instance), cluster) or (cluster, name)
            self._alias(key, name, instance, host_of(instance))

    def _add_targets(self, targets: Iterable[Labels], log: Log) -> None:
        devices: dict[_Group, set[str]] = defaultdict(set)
        holders: dict[_Group, set[NodeKey]] = defaultdict(set)
        for labels in targets:
            group = _group(labels)
            if (gpu := gpu_of(labels)) is not None and group[1]:
                devices[group].add(gpu[1] or gpu[0])
                for pod in {labels.get("exported_pod", ""), labels.get("pod", "")} - {""}:
                    holders[group] |= set(self._in_cluster(self._pods.get(pod, ()), group[0]))
        found: dict[_Group, NodeKey] = {}
        for group, uuids in devices.items():
            known = self._known(group)
            # A federating server's or a proxy's node runs no GPU.
            known = [key for key in known if key in self._gpu_nodes] or known
            pods = holders[group] or {
                key for name in group[1] for key in self._in_cluster(self._pods.get(name, ()), group[0])
            }
            agreed = [key for key in known if key in pods] or known or (list(pods) if len(pods) == 1 else [])
            if len(agreed) > 1:
                log.add(
                    coded(
                        "node-names-contradict",
                        "Labels of {gpus} GPUs name several nodes ({gpu_uuid}: {nodes}). The first is used.",
                        gpus=len(uuids), gpu_uuid=min(uuids), nodes=", ".join(name for _, name in agreed),
                    )
                )  # fmt: skip
            if agreed:
                found[group] = agreed[0]
        found |= self._by_devices({group: own for group, own in devices.items() if group not in found}, found, devices)
        clusters: dict[NodeKey, set[str]] = defaultdict(set)
        for group, key in found.items():
            clusters[key].add(group[0])
        unknown: dict[str, NodeKey] = {}
        for group, uuids in devices.items():
            key = found.get(group) or self._unknown(group)
            assert key is not None
            if group not in found and not _ADDRESS.fullmatch(key[1]):
                # A host that was given its domain is the same host where it has the same GPUs.
                places = (unknown[uuid] for uuid in uuids if uuid in unknown)
                key = next((one for one in places if short_name(one[1]) == short_name(key[1])), key)
                unknown |= dict.fromkeys(uuids, key)
            # Kubernetes' series name no cluster, those of the GPUs do.
            self._groups[group] = key = key if key[0] or len(clusters[key]) < 2 else (group[0], key[1])
            for name in group[1]:
                if short_name(name) == short_name(key[1]) and not _ADDRESS.fullmatch(name):
                    self._names.setdefault(key, name)
                    self._alias(key, name)
            self._alias(key, key[1], host_of(group[2]))

    def _by_devices(
        self, left: Mapping[_Group, set[str]], found: Mapping[_Group, NodeKey], devices: Mapping[_Group, set[str]]
    ) -> dict[_Group, NodeKey]:
        """Nodes of groups that no label names: where the same GPUs are reported under a known name, and where one node
        is left that has as many."""
        places: dict[str, set[NodeKey]] = defaultdict(set)
        for group, key in found.items():
            for uuid in devices[group]:
                places[uuid].add(key)
        out = {}
        for group, uuids in left.items():
            nodes = set().union(*(places[uuid] for uuid in uuids if uuid in places))
            if len(nodes) == 1:
                out[group] = nodes.pop()
        taken = {*found.values(), *out.values()}
        for cluster in {group[0] for group in left}:
            groups = [group for group in left if group not in out and group[0] == cluster]
            free = [key for key in self._in_cluster(self._gpu_nodes, cluster) if key not in taken]
            count = len(set().union(*(left[group] for group in groups)))
            if groups and len(free) == 1 and self._gpu_nodes[free[0]] == count == len(left[groups[0]]):
                out |= dict.fromkeys(groups, free[0])
        return out

    def _known(self, group: _Group) -> list[NodeKey]:
        """The nodes that labels name, by rank of the labels."""
        found = (self._find(name, group[0]) for name in (*group[1], group[2]))
        return list(dict.fromkeys(key for key in found if key is not None))

    @staticmethod
    def _unknown(group: _Group) -> NodeKey | None:
        best = next((name for name in group[1] if not _PLACELESS.fullmatch(name)), next(iter(group[1]), None))
        return None if best is None else (group[0], best)

    def _find(self, name: str, cluster: str) -> NodeKey | None:
        """The node that a name means; None where none or several do."""
        for spelled in (name.lower(), *(() if _ADDRESS.fullmatch(name) else (short_name(name),))):
            if found := self._in_cluster(self._aliases.get(spelled, ()), cluster):
                return found[0] if len(found) == 1 else None
        return None

    @staticmethod
    def _in_cluster(nodes: Iterable[NodeKey], cluster: str) -> list[NodeKey]:
        """Those of a cluster; a side without a cluster's label fits any."""
        several = list(nodes)
        return [key for key in several if key[0] == cluster] or [key for key in several if not (key[0] and cluster)]

    def _alias(self, key: NodeKey, *names: str) -> None:
        for name in filter(None, names):
            self._aliases[name.lower()].add(key)
            if not _ADDRESS.fullmatch(name):
                self._aliases[short_name(name)].add(key)


def _group(labels: Labels) -> _Group:
    instance = labels.get("instance", "")
    names = [labels.get(name, "") for name in NODE_LABELS if name != "instance"]
    return cluster_of(labels), tuple(filter(None, (*names, host_of(instance)))), instance


def _apart(keys: Iterable[NodeKey], names: Mapping[NodeKey, str]) -> dict[NodeKey, str]:
    """Names with their clusters, of nodes whose own name several clusters have."""
    by_name: dict[str, set[NodeKey]] = defaultdict(set)
    for key in keys:
        by_name[names.get(key, key[1])].add(key)
    return {key: f"{key[0]}/{name}" for name, own in by_name.items() if len(own) > 1 for key in own if key[0]}


def read_identity(asked: Questions, kube: KubeState, log: Log) -> NodeIdentity:
    """What nodes are called and what they are, over the whole window: a node that is gone had a type and a region."""
    names, chosen = asked.found.names, selector(asked.matches)
    labelled = asked.info("kube_node_labels", (*KUBE_NODE, "label_kubernetes_io_hostname", *KUBE_LABELS))
    info = asked.info("kube_node_info", (*KUBE_NODE, "internal_ip", "provider_id"))
    firmware = asked.info("node_dmi_info", (*HOST_LABELS, "system_vendor", "product_name", "chassis_asset_tag"))

    def grouped(by: Sequence[str], *series: str) -> Sequence[Labels]:
        return asked.over_window(f"(group by ({', '.join(by)}) ({' or '.join(series)}))", by).labels if series else ()

    exporters, anchors = 'pod=~".*(dcgm|exporter).*"', []
    pods = [f"kube_pod_info{selector(asked.matches, one)}" for one in (exporters, f"exported_{exporters}")]
    if asked.found.dcgm_gpus:
        anchors = [f"{name}{chosen}" for name in anchors_of(names)[:2]]
    if asked.found.agent_gpus:
        asked.ask(agent_node_asks(asked.matches, asked.found.step), 10 * asked.found.agent_gpus)
    evidence = Evidence(
        (*labelled.labels, *info.labels),
        asked.info("node_uname_info", (*HOST_LABELS, "nodename")).labels,
        grouped((*KUBE_NODE, "pod", "exported_pod", "pod_ip"), *(pods if anchors and "kube_pod_info" in names else ())),
        grouped(("UUID", "GPU_I_ID", *HOST_LABELS, "pod", "exported_pod"), *anchors),
        asked.agents,
        kube,
    )
    identity, grid = NodeIdentity(evidence, log), asked.grid
    for answer in (info, labelled):
        for labels, first, last in _in_order(answer):
            node = identity.named(*node_key(labels))
            begin, end = identity.present.get(node, (grid.end, 0.0))
            span = min(begin, grid.start + (first - 1) * grid.step), max(end, grid.start + last * grid.step)
            identity.present[node] = span
            identity.labels |= {node: labels} if answer is labelled else {}
    identity.dmi |= {node: labels for labels, _, _ in _in_order(firmware) if (node := identity.node_of(labels))}
    return identity


def _in_order(answer: SeriesAnswer) -> Iterator[tuple[Labels, int, int]]:
    """Labels with the first and the last row in which they were there, those that were there last at the end."""
    known = ~np.isnan(answer.values)
    first, last = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    for at in np.argsort(last, kind="stable").tolist():
        if known[at].any():
            yield answer.labels[at], int(first[at]), int(last[at])
