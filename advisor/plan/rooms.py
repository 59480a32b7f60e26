"""What runs on each node while a layout is made: what fits, what breaks a limit of the node (rules 4 to 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from .kinds import CPU_TENTH, MEMORY_TENTH, Anchor, Kind, anchors_of, apart, kinds_of, may_enter, started_by, there
from .mig import gpus_for, placeable
from .problem import PlanNode, PlanOption, PlanSeries, Problem, Slices

UNLIMITED = 10**12


@dataclass(frozen=True, slots=True)
class Piece:
    """One replica that runs somewhere. `home`: where it runs today; None: it is started anew."""

    unit: str
    what: Kind | Anchor
    home: str | None

    @property
    def series(self) -> PlanSeries:
        return self.what.series


@dataclass(slots=True)
class Room:
    """One node. `full`: it is beyond one of its limits today, and takes nothing."""

    node: PlanNode
    gpus: int
    cpu: int = 0
    memory: int = 0
    crowd: Counter[str] = field(default_factory=Counter)
    tenants: Counter[str] = field(default_factory=Counter)
    linked: Counter[int] = field(default_factory=Counter)
    mig: Counter[Slices] = field(default_factory=Counter)
    pieces: dict[str, Piece] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    crowd_today: Mapping[str, int] = field(default_factory=dict)
    full: bool = False

    def load(self, piece: Piece, sign: int) -> None:
        what = piece.what
        gpus, cpu, memory = (what.gpus, what.cpu, what.memory) if isinstance(what, Kind) else what.parts[self.node.name]
        self.gpus += sign * gpus
        self.cpu += sign * cpu
        self.memory += sign * memory
        self.crowd[piece.series.id] += sign
        self.tenants[piece.series.tenant] += sign
        if what.linked and gpus > 1 and not (isinstance(what, Anchor) and what.spread):
            self.linked[gpus] += sign
        if what.mig is not None and placeable(what.mig):
            self.mig[what.mig] += sign
        if sign > 0:
            self.pieces[piece.unit] = piece
        else:
            del self.pieces[piece.unit]

    @property
    def divided(self) -> int:
        """GPUs in MIG mode."""
        return gpus_for(self.mig) if any(self.mig.values()) else 0

    def divided_by(self, mig: Slices) -> int:
        """GPUs that would have to be divided for one more instance."""
        return gpus_for(self.mig + Counter([mig])) - self.divided if placeable(mig) else 1

    @property
    def free(self) -> int:
        return self.node.gpus - self.gpus - self.divided

    def within(self, tenants_apart: bool) -> bool:
        """Whether the node is within its own limits but for how many replicas of a series it holds."""
        cpu, memory = limits(self.node)
        if self.free < 0 or self.cpu > cpu or self.memory > memory or not linked_fit(self.node, self.linked):
            return False
        if not tenants_apart:
            return True
        present = {tenant for tenant, count in self.tenants.items() if count > 0}
        return present <= self.named if self.named else len(present) <= 1

    def takes(self, piece: Piece, most: int, tenants_apart: bool) -> bool:
        what = piece.what
        if self.full or not isinstance(what, Kind):
            return False
        # Cheap limits first: most nodes fail one of them.
        if what.gpus > self.node.gpus - self.gpus or self.crowd[what.series.id] >= most:
            return False
        if self.named and tenants_apart and what.series.tenant not in self.named:
            return False
        self.load(piece, 1)
        fits = self.within(tenants_apart)
        self.load(piece, -1)
        return fits


def limits(node: PlanNode) -> tuple[int, int]:
    """CPU and memory in tenths of a core and of a GB."""
    cpu = UNLIMITED if node.cpu_cores is None else there(node.cpu_cores, CPU_TENTH)
    return cpu, UNLIMITED if node.host_mem_bytes is None else there(node.host_mem_bytes, MEMORY_TENTH)


def linked_fit(node: PlanNode, linked: Mapping[int, int]) -> bool:
    sizes = tuple(sorted((size for size, count in linked.items() for _ in range(count)), reverse=True))
    return not sizes or _packs(sizes, tuple(sorted(node.islands or (node.gpus,))))


@cache
def _packs(sizes: tuple[int, ...], islands: tuple[int, ...]) -> bool:
    if not sizes:
        return True
    first, rest = sizes[0], sizes[1:]
    for i, room in enumerate(islands):
        if room >= first and (i == 0 or islands[i - 1] != room):
            left = tuple(sorted((*islands[:i], room - first, *islands[i + 1 :])))
            if _packs(rest, left):
                return True
    return False


class Rooms:
    """All nodes, with what runs there today."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rooms = {n.name: Room(n, problem.fixed_gpus.get(n.name, 0), named=n.tenants) for n in problem.nodes}
        self.by_pool = {pool: [self.rooms[n.name] for n in nodes] for pool, nodes in problem.pools.items()}
        self.kinds: dict[str, list[Kind]] = {}
        self.anchors: dict[str, list[Anchor]] = {}
        self.new: dict[str, Kind] = {o.id: started_by(problem, o) for o in problem.options if o.started}
        self.pieces: dict[str, Piece] = {}
        self.at: dict[str, str] = {}
        for s in problem.series:
            self.kinds[s.id], self.anchors[s.id] = kinds_of(problem, s), anchors_of(s)
            for kind in self.kinds[s.id]:
                for node, units in kind.homes.items():
                    for unit in units:
                        self.put(Piece(unit, kind, node), node)
            for anchor in self.anchors[s.id]:
                for unit in anchor.units:
                    self.put(Piece(unit, anchor, next(iter(anchor.parts))), next(iter(anchor.parts)))
        self._may: dict[Kind, dict[str, bool]] = {}
        for room in self.rooms.values():
            room.crowd_today = dict(room.crowd)
            if problem.tenants_apart and len(present := frozenset(room.tenants)) > 1:
                room.named = room.named or present
            room.full = not room.within(problem.tenants_apart)

    def put(self, piece: Piece, node: str) -> None:
        for name in piece.what.parts if isinstance(piece.what, Anchor) else (node,):
            self.rooms[name].load(piece, 1)
        self.pieces[piece.unit] = piece
        self.at[piece.unit] = node

    def remove(self, unit: str) -> str:
        piece, node = self.pieces.pop(unit), self.at.pop(unit)
        for name in piece.what.parts if isinstance(piece.what, Anchor) else (node,):
            self.rooms[name].load(piece, -1)
        return node

    def may(self, kind: Kind, node: PlanNode) -> bool:
        """Whether the node could take it if nothing else were there."""
        known = self._may.setdefault(kind, {})
        if node.name not in known:
            room = self.rooms[node.name]
            alien = self.problem.tenants_apart and room.named and kind.series.tenant not in room.named
            known[node.name] = not room.full and not alien and may_enter(self.problem, kind, node)
        return known[node.name]

    def takes(self, piece: Piece, name: str, option: PlanOption | None) -> bool:
        room, what = self.rooms[name], piece.what
        if not isinstance(what, Kind) or not self.may(what, room.node):
            return False
        return room.takes(piece, self.most(room, what.series, option), self.problem.tenants_apart)

    def most(self, room: Room, series: PlanSeries, option: PlanOption | None) -> int:
        """Replicas of the series that the node may hold."""
        return apart(series, option) if option else max(series.apart, room.crowd_today.get(series.id, 0))
