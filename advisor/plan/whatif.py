"""A fleet or a demand that is not today's. What has no place yet stands on extra nodes, which are to buy or missing;
emptying them brings most of all, so that the plan finds their work another place where there is one."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ...rules.base.errors import NothingToDo, UsageError
from ...rules.base.sanitize import quoted, suggest
from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from ..core.timestamps import day
from .problem import Extra, FleetChange, PlanNode, PlanSeries, Problem

# Nodes more of one SKU, and times the demand, that can be asked for.
NODES_MAX, FACTOR_MAX = 10_000, 1000.0


def changed(problem: Problem, change: FleetChange) -> tuple[Problem, tuple[CodedText, ...]]:
    """The problem of the changed fleet, and what was changed, in sentences. Raises UsageError for what is unknown."""
    changes: list[CodedText] = []
    kind: Extra = "buy" if change.buy else "missing"
    if (change.remove or change.demand) and not change.buy:
        # Whether the fleet carries something is not asked of nodes that could be rented.
        nodes = tuple(n for n in problem.nodes if not n.rented)
        pools = {n.pool for n in nodes}
        options = tuple(o for o in problem.options if o.pool is None or o.pool in pools)
        problem = replace(problem, nodes=nodes, options=options)
    if (ends := change.commitments_end) is not None:
        bound = {n.name for n in problem.nodes if n.bound_until is not None and n.bound_until > ends}
        text = "commitments of {nodes} end on {date}"
        changes.append(coded("whatif-commitments", text, nodes=counted(len(bound), "node"), date=day(ends)))
        until = ends if ends > problem.now else None
        nodes = (replace(n, bound_until=until) if n.name in bound else n for n in problem.nodes)
        problem = replace(problem, nodes=tuple(nodes))
    for asked, count in change.add.items():
        like = _like(problem, asked)
        today = [n for n in problem.pools[like.pool] if not n.rented]
        # It brings as much as any of its pool: none of those is given back because one is added.
        usd = max((n.usd_per_hour for n in today if n.usd_per_hour is not None), default=None)
        watts = max((n.idle_watts for n in today if n.idle_watts is not None), default=None)
        like = replace(like, usd_per_hour=usd, idle_watts=watts)
        problem = replace(problem, nodes=(*problem.nodes, *_copies(problem.nodes, like, "added", count)))
        nodes_more = counted(count, "node")
        changes.append(coded("whatif-added", "{nodes} of {sku} more (cost not counted)", nodes=nodes_more, sku=asked))
    today = {n.name for n in problem.nodes if n.is_today}
    for name in sorted(change.remove - today):
        raise unknown("node", name, today)
    if change.remove:
        if {n.name for n in problem.nodes if n.is_today or n.extra == "added"} <= change.remove:
            raise NothingToDo("All nodes would be removed.", "Keep one.")
        changes.append(coded("whatif-removed", "without {nodes}", nodes=", ".join(sorted(change.remove))))
        gone = {name: replace(problem.by_node[name], extra=kind, held=None, bound_until=None) for name in change.remove}
        problem = replace(problem, nodes=tuple(gone.get(n.name, n) for n in problem.nodes))
    problem = _grown(problem, change, kind, changes)
    if (growth := change.growth_per_month) is not None:
        changes.append(coded("whatif-growth", "all demand grows by {growth:.1%} a month", growth=growth))
    return _with_room(problem, kind), tuple(changes)


def _copies(nodes: Sequence[PlanNode], like: PlanNode, kind: Extra, count: int) -> list[PlanNode]:
    taken = {n.name for n in nodes}
    start = f"{kind} {like.node_sku or like.gpu_sku or 'node'}"
    names = [name for k in range(count + len(taken)) if (name := f"{start} {k + 1}") not in taken][:count]
    return [
        replace(like, name=name, bound_until=None, held=None, tenants=None, drains=False, extra=kind) for name in names
    ]


def _like(problem: Problem, asked: str) -> PlanNode:
    """A node of the fleet of this SKU: by its pool or the end of that (the place, then the node SKU), or by its GPU.
    Raises UsageError."""
    members = [n for n in problem.nodes if not n.rented]
    by_pool = [n for n in members if f"/{n.pool}".endswith(f"/{asked}")]
    matching = by_pool or [n for n in members if n.gpu_sku and asked in (n.gpu_sku, n.gpu_sku.split("-")[0])]
    pools = sorted({n.pool for n in matching})
    if not matching:
        raise unknown("node type", asked, {n.node_sku or n.gpu_sku or "" for n in members} - {""})
    if len(pools) > 1 and asked not in pools:
        names = ", ".join(map(quoted, pools[:5]))
        raise UsageError(f"{quoted(asked)} is ambiguous: {names}.", "Use one of these names.")
    return next((n for n in matching if n.pool == asked), matching[0])


def unknown(what: str, name: str, names: Iterable[str]) -> UsageError:
    """The error for a name that is none of `names`."""
    names = sorted(names)
    hint = suggest(name, names) or f"Use one of {', '.join(map(quoted, names[:5]))}."
    return UsageError(f"Unknown {what} {quoted(name)} in this window.", hint if names else f"No {what} is known.")


def _grown(problem: Problem, change: FleetChange, kind: Extra, changes: list[CodedText]) -> Problem:
    """Where several factors are for one series, they are multiplied."""
    factors: dict[str, float] = defaultdict(lambda: 1.0)
    for (what, name), factor in change.demand.items():
        values = {
            s.id: {"team": s.team, "workload": s.name, "kind": s.kind, "all": "all"}.get(what) for s in problem.series
        }
        ids = [id_ for id_, value in values.items() if value == name]
        if not ids:
            raise unknown(what, name, {str(value) for value in values.values() if value})
        for id_ in ids:
            factors[id_] *= factor
        whose = "all work" if what == "all" else f"{what} {name}"
        changes.append(coded("whatif-demand", "demand of {whose} x{factor:g}", whose=whose, factor=factor))
    for id_, factor in factors.items():
        problem = _scaled(problem, problem.by_series[id_], factor, kind)
    # What was recommended for today's demand says nothing of another.
    return replace(problem, options=tuple(o for o in problem.options if o.series not in factors))


def _scaled(problem: Problem, series: PlanSeries, factor: float, kind: Extra) -> Problem:
    demand, count = series.demand * factor, len(series.units)
    nodes: list[PlanNode] = []
    if series.jobs:
        other = replace(series, demand=np.ceil(demand), whole_nodes=np.ceil(series.whole_nodes * factor))
    else:
        wanted = max(math.ceil(count * factor - 1e-9), 1)
        units = list(series.units[:wanted])
        like = problem.by_node[units[0].node]
        size = max(units[0].gpu_count, 1)
        each = max(min(like.gpus // size, series.apart), 1)
        nodes = _copies(problem.nodes, like, kind, math.ceil(max(wanted - count, 0) / each))
        for k in range(wanted - count):
            gpus = {nodes[k // each].name: size}
            units.append(replace(units[k % count], id=f"{series.id}+{k + 1}", gpus=gpus, fixed=None))
        other = replace(series, demand=demand, units=tuple(units))
    all_series = tuple(other if s.id == series.id else s for s in problem.series)
    return replace(problem, series=all_series, nodes=(*problem.nodes, *nodes))


def _with_room(problem: Problem, kind: Extra) -> Problem:
    used = {name for s in problem.series for u in s.units for name in u.gpus}
    used |= {name for name, count in problem.fixed_gpus.items() if count}
    for pool, members in problem.pools.items():
        there = [n for n in members if not n.rented]
        if not there:
            continue
        gpus, wholes = map(int, problem.needs[pool].max(axis=1))
        lacking = gpus - sum(n.gpus for n in there)
        whole = wholes - sum(n.name not in used and n.held is None for n in there)
        count = min(max(math.ceil(lacking / max(there[0].gpus, 1)), whole, 0), NODES_MAX)
        problem = replace(problem, nodes=(*problem.nodes, *_copies(problem.nodes, there[0], kind, count)))
    return problem


def parse_add(text: str) -> tuple[str, int]:
    """``4xSKU`` as SKU and count. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,5})x\s*(\S.*?)\s*", text)
    if match is None or not 0 < int(match[1]) <= NODES_MAX:
        raise UsageError(f"Invalid nodes to add {quoted(text)}: expected COUNTxSKU.", "Write 4xH100-SXM5.")
    return match[2], int(match[1])


def parse_demand(text: str) -> tuple[tuple[str, str], float]:
    """``team=search x1.5`` as what, name and factor. Raises UsageError."""
    match = re.fullmatch(r"\s*(?:(team|workload|kind|all)\s*=\s*(\S.*?)|all)\s*x\s*([0-9.e+-]+)\s*", text)
    with suppress(ValueError):
        if match is not None and 0 < (factor := float(match[3])) <= FACTOR_MAX:
            return (match[1] or "all", match[2] or "all"), factor
    remedy = "Write 'team=search x1.5'; WHAT is team, workload or kind, or write 'all x1.2'."
    raise UsageError(f"Invalid demand {quoted(text)}: expected WHAT=NAME xFACTOR.", remedy)
