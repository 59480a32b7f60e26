"""From a problem to a layout: a fast first answer, a bound, then the solver until it is proven or time is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .carriers import Carrier, by_kind, by_size
from .draft import Answer, Draft
from .found import answer_of, fixed_to, hint_of, holds, restricted, slotted, tidied
from .kinds import Kind
from .model import Basis, PlanModel
from .needs import Needs
from .problem import Layout, PlanOption, Problem
from .rooms import Room
from .solvers import PATIENCE, Solution, by_cp_sat, by_highs
from .worth import SCALE, Worth


@dataclass(frozen=True)
class Hint:
    """What to try: `options` in this order, `drop`: nodes to be emptied, in this order; None: any."""

    options: Sequence[PlanOption]
    drop: Sequence[str] | None = None


def by_gain(problem: Problem) -> list[PlanOption]:
    """Of each series the option that leaves most GPUs free, those that leave most of all first."""

    def freed(o: PlanOption) -> float:
        s = problem.by_series[o.series]
        return float(s.gpu_count - o.left * o.gpus_each_whole)

    best = {
        series: max(own, key=lambda o: (freed(o), o.keeps_units, o.id)) for series, own in problem.options_of.items()
    }
    # What others need goes first.
    return sorted(best.values(), key=lambda o: (len(o.needs & problem.by_option.keys()), -freed(o), o.id))


def packed(problem: Problem, needs: Needs, worth: Worth, hint: Hint) -> Answer:
    draft = Draft(problem, needs)
    _rent(draft)
    leave = frozenset(hint.drop or ())
    for option in hint.options:
        draft.take(option, leave)
    order = list(hint.drop) if hint.drop is not None else []
    order += sorted((n for n in draft.kept if n not in leave), key=lambda name: _rank(draft, worth, name))
    for i, name in enumerate(order):
        avoid = frozenset(order[i + 1 : len(leave)]) if i < len(leave) else frozenset()
        _emptied(draft, worth, name, avoid)
    _unrented(draft)
    return draft.answer()


def _rank(draft: Draft, worth: Worth, name: str) -> tuple[float, str]:
    room = draft.rooms.rooms[name]
    return (len(room.pieces) + 0.2 * room.gpus) / max(worth.node[name], 1), name


def _rent(draft: Draft) -> None:
    """Rent what is missing, as far as it can be rented."""
    for pool, nodes in draft.problem.pools.items():
        for node in nodes:
            lack = draft.short(pool)
            if node.rented and lack:
                draft.kept.add(node.name)
                if draft.short(pool) >= lack:
                    draft.kept.discard(node.name)


def _unrented(draft: Draft) -> None:
    for node in draft.problem.nodes:
        if node.rented and node.name in draft.kept:
            lack = draft.short(node.pool)
            if draft.give_up(node.name) and draft.short(node.pool) > lack:
                draft.kept.add(node.name)


def _emptied(draft: Draft, worth: Worth, name: str, avoid: frozenset[str]) -> bool:
    """Move everything off a node and give it up; False, and all is as it was, where that cannot be or costs more than
    it brings."""
    here = draft.rooms.rooms[name]
    lack = draft.short(here.node.pool)
    pieces = sorted(here.pieces.values(), key=lambda p: (-p.what.size, p.unit))
    cost = sum(worth.move(p.what.size) for p in pieces if p.home == name)
    if (
        here.node.held is not None
        or name not in draft.kept
        or (here.gpus and not here.pieces)
        or cost >= worth.node[name] + (0 if pieces else 1)
        or not all(isinstance(p.what, Kind) for p in pieces)
        or not draft.may_touch([p.series.id for p in pieces])
        or draft.room(here.node.pool) - here.node.gpus < int(draft.asked[here.node.pool].max(initial=0))
    ):
        return False
    rooms = [r for r in draft.rooms.by_pool[here.node.pool] if r is not here and r.node.name not in avoid]
    done: list[str] = []
    for piece in pieces:
        to = _target(draft, piece.unit, rooms)
        if to is None:
            break
        draft.relocate(piece.unit, to)
        done.append(piece.unit)
    if len(done) == len(pieces) and draft.give_up(name):
        if draft.short(here.node.pool) <= lack:
            return True
        draft.kept.add(name)
    for unit in reversed(done):
        draft.relocate(unit, name)
    return False


def _target(draft: Draft, unit: str, rooms: Sequence[Room]) -> str | None:
    """Nodes where something runs first, so that the empty ones can be given up."""
    piece = draft.rooms.pieces[unit]
    option = draft.chosen.get(piece.series.id)
    used = [r for r in rooms if r.pieces]
    return draft.best(piece, used, option) or draft.best(piece, [r for r in rooms if not r.pieces], option)


# Hours whose demand the model knows from the start, a pool; others follow where an answer breaks them.
HOURS_FIRST, ROUNDS = 6, 6
# Pairs of kind and node that the model takes: more make it slower than what it finds is worth.
PAIRS_MAX = 30_000
# Of the time that is left what the solver gets at once: the rest is for hours that come to be known.
FIRST_SHARE, LEAST_SECONDS = 0.75, 0.05
# What realizing the bound's answer gets, of the time for the layout and beside it.
REALIZED_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class SolverBudget:
    """Seconds of two quiet cores for the bound and for the layout; `workers`: threads."""

    bound_seconds: float = 10.0
    layout_seconds: float = 11.0
    workers: int = 2
    # Within this share of the bound there is nothing more to be looked for.
    enough: float = 0.002

    @property
    def longest_seconds(self) -> float:
        """Wall seconds that a search with one round of the bound takes where the machine is slow."""
        return self.bound_seconds + PATIENCE * (1 + REALIZED_SHARE) * self.layout_seconds

    def scaled(self, share: float) -> SolverBudget:
        return replace(self, bound_seconds=self.bound_seconds * share, layout_seconds=self.layout_seconds * share)

    @classmethod
    def within(cls, seconds: float) -> SolverBudget:
        """For a search that ends in so many wall seconds."""
        return cls().scaled(seconds / cls().longest_seconds)

    @classmethod
    def of(cls, problem: Problem) -> SolverBudget:
        """On two quiet cores for 20 nodes some 2 s at most in all, for 200 under 30 s."""
        return cls().scaled(min(max((len(problem.nodes) - 10) / 90, 0.08), 1.0))


class Search:
    """One problem and the best answer to it so far. `bound`: of the goal in hundredths, net of what is missing."""

    def __init__(self, problem: Problem, budget: SolverBudget, wanted: Callable[[], None] = lambda: None) -> None:
        self.problem, self.budget, self.wanted = problem, budget, wanted
        self.needs, self.worth = Needs(problem), Worth(problem)
        draft = Draft(problem, self.needs)
        self.rooms, self.today = draft.rooms, draft.today
        self.best = draft.answer()
        self.bound = math.inf
        self.hours = {pool: self._first_hours(pool) for pool in problem.pools}

    def score(self, answer: Answer) -> int:
        value = self.worth.of(answer.chosen, answer.places, answer.kept)
        return value - self.worth.lack * sum(answer.short.values())

    def offer(self, answer: Answer) -> None:
        if self.score(answer) > self.score(self.best):
            self.best = answer

    def done(self, enough: float) -> bool:
        return self.score(self.best) >= self.bound - max(enough * abs(self._net(self.bound)), 0.5)

    def _net(self, bound: float) -> float:
        """Of the goal alone."""
        return bound + self.worth.lack * sum(self.best.short.values())

    def layout(self, seconds: float) -> Layout:
        best = self.best
        value = self.worth.of(best.chosen, best.places, best.kept)
        bound = max(self._net(self.bound), value)
        return Layout(
            best.chosen, best.places, best.kept, best.short, value / SCALE, bound / SCALE, seconds,
            proven=value >= bound - 0.5,
        )  # fmt: skip

    def _first_hours(self, pool: str) -> set[int]:
        """The hours in which the pool's work, as it is, asks for most."""
        asked, nodes = self.needs.base[pool], self.needs.whole[pool]
        picked = set(np.argsort(-asked, kind="stable")[:HOURS_FIRST].tolist())
        return picked | set(np.argsort(-nodes, kind="stable")[:2].tolist())

    def quick(self) -> None:
        """Changes as they are, then none of them: the better of both."""
        for options in (by_gain(self.problem), ()):
            self.offer(packed(self.problem, self.needs, self.worth, Hint(options)))
        asked = self.needs.asked(self.best.chosen.values())
        for pool, known in self.hours.items():
            known.update(np.argsort(-asked[pool], kind="stable")[:HOURS_FIRST].tolist())

    def model(self, carriers: Sequence[Carrier], *, whole: bool) -> PlanModel:
        made = PlanModel(Basis(self.problem, self.rooms, self.needs, self.worth, self.today), carriers, whole=whole)
        made.hours(self.hours)
        return made

    def _near(self) -> float:
        """How far from a bound is near enough for a solver, in hundredths. It is not a share of the solver's objective:
        that counts what is missing, too, and would hide the rest."""
        aim = abs(self._net(self.bound)) if math.isfinite(self.bound) else sum(self.worth.node.values())
        return max(self.budget.enough / 2 * aim, 0.5)

    def places_of(self, model: PlanModel, seconds: float) -> Solution:
        self.wanted()
        return by_cp_sat(model.cp, seconds, self._near(), self.budget.workers)

    def bound_of(self, model: PlanModel, seconds: float) -> Solution:
        self.wanted()
        found = by_highs(model.cp, seconds, self._near())
        if found.values or math.isfinite(found.bound):
            return found
        hint_of(model, self.best)
        return self.places_of(model, seconds)

    def bounded(self, seconds: float) -> None:
        """The bound of what any layout can reach, and what can be made of the answer that reaches it."""
        left = seconds
        for _ in range(ROUNDS):
            model = self.model(by_size(self.rooms), whole=False)
            found = self.bound_of(model, left * FIRST_SHARE)
            left -= found.seconds
            self.bound = min(self.bound, found.bound)
            if not found.values:
                return
            chosen = [o for o in self.problem.options if found.value(model.take[o.id])]
            drop = [n.name for n in self.problem.nodes if not n.rented and not found.value(model.keep[n.name])]
            self._packed(chosen, drop)
            self._realized(model, found)
            if not self._learned(model, found) or left < LEAST_SECONDS:
                return

    def _packed(self, chosen: Sequence[PlanOption], drop: Sequence[str]) -> None:
        load = {name: len(room.pieces) for name, room in self.rooms.rooms.items()}
        order = sorted(drop, key=lambda name: (load[name], -self.worth.node[name], name))
        ranked = sorted(chosen, key=lambda o: (len(o.needs), o.id))
        self.offer(packed(self.problem, self.needs, self.worth, Hint(ranked, order)))
        self.offer(packed(self.problem, self.needs, self.worth, Hint(ranked)))

    def _realized(self, relaxed: PlanModel, found: Solution) -> None:
        """Places for all that the relaxed answer moves and starts, if there are any."""
        if self.score(self.best) >= found.objective - 0.5:
            return
        made = self.model(slotted(by_kind(self.rooms), relaxed, found, 6), whole=True)
        fixed_to(made, relaxed, found)
        places = self.places_of(made, self.budget.layout_seconds * REALIZED_SHARE)
        if places.values:
            self._offer(made, places)

    def _offer(self, model: PlanModel, found: Solution) -> Answer | None:
        """The answer, if it keeps what the model may not know."""
        answer = answer_of(model, found, self.needs)
        if not holds(self.problem, self.needs, answer):
            return None
        self.offer(tidied(self.problem, self.needs, self.worth, answer))
        return answer

    def _learned(self, model: PlanModel, found: Solution) -> bool:
        """Whether there are worse hours for what was found than those that the model knew: it knows them now."""
        chosen = [o for o in self.problem.options if found.value(model.take[o.id])]
        asked, wholes = self.needs.asked(chosen), self.needs.nodes(chosen)
        fresh = False
        for pool, nodes in self.problem.pools.items():
            room = sum(n.gpus for n in nodes if found.value(model.keep[n.name]))
            room -= sum(found.value(model.rows.divided[n.name]) for n in nodes if n.name in model.rows.divided)
            known = self.hours[pool]
            worst = np.argsort(-asked[pool], kind="stable")[:HOURS_FIRST].tolist()
            if asked[pool][worst[0]] > max(room, *(asked[pool][t] for t in known)):
                fresh = True
                known.update(worst)
            busiest = int(np.argmax(wholes[pool]))
            if wholes[pool][busiest] > max(wholes[pool][t] for t in known):
                fresh = True
                known.add(busiest)
        return fresh

    def placed(self, seconds: float) -> None:
        """Places for all: the best answer that the solver finds from the one there is."""
        carriers = by_kind(self.rooms)
        fewer = restricted(carriers, self.rooms, self.best, PAIRS_MAX)
        left = seconds
        for _ in range(ROUNDS):
            model = self.model(fewer, whole=True)
            hint_of(model, self.best)
            found = self.places_of(model, left * FIRST_SHARE)
            left -= found.seconds
            if fewer is carriers:
                self.bound = min(self.bound, found.bound)
            if not found.values:
                return
            self._offer(model, found)
            if not self._learned(model, found) or left < LEAST_SECONDS:
                return


def solve(
    problem: Problem,
    budget: SolverBudget,
    clock: Callable[[], float],
    on_first: Callable[[Layout], None] | None = None,
    wanted: Callable[[], None] = lambda: None,
) -> Layout:
    """The best layout that was found. `clock`: seconds, to tell how long it took. `on_first`: is given the first
    answer, which keeps every rule but has no bound yet (infinite). `wanted`: is called before each run of a solver;
    what it raises ends the search."""
    begun = clock()
    search = Search(problem, budget, wanted)
    search.quick()
    if on_first is not None:
        on_first(search.layout(clock() - begun))
    search.bounded(budget.bound_seconds)
    if not search.done(budget.enough):
        search.placed(budget.layout_seconds)
    return search.layout(clock() - begun)
