"""Puts workloads on nodes: who runs where, from when to when, with restarts, gaps and the truth about each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...agent.model import Absence, Workload
from ...rules.catalog.types import GpuSku, NodeSku
from ...rules.policy.labels import BottleneckLabel, KindLabel
from . import held_idle as holding
from . import identities, serving, training
from . import telemetry_profiles as sensing
from .fleet_plan import FleetPlan, Missing, Placed, PlannedNode, Truth
from .hardware import Sensing, SimNode, sim_node
from .load import Model
from .seeded_rng import stream

_DAY = 86400.0
Places = Sequence[tuple[SimNode, tuple[int, ...]]]  # GPUs, by their index among the node's devices
# One fine-tuning job in eight waits for its input: a common fault, and seldom noticed on jobs of hours.
_INPUT_BOUND_SHARE = 0.125
_TRAINING_NAMES = ("pretrain-7b", "pretrain-13b", "moe-stage-2", "vit-large", "asr-base", "retrieval-encoder")
_TUNING_NAMES = ("sft-chat", "lora-8b", "dpo-round-3", "finetune-legal", "reward-model")
_TORCHRUN = "torchrun --nnodes={} --nproc-per-node=8 train.py"
_DEEPSPEED = "deepspeed --num_gpus 8 train.py --deepspeed zero3-offload.json"


@dataclass(slots=True)
class Builder:
    """Collects a fleet over [start, end). Every choice comes from the seed and the name it is made for."""

    skus: Mapping[str, tuple[NodeSku, GpuSku]]
    seed: int
    start: float
    end: float
    _nodes: list[PlannedNode] = field(default_factory=list)
    _placed: list[Placed] = field(default_factory=list)
    _bare: list[Truth] = field(default_factory=list)

    def fleet(self) -> FleetPlan:
        return FleetPlan(tuple(self._nodes), tuple(self._placed), tuple(self._bare))

    def nodes(
        self,
        prefix: str,
        count: int,
        sku: str,
        *,
        tcp_port_counted: bool = False,
        sensing: Sensing | None = None,
        instances: tuple[int, ...] = (),
    ) -> list[SimNode]:
        """`count` nodes of one SKU, numbered on from what is there; the rest as `sim_node` takes it."""
        node_sku, gpu_sku = self.skus[sku]
        made = []
        there = sum(node.sim.node.node.rpartition("-")[0] == prefix for node in self._nodes)
        for number in range(there + 1, there + count + 1):
            sim = sim_node(
                f"{prefix}-{number:02d}",
                node_sku,
                gpu_sku,
                tcp_port_counted=tcp_port_counted,
                sensing=sensing,
                instances=instances,
            )
            self._nodes.append(self._flawed(sim))
            made.append(sim)
        return made

    def pretraining(self, nodes: list[SimNode], kind: str) -> None:
        """Training jobs of days, one after the other, each on all of `nodes`. kind: compute, network or pcie."""
        name = nodes[0].node.node
        rng = stream(self.seed, name, kind)
        at = self.start - rng.uniform(0.2, 3) * _DAY
        while at < self.end - 0.2 * _DAY:
            stop = at + rng.uniform(2.0, 8.0) * _DAY
            # A job on one node that is not yet a day old cannot be told from fine-tuning, by anybody.
            young = len(nodes) == 1 and min(stop, self.end) - at < 1.1 * _DAY
            if min(stop, self.end) - max(at, self.start) > 6 * 3600 and not young:
                self._train_once(rng, nodes, kind, at, stop)
            at = stop + rng.uniform(600, 6 * 3600)

    def _train_once(self, rng: np.random.Generator, nodes: list[SimNode], kind: str, start: float, stop: float) -> None:
        starved = not has_fabric(nodes[0])
        if kind == "compute":
            model = training.compute_bound(rng, start)
        elif kind == "pcie":
            model = training.pcie_bound(rng, start)
        else:
            # Over plain Ethernet the ring's NVLink hops wait for the network and stay nearly silent.
            model = training.network_bound(rng, start, nvlink_exposed=rng.uniform(0.005, 0.04) if starved else None)
        workload = identities.slurm_job(
            rng,
            nodes[0].node.cluster,
            names=_TRAINING_NAMES,
            command=_DEEPSPEED if kind == "pcie" else _TORCHRUN.format(len(nodes)),
        )
        bottleneck = {"compute": "compute", "network": "network", "pcie": "pcie"}[kind]
        waste = ("under-tier",) if bottleneck != "compute" and starved else ()
        truth = Truth(workload.workload_id, "training", bottleneck, waste)  # type: ignore[arg-type]
        runs = self.runs(rng, start, stop, restarts=2, pause=(300, 1500))
        self.add(Placed(workload, model, {n.node.node: whole(n) for n in nodes}, runs, "allocation", truth))

    def tuning(self, node: SimNode, gpus: tuple[int, ...]) -> None:
        """Fine-tuning jobs of hours, one after the other, on some GPUs of a node."""
        rng = stream(self.seed, node.node.node, "tuning", str(gpus[0]))
        at = self.start + rng.uniform(-0.3, 0.05) * _DAY
        while at < self.end - 2 * 3600:
            stop = at + rng.uniform(3, 22) * 3600
            if min(stop, self.end) - max(at, self.start) > 2 * 3600:
                starved = rng.random() < _INPUT_BOUND_SHARE
                model = training.input_bound(rng, at) if starved else training.fine_tuning(rng, at)
                command = f"torchrun --nproc-per-node={len(gpus)} sft.py"
                workload = identities.slurm_job(rng, node.node.cluster, names=_TUNING_NAMES, command=command)
                truth = Truth(
                    workload.workload_id,
                    "fine-tuning",
                    "host-input" if starved else "compute",
                    ("fix-first",) if starved else (),
                )
                runs = self.runs(rng, at, stop, restarts=0, pause=(0, 0))
                self.add(Placed(workload, model, {node.node.node: gpus}, runs, "allocation", truth))
            at = stop + rng.uniform(600, 5 * 3600)

    def service(
        self,
        nodes: list[SimNode],
        *,
        replicas_per_node: int = 1,
        over_provisioned: bool = False,
        moved_from: str | None = None,
    ) -> None:
        """One online service: a deployment with a replica on each group of GPUs of each node.

        `moved_from`: the first node of a service that it is, with pods of its own since the window's start.
        """
        named = moved_from or nodes[0].node.node
        rng = stream(self.seed, named, "service")
        deployment, namespace, silent = identities.deployment_name(rng)
        width = nodes[0].sku.gpu_count // replicas_per_node
        common = stream(self.seed, named, "deployment")
        shared_state = common.bit_generator.state
        since = self.start - rng.uniform(1, 60) * _DAY
        if moved_from is not None:
            rng, since = stream(self.seed, nodes[0].node.node, "moved"), self.start
        replica = 0
        for node in nodes:
            for part in range(replicas_per_node):
                replica += 1
                # Replicas are one deployment: the same draw for all, but bursts of their own.
                common.bit_generator.state = shared_state
                model = (
                    serving.over_provisioned(common, nvlink=bool(node.gpu.nvlink))
                    if over_provisioned
                    else serving.decode(common, width, node.gpu)
                )
                model = serving.replica(model, replica)
                workload = identities.pod(rng, node.node.cluster, namespace, deployment, replica=replica, silent=silent)
                waste = [*(("too-many-gpus",) if over_provisioned else ())]
                if has_fabric(node):
                    waste.append("idle-fabric")
                truth = Truth(
                    workload.workload_id,
                    "online-inference",
                    "latency" if over_provisioned else "hbm-bandwidth",
                    tuple(waste),
                )
                gpus = tuple(range(part * width, (part + 1) * width))
                runs = self.runs(rng, since, self.end, restarts=2, pause=(60, 600))
                self.add(Placed(workload, model, {node.node.node: gpus}, runs, "allocation", truth))

    def held(self, node: SimNode, gpus: tuple[int, ...]) -> None:
        """A process that stayed behind after its job, for the rest of the window."""
        rng = stream(self.seed, node.node.node, "held", str(gpus[0]))
        since = self.start + rng.uniform(-2, 0.25) * min(_DAY, self.end - self.start)
        workload = identities.leftover(rng, node.node.cluster, since)
        truth = Truth(workload.workload_id, "idle", "idle", ("held-idle",))
        runs = self.runs(rng, since, self.end, restarts=0, pause=(0, 0))
        self.add(Placed(workload, holding.held(rng), {node.node.node: gpus}, runs, "process", truth))

    def bare(self, nodes: list[SimNode]) -> None:
        """GPUs that nobody ever used."""
        self._bare += [Truth(f"node:{node.node.node}", "idle", "idle", ("idle",)) for node in nodes]

    def jobs(
        self,
        what: str,
        places: Places,
        drawn: Callable[[np.random.Generator, float], Model],
        told: Callable[[np.random.Generator], Workload],
        *,
        kind: KindLabel,
        bottleneck: BottleneckLabel,
        hours: tuple[float, float],
        waste: tuple[str, ...] = (),
        restarts: int = 0,
    ) -> None:
        """Jobs of `hours`, one after the other, on the same GPUs. `what` names the randomness.

        A job of which less is seen than would tell it from another kind is left out: nobody could know it.
        """
        rng = stream(self.seed, places[0][0].node.node, what, str(places[0][1][0]))
        at = self.start - rng.uniform(0.0, 0.6) * hours[0] * 3600
        # Training on one node is told from fine-tuning by its length alone.
        least = 1.15 * _DAY if kind == "training" and len(places) == 1 else min(hours[0], 6.0) * 3600
        while at < self.end - 3600:
            stop = at + rng.uniform(*hours) * 3600
            model, workload = drawn(rng, at), told(rng)
            runs = self.runs(rng, at, stop, restarts=restarts, pause=(300, 1500))
            seen = min(stop, self.end) - at
            if seen > least and min(stop, self.end) - max(at, self.start) > 3 * 3600:
                nodes = {sim.node.node: gpus for sim, gpus in places}
                truth = Truth(workload.workload_id, kind, bottleneck, waste)
                self.add(Placed(workload, model, nodes, runs, "allocation", truth))
            at = stop + rng.uniform(300, 3 * 3600)

    def deployment(
        self,
        what: str,
        places: Places,
        drawn: Callable[[np.random.Generator, int], Model],
        *,
        bottleneck: BottleneckLabel,
        kind: KindLabel = "online-inference",
        waste: tuple[str, ...] = (),
        engine: str | None = None,
        names: tuple[str, ...] = (),
        restarts: int = 2,
    ) -> None:
        """One online service with a pod on each of `places`, there all the window and long before."""
        rng = stream(self.seed, places[0][0].node.node, what, str(places[0][1][0]))
        deployment, namespace, silent = identities.deployment_name(rng, names)
        command = engine or identities.ENGINES[int(rng.integers(0, len(identities.ENGINES)))]
        since = self.start - rng.uniform(1, 60) * _DAY
        for number, (sim, gpus) in enumerate(places, start=1):
            model = drawn(stream(self.seed, places[0][0].node.node, what, "model", str(places[0][1][0])), number)
            workload = identities.pod(
                rng, sim.node.cluster, namespace, deployment, replica=number, silent=silent, command=command
            )
            truth = Truth(workload.workload_id, kind, bottleneck, waste)
            runs = self.runs(rng, since, self.end, restarts=restarts, pause=(60, 600))
            self.add(Placed(workload, model, {sim.node.node: gpus}, runs, "allocation", truth))

    def add(self, placed: Placed) -> None:
        """Place a workload, unless it never ran in the window. No scheduler gives one number to two jobs."""
        if not placed.runs:
            return
        others = {one.workload.workload_id: one.workload for one in self._placed}
        workload = placed.workload
        cluster = next(n.sim.node.cluster for n in self._nodes if n.sim.node.node in placed.nodes)
        while others.get(workload.workload_id, workload) != workload:
            workload = identities.next_job(workload, cluster)
        truth = replace(placed.truth, workload_id=workload.workload_id)
        self._placed.append(replace(placed, workload=workload, truth=truth))

    def runs(
        self, rng: np.random.Generator, start: float, stop: float, *, restarts: int, pause: tuple[float, float]
    ) -> tuple[tuple[float, float], ...]:
        """When it ran, on whole seconds: up to `restarts` times within the window it failed and was started anew."""
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

    def _flawed(self, sim: SimNode) -> PlannedNode:
        """Telemetry as it is: an agent that was away for minutes, a counter that could not be read for a while."""
        rng = stream(self.seed, sim.node.node, "telemetry")
        days = (self.end - self.start) / _DAY
        gaps = []
        for _ in range(int(rng.poisson(0.12 * days))):
            begin = self.start + 60 * round(rng.uniform(0, max(self.end - self.start - 3600, 1)) / 60)
            gaps.append((begin, begin + 60 * int(rng.integers(2, 20))))
        missing: list[Missing] = []
        if any(port.link_layer == "EFA" for port in sim.ports):
            metric, detail = "xmit_wait_per_second", "EFA does not count congestion."
            missing += [
                Missing(Absence("fabric", port.key, metric, "not-supported", detail), self.start, None)
                for port in sim.ports
            ]
        if not sim.ports:
            absence = Absence("source", "infiniband", "*", "no-fabric", "This node has no RDMA device.")
            missing.append(Missing(absence, self.start, None))
        if not sim.gpu.nvlink:
            missing += [
                Missing(Absence("gpu", g.uuid, m, "not-supported", "This GPU has no NVLink."), self.start, None)
                for g in sim.gpus
                for m in ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second")
            ]
        missing += [Missing(absence, self.start, None) for absence in sensing.absences(sim)]
        for begin, stop in _merged(gaps):
            detail = "The agent did not run."
            missing.append(Missing(Absence("source", "agent", "*", "long-gap", detail), begin, stop))
        return PlannedNode(sim, _merged(gaps), tuple(missing))


def _merged(gaps: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    merged: list[tuple[float, float]] = []
    for begin, stop in sorted(gaps):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((begin, stop))
    return tuple(merged)


def has_fabric(node: SimNode) -> bool:
    """Whether the node carries a network of its own for the GPUs, which costs money and may be silent."""
    return node.sku.fabric.kind in {"infiniband", "roce", "efa"} and bool(node.compute_ports)


def silent_fabric(node: SimNode) -> tuple[str, ...]:
    """The waste of work other than training that leaves the node's fabric silent: none where it has none."""
    return ("idle-fabric",) if has_fabric(node) else ()


def whole(node: SimNode) -> tuple[int, ...]:
    """All GPUs of a node."""
    return tuple(range(node.sku.gpu_count))
