"""Between the plan's model and an answer: what the solver found, by name; hints; fewer nodes to choose from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from .carriers import Carrier
from .draft import Answer, Draft, new_unit
from .kinds import Kind
from .model import PlanModel
from .needs import Needs
from .problem import PlanNode, Problem
from .rooms import Piece, Rooms
from .solvers import Solution
from .worth import Worth


def answer_of(model: PlanModel, found: Solution, needs: Needs) -> Answer:
    """The layout that a whole model stands for. Replicas of a kind are interchangeable: who can stay does."""
    problem, own = model.problem, model.vars
    chosen = {o.series: o for o in problem.options if found.value(model.take[o.id])}
    kept = frozenset(n.name for n in problem.nodes if found.value(model.keep[n.name]))
    places: dict[str, str] = {}
    arrived: dict[Kind, Counter[str]] = {}
    for carrier, there in own.arrive.items():
        arrived[carrier.kinds[0]] = Counter({node: count for node, var in there.items() if (count := found.value(var))})
    for kind, rest in own.rest.items():
        left: list[str] = []
        coming = arrived.get(kind, Counter())
        for node, units in kind.homes.items():
            stays = found.value(rest[node])
            more = min(coming[node], len(units) - stays)
            coming[node] -= more
            places.update(dict.fromkeys(units[: stays + more], node))
            left += units[stays + more :]
        for node in sorted(coming.elements()):
            places[left.pop()] = node
    for anchor, var in own.stays.items():
        places.update(dict.fromkeys(anchor.units[: found.value(var)], next(iter(anchor.parts))))
    for kind, coming in arrived.items():
        if kind.option is not None:
            for k, node in enumerate(sorted(coming.elements())):
                places[new_unit(kind.option, k)] = node
    answer = Answer(chosen, places, kept, {})
    return replace(answer, short=short_of(rebuilt(problem, needs, answer)))


def rebuilt(problem: Problem, needs: Needs, answer: Answer) -> Draft:
    """The answer as a draft, whether or not it keeps the rules."""
    draft = Draft(problem, needs)
    rooms = draft.rooms
    for unit in [unit for unit in rooms.at if unit not in answer.places]:
        rooms.remove(unit)
    for unit, node in answer.places.items():
        if unit in rooms.at:
            if rooms.at[unit] != node:
                piece = rooms.pieces[unit]
                rooms.remove(unit)
                rooms.put(piece, node)
                draft.moved[piece.series.id] += 1
        else:
            option = problem.by_option[unit.rpartition("#")[0]]
            rooms.put(Piece(unit, rooms.new[option.id], None), node)
    draft.chosen = dict(answer.chosen)
    draft.kept = set(answer.kept)
    draft.asked, draft.whole = needs.asked(answer.chosen.values()), needs.nodes(answer.chosen.values())
    return draft


def tidied(problem: Problem, needs: Needs, worth: Worth, answer: Answer) -> Answer:
    """The answer without what a solver that is near enough may leave: nodes of the fleet that are kept for nothing, or
    given up while one alike is rented."""
    draft = rebuilt(problem, needs, answer)
    short = short_of(draft)
    for node in problem.nodes:
        if node.rented and node.name in draft.kept:
            _at_home(draft, worth, node)
    own = [n for n in problem.nodes if not n.rented]
    for node in sorted(own, key=lambda n: (-worth.node[n.name], n.name)):
        if draft.give_up(node.name) and draft.short(node.pool) > short.get(node.pool, 0):
            draft.kept.add(node.name)
    return replace(answer, places=dict(draft.rooms.at), kept=frozenset(draft.kept), short=short_of(draft))


def _at_home(draft: Draft, worth: Worth, rented: PlanNode) -> None:
    """Keep a node of the fleet in the place of a rented one, if one that is given up for no more takes what is there:
    that which brings least, so one with jobs."""
    pieces, lack = list(draft.rooms.rooms[rented.name].pieces.values()), draft.short(rented.pool)
    gone = [
        n
        for n in draft.problem.pools[rented.pool]
        if n.is_there and n.name not in draft.kept and worth.node[n.name] <= worth.node[rented.name]
    ]
    for node in sorted(gone, key=lambda n: (worth.node[n.name], n.name)):
        draft.kept.add(node.name)
        moved = [piece.unit for piece in pieces if draft.move(piece.unit, node.name)]
        if len(moved) == len(pieces) and draft.give_up(rented.name):
            if draft.short(rented.pool) <= lack:
                return
            draft.kept.add(rented.name)
        for unit in moved:
            draft.relocate(unit, rented.name)
        draft.kept.discard(node.name)


def short_of(draft: Draft) -> dict[str, int]:
    return {pool: lack for pool in draft.problem.pools if (lack := draft.short(pool))}


def holds(problem: Problem, needs: Needs, answer: Answer) -> bool:
    """Whether the answer keeps the rules that the model may not have known in full: hours, and each node's limits."""
    draft = rebuilt(problem, needs, answer)
    if not all(draft.sound(pool) for pool in problem.pools):
        return False
    entered = {node for unit, node in answer.places.items() if draft.rooms.pieces[unit].home != node}
    return all(
        not room.full and room.within(problem.tenants_apart) for room in (draft.rooms.rooms[name] for name in entered)
    )


def hint_of(model: PlanModel, answer: Answer) -> None:
    """Start the solver from an answer."""
    cp, found = model.cp, model.vars
    cp.clear_hints()
    for name, var in model.keep.items():
        cp.add_hint(var, name in answer.kept)
    taken = {o.id for o in answer.chosen.values()}
    for option, var in model.take.items():
        cp.add_hint(var, option in taken)
    for kind, rest in found.rest.items():
        stay = 0
        present = 0
        for node, units in kind.homes.items():
            here = sum(answer.places.get(unit) == node for unit in units)
            present += sum(unit in answer.places for unit in units)
            stay += here
            cp.add_hint(rest[node], here)
        cp.add_hint(found.moved[kind], present - stay)
    for anchor, var in found.stays.items():
        cp.add_hint(var, sum(unit in answer.places for unit in anchor.units))
    for carrier, there in found.arrive.items():
        coming = sum((arrivals(kind, answer) for kind in carrier.kinds), Counter[str]())
        for node, var in there.items():
            cp.add_hint(var, coming[node])


def arrivals(kind: Kind, answer: Answer) -> Counter[str]:
    """Node -> replicas of the kind that the answer puts there and that are not there today."""
    if kind.option is not None:
        units = [new_unit(kind.option, k) for k in range(kind.count)]
        return Counter(answer.places[unit] for unit in units if unit in answer.places)
    return Counter(
        answer.places[unit]
        for node, units in kind.homes.items()
        for unit in units
        if answer.places.get(unit, node) != node
    )


def restricted(carriers: Sequence[Carrier], rooms: Rooms, answer: Answer, most: int) -> Sequence[Carrier]:
    """The same carriers with fewer nodes each, so that there are some `most` pairs: those that the answer keeps, with
    most room, and where it puts them."""
    if sum(len(carrier.nodes) for carrier in carriers) <= most:
        return carriers
    each = max(most // max(len(carriers), 1), 4)
    used: dict[str, int] = defaultdict(int)
    for unit, node in answer.places.items():
        piece = rooms.pieces.get(unit)
        used[node] += piece.what.size if piece is not None else 1
    free = {name: room.node.gpus - used[name] for name, room in rooms.rooms.items()}
    fewer: list[Carrier] = []
    for i, carrier in enumerate(carriers):
        first = [node for node in arrivals(carrier.kinds[0], answer) if node in carrier.nodes]
        size = max(carrier.gpus, 1)
        open_, rest = [], []
        for node in carrier.nodes:
            (open_ if node in answer.kept and free[node] >= size else rest).append(node)
        # Of many that could do, each kind gets others.
        turned = open_[i % max(len(open_), 1) :] + open_[: i % max(len(open_), 1)]
        rest.sort(key=lambda node: (node not in answer.kept, -free[node], node))
        nodes = dict.fromkeys([*first, *turned[: each - each // 4], *rest[: each // 4]])
        fewer.append(replace(carrier, nodes=tuple(sorted(nodes))))
    return fewer


def slotted(carriers: Sequence[Carrier], relaxed: PlanModel, found: Solution, more: int) -> Sequence[Carrier]:
    """The same carriers, each with the nodes where the answer of a relaxed model has something of its size arrive, and
    at most `more` others with room."""
    slots: dict[Kind, list[str]] = {}
    used: dict[str, int] = defaultdict(int)
    for kind, rest in relaxed.vars.rest.items():
        for node, var in rest.items():
            used[node] += kind.size * found.value(var)
    for anchor, var in relaxed.vars.stays.items():
        for node, (gpus, _, _) in anchor.parts.items():
            used[node] += gpus * found.value(var)
    for carrier, there in relaxed.vars.arrive.items():
        nodes = [node for node, var in there.items() if found.value(var)]
        for node in nodes:
            used[node] += carrier.kinds[0].size * found.value(there[node])
        slots.update(dict.fromkeys(carrier.kinds, nodes))
    kept = {name for name, var in relaxed.keep.items() if found.value(var)}
    free = {n.name: n.gpus - used[n.name] for n in relaxed.problem.nodes}
    fewer: list[Carrier] = []
    for i, carrier in enumerate(carriers):
        own = set(carrier.nodes)
        first = [node for node in slots[carrier.kinds[0]] if node in own]
        rest_ = [node for node in carrier.nodes if node in kept and free[node] >= carrier.kinds[0].size]
        turn = i % max(len(rest_), 1)
        others = [*rest_[turn:], *rest_[:turn]][:more]
        fewer.append(replace(carrier, nodes=tuple(sorted({*first, *others}))))
    return fewer


def fixed_to(model: PlanModel, relaxed: PlanModel, found: Solution) -> None:
    """Hold a model to the changes and the nodes of a relaxed answer."""
    for name, var in model.keep.items():
        model.cp.add(var == found.value(relaxed.keep[name]))
    for option, var in model.take.items():
        model.cp.add(var == found.value(relaxed.take[option]))
