"""The fast answer: changes taken one by one, then nodes emptied one by one, best fit, the largest replicas first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .draft import Answer, Draft
from .kinds import Kind
from .needs import Needs
from .problem import PlanOption, Problem
from .rooms import Room
from .worth import Worth


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
