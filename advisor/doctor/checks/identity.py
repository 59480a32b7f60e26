"""What nodes are, as firmware, Kubernetes and our agent tell it: names, types, regions, GPUs that should be there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....agent.model import FabricPort, Gpu, Role
from ....agent.sources.gpu_backends import DRIVER_NAMES
from ....rules.catalog.loader import Catalog
from ...telemetry.prometheus.client.response import Labels, SeriesAnswer
from ...telemetry.prometheus.promql.labels import AGENT_NODE_LABELS, NODE_LABELS, Hosts, NodeNames, agent_node, node_of
from ...telemetry.prometheus.promql.promql import selector
from ...telemetry.prometheus.rows.fabric import port_key, roles_of
from ...telemetry.prometheus.rows.nodes import KUBE_LABELS, by_signs
from ..facts import Absent, ExpectedGpu, NodeCoverage
from ..presence import PODS, carriers

_GPU_RESOURCES = 'resource=~"nvidia_com_gpu|amd_com_gpu"'
_ON_A_NODE = 'phase=~"Running|Pending"'
_MOST_GPUS = 1024
_MOST_RATE = 1e13
_KUBE_NODE = ("exported_node", "node")
_ABOUT = (
    *AGENT_NODE_LABELS, "node_sku", "node_sku_source", "provider", "region", "exported_region", "instance_type",
    "agent_version",
)  # fmt: skip
_REQUESTED = 3  # moments at which the requests of pods are looked at
_ROLES: Mapping[str, Role] = {"compute": "compute", "storage": "storage", "management": "management"}


def identity_queries(
    known: set[str], matches: Sequence[str], end: float, span: str, moments: Sequence[float]
) -> dict[str, tuple[str, float, Sequence[str]]]:
    """Name -> query, moment and labels. What does not change is asked at the end; requests at a few moments."""
    queries: dict[str, tuple[str, float, Sequence[str]]] = {}

    def last(name: str, series: str, kept: Sequence[str], *own: str) -> None:
        if series in known:
            queries[name] = (f"last_over_time({series}{selector(matches, *own)}[{span}])", end, kept)

    last("uname", "node_uname_info", ("instance", "nodename"))
    last("dmi", "node_dmi_info", (*NODE_LABELS, "system_vendor", "product_name", "chassis_asset_tag"))
    last("rates", "node_infiniband_rate_bytes_per_second", (*NODE_LABELS, "device", "port"))
    last("labels", "kube_node_labels", (*_KUBE_NODE, *KUBE_LABELS))
    last("capacity", "kube_node_status_capacity", (*_KUBE_NODE, "resource"), _GPU_RESOURCES)
    last("exporter pods", "kube_pod_info", (*_KUBE_NODE, "exported_pod", "pod"), 'pod=~".*dcgm.*"')
    last("agents", "skuwise_node_info", _ABOUT)
    last("declared", "skuwise_node_gpus", AGENT_NODE_LABELS)
    last("instances", "skuwise_gpu_info", ("gpu_uuid", "parent_uuid"), 'kind="mig"')
    last("agent ports", "skuwise_fabric_port_info", (*AGENT_NODE_LABELS, "device", "port"))
    last("absences", "skuwise_absence", (*AGENT_NODE_LABELS, "scope", "subject", "metric", "reason"),
         'metric=~"[*]|gpu"')  # fmt: skip
    anchors = carriers(known)
    if anchors and "kube_node_status_capacity" in known:
        held = " or ".join(f"{name}{selector(matches, *labels)}" for name in anchors for labels in PODS)
        by = ", ".join(NODE_LABELS)
        queries["sharing"] = (f"max by ({by}) (count by ({by}, UUID, GPU_I_ID) ({held})) > 1", end, NODE_LABELS)
    if "kube_pod_container_resource_requests" in known:
        asked = f"kube_pod_container_resource_requests{selector(matches, _GPU_RESOURCES)}"
        each = f"max by (node, namespace, pod, container) (last_over_time({asked}[{span}]))"
        if "kube_pod_status_phase" in known:
            # A pod that has ended stays listed with its requests for a while.
            running = f"kube_pod_status_phase{selector(matches, _ON_A_NODE)}"
            phase = f"max by (namespace, pod) (last_over_time({running}[{span}])) == 1"
            each = f"{each} * on (namespace, pod) group_left () ({phase})"
        for n, at in enumerate(moments[:: max(len(moments) // _REQUESTED, 1)]):
            queries[f"requests {n}"] = (f"sum by (node) ({each})", at, _KUBE_NODE)
    return queries


@dataclass(frozen=True)
class Described:
    """All that is known of nodes beside their GPUs. `names`: nodes that something says have GPUs, or should."""

    names: frozenset[str]
    renamed: Mapping[str, str]
    parents: Mapping[str, str]
    agents: frozenset[str]
    kubernetes: bool
    _hosts: Hosts
    _facts: Mapping[str, Mapping[str, object]]
    _catalog: Catalog

    def name_of(self, called: str) -> str:
        """A node's name, for what an exporter calls it."""
        return self.renamed.get(called, called)

    def host_of(self, labels: Labels) -> str | None:
        """The GPU node that a series of node_exporter speaks of; None: a node without GPUs."""
        return self._hosts.node(labels)

    def sku_of(self, name: str) -> str:
        """The catalog's name of a GPU, else the driver's."""
        found = self._catalog.gpu(name)
        return found.name if found is not None else name

    def told(self, name: str, gpus: Sequence[ExpectedGpu], known: Mapping[str, float] | None = None) -> NodeCoverage:
        facts = self._facts.get(name, {})
        was = next((old for old, new in self.renamed.items() if new == name), None)
        return NodeCoverage(
            node=name, gpus=tuple(gpus), known=known or {}, agent=name in self.agents, renamed_from=was,
            **facts,  # type: ignore[arg-type] - fields of NodeTold, made below
        )  # fmt: skip


def described(
    answers: Mapping[str, SeriesAnswer],
    skus: Mapping[str, Mapping[str, str | None]],
    catalog: Catalog,
    roles: Mapping[str, Role],
) -> Described:
    """From the answers to `identity_queries`. `skus`: node, as its exporter calls it, -> GPU -> catalog name."""
    pods = {
        pod: node for labels in _labels(answers, "exporter pods")
        if (pod := labels.get("exported_pod") or labels.get("pod")) and (node := _kube_node(labels))
    }  # fmt: skip
    renamed = {called: pods[called] for called in skus if called in pods}
    capacity = _numbers(answers.get("capacity"), _kube_node)
    requested: dict[str, int] = {}
    for name, answer in answers.items():
        if name.startswith("requests"):
            for node, count in _numbers(answer, _kube_node).items():
                requested[node] = max(requested.get(node, 0), count)
    # Where GPUs are shared in time, Kubernetes counts each as several.
    shared = {renamed.get(node, node) for labels in _labels(answers, "sharing") if (node := node_of(labels))}
    agents = {node: labels for labels in _labels(answers, "agents") if (node := agent_node(labels))}
    own = {renamed.get(called, called): gpus for called, gpus in skus.items()}
    by_kube = {node for node, count in {**capacity, **requested}.items() if count > 0}
    exporters = NodeNames(own)
    # Exporters may write a short name where Kubernetes writes a long one: the exporter's is the node's.
    names = {exporters.matched(node) or node for node in by_kube} | {exporters.matched(node) or node for node in agents}
    known = NodeNames({*own, *names})
    hosts = Hosts(known, _labels(answers, "uname"))
    found = Described(
        frozenset(names), renamed, _parents(answers), frozenset(known.matched(node) or node for node in agents),
        bool(capacity or requested or pods), hosts, {}, catalog,
    )  # fmt: skip
    ports = _ports(answers, found, {node: len(gpus) for node, gpus in own.items()}, roles)
    dmi = {node: labels for labels in _labels(answers, "dmi") if (node := found.host_of(labels))}
    kube = {node: one for one in _labels(answers, "labels") if (node := known.matched(_kube_node(one) or ""))}
    declared = {**_matched(capacity, known), **_matched(_numbers(answers.get("declared"), agent_node), known)}
    asked = {node: count for node, count in _matched(requested, known).items() if node not in shared}
    about = {known.matched(node) or node: one for node, one in agents.items()}
    absences = _absences(answers, known)
    counted = Counter(known.matched(node) for labels in _labels(answers, "agent ports") if (node := agent_node(labels)))
    facts: dict[str, dict[str, object]] = {}
    for node in {*own, *names}:
        mine = own.get(node, {})
        if node in shared and mine and declared.get(node, 0) % len(mine) == 0:
            declared.pop(node, None)
        facts[node] = {
            "declared": declared.get(node), "requested": asked.get(node, 0),
            "fabric_ports": len(ports.get(node, ())) or counted.get(node, 0), "absences": absences.get(node, ()),
            **(_by_agent(about[node]) if node in about
               else _by_signs(mine, ports.get(node, ()), dmi.get(node), kube.get(node), catalog)),
        }  # fmt: skip
    return replace(found, _facts=facts)


_IDENTITY = ("node_sku", "node_sku_source", "provider", "region")


def _by_agent(labels: Labels) -> dict[str, object]:
    return {
        "node_sku": labels.get("node_sku"), "node_sku_source": labels.get("node_sku_source"),
        "provider": labels.get("provider"), "region": labels.get("exported_region") or labels.get("region"),
    }  # fmt: skip


def _by_signs(
    gpus: Mapping[str, str | None],
    ports: Sequence[FabricPort],
    firmware: Labels | None,
    labels: Labels | None,
    catalog: Catalog,
) -> dict[str, object]:
    """A node that no agent describes, as advice has it."""
    whole = [Gpu(uuid, 0, sku or "", sku if sku and catalog.gpu(sku) else None) for uuid, sku in gpus.items()]
    told = by_signs(whole, ports, firmware, labels, catalog)
    return {name: told[name] for name in _IDENTITY}


def _ports(
    answers: Mapping[str, SeriesAnswer], about: Described, gpu_counts: Mapping[str, int], configured: Mapping[str, Role]
) -> dict[str, tuple[FabricPort, ...]]:
    rates: dict[tuple[str, str, int], float] = {}
    answer = answers.get("rates")
    for labels, value in zip(answer.labels, answer.values, strict=True) if answer is not None else ():
        key = port_key(labels, about.host_of(labels))
        if key is not None and 0 < value[0] < _MOST_RATE:
            rates[key] = float(value[0])
    roles = roles_of(list(rates), rates, gpu_counts, configured)
    found: dict[str, list[FabricPort]] = {}
    for key, rate in rates.items():
        role = _ROLES.get(roles[key], "unknown")
        found.setdefault(key[0], []).append(FabricPort(key[1], key[2], role, "InfiniBand", rate))
    return {node: tuple(own) for node, own in found.items()}


def _absences(answers: Mapping[str, SeriesAnswer], known: NodeNames) -> dict[str, tuple[Absent, ...]]:
    """What agents cannot read of their GPUs at all. The page tells the reason alone; words are the agent's own."""
    found: dict[str, dict[Absent, None]] = {}
    for labels in _labels(answers, "absences"):
        node = agent_node(labels)
        if node is None or not (labels.get("scope") == "gpu" or labels.get("subject") in (None, *DRIVER_NAMES)):
            continue
        reason = labels.get("reason", "unknown")
        detail, remedy = _WORDS.get(reason, (f"The agent reports {reason}.", "Run 'skuwise agent doctor' on the node."))
        found.setdefault(known.matched(node) or node, {})[Absent("*", reason, detail, remedy)] = None
    return {node: tuple(sorted(own, key=lambda one: one.reason != "no-driver")) for node, own in found.items()}


_WORDS = {
    "no-driver": (
        "No NVIDIA driver on this node, or it is not loaded.",
        "Install or load the NVIDIA driver; check with nvidia-smi.",
    ),
}


def _parents(answers: Mapping[str, SeriesAnswer]) -> dict[str, str]:
    """Our agent's MIG instances and the GPUs that they are a part of."""
    return {
        uuid: parent for labels in _labels(answers, "instances")
        if (uuid := labels.get("gpu_uuid")) and (parent := labels.get("parent_uuid"))
    }  # fmt: skip


def _kube_node(labels: Labels) -> str | None:
    return labels.get("exported_node") or labels.get("node")


def _labels(answers: Mapping[str, SeriesAnswer], name: str) -> Iterable[Labels]:
    answer = answers.get(name)
    return answer.labels if answer is not None else ()


def _numbers(answer: SeriesAnswer | None, node: Callable[[Labels], str | None]) -> dict[str, int]:
    """Node -> the largest whole number of GPUs that is told of it."""
    out: dict[str, int] = {}
    for labels, value in zip(answer.labels, answer.values, strict=True) if answer is not None else ():
        name, count = node(labels), float(value[0])
        if name and math.isfinite(count) and 1 <= count <= _MOST_GPUS:
            out[name] = max(out.get(name, 0), round(count))
    return out


def _matched(counts: Mapping[str, int], known: NodeNames) -> dict[str, int]:
    return {known.matched(node) or node: count for node, count in counts.items()}
