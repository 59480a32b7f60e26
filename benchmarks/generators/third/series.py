"""Lines of VictoriaMetrics' import API for all that a fleet's Prometheus scrapes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import orjson

from .exporters import RESERVED_GIB, SCRAPE, Observed, Seen
from .fleet import Run, Workload
from .hardware import Machine, Slot
from .naming import Name
from .rhythm import jitter

A = npt.NDArray[np.floating]
KUBE_SCRAPE = 120
_OPTIONAL = {"sm": "has_sm", "occupancy": "has_sm", "nvlink_tx": "has_nvlink", "nvlink_rx": "has_nvlink"}
_PROF = {
    "engine": "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "sm": "DCGM_FI_PROF_SM_ACTIVE", "occupancy": "DCGM_FI_PROF_SM_OCCUPANCY",
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "dram": "DCGM_FI_PROF_DRAM_ACTIVE",
    "pcie_tx": "DCGM_FI_PROF_PCIE_TX_BYTES", "pcie_rx": "DCGM_FI_PROF_PCIE_RX_BYTES",
    "nvlink_tx": "DCGM_FI_PROF_NVLINK_TX_BYTES", "nvlink_rx": "DCGM_FI_PROF_NVLINK_RX_BYTES",
}  # fmt: skip


def _numbers(values: A | npt.NDArray[np.int64]) -> str:
    """As JSON; whole numbers without their zeros."""
    whole = np.rint(values)
    is_whole = bool(np.array_equal(whole, values))
    return orjson.dumps(whole.astype(np.int64) if is_whole else values, option=orjson.OPT_SERIALIZE_NUMPY).decode()


class _Target:
    """One scrape target: its moments, as text once for all of its series."""

    def __init__(self, stamps: npt.NDArray[np.int64], kept: npt.NDArray[np.bool_]) -> None:
        self.stamps, self.kept = stamps, kept
        self._texts: dict[tuple[int, int], tuple[npt.NDArray[np.int64], str]] = {}

    def line(self, name: str, labels: Mapping[str, object], values: A, span: tuple[int, int] | None = None) -> str:
        """One series, or the part of it between two moments; nothing where none is left."""
        first, last = span or (0, len(self.stamps))
        if (first, last) not in self._texts:
            at = np.flatnonzero(self.kept[first:last]) + first
            self._texts[first, last] = at, _numbers(self.stamps[at])
        at, stamps = self._texts[first, last]
        if not len(at):
            return ""
        metric = {"__name__": name, **{k: str(v) for k, v in labels.items() if v not in (None, "")}}
        numbers = _numbers(np.ascontiguousarray(values[at]))
        return f'{{"metric":{json.dumps(metric)},"values":{numbers},"timestamps":{stamps}}}\n'

    def constant(
        self, name: str, labels: Mapping[str, object], value: float, span: tuple[int, int] | None = None
    ) -> str:
        return self.line(name, labels, np.full(len(self.stamps), value), span)


def lines(out: Observed) -> Iterator[str]:
    """All series."""
    for machine in out.fleet.machines:
        seconds = out.fleet.start + np.arange(out.scrapes) * SCRAPE + out.offsets[machine.name]
        target = _Target(np.rint(seconds * 1000).astype(np.int64), ~out.missed[machine.name])
        for slot in machine.slots:
            yield from _gpu(out, machine, slot, target)
        yield from _node(out, machine, target)
    yield from _kube(out)
    yield from _engines(out)


def _gpu(out: Observed, machine: Machine, slot: Slot, target: _Target) -> Iterator[str]:
    seen = out.gpus[machine.name][slot.key]
    about: dict[str, object] = {
        "Hostname": machine.name, "UUID": slot.uuid, "gpu": slot.index, "device": f"nvidia{slot.index}",
        "modelName": machine.part.model, "instance": f"{machine.address}:9400", "job": "dcgm-exporter",
        "GPU_I_ID": slot.instance, "GPU_I_PROFILE": slot.profile.name if slot.profile else None,
    }  # fmt: skip
    texts = list(_values(out, machine, slot, seen))
    for first, last, names in _labelled(out, machine, seen):
        for name, values in texts:
            for labels in names:
                yield target.line(name, {**about, **labels}, values, (first, last))


def _values(out: Observed, machine: Machine, slot: Slot, seen: Seen) -> Iterator[tuple[str, A]]:
    v, part = seen.values, machine.part
    rng = np.random.default_rng(int(slot.uuid[4:12], 16) + (slot.instance or 0))
    share = slot.profile.memory / 8 if slot.profile else 1.0
    total = (part.gib - RESERVED_GIB) * 1024 * share
    used = np.round(v["memory"] * total + (3 if v["memory"].max() < 0.01 else 0))
    yield "DCGM_FI_DEV_FB_USED", used
    yield "DCGM_FI_DEV_FB_FREE", np.round(total - used)
    watts, clock = v["watts"], v["clock"]
    if slot.instance is None:
        yield "DCGM_FI_DEV_GPU_UTIL", np.round(100 * v["util"])
    else:  # clocks, power and temperature are the parent's, repeated
        parts = [out.gpus[machine.name][s.key].values for s in machine.slots if s.uuid == slot.uuid]
        drawn = np.sum([(instance["watts"] - part.idle_watts) * 0.4 for instance in parts], axis=0)
        watts = np.clip(part.idle_watts + drawn, part.idle_watts, part.tdp)
        clock = np.maximum.reduce([instance["clock"] for instance in parts])
    yield "DCGM_FI_DEV_POWER_USAGE", np.round(watts.astype(np.float64), 3)
    yield "DCGM_FI_DEV_GPU_TEMP", np.round(30 + 40 * watts / part.tdp + 18 * (clock < 0.8) * (watts > 0.35 * part.tdp))
    yield "DCGM_FI_DEV_SM_CLOCK", np.round(clock * part.boost_mhz / 15) * 15
    yield "DCGM_FI_DEV_MEM_CLOCK", np.full(len(watts), part.memory_mhz)
    for name, metric in _PROF.items():
        if name in _OPTIONAL and not getattr(machine, _OPTIONAL[name]):
            continue
        if name.startswith("nvlink") and (not part.nvlink or slot.instance is not None):
            continue
        values = v[name]
        if name.endswith(("tx", "rx")):
            # Management traffic is there always.
            traffic = 2e5 * (name[:4] == "pcie") * jitter(rng, len(values), 0.4)
            yield metric, np.round(values.astype(np.float64) + traffic)
        else:
            most = 1.03 if slot.instance is not None and name == "sm" else 1.0
            yield metric, np.round(np.clip(values, 0, most).astype(np.float64), 5)


def _labelled(out: Observed, machine: Machine, seen: Seen) -> list[tuple[int, int, list[dict[str, object]]]]:
    """Spans of scrapes with the labels that the series have in them; several where pods share a device."""
    edges = sorted({0, out.scrapes, *(a for a, *_ in seen.labels), *(b for _, b, *_ in seen.labels)})
    targets = []
    for first, last in pairwise(edges):
        inside = [(run, node) for a, b, run, node in seen.labels if a <= first and b >= last]
        names = [labels for run, node in inside if (labels := _names(run, node))]
        rest: dict[str, object] = {"hpc_job": "0"} if machine.scheduler == "slurm" else {}
        targets.append((first, last, names or [rest]))
    return targets


def _names(run: Run, node: int) -> dict[str, object]:
    name = run.name.of_node(node)
    if name.job is not None:
        return {"hpc_job": name.job}
    return {"pod": name.pod, "namespace": name.namespace, "container": name.container} if name.pod else {}


def _node(out: Observed, machine: Machine, target: _Target) -> Iterator[str]:
    host, shape = out.hosts[machine.name], machine.shape
    rng = np.random.default_rng(len(machine.name) + int(machine.name[-3:]))
    about = {"instance": f"{machine.address}:9100", "job": "node-exporter"}

    def counter(name: str, labels: Mapping[str, object], rate: A, begin: float) -> str:
        values = np.round(begin + np.cumsum(rate.astype(np.float64)) * SCRAPE, 3)
        return target.line(name, {**about, **labels}, values)

    def constant(name: str, value: float, **labels: object) -> str:
        return target.constant(name, {**about, **labels}, value)

    yield constant("node_uname_info", 1, nodename=machine.name, sysname="Linux", release="6.8.0-57-generic")
    if shape.vendor is not None:
        asset = "7783-7084-3265-9085-8269-3286-77" if shape.vendor.startswith("Microsoft") else ""
        product = shape.instance_type if shape.vendor.startswith("Amazon") else "Virtual Machine"
        named = {"system_vendor": shape.vendor, "product_name": product, "chassis_asset_tag": asset}
        yield constant("node_dmi_info", 1, **named)
    busy = np.clip(host["cpu"] / shape.cores, 0, 0.995)
    wait = np.clip(host["iowait"], 0, 1 - busy)
    modes = {"idle": 1 - busy - wait, "iowait": wait, "user": 0.85 * busy, "system": 0.15 * busy}
    # Two cores stand for all of the node's: means over cores are the same.
    for core in ("0", "1"):
        traffic = jitter(rng, out.scrapes, 0.01)
        for mode, share in modes.items():
            yield counter("node_cpu_seconds_total", {"cpu": core, "mode": mode}, np.clip(share * traffic, 0, 1), 1e6)
    memory = shape.host_gib * 1024**3
    free = np.maximum(memory - host["host_memory"].astype(np.float64) * 1024**3, 0.05 * memory)
    yield constant("node_memory_MemTotal_bytes", memory)
    yield target.line("node_memory_MemAvailable_bytes", about, free)
    yield counter("node_disk_read_bytes_total", {"device": "nvme0n1"}, host["read"], 3e12)
    yield counter("node_disk_written_bytes_total", {"device": "nvme0n1"}, host["write"], 2e12)
    is_ib = shape.fabric == "ib"
    speed = 25e9 / 8 if is_ib else shape.ports * shape.port_bits / 8
    for direction, storage in (("receive", host["storage_rx"]), ("transmit", 0.02 * host["storage_rx"])):
        traffic = host["fabric_rx" if direction == "receive" else "fabric_tx"]
        flow = np.minimum(storage if is_ib else storage + traffic, 0.97 * speed)
        yield counter(f"node_network_{direction}_bytes_total", {"device": "eth0"}, flow, 5e12)
    yield constant("node_network_speed_bytes", speed, device="eth0")
    yield constant("node_network_info", 1, device="eth0", operstate="up")
    for collector in ("netdev", "netclass"):
        yield constant("node_scrape_collector_success", 1, collector=collector)
    for port in range(shape.ports if is_ib else 0):
        label = {"device": f"mlx5_{port}", "port": "1"}
        for name, direction in (("transmitted", "fabric_tx"), ("received", "fabric_rx")):
            flow = host[direction] / shape.ports * jitter(rng, out.scrapes, 0.01)
            yield counter(f"node_infiniband_port_data_{name}_bytes_total", label, flow, 8e13)
        yield constant("node_infiniband_rate_bytes_per_second", shape.port_bits / 8, **label)
        yield constant("node_infiniband_state_id", 4, **label)


def _kube(out: Observed) -> Iterator[str]:
    fleet = out.fleet
    n = fleet.seconds // KUBE_SCRAPE
    stamps = ((fleet.start + np.arange(n) * KUBE_SCRAPE + 17) * 1000).astype(np.int64)
    target = _Target(stamps, fleet.rng(5).random(n) > 0.003)
    base: dict[str, object] = {"job": "kube-state-metrics", "instance": "10.9.0.4:8080"}
    for machine in fleet.machines:
        if machine.scheduler != "kubernetes":
            continue
        node = {**base, "node": machine.name}
        yield target.constant("kube_node_info", {**node, "kernel_version": "6.8.0-57-generic"}, 1)
        shape = machine.shape
        if shape.instance_type is not None:
            place = {"topology_kubernetes_io_region": shape.region}
            place = {"node_kubernetes_io_instance_type": shape.instance_type, **place}
            labels = {f"label_{key}": value for key, value in place.items()}
            yield target.constant("kube_node_labels", {**node, **labels}, 1)
        profiles = Counter(_resource(slot) for slot in machine.slots)
        shared = 4 if shape.gpus == 2 and shape.part == "L4" else 1
        for resource in sorted(profiles):
            count = profiles[resource] if machine.is_mig else shape.gpus * shared
            capacity = {**node, "resource": resource, "unit": "integer"}
            yield target.constant("kube_node_status_capacity", capacity, count)
    for workload in fleet.workloads:
        for run in workload.runs:
            for number, (machine, slots) in enumerate(run.members):
                name = run.name.of_node(number)
                if name.pod is not None:
                    yield from _pod(out, target, base, workload, run, name, machine, slots)
    waited = (n - 20, n)  # of the last 40 minutes
    for series, labels, value in fleet.queue.pods:
        for replica in (base, {**base, "instance": "10.9.0.5:8080"}):
            yield target.constant(series, {**replica, **labels}, value, waited)


def _resource(slot: Slot) -> str:
    return "nvidia_com_gpu" if slot.profile is None else "nvidia_com_mig_" + slot.profile.name.replace(".", "_")


def _owner(kind: str, name: str) -> dict[str, object]:
    return {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true" if kind != "<none>" else "<none>"}


def _pod(
    out: Observed, target: _Target, base: dict[str, object], workload: Workload, run: Run, name: Name,
    machine: Machine, slots: list[Slot],
) -> Iterator[str]:  # fmt: skip
    span = (max(run.start // KUBE_SCRAPE, 0), min(-(-run.end // KUBE_SCRAPE), out.fleet.seconds // KUBE_SCRAPE))
    uid = np.random.default_rng(sum(str(name.pod).encode()) * 7919 + workload.number).bytes(16).hex()
    space: dict[str, object] = {**base, "namespace": name.namespace}
    pod = {**space, "pod": name.pod, "uid": f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:]}"}
    made = {"Deployment": "ReplicaSet", "InferenceService": "ReplicaSet", "CronJob": "Job", "Notebook": "StatefulSet"}
    kind = made.get(name.owner_kind, name.owner_kind)
    kind, owner = ("<none>", "<none>") if kind == "Pod" else (kind, name.owner)
    about = {"created_by_kind": kind, "created_by_name": owner, "host_ip": machine.address}
    here = {"node": machine.name, "container": name.container}
    gpus = {**here, "resource": _resource(slots[0]), "unit": "integer"}
    cores = max(machine.shape.cores // max(machine.shape.gpus, 1) * len(slots) * 3 // 4, 1)
    began = out.fleet.start + run.start - run.since
    facts: list[tuple[str, Mapping[str, object], float]] = [
        ("info", {"node": machine.name, **about, "priority_class": "default"}, 1),
        ("owner", {**_owner(kind, owner), "owner_is_controller": "true"}, 1),
        ("container_info", {"container": name.container, "image": name.image}, 1),
        ("start_time", {}, began),
        ("created", {}, began - 4),
        ("status_phase", {"phase": "Running"}, 1),
        ("status_phase", {"phase": "Pending"}, 0),
        ("status_scheduled", {"condition": "true"}, 1),
        ("container_resource_requests", gpus, len(slots)),
        ("container_resource_limits", gpus, len(slots)),
        ("container_resource_requests", {**here, "resource": "cpu", "unit": "core"}, cores),
    ]
    for series, labels, value in facts:
        yield target.constant(f"kube_pod_{series}", {**pod, **labels}, value, span)
    if kind == "ReplicaSet":
        above = name.owner.rsplit("-", 1)[0]
        labels = {**space, "replicaset": name.owner, **_owner("Deployment", above)}
        yield target.constant("kube_replicaset_owner", labels, 1, span)
        if name.owner_kind == "InferenceService":
            labels = {**space, "deployment": above, **_owner("InferenceService", name.base)}
            yield target.constant("kube_deployment_owner", labels, 1, span)
    elif kind == "Job":
        above = ("CronJob", name.base) if name.owner_kind == "CronJob" else ("<none>", "<none>")
        yield target.constant("kube_job_owner", {**space, "job_name": name.owner, **_owner(*above)}, 1, span)


# Serving engine -> its series of running requests, of the KV cache in use, and of tokens.
_ENGINES = {
    "sglang": ("sglang:num_running_reqs", "sglang:token_usage", "sglang:generation_tokens_total"),
    "vllm": ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:generation_tokens_total"),
}


def _engines(out: Observed) -> Iterator[str]:
    """What serving engines say of themselves, where their pods are scraped."""
    for workload, run, values in out.engines:
        machine, engine = run.members[0][0], workload.archetype.engine or ""
        first = max(-(-(run.start - out.offsets[machine.name]) // SCRAPE), 0)
        count = len(values["running"])
        seconds = out.fleet.start + (first + np.arange(count)) * SCRAPE + out.offsets[machine.name] + 3
        target = _Target((seconds * 1000).astype(np.int64), ~out.missed[machine.name][first : first + count])
        about = {"namespace": run.name.namespace, "pod": run.name.pod, "container": run.name.container,
                 "instance": f"{machine.address}:8000", "job": "engines", "model_name": "llm"}  # fmt: skip
        for key, name in zip(("running", "kv", "tokens"), _ENGINES.get(engine, ()), strict=False):
            yield target.line(name, about, np.round(values[key].astype(np.float64), 5))
        if engine == "vllm":
            yield target.line("vllm:num_requests_waiting", about, np.maximum(values["running"] - 128, 0))
