"""In which order a layout is reached: what frees most first, each step only where its room is there by then."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Literal

from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from .draft import Draft, new_unit
from .kinds import Kind, apart
from .needs import Needs
from .problem import Layout, PlanOption, Problem
from .rooms import Piece, Room
from .worth import Worth

# From which node to which; None: it starts, or ends.
Move = tuple[str, str | None, str | None]
StepKind = Literal["rent", "give-up", "option", "relocate"]


@dataclass(frozen=True)
class Step:
    """What is done at once. `moves`: replicas, each started at its target before it stops at its source. `frees`: nodes
    that are given up after it. `rents`: nodes that are there from then on. `after`: indices of earlier steps that make
    its room. `staging`: why it needs capacity for a moment that is not there; None: it does not. `settled`: whether the
    rules hold after it; where not, they do once the next step that is settled is done."""

    kind: StepKind
    series: str | None = None
    option: str | None = None
    moves: tuple[Move, ...] = ()
    frees: tuple[str, ...] = ()
    rents: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    staging: CodedText | None = None
    settled: bool = True


@dataclass(frozen=True)
class _Task:
    series: str
    option: PlanOption | None
    moves: tuple[Move, ...]

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(source for _, source, _ in self.moves if source is not None)

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(to for _, _, to in self.moves if to is not None)


def sequence(problem: Problem, layout: Layout) -> tuple[Step, ...]:
    return _Sequence(problem, layout).steps()


class _Sequence:
    def __init__(self, problem: Problem, layout: Layout) -> None:
        self.problem, self.layout = problem, layout
        needs = Needs(problem)
        self.worth = Worth(problem)
        self.draft = Draft(problem, needs)
        self.needs = needs
        self.made: list[Step] = []
        self.done_by: dict[str, int] = {}
        self.left_by: dict[str, list[int]] = defaultdict(list)
        self.planned = {o.id for o in layout.chosen.values()}
        self.going = {n.name for n in problem.nodes if not n.rented and n.name not in layout.kept}
        # What each node would hold if nothing had left it yet.
        self.crowded = Draft(problem, needs).rooms

    def steps(self) -> tuple[Step, ...]:
        rented = tuple(n.name for n in self.problem.nodes if n.rented and n.name in self.layout.kept)
        if rented:
            self.draft.kept.update(rented)
            self.made.append(Step("rent", rents=rented))
        if empty := self._given_up():
            self.made.append(Step("give-up", frees=empty))
        pending = self._tasks()
        while pending:
            # After a step that had no room, first what gives it back.
            owing = self._owing()
            ranked = self._ranked(pending, owing or frozenset())
            able = next((task for task in ranked if self._able(task)), None) if owing is None else None
            task = able or ranked[0]
            pending.remove(task)
            self._do(task, staged=able is None and not self._able(task))
        if late := self._given_up():
            self.made.append(Step("give-up", frees=late, after=tuple(range(len(self.made)))))
        return tuple(self.made)

    def _tasks(self) -> list[_Task]:
        """An option with all that it moves is one; of series without one, what leaves one node."""
        tasks: list[_Task] = []
        places = self.layout.places
        for s in self.problem.series:
            option = self.layout.chosen.get(s.id)
            moves: list[Move] = []
            for u in s.units:
                to = places.get(u.id)
                if to is None:
                    moves.append((u.id, self.draft.rooms.at[u.id], None))
                elif u.movable and to != u.node:
                    moves.append((u.id, u.node, to))
            if option is None:
                by_source: dict[str, list[Move]] = defaultdict(list)
                for move in moves:
                    by_source[move[1] or ""].append(move)
                tasks += [_Task(s.id, None, tuple(own)) for own in by_source.values()]
                continue
            moves += [(unit, None, places[unit]) for unit in (new_unit(option, k) for k in range(option.started))]
            # What starts comes before what ends, unless nothing starts: then what is beyond the new count makes room.
            last = bool(option.started)
            moves.sort(key=lambda move: ((move[2] is None) == last, move[1] is not None, move[0]))
            tasks.append(_Task(s.id, option, tuple(moves)))
        return tasks

    def _ranked(self, pending: list[_Task], owing: frozenset[str]) -> list[_Task]:
        """What frees most for each replica that is touched comes first. `owing`: nodes that need their room back."""
        waiting = Counter(source for task in pending for _, source, _ in task.moves if source in self.going)
        wanted = self._wanted()

        def rank(task: _Task) -> tuple[bool, bool, int, float, int, str, str]:
            gain = sum(
                max(self.worth.node[source], 1) / waiting[source] ** 2
                for _, source, _ in task.moves
                if source is not None and waiting[source]
            )
            return (
                task.option is None or task.option.id not in wanted,
                task.option is not None and bool(self._unmet(task.option)),
                -len(task.sources & owing),
                -gain / max(len(task.moves), 1),
                len(task.moves),
                task.series,
                str(task.moves),
            )

        return sorted(pending, key=rank)

    # Whether it can be done, and doing it

    def _able(self, task: _Task) -> bool:
        option = task.option
        if option is not None and self._unmet(option):
            return False
        done: list[tuple[Move, Piece, str | None]] = []
        fits = all(self._rolled(move, option, done) for move in task.moves)
        if option is not None:
            self.draft.count(option, 1)
        pools = {self.problem.by_node[name].pool for name in task.sources | task.targets}
        pools |= self.needs.pools_of(option) if option is not None else set()
        sound = fits and all(self.draft.sound(pool) for pool in pools) and self._apart(task)
        if option is not None:
            self.draft.count(option, -1)
        for (unit, _, to), piece, was in reversed(done):
            if to is not None:
                self.draft.rooms.remove(unit)
            if was is not None:
                self.draft.rooms.put(piece, was)
        return sound

    def _rolled(self, move: Move, option: PlanOption | None, done: list[tuple[Move, Piece, str | None]]) -> bool:
        """Start at the target while it still runs at the source, then stop there."""
        unit, _, to = move
        rooms = self.draft.rooms
        piece = rooms.pieces.get(unit) or self._new(unit)
        if to is not None and not self._room_for(piece, to, option):
            return False
        was = rooms.remove(unit) if unit in rooms.at else None
        if to is not None:
            rooms.put(piece, to)
        done.append((move, piece, was))
        return True

    def _room_for(self, piece: Piece, to: str, option: PlanOption | None) -> bool:
        """While an option is carried out its series may be closer together than before or afterwards."""
        rooms = self.draft.rooms
        room, what = rooms.rooms[to], piece.what
        if to not in self.draft.kept or not isinstance(what, Kind) or not rooms.may(what, room.node):
            return False
        most = 10**9 if option is not None else rooms.most(room, what.series, None)
        return room.takes(piece, most, self.problem.tenants_apart)

    def _apart(self, task: _Task) -> bool:
        s = self.problem.by_series[task.series]
        if task.option is None:
            return True
        limit = apart(s, task.option)
        return all(room.crowd[s.id] <= limit for room in self.draft.rooms.rooms.values())

    def _new(self, unit: str) -> Piece:
        return Piece(unit, self.draft.rooms.new[unit.rpartition("#")[0]], None)

    def _do(self, task: _Task, staged: bool) -> None:
        rooms = self.draft.rooms
        after = self._after(task)
        for unit, _, to in task.moves:
            piece = rooms.pieces.get(unit) or self._new(unit)
            if unit in rooms.at:
                rooms.remove(unit)
            if to is not None:
                rooms.put(piece, to)
                self._crowd(piece, to)
        if task.option is not None:
            self.draft.count(task.option, 1)
            self.draft.chosen[task.series] = task.option
            self.done_by[task.option.id] = len(self.made)
        for name in task.sources:
            self.left_by[name].append(len(self.made))
        step = Step(
            "option" if task.option is not None else "relocate", task.series,
            task.option.id if task.option is not None else None, task.moves, after=after,
        )  # fmt: skip
        if staged:
            step = replace(step, staging=self._staging(task))
        self.made.append(step)
        settled = self._owing() is None
        self.made[-1] = replace(step, settled=settled, frees=self._given_up() if settled else ())

    def _owing(self) -> frozenset[str] | None:
        """Nodes that are beyond their limits since a step had no room; None where every rule holds."""
        rooms = self.draft.rooms.rooms.items()
        beyond = {name for name, room in rooms if not room.full and not self._fits(room)}
        sound = all(self.draft.sound(pool) for pool in self.problem.pools)
        return None if sound and not beyond and not self._wanted() else frozenset(beyond)

    def _unmet(self, option: PlanOption) -> frozenset[str]:
        """Options of the plan that it needs and that are not carried out yet."""
        return (option.needs & self.planned) - self.done_by.keys() if option.needs else frozenset()

    def _wanted(self) -> set[str]:
        """Options that those that are carried out need: there are some only where options need one another."""
        return {one for o in self.draft.chosen.values() for one in self._unmet(o)}

    def _fits(self, room: Room) -> bool:
        return room.within(self.problem.tenants_apart) and all(
            count <= self.draft.rooms.most(room, self.problem.by_series[series], self.draft.chosen.get(series))
            for series, count in room.crowd.items()
            if count
        )

    def _crowd(self, piece: Piece, to: str) -> None:
        """Keep the account of what a node would hold if nothing had left it."""
        self.crowded.rooms[to].load(replace(piece, unit=f"{piece.unit}@{len(self.made)}"), 1)

    def _after(self, task: _Task) -> tuple[int, ...]:
        """Earlier steps without which it could not be done: options that it needs, and what left its targets where
        there would be no room otherwise."""
        found: set[int] = set()
        if task.option is not None:
            found |= {self.done_by[one] for one in task.option.needs if one in self.done_by}
            found |= self._after_pool(task.option)
        rented = {n.name for n in self.problem.nodes if n.rented}
        coming: dict[str, list[Piece]] = defaultdict(list)
        for unit, _, to in task.moves:
            if to is not None:
                coming[to].append(self.draft.rooms.pieces.get(unit) or self._new(unit))
        for to, pieces in coming.items():
            if to in rented:
                found.add(0)
            room = self.crowded.rooms[to]
            extra = [replace(piece, unit=f"{piece.unit}@now") for piece in pieces]
            for piece in extra:
                room.load(piece, 1)
            crowd = any(
                room.crowd[p.series.id] > self.draft.rooms.most(room, p.series, task.option) for p in pieces
            )  # fmt: skip
            if crowd or not room.within(self.problem.tenants_apart):
                found.update(self.left_by[to])
            for piece in extra:
                room.load(piece, -1)
        return tuple(sorted(found))

    def _after_pool(self, option: PlanOption) -> set[int]:
        """Earlier steps without which the pool that work goes to would have too little: what is rented there, which is
        only what it needs, and for jobs what leaves whole nodes."""
        s, pool = self.problem.by_series[option.series], option.pool
        if pool is None or pool == s.pool:
            return set()
        nodes = self.problem.pools[pool]
        found = {0} if any(n.rented and n.name in self.draft.kept for n in nodes) else set()
        if not s.jobs:
            return found
        rooms = self.crowded.rooms
        free = [n for n in nodes if n.held is None and n.name in self.draft.kept]
        empty = sum(1 for n in free if not rooms[n.name].gpus and not rooms[n.name].divided)
        wholes = self.draft.whole[pool] + sum(c for p, c in self.needs.change_nodes[option.id] if p == pool)
        if int(wholes.max(initial=0)) > empty:
            found.update(k for n in nodes for k in self.left_by[n.name])
        return found

    def _staging(self, task: _Task) -> CodedText:
        if self.problem.by_series[task.series].jobs:
            return coded(
                "plan-step-jobs-wait",
                "No order of the steps has room for the jobs of {series} at their peak: some wait until the last step.",
                series=self.problem.by_series[task.series].name,
            )
        return coded(
            "plan-step-staged",
            "No order of the steps has room for what moves of {series} while it still runs elsewhere: add temporary "
            "capacity for {replicas}, or stop before starting.",
            series=self.problem.by_series[task.series].name,
            replicas=counted(sum(1 for _, source, to in task.moves if to is not None) or len(task.moves), "replica"),
        )

    def _given_up(self) -> tuple[str, ...]:
        """Nodes of those to go that are empty and not needed any more."""
        given: list[str] = []
        for name in sorted(self.going, key=lambda one: (-self.worth.node[one], one)):
            lack = self.draft.short(self.problem.by_node[name].pool)
            if self.draft.give_up(name):
                if self.draft.short(self.problem.by_node[name].pool) > lack and self._waiting():
                    self.draft.kept.add(name)
                    continue
                self.going.discard(name)
                given.append(name)
        return tuple(given)

    def _waiting(self) -> bool:
        """Whether there are steps still to come."""
        return self.draft.rooms.at != dict(self.layout.places)
