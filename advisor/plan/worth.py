"""What an emptied node is worth to each goal, and what moving work costs, in the goal's own unit."""

from __future__ import annotations

from ..core.worth import HOURS_PER_MONTH
from .problem import FOREVER, PlanNode, PlanOption, Problem
from .state import State

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
    if problem.goal == "nodes":
        return 1.0
    if problem.goal == "capacity":
        return node.gpus * ((1.0 + WHOLE_SHARE) if node.rented else WHOLE_SHARE)
    if problem.goal == "energy":
        return (node.idle_watts or 0.0) * HOURS_PER_MONTH / 1000
    if node.rented or node.bound_until is None or node.bound_until <= problem.now:
        return month_usd(node)
    if node.bound_until == FOREVER:
        return 0.0
    # The share of the horizon in which giving the node back is cash.
    waits = (node.bound_until - problem.now) / MONTH_SECONDS
    return month_usd(node) * max(1.0 - waits / problem.horizon_months, 0.0)


def option_worth(option: PlanOption, problem: Problem) -> float:
    """What the change brings by itself, beside the nodes that fall free."""
    series = problem.by_series[option.series]
    if problem.goal == "energy":
        return option.energy_kwh_per_month
    if problem.goal != "capacity" or series.jobs:
        return 0.0
    if option.keeps_units:
        return series.gpu_count * (1 - option.left / max(len(series.units), 1))
    return float(series.gpu_count - option.left * option.gpus_each)


def move_cost(problem: Problem, gpus: int) -> float:
    """What relocating one replica of so many GPUs has to bring."""
    if problem.goal == "cash":
        return problem.move_usd
    if problem.goal == "nodes":
        return MOVE_SHARE
    return MOVE_SHARE * gpus if problem.goal == "capacity" else 1.0


class Worth:
    """Everything that the goal counts, in hundredths of its unit: what solver and search add up alike."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # Of nodes alike those without jobs are given back first, and none is rented in the place of another.
        self.node = {n.name: round(node_worth(n, problem) * SCALE) - n.drains + n.rented for n in problem.nodes}
        self.option: dict[str, int] = {}
        for o in problem.options:
            series = problem.by_series[o.series]
            # Each restart is a move, too (jobs that go to other nodes count as one); and of two answers that are worth
            # as much, the one with fewer changes.
            restarts = o.started or int(series.jobs and o.pool not in (None, series.pool))
            self.option[o.id] = round(option_worth(o, problem) * SCALE) - restarts * self.move(o.gpus_each) - 1
        self._homes = {u.id: (u.node, self.move(u.gpu_count)) for s in problem.series for u in s.units if u.movable}

    def move(self, gpus: int) -> int:
        return round(move_cost(self.problem, max(gpus, 1)) * SCALE)

    def of(self, state: State) -> int:
        """The value of an answer net of what moving costs."""
        kept = state.kept
        total = sum(
            self.node[n.name] * (-(n.name in kept) if n.rented else n.name not in kept) for n in self.problem.nodes
        )
        total += sum(self.option[o.id] for o in state.chosen.values())
        moved = (self._homes[unit][1] for unit, node in state.at.items() if self._homes.get(unit, (node,))[0] != node)
        return total - sum(moved)
