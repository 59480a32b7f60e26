"""Which waiting jobs start where: in their turns they get GPUs that are free or that a layout frees, each once."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ...rules.catalog.loader import Catalog
from ..classify.types import Verdicts
from ..recommend.waiting import Places, Queue, profile_of, shares
from .problem import Layout, PlanJobs, Problem
from .result import PlanStart, PlanStep, StartNode
from .state import State


def turns_of(queue: Queue, verdicts: Verdicts, catalog: Catalog) -> tuple[PlanJobs, ...]:
    """The jobs that wait for whole GPUs, as they began to wait."""
    places, fits = Places(verdicts, catalog), dict[str, frozenset[str]]()
    for group in (group for group in queue.groups if group.blocked_by is None and profile_of(group) is None):
        nodes = places.of(group)
        holding = {gpus for gpus in set(nodes.values()) if shares(group, gpus)}
        fits[group.id] = frozenset(name for name, gpus in nodes.items() if gpus in holding)
    return tuple(PlanJobs(group, jobs, fits[group.id]) for group, jobs in queue.turns if fits.get(group.id))


def awaited(problem: Problem) -> Problem:
    """The problem with the pools that jobs wait for beyond the GPUs that are free today."""
    places = {u.id: u.node for s in problem.series for u in s.units}
    left, today = Counter[str](), Layout({}, places, frozenset(n.name for n in problem.nodes if not n.rented))
    for jobs in problem.queue:
        left[jobs.group.id] += jobs.jobs
    for start in start_jobs(problem, today):
        left[start.waiting] -= start.jobs
    fits = {name for jobs in problem.queue if left[jobs.group.id] for name in jobs.fits}
    return replace(problem, awaited=frozenset(problem.by_node[name].pool for name in fits))


def start_jobs(problem: Problem, layout: Layout) -> list[PlanStart]:
    """The waiting jobs that a layout has GPUs for, in their turns (rule 13), without steps. GPUs that are free all the
    time come first, then nodes of which least is left over."""
    if not problem.queue:
        return []
    after = State(problem).set(layout.chosen, layout.places, layout.kept)
    room, lowest = {n.name: after.startable(n.name) for n in problem.nodes}, lowest_of(problem, layout)
    beyond: dict[str, float] = {}  # GPUs of each pool's kept nodes beyond its reserve
    for pool, nodes in problem.pools.items():
        kept, reserve = [n.name for n in nodes if n.name in layout.kept], after.reserve(pool)
        beyond[pool] = sum(room[name] for name in kept) - reserve if reserve else math.inf
        if reserve and kept:  # one node of it keeps room for the largest replica
            name = max(kept, key=room.__getitem__)
            room[name], lowest[name] = room[name] - after.spare[pool], lowest[name] - after.spare[pool]
    tenants: dict[str, set[str]] = defaultdict(set)
    for name, there in (*State(problem).rooms.items(), *after.rooms.items()):
        tenants[name] |= {tenant for tenant, units in there.tenants.items() if units}

    def nodes_for(jobs: PlanJobs, pool: str, parts: list[int]) -> list[str]:
        """The best nodes of a pool for one job, fewer where it has no place."""
        owner, fitting = {jobs.group.owner.name or ""}, []
        for n in problem.pools[pool] if parts else ():
            is_open = not problem.tenants_apart or tenants[n.name] <= owner
            is_open = owner <= n.tenants if n.tenants is not None else is_open
            enough = n.name not in layout.kept or sum(parts) <= beyond[pool]
            if is_open and enough and n.name in jobs.fits and room[n.name] >= parts[0]:
                fitting.append(n.name)
        return sorted(fitting, key=lambda name: (lowest[name] < parts[0], room[name], name))[: len(parts)]

    starts: list[PlanStart] = []
    full: set[str] = set()  # groups of which no further job has a place: rooms only shrink
    for jobs in problem.queue:
        left = jobs.jobs
        while left and jobs.group.id not in full:
            asked = [(pool, shares(jobs.group, nodes[0].gpus)) for pool, nodes in problem.pools.items()]
            choices = [(pool, parts, nodes_for(jobs, pool, parts)) for pool, parts in asked if parts]
            choices = [(lowest[names[-1]] < parts[0], room[names[0]], pool, parts, names)
                       for pool, parts, names in choices if len(names) == len(parts)]  # fmt: skip
            if not choices:
                full.add(jobs.group.id)
                break
            later, _, pool, parts, names = min(choices)
            # On one node as many at once as it takes.
            most = min((room if later else lowest)[names[0]], beyond[pool] if names[0] in layout.kept else math.inf)
            count = min(left, int(most) // parts[0]) if len(names) == 1 else 1
            for name, gpus in zip(names, parts, strict=True):
                room[name], lowest[name] = room[name] - count * gpus, lowest[name] - count * gpus
                beyond[pool] -= count * gpus if name in layout.kept else 0
                tenants[name].add(jobs.group.owner.name or "")
            given = tuple(StartNode(name, count * gpus) for name, gpus in zip(names, parts, strict=True))
            starts.append(PlanStart(jobs.group.id, count, count * sum(parts), pool, given, None))
            left -= count
    return starts


def lowest_of(problem: Problem, layout: Layout) -> dict[str, int]:
    """Node -> GPUs that waiting jobs could have at any time on the way to a layout: what comes may come first, and what
    goes may go last."""
    today, after = State(problem), State(problem).set(layout.chosen, layout.places, layout.kept)
    lowest = {n.name: today.startable(n.name) for n in problem.nodes}
    for unit, name in after.at.items():
        if after.home.get(unit) != name:
            lowest[name] -= after.kind[unit].gpus
    return lowest


def with_steps(
    problem: Problem, layout: Layout, steps: Sequence[PlanStep], starts: Sequence[PlanStart]
) -> tuple[PlanStart, ...]:
    """The starts with the step after which their GPUs are free: the last that touches their nodes."""
    last, homes = dict[str, int](), {u.id: u.gpus.keys() for s in problem.series for u in s.units}
    for step in steps:
        released = [problem.by_series[step.series].resting] if step.series is not None else []
        names = step.targets.union(*released, *(homes.get(move.unit, ()) for move in step.moves))
        last |= dict.fromkeys(names, step.number)
    free, out = lowest_of(problem, layout), []
    for start in starts:
        for node in start.nodes:
            free[node.node] -= node.gpus
        late = (last[node.node] for node in start.nodes if free[node.node] < 0)
        out.append(replace(start, step=max(late, default=None)))
    return tuple(out)
