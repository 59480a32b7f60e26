"""Random fleets to be planned: pools of nodes with islands, tenants and commitments; services with replicas, sessions,
jobs; changes; what is held, full, rented, or beyond its limits."""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
from numpy.random import Generator
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.core.waiting_types import WaitingJobs
from skuwise.advisor.plan.build import as_today
from skuwise.advisor.plan.problem import FOREVER, GOALS, PlanJobs, PlanNode, PlanOption, PlanSeries, PlanUnit, Problem

NOW = 1_790_000_000.0
HELD = CodedText("drained", "drained")
FIXED = CodedText("fixed", "it may not move")


def small_problem(seed: int) -> Problem:
    """A fleet of 4 to 14 nodes with any goal, sometimes with few moves allowed; also the rare: nodes beyond their
    limits, units on two nodes, exclusions."""
    rng = np.random.default_rng([seed, 1])
    nodes = int(rng.integers(4, 15))
    series, pools, hours = int(rng.integers(nodes // 2, nodes * 2)), int(rng.integers(1, 4)), 48
    goal, max_moves = GOALS[int(rng.integers(4))], int(rng.integers(0, 6)) if rng.random() < 0.3 else None
    rng = np.random.default_rng(seed)
    gpus = [int(rng.choice([4, 8, 8, 8])) for _ in range(pools)]
    price = rng.uniform(5, 90, pools)
    tenants = bool(rng.random() < 0.3)
    islands = [int(rng.choice([0, 0, 0, 2, 4])) for _ in range(pools)]
    made = [_node(rng, i, int(rng.integers(pools)), gpus, price, islands) for i in range(nodes)]
    free = {n.name: n.gpus for n in made}
    works: list[PlanSeries] = []
    options: list[PlanOption] = []
    for i in range(round(series * float(rng.choice([0.5, 1.0, 1.0, 2.0])))):
        pool = int(rng.integers(pools))
        home = [n for n in made if n.pool == f"p{pool}"]
        if home and rng.random() < 0.15:
            works.append(_job(rng, i, pool, gpus[pool], hours))
            options += _job_options(rng, i, works[-1], gpus)
        elif home and (made_service := _service(rng, i, home, free, hours)) is not None:
            works.append(made_service)
            options += _options(rng, i, made_service, pools)
    ids = [o.id for o in options]
    options = [
        replace(o, excludes=frozenset({str(rng.choice(ids))}) - {o.id}) if rng.random() < 0.1 else o for o in options
    ]
    rented = [
        PlanNode(f"rent-{p}-{k}", f"p{p}", f"gpu{p}", f"sku{p}", gpus[p], float(price[p]), rented=True,
                 island_gpus=islands[p])
        for p in range(pools) for k in range(2)
    ]  # fmt: skip
    counts = Counter(n.pool for n in made)
    reserve = {f"p{p}": gpus[p] if counts[f"p{p}"] > 2 and rng.random() < 0.7 else 0 for p in range(pools)}
    for place, n in enumerate(made):
        if rng.random() < 0.06:  # what was put on it may be too much for it
            limits = {"cpu_cores": float(n.gpus)}, {"host_mem_bytes": n.gpus * 20e9}, {"island_gpus": 2}
            made[place] = replace(n, **limits[int(rng.integers(3))])
    problem = Problem(
        (*_owned(rng, made, works, tenants), *rented), tuple(works), tuple(options), goal, NOW,
        tenants_apart=tenants, max_moves=max_moves,
        fixed_gpus={n.name: 1 for n in made if free[n.name] > 0 and rng.random() < 0.05},
    )  # fmt: skip
    problem, _ = as_today(problem)
    for p, members in problem.pools.items():
        room = sum(n.gpus for n in members if not n.rented) - int(problem.needs[p][0].max())
        reserve[p] = max(min(reserve[p], room), 0)
    return replace(problem, reserve=reserve)


def with_queue(problem: Problem, seed: int) -> Problem:
    """The problem with goal capacity, GPUs at rest, jobs that hold some and may be released, and jobs that wait."""
    rng = np.random.default_rng([seed, 2])
    used = Counter(problem.fixed_gpus)
    for s in problem.series:
        for u in s.units:
            used.update(u.gpus)
    today, idle = [n for n in problem.nodes if n.is_today], dict[str, int]()
    series, options = list(problem.series), list(problem.options)
    for n in today:
        free = max(n.gpus - used[n.name], 0)
        idle[n.name] = int(rng.integers(0, free + 1))
        jobs = [k for k, s in enumerate(series) if s.jobs and s.pool == n.pool]
        if jobs and free > idle[n.name]:
            k = int(rng.choice(jobs))
            held = {**series[k].resting, n.name: int(rng.integers(1, free - idle[n.name] + 1))}
            series[k] = replace(series[k], resting=held)
    options += [
        PlanOption(f"end-{s.id}", s.id, "release", None, 0, 0, "low", keeps_units=False) for s in series if s.resting
    ]
    kinds = []
    for k in range(int(rng.integers(1, 6))):
        count, gpus = int(rng.choice([0, 1, 1, 2, 3])), int(rng.choice([1, 1, 2, 4, 8, 12]))
        pools = {n.pool for n in today if rng.random() < 0.6}
        fits = frozenset(n.name for n in today if n.pool in pools and rng.random() < 0.9)
        kinds.append((waiting(f"q-{k}", gpus=gpus, nodes=count or None, team=f"t{int(rng.integers(4))}"), fits))
    turns = [kinds[int(k)] for k in rng.integers(0, len(kinds), int(rng.integers(1, 9)))]
    queue = tuple(PlanJobs(group, int(rng.integers(1, 6)), fits) for group, fits in turns)
    goal = {"goal": "capacity", "idle_gpus": idle, "queue": queue}
    return replace(problem, series=tuple(series), options=tuple(options), **goal)


def waiting(id_: str, *, gpus: float, nodes: int | None = 1, team: str | None = None, jobs: int = 1) -> WaitingJobs:
    owner = Owner(team=team)
    return WaitingJobs(id_, "slurm", None, id_, owner, None, jobs, gpus, nodes, None, (id_,), NOW, "Resources")


def _node(rng: Generator, i: int, pool: int, gpus: list[int], price: np.ndarray, islands: list[int]) -> PlanNode:
    bound = rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])
    size = gpus[pool]
    return PlanNode(
        f"n{i:03d}", f"p{pool}", f"gpu{pool}", f"sku{pool}", size,
        None if rng.random() < 0.05 else float(price[pool]),
        bound_until=(None, NOW + float(rng.uniform(1, 500)) * 86400, FOREVER, NOW - 86400)[bound],
        cpu_cores=size * 8.0 if rng.random() < 0.8 else None,
        host_mem_bytes=size * 100e9 if rng.random() < 0.8 else None,
        held=HELD if rng.random() < 0.04 else None,
        idle_watts=size * 70.0 if rng.random() < 0.9 else None, island_gpus=islands[pool],
    )  # fmt: skip


def _owned(rng: Generator, nodes: list[PlanNode], series: list[PlanSeries], apart: bool) -> list[PlanNode]:
    """Where tenants are kept apart: nodes of several take only theirs, a few none."""
    present: dict[str, set[str]] = defaultdict(set)
    for s in series:
        for name in (name for u in s.units for name in u.gpus):
            present[name].add(s.tenant)
    out = []
    for n in nodes:
        there = frozenset(present[n.name])
        teams = frozenset[str]() if rng.random() < 0.1 else there if len(there) > 1 else None
        out.append(replace(n, tenants=teams) if apart else n)
    return out


def _job(rng: Generator, i: int, pool: int, size: int, hours: int) -> PlanSeries:
    held = np.where(rng.random(hours) < 0.3, float(rng.integers(1, 9)), 0.0)
    team = f"t{int(rng.integers(4))}"
    return PlanSeries(
        f"s{i}", f"job{i}", team, f"p{pool}", "training", True, (), held, np.floor(held / size), tenant=team
    )  # fmt: skip


def _job_options(rng: Generator, i: int, job: PlanSeries, gpus: list[int]) -> list[PlanOption]:
    """Fewer GPUs where it is, or other nodes: of each as a whole all its GPUs, fewer, or none."""
    if rng.random() < 0.8:
        return []
    to = int(rng.integers(len(gpus)))
    if rng.random() < 0.3:
        size = gpus[int(job.pool[1:])]
        return [PlanOption(f"r{i}j", job.id, "reduce-gpus", job.pool, 0, 0, "low", 0.5, node_gpus=size)]
    node_gpus = (gpus[to], gpus[to] - 1, 0)[int(rng.integers(3))]
    return [PlanOption(f"r{i}j", job.id, "move-sku", f"p{to}", 1, gpus[to], "low", 1.2, node_gpus=node_gpus)]


def _service(rng: Generator, i: int, home: list[PlanNode], free: dict[str, int], hours: int) -> PlanSeries | None:
    team, linked = f"t{int(rng.integers(4))}", bool(rng.random() < 0.4)
    size = int(rng.choice([1, 2, 3, 4, 8], p=[0.6, 0.15, 0.05, 0.1, 0.1]))
    units: list[PlanUnit] = []
    for k in range(int(rng.integers(1, 7))):
        at = next((home[j] for j in rng.permutation(len(home))[:5] if free[home[j].name] >= size), None)
        if at is None:
            break
        free[at.name] -= size
        cpu, memory = round(float(rng.uniform(0, 6 * size)), 1), float(rng.integers(0, 80)) * size * 1e9
        fixed = FIXED if rng.random() < 0.1 else None
        units.append(PlanUnit(f"s{i}u{k}", f"s{i}", {at.name: size}, cpu, memory, fixed, linked))
    if not units:
        return None
    other = home[int(rng.integers(len(home)))]
    first = units[0].node
    if rng.random() < 0.15 and free[other.name] and free[first] and other.name != first:
        free[other.name], free[first] = free[other.name] - 1, free[first] - 1
        units.append(PlanUnit(f"s{i}x", f"s{i}", {other.name: 1, first: 1}, 1.0, 1e9))
    crowd = Counter(name for u in units for name in u.gpus)
    demand = np.clip(rng.normal(0.4, 0.2, hours), 0, 1.3) * sum(u.gpu_count for u in units)
    most = max(crowd.values()) if rng.random() < 0.85 else 1
    return PlanSeries(
        f"s{i}", f"svc{i}", team, home[0].pool, "online-inference", False, tuple(units), demand, np.zeros(hours),
        tenant=team, apart=most,
    )  # fmt: skip


def _options(rng: Generator, i: int, service: PlanSeries, pools: int) -> list[PlanOption]:
    made: list[PlanOption] = []
    each = max(service.units[0].gpu_count, 1)
    if rng.random() < 0.15:
        made.append(PlanOption(f"r{i}b", service.id, "release", None, 0, 0, "low", keeps_units=False))
    if rng.random() < 0.3 and len(service.units) > 1:
        keep = int(rng.integers(1, len(service.units)))
        made.append(PlanOption(f"r{i}a", service.id, "reduce-gpus", service.pool, keep, each, "low"))
    if rng.random() < 0.2:
        about = f"p{int(rng.integers(pools))}", int(rng.integers(1, 4)), min(each, 4), "low", 0.8, False, 1.0, 10e9
        energy, linked = float(rng.normal(50, 50)), bool(rng.random() < 0.3)
        made.append(PlanOption(f"r{i}c", service.id, "move-sku", *about, energy_kwh_per_month=energy, linked=linked))
    return made
