"""Puts more sorts of work on more sorts of nodes than the demo: batch jobs, deployments, notebooks, MIG instances."""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from skuwise.advisor.demo import builder
from skuwise.advisor.demo.builder import NAMES, Placed, pick
from skuwise.advisor.demo.hardware import Model, SimNode, sim_node
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.agent.jobs.ids import series_id, workload_id
from skuwise.agent.model import Absence, Workload
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

from .nodes import Sensing, sensed_node

_DAY = 86400.0
Places = Sequence[tuple[SimNode, tuple[int, ...]]]  # GPUs, by their index among the node's devices
Told = Callable[[np.random.Generator], Workload]
# What serves models and how it is started, as the projects' documentation has it.
ENGINES = (
    "python3 -m vllm.entrypoints.openai.api_server",
    "python3 -m sglang.launch_server --port 30000",
    "tritonserver --model-repository=/models",
    "text-generation-launcher --port 8080",
    "trtllm-serve --port 8000",
)


@dataclass(frozen=True, slots=True)
class TruePhase:
    """A span (Unix seconds) of a workload that changes what it does."""

    start: float
    end: float
    kind: KindLabel
    bottleneck: BottleneckLabel


@dataclass(frozen=True, slots=True)
class Truth(builder.Truth):
    """What a workload is.

    `phases`: its spans, where its behaviour changes; kind and bottleneck are then those of most of its time.
    `suspect`: the GPU (uuid) that the others wait for; None: none.
    `sort`: what sort of its kind it is, in a word or two; empty where the scenario draws no sorts.
    """

    phases: tuple[TruePhase, ...] = ()
    suspect: str | None = None
    sort: str = ""


class Builder(builder.Builder):
    """The demo's builder with nodes of every sort, jobs of hours and deployments."""

    def make_node(
        self, name: str, sku: str, *, tcp_port_counted: bool = False, sensing: Sensing | None = None,
        instances: tuple[int, ...] = (),
    ) -> tuple[SimNode, list[Absence]]:  # fmt: skip
        plain = sim_node(name, *self.skus[sku], self.mark, tcp_port_counted=tcp_port_counted)
        sim = sensed_node(plain, sensing, instances)
        return sim, sim.absences()

    def add(self, placed: Placed) -> None:
        if not isinstance(placed.truth, Truth):
            placed = replace(placed, truth=Truth(*astuple(placed.truth)))
        super().add(placed)

    def jobs(
        self,
        what: str,
        places: Places,
        drawn: Callable[[np.random.Generator, float], Model],
        metadata: Told,
        *,
        kind: KindLabel,
        bottleneck: BottleneckLabel,
        hours: tuple[float, float],
        waste: tuple[str, ...] = (),
        restarts: int = 0,
    ) -> None:
        """Jobs of `hours`, one after the other, on the same GPUs. `what` names the randomness.

        A job with too little data to distinguish its kind is left out.
        """
        rng = stream(self.seed, places[0][0].node.node, what, str(places[0][1][0]))
        at = self.start - rng.uniform(0.0, 0.6) * hours[0] * 3600
        # Training on one node differs from fine-tuning by its length alone.
        least = 1.15 * _DAY if kind == "training" and len(places) == 1 else min(hours[0], 6.0) * 3600
        while at < self.end - 3600:
            stop = at + rng.uniform(*hours) * 3600
            model, workload = drawn(rng, at), metadata(rng)
            runs = self.runs(rng, at, stop, restarts=restarts, pause=(300, 1500))
            seen = min(stop, self.end) - at
            if seen > least and min(stop, self.end) - max(at, self.start) > 3 * 3600:
                self.place(workload, model, places, runs, kind, bottleneck, waste)
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
        names: tuple[str, ...] = (),
        restarts: int = 2,
    ) -> None:
        """One online service with a pod on each of `places`, there all the window and long before."""
        node, gpus = places[0][0].node, str(places[0][1][0])
        rng = stream(self.seed, node.node, what, gpus)
        deployment, namespace, silent = builder.deployment_name(rng, names)
        command = pick(rng, ENGINES)
        since = self.start - rng.uniform(1, 60) * _DAY
        for number, place in enumerate(places, start=1):
            model = drawn(stream(self.seed, node.node, what, "model", gpus), number)
            workload = builder.pod(
                rng, place[0].node.cluster, namespace, deployment, replica=number, silent=silent, command=command
            )
            runs = self.runs(rng, since, self.end, restarts=restarts, pause=(60, 600))
            self.place(workload, model, [place], runs, kind, bottleneck, waste)

    def place(
        self,
        workload: Workload,
        model: Model,
        places: Places,
        runs: tuple[tuple[float, float], ...],
        kind: KindLabel,
        bottleneck: BottleneckLabel,
        waste: tuple[str, ...] = (),
        *,
        basis: str = "allocation",
    ) -> None:
        """`add` for a workload whose truth is a kind, a bottleneck and waste."""
        truth = Truth(workload.workload_id, kind, bottleneck, waste)
        self.add(Placed(workload, model, {sim.node.node: gpus for sim, gpus in places}, runs, basis, truth))


def silent_fabric(node: SimNode) -> tuple[str, ...]:
    """The waste of work other than training that leaves the node's fabric silent: none where it has none."""
    return ("idle-fabric",) if node.has_fabric else ()


def slurm(node: SimNode, names: tuple[str, ...], command: str) -> Told:
    return lambda rng: builder.slurm_job(rng, node.node.cluster, names=names, command=command)


def kubernetes(node: SimNode, names: tuple[str, ...], command: str) -> Told:
    """A job that Kubernetes runs to its end."""
    cluster = node.node.cluster

    def job(rng: np.random.Generator) -> Workload:
        silent = rng.random() < NAMES["silent"]
        name = (
            f"job-{int(rng.integers(1, 999))}" if silent else f"{pick(rng, names)}-{int(rng.integers(10_000, 99_999))}"
        )
        pod_name = f"{name}-{int(rng.integers(0, 16**5)):05x}"
        namespace = pick(rng, NAMES["teams"])
        return Workload(
            workload_id(cluster, "kubernetes", f"uid-of-{pod_name}"), series_id(cluster, namespace, None, name), name,
            "kubernetes", namespace=namespace, pod=pod_name, **builder.told(command, silent=silent),
        )  # fmt: skip

    return job


def notebook(rng: np.random.Generator, cluster: str, start: float) -> Workload:
    """Somebody's own session: a pod of a hub, or a process that only says that it is Python."""
    user = pick(rng, NAMES["users"])
    if rng.random() < NAMES["silent"]:
        return builder.leftover(rng, cluster, start)
    number = int(rng.integers(0, 16**5))
    name = f"{pick(rng, ('jupyter', 'notebook', 'dev', 'workspace'))}-{user}"
    return Workload(
        workload_id(cluster, "kubernetes", f"uid-of-{name}-{number:05x}"), series_id(cluster, "hub", user, name), name,
        "kubernetes", namespace="hub", pod=name, user=user,
        command="python3 -m ipykernel_launcher" if rng.random() < 0.6 else None,
    )  # fmt: skip
