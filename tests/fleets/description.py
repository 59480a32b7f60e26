"""What a fleet is: nodes, how each is observed, and workloads on GPUs or their MIG instances.

Rests on: dcgm-exporter's README and issues (15: labels renamed by Prometheus to exported_*; 50, 105, 216, 430: GPU_UTIL
of MIG instances absent or 0; 68: Hostname is the exporter's pod; 151, 201, 587: a value repeated for each pod that
shares a GPU); DCGM issue 303 (profiling fields at 0 after an XID); kube-state-metrics' documentation.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field

from .hardware import GpuModel, Machine

DAY = 86400.0
START = 1780272000.0
"""Monday, 2026-06-01, 00:00 UTC."""
_GENERATED = "bcdfghjklmnpqrstvwxz2456789"


def generated(length: int, *parts: object) -> str:
    """A generated part of a Kubernetes name, the same for the same parts."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return "".join(_GENERATED[byte % len(_GENERATED)] for byte in digest[:length])


def unique(*parts: object) -> str:
    """A UUID, the same for the same parts."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(map(str, parts))))


@dataclass(frozen=True)
class Slice:
    """A GPU instance (MIG), present from `begin_day` to `end_day` of the fleet (None: to its end)."""

    gpu: int
    instance: int
    profile: str
    begin_day: float = 0.0
    end_day: float | None = None


@dataclass(frozen=True)
class Observed:
    """Which exporters a node has, and in which of their variants."""

    dcgm: bool = True
    node_exporter: bool = True
    kube: bool = True
    prof: bool = True
    """False: DCGM's profiling fields (DCGM_FI_PROF_*) are not exported at all."""
    more_prof: bool = False
    """SM_ACTIVE and SM_OCCUPANCY, which are off by default."""
    mig_util: str = "absent"
    """GPU_UTIL and MEM_COPY_UTIL of instances: "absent" or "zero"."""
    mig_parent: bool = False
    """The parent of instances has memory and power series of its own too."""
    pods: str = "honored"
    """Workload labels of dcgm-exporter: "honored" (pod), "exported" (exported_pod), "none"."""
    hpc_job: bool = False
    hostname: str = "node"
    """The label Hostname: "node", or "pod" (the exporter's pod, where NODE_NAME is not set)."""
    nvlink: str = "rate"
    """NVLINK_BANDWIDTH_TOTAL: "rate" (MB/s) or "cumulative" (MB)."""
    node_labels: bool = False
    """kube_node_labels with region, zone and instance type (needs kube-state-metrics' allow-list)."""
    stuck_prof: tuple[tuple[int, float], ...] = ()
    """(GPU, day): from that day its profiling fields stay at 0, after an XID. A true telemetry fault."""


@dataclass(frozen=True)
class Node:
    name: str
    machine: Machine
    observed: Observed = Observed()
    slices: tuple[Slice, ...] = ()

    @property
    def gpu(self) -> GpuModel:
        return self.machine.gpu

    def uuid(self, gpu: int) -> str:
        return f"GPU-{unique('gpu', self.name, gpu)}"

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(self.uuid(index) for index in range(self.machine.gpus))

    def sliced(self, gpu: int) -> tuple[Slice, ...]:
        return tuple(one for one in self.slices if one.gpu == gpu)


@dataclass(frozen=True)
class Hold:
    """What a workload holds: a GPU, or one of its instances."""

    node: str
    gpu: int
    instance: int | None = None


@dataclass(frozen=True)
class Workload:
    """Somebody's work. `behavior` names an entry of behaviors.BEHAVIORS, which carries the true kind and bottleneck."""

    name: str
    behavior: str
    holds: tuple[Hold, ...]
    namespace: str = ""
    """Empty: the work runs outside Kubernetes."""
    owner: str = "Deployment"
    image: str = ""
    hpc_job: str = ""
    pod_per: str = "node"
    """One pod a "node", or one a "hold" (replicas of one GPU or instance each)."""
    begin_day: float = 0.0
    end_day: float | None = None

    @property
    def pods(self) -> tuple[str, ...]:
        """The pod of each hold; empty texts outside Kubernetes."""
        if not self.namespace:
            return ("",) * len(self.holds)
        places = [hold if self.pod_per == "hold" else hold.node for hold in self.holds]
        order = {place: number for number, place in enumerate(dict.fromkeys(places))}
        return tuple(self._pod(order[place]) for place in places)

    def _pod(self, number: int) -> str:
        if self.owner in ("StatefulSet", "Notebook"):
            return f"{self.name}-{number}"
        if self.owner in ("PyTorchJob", "MPIJob"):
            return f"{self.name}-master-0" if number == 0 else f"{self.name}-worker-{number - 1}"
        if self.owner == "Deployment":
            return f"{self.replica_set}-{generated(5, self.namespace, self.name, number)}"
        if self.owner == "Pod":
            return self.name if number == 0 else f"{self.name}-{number}"
        return f"{self.job}-{generated(5, self.namespace, self.name, number)}"

    @property
    def replica_set(self) -> str:
        return f"{self.name}-{generated(10, self.namespace, self.name)}"

    @property
    def job(self) -> str:
        """Of a Job its name; of a CronJob the name of its Job, which ends in minutes since 1970."""
        return f"{self.name}-{int((START + self.begin_day * DAY) // 60)}" if self.owner == "CronJob" else self.name


@dataclass(frozen=True)
class Fleet:
    name: str
    nodes: tuple[Node, ...]
    workloads: tuple[Workload, ...]
    days: float = 4.0
    interval_s: float = 120.0
    start: float = START
    missed: float = 0.002
    """Share of scrapes that fail."""
    _by_name: dict[str, Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {node.name: node for node in self.nodes})
        if len(self._by_name) != len(self.nodes):
            raise ValueError(f"two nodes of {self.name} have one name: rename one")
        for workload in self.workloads:
            for hold in workload.holds:
                self._check(workload, hold)

    def _check(self, workload: Workload, hold: Hold) -> None:
        node = self.node(hold.node)
        if not 0 <= hold.gpu < node.machine.gpus:
            raise ValueError(f"{workload.name} holds GPU {hold.gpu} of {node.name}: it has {node.machine.gpus}")
        present = {one.instance for one in node.sliced(hold.gpu)}
        if (hold.instance is None) == bool(present) or (hold.instance is not None and hold.instance not in present):
            raise ValueError(f"{workload.name} holds {hold}: GPU {hold.gpu} has instances {sorted(present)}")

    def node(self, name: str) -> Node:
        return self._by_name[name]

    @property
    def end(self) -> float:
        return self.start + self.days * DAY

    def at(self, day: float | None) -> float:
        """Unix seconds of a day of the fleet; None is its end."""
        return self.end if day is None else min(self.start + day * DAY, self.end)

    def holders(self, node: Node, gpu: int, instance: int | None = None) -> list[tuple[Workload, int]]:
        """Who holds a GPU or an instance, with the number of the hold in its workload."""
        place = Hold(node.name, gpu, instance)
        return [(one, n) for one in self.workloads for n, hold in enumerate(one.holds) if hold == place]
