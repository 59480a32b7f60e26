"""Whether a layout breaks any rule of a plan: written from the rules in words (the docstring of
`skuwise.advisor.plan.problem`), from the problem and the answer alone, without the solver's model or its helpers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from skuwise.advisor.plan.problem import Layout, PlanNode, PlanOption, PlanSeries, PlanUnit, Problem
from skuwise.advisor.recommend.predict.mig_model import fits

Slices = tuple[int, int]


@dataclass
class _Node:
    gpus: int = 0
    cpu: int = 0
    memory: int = 0
    linked: list[int] = field(default_factory=list)
    mig: list[Slices] = field(default_factory=list)
    tenants: set[str] = field(default_factory=set)
    crowd: Counter[str] = field(default_factory=Counter)
    entered: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def add(self, s: PlanSeries, gpus: int, cpu: float, memory: float, *, linked: bool, mig: Slices | None) -> None:
        unplaceable = mig is not None and not fits([mig])
        if mig is None or unplaceable:
            self.gpus += 1 if unplaceable else gpus
            if linked and gpus > 1 and mig is None:
                self.linked.append(gpus)
        else:
            self.mig.append(mig)
        self.cpu += math.ceil(cpu * 10 - 1e-6)
        self.memory += math.ceil(memory / 1e8 - 1e-6)
        self.tenants.add(s.tenant)
        self.crowd[s.id] += 1

    @property
    def used(self) -> int:
        return self.gpus + _mig_gpus(tuple(sorted(self.mig, reverse=True)))


@cache
def _mig_gpus(instances: tuple[Slices, ...]) -> int:
    """The fewest GPUs: instances put one by one, each on any GPU that has one or on another."""
    best = len(instances)

    def put(index: int, gpus: list[list[Slices]]) -> None:
        nonlocal best
        if len(gpus) >= best:
            return
        if index == len(instances):
            best = len(gpus)
            return
        tried: set[tuple[Slices, ...]] = set()
        for gpu in gpus:
            if tuple(sorted(gpu)) not in tried and fits([*gpu, instances[index]]):
                tried.add(tuple(sorted(gpu)))
                gpu.append(instances[index])
                put(index + 1, gpus)
                gpu.pop()
        put(index + 1, [*gpus, [instances[index]]])

    if instances:
        put(0, [])
    return best


def _islands_hold(linked: Sequence[int], islands: Sequence[int]) -> bool:
    if not linked:
        return True
    first, *rest = sorted(linked, reverse=True)
    return any(
        _islands_hold(rest, [*islands[:i], room - first, *islands[i + 1 :]])
        for i, room in enumerate(islands)
        if room >= first and room not in islands[:i]
    )


def _within(problem: Problem, n: PlanNode, on: _Node, allowed: frozenset[str]) -> list[str]:
    """Limits of the node that what is on it breaks (rules 5 to 9)."""
    said = []
    if on.used > n.gpus:
        said.append(f"{n.name} holds {on.used} of {n.gpus} GPUs")
    if n.cpu_cores is not None and on.cpu > math.floor(n.cpu_cores * 10 + 1e-6):
        said.append(f"{n.name}: {on.cpu} tenths of {n.cpu_cores} cores")
    if n.host_mem_bytes is not None and on.memory > math.floor(n.host_mem_bytes / 1e8 + 1e-6):
        said.append(f"{n.name}: host memory")
    if not _islands_hold(on.linked, n.islands or (n.gpus,)):
        said.append(f"{n.name}: linked units {on.linked} in islands {n.islands}")
    if problem.tenants_apart and (on.tenants - allowed if allowed else len(on.tenants) > 1):
        said.append(f"{n.name}: tenants {on.tenants}")
    return said


def _memory_ok(problem: Problem, n: PlanNode, need: float | None, home: PlanNode | None, mig: Slices | None) -> bool:
    if mig is not None and need is not None:
        need = need * 8 / mig[1]
    if need is None and home is not None:
        need = home.gpu_mem_bytes
    if n.gpu_mem_bytes is None or need is None:
        return home is None or home.gpu_sku == n.gpu_sku
    return n.gpu_mem_bytes >= need


def _empty(problem: Problem) -> dict[str, _Node]:
    return {n.name: _Node(gpus=problem.fixed_gpus.get(n.name, 0)) for n in problem.nodes}


def _put_unit(on: dict[str, _Node], s: PlanSeries, u: PlanUnit, spread: Mapping[str, int]) -> None:
    for name, count in spread.items():
        on[name].add(
            s, count, u.cpu_cores / len(spread), u.host_mem_bytes / len(spread),
            linked=u.linked and len(spread) == 1, mig=u.mig,
        )  # fmt: skip
        if len(spread) == 1:
            on[name].sizes.append(1 if u.mig is not None else count)


def today_of(problem: Problem) -> dict[str, _Node]:
    on = _empty(problem)
    for s in problem.series:
        for u in s.units:
            _put_unit(on, s, u, u.gpus)
    return on


def state_of(problem: Problem, layout: Layout) -> dict[str, _Node]:
    on = _empty(problem)
    for s in problem.series:
        o = layout.chosen.get(s.id)
        if o is None or o.keeps_units:
            _kept_units(problem, layout, s, o, on, set(), set())
        else:
            _new_units(problem, layout, s, o, on, set())
    return on


def broken_rules(problem: Problem, layout: Layout) -> list[str]:
    nodes = {n.name: n for n in problem.nodes}
    today, on = today_of(problem), _empty(problem)
    said = _choices(problem, layout)
    touched = set(layout.chosen)
    known: set[str] = set()
    for s in problem.series:
        if s.jobs:
            continue
        o = layout.chosen.get(s.id)
        if o is None or o.keeps_units:
            said += _kept_units(problem, layout, s, o, on, known, touched)
        else:
            said += _new_units(problem, layout, s, o, on, known)
        for name, node in on.items():
            most = max(s.apart, today[name].crowd[s.id])
            if o is not None:
                most = max(1, s.apart * (o.units if o.pool else 0) // max(len(s.units), 1))
            if node.crowd[s.id] > most:
                said.append(f"{s.id} has more than {most} replicas on {name}")
    here = {u.id for s in problem.series for u in s.units if u.id in layout.places}
    said += [
        f"{u.id} ends though it is pinned" for s in problem.series for u in s.units if u.pinned and u.id not in here
    ]
    said += [f"{unit} is unknown" for unit in layout.places if unit not in known]
    if problem.max_moves is not None and len(touched) > problem.max_moves:
        said.append(f"{len(touched)} workloads touched, {problem.max_moves} allowed")
    for name, node in on.items():
        n = nodes[name]
        busy = node.crowd.total() or problem.fixed_gpus.get(name, 0)
        if name not in layout.kept and (busy or n.held is not None):
            said.append(f"{name} is given up though it is held or in use")
        if node.entered and problem.tenants_apart and name in problem.closed:
            said.append(f"{node.entered} enter {name}, which is closed")
        if node.entered:
            named = n.tenants or (today[name].tenants if len(today[name].tenants) > 1 else frozenset())
            named = frozenset(named)
            said += [f"{one} (entered by {node.entered})" for one in _within(problem, n, node, named)]
            said += [f"{one} (today, entered)" for one in _within(problem, n, today[name], named)]
    said += _pools(problem, layout, on, today)
    return said


def _choices(problem: Problem, layout: Layout) -> list[str]:
    said = []
    taken = {o.id for o in layout.chosen.values()}
    ids = {o.id for o in problem.options}
    for series, o in layout.chosen.items():
        if o.pool is not None and all(n.pool != o.pool for n in problem.nodes):
            said.append(f"{o.id} goes to nodes that are not there")
        if o.series != series or o.id not in ids:
            said.append(f"{o.id} is no option of {series}")
        if o.excludes & taken:
            said.append(f"{o.id} together with what it excludes")
        if (o.needs & ids) - taken:
            said.append(f"{o.id} without what it needs")
    return said


def _kept_units(
    problem: Problem, layout: Layout, s: PlanSeries, o: PlanOption | None, on: dict[str, _Node], known: set[str],
    touched: set[str],
) -> list[str]:  # fmt: skip
    said = []
    nodes = {n.name: n for n in problem.nodes}
    here = [u for u in s.units if u.id in layout.places]
    count = len(s.units) if o is None else (o.units if o.pool else 0)
    if len(here) != count:
        said.append(f"{s.id} has {len(here)} replicas, not {count}")
    for u in here:
        known.add(u.id)
        to = layout.places[u.id]
        if u.fixed is not None or len(u.gpus) > 1:
            if to not in u.gpus:
                said.append(f"{u.id} may not move and does")
            _put_unit(on, s, u, u.gpus)
            continue
        _put_unit(on, s, u, {to: u.gpu_count})
        (home,) = u.gpus
        if to != home:
            touched.add(s.id)
            on[to].entered.append(u.id)
            if (
                nodes[home].pool != s.pool
                or nodes[to].pool != s.pool
                or nodes[to].held is not None
                or to not in layout.kept
            ):
                said.append(f"{u.id} moves to a node that is not for it")
            if u.mig is not None and not (nodes[to].mig and fits([u.mig])):
                said.append(f"{u.id} moves to a node without MIG")
            if not _memory_ok(problem, nodes[to], u.gpu_mem_bytes_each, nodes[home], u.mig):
                said.append(f"{u.id} moves to GPUs with too little memory")
    return said


def _new_units(
    problem: Problem, layout: Layout, s: PlanSeries, o: PlanOption, on: dict[str, _Node], known: set[str]
) -> list[str]:
    said = []
    nodes = {n.name: n for n in problem.nodes}
    for k in range(o.units if o.pool is not None else 0):
        unit = f"{o.id}#{k}"
        known.add(unit)
        to = layout.places.get(unit)
        if to is None:
            said.append(f"{unit} runs nowhere")
            continue
        n = nodes[to]
        if n.pool != o.pool or n.held is not None or to not in layout.kept:
            said.append(f"{unit} is on a node that is not for it")
        if o.mig is not None and not (n.mig and fits([o.mig])):
            said.append(f"{unit} is on a node without MIG")
        if not _memory_ok(problem, n, o.gpu_mem_bytes_each, None, o.mig):
            said.append(f"{unit} is on GPUs with too little memory")
        on[to].add(s, o.gpus_each, o.cpu_cores_each, o.host_mem_bytes_each, linked=o.linked, mig=o.mig)
        on[to].sizes.append(1 if o.mig is not None else o.gpus_each)
        on[to].entered.append(unit)
    return said


def missing_gpus(
    problem: Problem, pool: str, chosen: Mapping[str, PlanOption], kept: frozenset[str], on: Mapping[str, _Node]
) -> int:
    """GPUs that a pool misses in its worst hour (rule 13)."""
    hours = max(problem.hours, 1)
    nodes = {n.name: n for n in problem.nodes}
    own = [n for n in problem.nodes if n.pool == pool]
    room = sum(n.gpus - (on[n.name].used - on[n.name].gpus) for n in own if n.name in kept)
    always = problem.reserve.get(pool, 0) + sum(problem.fixed_gpus.get(n.name, 0) for n in own)
    lack = 0
    wholes = np.zeros(hours)
    asked = np.zeros(hours) + always
    for s in problem.series:
        o = chosen.get(s.id)
        where = s.pool if o is None else o.pool
        if o is None and any(nodes[name].pool != s.pool for u in s.units for name in u.gpus):
            asked += _part(s, pool, nodes)
            continue
        if where != pool:
            continue
        demand = np.zeros(hours)
        demand[: len(s.demand)] = s.demand * (1.0 if o is None else o.demand_scale)
        demand = np.ceil(demand - 1e-9)
        if s.jobs:
            asked += demand
            if o is None:
                wholes[: len(s.whole_nodes)] += np.ceil(s.whole_nodes - 1e-9)
            elif o.node_gpus:
                wholes[: len(s.demand)] += np.ceil(s.demand * o.demand_scale / o.node_gpus - 1e-9)
            continue
        mig = any(u.mig is not None for u in s.units) if o is None or o.keeps_units else o.mig is not None
        if o is None:
            held = sum(u.gpu_count for u in s.units if u.mig is None)
        elif o.keeps_units:
            held = sum(u.gpu_count for u in s.units if u.mig is None) if mig else o.units * o.gpus_each
        else:
            held = 0 if mig else o.units * o.gpus_each
        asked += held if mig else np.maximum(demand, held)
    lack = max(lack, int(asked.max()) - room)
    size = max(n.gpus for n in own)
    empty = sum(n.name in kept and n.held is None and not on[n.name].used for n in own)
    return max(lack, (int(wholes.max()) - empty) * size, 0)


def _part(s: PlanSeries, pool: str, nodes: Mapping[str, PlanNode]) -> np.ndarray:
    """What a series in several pools needs in one: its demand by the GPUs that it holds there, and those at least."""
    here = sum(c for u in s.units if u.mig is None for name, c in u.gpus.items() if nodes[name].pool == pool)
    every = sum(c for u in s.units if u.mig is None for c in u.gpus.values())
    if any(u.mig is not None for u in s.units) or not every:
        return np.full(len(s.demand), float(here))
    return np.maximum(np.ceil(s.demand * here / every - 1e-9), here)


def _pools(problem: Problem, layout: Layout, on: dict[str, _Node], today: dict[str, _Node]) -> list[str]:
    said = []
    owned = frozenset(n.name for n in problem.nodes if not n.rented)
    for pool in {n.pool for n in problem.nodes}:
        lack = missing_gpus(problem, pool, layout.chosen, layout.kept, on)
        before = missing_gpus(problem, pool, {}, owned, today)
        if lack != layout.short.get(pool, 0):
            said.append(f"{pool}: {lack} GPUs missing, {layout.short.get(pool, 0)} told")
        if lack > before:
            said.append(f"{pool}: {lack} GPUs missing, {before} today")
        if not problem.reserve.get(pool, 0):
            continue
        need, spare = _largest(problem, pool, on), _spare(problem, pool, on, layout.kept)
        need_today, spare_today = _largest(problem, pool, today), _spare(problem, pool, today, owned)
        if spare < (need if spare_today >= need_today else min(need, spare_today)):
            said.append(f"{pool}: the largest unit has {need} GPUs, {spare} are free on a node ({spare_today} today)")
    return said


def _largest(problem: Problem, pool: str, on: Mapping[str, _Node]) -> int:
    return max((size for n in problem.nodes if n.pool == pool for size in on[n.name].sizes), default=0)


def _spare(problem: Problem, pool: str, on: Mapping[str, _Node], kept: frozenset[str]) -> int:
    own = [n for n in problem.nodes if n.pool == pool and n.name in kept and n.held is None]
    return max((n.gpus - on[n.name].used for n in own), default=0)
