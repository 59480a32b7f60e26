"""Who a series speaks of: node, GPU and workload, in the spellings that exporters and relabelling leave behind.

Where a target's own label has the same name, Prometheus moves the exporter's to ``exported_NAME``: that one speaks of
the workload, the bare one of the exporter's own pod.
"""

from __future__ import annotations

import re

from ..client.response import Labels

_VIRTUAL = re.compile(
    r"(?P<gpu>GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-|::|/vgpu)[0-9]{1,4}", re.ASCII | re.IGNORECASE
)
# Best first. `Hostname` in older dcgm-exporters, `hostname` in newer; the rest is relabelling, by OpenTelemetry's
# collector as well.
NODE_LABELS = (
    "exported_Hostname", "Hostname", "exported_hostname", "hostname", "exported_node", "node", "nodename",
    "kubernetes_node", "node_name", "kubernetes_node_name", "k8s_node_name", "host_name", "instance",
)  # fmt: skip
# Of clusters behind one server: Prometheus Operator and Mimir first, then OpenTelemetry, Kubecost and what sites use.
CLUSTER_LABELS = ("cluster", "cluster_name", "k8s_cluster_name", "kubernetes_cluster", "k8s_cluster", "cluster_id")
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
AGENT_WORK_LABELS = (
    *AGENT_GPU_LABELS, "workload_id", "series_id", "scheduler", "job_id", "namespace", "pod", "exported_namespace",
    "exported_pod", "framework", "basis", "shared",
)  # fmt: skip
PORT_LABELS = ("device", "port")


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


def gpu_of(labels: Labels) -> tuple[str, str | None] | None:
    """The id of a GPU or MIG instance and its parent's; None for a series of no GPU.

    dcgm-exporter gives an instance its parent's UUID and a number: ours is both. Virtual devices are one GPU,
    counted once: time slicing calls them ``GPU-...::3``, HAMi ``GPU-...-3``, GKE ``GPU-.../vgpu3``."""
    uuid, instance = labels.get("UUID", ""), labels.get("GPU_I_ID")
    uuid = found["gpu"] if (found := _VIRTUAL.fullmatch(uuid)) else uuid
    return ((f"{uuid}/gi{instance}", uuid) if instance else (uuid, None)) if uuid else None
