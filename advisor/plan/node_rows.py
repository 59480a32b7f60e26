"""The limits of single nodes in the plan's model: GPUs, CPU, host memory, islands, MIG, tenants, replicas apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from .carriers import Carrier
from .kinds import Anchor, Kind, apart
from .mig import PROFILES, geometries, placeable
from .problem import PlanNode, PlanSeries, Problem, Slices
from .rooms import UNLIMITED, Room, Rooms, limits

Expr = cp_model.LinearExpr | int


@dataclass
class Choices:
    """What the model decides. `keep`: nodes; `take`: options; `rest`: replicas that stay on their node; `moved`: that
    leave it for another; `stays`: that may not move and do not end; `arrive`: on each node. `whole`: each carrier is
    one kind."""

    problem: Problem
    rooms: Rooms
    whole: bool
    cp: cp_model.CpModel
    keep: Mapping[str, cp_model.IntVar]
    take: Mapping[str, cp_model.IntVar]
    rest: dict[Kind, dict[str, cp_model.IntVar]] = field(default_factory=dict)
    moved: dict[Kind, cp_model.IntVar] = field(default_factory=dict)
    stays: dict[Anchor, cp_model.IntVar] = field(default_factory=dict)
    arrive: dict[Carrier, dict[str, cp_model.IntVar]] = field(default_factory=dict)

    def unchanged(self, series: PlanSeries) -> Expr:
        """1 where no option of the series is taken."""
        return 1 - sum(self.take[o.id] for o in self.problem.options_of.get(series.id, ()))


@dataclass(frozen=True, slots=True)
class _Load:
    """What one replica takes of a node; of several series one of them."""

    gpus: int
    cpu: int
    memory: int
    linked: bool
    mig: Slices | None
    series: PlanSeries


class _On:
    """Sums of what is on one node."""

    def __init__(self) -> None:
        self.gpus: list[Expr] = []
        self.cpu: list[Expr] = []
        self.memory: list[Expr] = []
        self.most_cpu = self.most_memory = 0
        self.linked: dict[int, list[Expr]] = defaultdict(list)
        self.mig: dict[Slices, list[Expr]] = defaultdict(list)
        self.tenants: dict[str, list[tuple[cp_model.IntVar, int]]] = defaultdict(list)
        self.crowd: dict[str, list[tuple[cp_model.IntVar, int]]] = defaultdict(list)

    def put(self, var: cp_model.IntVar, most: int, load: _Load) -> None:
        """`most`: replicas that `var` can stand for."""
        if load.gpus:
            self.gpus.append(var * load.gpus)
        if load.cpu:
            self.cpu.append(var * load.cpu)
        if load.memory:
            self.memory.append(var * load.memory)
        self.most_cpu += load.cpu * most
        self.most_memory += load.memory * most
        if load.linked and load.gpus > 1:
            self.linked[load.gpus].append(var)
        if load.mig is not None and placeable(load.mig):
            self.mig[load.mig].append(var)
        self.tenants[load.series.tenant].append((var, most))
        self.crowd[load.series.id].append((var, most))


class NodeRows:
    """`divided`: node -> its GPUs in MIG mode; `empty`: node -> whether jobs may have all of it."""

    def __init__(self, choices: Choices, job_pools: Set[str]) -> None:
        """`job_pools`: pools whose jobs need whole nodes."""
        self.model, self.cp, self.job_pools = choices, choices.cp, job_pools
        self.divided: dict[str, cp_model.IntVar] = {}
        self.empty: dict[str, cp_model.IntVar] = {}
        self._used: dict[str, Expr] = {}
        on = self._gathered()
        for n in choices.problem.nodes:
            self._node(n, on[n.name], choices.rooms.rooms[n.name])
        if choices.whole:
            self._apart(on)

    def _gathered(self) -> dict[str, _On]:
        model = self.model
        on: dict[str, _On] = defaultdict(_On)

        for kind, rest in model.rest.items():
            load = _Load(kind.gpus, kind.cpu, kind.memory, kind.linked, kind.mig, kind.series)
            for node, var in rest.items():
                on[node].put(var, len(kind.homes[node]), load)
        for anchor, var in model.stays.items():
            for node, (gpus, cpu, memory) in anchor.parts.items():
                linked = anchor.linked and not anchor.spread
                on[node].put(var, len(anchor.units), _Load(gpus, cpu, memory, linked, anchor.mig, anchor.series))
        for carrier, there in model.arrive.items():
            count = carrier.most
            load = _Load(
                carrier.gpus, carrier.cpu, carrier.memory, carrier.linked, carrier.mig, carrier.kinds[0].series
            )
            for node, var in there.items():
                most = min(count, model.problem.by_node[node].gpus // carrier.gpus) if carrier.gpus else count
                on[node].put(var, most, load)
        return on

    def _node(self, n: PlanNode, on: _On, room: Room) -> None:
        p, keep = self.model.problem, self.model.keep[n.name]
        # What is beyond a limit today takes nothing, so that today's load is its limit.
        gpus = max(n.gpus, room.gpus + room.divided)
        cpu, memory = limits(n)
        self._mig(n, on, gpus)
        used = sum(on.gpus) + p.fixed_gpus.get(n.name, 0)
        if n.name in self.divided:
            used += self.divided[n.name]
        self._used[n.name] = used
        row = used
        if n.held is None and p.fixed_gpus.get(n.name, 0) == 0 and n.pool in self.job_pools:
            empty = self.empty[n.name] = self.cp.new_bool_var(f"empty:{n.name}")
            row = row + empty * gpus
        self.cp.add(row <= keep * gpus)
        if cpu < UNLIMITED and on.most_cpu > cpu:
            self.cp.add(sum(on.cpu) <= keep * max(cpu, room.cpu))
        if memory < UNLIMITED and on.most_memory > memory:
            self.cp.add(sum(on.memory) <= keep * max(memory, room.memory))
        if not room.full:
            self._islands(n, on)
            if p.tenants_apart and not room.named and len(on.tenants) > 1:
                self._tenants(n, on)

    def _mig(self, n: PlanNode, on: _On, gpus: int) -> None:
        if not on.mig:
            return
        shapes = [
            (shape, self.cp.new_int_var(0, gpus, f"shape:{n.name}:{i}"))
            for i, shape in enumerate(geometries())
            if any(count and PROFILES[k] in on.mig for k, count in enumerate(shape))
        ]
        for k, profile in enumerate(PROFILES):
            if profile in on.mig:
                self.cp.add(sum(on.mig[profile]) <= sum(var * shape[k] for shape, var in shapes if shape[k]))
        self.divided[n.name] = divided = self.cp.new_int_var(0, gpus, f"divided:{n.name}")
        self.cp.add(divided == sum(var for _, var in shapes))

    def _islands(self, n: PlanNode, on: _On) -> None:
        if len(n.islands) < 2 or not on.linked:
            return
        sizes = sorted(on.linked)
        chain = [*sizes, *n.islands]
        if all(large % small == 0 for small in sizes for large in chain if large >= small) and max(sizes) <= min(
            n.islands
        ):
            # Each size divides the next and every island: what fits in sum fits.
            if sum(n.islands) < n.gpus:
                self.cp.add(sum(size * sum(on.linked[size]) for size in sizes) <= sum(n.islands))
            return
        loads: list[list[Expr]] = [[] for _ in n.islands]
        for size in sizes:
            inside = [
                self.cp.new_int_var(0, island // size, f"island:{n.name}:{i}:{size}")
                for i, island in enumerate(n.islands)
            ]
            self.cp.add(sum(inside) == sum(on.linked[size]))
            for load, var in zip(loads, inside, strict=True):
                load.append(var * size)
        for load, island in zip(loads, n.islands, strict=True):
            self.cp.add(sum(load) <= island)

    def _tenants(self, n: PlanNode, on: _On) -> None:
        flags: list[cp_model.IntVar] = []
        for tenant, held in sorted(on.tenants.items()):
            flag = self.cp.new_bool_var(f"tenant:{n.name}:{tenant}")
            for var, most in held:
                self.cp.add(var <= most * flag)
            flags.append(flag)
        self.cp.add_at_most_one(flags)

    def _apart(self, on: dict[str, _On]) -> None:
        """Replicas of one series on one node."""
        for name, here in on.items():
            room = self.model.rooms.rooms[name]
            for series_id, held in here.crowd.items():
                s = self.model.problem.by_series[series_id]
                own = self.model.problem.options_of.get(series_id, ())
                stay = max(s.apart, room.crowd_today.get(series_id, 0))
                least = min([stay, *(apart(s, o) for o in own)])
                if sum(most for _, most in held) > least:
                    self._crowd(s, [var for var, _ in held], stay)

    def _crowd(self, s: PlanSeries, held: Sequence[cp_model.IntVar], stay: int) -> None:
        model = self.model
        own = model.problem.options_of.get(s.id, ())
        limit = model.unchanged(s) * stay + sum(model.take[o.id] * apart(s, o) for o in own)
        self.cp.add(sum(held) <= limit)

    def spare(self, nodes: Sequence[PlanNode], size: int) -> Expr:
        """At least 1 only where one of the nodes is kept with so many GPUs free."""
        flags: list[cp_model.IntVar] = []
        for n in nodes:
            if n.gpus - self.model.problem.fixed_gpus.get(n.name, 0) >= size:
                flag = self.cp.new_bool_var(f"spare:{n.name}:{size}")
                room = self.model.rooms.rooms[n.name]
                gpus = max(n.gpus, room.gpus + room.divided)
                self.cp.add(self._used[n.name] + flag * (size + gpus - n.gpus) <= self.model.keep[n.name] * gpus)
                flags.append(flag)
        return sum(flags)
