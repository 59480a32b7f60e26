"""The best layout of a tiny fleet, by trying every one; and tiny fleets."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product

from skuwise.advisor.plan.problem import GOALS, Layout, PlanOption, PlanSeries, Problem
from skuwise.advisor.plan.worth import move_cost, node_worth, option_worth

from .plan_checker import broken_rules
from .plan_fleets import random_problem


def tiny_problem(seed: int) -> Problem:
    """Two or three nodes and one that could be rented, at most five replicas."""
    made = random_problem(seed, nodes=2 + seed % 2, series=4, pools=1, goal=GOALS[seed % 4], hours=4)
    kept: list[PlanSeries] = []
    units = 0
    for s in made.series:
        if units + len(s.units) <= 5:
            kept.append(s)
            units += len(s.units)
    ids = {s.id for s in kept}
    options = tuple(o for o in made.options if o.series in ids and o.left <= 2)[:3]
    return replace(made, nodes=made.nodes[:-1], series=tuple(kept), options=options)


def score(problem: Problem, layout: Layout) -> float:
    """Worked out from the definitions: what emptied nodes and changes bring, less moves and rent."""
    total = sum(
        (-node_worth(n, problem) if n.name in layout.kept else 0.0)
        if n.rented
        else (0.0 if n.name in layout.kept else node_worth(n, problem))
        for n in problem.nodes
    )
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


def every_score(problem: Problem) -> Iterator[float]:
    """The values of all layouts that break no rule."""
    names = [n.name for n in problem.nodes]
    own = [(None, *problem.options_of.get(s.id, ())) for s in problem.series]
    for taken in product(*own):
        chosen = {s.id: o for s, o in zip(problem.series, taken, strict=True) if o is not None}
        for places in _places(problem, chosen, names):
            busy = {places[u.id] for s in problem.series for u in s.units if u.id in places} | set(places.values())
            free = [name for name in names if name not in busy]
            for count in range(len(free) + 1):
                for more in combinations(free, count):
                    kept = frozenset({*busy, *more})
                    layout = Layout(chosen, places, kept)
                    if not broken_rules(problem, layout):
                        yield score(problem, layout)


def _places(problem: Problem, chosen: Mapping[str, PlanOption], names: list[str]) -> Iterator[dict[str, str]]:
    choices: list[list[dict[str, str]]] = []
    for s in problem.series:
        o = chosen.get(s.id)
        if s.jobs:
            continue
        if o is None or o.keeps_units:
            left = len(s.units) if o is None else (o.units if o.pool else 0)
            ways = [
                dict(zip((u.id for u in some), where, strict=True))
                for some in combinations(s.units, left)
                for where in product(*([u.node] if u.fixed or len(u.gpus) > 1 else names for u in some))
            ]
        else:
            units = [f"{o.id}#{k}" for k in range(o.units if o.pool else 0)]
            ways = [dict(zip(units, where, strict=True)) for where in product(names, repeat=len(units))]
        choices.append(ways)
    for parts in product(*choices):
        yield {unit: node for part in parts for unit, node in part.items()}
