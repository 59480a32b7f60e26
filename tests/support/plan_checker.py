"""Whether a layout breaks any rule of a plan: written from the rules in words (the docstring of
`skuwise.advisor.plan.problem`), from the problem and the answer alone, without the solver's model or its helpers; and
whether steps lead there without breaking one on the way."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from skuwise.advisor.plan.problem import Layout, PlanNode, PlanOption, PlanSeries, Problem
from skuwise.advisor.plan.result import PlanStart, PlanStep
from skuwise.advisor.plan.state import move_cost, node_worth, option_worth


@dataclass
class _Node:
    gpus: int = 0
    cpu: int = 0
    memory: int = 0
    linked: list[int] = field(default_factory=list)
    tenants: set[str] = field(default_factory=set)
    crowd: Counter[str] = field(default_factory=Counter)
    entered: dict[str, str] = field(default_factory=dict)  # unit -> tenant
    largest: int = 0

    def add(self, s: PlanSeries, gpus: int, cpu: float, memory: float, linked: bool, alone: bool) -> None:
        self.gpus += gpus
        self.cpu += math.ceil(cpu * 10 - 1e-6)
        self.memory += math.ceil(memory / 1e8 - 1e-6)
        if alone and linked and gpus > 1:
            self.linked.append(gpus)
        self.largest = max(self.largest, gpus if alone else 0)
        self.tenants.add(s.tenant)
        self.crowd[s.id] += 1


State = Mapping[str, _Node]


def state_of(problem: Problem, layout: Layout) -> dict[str, _Node]:
    on = {n.name: _Node(gpus=problem.fixed_gpus.get(n.name, 0)) for n in problem.nodes}
    for s in problem.series:
        for u in s.units:
            if u.id in layout.places:
                parts = u.gpus if len(u.gpus) > 1 else {layout.places[u.id]: u.gpu_count}
                for name, count in parts.items():
                    share = len(parts)
                    on[name].add(s, count, u.cpu_cores / share, u.host_mem_bytes / share, u.linked, share == 1)
                if layout.places[u.id] not in u.gpus:
                    on[layout.places[u.id]].entered[u.id] = s.tenant
        o = layout.chosen.get(s.id)
        for k in range(_started(o)):
            if o is not None and (to := layout.places.get(f"{o.id}#{k}")):
                on[to].add(s, o.gpus_each, o.cpu_cores_each, o.host_mem_bytes_each, o.linked, alone=True)
                on[to].entered[f"{o.id}#{k}"] = s.tenant
    return on


def _started(o: PlanOption | None) -> int:
    return o.units if o is not None and not o.keeps_units and o.pool is not None else 0


def today_of(problem: Problem) -> Layout:
    places = {u.id: next(iter(u.gpus)) for s in problem.series for u in s.units}
    return Layout({}, places, frozenset(n.name for n in problem.nodes if not n.rented))


def broken_rules(problem: Problem, layout: Layout) -> list[str]:
    today, on = state_of(problem, today_of(problem)), state_of(problem, layout)
    said = _choices(problem, layout)
    for s in problem.series:
        said += _replicas(problem, layout, s)
        o = layout.chosen.get(s.id)
        for name, node in on.items():
            most = max(s.apart, today[name].crowd[s.id])
            if o is not None:
                most = max(1, s.apart * (o.units if o.pool else 0) // max(len(s.units), 1))
            if node.crowd[s.id] > most:
                said.append(f"{s.id} has more than {most} replicas on {name}")
    units = {u.id for s in problem.series for u in s.units}
    units |= {f"{o.id}#{k}" for o in layout.chosen.values() for k in range(_started(o))}
    said += [f"{unit} is unknown" for unit in layout.places.keys() - units]
    for n in problem.nodes:
        node = on[n.name]
        busy = node.crowd.total() or problem.fixed_gpus.get(n.name, 0) or n.held is not None
        if n.name not in layout.kept and busy:
            said.append(f"{n.name} is given up though it is held or in use")
        if node.entered:
            if n.held is not None:
                said.append(f"{node.entered} enter {n.name}, which is held")
            said += [f"{rule} (entered by {node.entered})" for rule in _beyond(problem, n, node)]
            said += [f"{rule} (today, entered)" for rule in _beyond(problem, n, today[n.name])]
    for pool in {n.pool for n in problem.nodes}:
        said += _pool(problem, layout, pool, on, today)
    return said


def _choices(problem: Problem, layout: Layout) -> list[str]:
    said = []
    taken = {o.id for o in layout.chosen.values()}
    for series, o in layout.chosen.items():
        if o.pool is not None and all(n.pool != o.pool for n in problem.nodes):
            said.append(f"{o.id} goes to nodes that are not there")
        if o.series != series or o not in problem.options:
            said.append(f"{o.id} is no option of {series}")
        if o.excludes & taken:
            said.append(f"{o.id} together with what it excludes")
    moved = {s.id for s in problem.series for u in s.units if layout.places.get(u.id, u.node) != u.node}
    touched = len(moved | layout.chosen.keys())
    if problem.max_moves is not None and touched > problem.max_moves:
        said.append(f"{touched} workloads touched, {problem.max_moves} allowed")
    return said


def _replicas(problem: Problem, layout: Layout, s: PlanSeries) -> list[str]:
    nodes, said = {n.name: n for n in problem.nodes}, []
    o = layout.chosen.get(s.id)
    here = [u for u in s.units if u.id in layout.places]
    count = len(s.units) if o is None else o.units if o.pool and o.keeps_units else 0
    if not s.jobs and len(here) != count:
        said.append(f"{s.id} has {len(here)} replicas, not {count}")
    for u in here:
        to = layout.places[u.id]
        if to in u.gpus:
            continue
        if u.fixed is not None or len(u.gpus) > 1 or nodes[u.node].pool != s.pool or nodes[to].pool != s.pool:
            said.append(f"{u.id} may not move to {to} and does")
        if u.linked and nodes[to].island_gpus and u.gpu_count > max(nodes[to].island_gpus, 1):
            said.append(f"{u.id} is larger than an island of {to}")
    for k in range(_started(o)):
        to = layout.places.get(f"{o.id}#{k}") if o is not None else None
        if to is None or (o is not None and nodes[to].pool != o.pool):
            said.append(f"{s.id} {k} is at {to}, which is not for it")
    return said


def _beyond(problem: Problem, n: PlanNode, on: _Node) -> list[str]:
    """Limits of the node that what is on it breaks (rules 5 to 8)."""
    said = []
    if on.gpus > n.gpus:
        said.append(f"{n.name} holds {on.gpus} of {n.gpus} GPUs")
    if n.cpu_cores is not None and on.cpu > math.floor(n.cpu_cores * 10 + 1e-6):
        said.append(f"{n.name}: {on.cpu} tenths of {n.cpu_cores} cores")
    if n.host_mem_bytes is not None and on.memory > math.floor(n.host_mem_bytes / 1e8 + 1e-6):
        said.append(f"{n.name}: host memory")
    if n.island_gpus and sum(math.ceil(size / n.island_gpus) for size in on.linked) > n.gpus // n.island_gpus:
        said.append(f"{n.name}: linked units {on.linked} in islands of {n.island_gpus}")
    if n.tenants is None and problem.tenants_apart and len(on.tenants) > 1:
        said.append(f"{n.name}: tenants {on.tenants}")
    if n.tenants is not None and (alien := set(on.entered.values()) - n.tenants):
        said.append(f"{n.name}: {alien} enter, {n.tenants} may")
    return said


def _pool(problem: Problem, layout: Layout, pool: str, on: State, today: State) -> list[str]:
    """Rules 11 and 12."""
    members = [n for n in problem.nodes if n.pool == pool]
    kept = [n for n in members if n.name in layout.kept]
    hours = max((len(s.demand) for s in problem.series), default=1)
    asked = np.zeros(hours) + sum(problem.fixed_gpus.get(n.name, 0) for n in members)
    wholes = np.zeros(hours)
    for s in problem.series:
        o = layout.chosen.get(s.id)
        if (s.pool if o is None else o.pool) != pool:
            continue
        held = 0 if s.jobs else sum(u.gpu_count for u in s.units) if o is None else o.units * o.gpus_each
        asked += np.maximum(np.ceil(s.demand * (1.0 if o is None else o.demand_scale) - 1e-9), held)
        if s.jobs and o is None:
            wholes += np.ceil(s.whole_nodes - 1e-9)
        elif s.jobs and o is not None and o.node_gpus:
            wholes += np.ceil(s.demand * o.demand_scale / o.node_gpus - 1e-9)
    reserve = problem.reserve.get(pool, 0) if asked.max() > 0 else 0
    said = []
    if asked.max() + reserve > sum(n.gpus for n in kept):
        said.append(f"{pool}: {asked.max()} GPUs and {reserve} in reserve asked for")
    open_ = [n for n in kept if n.held is None]
    if wholes.max() > sum(not on[n.name].gpus for n in open_):
        said.append(f"{pool}: {wholes.max()} whole nodes asked for")
    if reserve and not any(n.extra in ("buy", "missing") for n in members):
        free_today = max((n.gpus - today[n.name].gpus for n in members if n.held is None and not n.rented), default=0)
        spare = min(max(today[n.name].largest for n in members), free_today)
        if max((n.gpus - on[n.name].gpus for n in open_), default=0) < spare:
            said.append(f"{pool}: no node has {spare} GPUs free")
    return said


def wrong_steps(problem: Problem, layout: Layout, steps: Sequence[PlanStep]) -> list[str]:
    """Where a step leaves the rules broken for a moment, it says so; the last one never does."""
    said: list[str] = []
    states = [state_after(problem, steps[:i]) for i in range(len(steps) + 1)]
    end = states[-1]
    if dict(end.places) != dict(layout.places) or end.kept != layout.kept or dict(end.chosen) != dict(layout.chosen):
        said.append("the steps do not end at the layout")
    broken = [broken_rules(problem, state) for state in states]
    for i, step in enumerate(steps, start=1):
        if broken[i] and (i == len(steps) or (step.staging is None and not broken[i - 1])):
            said.append(f"after step {i}: {broken[i]}")
        if any(not 1 <= number < i for number in step.after):
            said.append(f"step {i} comes before what it needs: {step.after}")
    freed = [name for step in steps for name in step.frees]
    if len(freed) != len(set(freed)):
        said.append("a node is given up twice")
    return said


def wrong_starts(problem: Problem, layout: Layout, steps: Sequence[PlanStep], starts: Sequence[PlanStart]) -> list[str]:
    """Rule 13. `layout`: without the nodes that are kept for starts alone; `steps`: to that with them."""
    said = _wrong_jobs(problem, starts)
    named = {node.node for start in starts for node in start.nodes}
    said += [f"{name} is returned and has starts" for name in named & {name for step in steps for name in step.frees}]
    # Each moment: after each move within a step, and after each step.
    moments: list[tuple[int, Layout]] = [(0, state_after(problem, ()))]
    for i, step in enumerate(steps):
        parts = (replace(step, moves=step.moves[:k], recommendation=None, frees=()) for k in range(len(step.moves)))
        moments += [(i, state_after(problem, [*steps[:i], part])) for part in parts]
        moments.append((i + 1, state_after(problem, steps[: i + 1])))
    today = state_of(problem, moments[0][1])
    for number, moment in moments:
        free = _startable(problem, moment, today)
        for name in named:
            given = sum(n.gpus for s in starts if (s.step or 0) <= number for n in s.nodes if n.node == name)
            if given > max(free[name], 0):
                said.append(f"after step {number} {given} GPUs of {name} are given, {free[name]} are free")
    on, free = state_of(problem, layout), _startable(problem, layout, today)
    given = Counter[str]()
    for node in (node for start in starts for node in start.nodes):
        given[node.node] += node.gpus
    for pool, reserve in ((pool, reserve) for pool, reserve in problem.reserve.items() if reserve):
        members = [n for n in problem.nodes if n.pool == pool]
        kept = [n for n in members if n.name in layout.kept]
        work = any(on[n.name].gpus for n in kept) or any(_asks(s, layout, pool) for s in problem.series)
        left = sum(free[n.name] - given[n.name] for n in kept)
        if work and any(given[n.name] for n in kept) and left < min(reserve, sum(free[n.name] for n in kept)):
            said.append(f"{left} of {reserve} GPUs of {pool} are left in reserve")
    if not any(problem.reserve.values()) and not problem.tenants_apart:
        started = Counter[str]()
        for start in starts:
            started[start.waiting] += start.jobs
        for jobs in (jobs for jobs in problem.queue if jobs.group.nodes_each == 1):
            wanted = sum(other.jobs for other in problem.queue if other.group.id == jobs.group.id)
            rooms = [free[name] - given[name] for name in jobs.fits]
            if started[jobs.group.id] < wanted and max(rooms, default=0) >= jobs.group.gpus_each:
                said.append(f"{jobs.group.id} has room and does not start")
    return said


def _wrong_jobs(problem: Problem, starts: Sequence[PlanStart]) -> list[str]:
    """Whether each start is of whole jobs that wait, on nodes that fit."""
    said, nodes = [], {n.name: n for n in problem.nodes}
    for start in starts:
        turns = [jobs for jobs in problem.queue if jobs.group.id == start.waiting]
        total = sum(jobs.jobs for jobs in turns)
        if sum(other.jobs for other in starts if other.waiting == start.waiting) > total:
            said.append(f"more than {total} jobs of {start.waiting} start")
        group, names = turns[0].group, [node.node for node in start.nodes]
        each = math.ceil(group.gpus_each)
        if start.gpus != start.jobs * each or start.gpus != sum(node.gpus for node in start.nodes):
            said.append(f"{start.jobs} jobs of {each} GPUs take {start.gpus}")
        if len(set(names)) < len(names) or not set(names) <= turns[0].fits:
            said.append(f"{start.waiting} does not fit {names}")
        if {nodes[name].pool for name in names} != {start.pool} or any(nodes[name].held for name in names):
            said.append(f"{names} are not open nodes of {start.pool}")
        if group.nodes_each == 1 and any(node.gpus % each for node in start.nodes):
            said.append(f"a job of {each} GPUs is divided: {start.nodes}")
        if len(names) < min(group.nodes_each or 1, each):
            said.append(f"{start.waiting} asks for {group.nodes_each} nodes: {names}")
    return said


def _startable(problem: Problem, layout: Layout, today: State) -> dict[str, int]:
    on, free = state_of(problem, layout), dict[str, int]()
    for n in problem.nodes:
        ended = [s for s in problem.series if (o := layout.chosen.get(s.id)) is not None and o.pool is None]
        free[n.name] = problem.idle_gpus.get(n.name, 0) + sum(s.resting.get(n.name, 0) for s in ended)
        free[n.name] = min(free[n.name] + today[n.name].gpus, n.gpus) - on[n.name].gpus
        if n.held is not None or n.rented or n.extra is not None:
            free[n.name] = 0
    return free


def _asks(s: PlanSeries, layout: Layout, pool: str) -> bool:
    o = layout.chosen.get(s.id)
    return (s.pool if o is None else o.pool) == pool and bool(s.demand.any())


def state_after(problem: Problem, steps: Sequence[PlanStep]) -> Layout:
    """The layout that is there once these first steps are done: with it a prefix is checked like any layout."""
    today = today_of(problem)
    at, kept, chosen = dict(today.places), set(today.kept), dict(today.chosen)
    for step in steps:
        kept |= set(step.rents)
        for move in step.moves:
            at.pop(move.unit, None)
            if move.end is not None:
                at[move.unit] = move.end
        if step.recommendation is not None and step.series is not None:
            chosen[step.series] = problem.by_option[step.recommendation]
        kept -= set(step.frees)
    return replace(today, chosen=chosen, places=at, kept=frozenset(kept))


def score(problem: Problem, layout: Layout) -> float:
    """Worked out from the definitions: what emptied nodes and changes bring, less moves and rent."""
    total = -sum(node_worth(n, problem) for n in problem.nodes if n.rented and n.name in layout.kept)
    total += sum(node_worth(n, problem) for n in problem.nodes if not n.rented and n.name not in layout.kept)
    for o in layout.chosen.values():
        s = problem.by_series[o.series]
        elsewhere = o.pool is not None and o.pool != s.pool
        new = int(elsewhere) if s.jobs else o.units if not o.keeps_units and o.pool is not None else 0
        total += option_worth(o, problem) - new * move_cost(problem, max(o.gpus_each, 1)) - 0.01
    for s in problem.series:
        for u in s.units:
            if layout.places.get(u.id, u.node) != u.node and u.fixed is None and len(u.gpus) == 1:
                total -= move_cost(problem, max(u.gpu_count, 1))
    return total
