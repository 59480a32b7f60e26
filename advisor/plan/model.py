"""The plan as a CP-SAT model: which changes, which nodes stay, how many replicas of a kind stay on and arrive at each.

Where arrivals are counted by size (`carriers.by_size`) whatever it can reach bounds what any layout can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from .carriers import Carrier
from .draft import Today
from .kinds import Anchor, Kind
from .needs import Needs
from .node_rows import Choices, NodeRows
from .problem import PlanOption, PlanSeries, Problem
from .rooms import Rooms
from .worth import Worth

Expr = cp_model.LinearExpr | int


@dataclass(frozen=True)
class Basis:
    """What models of one problem have in common. `rooms`: as they are today."""

    problem: Problem
    rooms: Rooms
    needs: Needs
    worth: Worth
    today: Today


class PlanModel:
    """`whole`: carriers are kinds, so that what is found is a layout; else it is a bound."""

    def __init__(self, basis: Basis, carriers: Sequence[Carrier], *, whole: bool) -> None:
        self.problem = problem = basis.problem
        self.rooms, self.needs, self.worth, self.today = basis.rooms, basis.needs, basis.worth, basis.today
        self.cp = cp_model.CpModel()
        self.keep = {n.name: self.cp.new_bool_var(f"keep:{i}") for i, n in enumerate(problem.nodes)}
        self.take = {o.id: self.cp.new_bool_var(f"take:{i}") for i, o in enumerate(problem.options)}
        self.short: dict[str, Expr] = {
            pool: self.cp.new_int_var(0, lack, f"short:{pool}") if lack else 0
            for pool, lack in self.today.short.items()
        }
        self.vars = Choices(problem, self.rooms, whole, self.cp, self.keep, self.take)
        self._choices()
        for s in problem.series:
            self._today(s)
        self._arrivals(carriers)
        self.rows = NodeRows(self.vars, self.needs.job_pools)
        self._spares()
        self._limit()
        self._aim()

    def _choices(self) -> None:
        p = self.problem
        for s in p.series:
            if own := p.options_of.get(s.id, ()):
                self.cp.add_at_most_one(self.take[o.id] for o in own)
                most = len(s.units)
                for o in own:
                    if o.keeps_units and o.left > most and not s.jobs:
                        self.cp.add(self.take[o.id] == 0)
        pairs = {tuple(sorted((o.id, other))) for o in p.options for other in o.excludes if other in self.take}
        for one, other in sorted(pairs):
            self.cp.add_at_most_one([self.take[one], self.take[other]])
        for o in p.options:
            if o.pool is not None and o.pool not in p.pools:
                self.cp.add(self.take[o.id] == 0)
            for other in o.needs & self.take.keys():
                self.cp.add_implication(self.take[o.id], self.take[other])
        for pool, nodes in p.pools.items():
            # How many nodes of a pool are kept is a number of its own: to decide it first is quick.
            kept = self.cp.new_int_var(0, len(nodes), f"kept:{pool}")
            self.cp.add(kept == sum(self.keep[n.name] for n in nodes))
        for n in p.nodes:
            if n.held is not None or p.fixed_gpus.get(n.name, 0):
                self.cp.add(self.keep[n.name] == 1)

    def _today(self, s: PlanSeries) -> None:
        """Which of today's replicas are left: on their nodes, moved, or ended."""
        own = self.problem.options_of.get(s.id, ())
        kinds, anchors = self.rooms.kinds[s.id], self.rooms.anchors[s.id]
        left = self.vars.unchanged(s) + sum(self.take[o.id] for o in own if o.keeps_units and o.left)
        present: list[Expr] = []
        for i, kind in enumerate(kinds):
            rest = self.vars.rest[kind] = {}
            for node, units in kind.homes.items():
                rest[node] = self.cp.new_int_var(0, len(units), f"rest:{s.id}:{i}:{node}")
                self._only_kept(rest[node], len(units), node)
            self.vars.moved[kind] = self.cp.new_int_var(0, kind.count, f"moved:{s.id}:{i}")
            present.append(here := sum(rest.values()) + self.vars.moved[kind])
            if not own:
                self.cp.add(here == kind.count)
            else:
                self.cp.add(here <= kind.count * left)
                self.cp.add(here >= kind.count * self.vars.unchanged(s))
        for i, anchor in enumerate(anchors):
            count = len(anchor.units)
            least = count if anchor.pinned or not own else 0
            stays = self.vars.stays[anchor] = self.cp.new_int_var(least, count, f"fixed:{s.id}:{i}")
            for node in anchor.parts:
                self._only_kept(stays, count, node)
            present.append(stays)
            if own:
                self.cp.add(stays <= count * left)
                self.cp.add(stays >= count * self.vars.unchanged(s))
        if own and present:
            keeping = sum(self.take[o.id] * o.left for o in own if o.keeps_units)
            self.cp.add(sum(present) == len(s.units) * self.vars.unchanged(s) + keeping)

    def _only_kept(self, var: cp_model.IntVar, most: int, node: str) -> None:
        self.cp.add(var <= most * self.keep[node])

    def _arrivals(self, carriers: Sequence[Carrier]) -> None:
        for i, carrier in enumerate(carriers):
            most = carrier.most
            there = self.vars.arrive[carrier] = {}
            for node in carrier.nodes:
                size = max(carrier.gpus, 1)
                room = self.problem.by_node[node].gpus // size if carrier.mig is None else most
                there[node] = self.cp.new_int_var(0, min(most, room), f"arrive:{i}:{node}")
                if not self.vars.whole or carrier.mig is not None:
                    self._only_kept(there[node], min(most, room), node)
            coming = [
                self.vars.moved[kind] if kind.option is None else self.take[kind.option.id] * kind.count
                for kind in carrier.kinds
            ]
            self.cp.add(sum(there.values()) == sum(coming))

    # What a pool carries

    def demand(self, pool: str, hour: int) -> None:
        """What a pool keeps carries the needs of one hour, or the rest is told to be missing."""
        p, needs = self.problem, self.needs
        asked: Expr = int(needs.base[pool][hour])
        whole: Expr = int(needs.whole[pool][hour])
        for o in p.options:
            if change := needs.delta(o, pool, hour):
                asked += self.take[o.id] * change
            if change := needs.delta_nodes(o, pool, hour):
                whole += self.take[o.id] * change
        nodes = p.pools[pool]
        room = sum(self.keep[n.name] * n.gpus for n in nodes)
        room -= sum(self.rows.divided[n.name] for n in nodes if n.name in self.rows.divided)
        self.cp.add(asked <= room + self.short[pool])
        if pool in needs.job_pools:
            size = needs.size[pool]
            empty = sum(self.rows.empty[n.name] for n in nodes if n.name in self.rows.empty)
            self.cp.add(size * whole <= size * empty + self.short[pool])

    def _spares(self) -> None:
        """A pool with a reserve keeps one node on which its largest unit could start again."""
        p = self.problem
        for pool, nodes in p.pools.items():
            if not p.reserve.get(pool, 0):
                continue
            asking = self._asking(pool)
            always = max((size for size, whose in asking.items() if None in whose), default=0)
            for size, whose in sorted(asking.items()):
                if not size or size < always:
                    continue
                spare = self.rows.spare([n for n in nodes if n.held is None], size)
                for one in whose if size > always else (None,):
                    self.cp.add(spare >= (1 if one is None else self._any_left(one)))

    def _asking(self, pool: str) -> dict[int, list[Kind | Anchor | None]]:
        """GPUs of units on one node -> whose units; None: of what is there whatever is decided."""
        asking: dict[int, list[Kind | Anchor | None]] = defaultdict(list)
        cap = self.today.spare[pool]
        for s in self.problem.series:
            own = self.problem.options_of.get(s.id, ())
            here = (
                *(self.rooms.kinds[s.id] if s.pool == pool else ()),
                *(a for a in self.rooms.anchors[s.id] if any(self.problem.by_node[n].pool == pool for n in a.parts)),
            )
            started = [self.rooms.new[o.id] for o in own if o.started and o.pool == pool]
            for what in (*here, *started):
                size = what.size if cap is None else min(what.size, cap)
                may_end = what in started or self._can_end(s, own)
                asking[size].append(what if may_end else None)
        return asking

    def _can_end(self, s: PlanSeries, own: Sequence[PlanOption]) -> bool:
        return any(not o.keeps_units or o.left < len(s.units) for o in own)

    def _any_left(self, what: Kind | Anchor) -> cp_model.IntVar:
        """1 where any of the replicas is there."""
        if isinstance(what, Kind) and what.option is not None:
            return self.take[what.option.id]
        flag = self.cp.new_bool_var("left")
        if isinstance(what, Anchor):
            self.cp.add(self.vars.stays[what] <= len(what.units) * flag)
        else:
            self.cp.add(sum(self.vars.rest[what].values()) + self.vars.moved[what] <= what.count * flag)
        return flag

    def _limit(self) -> None:
        p = self.problem
        if p.max_moves is None:
            return
        touched: list[Expr] = []
        for s in p.series:
            kinds = self.rooms.kinds[s.id]
            taken = [self.take[o.id] for o in p.options_of.get(s.id, ())]
            if not kinds and not taken:
                continue
            flag = self.cp.new_bool_var(f"touched:{s.id}")
            if taken:
                self.cp.add(sum(taken) <= flag)
            for kind in kinds:
                self.cp.add(self.vars.moved[kind] <= kind.count * flag)
            touched.append(flag)
        self.cp.add(sum(touched) <= p.max_moves)

    def _aim(self) -> None:
        p, worth = self.problem, self.worth
        terms: list[Expr] = [
            self.keep[n.name] * -worth.node[n.name] if n.rented else (1 - self.keep[n.name]) * worth.node[n.name]
            for n in p.nodes
        ]
        terms += [self.take[o.id] * worth.option[o.id] for o in p.options]
        terms += [var * -worth.move(kind.gpus) for kind, var in self.vars.moved.items()]
        terms += [var * -worth.lack for var in self.short.values()]
        self.cp.maximize(sum(terms))

    def hours(self, known: Mapping[str, Iterable[int]]) -> None:
        for pool, own in known.items():
            for hour in sorted(own):
                self.demand(pool, hour)
