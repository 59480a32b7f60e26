"""What a fleet is: nodes, how each is observed, and workloads on GPUs or their MIG instances.

Rests on: dcgm-exporter's labels as Prometheus renames them without honor_labels (exported_*), and its issues (50,
105, 216, 430: GPU_UTIL of MIG instances absent or 0; 68: Hostname is the exporter's pod; 151, 201, 587: a value
repeated for each pod that shares a GPU); DCGM issue 303 (profiling fields at 0 after an XID); kube-state-metrics'
documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import owners
from .hardware import GpuModel, Machine
from .names import unique

DAY = 86400.0
START = 1780272000.0
"""Monday, 2026-06-01, 00:00 UTC."""


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
    prof_nvlink: tuple[int, ...] = ()
    """GPUs of which DCGM_FI_PROF_NVLINK_TX_BYTES and _RX_BYTES, which no default has, are exported."""
    stuck_prof: tuple[tuple[int, float], ...] = ()
    """(GPU, day): from that day its profiling fields stay at 0, after an XID. A true telemetry fault."""


USUAL = Observed()


@dataclass(frozen=True)
class Node:
    name: str
    machine: Machine
    observed: Observed = USUAL
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

    called_by: str = ""
    """The controller's name, where several entries (revisions, runs, groups) are of one; empty: `name`."""
    revision: int = 0
    """Of a controller: a rolling update makes pods of another ReplicaSet, others are made anew under their names."""
    first: int = 0
    """The number of its first pod: replicas that come later are entries of their own."""
    group: int = 0
    """Of a LeaderWorkerSet: which of its groups."""
    team: str = ""
    """What the pod's label `team` says, where kube-state-metrics' allow-list has it."""

    @property
    def called(self) -> str:
        return self.called_by or self.name

    @property
    def series(self) -> str:
        """What recurs: the controller, whatever its revisions, runs, groups and replicas."""
        return f"{self.namespace}/{self.called}"

    @property
    def gang(self) -> bool:
        """Whether its pods are one piece of work together."""
        return self.owner in owners.GANGS

    @property
    def pods(self) -> tuple[str, ...]:
        """The pod of each hold; empty texts outside Kubernetes."""
        if not self.namespace:
            return ("",) * len(self.holds)
        return tuple(owners.pod_name(self, number) for number in self.numbers)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of the pod of each hold."""
        places = [hold if self.pod_per == "hold" else hold.node for hold in self.holds]
        order = {place: number for number, place in enumerate(dict.fromkeys(places))}
        return tuple(self.first + order[place] for place in places)

    def uid(self, pod: str) -> str:
        """The UID of one of its pods: a pod that is made anew under its name has another."""
        return unique("pod", self.namespace, pod, *([self.revision] if self.revision else []))

    @property
    def job(self) -> str:
        """Of a Job its name; of a CronJob the name of its Job, which ends in minutes since 1970."""
        return f"{self.called}-{int((START + self.begin_day * DAY) // 60)}" if self.owner == "CronJob" else self.called


@dataclass(frozen=True)
class KubeState:
    """How kube-state-metrics runs. `replicas`: two scrapes tell everything twice. `labels`: --metric-labels-allowlist
    has pods and namespaces. `exported`: honor_labels is not set, so that the target's own labels take the names
    namespace, pod and container. `nobody`: what stands where there is no owner ("<none>" in old versions)."""

    replicas: int = 1
    labels: bool = False
    exported: bool = False
    nobody: str = ""


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
    kube: KubeState = KubeState()
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
