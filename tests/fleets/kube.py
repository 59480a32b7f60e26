"""kube-state-metrics, without any configuration (labels of nodes, pods and namespaces apart: they need an allow-list).

Rests on: kube-state-metrics' docs/metrics (pod, replicaset, job, node, namespace): names and labels; resources named
nvidia_com_gpu and nvidia_com_mig_1g_10gb with unit "integer"; Kubernetes' provider ids; label names as its
allow-list turns them (label_topology_kubernetes_io_region); Prometheus' documentation of honor_labels: without it a
label that the target has too is kept as exported_*. Simplified: of phases those that occur, and Pending at 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from skuwise.tests.server_metrics.prometheus_series import Series

from .behaviors import Floats
from .dcgm import container_of, exporter_pod
from .description import Fleet, Node, Workload
from .names import generated, unique
from .node import host_address
from .owners import FINITE, Owned, launcher, owned
from .world import Mask, Target, World, address, target

AFTERWARDS_S = 3600.0
"""How long a finished pod of a Job stays listed."""


def kube_state_metrics(world: World, rng: np.random.Generator) -> Iterator[Series]:
    if not any(node.observed.kube for node in world.fleet.nodes):
        return
    own, where = world.fleet.kube, f"{address('ksm', world.fleet.name)}:8080"
    told: list[Series] = []
    for number in range(own.replicas):
        instance = where if number == 0 else f"{address('ksm', world.fleet.name, number)}:8080"
        at = target(world.fleet, world.clock, "kube-state-metrics", instance, rng if number == 0 else rng.spawn(1)[0])
        told += _everything(world, at)
    yield from map(_kept_apart, told) if own.exported else told


_CLASHING = ("namespace", "pod", "container")


def _kept_apart(one: Series) -> Series:
    """As Prometheus keeps a series whose target has labels of these names itself (the pod of kube-state-metrics)."""
    named = {f"exported_{name}" if name in _CLASHING else name: value for name, value in one.labels.items()}
    own = {"namespace": "monitoring", "pod": f"kube-state-metrics-{generated(10, 'ksm')}-{generated(5, 'ksm')}",
           "container": "kube-state-metrics"}  # fmt: skip
    return replace(one, labels=named | own)


def _everything(world: World, at: Target) -> Iterator[Series]:
    for node in world.fleet.nodes:
        if node.observed.kube:
            yield from _node(world, node, at)
    spaces: dict[str, str] = {}
    for workload in world.fleet.workloads:
        if workload.namespace:
            spaces.setdefault(workload.namespace, workload.team)
            yield from _workload(world, workload, at)
    if world.fleet.kube.labels:
        for space, team in spaces.items():
            label = {"label_team": team} if team else {}
            name = {"namespace": space, "label_kubernetes_io_metadata_name": space}
            yield at.series("kube_namespace_labels", name | label, 1.0)


def _node(world: World, node: Node, at: Target) -> Iterator[Series]:
    machine = node.machine
    info = {
        "node": node.name, "internal_ip": host_address(node), "kernel_version": "5.15.0-1066-generic",
        "os_image": "Ubuntu 22.04.4 LTS", "container_runtime_version": "containerd://1.7.19",
        "kubelet_version": "v1.29.6", "system_uuid": unique("system", node.name),
        "provider_id": machine.provider_id.format(host=generated(16, "host", node.name)),
    }  # fmt: skip
    yield at.series("kube_node_info", info, 1.0)
    amounts: dict[tuple[str, str], float] = {
        ("cpu", "core"): machine.vcpus, ("memory", "byte"): machine.memory_gib * 2**30, ("pods", "integer"): 110,
    }  # fmt: skip
    for name in ("kube_node_status_capacity", "kube_node_status_allocatable"):
        for (resource, unit), amount in amounts.items():
            yield at.series(name, {"node": node.name, "resource": resource, "unit": unit}, float(amount))
        for resource, counts in _gpus(world, node).items():
            yield at.series(name, {"node": node.name, "resource": resource, "unit": "integer"}, counts)
    if node.observed.node_labels:
        labels = {
            "node": node.name, "label_node_kubernetes_io_instance_type": machine.sku.replace(" ", "-"),
            "label_nvidia_com_gpu_product": node.gpu.name.replace(" ", "-"),
        }  # fmt: skip
        if machine.region:
            labels["label_topology_kubernetes_io_region"] = machine.region
            labels["label_topology_kubernetes_io_zone"] = f"{machine.region}-1"
        yield at.series("kube_node_labels", labels, 1.0)
    if node.observed.dcgm:
        uid = unique("pod", exporter_pod(node))
        pod = {"namespace": "gpu-operator", "pod": exporter_pod(node), "uid": uid}
        yield at.series("kube_pod_info", pod | {
            "node": node.name, "host_ip": host_address(node), "pod_ip": address("dcgm", node.name),
            "created_by_kind": "DaemonSet", "created_by_name": "nvidia-dcgm-exporter", "host_network": "false",
            "priority_class": "system-node-critical",
        }, 1.0)  # fmt: skip


def _gpus(world: World, node: Node) -> dict[str, Floats]:
    """Devices by resource name; under time slicing each GPU counts once for each pod that may share it."""
    whole = np.sum([~world.sliced(node, gpu) for gpu in range(node.machine.gpus)], axis=0)
    counts: dict[str, Floats] = {"nvidia_com_gpu": whole.astype(float) * world.sharing(node)}
    for one in node.slices:
        present = world.during(one.begin_day, one.end_day).astype(float)
        counts[_resource(one.profile)] = counts.get(_resource(one.profile), 0.0) + present
    return counts


def _resource(profile: str | None) -> str:
    return f"nvidia_com_mig_{profile.replace('.', '_')}" if profile else "nvidia_com_gpu"


def _workload(world: World, workload: Workload, at: Target) -> Iterator[Series]:
    finite = workload.owner in FINITE
    running = world.during(workload.begin_day, workload.end_day)
    end = np.inf if workload.end_day is None else world.fleet.at(workload.end_day)
    finished = (world.clock.ts >= end) & (world.clock.ts < end + AFTERWARDS_S) & finite
    listed = running | finished
    holds = list(zip(workload.holds, workload.pods, strict=True))
    numbers = dict(zip(workload.pods, workload.numbers, strict=True))
    for pod in dict.fromkeys(workload.pods):
        mine = [hold for hold, its in holds if its == pod]
        node = world.fleet.node(mine[0].node)
        key = {"namespace": workload.namespace, "pod": pod, "uid": workload.uid(pod)}
        above = owned(workload, numbers[pod])
        for name, labels in _pod(workload, node, pod, above, world.fleet).items():
            yield at.series(name, key | labels, 1.0, listed)
        yield at.series("kube_pod_start_time", key, np.floor(world.fleet.at(workload.begin_day)) - 45.0, listed)
        phases = {"Running": running, "Pending": np.zeros(len(running)), **({"Succeeded": finished} if finite else {})}
        for phase, values in phases.items():
            yield at.series("kube_pod_status_phase", key | {"phase": phase}, values.astype(float), listed)
        wanted: dict[str, float] = {}
        for hold in mine:
            profile = next((s.profile for s in node.sliced(hold.gpu) if s.instance == hold.instance), None)
            wanted[_resource(profile)] = wanted.get(_resource(profile), 0.0) + 1
        wanted_cpu = max(2.0, node.machine.vcpus * len(mine) / node.machine.gpus // 2)
        labels = key | {"container": container_of(workload.image), "node": node.name}
        for name in ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits"):
            for resource, amount in wanted.items():
                yield at.series(name, labels | {"resource": resource, "unit": "integer"}, amount, listed)
        cpu = labels | {"resource": "cpu", "unit": "core"}
        yield at.series("kube_pod_container_resource_requests", cpu, wanted_cpu, listed)
    beside = launcher(workload)
    if beside is not None:
        pod, above = beside
        key = {"namespace": workload.namespace, "pod": pod, "uid": workload.uid(pod)}
        node = world.fleet.node(workload.holds[0].node)
        for name, labels in _pod(workload, node, pod, above, world.fleet).items():
            yield at.series(name, key | labels, 1.0, listed)
        yield at.series("kube_pod_status_phase", key | {"phase": "Running"}, running.astype(float), listed)
    yield from _owners(world, workload, at, listed)


def _pod(workload: Workload, node: Node, pod: str, above: Owned, fleet: Fleet) -> dict[str, dict[str, str]]:
    container = {
        "container": container_of(workload.image), "image": workload.image, "image_spec": workload.image,
        "container_id": f"containerd://{unique('container', pod).replace('-', '')}",
    }  # fmt: skip
    nobody = fleet.kube.nobody
    kind, name = above.kind or nobody, above.name or nobody
    told = {
        "kube_pod_info": {
            "node": node.name, "host_ip": host_address(node), "pod_ip": address("pod", pod),
            "created_by_kind": kind, "created_by_name": name, "host_network": "false", "priority_class": "",
        },
        "kube_pod_owner": {
            "owner_kind": kind, "owner_name": name, "owner_is_controller": "true" if above.kind else nobody,
        },
        "kube_pod_container_info": container,
    }  # fmt: skip
    if fleet.kube.labels:
        label = {"label_team": workload.team} if workload.team else {}
        told["kube_pod_labels"] = {"label_app_kubernetes_io_name": workload.called, **label}
    return told


def _owners(world: World, workload: Workload, at: Target, listed: Mask) -> Iterator[Series]:
    nobody = world.fleet.kube.nobody
    found = {owned(workload, number) for number in workload.numbers}
    beside = launcher(workload)
    found |= {beside[1]} if beside else set()
    for own in sorted(one.above for one in found if one.above is not None):
        metric, name, kind, above = own
        label = "replicaset" if metric == "kube_replicaset_owner" else "job_name"
        labels = {
            "namespace": workload.namespace, label: name, "owner_kind": kind or nobody, "owner_name": above or nobody,
            "owner_is_controller": "true" if kind else nobody,
        }  # fmt: skip
        yield at.series(metric, labels, 1.0, listed)
