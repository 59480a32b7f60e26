"""From what was judged and recommended to the problem that a plan solves."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from ..classify.types import NodeFacts, Verdicts
from ..core.coded_text import coded
from ..core.frame import Frame
from ..core.verdict_types import WorkloadVerdict
from ..pipeline import Reasoned
from ..recommend.evidence import GAP_MAX
from ..recommend.groups import Group
from ..recommend.move_context import MoveContext
from .choices import LeftOut, choice_of, drawn_by_series
from .demand import JobUse, grid_of, jobs_of_pool
from .kinds import apart
from .limits import CPU_MAX, EXCLUDED, PlanRequest
from .mig import divided_today
from .pools import host_use, islands_of, plan_node, pool_of, reserve_nodes, why_held
from .problem import Hours, PlanNode, PlanOption, PlanSeries, Problem
from .series import GPUS_SHARED, Placed, comes_and_goes, goes_on, placed, plan_series, team_of

# Nodes of one SKU that a plan may rent at most for one change.
RENTED_MAX = 64


@dataclass(frozen=True)
class Drafted:
    """`problem` with what it was made of. `left_out`: recommendations that are no choice of it; `grid`: begin of each
    hour (Unix seconds); `groups`: by series; `crowded`: pool -> GPUs that its jobs would lack today, were they to
    return beside the services of now; `reserve_wanted`: pool -> GPUs that should be free for failures;
    `reserve_lost`: pool -> GPUs of them that a changed fleet has no room for and that today's has."""

    problem: Problem
    left_out: tuple[LeftOut, ...]
    grid: Hours
    groups: Mapping[str, Group]
    crowded: Mapping[str, int]
    reserve_wanted: Mapping[str, int]
    reserve_lost: Mapping[str, int] = field(default_factory=dict)


def draft(found: Reasoned, frame: Frame, request: PlanRequest) -> Drafted:
    """The problem of a fleet. `frame`: what the advice rests on, for who holds what now and what the hosts can take."""
    verdicts, scene = found.verdicts, found.scene
    where = placed(verdicts, found.groups, frame.uses, GAP_MAX)
    with_jobs = _with_jobs(found.groups, where)
    nodes = _nodes(verdicts, scene, request, frozenset(with_jobs))
    per_gpu = _per_gpu(frame.host, nodes, where, found.groups)
    grid = grid_of(verdicts.window)
    jobs = _jobs(verdicts, found.groups, where, grid)
    series = {
        s.id: s
        for g in found.groups
        for s in plan_series(g, scene, request, where, grid, per_gpu, jobs.get(g.series_id, {}))
    }
    groups = {g.series_id: g for g in found.groups}
    options, left = _choices(found, series, groups, request)
    rented, no_price = _rented(found, options, series, groups)
    if request.goal != "cash":
        # Who wants nodes, GPUs or energy back does not rent others for them.
        rented, here = [], {n.pool for n in nodes}
        no_price |= {o.id for o in options if o.pool is not None and o.pool not in here}
    why = (
        coded("plan-target-without-price", "no price for the nodes that it moves to")
        if request.goal == "cash"
        else coded("plan-target-not-there", "the fleet has no such nodes, and only the goal cash rents any")
    )
    left += [LeftOut(o.recommendation, why) for o in found.options if o.recommendation.id in no_price]
    options = [o for o in options if o.id not in no_price]
    problem = Problem(
        nodes=(*nodes, *rented),
        series=tuple(series.values()),
        options=tuple(options),
        goal=request.goal,
        now=scene.at,
        horizon_months=request.horizon_months,
        move_usd=request.move_usd,
        max_moves=request.max_moves,
        fixed_gpus={n.name: min(where.unnamed[n.name], n.gpus) for n in nodes if where.unnamed.get(n.name) and n.gpus},
        tenants_apart=request.tenants_apart,
    )
    if request.tenants_apart:
        problem = _with_tenants(problem, with_jobs, where)
    problem, crowded = as_today(problem)
    wanted, reserve = reserve_of(problem, request)
    return Drafted(replace(problem, reserve=reserve), tuple(left), grid, groups, crowded, wanted)


def _jobs(
    verdicts: Verdicts, groups: Sequence[Group], where: Placed, grid: Hours
) -> Mapping[str, Mapping[str, JobUse]]:
    """Series -> pool -> what its runs held there."""
    pools: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        if goes_on(group, where) and comes_and_goes(group):
            for first, runs in _by_pool(verdicts, group).values():
                pools[pool_of(first)].append(replace(group, nodes=(first,), workloads=tuple(runs)))
    found: dict[str, dict[str, JobUse]] = defaultdict(dict)
    for pool, own in pools.items():
        for key, use in jobs_of_pool(own, grid).items():
            found[key][pool] = use
    return found


def _by_pool(verdicts: Verdicts, group: Group) -> Mapping[str, tuple[NodeFacts, list[WorkloadVerdict]]]:
    """Runs by the pool of their first node, with a node of each pool."""
    found: dict[str, tuple[NodeFacts, list[WorkloadVerdict]]] = {}
    for w in group.workloads:
        at = next((node for name in w.nodes if (node := verdicts.node(name)) is not None), group.nodes[0])
        found.setdefault(pool_of(at), (at, []))[1].append(w)
    return found


def as_today(problem: Problem) -> tuple[Problem, Mapping[str, int]]:
    """The problem with jobs cut down to what the fleet can carry today, and by how many GPUs, by pool.

    Jobs of an earlier week may not fit beside services that began since. No plan has to make room for what has none
    today, nor may it take more away.
    """
    crowded: dict[str, int] = {}
    series = {s.id: s for s in problem.series}
    in_mig = divided_today(problem)
    for pool, nodes in problem.pools.items():
        own = [n for n in nodes if not n.rented]
        jobs = [s for s in problem.series if s.pool == pool and s.jobs]
        if not own or not jobs:
            continue
        fixed = sum(problem.fixed_gpus.get(n.name, 0) for n in own)
        room = sum(n.gpus - in_mig[n.name] for n in own) - fixed
        room -= sum(problem.held(s).get(pool, 0) for s in problem.series)
        taken = {name for s in problem.series for u in s.units for name in u.gpus}
        taken |= {name for name, count in problem.fixed_gpus.items() if count}
        free = sum(1 for n in own if n.name not in taken and n.held is None)
        asked = np.sum([s.demand for s in jobs], axis=0)
        wholes = np.sum([s.whole_nodes for s in jobs], axis=0)
        over = int(np.ceil(np.max(asked - room, initial=0.0)))
        if over > 0:
            crowded[pool] = over
        share = np.minimum(np.divide(max(room, 0), asked, out=np.ones_like(asked), where=asked > 0), 1.0)
        whole_share = np.minimum(np.divide(free, wholes, out=np.ones_like(wholes), where=wholes > 0), 1.0)
        for s in jobs:
            series[s.id] = replace(
                s,
                demand=np.floor(s.demand * share),
                whole_nodes=np.where(whole_share < 1.0, np.floor(s.whole_nodes * whole_share), s.whole_nodes),
            )
    return replace(problem, series=tuple(series.values())), crowded


def _with_jobs(groups: Sequence[Group], where: Placed) -> Mapping[str, frozenset[str | None]]:
    """Nodes on which jobs run now -> their teams."""
    found: dict[str, set[str | None]] = defaultdict(set)
    for g in groups:
        if g.current and goes_on(g, where) and comes_and_goes(g):
            for node in (node for w in g.now for node in where.by_workload.get(w.id) or w.nodes):
                found[node].add(team_of(g))
    return {node: frozenset(teams) for node, teams in found.items()}


def _with_tenants(problem: Problem, jobs: Mapping[str, frozenset[str | None]], where: Placed) -> Problem:
    """The problem with who is on nodes beside the replicas that it knows: whoever shares GPUs, holds them by a name
    that nobody knows, or runs a job now (`jobs`: node -> teams)."""
    beside = {name: where.holders.get(name, frozenset()) | jobs.get(name, frozenset()) for name in problem.by_node}
    own: dict[str, set[str]] = defaultdict(set)
    for s in problem.series:
        for name in (name for u in s.units for name in u.gpus):
            own[name].add(s.tenant)
    nodes = tuple(
        replace(n, tenants=frozenset({*own[n.name], *(team or "" for team in beside[n.name])})) if beside[n.name] else n
        for n in problem.nodes
    )
    return replace(problem, nodes=nodes, closed=frozenset(name for name, teams in beside.items() if None in teams))


def _nodes(verdicts: Verdicts, scene: MoveContext, request: PlanRequest, busy: frozenset[str]) -> list[PlanNode]:
    out = []
    for node in verdicts.nodes:
        held = why_held(verdicts, node, scene.floor_hours)
        if held is None and node.node in request.exclude:
            held = EXCLUDED
        divided = any(one.node == node.node for one in verdicts.instances)
        out.append(replace(plan_node(scene, verdicts, node, held), drains=node.node in busy, mig=divided))
    return out


def _per_gpu(
    host: pd.DataFrame, nodes: Sequence[PlanNode], where: Placed, groups: Sequence[Group]
) -> Mapping[str, tuple[float, float]]:
    """Node -> cores and bytes in use for each GPU that is held there now."""
    use, taken = host_use(host), Counter[str]()
    for group in groups:
        if group.current:
            for w in group.now:
                taken.update(where.by_workload.get(w.id, {}))
    found = {}
    for node in nodes:
        cpu, memory = use.get(node.name, (None, None))
        if held := taken[node.name]:
            cores = (node.cpu_cores or 0.0) / CPU_MAX
            found[node.name] = ((cpu or 0.0) * cores / held, (memory or 0.0) / held)
    return found


def _choices(
    found: Reasoned, series: Mapping[str, PlanSeries], groups: Mapping[str, Group], request: PlanRequest
) -> tuple[list[PlanOption], list[LeftOut]]:
    options: list[PlanOption] = []
    left: list[LeftOut] = []
    for key, own in drawn_by_series(found.options, found.groups).items():
        for drawn in own:
            group = groups.get(key)
            if key == "" and drawn.recommendation.action == "release":
                continue  # a node without work: the plan gives it back by itself
            one = choice_of(drawn, series.get(key), group, found.scene, request)
            if isinstance(one, LeftOut):
                if one.why.code == "plan-no-series" and group is not None and group.shared:
                    one = replace(one, why=GPUS_SHARED)
                left.append(one)
            else:
                options.append(one)
    return options, left


def _rented(
    found: Reasoned, options: Sequence[PlanOption], series: Mapping[str, PlanSeries], groups: Mapping[str, Group]
) -> tuple[list[PlanNode], frozenset[str]]:
    """Nodes that could be rented for the options, and the ids of those options for whose nodes no price is known."""
    by_id = {o.recommendation.id: o.recommendation for o in found.options}
    asked: Counter[str] = Counter()
    facts: dict[str, tuple[NodeFacts, str]] = {}
    without: set[str] = set()
    for o in options:
        node, name = groups[o.series].nodes[0], by_id[o.id].target.node_sku
        if o.pool is None or name is None or o.pool == pool_of(node):
            continue
        sku, price = found.scene.catalog.node(name), found.scene.book.beside(node, name)
        if sku is None or price is None:
            without.add(o.id)
            continue
        facts[o.pool] = (node, name)
        asked[o.pool] += min(_nodes_for(o, series[o.series], sku.gpu_count), RENTED_MAX)
    out: list[PlanNode] = []
    numbers: Counter[str] = Counter()
    for pool, count in sorted(asked.items()):
        node, name = facts[pool]
        for _ in range(count):
            # One SKU may be asked for at several places: it is numbered on from one to the next.
            numbers[name] += 1
            out.append(rented_node(found.scene, node, name, pool, numbers[name]))
    return out, frozenset(without)


def _nodes_for(option: PlanOption, series: PlanSeries, gpus: int) -> int:
    """Nodes of so many GPUs that an option takes at most: a replica is on one of them, and on none are more of a series
    than may be together."""
    by_gpus = math.ceil(option.units * option.gpus_each / max(gpus, 1))
    if series.jobs:
        return by_gpus
    together = max(min(gpus // max(option.gpus_each, 1), apart(series, option)), 1)
    return max(by_gpus, math.ceil(option.units / together))


def rented_node(scene: MoveContext, beside: NodeFacts, name: str, pool: str, number: int) -> PlanNode:
    """A node of a SKU as it could be rented at the place of another."""
    sku, price = scene.catalog.node(name), scene.book.beside(beside, name)
    assert sku is not None
    gpu = scene.catalog.gpu(sku.gpu)
    return PlanNode(
        name=f"new {name} {number}", pool=pool, gpu_sku=sku.gpu, node_sku=sku.name, gpus=sku.gpu_count,
        usd_per_hour=price.usd_per_hour if price is not None else None, price=price.id if price is not None else None,
        gpu_mem_bytes=float(gpu.mem_bytes) if gpu is not None else None, rented=True, region=beside.region,
        islands=islands_of(gpu, sku.gpu_count),
    )  # fmt: skip


def with_reserve(drafted: Drafted, problem: Problem, request: PlanRequest) -> Drafted:
    """The draft of a changed fleet: for failures it keeps what is free without nodes that are not there."""
    wanted, kept = reserve_of(problem, request)
    lost = {pool: gpus - kept.get(pool, 0) for pool, gpus in drafted.problem.reserve.items()}
    return replace(
        drafted, problem=replace(problem, reserve=kept), reserve_wanted=wanted,
        reserve_lost={pool: gpus for pool, gpus in lost.items() if gpus > 0},
    )  # fmt: skip


def reserve_of(problem: Problem, request: PlanRequest) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Pool -> GPUs that should be free for failures, and how many of them a plan keeps: no more than are free today, so
    that it makes a full pool no fuller."""
    wanted, kept = {}, {}
    in_mig = divided_today(problem)
    for pool, nodes in problem.pools.items():
        own = [n for n in nodes if n.is_there and not n.rented]
        if not own:
            continue
        count = request.reserve_nodes if request.reserve_nodes is not None else reserve_nodes(len(own))
        wanted[pool] = sum(sorted((n.gpus for n in own), reverse=True)[:count])
        used = float(problem.needed(pool, {}).max(initial=0.0)) + sum(problem.fixed_gpus.get(n.name, 0) for n in own)
        there = sum(n.gpus - in_mig[n.name] for n in own)
        kept[pool] = int(max(min(wanted[pool], there - math.ceil(used - 1e-9)), 0))
    return wanted, kept
