"""Which waiting jobs start where: in their turns they get GPUs that are free or that a layout frees, each once."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..recommend.waiting import shares
from .problem import Layout, PlanJobs, Problem
from .result import PlanStart, PlanStep, StartNode
from .state import State


@dataclass(frozen=True, slots=True)
class Placed:
    """Jobs of one group that start on the same nodes of a pool. `gpus`: node -> GPUs that they take there."""

    group: str
    jobs: int
    pool: str
    gpus: Mapping[str, int]


def place(problem: Problem, layout: Layout) -> list[Placed]:
    """The waiting jobs that a layout has GPUs for, in their turns (rule 13). Those for which GPUs are free today come
    first, then those that leave least of a node over."""
    if not problem.queue:
        return []
    today, after = State(problem), State(problem).set(layout.chosen, layout.places, layout.kept)
    room = {n.name: after.startable(n.name) for n in problem.nodes}
    # What kept nodes may give of each pool, and the node of it that keeps room for the largest replica.
    beyond: dict[str, float] = {}
    for pool, nodes in problem.pools.items():
        kept, reserve = [n.name for n in nodes if n.name in layout.kept], after.reserve(pool)
        beyond[pool] = sum(room[name] for name in kept) - reserve if reserve else math.inf
        if reserve and kept:
            room[max(kept, key=room.__getitem__)] -= after.spare[pool]
    now = {name: min(today.startable(name), gpus) for name, gpus in room.items()}
    present: dict[str, set[str]] = defaultdict(set)
    for name, there in (*today.rooms.items(), *after.rooms.items()):
        present[name] |= {tenant for tenant, units in there.tenants.items() if units}

    def candidates(jobs: PlanJobs, pool: str) -> tuple[list[int], list[str]]:
        """What a job takes of each of its nodes, and the nodes, the best first; too few: it has no place there."""
        parts, tenant = shares(jobs.group, problem.pools[pool][0].gpus), jobs.group.owner.name or ""
        fitting = []
        for n in problem.pools[pool] if parts else ():
            is_open = n.tenants is None or tenant in n.tenants
            if problem.tenants_apart and n.tenants is None:
                is_open = present[n.name] <= {tenant}
            enough = n.name not in layout.kept or sum(parts) <= beyond[pool]
            if is_open and enough and n.name in jobs.fits and room[n.name] >= parts[0]:
                fitting.append(n.name)
        return parts, sorted(fitting, key=lambda name: (now[name] < parts[0], room[name], name))[: len(parts)]

    placed: list[Placed] = []
    served: set[str] = set()  # groups of which no further job has a place: rooms only shrink
    for jobs in problem.queue:
        left = jobs.jobs if jobs.group.id not in served else 0
        while left:
            choices = ((pool, *candidates(jobs, pool)) for pool in problem.pools)
            choices = [(pool, parts, names) for pool, parts, names in choices if parts and len(names) == len(parts)]
            if not choices:
                served.add(jobs.group.id)
                break
            pool, parts, names = min(
                choices, key=lambda choice: (any(now[name] < choice[1][0] for name in choice[2]), room[choice[2][0]])
            )
            count, (first, *others), part = 1, names, parts[0]
            if not others:  # as many at once as the node takes, of those for which it has room today, if any
                most = (now[first] if now[first] >= part else room[first]) // part
                count = int(min(left, most, beyond[pool] // part if first in layout.kept else left))
            for name, gpus in zip(names, parts, strict=True):
                room[name], now[name] = room[name] - count * gpus, now[name] - count * gpus
                beyond[pool] -= count * gpus if name in layout.kept else 0
                present[name].add(jobs.group.owner.name or "")
            given = {name: count * gpus for name, gpus in zip(names, parts, strict=True)}
            placed.append(Placed(jobs.group.id, count, pool, given))
            left -= count
    return placed


def starts_of(
    problem: Problem, layout: Layout, steps: Sequence[PlanStep], placed: Sequence[Placed]
) -> tuple[PlanStart, ...]:
    """The starts with the step after which their GPUs are free for good. `layout`: without nodes that are kept for
    them; `steps`: with units by their id."""
    state, names = State(problem), dict.fromkeys(name for p in placed for name in p.gpus)
    after = State(problem).set(layout.chosen, layout.places, layout.kept)
    reserve = {pool: after.reserve(pool) for pool in {p.pool for p in placed} if after.reserve(pool)}

    def free() -> dict[tuple[str, str], int]:
        counts = {("node", name): state.startable(name) for name in names}
        for pool, gpus in reserve.items():
            kept = (n.name for n in problem.pools[pool] if n.name in layout.kept)
            counts["pool", pool] = sum(map(state.startable, kept)) - gpus
        return counts

    states = [(free(), free())]  # after each step, and the least of a node while it is done
    for step in steps:
        least = free()
        for move in step.moves:
            state.place(move.unit, move.end)
            least = {key: min(gpus, least[key]) for key, gpus in free().items()}
        if step.kind == "option":
            state.choose(layout.chosen[step.series or ""])
        # The reserve of a pool may be used for a moment.
        states.append((free(), {key: gpus for key, gpus in least.items() if key[0] == "node"}))
    # What is free after a step and is never taken again.
    lasting = [states[-1][0]]
    for (now, _), (_, during) in zip(states[-2::-1], states[:0:-1], strict=True):
        later = {key: min(gpus, during.get(key, gpus)) for key, gpus in lasting[0].items()}
        lasting.insert(0, {key: min(gpus, later[key]) for key, gpus in now.items()})
    taken = Counter[tuple[str, str]]()
    merged: dict[tuple[str, str, int], list[Placed]] = defaultdict(list)
    for p in placed:
        keys = []
        for name, gpus in p.gpus.items():
            keys += [("node", name)] + [("pool", p.pool)] * (p.pool in reserve and name in layout.kept)
            taken["node", name] += gpus
            taken["pool", p.pool] += gpus if name in layout.kept else 0
        step = next(n for n, counts in enumerate(lasting) if all(counts[key] >= taken[key] for key in keys))
        merged[p.group, p.pool, step].append(p)
    starts = []
    for (group, pool, step), same in merged.items():
        gpus = sum((Counter(p.gpus) for p in same), Counter[str]())
        nodes = tuple(StartNode(name, count) for name, count in sorted(gpus.items()))
        jobs = sum(p.jobs for p in same)
        starts.append(PlanStart(group, jobs, gpus.total(), pool, nodes, step or None))
    return tuple(starts)
