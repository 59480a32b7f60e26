"""In which order a layout is reached: what frees most first, each step only where its room is there by then."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..core.coded_text import coded
from .problem import Layout, Problem
from .result import Move, PlanStep
from .state import State, Worth


def sequence(problem: Problem, layout: Layout) -> tuple[PlanStep, ...]:
    """The steps from today to a layout, with units by their id, from nodes that are not there, too."""
    state, worth = State(problem), Worth(problem)
    going = {n.name for n in problem.nodes if not n.rented and n.name not in layout.kept}
    made: list[PlanStep] = []

    def given_up() -> tuple[str, ...]:
        names = [name for name in sorted(going, key=lambda name: (-worth.node[name], name)) if state.give_up(name)]
        going.difference_update(names)
        # Nodes that are not there are nothing to give up.
        return tuple(name for name in names if problem.by_node[name].extra is None)

    rented = tuple(n.name for n in problem.nodes if n.rented and n.name in layout.kept)
    if rented:
        for name in rented:
            state.keep(name, True)
        made.append(PlanStep(1, "rent", rents=rented))
    if empty := given_up():
        made.append(PlanStep(len(made) + 1, "give-up", frees=empty))
    pending = _tasks(problem, state, layout)
    owing: set[str] = set()  # nodes that a step without room went to
    while pending:
        waiting = Counter[str | None](move.start for task in pending for move in task.moves if move.start in going)
        pending.sort(key=lambda task: _rank(task, worth, waiting, owing))
        # Where none has room, the first is done all the same, and says what it takes.
        task = next((candidate for candidate in pending if _done(state, candidate, layout, strict=True)), None)
        staging = None
        if task is None:
            task = pending[0]
            _done(state, task, layout, strict=False)
            owing |= task.targets
            text = "No order of the steps has room for {series}: add temporary capacity, or let it wait until the end."
            staging = coded("plan-step-staged", text, series=problem.by_series[task.series or ""].name)
        pending.remove(task)
        series, option = problem.by_series[task.series or ""], layout.chosen.get(task.series or "")
        targets = set(task.targets)
        if option is not None and option.pool not in (None, series.pool):
            # What is rented there may be for its demand, wherever it starts.
            targets |= {n.name for n in problem.pools[option.pool] if series.jobs or n.rented}
        after = tuple(step.number for step in made if targets & {*step.sources, *step.rents})
        made.append(replace(task, number=len(made) + 1, after=after, staging=staging, frees=given_up()))
    if late := given_up():
        made.append(PlanStep(len(made) + 1, "give-up", frees=late, after=tuple(step.number for step in made)))
    return tuple(made)


def _tasks(problem: Problem, state: State, layout: Layout) -> list[PlanStep]:
    """An option with all that it moves is one; of series without one, what leaves one node."""
    tasks: list[PlanStep] = []
    for s in problem.series:
        option = layout.chosen.get(s.id)
        moves: list[Move] = []
        for u in s.units:
            here, to = state.at[u.id], layout.places.get(u.id)
            if to is None or (u.movable and to != here):
                moves.append(Move(u.id, here, to, u.gpu_count))
        whole = PlanStep(0, "relocate", series=s.id, workload=s.workload, name=s.name, team=s.team)
        if option is not None:
            new = [Move(u, None, layout.places[u], option.gpus_each) for u in map(option.unit, range(option.started))]
            # What starts comes before what ends, unless nothing starts: then what is beyond the new count makes room.
            moves.sort(key=lambda move: (move.end is not None, move.unit))
            taken = replace(whole, kind="option", action=option.action, recommendation=option.id, risk=option.risk)
            tasks.append(replace(taken, moves=(*new, *moves)))
        else:
            for source in dict.fromkeys(move.start for move in moves):
                tasks.append(replace(whole, moves=tuple(move for move in moves if move.start == source)))
    return tasks


def _rank(task: PlanStep, worth: Worth, waiting: Mapping[str | None, int], owing: set[str]) -> tuple[object, ...]:
    starts = [move.start for move in task.moves]  # what gives room back is first, then what frees most for each move
    gain = sum(max(worth.node[at], 1) / waiting[at] ** 2 for at in starts if at is not None and waiting[at])
    moves = str([(move.unit, move.start, move.end) for move in task.moves])
    return -len(task.sources & owing), -gain / max(len(starts), 1), len(starts), task.series or "", moves


def _done(state: State, task: PlanStep, layout: Layout, *, strict: bool) -> bool:
    """Do a task, each replica started at its target while it still runs at its source. `strict`: only where all rules
    hold; otherwise all is as it was."""
    mark, problem, option = state.mark, state.problem, layout.chosen.get(task.series or "")
    for unit, to in ((move.unit, move.end) for move in task.moves):
        # While an option is carried out its series may be closer together than before or afterwards.
        most = 10**9 if option is not None else state.most(state.kind[unit], to or "", None) if to else 0
        if strict and to is not None and not state.fits(state.kind[unit], to, most):
            state.undo(mark)
            return False
        state.place(unit, to)
    pools = {problem.by_node[name].pool for name in task.sources | task.targets}
    if option is not None:
        state.choose(option)
        pools |= problem.changes[option.id].keys()
    crowded = option is not None and state.crowded(problem.by_series[option.series], option)
    if strict and (crowded or not all(state.sound(pool) for pool in pools)):
        state.undo(mark)
        return False
    return True
