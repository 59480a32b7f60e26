"""Puts workloads on nodes: who runs where, from when to when, with restarts, gaps and the truth about each.

Ids and frameworks come from the agent's own functions, so that they are those a real agent would have given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...agent.jobs.command_line import framework_of
from ...agent.jobs.ids import series_id, workload_id
from ...agent.model import Absence, Workload
from ...rules.catalog.types import GpuSku, NodeSku
from ...rules.policy.labels import BottleneckLabel, KindLabel
from . import serving, training
from .hardware import Model, SimNode, sim_node
from .seeded_rng import TABLES, stream

_DAY = 86400.0
NAMES = TABLES["names"]
_VLLM = "python3 -m vllm.entrypoints.openai.api_server"
# One fine-tuning job in eight waits for its input: a common fault, and seldom noticed on jobs of hours.
_INPUT_BOUND_SHARE = 0.125


@dataclass(frozen=True, slots=True)
class Truth:
    """What a workload is. `waste`: rule ids that hold for it, empty for none. For unused GPUs
    `workload_id` is ``node:NODE``."""

    workload_id: str
    kind: KindLabel
    bottleneck: BottleneckLabel
    waste: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A workload on its GPUs of its nodes (name -> GPU indices), and the spans in which it ran (Unix seconds)."""

    workload: Workload
    model: Model
    nodes: dict[str, tuple[int, ...]]
    runs: tuple[tuple[float, float], ...]
    basis: str
    truth: Truth


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node with its flaws of telemetry: `gaps` are spans without an agent; `missing` is what could not be read, from
    when to when (None: to the end)."""

    sim: SimNode
    gaps: tuple[tuple[float, float], ...]
    missing: tuple[tuple[Absence, float, float | None], ...]


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A fleet before it is written. `bare`: the truth about unused nodes."""

    nodes: list[PlannedNode] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)
    bare: list[Truth] = field(default_factory=list)

    def on(self, node: str) -> list[Placed]:
        return [p for p in self.placed if node in p.nodes]


@dataclass(slots=True)
class Builder:
    """Collects a fleet over [start, end). Every choice comes from the seed and the name it is made for; `mark`
    distinguishes its GPUs from those of other fleets."""

    skus: Mapping[str, tuple[NodeSku, GpuSku]]
    seed: int
    start: float
    end: float
    fleet: FleetPlan = field(default_factory=FleetPlan)
    mark: str = "00000000"

    def nodes(self, prefix: str, count: int, sku: str, **how: Any) -> list[SimNode]:  # noqa: ANN401 - as `make_node`
        """`count` nodes of one SKU, numbered on from what is there, each as `make_node` takes it."""
        there = sum(node.sim.node.node.rpartition("-")[0] == prefix for node in self.fleet.nodes)
        made = [self.make_node(f"{prefix}-{there + k:02d}", sku, **how) for k in range(1, count + 1)]
        self.fleet.nodes.extend(self._flawed(sim, unread) for sim, unread in made)
        return [sim for sim, _ in made]

    def make_node(self, name: str, sku: str, *, tcp_port_counted: bool = False) -> tuple[SimNode, list[Absence]]:
        """A node and what its agent cannot read, beside what no node of its kind can."""
        return sim_node(name, *self.skus[sku], self.mark, tcp_port_counted=tcp_port_counted), []

    def pretraining(self, nodes: list[SimNode], kind: BottleneckLabel) -> None:
        """Training jobs of days, one after the other, each on all of `nodes`. kind: compute, network or pcie."""
        cluster, name, width = nodes[0].node.cluster, nodes[0].node.node, nodes[0].sku.gpu_count
        rng = stream(self.seed, name, kind)
        starved = not nodes[0].has_fabric
        waste = ("under-tier",) if kind != "compute" and starved else ()
        command = f"torchrun --nnodes={len(nodes)} --nproc-per-node={width} train.py"
        if kind == "pcie":
            command = f"deepspeed --num_gpus {width} train.py --deepspeed zero3-offload.json"
        at = self.start - rng.uniform(0.2, 3) * _DAY
        while at < self.end - 0.2 * _DAY:
            stop = at + rng.uniform(2.0, 8.0) * _DAY
            # A job on one node that is not yet a day old cannot be distinguished from fine-tuning.
            young = len(nodes) == 1 and min(stop, self.end) - at < 1.1 * _DAY
            if min(stop, self.end) - max(at, self.start) > 6 * 3600 and not young:
                model = training.pretraining(rng, at, kind, starved=starved)
                workload = slurm_job(rng, cluster, names=NAMES["training"], command=command)
                truth = Truth(workload.workload_id, "training", kind, waste)
                runs = self.runs(rng, at, stop, restarts=2, pause=(300, 1500))
                self.add(Placed(workload, model, {n.node.node: n.whole for n in nodes}, runs, "allocation", truth))
            at = stop + rng.uniform(600, 6 * 3600)

    def tuning(self, node: SimNode, gpus: tuple[int, ...]) -> None:
        """Fine-tuning jobs of hours, one after the other, on some GPUs of a node."""
        rng = stream(self.seed, node.node.node, "tuning", str(gpus[0]))
        at = self.start + rng.uniform(-0.3, 0.05) * _DAY
        while at < self.end - 2 * 3600:
            stop = at + rng.uniform(3, 22) * 3600
            if min(stop, self.end) - max(at, self.start) > 2 * 3600:
                starved = rng.random() < _INPUT_BOUND_SHARE
                model = training.input_bound(rng, at) if starved else training.of_kind(rng, at, "tuning")
                command = f"torchrun --nproc-per-node={len(gpus)} sft.py"
                workload = slurm_job(rng, node.node.cluster, names=NAMES["tuning"], command=command)
                bottleneck, waste = ("host-input", ("fix-first",)) if starved else ("compute", ())
                truth = Truth(workload.workload_id, "fine-tuning", bottleneck, waste)
                runs = self.runs(rng, at, stop)
                self.add(Placed(workload, model, {node.node.node: gpus}, runs, "allocation", truth))
            at = stop + rng.uniform(600, 5 * 3600)

    def service(self, nodes: list[SimNode], *, replicas: int = 1, over_provisioned: bool = False) -> None:
        """One online service: a deployment with a replica on each group of GPUs of each node."""
        rng = stream(self.seed, nodes[0].node.node, "service")
        deployment, namespace, silent = deployment_name(rng)
        width = nodes[0].sku.gpu_count // replicas
        since = self.start - rng.uniform(1, 60) * _DAY
        bottleneck = "latency" if over_provisioned else "hbm-bandwidth"
        places = [(node, part * width) for node in nodes for part in range(replicas)]
        for replica, (node, first) in enumerate(places, start=1):
            # Replicas are one deployment: the same draw for all, but bursts of their own.
            common = stream(self.seed, nodes[0].node.node, "deployment")
            if over_provisioned:
                model = serving.over_provisioned(common, node.gpu)
            else:
                model = serving.decode(common, width, node.gpu)
            workload = pod(rng, node.node.cluster, namespace, deployment, replica=replica, silent=silent)
            waste = (("too-many-gpus",) if over_provisioned else ()) + (("idle-fabric",) if node.has_fabric else ())
            truth = Truth(workload.workload_id, "online-inference", bottleneck, waste)
            gpus = {node.node.node: tuple(range(first, first + width))}
            runs = self.runs(rng, since, self.end, restarts=2, pause=(60, 600))
            self.add(Placed(workload, model.replica(replica), gpus, runs, "allocation", truth))

    def held(self, node: SimNode, gpus: tuple[int, ...]) -> None:
        """A process that stayed behind after its job, for the rest of the window."""
        rng = stream(self.seed, node.node.node, "held", str(gpus[0]))
        since = self.start + rng.uniform(-2, 0.25) * min(_DAY, self.end - self.start)
        workload = leftover(rng, node.node.cluster, since)
        truth = Truth(workload.workload_id, "idle", "idle", ("held-idle",))
        runs = self.runs(rng, since, self.end)
        self.add(Placed(workload, serving.held(rng), {node.node.node: gpus}, runs, "process", truth))

    def bare(self, nodes: list[SimNode]) -> None:
        """GPUs that were never used."""
        self.fleet.bare.extend(Truth(f"node:{node.node.node}", "idle", "idle", ("idle",)) for node in nodes)

    def add(self, placed: Placed) -> None:
        """Place a workload, unless it never ran in the window. No scheduler gives one number to two jobs."""
        if not placed.runs:
            return
        others = {other.workload.workload_id: other.workload for other in self.fleet.placed}
        workload = placed.workload
        cluster = next(n.sim.node.cluster for n in self.fleet.nodes if n.sim.node.node in placed.nodes)
        while others.get(workload.workload_id, workload) != workload:
            # The same job under the next number; of what has no number, under another id.
            number = None if workload.job_id is None else str(int(workload.job_id) + 1)
            parts = ("next", workload.workload_id) if number is None else (number,)
            workload = replace(workload, job_id=number, workload_id=workload_id(cluster, workload.scheduler, *parts))
        truth = replace(placed.truth, workload_id=workload.workload_id)
        self.fleet.placed.append(replace(placed, workload=workload, truth=truth))

    def runs(
        self, rng: np.random.Generator, start: float, stop: float, *, restarts: int = 0,
        pause: tuple[float, float] = (0, 0),
    ) -> tuple[tuple[float, float], ...]:  # fmt: skip
        """When it ran, on whole seconds: up to `restarts` times within the window it failed and was restarted."""
        start, stop = round(start), min(round(stop), self.end)
        first, last = max(start, self.start), stop
        runs: list[tuple[float, float]] = []
        count = int(rng.integers(0, restarts + 1)) if restarts and last - first > _DAY else 0
        for moment in sorted(rng.uniform(first + 3600, last - 3600, count)) if count else ():
            fail = round(float(moment))
            if fail - start > 1800:
                runs.append((start, fail))
                start = fail + round(rng.uniform(*pause))
        if stop > start:
            runs.append((start, stop))
        return tuple(run for run in runs if run[1] > self.start)

    def _flawed(self, sim: SimNode, unread: list[Absence]) -> PlannedNode:
        rng = stream(self.seed, sim.node.node, "telemetry")
        gaps: list[tuple[float, float]] = []
        for _ in range(int(rng.poisson(0.12 * (self.end - self.start) / _DAY))):
            begin = self.start + 60 * round(rng.uniform(0, max(self.end - self.start - 3600, 1)) / 60)
            gaps.append((begin, begin + 60 * int(rng.integers(2, 20))))
        absences: list[Absence] = []
        if any(port.link_layer == "EFA" for port in sim.ports):
            why = ("xmit_wait_per_second", "not-supported", "EFA does not count congestion.")
            absences += [Absence("fabric", port.key, *why) for port in sim.ports]
        if not sim.ports:
            absences.append(Absence("source", "infiniband", "*", "no-fabric", "This node has no RDMA device."))
        if not sim.gpu.nvlink:
            absences += [
                Absence("gpu", gpu.uuid, metric, "not-supported", "This GPU has no NVLink.")
                for gpu in sim.gpus
                for metric in ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second")
            ]
        always = [(absence, self.start, None) for absence in (*absences, *unread)]
        away = Absence("source", "agent", "*", "long-gap", "The agent did not run.")
        merged: list[tuple[float, float]] = []
        for begin, stop in sorted(gaps):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
            else:
                merged.append((begin, stop))
        return PlannedNode(sim, tuple(merged), (*always, *((away, begin, stop) for begin, stop in merged)))


def pick(rng: np.random.Generator, names: Sequence[str]) -> str:
    return names[int(rng.integers(0, len(names)))]


def told(command: str, *, silent: bool) -> dict[str, Any]:
    """What a workload's command says of it: nothing where it is `silent`."""
    return {} if silent else {"framework": framework_of(command.split()), "command": command}


def slurm_job(rng: np.random.Generator, cluster: str, *, names: Sequence[str], command: str) -> Workload:
    """A batch job, run by `command` and called by one of `names`."""
    number = str(int(rng.integers(100_000, 999_999)))
    account, user = pick(rng, NAMES["teams"]), pick(rng, NAMES["users"])
    silent = rng.random() < NAMES["silent"]
    name = f"run-{int(rng.integers(1, 99))}" if silent else pick(rng, names)
    return Workload(
        workload_id(cluster, "slurm", number), series_id(cluster, account, user, name), name, "slurm", job_id=number,
        user=user, account=account, **told(command, silent=silent),
    )  # fmt: skip


def pod(
    rng: np.random.Generator, cluster: str, namespace: str, deployment: str, *, replica: int, silent: bool,
    command: str = _VLLM,
) -> Workload:  # fmt: skip
    """One pod of a deployment. All replicas are one series."""
    name = f"{deployment}-{replica}-{int(rng.integers(0, 16**5)):05x}"
    return Workload(
        workload_id(cluster, "kubernetes", f"uid-of-{name}"), series_id(cluster, namespace, None, deployment),
        deployment, "kubernetes", namespace=namespace, pod=name, **told(command, silent=silent),
    )  # fmt: skip


def deployment_name(rng: np.random.Generator, named: Sequence[str] = ()) -> tuple[str, str, bool]:
    """Name and namespace of a service, and whether they and its command are uninformative."""
    silent = bool(rng.random() < NAMES["silent"])
    names = ("app", "backend", "svc") if silent else named or NAMES["services"]
    return f"{pick(rng, names)}-{int(rng.integers(1, 99))}", pick(rng, NAMES["teams"]), silent


def leftover(rng: np.random.Generator, cluster: str, start: float) -> Workload:
    """A process that was not ended, unknown to any scheduler."""
    user = pick(rng, NAMES["users"])
    pid = int(rng.integers(2_000, 4_000_000))
    return Workload(
        workload_id(cluster, "process", "boot", str(pid), f"{100 * start:.0f}"),
        series_id(cluster, None, user, "python3"), "python3", "process", user=user, command="python3",
    )  # fmt: skip
