"""Large fleets to be planned: many small workloads, some large ones, a third of them with something to be changed."""

from __future__ import annotations

import numpy as np
from skuwise.advisor.plan.problem import FOREVER, Goal, PlanNode, PlanOption, PlanSeries, PlanUnit, Problem

from .plan_fleets import FIXED, HELD, NOW

HOURS = 336
NODES_A_POOL = 40
# Share of the GPUs that is held today.
HELD_SHARE = 0.72
# GPU memory and price of a GPU-hour of the pools, in turn.
SKUS = (("h100", 80e9, 3.9), ("a100", 80e9, 2.4), ("l40s", 48e9, 1.3), ("h200", 141e9, 4.8), ("l4", 24e9, 0.7))


def large_problem(seed: int, *, nodes: int, series: int, goal: Goal = "cash") -> Problem:
    rng = np.random.default_rng(seed)
    pools = max(nodes // NODES_A_POOL, 2)
    made = [_node(rng, i, i % pools) for i in range(nodes)]
    free = {n.name: [n.gpus, n.cpu_cores or 0.0, (n.host_mem_bytes or 0.0)] for n in made}
    day = 0.5 - 0.5 * np.cos(np.arange(HOURS) * 2 * np.pi / 24)
    found: list[PlanSeries] = []
    options: list[PlanOption] = []
    budget = HELD_SHARE * sum(n.gpus for n in made)
    for i in range(series):
        p = int(rng.integers(pools))
        left = (budget - sum(s.gpu_count for s in found)) / max(series - i, 1)
        s = _series(rng, i, p, [n for n in made if n.pool == f"p{p}"], free, day, left)
        if s is not None:
            found.append(s)
            options += _options(rng, i, s, pools)
    reserve = {f"p{p}": 8 for p in range(pools)}
    return Problem(tuple(made), tuple(found), tuple(options), goal, NOW, reserve=reserve)


def _node(rng: np.random.Generator, i: int, pool: int) -> PlanNode:
    sku, memory, price = SKUS[pool % len(SKUS)]
    bound = (None, NOW + float(rng.uniform(1, 500)) * 86400, FOREVER)[int(rng.choice(3, p=[0.6, 0.25, 0.15]))]
    return PlanNode(
        f"n{i:03d}", f"p{pool}", sku, f"{sku}-x8", 8, price * 8, bound_until=bound, cpu_cores=96.0,
        host_mem_bytes=1000e9, gpu_mem_bytes=memory, held=HELD if rng.random() < 0.02 else None, idle_watts=560.0,
        mig=sku in ("h100", "a100", "h200"),
    )  # fmt: skip


def _series(
    rng: np.random.Generator, i: int, p: int, home: list[PlanNode], free, day, left: float
) -> PlanSeries | None:
    kind = rng.random()
    team, hours = f"t{int(rng.integers(12))}", len(day)
    if kind < 0.06:
        held = np.where(rng.random(hours) < 0.3, float(rng.integers(1, 5)), 0.0)
        return PlanSeries(f"s{i}", f"job{i}", team, f"p{p}", "training", True, (), held, np.zeros(hours), tenant=team)
    size, count = (1, 1)
    if kind > 0.96 and left > 0.9:
        size, count = int(rng.choice([4, 8])), int(rng.integers(1, 3))
    elif kind > 0.6 and left > 0.8:
        size, count = int(rng.choice([1, 1, 2])), int(rng.integers(1, 5))
    mig = (1, 2) if size == 1 and home[0].mig and rng.random() < 0.08 else None
    units: list[PlanUnit] = []
    per: dict[str, int] = {}
    for k in range(count):
        cpu, memory = round(float(rng.uniform(2, 12)) * size, 1), float(rng.integers(20, 120)) * size * 1e9
        for at in rng.permutation(len(home)):
            room = free[home[at].name]
            if room[0] >= size and room[1] >= cpu and room[2] >= memory:
                room[0] -= size
                room[1] -= cpu
                room[2] -= memory
                name = home[at].name
                per[name] = per.get(name, 0) + 1
                fixed = FIXED if rng.random() < 0.06 else None
                units.append(
                    PlanUnit(f"s{i}u{k}", f"s{i}", {name: size}, cpu, memory, fixed, linked=size > 1, mig=mig)
                )  # fmt: skip
                break
    if not units:
        return None
    total = sum(u.gpu_count for u in units)
    demand = total * np.clip(0.25 + 0.5 * day * rng.uniform(0.3, 1.2) + rng.normal(0, 0.05, hours), 0, 1.15)
    kind_name = "online-inference" if count > 1 or size > 1 else "notebook"
    return PlanSeries(
        f"s{i}", f"svc{i}", team, f"p{p}", kind_name, False, tuple(units), demand, np.zeros(hours), tenant=team,
        apart=max(per.values()),
    )  # fmt: skip


def _options(rng: np.random.Generator, i: int, s: PlanSeries, pools: int) -> list[PlanOption]:
    if s.jobs or rng.random() > 0.36:
        return []
    first, made = s.units[0], []
    energy = float(rng.uniform(10, 200))
    if len(s.units) > 1:
        made.append(
            PlanOption(f"r{i}a", s.id, "reduce-gpus", s.pool, len(s.units) - 1, first.gpu_count, "low", 0.8,
                       energy_kwh_per_month=energy)
        )  # fmt: skip
    elif rng.random() < 0.4:
        made.append(PlanOption(f"r{i}b", s.id, "release", None, 0, 0, "low", keeps_units=False,
                               energy_kwh_per_month=energy))  # fmt: skip
    if rng.random() < 0.5 and first.mig is None:
        made.append(
            PlanOption(f"r{i}c", s.id, "move-sku", f"p{int(rng.integers(pools))}", len(s.units), first.gpu_count,
                       "medium",
                       0.9, False, cpu_cores_each=first.cpu_cores, host_mem_bytes_each=first.host_mem_bytes,
                       energy_kwh_per_month=energy / 2, linked=first.linked)
        )  # fmt: skip
    if rng.random() < 0.3 and first.gpu_count == 1 and int(s.pool[1:]) % len(SKUS) in (0, 1, 3):
        made.append(
            PlanOption(f"r{i}d", s.id, "to-mig", s.pool, len(s.units), 0, "medium", keeps_units=False,
                       cpu_cores_each=2.0, host_mem_bytes_each=20e9, energy_kwh_per_month=energy / 2, mig=(1, 2))
        )  # fmt: skip
    return made
