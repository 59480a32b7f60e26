"""A layout in the making: changes that keep every rule or are undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .kinds import Kind, apart
from .needs import Needs, missing
from .problem import PlanOption, PlanSeries, Problem
from .rooms import Piece, Room, Rooms


@dataclass(frozen=True)
class Answer:
    """`short`: pool -> GPUs that are missing."""

    chosen: Mapping[str, PlanOption]
    places: Mapping[str, str]
    kept: frozenset[str]
    short: Mapping[str, int]


@dataclass(frozen=True)
class Today:
    """What rules compare with: `short`: pool -> GPUs missing today; `spare`: pool -> GPUs that one node
    keeps free for the largest unit, at most; None: as many as that unit has."""

    short: Mapping[str, int]
    spare: Mapping[str, int | None]


class Draft:
    """Today's layout, then whatever is changed in it. Every method that changes something says whether it could; where
    it could not, all is as it was."""

    def __init__(self, problem: Problem, needs: Needs) -> None:
        self.problem, self.needs = problem, needs
        self.rooms = Rooms(problem)
        self.kept = {n.name for n in problem.nodes if not n.rented}
        self.chosen: dict[str, PlanOption] = {}
        self.asked = needs.asked(())
        self.whole = needs.nodes(())
        self.moved: Counter[str] = Counter()
        self.today = self._today()

    def _today(self) -> Today:
        spare: dict[str, int | None] = {}
        for pool in self.problem.pools:
            if any(n.extra in ("buy", "missing") for n in self.problem.pools[pool]):
                # No node is bought or missing for it.
                spare[pool] = 0
                continue
            best, largest = self.spare(pool), self.largest(pool)
            spare[pool] = None if best >= largest else best
        return Today({pool: self.short(pool) for pool in self.problem.pools}, spare)

    def answer(self) -> Answer:
        short = {pool: lack for pool in self.problem.pools if (lack := self.short(pool))}
        return Answer(dict(self.chosen), dict(self.rooms.at), frozenset(self.kept), short)

    # The rules of a pool

    def room(self, pool: str) -> int:
        """GPUs that the pool keeps, less those in MIG mode."""
        return sum(r.node.gpus - r.divided for r in self.rooms.by_pool[pool] if r.node.name in self.kept)

    def empty(self, pool: str) -> int:
        """Nodes that jobs may have as a whole."""
        return sum(
            1
            for r in self.rooms.by_pool[pool]
            if r.node.name in self.kept and r.node.held is None and not r.gpus and not r.divided
        )

    def short(self, pool: str) -> int:
        whole = self.whole[pool]
        empty = self.empty(pool) if whole.any() else 0
        return missing(self.asked[pool], whole, self.needs.size[pool], self.room(pool), empty)

    def largest(self, pool: str) -> int:
        """GPUs of the largest unit on one node of the pool."""
        return max((p.what.size for r in self.rooms.by_pool[pool] for p in r.pieces.values()), default=0)

    def spare(self, pool: str) -> int:
        """GPUs that one kept node has free, the most of any."""
        rooms = self.rooms.by_pool[pool]
        return max((r.free for r in rooms if r.node.name in self.kept and r.node.held is None), default=0)

    def spared(self, pool: str) -> bool:
        if not self.problem.reserve.get(pool, 0):
            return True
        need, cap = self.largest(pool), self.today.spare[pool]
        return self.spare(pool) >= (need if cap is None else min(need, cap))

    def sound(self, pool: str) -> bool:
        """Whether the pool misses no more than today, and its reserve can be used."""
        return self.short(pool) <= self.today.short[pool] and self.spared(pool)

    # Changes

    def touched(self) -> int:
        return len(self.chosen.keys() | {series for series, count in self.moved.items() if count})

    def may_touch(self, series: Sequence[str]) -> bool:
        limit = self.problem.max_moves
        if limit is None:
            return True
        fresh = [s for s in set(series) if s not in self.chosen and not self.moved[s]]
        return self.touched() + len(fresh) <= limit

    def move(self, unit: str, to: str) -> bool:
        piece = self.rooms.pieces[unit]
        if not self.rooms.takes(piece, to, self.chosen.get(piece.series.id)):
            return False
        self.relocate(unit, to)
        return True

    def relocate(self, unit: str, to: str) -> None:
        piece = self.rooms.pieces[unit]
        was = self.rooms.remove(unit)
        self.rooms.put(piece, to)
        if piece.home is not None:
            self.moved[piece.series.id] += (to != piece.home) - (was != piece.home)

    def best(self, piece: Piece, allowed: Sequence[Room], option: PlanOption | None) -> str | None:
        """The fullest node that takes it; home above all, and of an instance a GPU that is divided already."""
        found: tuple[tuple[int, int, int, str], str] | None = None
        for room in allowed:
            name = room.node.name
            if name not in self.kept:
                continue
            more = room.divided_by(piece.what.mig) if piece.what.mig is not None else 0
            rank = (0 if name == piece.home else 1, more, room.free, name)
            if (found is None or rank < found[0]) and self.rooms.takes(piece, name, option):
                found = (rank, name)
        return found[1] if found else None

    def take(self, option: PlanOption, leave: frozenset[str] = frozenset()) -> bool:
        """Carry an option out. `leave`: nodes that had better be empty."""
        series = self.problem.by_series[option.series]
        taken = {o.id for o in self.chosen.values()}
        pinned = sum(u.pinned for u in series.units)
        if (
            series.id in self.chosen
            or not self.may_touch([series.id])
            or option.excludes & taken
            or any(option.id in o.excludes for o in self.chosen.values())
            or not (option.needs & self.problem.by_option.keys()) <= taken
            or (option.pool is not None and option.pool not in self.problem.pools)
            or pinned > (option.left if option.keeps_units else 0)
        ):
            return False
        ended = [(unit, self.rooms.pieces[unit]) for unit in self._ending(series, option, leave)]
        where = [(piece, self.rooms.remove(unit)) for unit, piece in ended]
        started: list[str] = []
        ok = self._start(option, leave, started) if option.started else self._spread(series, option)
        self.count(option, 1)
        if ok and all(self.sound(pool) for pool in self.needs.pools_of(option)):
            self.chosen[series.id] = option
            self.moved[series.id] -= sum(1 for piece, node in where if piece.home != node)
            return True
        self.count(option, -1)
        for unit in started:
            self.rooms.remove(unit)
        for piece, node in where:
            self.rooms.put(piece, node)
        return False

    def count(self, option: PlanOption, sign: int) -> None:
        """Add what an option changes of the pools' needs, or (-1) take it off again."""
        for pool, change in self.needs.change[option.id]:
            if pool in self.asked:
                self.asked[pool] = self.asked[pool] + sign * change
        for pool, change in self.needs.change_nodes[option.id]:
            if pool in self.whole:
                self.whole[pool] = self.whole[pool] + sign * change

    def _ending(self, series: PlanSeries, option: PlanOption, leave: frozenset[str]) -> list[str]:
        units = [u.id for u in series.units]
        if not option.keeps_units:
            return units
        if option.left > len(units):
            return []
        at = self.rooms.at
        crowd = Counter(at[unit] for unit in units)
        may_end = [u.id for u in series.units if not u.pinned]

        def rank(unit: str) -> tuple[bool, bool, int, int, str]:
            room, node = self.rooms.rooms[at[unit]], at[unit]
            movable = isinstance(self.rooms.pieces[unit].what, Kind)
            return (
                crowd[node] <= apart(series, option),
                node not in leave,
                -crowd[node],
                room.gpus,
                f"{movable}{unit}",
            )

        ending: list[str] = []
        while len(units) - len(ending) > option.left:
            unit = min((u for u in may_end if u not in ending), key=rank)
            crowd[at[unit]] -= 1
            ending.append(unit)
        return ending

    def _spread(self, series: PlanSeries, option: PlanOption) -> bool:
        """Whether what an option leaves is few enough, and far enough apart."""
        here = [self.rooms.pieces[u.id] for u in series.units if u.id in self.rooms.pieces]
        if len(here) != (option.left if not series.jobs and option.keeps_units else 0):
            return False
        crowd = Counter(
            name
            for p in here
            for name in ((self.rooms.at[p.unit],) if isinstance(p.what, Kind) else tuple(p.what.parts))
        )
        return max(crowd.values(), default=0) <= apart(series, option)

    def _start(self, option: PlanOption, leave: frozenset[str], started: list[str]) -> bool:
        kind = self.rooms.new[option.id]
        rooms = self.rooms.by_pool.get(kind.pool, [])
        for k in range(option.started):
            piece = Piece(new_unit(option, k), kind, None)
            to = self.best(piece, [r for r in rooms if r.node.name not in leave], option)
            to = to or self.best(piece, [r for r in rooms if r.node.name in leave], option)
            if to is None:
                return False
            self.rooms.put(piece, to)
            started.append(piece.unit)
        return True

    def give_up(self, name: str) -> bool:
        """Stop keeping a node that nothing runs on."""
        room = self.rooms.rooms[name]
        if room.node.held is not None or room.gpus or room.pieces or name not in self.kept:
            return False
        self.kept.discard(name)
        if self.sound(room.node.pool):
            return True
        self.kept.add(name)
        return False


def new_unit(option: PlanOption, index: int) -> str:
    """The name of a replica that only exists once the option is taken."""
    return f"{option.id}#{index}"
