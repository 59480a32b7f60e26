"""What goes missing or bad in a real Prometheus: each a pure function over series, with a readable name.

Rests on: DCGM's blank values (2147483632 for 32 bits, 9223372036854775792 for 64, 140737488355328 for
floating point, each with neighbors for "not found", "not supported", "not permitted"; -10 of an unsigned counter);
DCGM issue 303 (stuck at 0); exporters that repeat their last value when the host engine hangs; metric_relabel_configs
that drop labels; a server that was down for hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from skuwise.tests.server_metrics.prometheus_series import Series

from .description import Fleet, Node
from .generate import by_name
from .node import host_address

BLANKS = (2147483632.0, 2147483634.0, 9223372036854775792.0, 9223372036854775794.0, 18446744073709551606.0,
          140737488355328.0)  # fmt: skip
Chooses = Callable[[Series], bool]
Applies = Callable[[Iterable[Series]], list[Series]]


@dataclass(frozen=True)
class Removal:
    """`way`: which of the ways below; `name`: the same with its particulars, for test ids."""

    way: str
    name: str
    apply: Applies

    def __call__(self, series: Iterable[Series]) -> list[Series]:
        return self.apply(series)


def named(name: str) -> Chooses:
    return lambda one: one.name == name


def prefixed(prefix: str) -> Chooses:
    return lambda one: one.name.startswith(prefix)


def of_gpu(uuid: str) -> Chooses:
    return lambda one: one.labels.get("UUID") == uuid


def of_node(fleet: Fleet, node: Node) -> Chooses:
    """What is told of a node by its own exporters, and by kube-state-metrics of it and of pods that run on it."""
    uuids, here = set(node.uuids), f"{host_address(node) if node.observed.kube else node.name}:9100"
    pods = {
        (workload.namespace, pod)
        for workload in fleet.workloads
        for hold, pod in zip(workload.holds, workload.pods, strict=True)
        if hold.node == node.name and pod
    }

    def chosen(one: Series) -> bool:
        if one.name.startswith("kube_"):
            return one.labels.get("node") == node.name or (one.labels.get("namespace"), one.labels.get("pod")) in pods
        return one.labels.get("UUID") in uuids or one.labels.get("instance") == here

    return chosen


def both(*tests: Chooses) -> Chooses:
    return lambda one: all(test(one) for test in tests)


def everything(_: Series) -> bool:
    return True


def without(way: str, name: str, chosen: Chooses) -> Removal:
    return Removal(way, name, lambda series: by_name(one for one in series if not chosen(one)))


def changed(way: str, name: str, chosen: Chooses, change: Callable[[Series], Series]) -> Removal:
    return Removal(way, name, lambda series: by_name(change(one) if chosen(one) else one for one in series))


def without_metric(metric: str) -> Removal:
    return without("metric", f"without {metric}", named(metric))


def without_metric_of_node(metric: str, fleet: Fleet, node: Node) -> Removal:
    return without("metric of a node", f"without {metric} of {node.name}", both(named(metric), of_node(fleet, node)))


def without_metric_of_gpu(metric: str, node: Node, gpu: int) -> Removal:
    chosen = both(named(metric), of_gpu(node.uuid(gpu)))
    return without("metric of a GPU", f"without {metric} of {node.name} GPU {gpu}", chosen)


def without_gpu(node: Node, gpu: int) -> Removal:
    return without("GPU", f"without {node.name} GPU {gpu}", of_gpu(node.uuid(gpu)))


def without_exporter(prefix: str) -> Removal:
    return without("exporter", f"without {prefix}*", prefixed(prefix))


def without_exporter_of_node(prefix: str, fleet: Fleet, node: Node) -> Removal:
    return without(
        "exporter of a node", f"without {prefix}* of {node.name}", both(prefixed(prefix), of_node(fleet, node))
    )


def without_node(fleet: Fleet, node: Node) -> Removal:
    return without("node", f"without {node.name}", of_node(fleet, node))


def without_label(label: str, prefix: str = "DCGM_") -> Removal:
    """Series that no longer differ become one, as they do behind a relabeling rule."""

    def apply(series: Iterable[Series]) -> list[Series]:
        kept = [
            replace(one, labels={k: v for k, v in one.labels.items() if k != label})
            if one.name.startswith(prefix) and label in one.labels
            else one
            for one in series
        ]
        return by_name(merged(kept))

    return Removal("label", f"without the label {label} of {prefix}*", apply)


def merged(series: Iterable[Series]) -> list[Series]:
    """Series of one name and the same labels as one; of two values at one moment the first stays."""
    groups: dict[tuple[str, frozenset[tuple[str, object]]], list[Series]] = {}
    for one in series:
        groups.setdefault((one.name, frozenset(one.labels.items())), []).append(one)
    found: list[Series] = []
    for several in groups.values():
        if len(several) == 1:
            found.append(several[0])
            continue
        ts, first = np.unique(np.concatenate([one.ts for one in several]), return_index=True)
        found.append(replace(several[0], ts=ts, values=np.concatenate([one.values for one in several])[first]))
    return found


def blanks(metric: str, chosen: Chooses, where: str, blank: float, share: float, rng: np.random.Generator) -> Removal:
    """A share of the samples (1: all) reads one of DCGM's blank values."""
    seed = int(rng.integers(2**32))

    def change(one: Series) -> Series:
        hit = np.random.default_rng(seed).random(len(one.values)) < share
        return replace(one, values=np.where(hit, blank, one.values))

    name = f"{share:.0%} of {metric}{where} blank ({blank:.0f})"
    return changed("blank", name, both(named(metric), chosen), change)


def stuck_at_zero(prefix: str, chosen: Chooses, where: str, since: float) -> Removal:
    def change(one: Series) -> Series:
        return replace(one, values=np.where(one.ts >= since, 0.0, one.values))

    return changed(
        "stuck at 0", f"{prefix}*{where} stuck at 0 since {since:.0f}", both(prefixed(prefix), chosen), change
    )


def repeated(prefix: str, chosen: Chooses, where: str, since: float) -> Removal:
    """From a moment on the last value is told again and again."""

    def change(one: Series) -> Series:
        last = int(np.searchsorted(one.ts, since)) - 1
        if last < 0:
            return one
        values = one.values.copy()
        values[last:] = values[last]
        return replace(one, values=values)

    return changed("repeated", f"{prefix}*{where} repeated since {since:.0f}", both(prefixed(prefix), chosen), change)


def without_hours(fleet: Fleet, share: float, rng: np.random.Generator, node: Node | None = None) -> Removal:
    """Whole hours are missing, of everything or of one node."""
    hours = int(np.ceil(fleet.days * 24))
    gone = rng.choice(hours, size=max(1, round(share * hours)), replace=False)

    def change(one: Series) -> Series:
        stays = ~np.isin(((one.ts - fleet.start) // 3600).astype(int), gone)
        return replace(one, ts=one.ts[stays], values=one.values[stays])

    whose = f" of {node.name}" if node else ""
    return changed(
        "hours", f"without {share:.0%} of the hours{whose}", of_node(fleet, node) if node else everything, change
    )


DCGM_METRICS = (
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
)  # fmt: skip
OTHER_METRICS = (
    "node_uname_info", "node_dmi_info", "node_cpu_seconds_total", "node_memory_MemAvailable_bytes",
    "node_memory_MemTotal_bytes", "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total", "node_infiniband_rate_bytes_per_second",
    "node_network_receive_bytes_total", "node_network_transmit_bytes_total", "node_network_speed_bytes",
    "node_network_info", "kube_pod_info", "kube_pod_owner", "kube_replicaset_owner", "kube_pod_container_info",
    "kube_pod_container_resource_requests", "kube_pod_start_time", "kube_pod_status_phase", "kube_node_info",
    "kube_node_status_capacity", "kube_node_status_allocatable", "kube_node_labels",
)  # fmt: skip
IB_BYTES = "node_infiniband_port_data_"
LABELS = ("pod", "namespace", "container", "Hostname", "modelName", "pci_bus_id", "device", "GPU_I_PROFILE", "hpc_job",
          "instance", "UUID", "gpu")  # fmt: skip
EXPORTERS = ("DCGM_", "DCGM_FI_PROF_", "node_", "node_network_", "node_infiniband_", "kube_", "kube_pod_")


def removals(fleet: Fleet, rng: np.random.Generator, count: int) -> list[Removal]:
    """`count` removals, each way in turn, with particulars by chance; of 12 or more every way is there."""
    return [WAYS[number % len(WAYS)](fleet, rng) for number in range(count)]


def _any(rng: np.random.Generator, of: tuple[str, ...]) -> str:
    return of[int(rng.integers(len(of)))]


def _node(fleet: Fleet, rng: np.random.Generator) -> Node:
    """A node that some exporter tells of."""
    told = [node for node in fleet.nodes if node.observed.dcgm or node.observed.kube]
    return told[int(rng.integers(len(told)))]


def _gpu(fleet: Fleet, rng: np.random.Generator) -> tuple[Node, int]:
    told = [node for node in fleet.nodes if node.observed.dcgm]
    node = told[int(rng.integers(len(told)))]
    return node, int(rng.integers(node.machine.gpus))


def _moment(fleet: Fleet, rng: np.random.Generator) -> float:
    return fleet.start + float(np.floor(rng.uniform(0.1, 0.7) * fleet.days * 86400))


def _some(fleet: Fleet, rng: np.random.Generator) -> tuple[Chooses, str]:
    """Everything, a node or a GPU."""
    node, gpu = _gpu(fleet, rng)
    choices = ((everything, ""), (of_node(fleet, node), f" of {node.name}"),
               (of_gpu(node.uuid(gpu)), f" of {node.name} GPU {gpu}"))  # fmt: skip
    return choices[int(rng.integers(len(choices)))]


WAYS: tuple[Callable[[Fleet, np.random.Generator], Removal], ...] = (
    lambda fleet, rng: without_metric(_any(rng, DCGM_METRICS + OTHER_METRICS)),
    lambda fleet, rng: without_metric_of_node(_any(rng, DCGM_METRICS + OTHER_METRICS), fleet, _node(fleet, rng)),
    lambda fleet, rng: without_metric_of_gpu(_any(rng, DCGM_METRICS), *_gpu(fleet, rng)),
    lambda fleet, rng: without_gpu(*_gpu(fleet, rng)),
    lambda fleet, rng: without_exporter(_any(rng, EXPORTERS)),
    lambda fleet, rng: without_exporter_of_node(_any(rng, EXPORTERS), fleet, _node(fleet, rng)),
    lambda fleet, rng: without_label(_any(rng, LABELS)),
    lambda fleet, rng: without_node(fleet, _node(fleet, rng)),
    lambda fleet, rng: blanks(
        _any(rng, DCGM_METRICS), *_some(fleet, rng), BLANKS[int(rng.integers(len(BLANKS)))],
        float(rng.choice([0.02, 0.3, 1.0])), rng,
    ),
    lambda fleet, rng: stuck_at_zero(
        _any(rng, ("DCGM_FI_PROF_", IB_BYTES, *DCGM_METRICS)), *_some(fleet, rng), _moment(fleet, rng)
    ),
    lambda fleet, rng: repeated(
        _any(rng, ("DCGM_", IB_BYTES, *DCGM_METRICS)), *_some(fleet, rng), _moment(fleet, rng)
    ),
    lambda fleet, rng: without_hours(
        fleet, float(rng.choice([0.05, 0.3, 0.8])), rng, _node(fleet, rng) if rng.random() < 0.5 else None
    ),
)  # fmt: skip
