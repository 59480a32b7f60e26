"""A layout in the making: today's, then changes that can be undone, with the limits of each node and pool."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ..core.worth import HOURS_PER_MONTH
from .problem import Goal, PlanNode, PlanOption, PlanSeries, Problem

MONTH_SECONDS = HOURS_PER_MONTH * 3600
# How far cash counts.
HORIZON_SECONDS = 12 * MONTH_SECONDS
# US dollars a month, or share of a node or of its GPUs, that relocating one replica must bring: less is not worth a
# restart (assumed).
MOVE_USD, MOVE_SHARE = 50.0, 0.02
# A whole node can be given away or take a large job: among layouts with as many free GPUs it is the better one.
WHOLE_SHARE = 0.1
UNITS = {"cash": "USD/month", "nodes": "nodes", "capacity": "GPUs", "energy": "kWh/month"}
# A GPU of a pool where jobs wait is worth so many of others: with few moves these come first (assumed).
AWAITED = 100
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
    waits = max((node.bound_until or 0.0) - problem.now, 0.0)
    worths: Mapping[Goal, float] = {
        # In the share of the horizon that is left giving the node back is cash.
        "cash": month_usd(node) * max(1.0 - waits / HORIZON_SECONDS, 0.0),
        "nodes": 1.0,
        "capacity": node.gpus * (WHOLE_SHARE + node.rented) * (AWAITED if node.pool in problem.awaited else 1),
        "energy": (node.idle_watts or 0.0) * HOURS_PER_MONTH / 1000,
    }
    return worths[problem.goal]


def option_worth(option: PlanOption, problem: Problem) -> float:
    """What the change brings by itself, beside the nodes that fall free."""
    series = problem.by_series[option.series]
    if problem.goal == "energy":
        return option.energy_kwh_per_month
    if problem.goal != "capacity":
        return 0.0
    times, there = (AWAITED if pool in problem.awaited else 1 for pool in (series.pool, option.pool))
    if series.jobs:
        return float(times * sum(series.resting.values())) if option.pool is None else 0.0
    if option.keeps_units:
        return times * series.gpu_count * (1 - option.left / max(len(series.units), 1))
    return float(times * series.gpu_count - there * option.left * option.gpus_each)


def move_cost(problem: Problem, gpus: int) -> float:
    """What relocating one replica of so many GPUs has to bring."""
    return {"cash": MOVE_USD, "nodes": MOVE_SHARE, "capacity": MOVE_SHARE * gpus, "energy": 1.0}[problem.goal]


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

    def move(self, gpus: int) -> int:
        return round(move_cost(self.problem, max(gpus, 1)) * SCALE)

    def of(self, state: State) -> int:
        """The value of an answer net of what moving costs."""
        nodes = self.problem.nodes
        total = sum(-self.node[n.name] for n in nodes if n.rented and n.name in state.kept)
        total += sum(self.node[n.name] for n in nodes if not n.rented and n.name not in state.kept)
        total += sum(self.option[o.id] for o in state.chosen.values())
        return total - sum(self.move(state.kind[unit].gpus) for unit in state.moved())


UNLIMITED = 10**12
# GPUs, tenths of a core, tenths of a GB of host memory, and NVLink islands.
Load = tuple[int, int, int, int]


def _hosted(gpus: int, cpu_cores: float, host_mem_bytes: float) -> Load:
    return gpus, math.ceil(cpu_cores * 10 - 1e-6), math.ceil(host_mem_bytes / 1e8 - 1e-6), 0


@dataclass(frozen=True, eq=False)
class Kind:
    """Replicas of one series that are alike, or that an option starts: which of them runs where makes no difference, so
    they are counted. `load`: of each, without islands. `homes`: node -> its units there today. `parts`: of a unit on
    several nodes, the load on each."""

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

    def loads(self, node: PlanNode) -> Mapping[str, Load]:
        """Node -> what one replica takes there, where it is placed at `node`."""
        islands = math.ceil(self.gpus / node.island_gpus) if self.linked and node.island_gpus else 0
        return self.parts or {node.name: (*self.load[:3], islands)}


def kinds_of(series: PlanSeries) -> list[Kind]:
    alike: dict[tuple[Any, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for u in series.units:
        share = len(u.gpus)
        parts = {node: _hosted(g, u.cpu_cores / share, u.host_mem_bytes / share) for node, g in u.gpus.items()}
        if share > 1:
            alike[(0, *parts[u.node][1:]), False, False, tuple(parts.items())][u.node].append(u.id)
        else:
            alike[parts[u.node], u.linked and u.gpu_count > 1, u.movable, ()][u.node].append(u.id)
    return [
        Kind(series, None, load, linked, movable, {n: tuple(sorted(units)) for n, units in homes.items()}, dict(parts))
        for (load, linked, movable, parts), homes in alike.items()
    ]


def apart(series: PlanSeries, option: PlanOption | None) -> int:
    """Replicas that one node may hold: where an option leaves others, no larger share is lost with a node than now."""
    return series.apart if option is None else max(1, series.apart * option.left // max(len(series.units), 1))


class Room:
    """What is on one node. `limits`, `used`: as in `Load`. `crowd`, `tenants`: replicas by series and by tenant.
    `full`: it is beyond one of its limits today, and takes nothing."""

    def __init__(self, node: PlanNode, fixed_gpus: int) -> None:
        self.node, self.used, self.full = node, [fixed_gpus, 0, 0, 0], False
        cpu, memory = node.cpu_cores, node.host_mem_bytes
        self.limits: Load = (
            node.gpus,
            UNLIMITED if cpu is None else math.floor(cpu * 10 + 1e-6),
            UNLIMITED if memory is None else math.floor(memory / 1e8 + 1e-6),
            node.gpus // node.island_gpus if node.island_gpus else UNLIMITED,
        )
        self.units: set[str] = set()
        self.crowd, self.tenants = Counter[str](), Counter[str]()
        self.crowd_today: Mapping[str, int] = {}

    @property
    def gpus(self) -> int:
        return self.used[0]

    @property
    def free(self) -> int:
        return self.node.gpus - self.gpus

    def add(self, kind: Kind, unit: str, load: Load, sign: int) -> None:
        self.used = [used + sign * more for used, more in zip(self.used, load, strict=True)]
        self.crowd[kind.series.id] += sign
        self.tenants[kind.series.tenant] += sign
        (self.units.add if sign > 0 else self.units.discard)(unit)

    def within(self, tenants_apart: bool) -> bool:
        """Whether the node is within its own limits but for how many replicas of a series it holds."""
        if any(used > limit for used, limit in zip(self.used, self.limits, strict=True)):
            return False
        return not tenants_apart or self.node.tenants is not None or sum(n > 0 for n in self.tenants.values()) <= 1


class State:
    """Today's layout, then whatever is changed in it. `undo` takes back what was changed since a mark. `firm`: a pool
    keeps its reserve even if all work leaves it, so that none leaves for that. `needs`: of each pool, as of
    `Problem.load_of`."""

    def __init__(self, problem: Problem, *, firm: bool = False) -> None:
        self.problem, self.firm = problem, firm
        self.kinds = [kind for s in problem.series for kind in kinds_of(s)]
        self.home = {unit: node for kind in self.kinds for node, units in kind.homes.items() for unit in units}
        self.kind = {unit: kind for kind in self.kinds for units in kind.homes.values() for unit in units}
        self.new: dict[str, Kind] = {}
        for o in problem.options:
            if o.started:
                load, linked = _hosted(o.gpus_each, o.cpu_cores_each, o.host_mem_bytes_each), o.linked
                self.new[o.id] = kind = Kind(problem.by_series[o.series], o, load, linked and o.gpus_each > 1)
                self.kind |= {o.unit(k): kind for k in range(kind.count)}
        self.rooms = {n.name: Room(n, problem.fixed_gpus.get(n.name, 0)) for n in problem.nodes}
        self.kept = {n.name for n in problem.nodes if not n.rented}
        self.chosen: dict[str, PlanOption] = {}
        self.needs = dict(problem.needs)
        self.at: dict[str, str] = {}
        self._log: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        for unit, node in self.home.items():
            self.place(unit, node)
        # Nodes beyond their limits today have no more GPUs to give for that.
        self.begun = {name: min(room.gpus, room.node.gpus) for name, room in self.rooms.items()}
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
            change, key, before = self._log.pop()
            change(key, before)

    def _change(self, change: Callable[[Any, Any], None], key: object, before: object, after: object) -> None:
        self._log.append((change, key, before))
        change(key, after)

    def place(self, unit: str, node: str | None) -> None:
        """Run a unit on a node; None: nowhere."""
        self._change(self._place, unit, self.at.get(unit), node)

    def keep(self, name: str, kept: bool) -> None:
        self._change(self._keep, name, name in self.kept, kept)

    def choose(self, option: PlanOption) -> None:
        self._change(self._choose, option, False, True)

    def _place(self, unit: str, node: str | None) -> None:
        kind, was = self.kind[unit], self.at.pop(unit, None)
        for at, sign in ((was, -1), (node, 1)):
            if at is not None:
                for name, load in kind.loads(self.rooms[at].node).items():
                    self.rooms[name].add(kind, unit, load, sign)
        if node is not None:
            self.at[unit] = node

    def _keep(self, name: str, kept: bool) -> None:
        (self.kept.add if kept else self.kept.discard)(name)

    def _choose(self, option: PlanOption, taken: bool) -> None:
        for pool, hours in self.problem.changes[option.id].items():
            self.needs[pool] = self.needs[pool] + (hours if taken else -hours)
        if taken:
            self.chosen[option.series] = option
        else:
            del self.chosen[option.series]

    def set(self, chosen: Mapping[str, PlanOption], places: Mapping[str, str], kept: Set[str]) -> State:
        """Become another layout."""
        for option in chosen.values():
            self.choose(option)
        for unit in {*self.at, *places}:
            self.place(unit, places.get(unit))
        self.kept = set(kept)
        return self

    def moved(self) -> list[str]:
        """Units of today that run on another node."""
        return [unit for unit, node in self.at.items() if self.home.get(unit, node) != node]

    # Rules

    def startable(self, name: str) -> int:
        """GPUs of a node that waiting jobs could have (rule 13); negative: units that came took more than was idle."""
        node, problem = self.rooms[name].node, self.problem
        if node.held is not None or not node.is_today:
            return 0
        gone = (problem.by_series[key].resting for key, o in self.chosen.items() if o.pool is None)
        released = sum(resting.get(name, 0) for resting in gone)
        return problem.idle_gpus.get(name, 0) + self.begun[name] - self.rooms[name].gpus + released

    def _kept(self, pool: str) -> list[Room]:
        return [self.rooms[n.name] for n in self.problem.pools[pool] if n.name in self.kept]

    def reserve(self, pool: str) -> int:
        """GPUs kept free for failures: none in a pool that all work leaves, or (`firm`) that never had any."""
        work = self.needs[pool][0].any() or (self.firm and self.problem.needs[pool][0].any())
        return self.problem.reserve.get(pool, 0) if work else 0

    def sound(self, pool: str) -> bool:
        """Whether what the pool keeps carries its work, and its reserve can be used (rules 11 and 12)."""
        kept, free = self._kept(pool), self.reserve(pool)
        gpus, wholes = self.needs[pool].max(axis=1)
        if gpus + free > sum(r.node.gpus for r in kept):
            return False
        open_ = [r for r in kept if r.node.held is None]
        if wholes > sum(not r.gpus for r in open_):
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
        (load,) = kind.loads(room.node).values()
        room.add(kind, "", load, 1)
        fits = room.within(self.problem.tenants_apart)
        room.add(kind, "", load, -1)
        return fits

    def crowded(self, series: PlanSeries, option: PlanOption) -> bool:
        """Whether a node holds more replicas of the series than an option allows."""
        return any(room.crowd[series.id] > apart(series, option) for room in self.rooms.values())

    def may_touch(self, series: Set[str]) -> bool:
        most, kind = self.problem.max_moves, self.kind
        return most is None or len({kind[u].series.id for u in self.moved()} | self.chosen.keys() | series) <= most

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
