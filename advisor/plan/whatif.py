"""A fleet or a demand that is not today's: nodes more or fewer, demand that grows, commitments that end earlier.

What has no place yet (work of nodes that go, replicas that a higher demand asks for) stands on extra nodes, which are
to buy or missing. Emptying them brings most of all, so that the plan finds their work another place where there is one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np

from ...rules.base.errors import NothingToDo, UsageError
from ...rules.base.sanitize import quoted
from ...rules.base.suggestions import suggest
from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from ..core.timestamps import day
from .limits import FleetChange
from .problem import Extra, PlanNode, PlanSeries, Problem

# Nodes more of one SKU, and times the demand, that can be asked for.
NODES_MAX, FACTOR_MAX = 10_000, 1000.0


def changed(problem: Problem, change: FleetChange) -> tuple[Problem, tuple[CodedText, ...]]:
    """The problem of the changed fleet, and what was changed, in sentences. Raises UsageError for what is unknown."""
    told: list[CodedText] = []
    names = _Names(problem)
    if (change.remove or change.demand) and not change.buy:
        problem = _without_rent(problem)
    problem = _commitments(problem, change, told)
    problem = _added(problem, change, told, names)
    problem = _removed(problem, change, told)
    problem = _grown(problem, change, told, names)
    if change.growth_per_month is not None:
        told.append(coded("whatif-growth", "all demand grows by {growth:.1%} a month", growth=change.growth_per_month))
    return _with_room(problem, change, names), tuple(told)


class _Names:
    """Names of nodes that are not there: none is given twice."""

    def __init__(self, problem: Problem) -> None:
        self._taken = {n.name for n in problem.nodes}
        self._last: Counter[str] = Counter()

    def new(self, start: str) -> str:
        while True:
            self._last[start] += 1
            name = f"{start} {self._last[start]}"
            if name not in self._taken:
                self._taken.add(name)
                return name


def _without_rent(problem: Problem) -> Problem:
    """Who asks whether the fleet carries something does not ask for other nodes to carry it."""
    nodes = tuple(n for n in problem.nodes if not n.rented)
    pools = {n.pool for n in nodes}
    options = tuple(o for o in problem.options if o.pool is None or o.pool in pools)
    return replace(problem, nodes=nodes, options=options)


def _commitments(problem: Problem, change: FleetChange, told: list[CodedText]) -> Problem:
    ends = change.commitments_end
    if ends is None:
        return problem
    bound = [n for n in problem.nodes if n.bound_until is not None and n.bound_until > ends]
    told.append(
        coded(
            "whatif-commitments",
            "commitments of {nodes} end on {date}",
            nodes=counted(len(bound), "node"),
            date=day(ends),
        )
    )
    names = {n.name for n in bound}
    until = ends if ends > problem.now else None
    nodes = tuple(replace(n, bound_until=until) if n.name in names else n for n in problem.nodes)
    return replace(problem, nodes=nodes)


def _added(problem: Problem, change: FleetChange, told: list[CodedText], names: _Names) -> Problem:
    nodes = list(problem.nodes)
    for asked, count in change.add.items():
        like = _dearest(problem, _like(problem, asked))
        nodes += [
            _copy(like, names.new(f"added {like.node_sku or like.gpu_sku or 'node'}"), "added") for _ in range(count)
        ]
        told.append(
            coded(
                "whatif-added", "{nodes} of {sku} more (cost not counted)",
                nodes=counted(count, "node"), sku=asked,
            )
        )  # fmt: skip
    return replace(problem, nodes=tuple(nodes))


def _dearest(problem: Problem, like: PlanNode) -> PlanNode:
    """A node that brings as much as any of its pool: none of those is given back because one is added."""
    own = [n for n in problem.pools[like.pool] if not n.rented]
    usd = [n.usd_per_hour for n in own if n.usd_per_hour is not None]
    watts = [n.idle_watts for n in own if n.idle_watts is not None]
    return replace(like, usd_per_hour=max(usd, default=None), idle_watts=max(watts, default=None))


def _like(problem: Problem, asked: str) -> PlanNode:
    """A node of the fleet of this SKU: by its pool or the end of that (the place, then the node SKU), or by its GPU.
    Raises UsageError."""
    own = [n for n in problem.nodes if not n.rented]
    for is_it in (
        lambda n: f"/{n.pool}".endswith(f"/{asked}"),
        lambda n: n.gpu_sku is not None and asked in (n.gpu_sku, n.gpu_sku.split("-")[0]),
    ):
        found = [n for n in own if is_it(n)]
        pools = sorted({n.pool for n in found})
        if len(pools) > 1 and asked not in pools:
            raise UsageError(
                f"{quoted(asked)} is ambiguous: {', '.join(map(quoted, pools[:5]))}.", "Use one of these names."
            )
        if found:
            return next((n for n in found if n.pool == asked), found[0])
    known = sorted({n.node_sku or n.gpu_sku or "" for n in own} - {""})
    raise UsageError(
        f"No node of the fleet is {quoted(asked)}.",
        suggest(asked, known) or f"Use one of {', '.join(map(quoted, known[:5]))}.",
    )


def _copy(node: PlanNode, name: str, extra: Extra) -> PlanNode:
    return replace(node, name=name, bound_until=None, held=None, tenants=frozenset(), drains=False, extra=extra)


def _removed(problem: Problem, change: FleetChange, told: list[CodedText]) -> Problem:
    own = {n.name for n in problem.nodes if n.is_today}
    for name in sorted(change.remove):
        if name not in own:
            raise UsageError(f"Unknown node {quoted(name)}.", suggest(name, sorted(own)) or "Use a node of the fleet.")
    if not change.remove:
        return problem
    if {n.name for n in problem.nodes if n.is_there} <= change.remove:
        raise NothingToDo("All nodes would be removed.", "Keep one.")
    told.append(coded("whatif-removed", "without {nodes}", nodes=", ".join(sorted(change.remove))))
    kind = _kind(change)
    nodes = tuple(
        replace(n, extra=kind, held=None, bound_until=None) if n.name in change.remove else n for n in problem.nodes
    )
    return replace(problem, nodes=nodes)


def _kind(change: FleetChange) -> Extra:
    return "buy" if change.buy else "missing"


def _grown(problem: Problem, change: FleetChange, told: list[CodedText], names: _Names) -> Problem:
    """Where several factors are for one series, they are multiplied."""
    series, nodes = list(problem.series), list(problem.nodes)
    factors: dict[int, float] = defaultdict(lambda: 1.0)
    for (what, name), factor in change.demand.items():
        own = [k for k, s in enumerate(series) if _is_of(s, what, name)]
        if not own:
            known = sorted({str(_value(s, what)) for s in series if _value(s, what)})
            raise UsageError(
                f"No work in the plan has {what} {quoted(name)}.",
                suggest(name, known) or f"Use one of {', '.join(map(quoted, known[:5]))}.",
            )
        for k in own:
            factors[k] *= factor
        whose = "all work" if what == "all" else f"{what} {name}"
        told.append(coded("whatif-demand", "demand of {whose} x{factor:g}", whose=whose, factor=factor))
    for k, factor in factors.items():
        series[k], more = _scaled(series[k], factor, problem, _kind(change), names)
        nodes += more
    # What was recommended for today's demand says nothing of another.
    gone = {series[k].id for k in factors}
    options = tuple(o for o in problem.options if o.series not in gone)
    return replace(problem, series=tuple(series), nodes=tuple(nodes), options=options)


def _value(series: PlanSeries, what: str) -> str | None:
    return {"team": series.team, "workload": series.name, "kind": series.kind, "all": "all"}.get(what)


def _is_of(series: PlanSeries, what: str, name: str) -> bool:
    return what == "all" or _value(series, what) == name


def _scaled(
    series: PlanSeries, factor: float, problem: Problem, kind: Extra, names: _Names
) -> tuple[PlanSeries, list[PlanNode]]:
    """A series at another demand: jobs hold more at a time, a service has more replicas, or fewer."""
    demand = series.demand * factor
    if series.jobs:
        return replace(series, demand=np.ceil(demand), whole_nodes=np.ceil(series.whole_nodes * factor)), []
    count = len(series.units)
    wanted = max(math.ceil(count * factor - 1e-9), 1)
    if wanted <= count:
        return replace(series, demand=demand, units=series.units[:wanted]), []
    like = problem.by_node[series.units[0].node]
    size = max(series.units[0].gpu_count, 1)
    each = max(min(like.gpus // size, series.apart), 1)
    nodes = [_extra(like, kind, names) for _ in range(math.ceil((wanted - count) / each))]
    units = list(series.units)
    for k in range(wanted - count):
        model = series.units[k % count]
        units.append(replace(model, id=f"{series.id}+{k + 1}", gpus={nodes[k // each].name: size}, fixed=None))
    return replace(series, demand=demand, units=tuple(units)), nodes


def _extra(like: PlanNode, kind: Extra, names: _Names) -> PlanNode:
    return _copy(like, names.new(f"{kind} {like.node_sku or like.gpu_sku or 'node'}"), kind)


def _with_room(problem: Problem, change: FleetChange, names: _Names) -> Problem:
    """The problem with as many extra nodes as its jobs lack. For the reserve none is missing."""
    more: list[PlanNode] = []
    for pool, members in problem.pools.items():
        own = [n for n in members if not n.rented]
        if not own:
            continue
        asked = float(problem.needed(pool, {}).max(initial=0.0))
        asked += sum(problem.fixed_gpus.get(n.name, 0) for n in own)
        lacking = asked - sum(n.gpus for n in own)
        count = min(math.ceil(lacking / max(own[0].gpus, 1) - 1e-9), NODES_MAX) if lacking > 0 else 0
        more += [_extra(own[0], _kind(change), names) for _ in range(count)]
    return replace(problem, nodes=(*problem.nodes, *more))


def parse_add(text: str) -> tuple[str, int]:
    """``4xSKU`` as SKU and count. Raises UsageError."""
    count, x, sku = text.partition("x")
    if not x or not count.isascii() or not count.isdigit() or not sku.strip() or not 0 < int(count) <= NODES_MAX:
        raise UsageError(f"Invalid nodes to add {quoted(text)}: expected COUNTxSKU.", "Write 4xH100-SXM5.")
    return sku.strip(), int(count)


def parse_demand(text: str) -> tuple[tuple[str, str], float]:
    """``team=search x1.5`` as what, name and factor. Raises UsageError."""
    whose, x, factor_text = text.rpartition("x")
    what, equals, name = whose.strip().partition("=")
    try:
        factor = float(factor_text)
    except ValueError:
        factor = math.nan
    if whose.strip() == "all":
        what, equals, name = "all", "=", "all"
    valid = x and equals and name and what in ("team", "workload", "kind", "all")
    if not valid or not 0 < factor <= FACTOR_MAX:
        raise UsageError(
            f"Invalid demand {quoted(text)}: expected WHAT=NAME xFACTOR.",
            "Write 'team=search x1.5'; WHAT is team, workload or kind, or write 'all x1.2'.",
        )
    return (what, name.strip()), factor
