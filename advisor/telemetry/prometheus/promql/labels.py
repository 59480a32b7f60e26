"""Who a series speaks of: node, GPU and workload, in the spellings that exporters and relabelling leave behind.

Where a target's own label has the same name, Prometheus moves the exporter's to ``exported_NAME``: that one speaks of
the workload, the bare one of the exporter's own pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .....agent.inventory.identity.ids import series_id, slurm_parts, workload_id
from .....agent.inventory.kubernetes.pod_names import controller_of
from .....agent.store.writing.slurm_rows import short_name
from ..client.response import Labels

_VIRTUAL = re.compile(
    r"(?P<gpu>GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-|::|/vgpu)[0-9]{1,4}", re.ASCII | re.IGNORECASE
)
# Best first. `Hostname` in older dcgm-exporters, `hostname` in newer; the rest is relabelling.
NODE_LABELS = (
    "exported_Hostname", "Hostname", "exported_hostname", "hostname", "exported_node", "node", "nodename",
    "kubernetes_node", "node_name", "instance",
)  # fmt: skip
# Of clusters behind one server: Prometheus Operator and Mimir first, then OpenTelemetry and what sites use.
CLUSTER_LABELS = ("cluster", "cluster_name", "k8s_cluster_name", "kubernetes_cluster", "k8s_cluster")
HOST_LABELS = (*NODE_LABELS, *CLUSTER_LABELS)
_WORKLOAD = ("pod", "namespace", "container", "pod_uid", "hpc_job")
WORKLOAD_LABELS = (*_WORKLOAD, *(f"exported_{name}" for name in _WORKLOAD))
# By which dcgm-exporter tells the driver's version on every series.
DRIVER_LABEL = "DCGM_FI_DRIVER_VERSION"
DCGM_LABELS = (
    "UUID", "gpu", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "pci_bus_id", *HOST_LABELS, *WORKLOAD_LABELS, "job",
    DRIVER_LABEL,
)  # fmt: skip
# `cluster` in the page is the agent's own; an external label of this name would be the same for all.
AGENT_NODE_LABELS = ("exported_node", "node", "instance")
AGENT_GPU_LABELS = (*AGENT_NODE_LABELS, "gpu_uuid")
PORT_LABELS = ("device", "port")


@dataclass(frozen=True, slots=True)
class LabelledWork:
    """A workload as a series names it."""

    workload_id: str
    series_id: str | None
    name: str
    scheduler: str
    job_id: str | None = None
    namespace: str | None = None
    pod: str | None = None
    framework: str | None = None
    basis: str = "allocation"
    shared: bool = False
    cluster: str = ""


def node_of(labels: Labels) -> str | None:
    """The node that a series of dcgm-exporter or node_exporter speaks of; None where no label names one."""
    for name in NODE_LABELS:
        value = labels.get(name)
        if value:
            return host_of(value) if name == "instance" else value
    return None


def cluster_of(labels: Labels) -> str:
    """The cluster that a series names; empty where no label does."""
    return next((labels[name] for name in CLUSTER_LABELS if labels.get(name)), "")


def agent_node(labels: Labels) -> str | None:
    """The node that a series of our agent speaks of."""
    return labels.get("exported_node") or labels.get("node") or host_of(labels.get("instance", "")) or None


def host_of(instance: str) -> str:
    """The host of ``host:port``; IPv6 stands in brackets."""
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else instance


class NodeNames:
    """The known nodes, found by names that others give them."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = frozenset(known)
        self._short: dict[str, str | None] = {}
        for name in self._known:
            short = short_name(name)
            self._short[short] = None if short in self._short else name

    def matched(self, name: str) -> str | None:
        """The node that `name` means: the same, or the same before the first dot where only one is."""
        return name if name in self._known else self._short.get(short_name(name))


class Hosts:
    """The GPU node that a series of node_exporter speaks of, by its labels or by its instance's host name.

    `named`: labels of ``node_uname_info``.
    """

    def __init__(self, known: NodeNames, named: Iterable[Labels]) -> None:
        self._known = known
        self._by_instance = {
            labels["instance"]: node for labels in named
            if "instance" in labels and (node := known.matched(labels.get("nodename", ""))) is not None
        }  # fmt: skip
        self._found: dict[tuple[str, ...], str | None] = {}

    def node(self, labels: Labels) -> str | None:
        """None: a node without GPUs."""
        key = tuple(labels.get(name, "") for name in NODE_LABELS)
        if key not in self._found:
            by_instance, named = self._by_instance.get(labels.get("instance", "")), node_of(labels)
            self._found[key] = by_instance or (self._known.matched(named) if named else None)
        return self._found[key]


def gpu_of(labels: Labels) -> tuple[str, str | None] | None:
    """The id of a GPU or MIG instance and its parent's; None for a series of no GPU.

    dcgm-exporter gives an instance its parent's UUID and a number: ours is both.
    """
    uuid = device_of(labels.get("UUID", ""))
    if not uuid:
        return None
    instance = labels.get("GPU_I_ID")
    return (f"{uuid}/gi{instance}", uuid) if instance else (uuid, None)


def device_of(uuid: str) -> str:
    """The GPU of a virtual device: time slicing calls its replicas ``GPU-...::3``, HAMi ``GPU-...-3``, GKE
    ``GPU-.../vgpu3``. They are one device, whose use must not be counted once for each."""
    found = _VIRTUAL.fullmatch(uuid)
    return found["gpu"] if found else uuid


def has_exported(labels: Iterable[Labels]) -> bool:
    """Whether workloads are named by ``exported_pod``: then a bare ``pod`` is the exporter's own."""
    return any("exported_pod" in one or "exported_hpc_job" in one for one in labels)


def work_of(labels: Labels, *, exported: bool) -> LabelledWork | None:
    """The workload that a series of dcgm-exporter names; None for none. `exported`: see `has_exported`."""

    def label(name: str) -> str:
        return labels.get(f"exported_{name}", "") if exported else labels.get(name, "")

    cluster = cluster_of(labels)
    # Slurm's label is no target label anywhere, so it keeps its name.
    job = labels.get("exported_hpc_job") or labels.get("hpc_job")
    if job and job != "0":
        parts = slurm_parts(job, None, None)
        # The number alone tells nothing that recurs: without a name each job is a series of its own.
        return LabelledWork(workload_id(cluster, "slurm", *parts), None, f"job {job}", "slurm", job_id=job)
    pod = label("pod")
    if not pod or "exporter" in label("container"):
        return None
    namespace = label("namespace")
    uid = label("pod_uid")
    parts = (uid,) if uid else ("pod", namespace, pod)
    name = controller_of(pod)
    return LabelledWork(
        workload_id(cluster, "kubernetes", *parts),
        series_id(cluster, namespace or None, None, name),
        name,
        "kubernetes",
        namespace=namespace or None,
        pod=pod,
        cluster=cluster,
    )


def agent_work(labels: Labels) -> LabelledWork | None:
    """The workload of a series ``skuwise_workload_gpu_seconds_total``; its ids are the agent's own."""
    key = labels.get("workload_id")
    if not key:
        return None
    exported = "exported_pod" in labels or "exported_namespace" in labels
    pod = labels.get("exported_pod" if exported else "pod")
    job = labels.get("job_id")
    return LabelledWork(
        key,
        labels.get("series_id"),
        controller_of(pod) if pod else f"job {job}" if job else key,
        labels.get("scheduler", "process"),
        job_id=job,
        namespace=labels.get("exported_namespace" if exported else "namespace"),
        pod=pod,
        framework=labels.get("framework"),
        basis=labels.get("basis", "process"),
        shared=labels.get("shared") == "1",
    )


AGENT_WORK_LABELS = (
    *AGENT_GPU_LABELS, "workload_id", "series_id", "scheduler", "job_id", "namespace", "pod", "exported_namespace",
    "exported_pod", "framework", "basis", "shared",
)  # fmt: skip
