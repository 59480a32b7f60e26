"""In which order a layout is reached: what frees most first, each step only where its room is there by then."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Literal

from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from .problem import Layout, PlanOption, Problem
from .state import State
from .worth import Worth

# Which unit goes from which node to which; None: it starts, or ends.
Move = tuple[str, str | None, str | None]
StepKind = Literal["rent", "give-up", "option", "relocate"]


@dataclass(frozen=True)
class Step:
    """What is done at once. `moves`: replicas, each started at its target before it stops at its source. `frees`: nodes
    that are given up after it. `rents`: nodes that are there from then on. `after`: indices of earlier steps that make
    its room. `staging`: why it needs capacity for a moment that is not there; None: it does not. Rules that a staged
    step breaks hold again at the end of the steps at the latest."""

    kind: StepKind
    series: str | None = None
    option: PlanOption | None = None
    moves: tuple[Move, ...] = ()
    frees: tuple[str, ...] = ()
    rents: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    staging: CodedText | None = None

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(source for _, source, _ in self.moves if source is not None)

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(to for _, _, to in self.moves if to is not None)


def sequence(problem: Problem, layout: Layout) -> tuple[Step, ...]:
    """The steps from today to a layout."""
    state, worth = State(problem), Worth(problem)
    going = {n.name for n in problem.nodes if not n.rented and n.name not in layout.kept}
    made: list[Step] = []
    left_by: dict[str, list[int]] = defaultdict(list)

    def given_up() -> tuple[str, ...]:
        names = [name for name in sorted(going, key=lambda one: (-worth.node[one], one)) if state.give_up(name)]
        going.difference_update(names)
        # Nodes that are not there are nothing to give up.
        return tuple(name for name in names if problem.by_node[name].extra is None)

    rented = tuple(n.name for n in problem.nodes if n.rented and n.name in layout.kept)
    if rented:
        for name in rented:
            state.keep(name, True)
        made.append(Step("rent", rents=rented))
    if empty := given_up():
        made.append(Step("give-up", frees=empty))
    pending = _tasks(problem, state, layout)
    owing: set[str] = set()  # nodes that a step without room went to
    while pending:
        waiting = Counter(source for task in pending for _, source, _ in task.moves if source in going)
        pending.sort(key=lambda task: _rank(task, worth, waiting, owing))
        # Where none has room, the first is done all the same, and says what it takes.
        task = next((one for one in pending if _done(problem, state, one, strict=True)), None)
        staging = None
        if task is None:
            task = pending[0]
            _done(problem, state, task, strict=False)
            owing |= task.targets
            staging = _staging(problem, task)
        pending.remove(task)
        after = _after(problem, task, rented, left_by)
        for name in task.sources:
            left_by[name].append(len(made))
        made.append(replace(task, after=after, staging=staging, frees=given_up()))
    if late := given_up():
        made.append(Step("give-up", frees=late, after=tuple(range(len(made)))))
    return tuple(made)


def _tasks(problem: Problem, state: State, layout: Layout) -> list[Step]:
    """An option with all that it moves is one; of series without one, what leaves one node."""
    tasks: list[Step] = []
    for s in problem.series:
        option = layout.chosen.get(s.id)
        moves: list[Move] = []
        for u in s.units:
            here, to = state.at[u.id], layout.places.get(u.id)
            if to is None or (u.movable and to != here):
                moves.append((u.id, here, to))
        if option is not None:
            new = [(unit, None, layout.places[unit]) for unit in map(option.unit, range(option.started))]
            # What starts comes before what ends, unless nothing starts: then what is beyond the new count makes room.
            moves.sort(key=lambda move: (move[2] is not None, move[0]))
            tasks.append(Step("option", s.id, option, (*new, *moves)))
        else:
            for source in dict.fromkeys(move[1] for move in moves):
                tasks.append(Step("relocate", s.id, moves=tuple(move for move in moves if move[1] == source)))
    return tasks


def _rank(task: Step, worth: Worth, waiting: Counter[str], owing: set[str]) -> tuple[int, float, int, str, str]:
    """What gives room back comes first, then what frees most for each replica that is touched."""
    gain = sum(max(worth.node[at], 1) / waiting[at] ** 2 for _, at, _ in task.moves if at is not None and waiting[at])
    count = len(task.moves)
    return -len(task.sources & owing), -gain / max(count, 1), count, task.series or "", str(task.moves)


def _done(problem: Problem, state: State, task: Step, *, strict: bool) -> bool:
    """Do a task, each replica started at its target while it still runs at its source. `strict`: only where all rules
    hold; otherwise all is as it was."""
    mark, option = state.mark, task.option
    for unit, _, to in task.moves:
        # While an option is carried out its series may be closer together than before or afterwards.
        most = 10**9 if option is not None else state.most(state.kind[unit], to or "", None) if to else 0
        if strict and to is not None and not state.fits(state.kind[unit], to, most):
            state.undo(mark)
            return False
        state.place(unit, to)
    pools = {problem.by_node[name].pool for name in task.sources | task.targets}
    if option is not None:
        state.choose(option)
        pools |= state.needs.pools_of(option)
    crowded = option is not None and state.crowded(problem.by_series[option.series], option)
    if strict and (crowded or not all(state.sound(pool) for pool in pools)):
        state.undo(mark)
        return False
    return True


def _after(
    problem: Problem, task: Step, rented: tuple[str, ...], left_by: dict[str, list[int]]
) -> tuple[int, ...]:  # fmt: skip
    """Earlier steps that make its room: what left its targets, what is rented where it goes, and for jobs that need
    whole nodes what left any node there."""
    targets, found = set(task.targets), set[int]()
    if task.option is not None and task.option.pool is not None and task.series is not None:
        nodes, series = problem.pools[task.option.pool], problem.by_series[task.series]
        if task.option.pool != series.pool:
            # What is rented there may be for its demand, wherever it starts.
            targets |= {n.name for n in nodes if series.jobs or n.name in rented}
    for name in targets:
        found.update([0] if name in rented else left_by[name])
    return tuple(sorted(found))


def _staging(problem: Problem, task: Step) -> CodedText:
    series = problem.by_series[task.series or ""]
    if series.jobs:
        return coded(
            "plan-step-jobs-wait",
            "No order of the steps has room for the jobs of {series} at their peak: some wait until the last step.",
            series=series.name,
        )
    return coded(
        "plan-step-staged",
        "No order of the steps has room for what moves of {series} while it still runs elsewhere: add temporary "
        "capacity for {replicas}, or stop before starting.",
        series=series.name, replicas=counted(len([to for _, _, to in task.moves if to]) or len(task.moves), "replica"),
    )  # fmt: skip
