"""From a problem to a layout: a greedy search, then one CP-SAT model that starts from it and bounds it."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from .problem import Hours, Layout, PlanNode, PlanOption, Problem
from .state import SCALE, UNLIMITED, Kind, Load, State, Worth, apart

SEED, WORKERS = 20, 2
# CP-SAT counts its work in a unit that is the same on every machine: so much in a second of two quiet cores. Without a
# limit of time the clock only ends what takes far longer, so that the answer is the same again.
WORK_PER_SECOND, PATIENCE = 0.4, 5.0
# Seconds of two quiet cores for the search: of up to 10 nodes, and of 100 and more.
SECONDS_LEAST, SECONDS_MOST = 2.0, 20.0


def has_solver() -> bool:
    """Whether OR-tools is installed (the extra `plan`)."""
    try:
        from ortools.sat.python import cp_model  # noqa: F401, PLC0415 - an extra
    except ImportError:
        return False
    return True


def solve(
    problem: Problem,
    seconds: float | None,
    clock: Callable[[], float],
    on_first: Callable[[Layout], None] | None = None,
) -> Layout:
    """The best layout that was found. `seconds`: of the search, at most; None: by the number of nodes. `clock`:
    seconds, for the time it takes. `on_first`: is given the first answer, which keeps every rule but has no bound
    yet; what it raises ends the search. Without OR-tools the first answer is the last."""
    begun, worth = clock(), Worth(problem)

    def layout(solution: State, bound: float) -> Layout:
        # A pool that all work leaves keeps no node for it.
        state = State(problem).set(solution.chosen, solution.at, solution.kept)
        for pool in problem.pools:
            _give_up_empty(state, worth, pool)
        value = worth.of(state) / SCALE
        bound = max(bound / SCALE, value) + 0.0  # not -0.0
        return Layout(dict(state.chosen), dict(state.at), frozenset(state.kept), value, bound, clock() - begun)

    best = greedy(problem, worth)
    first = layout(best, math.inf)
    if on_first is not None:
        on_first(first)
    if not has_solver():
        return first
    share = min(max((len(problem.nodes) - 10) / 90, 0.0), 1.0)
    usual = SECONDS_LEAST + share * (SECONDS_MOST - SECONDS_LEAST)
    layout_state, bound = PlanModel(problem, worth).solved(best, seconds or usual, seconds or usual * PATIENCE)
    if layout_state is None:
        return layout(best, bound)
    settle(layout_state, worth)
    return max(layout(layout_state, bound), layout(best, bound), key=lambda candidate: candidate.value)


def greedy(problem: Problem, worth: Worth) -> State:
    """Options one by one, those that free most GPUs first, then nodes one by one. Options that pay only once nodes are
    emptied are taken in one of two tries."""

    def freed(o: PlanOption) -> float:
        return problem.by_series[o.series].gpu_count - o.left * o.gpus_each

    tries = [State(problem, firm=True), State(problem, firm=True)]
    for state, loss in zip(tries, (0, 2), strict=True):
        for option in sorted(problem.options, key=lambda o: (-freed(o), o.id)):
            mark, before = state.mark, worth.of(state)
            taken = _take(state, option)
            for pool in problem.changes[option.id] if taken else ():
                _give_up_empty(state, worth, pool)
            if not taken or worth.of(state) <= before - loss:
                state.undo(mark)
        settle(state, worth)
    return max(tries, key=worth.of)


def _take(state: State, option: PlanOption) -> bool:
    """Carry an option out, and rent what it needs. False: it cannot be, and what was done of it is to be undone."""
    problem = state.problem
    s, most = problem.by_series[option.series], apart(problem.by_series[option.series], option)
    excluded = any(o.id in option.excludes or option.id in o.excludes for o in state.chosen.values())
    if s.id in state.chosen or excluded or not state.may_touch({s.id}):
        return False
    state.choose(option)
    for _ in range(0 if s.jobs else len(s.units) - (option.left if option.keeps_units else 0)):
        # From nodes with too many of its replicas first, then from those that are nearly empty.
        rooms = {u.id: state.rooms[state.at[u.id]] for u in s.units if u.id in state.at}
        state.place(min(rooms, key=lambda u: (rooms[u].crowd[s.id] <= most, rooms[u].gpus, u)), None)
    if state.crowded(s, option):
        return False
    spare = [n.name for n in problem.pools.get(option.pool or "", ()) if n.rented and n.name not in state.kept]
    for k in range(option.started):
        while (node := _fullest(state, state.new[option.id], option)) is None and spare:
            state.keep(spare.pop(0), True)
        if node is None:
            return False
        state.place(option.unit(k), node)
    while option.pool is not None and not state.sound(option.pool) and spare:
        state.keep(spare.pop(0), True)
    return all(state.sound(pool) for pool in problem.changes[option.id])


def _fullest(state: State, kind: Kind, option: PlanOption | None, avoid: str = "") -> str | None:
    names = [n.name for n in state.problem.pools[kind.pool] if n.name != avoid]
    fitting = [name for name in names if state.fits(kind, name, state.most(kind, name, option))]
    return min(fitting, key=lambda name: (not state.rooms[name].gpus, state.rooms[name].free, name), default=None)


def settle(state: State, worth: Worth) -> None:
    """Give up nodes that are kept for nothing, and empty those whose work fits elsewhere, the easiest first."""
    for pool in state.problem.pools:
        _give_up_empty(state, worth, pool)

    def rank(name: str) -> tuple[float, str]:
        room = state.rooms[name]
        return (len(room.units) + 0.2 * room.gpus) / max(worth.node[name], 1), name

    for name in sorted(state.kept, key=rank):
        mark, before = state.mark, worth.of(state)
        if not _empty(state, name) or worth.of(state) <= before:
            state.undo(mark)


def _give_up_empty(state: State, worth: Worth, pool: str) -> None:
    for node in sorted(state.problem.pools[pool], key=lambda n: (-worth.node[n.name], n.name)):
        state.give_up(node.name)


def _empty(state: State, name: str) -> bool:
    room, kind = state.rooms[name], state.kind
    movable = room.units and all(kind[unit].movable for unit in room.units)
    if not movable or not state.may_touch({kind[unit].series.id for unit in room.units}):
        return False
    for unit in sorted(room.units, key=lambda u: (-kind[u].gpus, u)):
        target = _fullest(state, kind[unit], state.chosen.get(kind[unit].series.id), avoid=name)
        if target is None:
            return False
        state.place(unit, target)
    return state.give_up(name)


Var = Any  # a variable of CP-SAT
Expr = Any  # a linear expression of CP-SAT, or a number


class PlanModel:
    """The rules of `problem` as rows of CP-SAT. `stay`: (kind, home) -> replicas that stay there; `come`: (kind, node)
    -> replicas that move or start there."""

    def __init__(self, problem: Problem, worth: Worth) -> None:
        from ortools.sat.python import cp_model  # noqa: PLC0415 - an extra

        self.problem, self.worth, self.today = problem, worth, State(problem, firm=True)
        self.cp = cp_model.CpModel()
        self.keep = {n.name: self.cp.new_bool_var(f"keep:{n.name}") for n in problem.nodes}
        self.take = {o.id: self.cp.new_bool_var(f"take:{o.id}") for o in problem.options}
        self.stay: dict[tuple[Kind, str], Var] = {}
        self.come: dict[tuple[Kind, str], Var] = {}
        self._used: dict[str, Expr] = {}
        self._choices()
        self._replicas()
        self._nodes()
        for pool in problem.pools:
            self._pool(pool)
        self._limit_and_aim()

    def _unchanged(self, series: str) -> Expr:
        return 1 - sum(self.take[o.id] for o in self.problem.options_of[series])

    def _choices(self) -> None:
        p = self.problem
        for option in p.options_of.values():
            self.cp.add_at_most_one(self.take[o.id] for o in option)
        for o in p.options:
            for other in o.excludes & self.take.keys():
                self.cp.add_at_most_one([self.take[o.id], self.take[other]])
        for nodes in p.pools.values():
            rented = [n.name for n in nodes if n.rented]
            for first, then in itertools.pairwise(rented):
                # They are alike: the first ones are rented.
                self.cp.add_implication(self.keep[then], self.keep[first])
            for n in nodes:
                if n.held is not None or p.fixed_gpus.get(n.name, 0):
                    self.cp.add(self.keep[n.name] == 1)

    def _replicas(self) -> None:
        p, cp = self.problem, self.cp
        present: dict[str, list[Expr]] = defaultdict(list)
        for i, kind in enumerate((*self.today.kinds, *self.today.new.values())):
            coming: list[Expr] = []
            for node in p.pools.get(kind.pool, ()):
                if node.name not in kind.homes and self.today.may(kind, node):
                    most = min(kind.count, node.gpus // max(kind.gpus, 1))
                    coming.append(var := cp.new_int_var(0, most, f"come:{i}:{node.name}"))
                    self.come[kind, node.name] = var
            if kind.option is not None:
                cp.add(sum(coming) == self.take[kind.option.id] * kind.count)
                continue
            for home, units in kind.homes.items():
                self.stay[kind, home] = cp.new_int_var(0, len(units), f"stay:{i}:{home}")
            here = sum(self.stay[kind, home] for home in kind.homes) + sum(coming)
            options, unchanged = p.options_of[kind.series.id], self._unchanged(kind.series.id)
            left = unchanged + sum(self.take[o.id] for o in options if o.keeps_units and o.left)
            cp.add(here <= kind.count * left)
            cp.add(here >= kind.count * unchanged)
            present[kind.series.id].append(here)
        for series, here in present.items():
            keeping = sum(self.take[o.id] * o.left for o in p.options_of[series] if o.keeps_units)
            cp.add(sum(here) == len(p.by_series[series].units) * self._unchanged(series) + keeping)

    def _nodes(self) -> None:
        on: dict[str, list[tuple[Var, int, Kind, Load]]] = defaultdict(list)
        for (kind, at), var in (*self.stay.items(), *self.come.items()):
            node = self.problem.by_node[at]
            most = len(kind.homes.get(at, ())) or min(kind.count, node.gpus // max(kind.gpus, 1))
            for name, load in kind.loads(node).items():
                on[name].append((var, most, kind, load))
        for n in self.problem.nodes:
            here, room, keep = on[n.name], self.today.rooms[n.name], self.keep[n.name]
            # What is beyond a limit today takes nothing, so that today's load is its limit.
            limits = [max(*pair) for pair in zip(room.limits, room.used, strict=True)]
            fixed = self.problem.fixed_gpus.get(n.name, 0)
            self._used[n.name] = sum(var * load[0] for var, _, _, load in here) + fixed
            self.cp.add(self._used[n.name] <= keep * limits[0])
            for k in (1, 2, 3):
                if limits[k] < UNLIMITED and sum(most * load[k] for _, most, _, load in here) > limits[k]:
                    self.cp.add(sum(var * load[k] for var, _, _, load in here) <= keep * limits[k])
            if self.problem.tenants_apart and n.tenants is None and not room.full:
                tenants = dict.fromkeys(kind.series.tenant for _, _, kind, _ in here)
                flags = {tenant: self.cp.new_bool_var(f"tenant:{n.name}:{tenant}") for tenant in tenants}
                for var, most, kind, _ in here:
                    self.cp.add(var <= most * flags[kind.series.tenant])
                self.cp.add_at_most_one(flags.values())
            self._apart(n, [(var, most, kind) for var, most, kind, _ in here])

    def _apart(self, n: PlanNode, here: list[tuple[Var, int, Kind]]) -> None:
        crowd: dict[str, list[tuple[Var, int, Kind]]] = defaultdict(list)
        for entry in here:
            crowd[entry[2].series.id].append(entry)
        for series, members in crowd.items():
            s, options = self.problem.by_series[series], self.problem.options_of[series]
            stay = self.today.most(members[0][2], n.name, None)
            if sum(most for _, most, _ in members) > min([stay, *(apart(s, o) for o in options)]):
                limit = self._unchanged(series) * stay + sum(self.take[o.id] * apart(s, o) for o in options)
                self.cp.add(sum(var for var, _, _ in members) <= limit)

    def _pool(self, pool: str) -> None:
        """What a pool keeps carries its work in every hour, with whole nodes for jobs and a reserve that is of use."""
        p, cp = self.problem, self.cp
        nodes, (gpus, wholes) = p.pools[pool], p.needs[pool]
        # Of a node beyond its limit today nothing is free.
        limit = {n.name: max(n.gpus, self.today.rooms[n.name].gpus) for n in nodes}
        reserve = p.reserve.get(pool, 0)
        # 1 where there is work: today, or by an option.
        active: Expr = 1 if gpus.any() else cp.new_bool_var(f"active:{pool}")
        for o in p.options:
            if o.pool == pool and reserve and not gpus.any():
                cp.add_implication(self.take[o.id], active)
        changes = [(self.take[o.id], p.changes[o.id][pool]) for o in p.options if pool in p.changes[o.id]]
        room = sum(self.keep[n.name] * n.gpus for n in nodes) - reserve * active
        for asked in self._asked(gpus, [(take, change[0]) for take, change in changes]):
            cp.add(asked <= room)
        if wholes.any() or any(change[1].any() for _, change in changes):
            empty = {n.name: cp.new_bool_var(f"empty:{n.name}") for n in nodes if n.held is None}
            for name, flag in empty.items():
                cp.add(self._used[name] + flag * limit[name] <= self.keep[name] * limit[name])
            for asked in self._asked(wholes, [(take, change[1]) for take, change in changes]):
                cp.add(asked <= sum(empty.values()))
        if reserve and (spare := self.today.spare[pool]):
            flags: list[Var] = []
            for n in nodes:
                if n.held is None and n.gpus >= spare:
                    flags.append(flag := cp.new_bool_var(f"spare:{n.name}"))
                    cap = limit[n.name]
                    cp.add(self._used[n.name] + flag * (spare + cap - n.gpus) <= self.keep[n.name] * cap)
            cp.add(sum(flags) >= active)

    def _asked(self, base: Hours, changes: list[tuple[Var, Hours]]) -> list[Expr]:
        """What is asked for in each hour, without hours that ask for nothing that another does not ask for as well."""
        rows = np.unique(np.stack([base, *(change for _, change in changes)], axis=1), axis=0)[::-1]
        kept: list[np.ndarray] = []
        for row in rows:
            if not any(np.all(other >= row) for other in kept):
                kept.append(row)
        takes = [take for take, _ in changes]
        return [int(row[0]) + sum(take * int(k) for take, k in zip(takes, row[1:], strict=True) if k) for row in kept]

    def _limit_and_aim(self) -> None:
        p, worth = self.problem, self.worth
        moved = [(kind, var) for (kind, _), var in self.come.items() if kind.option is None]
        if p.max_moves is not None:
            touched = {s.id: self.cp.new_bool_var(f"touched:{s.id}") for s in p.series}
            for kind, var in moved:
                self.cp.add(var <= kind.count * touched[kind.series.id])
            for o in p.options:
                self.cp.add_implication(self.take[o.id], touched[o.series])
            self.cp.add(sum(touched.values()) <= p.max_moves)
        terms: list[Expr] = [
            self.keep[n.name] * -worth.node[n.name] if n.rented else (1 - self.keep[n.name]) * worth.node[n.name]
            for n in p.nodes
        ]
        terms += [self.take[o.id] * worth.option[o.id] for o in p.options]
        terms += [var * -worth.move(kind.gpus) for kind, var in moved]
        self.cp.maximize(sum(terms))

    def solved(self, hint: State, seconds: float, patience: float) -> tuple[State | None, float]:
        """The best state for the work of `seconds`, the same whenever it is asked (unless the machine is so slow that
        `patience` ends), and a bound of its worth in hundredths; infinite where there is none."""
        from ortools.sat.python import cp_model  # noqa: PLC0415 - an extra

        taken = {o.id for o in hint.chosen.values()}
        for key, var in self.keep.items():
            self.cp.add_hint(var, key in hint.kept)
        for key, var in self.take.items():
            self.cp.add_hint(var, key in taken)
        # Kinds are of another state: they are found again by their unit.
        on = Counter((self.today.kind[unit], node) for unit, node in hint.at.items())
        for key, var in (*self.stay.items(), *self.come.items()):
            self.cp.add_hint(var, min(on[key], len(key[0].homes.get(key[1], ())) or on[key]))
        solver = cp_model.CpSolver()
        solver.parameters.max_deterministic_time = seconds * WORK_PER_SECOND
        solver.parameters.max_time_in_seconds = patience
        solver.parameters.num_workers = WORKERS
        solver.parameters.random_seed = SEED
        # Threads that race give one plan now and another later: in turns they give the same again.
        solver.parameters.interleave_search = True
        solver.parameters.relative_gap_limit = 0.0
        if solver.solve(self.cp) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, math.inf
        return self._state(solver.value), solver.best_objective_bound

    def _state(self, value: Callable[[Any], int]) -> State:
        """The layout that the solver found. Replicas of a kind are interchangeable: who can stay does."""
        p = self.problem
        chosen = {o.series: o for o in p.options if value(self.take[o.id])}
        arriving: dict[Kind, list[str]] = defaultdict(list)
        for (kind, node), var in self.come.items():
            arriving[kind] += [node] * value(var)
        places: dict[str, str] = {}
        leaving: dict[Kind, list[str]] = defaultdict(list)
        for (kind, home), var in self.stay.items():
            units = kind.homes[home]
            places.update(dict.fromkeys(units[: value(var)], home))
            leaving[kind] += units[value(var) :]
        for kind, nodes in arriving.items():
            units = leaving[kind] if kind.option is None else [kind.option.unit(k) for k in range(kind.count)]
            places.update(zip(units, nodes, strict=False))
        return State(p, firm=True).set(chosen, places, {name for name, var in self.keep.items() if value(var)})
