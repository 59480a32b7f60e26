"""A fleet as it truly is: nodes, who runs where, what is asked of each, and how it is written as telemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from skuwise.advisor.demo import held_idle, training
from skuwise.advisor.demo.fleet_builder import Builder
from skuwise.advisor.demo.fleet_plan import FleetPlan, Placed, Truth
from skuwise.advisor.demo.hardware import SimGpu, SimNode, sim_gpu
from skuwise.advisor.demo.load import Model
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.advisor.demo.serving import Serving, replica
from skuwise.advisor.demo.skus import H100_ETHERNET
from skuwise.advisor.demo.writer import write_node
from skuwise.agent.inventory.identity.ids import series_id, workload_id
from skuwise.agent.inventory.processes.frameworks import framework_of
from skuwise.agent.model import Workload
from skuwise.agent.store.writing.writer import Writer
from skuwise.benchmarks.generators.first.loads import batch_inference, notebooks
from skuwise.rules.catalog.loader import Catalog, load_catalog

from .scheduler import Host, Job, Ran, Schedule, mean_waits, schedule
from .traffic import Cost, Layout, Requests, Traffic, shared

DAY, HOUR = 86400.0, 3600.0
# Jobs are drawn from so many days before the window on, so that it begins as any other day.
WARM_DAYS = 6
# Jobs may wait so much longer than without a plan, on average over a node type; more takes a node back.
PATIENCE_HOURS = 0.25


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    sku: str


@dataclass(frozen=True, slots=True)
class Replica:
    """On so many GPUs of one node; `number` is its own for good."""

    number: int
    node: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Service:
    """`sku`, `first`, `gpus_first`: node SKU, replicas and GPUs of each for which its demand was drawn. `decode` or
    `traffic` with `cost`: what it does."""

    key: str
    namespace: str
    deployment: str
    command: str
    silent: bool
    sku: str
    first: int
    gpus_first: int
    replicas: tuple[Replica, ...]
    traffic: Traffic | None
    cost: Cost | None
    decode: Serving | None
    context_power: float
    cpu: float

    @property
    def mem_bytes(self) -> float:
        """GPU memory that a replica needs: what it reads for each request, and a little."""
        if self.cost is not None:
            return self.cost.mem_bytes
        assert self.decode is not None
        return 1.15 * self.decode.parameters * self.decode.bytes_per_parameter


@dataclass(frozen=True, slots=True)
class Session:
    """A notebook, or a process that stayed behind (`held`). `user`: whose."""

    key: str
    user: str
    held: bool
    node: str
    gpus: int


@dataclass(frozen=True, slots=True)
class JobSeries:
    """Jobs that recur. `per_day`: arrivals; `hours`: least and most; `what`: training, tuning or batch. `longer`: how
    much longer they run than they were drawn (on other GPUs)."""

    key: str
    account: str
    user: str
    name: str
    pool: str
    what: str
    nodes: int
    gpus: int
    per_day: float
    hours: tuple[int, int]
    longer: float = 1.0


@dataclass(frozen=True)
class World:
    """`prices`: text of a price file; empty: list prices. `closed`: nodes that were given back."""

    seed: int
    machines: tuple[Machine, ...]
    services: tuple[Service, ...]
    sessions: tuple[Session, ...]
    jobs: tuple[JobSeries, ...]
    prices: str = ""
    closed: frozenset[str] = frozenset()

    def sku(self, node: str) -> str:
        return next(m.sku for m in self.machines if m.name == node)

    def gpus_of(self, node: str) -> int:
        return catalog().nodes[self.sku(node)].gpu_count

    def held(self) -> Mapping[str, int]:
        """Node -> GPUs that services and sessions hold."""
        out = {m.name: 0 for m in self.machines}
        for one in (*(r for s in self.services for r in s.replicas), *self.sessions):
            out[one.node] = out.get(one.node, 0) + one.gpus
        return out

    def hosts(self) -> tuple[Host, ...]:
        """Nodes as jobs find them: what is held is held from the first GPU on."""
        held = self.held()
        return tuple(
            Host(m.name, m.sku, tuple(range(held[m.name], self.gpus_of(m.name))), held[m.name] == 0)
            for m in self.machines
        )

    def drawn_jobs(self, what: str, days: int) -> tuple[Job, ...]:
        """Jobs of a window and of the days before it; hours count from the window's start. `what` names the draw."""
        out: list[Job] = []
        for index, s in enumerate(self.jobs):
            rng = stream(self.seed, "jobs", what, s.key)
            for day in range(-WARM_DAYS, days):
                for _ in range(rng.poisson(s.per_day)):
                    hour = int(np.clip(rng.normal(14, 4.5), 0, 23))
                    length = np.exp(rng.uniform(np.log(s.hours[0]), np.log(s.hours[1])))
                    hours = max(round(length * s.longer), 1)
                    out.append(Job(len(out), index, s.pool, s.nodes, s.gpus, 24 * day + hour, hours))
        return tuple(out)


@cache
def catalog() -> Catalog:
    return load_catalog()


def run_jobs(world: World, jobs: Sequence[Job], days: int) -> Schedule:
    """On the nodes that were not given back."""
    return schedule([h for h in world.hosts() if h.name not in world.closed], jobs, 24 * days)


def reopened(world: World, jobs: Sequence[Job], days: int, without: Mapping[str, float]) -> tuple[World, Schedule]:
    """The fleet with as many of its closed nodes open again as its jobs need, and how they run. `without`: node SKU ->
    hours that jobs of the same draw waited on average without the plan."""
    ran = run_jobs(world, jobs, days)
    while late := [
        pool for pool, hours in mean_waits(jobs, ran).items() if hours > without.get(pool, 0.0) + PATIENCE_HOURS
    ]:
        shut = sorted(n for n in world.closed if world.sku(n) in late)
        if not shut:
            break
        world = replace(world, closed=world.closed - {shut[0]})
        ran = run_jobs(world, jobs, days)
    return world, ran


def write(world: World, ran: Sequence[Ran], path: Path, *, start: float, days: int, what: str) -> None:
    """The window as telemetry in a folder: hours of every node, a database each. `what` names its randomness."""
    end = start + days * DAY
    fleet = realized(world, ran, start=start, end=end)
    seed = world.seed * 1000 + sum(what.encode()) % 1000
    path.mkdir(parents=True)
    for node in fleet.nodes:
        with Writer.open(path / f"{node.sim.node.node}.db", now=lambda: end) as writer:
            write_node(
                writer.for_node(node.sim.node, start), node, fleet.on(node.sim.node.node), seed=seed, start=start,
                end=end, minutes_from=end, samples_from=end,
            )  # fmt: skip


def builder(seed: int, start: float, end: float) -> Builder:
    known = catalog()
    skus = {name: (node, known.gpus[node.gpu]) for name, node in known.nodes.items() if node.gpu in known.gpus}
    return Builder(skus, seed, start, end)


def realized(world: World, ran: Sequence[Ran], *, start: float, end: float) -> FleetPlan:
    b = builder(world.seed, start, end)
    sims: dict[str, SimNode] = {}
    for m in world.machines:
        (sims[m.name],) = b.nodes(m.name.rpartition("-")[0], 1, m.sku, tcp_port_counted=m.sku == H100_ETHERNET)
    taken = dict.fromkeys(sims, 0)

    def gpus(node: str, count: int) -> tuple[int, ...]:
        first = taken[node]
        taken[node] += count
        return tuple(range(first, first + count))

    for s in world.services:
        models = service_models(s, sims)
        for r, model in zip(s.replicas, models, strict=True):
            workload = pod(s, sims[r.node].node.cluster, r)
            truth = Truth(workload.workload_id, "online-inference", "latency")
            since = start - 5 * DAY
            b.add(Placed(workload, model, {r.node: gpus(r.node, r.gpus)}, ((since, end),), "allocation", truth))
    for one in world.sessions:
        rng = stream(world.seed, "session", one.key)
        workload = session(one, sims[one.node].node.cluster)
        model: Model = held_idle.held(rng) if one.held else notebooks.small_cells(rng)
        kind = "idle" if one.held else "interactive"
        truth = Truth(workload.workload_id, kind, "idle")
        b.add(Placed(workload, model, {one.node: gpus(one.node, one.gpus)}, ((start - DAY, end),), "process", truth))
    for r in ran:
        _add_job(b, world, sims, r, start, end)
    return b.fleet()


def _add_job(b: Builder, world: World, sims: Mapping[str, SimNode], r: Ran, start: float, end: float) -> None:
    s = world.jobs[r.job.series]
    begin, stop = start + HOUR * r.start, start + HOUR * (r.start + r.job.hours)
    if stop <= start or begin >= end:
        return
    rng = stream(world.seed, "job", s.key, str(r.job.id), str(start))
    sim = sims[next(iter(r.places))]
    if s.what == "batch":
        model: Model = batch_inference.generating(rng, s.gpus, sim.gpu)
    else:
        model = training.compute_bound(rng, begin) if s.what == "training" else training.fine_tuning(rng, begin)
    number = str(100_000 + r.job.series * 10_000 + int(start // DAY) % 10 * 1000 + r.job.id % 1000)
    command = "python3 generate.py --prompts" if s.what == "batch" else f"torchrun --nproc-per-node={s.gpus} train.py"
    cluster = sim.node.cluster
    workload = Workload(
        workload_id=workload_id(cluster, "slurm", number), series_id=job_series(s, cluster), name=s.name,
        scheduler="slurm", job_id=number, user=s.user, account=s.account, framework=framework_of(command.split()),
        command=command,
    )  # fmt: skip
    kind = {"batch": "batch-inference", "training": "training"}.get(s.what, "fine-tuning")
    truth = Truth(workload.workload_id, kind, "compute")  # type: ignore[arg-type]
    b.add(Placed(workload, model, dict(r.places), ((begin, min(stop, end)),), "allocation", truth))


def service_models(s: Service, sims: Mapping[str, SimNode]) -> list[Model]:
    """Each replica's work as the service stands now."""
    out: list[Model] = []
    for r in s.replicas:
        if s.decode is not None:
            first = Layout(s.first, s.gpus_first, gpu_of(s.sku))
            now = Layout(len(s.replicas), r.gpus, sims[r.node].gpu)
            out.append(replica(shared(s.decode, first, now), r.number))
        else:
            assert s.traffic is not None
            assert s.cost is not None
            out.append(Requests(s.traffic, s.cost, len(s.replicas), r.number, s.context_power, s.cpu))
    return out


@cache
def gpu_of(sku: str) -> SimGpu:
    """The simulated GPU of a node SKU."""
    node = catalog().nodes[sku]
    return sim_gpu(catalog().gpus[node.gpu], node.gpu_count)


def pod(s: Service, cluster: str, r: Replica) -> Workload:
    name = f"{s.deployment}-{r.number}-{stream(0, s.key, str(r.number)).integers(0, 16**5):05x}"
    return Workload(
        workload_id=workload_id(cluster, "kubernetes", f"uid-of-{name}"),
        series_id=service_series(s, cluster),
        name=s.deployment,
        scheduler="kubernetes",
        namespace=s.namespace,
        pod=name,
        framework=None if s.silent else framework_of(s.command.split()),
        command=None if s.silent else s.command,
    )


def service_series(s: Service, cluster: str) -> str:
    return series_id(cluster, s.namespace, None, s.deployment)


def job_series(s: JobSeries, cluster: str) -> str:
    return series_id(cluster, s.account, s.user, s.name)


def session(one: Session, cluster: str) -> Workload:
    """A notebook of a hub, or a process that no scheduler knows."""
    if one.held:
        return Workload(
            workload_id=workload_id(cluster, "process", "boot", one.key), series_id=session_series(one, cluster),
            name="python3", scheduler="process", user=one.user, command="python3",
        )  # fmt: skip
    name = f"jupyter-{one.user}"
    return Workload(
        workload_id=workload_id(cluster, "kubernetes", f"uid-of-{name}-{one.key}"),
        series_id=session_series(one, cluster), name=name, scheduler="kubernetes", namespace="hub", pod=name,
        user=one.user, command="python3 -m ipykernel_launcher",
    )  # fmt: skip


def session_series(one: Session, cluster: str) -> str:
    if one.held:
        return series_id(cluster, None, one.user, "python3")
    return series_id(cluster, "hub", one.user, f"jupyter-{one.user}")


def cluster_of(sku: str) -> str:
    node = catalog().nodes[sku]
    region = node.prices[0].region if node.prices else None
    return "-".join(part for part in (node.provider, region) if part)
