"""What an emptied node is worth to each goal, and what moving work costs, in the goal's own unit."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property

from .problem import FOREVER, PlanNode, PlanOption, PlanSeries, Problem, Slices

HOURS_PER_MONTH = 730.0
MONTH_SECONDS = HOURS_PER_MONTH * 3600
# Share of a node (or of its GPUs, or its energy) that relocating one replica must bring: less is not worth a restart
# (assumed; for cash it is `Problem.move_usd`).
MOVE_SHARE = 0.02
# A whole node can be given away or take a large job: among layouts with as many free GPUs it is the better one.
WHOLE_SHARE = 0.1
UNITS = {"cash": "USD/month", "nodes": "nodes", "capacity": "GPUs", "energy": "kWh/month"}
# The solver counts in integers: hundredths of the goal's unit.
SCALE = 100
# What any node is worth at least, so that an empty one comes back though it brings no cash, and one without jobs first.
LEAST = 2 / SCALE


def whole(value: float) -> int:
    return round(value * SCALE)


def cash_share(node: PlanNode, problem: Problem) -> float:
    """Share of the horizon in which giving the node back is cash: 0 where its commitment has no end."""
    if node.bound_until is None or node.bound_until <= problem.now:
        return 1.0
    if node.bound_until == FOREVER:
        return 0.0
    waits = (node.bound_until - problem.now) / MONTH_SECONDS
    return max(1.0 - waits / problem.horizon_months, 0.0)


def month_usd(node: PlanNode) -> float:
    return (node.usd_per_hour or 0.0) * HOURS_PER_MONTH


def node_worth(node: PlanNode, problem: Problem) -> float:
    """What the goal gains where the node is not there any more; of a rented one, what it loses where it is there. A
    node that is missing outweighs whatever else there is: its work has to find another place, if there is one."""
    if node.extra == "missing":
        return 10 * max((_worth(n, problem) for n in problem.nodes), default=0.0) + 10.0
    worth = _worth(node, problem) if node.rented else max(_worth(node, problem), LEAST)
    if node.extra is not None:
        # None of today's is given back because one that is not there takes its place, whatever has to move for that.
        worth += node.gpus * move_cost(problem, 1) + 1 / SCALE
    return worth


def _worth(node: PlanNode, problem: Problem) -> float:
    if problem.goal == "cash":
        return month_usd(node) * (1.0 if node.rented else cash_share(node, problem))
    if problem.goal == "nodes":
        return 1.0
    if problem.goal == "capacity":
        return node.gpus * ((1.0 + WHOLE_SHARE) if node.rented else WHOLE_SHARE)
    watts = node.idle_watts or 0.0
    return watts * HOURS_PER_MONTH / 1000


def _held(gpus: int, mig: Slices | None) -> float:
    """GPUs; of an instance the part that nobody else can have."""
    return float(gpus) if mig is None else max(mig[0] / 7, mig[1] / 8)


def _series_gpus(series: PlanSeries) -> float:
    return sum(_held(u.gpu_count, u.mig) for u in series.units)


def option_worth(option: PlanOption, problem: Problem) -> float:
    """What the change brings by itself, beside the nodes that fall free."""
    series = problem.by_series[option.series]
    if problem.goal == "capacity":
        if series.jobs:
            return 0.0
        now = _series_gpus(series)
        if option.keeps_units:
            return now * (1 - option.left / max(len(series.units), 1))
        return now - option.left * _held(option.gpus_each_whole, option.mig)
    return option.energy_kwh_per_month if problem.goal == "energy" else 0.0


def restarts(option: PlanOption, problem: Problem) -> int:
    """Replicas that start anew; jobs that go to other nodes count as one."""
    series = problem.by_series[option.series]
    return option.started or int(series.jobs and option.pool not in (None, series.pool))


def move_cost(problem: Problem, gpus: int) -> float:
    """What relocating one replica of so many GPUs has to bring."""
    if problem.goal == "cash":
        return problem.move_usd
    if problem.goal == "nodes":
        return MOVE_SHARE
    return MOVE_SHARE * gpus if problem.goal == "capacity" else 1.0


class Worth:
    """Everything that the goal counts, in hundredths of its unit: what solver and packing add up alike."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # Of nodes alike those without jobs are given back first, and none is rented in the place of another.
        self.node = {n.name: whole(node_worth(n, problem)) - n.drains + n.rented for n in problem.nodes}
        # Each restart is a move, too; and of two answers that are worth as much, the one with fewer changes.
        self.option = {
            o.id: whole(option_worth(o, problem)) - restarts(o, problem) * self.move(o.gpus_each) - 1
            for o in problem.options
        }

    def move(self, gpus: int) -> int:
        return whole(move_cost(self.problem, max(gpus, 1)))

    @cached_property
    def lack(self) -> int:
        """What a missing GPU costs: more than any node or change brings, so that as little as can be is missing."""
        most = max([abs(value) for value in (*self.node.values(), *self.option.values())], default=0)
        return 2 * most + 10 * SCALE

    @cached_property
    def homes(self) -> Mapping[str, tuple[str, int]]:
        return {u.id: (u.node, self.move(u.gpu_count)) for s in self.problem.series for u in s.units if u.movable}

    def of(self, chosen: Mapping[str, PlanOption], places: Mapping[str, str], kept: Set[str]) -> int:
        """The value of an answer net of what moving costs, without what is missing."""
        total = sum(
            (-worth if n.name in kept else 0) if n.rented else (0 if n.name in kept else worth)
            for n, worth in ((n, self.node[n.name]) for n in self.problem.nodes)
        )
        total += sum(self.option[o.id] for o in chosen.values())
        for unit, node in places.items():
            home = self.homes.get(unit)
            if home is not None and home[0] != node:
                total -= home[1]
        return total
