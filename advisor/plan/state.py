"""A layout in the making: today's, then changes that can be undone, with the limits of each node and pool."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ..core.worth import HOURS_PER_MONTH
from .problem import FOREVER, PlanNode, PlanOption, PlanSeries, Problem

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


# Host CPU is counted in tenths of a core, host memory in tenths of a GB.
CPU_TENTH, MEMORY_TENTH = 0.1, 1e8
UNLIMITED = 10**12
Load = tuple[int, int, int]


def _needed(value: float, step: float) -> int:
    return math.ceil(value / step - 1e-6)


def _there(value: float | None, step: float) -> int:
    return UNLIMITED if value is None else math.floor(value / step + 1e-6)


@dataclass(frozen=True, eq=False)
class Kind:
    """Replicas of one series that are alike, or that an option starts: which of them runs where makes no difference, so
    they are counted. `load`: GPUs, tenths of a core and of a GB of each. `homes`: node -> its units there today.
    `parts`: of a unit on several nodes, the load on each."""

    series: PlanSeries
    option: PlanOption | None
    load: Load
    linked: bool
    movable: bool = True
    homes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: Mapping[str, Load] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return self.load[0]

    @property
    def count(self) -> int:
        return sum(map(len, self.homes.values())) if self.option is None else self.option.started

    @property
    def pool(self) -> str:
        return self.series.pool if self.option is None else self.option.pool or ""

    def islands(self, node: PlanNode) -> int:
        """NVLink islands of a node that one replica takes."""
        return math.ceil(self.gpus / node.island_gpus) if self.linked and node.island_gpus else 0

    def loads(self, node: str) -> Mapping[str, Load]:
        """Node -> what one replica takes there, where it is placed at `node`."""
        return self.parts or {node: self.load}


def kinds_of(series: PlanSeries) -> list[Kind]:
    alike: dict[tuple[Any, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for u in series.units:
        share = len(u.gpus)
        cpu, memory = _needed(u.cpu_cores / share, CPU_TENTH), _needed(u.host_mem_bytes / share, MEMORY_TENTH)
        parts = tuple((node, (gpus, cpu, memory)) for node, gpus in u.gpus.items()) if share > 1 else ()
        linked = u.linked and share == 1 and u.gpu_count > 1
        alike[(0 if parts else u.gpu_count, cpu, memory), linked, u.movable, parts][u.node].append(u.id)
    return [
        Kind(series, None, load, linked, movable, {n: tuple(sorted(units)) for n, units in homes.items()}, dict(parts))
        for (load, linked, movable, parts), homes in alike.items()
    ]


def apart(series: PlanSeries, option: PlanOption | None) -> int:
    """Replicas that one node may hold: where an option leaves others, no larger share is lost with a node than now."""
    return series.apart if option is None else max(1, series.apart * option.left // max(len(series.units), 1))


@dataclass(slots=True)
class Room:
    """What is on one node. `full`: it is beyond one of its limits today, and takes nothing."""

    node: PlanNode
    gpus: int
    cpu: int = 0
    memory: int = 0
    links: int = 0
    units: set[str] = field(default_factory=set)
    crowd: Counter[str] = field(default_factory=Counter)
    tenants: Counter[str] = field(default_factory=Counter)
    crowd_today: Mapping[str, int] = field(default_factory=dict)
    full: bool = False

    @property
    def free(self) -> int:
        return self.node.gpus - self.gpus

    @property
    def limits(self) -> Load:
        return self.node.gpus, _there(self.node.cpu_cores, CPU_TENTH), _there(self.node.host_mem_bytes, MEMORY_TENTH)

    @property
    def islands(self) -> int:
        """NVLink islands of the node."""
        return self.node.gpus // self.node.island_gpus if self.node.island_gpus else UNLIMITED

    def add(self, kind: Kind, unit: str, load: Load, sign: int) -> None:
        self.gpus += sign * load[0]
        self.cpu += sign * load[1]
        self.memory += sign * load[2]
        self.links += sign * kind.islands(self.node)
        self.crowd[kind.series.id] += sign
        self.tenants[kind.series.tenant] += sign
        (self.units.add if sign > 0 else self.units.discard)(unit)

    def within(self, tenants_apart: bool) -> bool:
        """Whether the node is within its own limits but for how many replicas of a series it holds."""
        gpus, cpu, memory = self.limits
        if self.gpus > gpus or self.cpu > cpu or self.memory > memory or self.links > self.islands:
            return False
        return not tenants_apart or self.node.tenants is not None or sum(n > 0 for n in self.tenants.values()) <= 1


class State:
    """Today's layout, then whatever is changed in it. `undo` takes back what was changed since a mark. `firm`: a pool
    keeps its reserve even if all work leaves it, so that none leaves for that."""

    def __init__(self, problem: Problem, *, firm: bool = False) -> None:
        self.problem, self.needs, self.firm = problem, problem.needs, firm
        self.kinds = [kind for s in problem.series for kind in kinds_of(s)]
        self.home = {unit: node for kind in self.kinds for node, units in kind.homes.items() for unit in units}
        self.kind = {unit: kind for kind in self.kinds for units in kind.homes.values() for unit in units}
        self.new: dict[str, Kind] = {}
        for o in problem.options:
            if o.started:
                cpu, memory = _needed(o.cpu_cores_each, CPU_TENTH), _needed(o.host_mem_bytes_each, MEMORY_TENTH)
                linked, load = o.linked and o.gpus_each > 1, (o.gpus_each, cpu, memory)
                self.new[o.id] = kind = Kind(problem.by_series[o.series], o, load, linked)
                self.kind |= {o.unit(k): kind for k in range(kind.count)}
        self.rooms = {n.name: Room(n, problem.fixed_gpus.get(n.name, 0)) for n in problem.nodes}
        self.kept = {n.name for n in problem.nodes if not n.rented}
        self.chosen: dict[str, PlanOption] = {}
        # GPUs and whole nodes of jobs in each hour, by pool.
        self.asked, self.whole = dict(self.needs.base), dict(self.needs.whole)
        self.at: dict[str, str] = {}
        self._log: list[tuple[str, Any, Any]] = []
        for unit, node in self.home.items():
            self.place(unit, node)
        for room in self.rooms.values():
            room.crowd_today, room.full = dict(room.crowd), not room.within(problem.tenants_apart)
        # GPUs that one node keeps free for the largest replica, in a pool with a reserve.
        self.spare = dict.fromkeys(problem.pools, 0)
        for pool, nodes in problem.pools.items():
            if not any(n.extra in ("buy", "missing") for n in nodes):
                names = {n.name for n in nodes}
                largest = max((k.gpus for k in self.kinds if not names.isdisjoint(k.homes)), default=0)
                free = max((r.free for r in self._kept(pool) if r.node.held is None), default=0)
                self.spare[pool] = min(largest, free)

    # Changes

    @property
    def mark(self) -> int:
        return len(self._log)

    def undo(self, mark: int) -> None:
        while len(self._log) > mark:
            what, key, before = self._log.pop()
            if what == "unit":
                self._put(key, before)
            elif what == "keep":
                (self.kept.add if before else self.kept.discard)(key)
            else:
                self._count(key, -1)
                del self.chosen[key.series]

    def place(self, unit: str, node: str | None) -> None:
        """Run a unit on a node; None: nowhere."""
        self._log.append(("unit", unit, self.at.get(unit)))
        self._put(unit, node)

    def _put(self, unit: str, node: str | None) -> None:
        kind, was = self.kind[unit], self.at.pop(unit, None)
        for at, sign in ((was, -1), (node, 1)):
            if at is not None:
                for name, load in kind.loads(at).items():
                    self.rooms[name].add(kind, unit, load, sign)
        if node is not None:
            self.at[unit] = node

    def keep(self, name: str, kept: bool) -> None:
        self._log.append(("keep", name, name in self.kept))
        (self.kept.add if kept else self.kept.discard)(name)

    def choose(self, option: PlanOption) -> None:
        self._log.append(("option", option, None))
        self._count(option, 1)
        self.chosen[option.series] = option

    def _count(self, option: PlanOption, sign: int) -> None:
        for total, change in ((self.asked, self.needs.change), (self.whole, self.needs.change_whole)):
            for pool, hours in change[option.id].items():
                total[pool] = total[pool] + sign * hours

    def set(self, chosen: Mapping[str, PlanOption], places: Mapping[str, str], kept: Set[str]) -> State:
        """Become another layout."""
        for option in chosen.values():
            self.choose(option)
        for unit in {*self.at, *places}:
            self.place(unit, places.get(unit))
        self.kept = set(kept)
        return self

    # Rules

    def _kept(self, pool: str) -> list[Room]:
        return [self.rooms[n.name] for n in self.problem.pools[pool] if n.name in self.kept]

    def reserve(self, pool: str) -> int:
        """GPUs kept free for failures: none in a pool that all work leaves, or (`firm`) that never had any."""
        work = self.asked[pool].any() or (self.firm and self.needs.base[pool].any())
        return self.problem.reserve.get(pool, 0) if work else 0

    def sound(self, pool: str) -> bool:
        """Whether what the pool keeps carries its work, and its reserve can be used (rules 11 and 12)."""
        kept, free = self._kept(pool), self.reserve(pool)
        if int(self.asked[pool].max()) + free > sum(r.node.gpus for r in kept):
            return False
        open_ = [r for r in kept if r.node.held is None]
        if int(self.whole[pool].max()) > sum(not r.gpus for r in open_):
            return False
        return not free or max((r.free for r in open_), default=0) >= self.spare[pool]

    def may(self, kind: Kind, node: PlanNode) -> bool:
        """Whether the node could take a replica if nothing else were there."""
        alien = node.tenants is not None and kind.series.tenant not in node.tenants
        is_open = node.pool == kind.pool and node.held is None and not self.rooms[node.name].full and not alien
        most = node.island_gpus if kind.linked and node.island_gpus else node.gpus
        return kind.movable and is_open and kind.gpus <= most

    def most(self, kind: Kind, name: str, option: PlanOption | None) -> int:
        """Replicas of its series that a node may hold."""
        s = kind.series
        return apart(s, option) if option else max(s.apart, self.rooms[name].crowd_today.get(s.id, 0))

    def fits(self, kind: Kind, name: str, most: int) -> bool:
        """Whether one more replica can start on a node. `most`: replicas of its series that may be there."""
        room = self.rooms[name]
        is_there = name in self.kept and kind.gpus <= room.free and room.crowd[kind.series.id] < most
        if not is_there or not self.may(kind, room.node):
            return False
        room.add(kind, "", kind.load, 1)
        fits = room.within(self.problem.tenants_apart)
        room.add(kind, "", kind.load, -1)
        return fits

    def crowded(self, series: PlanSeries, option: PlanOption) -> bool:
        """Whether a node holds more replicas of the series than an option allows."""
        return any(room.crowd[series.id] > apart(series, option) for room in self.rooms.values())

    def may_touch(self, series: Set[str]) -> bool:
        limit = self.problem.max_moves
        if limit is None:
            return True
        moved = {self.kind[unit].series.id for unit, node in self.at.items() if self.home.get(unit, node) != node}
        return len(moved | self.chosen.keys() | series) <= limit

    def give_up(self, name: str) -> bool:
        """Stop keeping a node that nothing runs on, where its pool can do without."""
        room = self.rooms[name]
        if room.node.held is not None or room.gpus or room.units or name not in self.kept:
            return False
        mark = self.mark
        self.keep(name, False)
        if self.sound(room.node.pool):
            return True
        self.undo(mark)
        return False

    def best(self, kind: Kind, option: PlanOption | None, avoid: str = "") -> str | None:
        """The fullest node that takes a replica: empty ones can be given up."""
        candidates = [
            (not room.gpus, room.free, name)
            for name in (n.name for n in self.problem.pools.get(kind.pool, ()))
            if name != avoid and self.fits(kind, name, self.most(kind, name, option))
            for room in (self.rooms[name],)
        ]
        return min(candidates)[2] if candidates else None

    def take(self, option: PlanOption) -> bool:
        """Carry an option out, and rent what it needs; where it cannot be, all is as it was."""
        s, mark = self.problem.by_series[option.series], self.mark
        excluded = any(o.id in option.excludes or option.id in o.excludes for o in self.chosen.values())
        if s.id in self.chosen or excluded or not self.may_touch({s.id}) or not self._carry_out(s, option):
            self.undo(mark)
            return False
        return True

    def _carry_out(self, s: PlanSeries, option: PlanOption) -> bool:
        self.choose(option)
        for _ in range(0 if s.jobs else len(s.units) - (option.left if option.keeps_units else 0)):
            # From nodes with too many of its replicas first, then from those that are nearly empty.
            rooms = {u.id: self.rooms[self.at[u.id]] for u in s.units if u.id in self.at}
            most = apart(s, option)
            self.place(min(rooms, key=lambda u: (rooms[u].crowd[s.id] <= most, rooms[u].gpus, u)), None)
        if self.crowded(s, option):
            return False
        spare = [n.name for n in self.problem.pools.get(option.pool or "", ()) if n.rented and n.name not in self.kept]
        for k in range(option.started):
            kind = self.new[option.id]
            node = self.best(kind, option)
            while node is None and spare:
                self.keep(spare.pop(0), True)
                node = self.best(kind, option)
            if node is None:
                return False
            self.place(option.unit(k), node)
        while option.pool is not None and not self.sound(option.pool) and spare:
            self.keep(spare.pop(0), True)
        return all(self.sound(pool) for pool in self.needs.pools_of(option))
