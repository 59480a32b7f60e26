"""Which node a series is of, decided once from all evidence: labels, Kubernetes, host names, pods and GPUs.

One preferred label is not enough: `Hostname` may be the exporter's pod, EKS calls ``i-0abc`` what its host calls
``ip-10-0-3-1.ec2.internal``, and clusters behind one server have nodes of the same name. A value that Kubernetes or
node_exporter knows as a node counts before one that neither knows, whatever label holds it.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
import pandas as pd

from ....agent.jobs.identity import REGION_LABELS, TYPE_LABELS, dmi_of, label_of, sku_by_signs
from ....agent.model import FabricPort, Gpu, Role
from ....agent.store.slurm_rows import short_name
from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import MEMORY_SLICES, slices_of
from ...core.coded_text import coded
from ...core.scalars import most_at_once
from .. import queries as store
from ..resolution import concat
from . import promql as queries
from .client.range_planner import Log
from .client.response import Labels, SeriesAnswer
from .owners import KUBE_NODE, MOST_GPUS, KubeNode, KubeState, NodeKey, node_key
from .promql import HOST_LABELS, NODE_LABELS, agent_node, anchors_of, cluster_of, gpu_of, host_of, selector
from .questions import Questions
from .rows.fabric import PortRows
from .rows.gpus import About, GpuRows, Matrix

# GPU feature discovery: how many pods of time slicing or MPS share a device.
_REPLICAS = "label_nvidia_com_gpu_replicas"
_KUBE = {
    "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", name): name
    for name in (*TYPE_LABELS, *REGION_LABELS, "skuwise.io/node-sku")
}
KUBE_LABELS = (*_KUBE, _REPLICAS)
Span = tuple[float, float]

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
        """`kube`: labels of kube_node_info and kube_node_labels; `hosts`: of node_uname_info; `exporter_pods`: of
        kube_pod_info; `targets`: of dcgm-exporter's series; `agents`: names by our agent."""
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
        keys = (self._find(name, group[0]) for name in (*group[1], group[2]))
        return list(dict.fromkeys(key for key in keys if key is not None))

    def _find(self, name: str, cluster: str) -> NodeKey | None:
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
        asked.ask(queries.agent_node_asks(asked.matches, survey.step), 10 * survey.agent_gpus)

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


def gpu_counts(about: Mapping[str, About]) -> Counter[str]:
    """Whole GPUs by node."""
    return Counter(node for node, _ in {(gpu.node, gpu.parent or gpu.uuid or key) for key, gpu in about.items()})


def memory_of(about: About, catalog: Catalog) -> float:
    """Memory of a GPU or an instance by the catalog, for series without it; NaN where the catalog lacks it."""
    sku = catalog.gpu(about.sku or about.name or "")
    if sku is None or about.kind == "gpu":
        return float(sku.mem_bytes) if sku is not None else float("nan")
    slices = slices_of(about.mig_profile, sku)
    return float(sku.mem_bytes) * slices.memory / MEMORY_SLICES if slices is not None else float("nan")


def gpu_table(gpus: GpuRows, catalog: Catalog) -> pd.DataFrame:
    """The frame's table `gpus`: every GPU that a series names, and the instances with rows."""
    cells, seen = gpus.cells, gpus.cells.seen()
    chosen = {key: gpu for key, gpu in gpus.about.items() if key in seen or not gpu.uuid or gpu.kind != "mig"}
    if not chosen:
        return concat([], store.GPUS.columns)
    table = pd.DataFrame(list(chosen.values())).rename(columns={"parent": "parent_uuid", "index": "gpu_index"})
    table["gpu_uuid"] = [gpu.uuid or key for key, gpu in chosen.items()]
    table["sku"] = [gpu.sku or _sku(gpu.name, catalog) for gpu in chosen.values()]
    # What a series names and nothing was observed of exists all the same.
    table["valid_from"] = [seen.get(key, (cells.grid.start - cells.grid.step,))[0] for key in chosen]
    for name in ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second"):
        table[name] = np.append(_last(cells.column(name)), np.nan)[[cells.rows.get(key, -1) for key in chosen]]
    size = [memory_of(gpu, catalog) for gpu in chosen.values()]
    table["mem_total_bytes"] = table["mem_total_bytes"].fillna(pd.Series(size, dtype=float))
    return concat([table], store.GPUS.columns)


def node_table(
    gpus: GpuRows, ports: PortRows, agents: Mapping[str, Labels], counts: SeriesAnswer | None, *,
    identity: NodeIdentity, catalog: Catalog, declared: Mapping[str, KubeNode],
) -> pd.DataFrame:  # fmt: skip
    """The frame's table `nodes`. What the agent's page says of a node (`agents`, and `counts` of GPUs) comes before
    what follows from its parts. `declared`: nodes that Kubernetes knows to have GPUs; exporters may miss some."""
    by_node: dict[str, list[FabricPort]] = defaultdict(list)
    rates = _last(ports.cells.column("line_rate_bytes_per_second")).tolist()
    for (node, device, port), rate in zip(ports.cells.rows, rates, strict=True):
        role = cast("Role", ports.roles.get((node, device, port), "unknown"))
        by_node[node].append(FabricPort(device, port, role, "InfiniBand", None if math.isnan(rate) else rate))
    # A count below one, or in parts, is no reading: hours would be invented from it.
    counted: dict[str | None, float] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True) if counts is not None else ():
        value = values[(values >= 1) & (values <= MOST_GPUS) & (values % 1 == 0)]
        counted |= {agent_node(labels): float(value[-1])} if len(value) else {}
    grid, seen, clusters = gpus.cells.grid, gpus.cells.seen(), identity.clusters
    whole: dict[str, dict[str, Gpu]] = defaultdict(dict)
    observed: dict[str, dict[str, Span]] = defaultdict(dict)
    for key, facts in gpus.about.items():
        uuid = facts.parent or facts.uuid or key
        gpu = Gpu(uuid, int(np.nan_to_num(facts.index)), facts.name or "", _sku(facts.name, catalog))
        whole[facts.node].setdefault(uuid, gpu)
        if key in seen:
            begin, end = observed[facts.node].get(uuid, seen[key])
            observed[facts.node][uuid] = min(begin, seen[key][0]), max(end, seen[key][1])
    rows = []
    for node in sorted({*whole, *declared}):
        listed, offered, spans = list(whole[node].values()), declared.get(node), list(observed[node].values())
        # A GPU that took another's place adds nothing.
        shown = most_at_once(spans, grid.step) if spans else len(listed)
        spans += [(offered.first, offered.last)] if offered is not None else []
        spans += [identity.present[node]] if node in identity.present else []
        spans = spans or [(grid.start - grid.step, grid.end)]
        row: dict[str, object] = {"node": node, "first_seen": min(spans)[0], "last_seen": max(end for _, end in spans)}
        if (agent := agents.get(node)) is not None:
            row |= {name: agent.get(name) for name in ("node_sku", "node_sku_source", "provider", "instance_type")}
            row["cluster"] = agent.get("exported_cluster") or agent.get("cluster") or ""
            row["region"] = agent.get("exported_region") or agent.get("region")
        else:
            row |= _by_signs(listed, by_node[node], identity.dmi.get(node, {}), identity.labels.get(node, {}), catalog)
            row["cluster"] = clusters.get(node, "")
        count = float(shown)
        if offered is not None and not (shown and (offered.divided or catalog.node(str(row["node_sku"] or "")))):
            count += _unlisted(offered, shown, listed, identity.labels.get(node, {}).get(_REPLICAS, ""))
        rows.append({**row, "gpu_count": counted.get(node, count)})
    return concat([pd.DataFrame(rows)], store.NODES.columns)


def _unlisted(offered: KubeNode, listed: int, gpus: Sequence[Gpu], replicas: str) -> int:
    """GPUs that Kubernetes offers beyond the `listed` ones that exporters report, which are `gpus`. Time slicing, HAMi
    and MIG offer a device several times: then those listed count, and those that their numbers show to be missing."""
    copies = int(replicas) if re.fullmatch(r"[1-9][0-9]{0,2}", replicas) else 1
    # How many pods share a device is not known: one device at least.
    shares = math.ceil(offered.shares / copies) if copies > 1 else min(offered.shares, 1)
    count = offered.gpus // copies + shares
    if listed and count >= 2 * listed:
        count = max((gpu.index + 1 for gpu in gpus), default=0)
    return max(count - listed, 0)


def _by_signs(
    gpus: Sequence[Gpu], ports: Sequence[FabricPort], firmware: Labels, labels: Labels, catalog: Catalog
) -> dict[str, object]:
    """What a node is that no agent describes, by the agent's own rules. `firmware`: labels of ``node_dmi_info``;
    `labels`: those of ``kube_node_labels``."""
    signs = dmi_of(*(firmware.get(name, "") for name in ("system_vendor", "product_name", "chassis_asset_tag")))
    spelled = {_KUBE[name]: value for name, value in labels.items() if name in _KUBE}
    # Without a single port it is unknown whether there are none, or none is exported.
    seen = tuple(ports) or (FabricPort("unknown", 1),)
    sku, source = sku_by_signs(signs, spelled, gpus, seen, tuple(catalog.nodes.values()))
    entry = catalog.node(sku) if sku else None
    kind = signs.instance_type or label_of(spelled, TYPE_LABELS) or (entry and entry.instance_type)
    return {
        "provider": signs.provider or (entry and entry.provider), "region": label_of(spelled, REGION_LABELS),
        "instance_type": kind, "node_sku": sku, "node_sku_source": source,
    }  # fmt: skip


def _last(values: Matrix) -> Matrix:
    newest = values.shape[1] - 1 - (~np.isnan(values))[:, ::-1].argmax(axis=1)
    return values[np.arange(len(values)), newest]


def _sku(name: str | None, catalog: Catalog) -> str | None:
    entry = catalog.gpu(name) if name else None
    return entry.name if entry is not None else None
