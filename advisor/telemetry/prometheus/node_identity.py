"""Which node a series is of, decided once from all evidence: labels, Kubernetes, host names, pods and GPUs.

One preferred label is not enough: `Hostname` may be the exporter's pod, EKS calls ``i-0abc`` what its host calls
``ip-10-0-3-1.ec2.internal``, and clusters behind one server have nodes of the same name. A value that Kubernetes or
node_exporter knows as a node counts before one that neither knows, whatever label holds it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ....agent.store.slurm_rows import short_name
from ...core.coded_text import coded
from .client.range_planner import Log
from .client.response import Labels
from .owners.kube import KUBE_NODE, KubeState, NodeKey, node_key
from .promql.agent_queries import agent_node_asks
from .promql.promql import HOST_LABELS, NODE_LABELS, anchors_of, cluster_of, gpu_of, host_of, selector
from .questions import Questions
from .rows.nodes import KUBE_LABELS

_Group = tuple[str, tuple[str, ...], str]
"""Series that name their node alike: the cluster, the node's names by `NODE_LABELS`, best first, and the instance."""
# Names of containers, of exporters' pods and of every host: a node only where nothing else names it.
_PLACELESS = re.compile(r".*exporter.*|localhost|127\..*|::1|[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9.]+|[0-9a-f:]*:[0-9a-f:]*", re.IGNORECASE)


class NodeIdentity:
    """Nodes by any of their names. Where clusters share a name, a node is called ``cluster/name``.

    `dmi`, `labels`: of node_dmi_info and kube_node_labels by node, as last reported in the window; `present`: when
    Kubernetes had a node, Unix seconds."""

    def __init__(
        self, log: Log, state: KubeState, *, kube: Iterable[Labels] = (), hosts: Iterable[Labels] = (),
        exporter_pods: Iterable[Labels] = (), targets: Iterable[Labels] = (), agents: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Labels of series that name nodes. `kube`: kube_node_info, kube_node_labels; `hosts`: node_uname_info;
        `exporter_pods`: kube_pod_info of exporters; `targets`: series of dcgm-exporter; `agents`: names by our agent.
        """
        self.dmi: dict[str, Labels] = {}
        self.labels: dict[str, Labels] = {}
        self.present: dict[str, tuple[float, float]] = {}
        self._aliases: dict[str, set[NodeKey]] = defaultdict(set)
        self._groups: dict[_Group, NodeKey] = {}
        self._gpu_nodes = {key: node.gpus for key, node in state.nodes.items()}
        self._names: dict[NodeKey, str] = {}
        for key in self._gpu_nodes:
            self._alias(key, key[1])
        for labels in kube:
            # Providers end with the machine's own name: aws:///us-east-1a/i-0abc, gce://project/zone/name.
            machine = labels.get("provider_id", "").rpartition("/")[2]
            hostname = labels.get("label_kubernetes_io_hostname", "")
            if (key := node_key(labels))[1]:
                self._alias(key, key[1], hostname, machine, labels.get("internal_ip", ""))
        for name in agents:
            key = self._find(name, "") or ("", name)
            self._alias(key, name)
            self._names[key] = name
        for labels in hosts:
            name, cluster, instance = labels.get("nodename", ""), cluster_of(labels), labels.get("instance", "")
            if name and not _PLACELESS.fullmatch(name):
                key = self._find(name, cluster) or self._find(host_of(instance), cluster) or (cluster, name)
                self._alias(key, name, instance, host_of(instance))
        pods: dict[str | None, set[NodeKey]] = defaultdict(set)
        for labels in exporter_pods:
            for pod in (labels.get("exported_pod") or labels.get("pod"), labels.get("pod_ip")):
                pods[pod].update([node_key(labels)] if node_key(labels)[1] else ())
        for cluster, node, pod in state.requests[["cluster", "node", "pod"]].itertuples(index=False):
            pods[pod].add((cluster, node))
        self._name_groups(self._placed(targets, pods, log))

    def node_of(self, labels: Labels) -> str | None:
        """The node of a series of an exporter; None where no label names one."""
        group = _group(labels)
        if group not in self._groups:
            if not group[1]:
                return None
            self._groups[group] = next(iter(self._known(group)), None) or _unknown(group)
        return self._name(self._groups[group])

    def named(self, cluster: str, name: str) -> str:
        """What a node is called here that Kubernetes calls `name`."""
        return self._name(self._find(name, cluster) or (cluster, name))

    @property
    def clusters(self) -> Mapping[str, str]:
        """Node -> its cluster, of nodes whose series name one."""
        return {self._name(key): key[0] for key in (*self._gpu_nodes, *self._groups.values()) if key[0]}

    def _placed(
        self, targets: Iterable[Labels], pods: Mapping[str | None, set[NodeKey]], log: Log
    ) -> dict[_Group, NodeKey]:
        """The node of each group of dcgm-exporter's series. `pods`: the nodes of pods, by name or address."""
        devices: dict[_Group, set[str]] = defaultdict(set)
        holders: dict[_Group, set[NodeKey]] = defaultdict(set)
        for labels in targets:
            group, gpu = _group(labels), gpu_of(labels)
            if gpu is not None and group[1]:
                devices[group].add(gpu[1] or gpu[0])
                for name in filter(None, (labels.get("exported_pod"), labels.get("pod"), *group[1])):
                    holders[group].update(_in_cluster(pods.get(name, ()), group[0]))
        nodes_of: dict[_Group, NodeKey] = {}
        places: dict[str, set[NodeKey]] = defaultdict(set)

        def place(group: _Group, key: NodeKey) -> None:
            nodes_of[group] = key
            for uuid in devices[group]:
                places[uuid].add(key)

        for group, uuids in devices.items():
            candidates, pod_nodes = self._known(group), holders[group]
            # A federating server's or a proxy's node runs no GPU.
            candidates = [key for key in candidates if key in self._gpu_nodes] or candidates
            alone = list(pod_nodes) if len(pod_nodes) == 1 else []
            agreed = [key for key in candidates if key in pod_nodes] or candidates or alone
            if len(agreed) > 1:
                text = "Labels of {gpus} GPUs name several nodes ({gpu_uuid}: {nodes}). The first is used."
                names = ", ".join(name for _, name in agreed)
                log.add(coded("node-names-contradict", text, gpus=len(uuids), gpu_uuid=min(uuids), nodes=names))
            if agreed:
                place(group, agreed[0])
        # Groups that no label places: where the same GPUs are reported from a known node, or one node is left.
        for group in devices.keys() - nodes_of.keys():
            nodes = set().union(*(places[uuid] for uuid in devices[group]))
            nodes_of |= {group: nodes.pop()} if len(nodes) == 1 else {}
        left = [group for group in devices if group not in nodes_of]
        free = _in_cluster(self._gpu_nodes.keys() - set(nodes_of.values()), left[0][0]) if left else []
        if len(free) == 1 and self._gpu_nodes[free[0]] == len(set().union(*(devices[group] for group in left))):
            nodes_of |= dict.fromkeys(left, free[0])
        for group in left:
            # A host that was given its domain is the same host where it has the same GPUs.
            key, nodes = _unknown(group), set().union(*(places[uuid] for uuid in devices[group]))
            if group not in nodes_of:
                place(group, next((node for node in sorted(nodes) if _is_same_host(node[1], key[1])), key))
        return {group: nodes_of[group] for group in devices}

    def _name_groups(self, nodes_of: Mapping[_Group, NodeKey]) -> None:
        """Take over which node each group is of, and call nodes as their exporters do; equal names stay apart."""
        clusters: dict[NodeKey, set[str]] = defaultdict(set)
        for group, key in nodes_of.items():
            clusters[key].add(group[0])
        parted: dict[NodeKey, NodeKey] = {}
        for group, unnamed in nodes_of.items():
            # Kubernetes' series name no cluster, those of the GPUs do.
            key = unnamed if unnamed[0] or len(clusters[unnamed]) < 2 else (group[0], unnamed[1])
            self._groups[group] = key
            if key != unnamed:
                parted.setdefault(unnamed, key)
            for name in group[1]:
                if _is_same_host(name, key[1]):
                    self._names.setdefault(key, name)
                    self._alias(key, name)
            self._alias(key, key[1], host_of(group[2]))
        by_name: dict[str, set[NodeKey]] = defaultdict(set)
        for key in {*self._groups.values(), *self._gpu_nodes} - parted.keys():
            by_name[self._name(key)].add(key)
        for name, keys in by_name.items():
            self._names |= {key: f"{key[0]}/{name}" for key in keys if key[0] and len(keys) > 1}
        self._names |= {key: self._name(first) for key, first in parted.items()}

    def _known(self, group: _Group) -> list[NodeKey]:
        """The nodes that labels name, by rank of the labels."""
        keys = (self._find(name, group[0]) for name in (*group[1], group[2]))
        return list(dict.fromkeys(key for key in keys if key is not None))

    def _find(self, name: str, cluster: str) -> NodeKey | None:
        """The node that a name means; None where none or several do."""
        for spelled in (name.lower(), *(() if _ADDRESS.fullmatch(name) else (short_name(name),))):
            if keys := _in_cluster(self._aliases.get(spelled, ()), cluster):
                return keys[0] if len(keys) == 1 else None
        return None

    def _alias(self, key: NodeKey, *names: str) -> None:
        for name in filter(None, names):
            self._aliases[name.lower()].add(key)
            if not _ADDRESS.fullmatch(name):
                self._aliases[short_name(name)].add(key)

    def _name(self, key: NodeKey) -> str:
        return self._names.get(key, key[1])


def _group(labels: Labels) -> _Group:
    instance = labels.get("instance", "")
    names = [labels.get(name, "") for name in NODE_LABELS if name != "instance"]
    return cluster_of(labels), tuple(filter(None, (*names, host_of(instance)))), instance


def _unknown(group: _Group) -> NodeKey:
    """The node by the best of the labels, where nothing else knows them."""
    return group[0], next((name for name in group[1] if not _PLACELESS.fullmatch(name)), group[1][0])


def _is_same_host(name: str, other: str) -> bool:
    """But for domains and case."""
    return short_name(name) == short_name(other) and not _ADDRESS.fullmatch(name)


def _in_cluster(nodes: Iterable[NodeKey], cluster: str) -> list[NodeKey]:
    """Those of a cluster; a side without a cluster's label fits any."""
    several = list(nodes)
    return [key for key in several if key[0] == cluster] or [key for key in several if not (key[0] and cluster)]


def read_identity(asked: Questions, kube: KubeState, log: Log) -> NodeIdentity:
    """What nodes are called and what they are, over the whole window: a node that is gone had a type and a region."""
    survey, chosen, exporters = asked.survey, selector(asked.matches), 'pod=~".*(dcgm|exporter).*"'
    labelled = asked.info("kube_node_labels", (*KUBE_NODE, "label_kubernetes_io_hostname", *KUBE_LABELS))
    info = asked.info("kube_node_info", (*KUBE_NODE, "internal_ip", "provider_id"))
    firmware = asked.info("node_dmi_info", (*HOST_LABELS, "system_vendor", "product_name", "chassis_asset_tag"))
    if survey.agent_gpus:
        asked.ask(agent_node_asks(asked.matches, survey.step), 10 * survey.agent_gpus)

    def grouped(by: Sequence[str], *series: str) -> Sequence[Labels]:
        return asked.over_window(f"(group by ({', '.join(by)}) ({' or '.join(series)}))", by).labels if series else ()

    pods = [f"kube_pod_info{selector(asked.matches, matcher)}" for matcher in (exporters, f"exported_{exporters}")]
    anchors = [f"{name}{chosen}" for name in anchors_of(survey.names)[:2]] if survey.dcgm_gpus else []
    identity = NodeIdentity(
        log, kube, kube=(*labelled.labels, *info.labels),
        hosts=asked.info("node_uname_info", (*HOST_LABELS, "nodename")).labels,
        exporter_pods=grouped((*KUBE_NODE, "pod", "exported_pod", "pod_ip"), *pods * ("kube_pod_info" in survey.names)),
        targets=grouped(("UUID", "GPU_I_ID", *HOST_LABELS, "pod", "exported_pod"), *anchors),
        agents=asked.agents,
    )  # fmt: skip
    for answer in (firmware, info, labelled):
        measured = ~np.isnan(answer.values)
        first, last = measured.argmax(axis=1), measured.shape[1] - measured[:, ::-1].argmax(axis=1)
        begin, end = (asked.grid.start + (at - 1) * asked.grid.step for at in (first, last))
        # What was there last counts.
        for at in np.argsort(last, kind="stable").tolist():
            labels = answer.labels[at]
            node = identity.node_of(labels) if answer is firmware else identity.named(*node_key(labels))
            if node is None or not measured[at].any():
                continue
            if answer is not firmware:
                before = identity.present.get(node, (np.inf, -np.inf))
                identity.present[node] = min(float(begin[at]), before[0]), max(float(end[at]), before[1])
            if answer is not info:
                (identity.dmi if answer is firmware else identity.labels)[node] = labels
    return identity
