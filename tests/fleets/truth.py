"""What is true of a fleet, whatever its exporters tell: nodes, GPUs, instances, workloads, bottlenecks, faults."""

from __future__ import annotations

from dataclasses import dataclass

from .behaviors import BEHAVIORS
from .description import Fleet, Hold, Node, Workload


@dataclass(frozen=True)
class InstanceTruth:
    """A GPU instance and when it exists (Unix seconds)."""

    uuid: str
    gpu: int
    instance: int
    profile: str
    begin: float
    end: float


@dataclass(frozen=True)
class NodeTruth:
    """`sku`, `provider` and `region` may be told by no exporter: then nobody can know them, and they are true still."""

    name: str
    sku: str
    provider: str
    region: str
    gpu_sku: str
    gpu_count: int
    gpu_uuids: tuple[str, ...]
    mig_uuids: tuple[str, ...]
    """Physical GPUs that are divided at some time."""
    instances: tuple[InstanceTruth, ...]
    fabric: str
    observed_gpus: tuple[str, ...]
    """Physical GPUs of which dcgm-exporter tells anything; the others are known by count alone."""
    has_prof: bool
    free_uuids: tuple[str, ...]
    """Undivided GPUs that nobody ever holds."""
    free_instances: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Key:
    """By what a workload can be known; all empty where no label names it."""

    namespace: str = ""
    pods: tuple[str, ...] = ()
    hpc_job: str = ""


@dataclass(frozen=True)
class HeldTruth:
    node: str
    uuid: str
    instance: int | None
    profile: str


@dataclass(frozen=True)
class WorkloadTruth:
    name: str
    key: Key
    owner: str
    held: tuple[HeldTruth, ...]
    kind: str
    bottleneck: str
    accepted: frozenset[str]
    """`bottleneck` and what a careful judge may name instead."""
    healthy: bool
    """False: the telemetry of a GPU that it holds is faulty."""
    network: str
    """Of a network-bound workload "infiniband" or "ethernet", else empty."""
    launch_bound: bool
    labeled: bool
    """Some series ties its GPUs or its GPU requests to it."""
    observed: bool
    """dcgm-exporter tells of all that it holds."""
    has_prof: bool
    shares: bool
    """It shares a GPU with others (time slicing): the GPU's use is not its own."""
    begin: float
    end: float


@dataclass(frozen=True)
class Truth:
    nodes: tuple[NodeTruth, ...]
    workloads: tuple[WorkloadTruth, ...]
    begin: float
    end: float

    @property
    def gpu_count(self) -> int:
        return sum(node.gpu_count for node in self.nodes)

    def node(self, name: str) -> NodeTruth:
        return next(one for one in self.nodes if one.name == name)

    def workload(self, name: str) -> WorkloadTruth:
        return next(one for one in self.workloads if one.name == name)

    def of_pod(self, namespace: str, pod: str) -> WorkloadTruth | None:
        found = (one for one in self.workloads if one.key.namespace == namespace and pod in one.key.pods)
        return next(found, None)

    def of_gpu(self, uuid: str, instance: int | None = None) -> tuple[WorkloadTruth, ...]:
        return tuple(
            one for one in self.workloads if any(h.uuid == uuid and h.instance == instance for h in one.held)
        )  # fmt: skip


def truth(fleet: Fleet) -> Truth:
    nodes = tuple(_node(fleet, node) for node in fleet.nodes)
    return Truth(nodes, tuple(_workload(fleet, one) for one in fleet.workloads), fleet.start, fleet.end)


def _node(fleet: Fleet, node: Node) -> NodeTruth:
    machine, observed = node.machine, node.observed
    taken = {hold for workload in fleet.workloads for hold in workload.holds}
    divided = {one.gpu for one in node.slices}
    instances = tuple(
        InstanceTruth(node.uuid(s.gpu), s.gpu, s.instance, s.profile, fleet.at(s.begin_day), fleet.at(s.end_day))
        for s in node.slices
    )
    whole = [gpu for gpu in range(machine.gpus) if gpu not in divided]
    free = tuple(node.uuid(gpu) for gpu in whole if Hold(node.name, gpu) not in taken)
    nobody = tuple(
        dict.fromkeys((s.uuid, s.instance) for s in instances if Hold(node.name, s.gpu, s.instance) not in taken)
    )
    return NodeTruth(
        node.name, machine.sku, machine.provider, machine.region, node.gpu.sku, machine.gpus, node.uuids,
        tuple(node.uuid(gpu) for gpu in sorted(divided)), instances, machine.fabric,
        node.uuids if observed.dcgm else (), observed.dcgm and observed.prof, free, nobody,
    )  # fmt: skip


def _workload(fleet: Fleet, workload: Workload) -> WorkloadTruth:
    behavior = BEHAVIORS[workload.behavior]
    nodes = [fleet.node(hold.node) for hold in workload.holds]
    stuck = any(hold.gpu in dict(node.observed.stuck_prof) for hold, node in zip(workload.holds, nodes, strict=True))
    held = tuple(_held(node, hold) for hold, node in zip(workload.holds, nodes, strict=True))
    in_kubernetes = bool(workload.namespace)
    by_pod = in_kubernetes and any(node.observed.kube or node.observed.pods != "none" for node in nodes)
    by_job = bool(workload.hpc_job) and any(node.observed.hpc_job for node in nodes)
    pods = tuple(dict.fromkeys(workload.pods)) if in_kubernetes else ()
    key = Key(workload.namespace if by_pod else "", pods if by_pod else (), workload.hpc_job if by_job else "")
    return WorkloadTruth(
        name=workload.name, key=key, owner=workload.owner if in_kubernetes else "", held=held, kind=behavior.kind,
        bottleneck=behavior.bottleneck, accepted=frozenset((behavior.bottleneck, *behavior.also)), healthy=not stuck,
        network=nodes[0].machine.fabric if behavior.bottleneck == "network" else "",
        launch_bound=behavior.launch_bound, labeled=by_pod or by_job, observed=all(n.observed.dcgm for n in nodes),
        has_prof=all(node.observed.dcgm and node.observed.prof for node in nodes),
        shares=any(_shared(fleet, workload, hold) for hold in workload.holds),
        begin=fleet.at(workload.begin_day), end=fleet.at(workload.end_day),
    )  # fmt: skip


def _held(node: Node, hold: Hold) -> HeldTruth:
    profiles = (one.profile for one in node.sliced(hold.gpu) if one.instance == hold.instance)
    return HeldTruth(hold.node, node.uuid(hold.gpu), hold.instance, next(profiles, ""))


def _shared(fleet: Fleet, workload: Workload, hold: Hold) -> bool:
    others = (one for one in fleet.workloads if one != workload and hold in one.holds)
    begin, end = fleet.at(workload.begin_day), fleet.at(workload.end_day)
    return any(fleet.at(one.begin_day) < end and begin < fleet.at(one.end_day) for one in others)
