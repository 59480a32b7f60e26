"""From what was judged and recommended to the problem that a plan solves. What a plan reads of the advice and of the
moves, it reads here, in `inputs` and `figures`."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from ...rules.catalog.types import NodeSku
from ..classify.types import NodeFacts
from ..core.advice_types import Recommendation
from ..core.coded_text import CodedText, all_of, coded
from ..core.frame import Frame
from ..pipeline import Reasoned
from ..recommend.constraints import GAP_MAX, NODES_SHARED
from ..recommend.fleet import Fleet
from ..recommend.groups import Group
from ..recommend.pricing import Price
from . import inputs
from .inputs import EXCLUDED, pool_key, pool_of
from .problem import NO_CHANGE, RISKS, FleetChange, Hours, PlanNode, PlanOption, PlanRequest, PlanSeries, Problem
from .starts import awaited, turns_of
from .state import apart
from .whatif import changed, unknown

# Nodes of one SKU that a plan may rent at most for one change.
RENTED_MAX = 64


@dataclass(frozen=True)
class Drafted:
    """`problem` with what it was made of, and `changes`: what `change` made of today's fleet, in sentences. `left_out`:
    recommendation -> why it is no choice; `grid`: begin of each hour (Unix seconds); `crowded`: pool -> GPUs that
    its work of the window would lack today; `reserve_wanted`: pool -> GPUs that should be free for failures."""

    request: PlanRequest
    change: FleetChange
    problem: Problem
    left_out: Mapping[str, CodedText]
    grid: Hours
    crowded: Mapping[str, int]
    reserve_wanted: Mapping[str, int]
    changes: tuple[CodedText, ...]


def draft(reasoned: Reasoned, frame: Frame, request: PlanRequest, change: FleetChange) -> Drafted:
    """The problem of a fleet. `frame`: what the advice rests on, for who holds what now and what the hosts can take.
    Raises UsageError for a name that nothing has."""
    verdicts, fleet = reasoned.fleet.verdicts, reasoned.fleet
    groups = {g.series_id: g for g in fleet.groups}
    continuing = [g for g in fleet.groups if inputs.goes_on(g)]
    where, unnamed = inputs.gpus_held(verdicts, fleet.groups, frame.uses, GAP_MAX)
    with_jobs: dict[str, set[str | None]] = defaultdict(set)
    for g in continuing:
        if g.current and inputs.comes_and_goes(g):
            for node in (node for w in g.now for node in where.get(w.id) or w.nodes):
                with_jobs[node].add(inputs.team_of(g))
    nodes = []
    for facts in verdicts.nodes:
        excluded = EXCLUDED if facts.node in request.exclude else None
        held = inputs.why_held(verdicts, facts, fleet.floor_hours) or excluded
        nodes.append(replace(inputs.plan_node(fleet, verdicts, facts, held), drains=facts.node in with_jobs))
    # Node -> cores (95th percentile of its hours) and bytes of memory (their maximum) in use for each GPU that is held
    # there now; 0: not measured, which limits nothing.
    taken = Counter[str]()
    for w in (w for group in fleet.groups if group.current for w in group.now):
        taken.update(where.get(w.id, {}))
    rows = frame.host.reindex(columns=["node", "cpu_util_mean", "mem_used_bytes_max"])
    by_node = rows.set_index("node").astype(float).groupby(level=0)
    cpu, memory = by_node["cpu_util_mean"].quantile(0.95).fillna(0.0), by_node["mem_used_bytes_max"].max().fillna(0.0)
    per_gpu = {
        n.name: (cpu.get(n.name, 0.0) * (n.cpu_cores or 0.0) / inputs.CPU_MAX / held, memory.get(n.name, 0.0) / held)
        for n in nodes
        if (held := taken[n.name])
    }
    first, end = math.ceil(verdicts.window.start / 3600) * 3600.0, verdicts.window.end
    hours = np.arange(max(int((end - first) // 3600), 1), dtype=np.float64)
    grid = first + 3600.0 * hours  # the whole hours of the window
    services = [
        inputs.service_of(g, request, where, inputs.demand_of(g, grid, fleet.headroom(g)), per_gpu)
        for g in continuing if not inputs.comes_and_goes(g)
    ]  # fmt: skip
    jobs = inputs.jobs_of([g for g in continuing if inputs.comes_and_goes(g)], verdicts, request, grid)
    series = {s.id: s for s in (*services, *jobs) if s is not None}
    keys = {w.id: g.series_id for g in fleet.groups for w in g.workloads}
    options, left = list[PlanOption](), dict[str, CodedText]()
    for r in reasoned.options:
        key = keys.get(r.workload or "", "")
        choice = choice_of(r, series.get(key), groups.get(key), fleet, request)
        if isinstance(choice, PlanOption):
            options.append(choice)
        else:
            left[r.id] = choice
    rented = _rented(fleet, options, series, groups) if request.goal == "cash" else []
    pools = {n.pool for n in (*nodes, *rented)}
    why = coded("plan-target-not-there", "the fleet has no such nodes, and none may be rented or has a price")
    left |= {o.id: why for o in options if o.pool is not None and o.pool not in pools}
    # Nodes that hold more than replicas: shared GPUs, GPUs of unknown holders, and jobs that run now.
    for k, n in enumerate(nodes if request.tenants_apart else ()):
        beside = with_jobs[n.name].union(*(teams for (node, _), teams in unnamed.items() if node == n.name))
        here = {s.tenant for s in series.values() for u in s.units if n.name in u.gpus}
        teams = frozenset() if None in beside else frozenset({*here, *filter(None, beside)})
        nodes[k] = replace(n, tenants=teams) if beside or len(teams) > 1 else n
    fixed = Counter(node for node, _ in unnamed)
    problem, crowded = as_today(Problem(
        nodes=(*nodes, *rented), series=tuple(series.values()),
        options=tuple(o for o in options if o.pool is None or o.pool in pools),
        goal=request.goal, now=fleet.at, max_moves=request.max_moves,
        fixed_gpus={n.name: min(fixed[n.name], n.gpus) for n in nodes if fixed[n.name] and n.gpus},
        tenants_apart=request.tenants_apart,
    ))  # fmt: skip
    known_teams = {s.team for s in series.values() if s.team}
    every = known_teams | {n.name for n in problem.nodes} | {o.id for o in reasoned.options}
    every |= {name for s in series.values() for name in (s.id, s.name, *(u.id for u in s.units))}
    every |= {name for w in reasoned.advice.workloads for name in (w.id, w.name)}
    for what, asked, names in (("team", request.only, known_teams), ("name", request.exclude, every)):
        for name in sorted(asked - names):
            raise unknown(what, name, names)
    problem = _with_queue(problem, reasoned, continuing, unnamed.keys())
    problem, changes = changed(problem, change) if change != NO_CHANGE else (problem, ())
    wanted, reserve = reserve_of(problem, request)
    return Drafted(request, change, awaited(replace(problem, reserve=reserve)), left, grid, crowded, wanted, changes)


def _with_queue(problem: Problem, reasoned: Reasoned, continuing: Sequence[Group], unnamed: Set[inputs.Gpu]) -> Problem:
    """The problem with the jobs that wait and the GPUs at rest: those that nothing holds, and those of jobs. `unnamed`:
    held by what no series accounts for. MIG instances are given to no job."""
    if problem.goal != "capacity" or reasoned.queue is None:
        return problem
    verdicts, jobs = reasoned.fleet.verdicts, {g.series_id: g for g in continuing if inputs.comes_and_goes(g)}
    resting = [gpu for gpu in verdicts.resting if gpu.parent_uuid is None and (gpu.node, gpu.gpu_uuid) not in unnamed]
    taken = {uuid for g in continuing if g.series_id not in jobs for uuid in g.gpus}
    idle = Counter(gpu.node for gpu in resting if not gpu.held and gpu.gpu_uuid not in taken)
    begin = verdicts.window.end - inputs.LAST_SECONDS
    runs = sorted((w.end, id_, w.gpus) for id_, g in jobs.items() for w in g.now if w.end > begin)
    holder = {uuid: id_ for _, id_, gpus in runs for uuid in gpus}  # a GPU may have gone from one job to the next
    series = tuple(
        replace(s, resting=Counter(gpu.node for gpu in resting if gpu.held and holder.get(gpu.gpu_uuid) == s.id))
        for s in problem.series
    )
    turns = turns_of(reasoned.queue, verdicts, reasoned.fleet.catalog)
    return replace(problem, idle_gpus=idle, queue=turns, series=series)


def as_today(problem: Problem) -> tuple[Problem, Mapping[str, int]]:
    """The problem with demand cut down to what the fleet can carry today, and by how many GPUs, by pool: jobs of an
    earlier week may not fit beside services that began since."""
    crowded: dict[str, int] = {}
    series = {s.id: s for s in problem.series}
    taken = {name for s in problem.series for u in s.units for name in u.gpus}
    taken |= {name for name, count in problem.fixed_gpus.items() if count}
    for pool, nodes in problem.pools.items():
        today, work = [n for n in nodes if not n.rented], [s for s in problem.series if s.pool == pool]
        held = {s.id: 0 if s.jobs else s.gpu_count for s in work}
        fixed = sum(held.values()) + sum(problem.fixed_gpus.get(n.name, 0) for n in today)
        gpus, wholes = problem.needs[pool]
        room, free = sum(n.gpus for n in today), sum(n.name not in taken and n.held is None for n in today)
        if (over := int(gpus.max()) - room) > 0:
            crowded[pool] = over
        # What is asked for beyond what is held fits as far as there is room for it.
        ones = np.ones(len(gpus))
        share = np.minimum(np.divide(max(room - fixed, 0), gpus - fixed, out=ones.copy(), where=gpus > fixed), 1.0)
        whole_share = np.minimum(np.divide(free, wholes, out=ones.copy(), where=wholes > 0), 1.0)
        for s in work:
            more = problem.load_of(s, None)[0] - held[s.id]
            cut = np.where(share < 1.0, np.minimum(s.demand, held[s.id] + np.floor(more * share)), s.demand)
            nodes_cut = np.where(whole_share < 1.0, np.floor(s.whole_nodes * whole_share), s.whole_nodes)
            series[s.id] = replace(s, demand=cut, whole_nodes=nodes_cut)
    return replace(problem, series=tuple(series.values())), crowded


def _rented(
    fleet: Fleet, options: Sequence[PlanOption], series: Mapping[str, PlanSeries], groups: Mapping[str, Group]
) -> list[PlanNode]:
    """Nodes that could be rented for the options, where a price is known: at the place of the node that is left."""
    asked: Counter[str] = Counter()
    facts: dict[str, tuple[NodeFacts, NodeSku, Price]] = {}
    for o in options:
        node = groups[o.series].nodes[0]
        if o.pool is None or o.pool == inputs.pool_of(node):
            continue
        name = o.pool.removeprefix(inputs.pool_key(node.cluster, node.provider, node.region, ""))
        sku, price, s = fleet.catalog.node(name), fleet.book.beside(node, name), series[o.series]
        if sku is None or price is None:
            continue
        # A replica is on one node, and on none are more of a series than may be together.
        together = max(min(sku.gpu_count // max(o.gpus_each, 1), apart(s, o)), 1)
        count = max(math.ceil(o.units * o.gpus_each / max(sku.gpu_count, 1)), math.ceil(o.units / together))
        facts[o.pool] = node, sku, price
        asked[o.pool] += min(math.ceil(o.units * o.gpus_each / sku.gpu_count) if s.jobs else count, RENTED_MAX)
    out: list[PlanNode] = []
    numbers: Counter[str] = Counter()
    for pool, count in sorted(asked.items()):
        node, sku, price = facts[pool]
        for _ in range(count):
            # One SKU may be asked for at several places: it is numbered on from one to the next.
            numbers[sku.name] += 1
            out.append(
                PlanNode(
                    f"new {sku.name} {numbers[sku.name]}", pool, sku.gpu, sku.name, sku.gpu_count, price.usd_per_hour,
                    price.id, rented=True, region=node.region,
                    island_gpus=inputs.island_of(fleet.catalog.gpu(sku.gpu)),
                )
            )  # fmt: skip
    return out


def reserve_of(problem: Problem, request: PlanRequest) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Pool -> GPUs that should be free for failures, and how many of them a plan keeps: no more than are free today, so
    that it makes a full pool no fuller."""
    wanted, kept = {}, {}
    for pool, nodes in problem.pools.items():
        members = [n for n in nodes if n.is_today or n.extra == "added"]
        if not members:
            continue
        count = request.reserve_nodes if request.reserve_nodes is not None else inputs.reserve_nodes(len(members))
        wanted[pool] = sum(sorted((n.gpus for n in members), reverse=True)[:count])
        used = int(problem.needs[pool][0].max())
        kept[pool] = max(min(wanted[pool], sum(n.gpus for n in members) - used), 0)
    return wanted, kept


# What blocks a recommendation by itself and not as a part of a plan: the plan knows who else is on the nodes, and what
# everything costs together.
ALONE = frozenset({NODES_SHARED.code, "paid-on-top", "rented-on-top", "nothing-saved", "nodes-of-several-kinds"})
# Actions that move nothing: they go beside any layout.
IN_PLACE = frozenset({"lower-clock", "power-cap", "rest-clocks", "schedule-off", "fix-first"})


def choice_of(
    r: Recommendation, series: PlanSeries | None, group: Group | None, fleet: Fleet, request: PlanRequest
) -> PlanOption | CodedText:
    """A recommendation about a series as a choice, or why it is none."""
    why = _no_choice(r, series, group, request)
    if why is not None:
        return why
    assert series is not None and group is not None
    target = fleet.catalog.node(r.target.node_sku) if r.action == "move-sku" and r.target.node_sku else None
    # Runs that each hold fewer GPUs hold fewer together. Faster ones hold as many at a time, for less time.
    smaller = min(r.target.gpu_count / max(group.gpu_count, 1), 1.0) if r.action == "reduce-gpus" else 1.0
    ratio = r.time_ratio.p50 if r.time_ratio is not None and r.action == "move-sku" else 1.0
    if series.jobs:
        ratio = max(ratio, 1.0) * smaller
        running = {node for w in group.now for node in w.nodes} if group.current and r.action == "release" else set()
    else:
        running = {node for u in series.units for node in u.gpus}
    size = target.gpu_count if target is not None else None
    if r.action == "release":
        shape = 0, 0, False, 0
    elif series.jobs:
        shape = _job_shape(series, group, max(group.nodes[0].gpu_count if size is None else size, 1), ratio, smaller)
    else:
        shape = _shape(r, series, group, size)
    if shape is None:
        return coded("plan-no-whole-replica", "no whole replica or run can be spared, or none fits such a node")
    if excluded := ", ".join(sorted(running & request.exclude)):
        return coded("plan-node-excluded", "it would stop work on {nodes}, excluded from the plan", nodes=excluded)
    units, each, keeps, node_gpus = shape
    pool = None if r.action == "release" else pool_of(group.nodes[0])
    if r.action == "move-sku" and r.target.node_sku is not None:
        pool = pool_key(group.nodes[0].cluster, group.nodes[0].provider, group.nodes[0].region, r.target.node_sku)
    cores = sum(u.cpu_cores for u in series.units) / max(series.gpu_count, 1)
    memory = max((u.host_mem_bytes / max(u.gpu_count, 1) for u in series.units), default=0.0)
    return PlanOption(
        id=r.id, series=series.id, action=r.action, pool=pool, units=units, gpus_each=each, risk=r.risk,
        demand_scale=ratio, keeps_units=keeps, cpu_cores_each=round(cores * each, 1),
        host_mem_bytes_each=round(memory * each, -8), excludes=frozenset(r.excludes),
        energy_kwh_per_month=r.energy_saving_kwh_per_month.p50 if r.energy_saving_kwh_per_month else 0.0,
        linked=group.may_use_nvlink and each > 1 and not keeps, node_gpus=node_gpus,
    )  # fmt: skip


def _no_choice(
    r: Recommendation, series: PlanSeries | None, group: Group | None, request: PlanRequest
) -> CodedText | None:
    if r.id in request.exclude:
        return EXCLUDED
    if r.decision is not None and r.set_aside:
        return coded("plan-decided", "it is {state}", state=r.decision.state)
    blocked = [why for why in r.blocked_by if why.code not in ALONE]
    if blocked:
        return CodedText("plan-blocked", str(all_of(blocked)), {"codes": ", ".join(why.code for why in blocked)})
    if r.action in ("consolidate", "swap-placement") or (r.action == "release" and r.workload is None):
        return coded("plan-by-layout", "the plan places the work itself")
    if RISKS.index(r.risk) > RISKS.index(request.risk):
        return coded("plan-risk", "its risk is {risk} (limit: {limit})", risk=r.risk, limit=request.risk)
    if r.action in IN_PLACE:
        return coded("plan-in-place", "it changes no GPU count and no node, and goes with any plan")
    if series is None or group is None:
        return coded("plan-no-series", "its GPUs are shared, of several node types, or of an unknown holder")
    if series.untouchable is not None:
        return series.untouchable
    if r.action == "release" and r.source.gpu_count < group.gpu_count:
        return coded("plan-part-of-series", "it releases idle replicas, and the plan moves or stops a series whole")
    if r.action == "move-sku" and (r.target.node_sku is None or r.time_ratio is None):
        return coded("plan-no-target", "no node to move to is known")
    return None


# Replicas afterwards, GPUs of each, whether they are those of today, and GPUs taken of each whole node. None: its work
# does not fit.
Shape = tuple[int, int, bool, int]


def _job_shape(series: PlanSeries, group: Group, size: int, scale: float, smaller: float) -> Shape | None:
    """Where each run of a job runs is the scheduler's decision; on nodes of `size` GPUs one that takes half of a node
    or more needs it whole. `smaller`: share of its GPUs that a run keeps."""
    runs = [math.ceil(len(w.gpus) / max(len(w.nodes), 1) * smaller - 1e-9) for w in group.workloads]
    if max(runs) > size and group.unit > 1:
        return None
    # GPUs that runs take of a node where as many run there as fit: with the least of them no node is counted twice.
    wholes = [size // run * run for run in (min(gpus, size) for gpus in runs) if 2 * run >= size]
    peak = float(series.demand.max(initial=0.0)) * scale
    if not wholes:
        return math.ceil(peak - 1e-9), 1, True, 0
    return math.ceil(peak / min(wholes) - 1e-9), size, True, min(wholes)


def _shape(r: Recommendation, series: PlanSeries, group: Group, node_gpus: int | None) -> Shape | None:
    count, each = r.target.gpu_count, max(group.gpus_per_replica, 1)
    if r.action == "mig-slice":
        return count, 1, False, 0
    if node_gpus is not None and node_gpus < each:
        each = group.unit  # GPUs that do not talk to one another may part where no node holds as many
    units, fewer = math.ceil(count / each), r.action == "reduce-gpus"
    if count <= 0 or (node_gpus or each) < each or (fewer and units * each >= series.gpu_count):
        return None
    return units, each, fewer, 0
